"""Text to the words it is found by: in any script, and with names such as `test_foo.py::bar` whole and in parts."""

from __future__ import annotations

import itertools
import re
import unicodedata
from functools import lru_cache

LONGEST = 64
"""Characters of a word that count."""

K1, B, LENGTH = 1.2, 0.75, 120
"""BM25's usual constants (Robertson and Zaragoza, 2009), and the document length that counts as average. A fixed one:
the weight of a word in a document then does not depend on what else there is, and can be stored."""

_CHUNK = re.compile(r"\w(?:[\w./:\\-]{0,254}\w)?")
_WORD = re.compile(r"\w+")
_DOTTED = re.compile(r"\w+(?:\.\w+)+")
_PART = re.compile(r"[^\W_]+")
_CAMEL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
# Scripts that put no spaces between words, and Hangul, whose words carry their endings.
_SPACELESS = re.compile(
    "[\u0e00-\u0eff\u1000-\u109f\u1100-\u11ff\u1780-\u17ff\u3040-\u30ff\u3130-\u318f\u31f0-\u31ff"
    "\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af\uf900-\ufaff\U00020000-\U0003ffff]+"
)


def words(text: str, asked: bool = False) -> list[str]:
    """The words of a text in its order, casefolded, repeated as often as they stand there.

    `test_foo.py::bar` gives itself, `test_foo.py`, `test_foo`, `test`, `foo`, `py` and `bar`; `parseHeader` also
    `parse` and `header`. Scripts without spaces give each character and each pair of neighbours; with `asked` (a
    query) the pairs alone, unless a character stands by itself.
    """
    if text.isascii():
        return list(itertools.chain.from_iterable(map(_name, _CHUNK.findall(text))))
    found: list[str] = []
    for chunk in _CHUNK.findall(unicodedata.normalize("NFKC", text)):
        if _SPACELESS.search(chunk):
            chunk = _SPACELESS.sub(lambda run: _pairs(run.group(), asked, found), chunk)
        found.extend(_name(chunk))
    return found


def _pairs(run: str, asked: bool, found: list[str]) -> str:
    if not asked or len(run) == 1:
        found.extend(run)
    found.extend(run[i : i + 2] for i in range(len(run) - 1))
    return " "


@lru_cache(50_000)
def _name(chunk: str) -> tuple[str, ...]:
    """A name with separators or capitals inside: whole, its dotted parts, its words, and the parts of those."""
    if chunk.isalnum() and (chunk.islower() or chunk.isdigit()):
        return (chunk.casefold()[:LONGEST],)
    given: dict[str, None] = {}
    for pattern in (_CHUNK, _DOTTED, _WORD):
        given.update(dict.fromkeys(pattern.findall(chunk)))
    for word in _WORD.findall(chunk):
        if "_" in word or not word.islower():
            given.update(dict.fromkeys(_PART.findall(_CAMEL.sub(" ", word))))
    return tuple(dict.fromkeys(word.casefold()[:LONGEST] for word in given))
