"""Two files of scores are judged."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from recreate.cli import run
from tests.cli.test_workspace import Ask


@pytest.fixture
def ask(capsys: pytest.CaptureFixture[str]) -> Ask:
    """Runs a command with --json: exit code and the objects it printed."""

    def ask(*words: str) -> tuple[int, list[dict[str, Any]]]:
        capsys.readouterr()
        code = run([*words, "--json"])
        return code, [json.loads(line) for line in capsys.readouterr().out.splitlines()]

    return ask


def scores(path: Path, values: list[float | None], repeats: int = 1) -> str:
    rows = [
        {"task": f"t{n}", "repeat": r, "score": v}
        for n, v in enumerate(values)
        for r in range(repeats)
    ]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(path)


def test_judge_says_better_not_better_or_undecided(ask: Ask, tmp_path: Path) -> None:
    low, high = scores(tmp_path / "a", [0.0] * 8, 2), scores(tmp_path / "b", [1.0] * 8, 2)
    code, (record,) = ask("judge", low, high)
    assert code == 0
    assert (record["schema"], record["verdict"], record["diff"]) == (1, "better", 1.0)
    assert (record["tasks"], record["repeats"], record["p"]) == (8, 2, 2 / 256)
    assert 0 < record["lo"] <= 1.0 == record["hi"]
    assert ask("judge", high, low)[1][0]["verdict"] == "not-better"
    mixed = scores(tmp_path / "c", [1.0, *[0.0] * 7], 2)
    assert ask("judge", low, mixed)[1][0]["verdict"] == "undecided"


def test_judge_refuses_what_it_cannot_judge(ask: Ask, tmp_path: Path) -> None:
    few = scores(tmp_path / "few", [0.0] * 4)
    assert ask("judge", few, few)[1][0]["error"]["code"] == "too-few-tasks"
    (tmp_path / "bad").write_text('{"task": "a"}\n')
    code, (error,) = ask("judge", few, str(tmp_path / "bad"))
    assert (code, error["error"]["code"]) == (2, "bad-scores")
    assert "bad:1" in error["error"]["message"]
    assert ask("judge", few, few, "--alpha", "2")[0] == 2


@pytest.mark.parametrize(
    "text",
    ["[" * 100_000, "9" * 5000, '{"task": "a", "repeat": 0, "score": ' + "9" * 5000 + "}"],
)
def test_json_that_cannot_be_read_is_refused(text: str, ask: Ask, tmp_path: Path) -> None:
    (tmp_path / "x.jsonl").write_text(text)
    code, (error,) = ask("judge", *[str(tmp_path / "x.jsonl")] * 2)
    assert (code, error["error"]["code"]) == (2, "bad-scores")
