"""Most of these tests need torch: `pytest -m rl tests/rl`. Where it is not installed they are not collected.

Those of test_verl*.py need verl, in an environment of its own: docs/verl.md has the command.
"""

from importlib.util import find_spec

if find_spec("torch"):
    collect_ignore_glob = [] if find_spec("verl") else ["test_verl*.py"]
else:
    from pathlib import Path

    without = {"test_recipe.py", "test_suite.py"}
    collect_ignore = [p.name for p in Path(__file__).parent.glob("test_*.py") if p.name not in without]
