"""These tests need torch: `pytest -m rl tests/rl`. Where it is not installed they are not collected."""

from importlib.util import find_spec

collect_ignore_glob = [] if find_spec("torch") else ["test_*.py"]
