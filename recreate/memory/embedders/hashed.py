"""Words and parts of words hashed into a vector: no dependency, the same everywhere, and blind to
meaning."""

from __future__ import annotations

import math
import re
import zlib
from collections import Counter
from collections.abc import Sequence

_WORD = re.compile(r"[^\W_]+")
_CAMEL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")


class Hashed:
    """Signed hashing of words and their character trigrams, damped by 1 + log(count), length 1.

    Trigrams let `parser` find `parsing` and serve scripts that do not put spaces between words.
    """

    def __init__(self, dimensions: int | str = 512) -> None:
        self.dimensions = int(dimensions)
        self.name = f"hashed-1-{self.dimensions}"

    def embed(self, texts: Sequence[str], kind: str = "passage") -> list[list[float]]:
        return [self._one(text) for text in texts]

    def _one(self, text: str) -> list[float]:
        counts: Counter[str] = Counter()
        for word in _WORD.findall(_CAMEL.sub(" ", text)):
            word = word.lower()
            counts[word] += 1
            edged = f"<{word}>"
            counts.update("3" + edged[i : i + 3] for i in range(len(edged) - 2))
        vector = [0.0] * self.dimensions
        for feature, count in counts.items():
            h = zlib.crc32(feature.encode("utf-8", "replace"))
            weight = (1.0 + math.log(count)) * (0.35 if feature[0] == "3" else 1.0)
            vector[(h >> 1) % self.dimensions] += weight if h & 1 else -weight
        length = math.sqrt(sum(x * x for x in vector))
        # nothing but punctuation: some fixed direction, because a cosine needs one
        if length == 0.0:
            vector[0] = length = 1.0
        return [x / length for x in vector]
