"""The domain `swe`: mend a bug of a small Python package, graded by the project's own tests.

recipe       what a task is, as facts: a release, a mutation or a pair of releases, the tests that tell
source       a release or a repository -> a folder of pristine sources, fetched at run time
environment  a Python with pytest, in which the suites run
mutate       injected bugs: one small change to one function, by rule
tree         which files are tests, and how hidden ones are cut out
patch        a unified diff: made, read and applied as text
suite        a project's tests run in a box, with results that the tested code cannot easily forge
make         new tasks out of a package or a repository
domain       the port itself
"""

from recreate.domains.swe.domain import Swe

__all__ = ["Swe"]
