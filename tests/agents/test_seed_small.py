"""The tools of the seed for small models, run as an agent's box runs them."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from recreate.api.paths import shipped

TOOLS = shipped("scaffolds") / "seed-swe-small" / "tools"
BUG = 'def double(n):\n    """Twice.\n\n    ```\n    double(2)\n    ```\n    """\n    return n + 3\n'
TESTS = """
from maths import double

def test_double():
    assert double(2) == 4

def test_zero():
    assert double(3) == 6

def test_data():
    open("no such file")
"""


@pytest.fixture
def sandbox(tmp_path: Path) -> Path:
    """Sources with a bug and a test that fails whatever one does, under git as a task's box has them."""
    (tmp_path / "maths.py").write_text(BUG)
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests" / "test_maths.py").write_text(TESTS)
    (tmp_path / ".recreate").mkdir()
    public = {"fail": ["tests/test_maths.py::test_double"], "suite": ["tests"], "python_path": ["."]}
    (tmp_path / ".recreate" / "public.json").write_text(json.dumps(public))
    (tmp_path / ".recreate" / "suspects.json").write_text(
        json.dumps([{"file": "maths.py", "name": "double", "first": 1, "last": 8, "score": 1.0}])
    )
    who = ["-c", "user.name=t", "-c", "user.email=t@t"]
    for arguments in (["init", "-q"], ["add", "maths.py", "tests"], [*who, "commit", "-qm", "given"]):
        subprocess.run(["git", *arguments], cwd=tmp_path, check=True)
    return tmp_path


def tool(sandbox: Path, name: str, stdin: str = "") -> tuple[int, str]:
    command = [sys.executable, str(TOOLS / f"{name}.py")]
    done = subprocess.run(command, cwd=sandbox, input=stdin, capture_output=True, text=True, check=False)
    return done.returncode, done.stdout + done.stderr


def test_a_test_that_fails_in_the_given_sources_is_not_held_against_the_agent(sandbox: Path) -> None:
    (sandbox / "maths.py").write_text(BUG.replace("n + 3", "n * 2"))
    status, said = tool(sandbox, "check")
    assert (status, said.splitlines()[-1]) == (0, "1"), said


def test_a_test_that_the_agent_broke_is(sandbox: Path) -> None:
    (sandbox / "maths.py").write_text(BUG.replace("n + 3", "n + 2"))
    (sandbox / "tests" / "test_more.py").write_text(
        "from maths import double\n\ndef test_five():\n    assert double(5) == 8\n"
    )
    subprocess.run(["git", "add", "-A"], cwd=sandbox, check=True)
    who = ["-c", "user.name=t", "-c", "user.email=t@t"]
    (sandbox / "maths.py").write_text(BUG)
    subprocess.run(["git", *who, "commit", "-qam", "more"], cwd=sandbox, check=True)
    (sandbox / "maths.py").write_text(BUG.replace("n + 3", "n * 2"))
    status, said = tool(sandbox, "check")
    assert status == 1, said
    assert "test_more.py::test_five" in said
    assert "test_data" not in said


def test_a_fence_inside_a_docstring_does_not_end_the_reply(sandbox: Path) -> None:
    reply = "Here:\n```python\n" + BUG.replace("n + 3", "n * 2") + "```\n"
    status, said = tool(sandbox, "rewrite", reply)
    assert status == 0, said
    assert "return n * 2" in (sandbox / "maths.py").read_text()
