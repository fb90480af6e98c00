"""The domain `swe`: mend a bug of a small Python package, graded by the project's own tests.

domain         the port itself
facts          what a task is: a release, a mutation or a pair of releases, the tests that tell
case           a task with its sources: the folder an agent gets, the folder that is graded, what mends it
sources        a release or a repository -> a folder of pristine sources; which files are tests
patch          a unified diff: made, read and applied as text
test_run       a project's tests run in a sandbox, with results that the tested code cannot easily forge
pytest_runner  the program that runs them there
mutation       injected bugs: one small change to one function, by rule
generate       new tasks out of a package or a repository
"""

from recreate.domains.swe.domain import Swe

__all__ = ["Swe"]
