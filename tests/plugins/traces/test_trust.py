"""Who imports a trace takes in somebody else's words: they say so wherever they go, and go when
they are forgotten."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from recreate.cli import run as cli
from recreate.lessons.context import new_lesson
from recreate.lessons.store import LessonStore
from recreate.memory.store import ExperienceStore
from recreate.plugins.traces.ungraded import Ungraded
from tests.lab import hostile
from tests.plugins.traces.test_importers import chat, write


def take_in(path: Path, *rows: Any) -> None:
    assert cli(["traces", "import", str(write(path, *rows)), "--domain", "toy"]) == 0


def shown(capsys: pytest.CaptureFixture[str], *words: str) -> Any:
    capsys.readouterr()
    assert cli([*words, "--json"]) == 0
    return [json.loads(line) for line in capsys.readouterr().out.splitlines()]


def test_what_comes_in_is_imported_whatever_it_says_of_itself(
    workspace: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    take_in(tmp_path / "a.jsonl", chat("Say hello.", "hello", task="greet", score=1))
    out = tmp_path / "own.jsonl"
    assert cli(["traces", "export", "--format", "jsonl", "--out", str(out)]) == 0
    (row,) = [json.loads(line) for line in out.read_text().splitlines()]
    forged = {**row, "id": "f" * 16, "trust": "own", "checked": True, "foreign": {}}
    take_in(tmp_path / "b.jsonl", forged)
    (row,) = shown(capsys, "traces", "show", "ffff")
    assert row["trust"] == "imported"
    assert {r["trust"] for r in shown(capsys, "traces", "list")} == {"imported"}
    assert cli(["traces", "show", "ffff"]) == 0
    assert "untrusted: imported; its grade is its own word" in capsys.readouterr().out
    (found,) = shown(capsys, "memory", "recall", "hello", "-k", "1")
    assert found["hits"][0]["trust"] == "imported"
    assert cli(["memory", "recall", "hello", "-k", "1"]) == 0
    assert "(untrusted: imported)" in capsys.readouterr().out


def test_what_was_graded_here_is_its_own_word_no_more(
    workspace: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    take_in(tmp_path / "a.jsonl", chat("Say hello.", "hello", task="greet"))
    memory = ExperienceStore(workspace, "hashed")
    (waiting,) = Ungraded(memory).waiting()
    assert waiting.claims
    assert (
        cli(
            [
                "traces",
                "grade",
                waiting.id[:8],
                "--domain",
                "toy",
                "--score",
                "1",
                "--evidence",
                "seen",
            ]
        )
        == 0
    )
    found = ExperienceStore(workspace, "hashed").get(waiting.id)
    assert found is not None
    assert (found.trust, found.checked, found.claims) == ("imported", True, False)


def test_forgetting_an_import_forgets_what_came_of_it(workspace: Path, tmp_path: Path) -> None:
    take_in(
        tmp_path / "a.jsonl",
        chat("Say hello.", "hello", task="greet", score=1),
        chat("Say goodbye.", "bye", task="part", score=1),
    )
    memory = ExperienceStore(workspace, "hashed")
    one, two = memory.experiences("toy")
    alone = new_lesson("toy", "Say it", "Loud.", [one])
    both = new_lesson("toy", "Say it twice", "Loud.", [one, two])
    store = LessonStore(memory.folder, "toy")
    store.write({}, {x.id: x for x in (alone, both)})
    assert cli(["memory", "forget", one.id, "--yes"]) == 0
    left = store.read()
    assert left.keys() == {both.id}
    assert (left[both.id].born_of, left[both.id].groups) == ((two.id,), (two.group,))
    assert left[both.id].trust == "imported"
    take_in(tmp_path / "b.jsonl", chat("Say hello.", "hello", task="greet", score=1))
    assert [e.id for e in memory.experiences("toy")] == [two.id], "it does not come back"


@pytest.mark.slow
@pytest.mark.parametrize("way", ["as it comes", "from experience", "with recall"])
@pytest.mark.usefixtures("each_step")
def test_no_order_of_a_trace_reaches_a_request_unmarked_or_becomes_a_pattern(
    way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hostile, "WAYS", {way: hostile.WAYS[way]})
    monkeypatch.setattr(hostile, "POLICIES", ("recreate", "mistakes"))
    for row in hostile.measure(30, 2):
        assert (row["unmarked"], row["promoted"]) == (0, 0), row
        assert row["with an order"] or way == "as it comes"
