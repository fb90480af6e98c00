"""Two files of scores are read and judged as their scores are."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest

from recreate.api.errors import BadInput
from recreate.plugins.bench.judging import judge_files, read_scores
from recreate.runs.gate import judge
from tests.runs.test_gate import scores


def test_files_are_judged_as_their_scores_are_with_the_same_draws(tmp_path: Path) -> None:
    rng = random.Random(1)
    before, after = (scores(*(rng.random() for _ in range(40))) for _ in "ab")
    for name, side in (("a", before), ("b", after)):
        lines = (
            json.dumps({"task": t, "repeat": r, "score": score}) for (t, r), score in side.items()
        )
        (tmp_path / name).write_text("\n".join(lines))
    assert judge_files(tmp_path / "a", tmp_path / "b") == judge(before, after)


def written(path: Path, rows: list[object]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def test_two_files_of_scores_are_judged(tmp_path: Path) -> None:
    rows = [{"task": f"t{i}", "repeat": 0, "score": 0} for i in range(6)]
    before = written(tmp_path / "a.jsonl", list(rows))
    after = written(tmp_path / "b.jsonl", [{**row, "score": 1.0} for row in rows])
    assert judge_files(before, after).verdict == "better"
    few = written(tmp_path / "c.jsonl", list(rows[:4]))
    with pytest.raises(BadInput, match="at least 5"):
        judge_files(few, after)


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("{", r":2: "),
        ("[1]", "not a JSON object"),
        ('{"task": "a", "repeat": 0}', "no 'score'"),
        ('{"task": "t", "repeat": 0, "score": 1}', "task 't', repeat 0 was there before"),
        ('{"task": "a", "repeat": -1, "score": 1}', "'repeat'"),
        ('{"task": "a", "repeat": true, "score": 1}', "'repeat'"),
        ('{"task": 3, "repeat": 0, "score": 1}', "'task'"),
        ('{"task": "a", "repeat": 0, "score": "1"}', "'score'"),
        ('{"task": "a", "repeat": 0, "score": NaN}', "'score'"),
        ('{"task": "a", "repeat": 0, "score": Infinity}', "'score'"),
        ("[" * 100_000, ":2: "),
    ],
)
def test_a_bad_line_of_scores_is_named(tmp_path: Path, line: str, said: str) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text('{"task": "t", "repeat": 0, "score": null}\n' + line + "\n")
    with pytest.raises(BadInput, match=said) as e:
        read_scores(path)
    assert ":2:" in e.value.message
    assert e.value.fix


def test_a_file_that_is_empty_absent_or_no_text_is_bad_input(tmp_path: Path) -> None:
    (tmp_path / "empty").write_text("\n")
    (tmp_path / "binary").write_bytes(b"\xff\xfe\x00")
    for name in ("empty", "binary", "absent", "."):
        with pytest.raises(BadInput, match=name if name != "." else "directory"):
            read_scores(tmp_path / name)
