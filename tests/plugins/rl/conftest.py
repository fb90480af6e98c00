"""Most of these tests need torch: `pytest -m rl tests/rl`. Where it is not installed they are not
collected.

Those of test_verl*.py need verl, in an environment of its own: see verl.md of the plug-in.
"""

import re
from importlib.util import find_spec
from pathlib import Path

import pytest

if find_spec("torch"):
    collect_ignore_glob = [] if find_spec("verl") else ["test_verl*.py"]
else:
    without = {"test_recipe.py", "test_suite.py"}
    collect_ignore = [
        p.name for p in Path(__file__).parent.glob("test_*.py") if p.name not in without
    ]


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """A file that -m leaves out whole is not imported: torch alone takes two seconds, in each
    worker."""
    if collection_path.suffix != ".py":
        return None
    mark = re.search(
        r"^pytestmark = .*?pytest\.mark\.(\w+)", collection_path.read_text("utf-8"), re.MULTILINE
    )
    return True if mark and f"not {mark[1]}" in config.option.markexpr.split(" and ") else None
