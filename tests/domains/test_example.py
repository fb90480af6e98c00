"""A new domain is one file outside the package, and two of it when it is to be built in."""

from __future__ import annotations

import filecmp
import json
import os
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import recreate
from recreate.api.types import Trace
from recreate.cli import run as cli
from recreate.sandboxes import choose
from tests import house
from tests.examples.domain import Filters

NAME = "tests.examples.domain:Filters"
LESSON = "Blank lines never come out of a filter."
FLAGS: dict[str, Any] = {
    "embedder": "hashed",
    "scaffold": "seed",
    "rounds": 1,
    "train": 4,
    "validation": 8,
}


def model(folder: Path) -> str:
    """A scripted model that leaves blank lines in until the lesson says otherwise, and finds that
    lesson."""
    domain, rows = Filters(), []
    for task in domain.tasks():
        for lesson, script in ((LESSON, domain.gold(task)), ("", task.facts["command"] + "\n")):
            text = f"```bash\ncat > filter.sh <<'END'\n{script}END\n```"
            row = {"role": "agent", "task": task.id, "step": 0, "text": text}
            rows.append({**row, "contains": lesson} if lesson else row)
    rows.append({"role": "agent", "text": "```bash\nsubmit\n```"})
    edit = {
        "file": "new lesson",
        "line": 0,
        "title": "Blank lines",
        "text": LESSON,
        "experience": "$1",
        "step": 0,
    }
    study = {
        "why": "blank lines came out",
        "cause": "knowledge",
        "edits": [{**edit, "reason": "The grader says so."}],
    }
    rows.append(
        {
            "role": "optimizer",
            "find": r"experience ([0-9a-f]{16}): FAILED",
            "text": json.dumps(study),
        }
    )
    (folder / "script.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return f"scripted:{folder / 'script.jsonl'}"


@pytest.mark.slow
def test_its_tasks_hold(workspace: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert Counter(task.split for task in Filters().tasks()) == {
        "train": 8,
        "validation": 8,
        "test": 8,
    }
    assert cli(["tasks", "check", NAME, "--split", "test", "--json"]) == 0
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [(row["gold"], row["untouched"]) for row in rows] == [(1.0, 0.0)] * 8


def test_a_folder_in_the_place_of_the_answer_is_no_answer() -> None:
    domain, backend = Filters(), choose()
    task = domain.tasks()[0]
    for script in ("mkdir filter.sh", "ln -s /etc/passwd filter.sh", "mkfifo filter.sh"):
        sandbox = domain.prepare(task, backend)
        try:
            sandbox.run(script)
            answer = domain.collect(task, sandbox)
        finally:
            sandbox.close()
        trace = Trace(attempt="a", task=task.id, scaffold="", model="", answer=answer)
        assert domain.grade(task, trace, backend).evidence == "There is no filter.sh."


@pytest.mark.slow
def test_it_is_built_with_by_its_class(workspace: Path) -> None:
    built = recreate.build(NAME, model=model(workspace), **FLAGS)
    assert (built.verdict.before, built.verdict.after, built.verdict.better) == (0.0, 1.0, True)
    assert [lesson.body for lesson in built.scaffold.lessons] == [LESSON]


def _differing(left: Path, right: Path) -> Iterator[str]:
    """The files of two folders that are not the same, or in one alone; what Python wrote itself
    left out."""
    names = {
        f.relative_to(top).as_posix()
        for top in (left, right)
        for f in top.rglob("*")
        if f.is_file()
    }
    for name in sorted(n for n in names if "__pycache__" not in n):
        a, b = left / name, right / name
        if not (a.is_file() and b.is_file() and filecmp.cmp(a, b, shallow=False)):
            yield name


@pytest.mark.slow
@pytest.mark.usefixtures("each_step")
def test_two_files_of_the_package_make_it_built_in(workspace: Path, tmp_path: Path) -> None:
    """Done in a copy of the package, which then finds it by the registry's door and builds with
    it."""
    checkout = tmp_path / "checkout"
    for folder in ("recreate", "scaffolds"):
        shutil.copytree(
            house.ROOT / folder, checkout / folder, ignore=shutil.ignore_patterns("__pycache__")
        )
    shutil.copy(
        house.ROOT / "tests" / "examples" / "domain.py",
        checkout / "recreate" / "domains" / "filters.py",
    )
    table = checkout / "recreate" / "api" / "plugins.py"
    rows = '"rows": "recreate.domains.rows.domain:RowDomain"'
    text = table.read_text("utf-8")
    assert text.count(rows) == 1
    table.write_text(
        text.replace(rows, f'{rows}, "filters": "recreate.domains.filters:Filters"'), "utf-8"
    )

    flags = [
        "--domain",
        "filters",
        "--model",
        model(workspace),
        "--memory.embedder",
        "hashed",
        "--scaffold",
        "seed",
    ]
    flags += ["--rounds", "1", "--train", "4", "--validation", "8", "--json"]
    environ = {**os.environ, "PYTHONPATH": str(checkout), "PYTHONDONTWRITEBYTECODE": "1"}
    command = [sys.executable, "-m", "recreate", "build", *flags]
    done = subprocess.run(
        command, cwd=workspace, env=environ, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["validation"]["after"] == 1.0

    changed = list(_differing(house.ROOT / "recreate", checkout / "recreate"))
    assert changed == ["api/plugins.py", "domains/filters.py"]
    assert house.find_circle(house.imports(checkout)) == []
