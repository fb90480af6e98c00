"""Text to the words that the full text index holds, and a question to the phrases that are looked
up in it.

SQLite's own tokenizer parts words at whatever is no letter and no digit, so a name such as
`test_foo.py::bar` is the phrase `test foo py bar`. What it cannot do is done before: scripts
without spaces, and names in capitals.
"""

from __future__ import annotations

import re
import unicodedata
from functools import lru_cache

LONGEST = 64
"""Characters of a word that count in a question."""

PHRASES = 200
"""Phrases of a question that are looked up."""

_CHUNK = re.compile(r"\w(?:[\w./:\\-]{0,254}\w)?")
_WORD = re.compile(r"\w+")
_PART = re.compile(r"[^\W_]+")
_CAMEL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
# Scripts that put no spaces between words, and Hangul, whose words carry their endings.
_SPACELESS = re.compile(
    "[\u0e00-\u0eff\u1000-\u109f\u1100-\u11ff\u1780-\u17ff\u3040-\u30ff\u3130-\u318f\u31f0-\u31ff"
    "\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af\uf900-\ufaff\U00020000-\U0003ffff]+"
)
_CODE = re.compile(
    r"""\w[_.:/\\]\w | [a-z0-9][A-Z] | \w\( | ==|!=|->|=> | \b[A-Z]\w*(?:Error|Exception|Warning)\b
    | ['"`][^\s'"`]+['"`] | (?:^|\s)--?\w""",
    re.VERBOSE,
)


def spread(text: str) -> str:
    """Return a text as it is indexed: casefolded, scripts without spaces character by character,
    and the parts of names such as `parseHeader` once each after it."""
    text = _plain(text)
    names = (
        name
        for name in dict.fromkeys(_PART.findall(text))
        if not name.islower() and _CAMEL.search(name)
    )
    parts = dict.fromkeys(word for name in names for word in _CAMEL.sub(" ", name).split())
    if not text.isascii():
        text = _SPACELESS.sub(lambda run: f" {' '.join(run.group())} ", text)
    return f"{text}\n{' '.join(parts)}".casefold() if parts else text.casefold()


@lru_cache(maxsize=64)  # asked again for each hit of a question
def phrases(question: str) -> tuple[str, ...]:
    """Return what is looked up for a question, each once: its words, its names whole, and in
    scripts without spaces each pair of neighbours (a character that stands alone by itself). A
    phrase's words stand one after the other.
    """
    found: dict[str, None] = {}
    for chunk in _CHUNK.findall(_plain(question)):
        runs = _SPACELESS.findall(chunk)
        found.update(
            (run if len(run) == 1 else " ".join(run[i : i + 2]), None)
            for run in runs
            for i in range(len(run) - 1 or 1)
        )
        if runs:
            chunk = _SPACELESS.sub(" ", chunk)
        names = [chunk] if not runs else []
        for name in [*names, *_WORD.findall(chunk)]:
            words = [word.casefold()[:LONGEST] for word in _PART.findall(name)]
            found.update((word, None) for word in words)
            if 1 < len(words) <= 12:
                found[" ".join(words)] = None
            found.update(
                (part.casefold()[:LONGEST], None)
                for part in _CAMEL.sub(" ", name).split()
                if part.isalnum()
            )
        if len(found) >= PHRASES:
            break
    return tuple(found)[:PHRASES]


def standing(text: str, question: str) -> list[str]:
    """Return the words of a question that stand in a text, as words of it or as parts of its names.
    Of scripts without spaces, pairs of characters."""
    low, parts = _plain(text).casefold(), ""
    found = list[str]()
    for phrase in phrases(question):
        spaceless = _SPACELESS.search(phrase) is not None
        shown = "".join(phrase.split()) if spaceless else phrase
        if " " in shown or not (spaceless or shown in low):
            continue
        if spaceless or not _stands_apart(low, shown):
            # dear, and seldom asked for
            parts = parts or f" {' '.join(_PART.findall(spread(text)))} "
            if f" {phrase} " not in parts:
                continue
        found.append(shown)
    return found


def marked(text: str, question: str) -> list[tuple[str, bool]]:
    """Return a text in parts, each with whether it is what `standing` says of the question: a word,
    a name that has it as a part, of scripts without spaces the characters themselves."""
    stands = bytearray(len(text))
    for run in _PART.finditer(text):
        for word in standing(run[0], question):
            pairs = re.finditer(f"(?={word})", run[0]) if _SPACELESS.search(word) else ()
            spans = [
                (run.start() + m.start(), run.start() + m.start() + len(word)) for m in pairs
            ] or [run.span()]
            for start, end in spans:
                stands[start:end] = b"\1" * (end - start)
    return [(text[m.start() : m.end()], m[0][0] == 1) for m in re.finditer(rb"\x00+|\x01+", stands)]


def _stands_apart(text: str, word: str) -> bool:
    """Whether the word stands somewhere in the text with neither a letter nor a digit beside it."""
    at = text.find(word)
    while at >= 0:
        end = at + len(word)
        if not (text[at - 1 : at].isalnum() or text[end : end + 1].isalnum()):
            return word.isalnum()  # casefolding may leave a mark in a word, which parts words
        at = text.find(word, at + 1)
    return False


def is_code(question: str) -> bool:
    """Whether a question names things as code does: an error, a file, a function; and not in words
    alone."""
    return _CODE.search(question) is not None


def _plain(text: str) -> str:
    text = text.replace("\0", " ")
    return (
        text
        if text.isascii()
        else unicodedata.normalize("NFKC", text).encode("utf-8", "replace").decode()
    )
