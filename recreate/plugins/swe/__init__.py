"""The domain `swe`: mend a bug of a small Python package, graded by the project's own tests.

domain         the port itself
facts          what a task is: a release, a mutation or a pair of releases, the tests that tell
case           a task with its sources: the folder an agent gets, the folder that is graded, what
               mends it
rows           rows of SWE-bench and its kin, as they are published
swebench       a task that is such a row; repositories.toml: how the tests of their repositories run
images         such a row in the container image that was published for it; the domain where those
               are opened
clone          a repository's clone, only read
trees          folders that hold a task's sources
sources        a release or a repository -> a folder of pristine sources; which files are tests
patch          a unified diff: made, read and applied as text
test_run       a project's tests run in a sandbox, with results that the tested code cannot easily
               forge
pytest_runner  the program that runs them there
suite_runner   the program that runs a repository's own test command there, and frames what it
               prints
test_log       what such a log says of each test
mutation       injected bugs: one small change to one function, by rule
generate       new tasks out of a package or a repository
hunks          a change in numbered hunks, and the fewest that a test needs
releases       new tasks out of what a release or a commit mends
"""

from recreate.plugins.swe.images import SweInImages as Swe

NEEDS = ("audit",)

__all__ = ["Swe"]
