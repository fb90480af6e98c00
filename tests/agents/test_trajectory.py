"""The index of a trajectory: what happened at which step."""

from __future__ import annotations

import pytest

from recreate.agents.trajectory import index, tell_index
from recreate.api.types import Step, Trace


def row(action: str, output: str = "") -> str:
    step = Step(step=0, action=action, output=output, status=0)
    return tell_index(index(Trace(attempt="a", task="t", scaffold="s", model="m", steps=(step,))))


def test_commands_and_files_of_an_action_are_told_and_what_a_here_document_holds_is_not() -> None:
    told = row(
        "cd src && A=1 python run.py\ncat > out.txt <<'EOF'\nrm -rf all.py\nEOF\ngrep -n x lib/a.py"
        " | head -3"
    )
    assert "python cat grep head | " in told
    assert "edited out.txt" in told
    assert "rm" not in told.replace("lib/a.py", "").split("|")[1]


def test_files_that_python_in_a_here_document_writes_are_edited() -> None:
    assert "edited made.json" in row("python3 - <<PY\nopen('made.json', 'w').write('{}')\nPY")


def test_what_follows_a_here_document_that_never_ends_is_no_command() -> None:
    assert "| cat |" in row("cat <<EOF\nls\nrm x")


@pytest.mark.parametrize("unit", ["\n", "\n ", ";a=b", "<< ", "a/", "> "])
def test_an_action_of_any_shape_is_indexed(unit: str) -> None:
    """Blank lines by the thousand once took a quarter of a minute a step: each was tried from
    each."""
    assert "step 0" in row(unit * 20_000 + "\nls")
