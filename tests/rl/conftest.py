"""These tests need torch: `pytest -m rl tests/rl`. Where it is not installed they are not collected.

Those of test_verl*.py need verl, in an environment of its own: docs/verl.md has the command.
"""

from importlib.util import find_spec

collect_ignore_glob = [] if find_spec("torch") else ["test_*.py"]
if not find_spec("verl"):
    collect_ignore_glob.append("test_verl*.py")
