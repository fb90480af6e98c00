"""Parquet files and data sets as rows: by the very code that reads those of the hub."""

from __future__ import annotations

import datetime
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from recreate.api import registry
from recreate.api.errors import BadInput
from recreate.domains.rows import name_domain
from recreate.domains.rows.domain import domain
from recreate.domains.rows.table import read

pyarrow: Any = pytest.importorskip("pyarrow")
parquet: Any = pytest.importorskip("pyarrow.parquet")

DAY = datetime.date(2026, 1, 1)
ROWS = [
    {"id": f"q{n}", "question": f"{n}?", "answer": [f"a{n}", "b"], "day": DAY} for n in range(30)
]


def test_a_parquet_file_is_read_with_lists_and_dates(workspace: Path) -> None:
    parquet.write_table(pyarrow.Table.from_pylist(ROWS), workspace / "sets.parquet")
    assert name_domain(str(workspace / "sets.parquet")) == "sets"
    part = registry.open_domain("sets", workspace, str(workspace / "sets.parquet"), score="exact")
    task = part.tasks()[4]
    assert (task.id, task.facts["answer"], task.facts["row"]["day"]) == (
        "sets:sets:q4",
        ["a4", "b"],
        "2026-01-01",
    )
    (workspace / "bad.parquet").write_bytes(b"no parquet")
    with pytest.raises(BadInput, match="cannot be read"):
        read(str(workspace / "bad.parquet"))


@pytest.mark.slow
def test_a_saved_data_set_brings_its_own_splits(
    workspace: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    # a second of each worker, were it imported with this file
    datasets: Any = pytest.importorskip("datasets")
    rows = [{"question": f"{n}?", "answer": f"{n}"} for n in range(60)]
    made = {
        "train": datasets.Dataset.from_list(rows[:45]),
        "test": datasets.Dataset.from_list(rows[45:]),
    }
    datasets.DatasetDict(made).save_to_disk(str(workspace / "quiz"))
    part = domain("hf:./quiz", score="numeric")
    counts = Counter(task.split for task in part.tasks())
    assert (part.name, counts["test"]) == ("quiz", 15)
    assert counts["train"] + counts["validation"] == 45
    assert counts["validation"] >= 10
    assert "train are dealt between train and validation" in capsys.readouterr().err
    again = registry.open_domain("quiz", workspace)  # by what was written down
    assert [task.id for task in again.tasks()] == [task.id for task in part.tasks()]
    assert len(read("hf:./quiz:test").rows) == 15


@pytest.mark.slow
def test_a_folder_of_data_files_is_loaded_as_the_hub_would(workspace: Path) -> None:
    (workspace / "sums").mkdir()
    (workspace / "sums" / "train.jsonl").write_text('{"question": "1?", "answer": "x"}\n' * 2)
    found = read("hf:./sums")
    assert [row.values["question"] for row in found.rows] == ["1?", "1?"]
    assert found.rows[0].values["split"] == "train"


@pytest.mark.slow
def test_a_data_set_that_is_not_there_says_so(
    workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("datasets.config.HF_HUB_OFFLINE", True)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    with pytest.raises(BadInput, match="cannot be loaded") as caught:
        read("hf:nobody/nothing")
    assert "--data ROWS.jsonl" in caught.value.fix
    with pytest.raises(BadInput, match="no data set's name"):
        read("hf:a:b:c,d")
