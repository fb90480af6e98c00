"""How else a text can be read: what it says once it is decoded, turned round or put together.

A reader of an agent's files is a model, and reads base64, text that is written backwards, or two
halves that a tool joins, as well as the words. What cannot be read here is a paraphrase, a
translation, a cipher with a key, and what a tool computes.
"""

from __future__ import annotations

import ast
import base64
import codecs
import contextlib
import html
import re
import textwrap
import unicodedata
from collections.abc import Callable, Iterator
from typing import NamedTuple

from recreate.api.syntax import parse_python

LONG = 64
"""So many characters of encoded data that nobody can read are more than a digest."""
_DEEP = 3
_MOST = 200_000
"""Characters of a text that are decoded."""


class Reading(NamedTuple):
    """how: '' for the text itself, else what was done to it, as ` (in rot13)`. whole: it is the
    text that was turned, and most of it never meant anything: only what is long enough to be no
    accident counts."""

    text: str
    how: str = ""
    whole: bool = False


def as_seen(text: str) -> str:
    """Return a text as a reader sees it: what looks the same is the same, and what nobody sees is
    not there."""
    if text.isascii():
        return text
    return "".join(
        c
        for c in unicodedata.normalize("NFKC", text)
        if unicodedata.category(c) != "Cf" and c not in _UNSEEN
    )


def readings(text: str, *, code: bool = False) -> Iterator[Reading]:
    """Yield the text, then what else it says. code: it is Python."""
    text = as_seen(text)
    yield Reading(text)
    plain = text
    if not text.isascii():
        plain = _latin(text)
        if plain != text:
            yield Reading(plain, " (in letters that look like others)")
    seen = {text, plain}
    for reading in _decoded(plain[:_MOST], code):
        if reading.text not in seen:
            seen.add(reading.text)
            yield reading


def unreadable(text: str) -> list[str]:
    """Runs of encoded data in which nothing can be read."""
    found = []
    for run in _BLOB.findall(text):
        kinds = sum(bool(re.search(kind, run)) for kind in ("[a-z]", "[A-Z]", "[0-9]"))
        hexed = re.fullmatch(r"(?:0x)?[0-9a-fA-F]+", run) and len(set(run)) >= 8
        mixed = (
            kinds == 3
            and len(set(run)) >= 20
            and run.count("/") + run.count("_") + run.count("-") < len(run) / 8
        )
        if (hexed or mixed) and not any(True for _ in _payloads(run)):
            found.append(run)
    return found


_BLOB = re.compile(rf"[A-Za-z0-9+/_-]{{{LONG + 1},}}={{0,2}}")
_TOKEN = re.compile(r"[A-Za-z0-9+/_-]{8,}={0,2}")
_WRAPPED = re.compile(r"^(?:[ \t>]*[A-Za-z0-9+/]{20,}\n)+[ \t>]*[A-Za-z0-9+/]+={0,2}$", re.M)
_HEX = re.compile(r"(?:0x)?((?:[0-9a-fA-F]{2}[ :,]?){4,})")
_ESCAPE = re.compile(r"\\x([0-9a-fA-F]{2})|\\u([0-9a-fA-F]{4})|\\U([0-9a-fA-F]{8})|\\([0-7]{3})")
_PERCENT = re.compile(r"(?:%[0-9a-fA-F]{2})+")
_FENCE = re.compile(r"```[^\n`]*\n(.*?)```", re.S)
_BROKEN = re.compile(r"(?<=\w)-\n[ \t>]*(?=\w)|_[ \t]*\n\s*(?=\w)|(?<=\w)[ \t]*\n\s*_(?=\w)")
_GLUE = re.compile(r"""["'`][ \t]*\+[ \t\\\n]*[rbuf]?["'`]|["'][ \t]+["']""")


def _decoded(text: str, code: bool, deep: int = _DEEP) -> Iterator[Reading]:
    forms = [Reading(text), *_put_together(text, code)]
    yield from forms[1:]
    for form in forms:
        for payload in _payloads(form.text):
            yield Reading(payload.text, form.how + payload.how)
            for inner in _decoded(as_seen(payload.text), False, deep - 1) if deep > 1 else ():
                yield inner._replace(how=form.how + payload.how + inner.how)
    for how, turned in (
        (" (in rot13)", codecs.encode(text, "rot13")),
        (" (backwards)", text[::-1]),
    ):
        yield Reading(turned, how, whole=True)
        yield from (Reading(r.text, how + r.how) for r in _payloads(turned))


def _put_together(text: str, code: bool) -> Iterator[Reading]:
    """Yield what is in pieces put together, and what is escaped as it is meant."""
    glued = _GLUE.sub("", _BROKEN.sub(lambda broken: "" if broken[0][0] == "-" else "_", text))
    if glued != text:
        yield Reading(glued, " (put together)")
    for piece in [text] if code else _FENCE.findall(text):
        if strings := _strings(piece):
            yield Reading("\n".join(strings), " (put together)")
    plain = _PERCENT.sub(
        _percented, _ESCAPE.sub(_escaped, html.unescape(text) if "&" in text else text)
    )
    if plain != text:
        yield Reading(plain, " (in escapes)")


def _payloads(text: str) -> Iterator[Reading]:
    """Yield what runs of characters say as base64 and hex, one after the other."""
    ways: list[tuple[str, re.Pattern[str], Callable[[str], bytes]]] = [
        ("base64", _WRAPPED, lambda run: _base64(re.sub(r"[\s>]", "", run))),
        ("base64", _TOKEN, _base64),
        ("hex", _HEX, lambda run: bytes.fromhex(re.sub(r"0x|[ :,]", "", run))),
    ]
    for how, pattern, decode in ways:
        said = list[str]()
        runs = list[str]()
        for match in pattern.finditer(text):
            with contextlib.suppress(ValueError):  # binascii.Error is one
                if words := _text(decode(match[0])):
                    said.append(words)
                    runs.append(match[0])
        if said:
            shown = f": {runs[0][:24]}" + "..." * (len(runs[0]) > 24) if len(runs) == 1 else ""
            yield Reading("\n".join(said), f" (in {how}{shown})")


def _base64(run: str) -> bytes:
    bare = run.rstrip("=").translate(str.maketrans("-_", "+/"))
    whole = bare + "A" * (-len(bare) % 4)  # without padding, of which each Python has its own view
    return base64.b64decode(whole)[: len(bare) * 6 // 8]


def _text(data: bytes) -> str:
    """Bytes as text; '' when they are none."""
    try:
        said = data.decode("utf-8")
    except UnicodeDecodeError:
        return ""
    letters = sum(c.isprintable() or c in "\n\t\r" for c in said)
    return said if letters == len(said) else ""


def _escaped(match: re.Match[str]) -> str:
    code = int(match[4], 8) if match[4] else int(match[1] or match[2] or match[3], 16)
    return chr(code) if code < 0x110000 and not 0xD800 <= code < 0xE000 else match[0]


def _percented(match: re.Match[str]) -> str:
    return bytes.fromhex(match[0].replace("%", "")).decode("utf-8", "replace")


# ------------------------------------------------------------------------------------- put together
# by a program


def parse_code(code: str) -> ast.Module | None:
    """Return a piece of Python, read; None when it is none."""
    try:
        return parse_python(textwrap.dedent(code))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None


def _strings(code: str) -> list[str]:
    """Return the strings of a piece of Python, what it adds up of them worked out. [] when it is no
    Python."""
    if (tree := parse_code(code)) is None:
        return []
    named: dict[str, str] = {}
    found = list[str]()
    for node in ast.walk(tree):
        if (
            isinstance(node, ast.Assign)
            and len(node.targets) == 1
            and isinstance(node.targets[0], ast.Name)
        ):
            if (value := _constant(node.value, named)) is not None:
                named[node.targets[0].id] = value
        elif isinstance(node, ast.BinOp | ast.JoinedStr | ast.Call | ast.Constant):
            value = _constant(node, named)
            found += [value] if value is not None else []
    return list(dict.fromkeys(found))


def _constant(node: ast.AST, named: dict[str, str], deep: int = 50) -> str | None:
    """Return what an expression of strings gives, where that is plain to see."""

    def of(inner: ast.AST) -> str | None:
        return _constant(inner, named, deep - 1) if deep else None

    def all_of(inner: list[ast.expr], between: str) -> str | None:
        parts = [of(each) for each in inner]
        return None if None in parts else between.join(part for part in parts if part is not None)

    match node:
        case ast.Constant(value=str(text)):
            return text
        case ast.Constant(value=bytes(data)):
            return data.decode("latin-1")
        case ast.Name(id=name):
            return named.get(name)
        case ast.BinOp(left=left, op=ast.Add(), right=right):
            return all_of([left, right], "")
        case ast.JoinedStr(values=values):
            return all_of(values, "")
        case ast.FormattedValue(value=value):
            return of(value)
        case ast.Call(
            func=ast.Attribute(value=between, attr="join"),
            args=[ast.List(elts=parts) | ast.Tuple(elts=parts)],
        ):
            return None if (glue := of(between)) is None else all_of(parts, glue)
        case ast.Call(func=ast.Name(id="chr"), args=[ast.Constant(value=int(code))]) if (
            0 <= code < 0x110000
        ):
            return chr(code)
    return None


# --------------------------------------------------------------------------------------------- what
# looks alike

_UNSEEN = frozenset(
    "\u034f\u115f\u1160\u17b4\u17b5\u3164\uffa0" + "".join(map(chr, range(0xFE00, 0xFE10)))
)
_ALIKE = r"""
aаαɑᴀ bЬƄᏏʙ cсϲᴄⅽ dԁᴅɗ eеεҽᴇ fғꜰſ gɡɢց hһհʜ iіιıɪɩ jјϳᴊ kкκᴋ lӏʟⅼ mмᴍ nпηոɴ oоοօᴏσ
pрρᴘ qԛգ rгʀᴦ sѕꜱʂ tтτᴛ uυսᴜц vѵνᴠ wԝωᴡѡ xхχ yуγүʏ zᴢʐ AАΑ BВΒ CСϹ EЕΕ FϜ GԌ HНΗ
IІΙӀ JЈ KКΚ MМΜ NΝ OОΟ PРΡ QԚ SЅ TТΤ VѴ WԜ XХΧ YУΥҮ ZΖ -‐‑‒–—―−﹣ '‘’ʼ′ "“”″ /∕⁄ :∶꞉
_ˍ .․
"""
"""Words of one letter as Latin has it, and others that look like it."""
_TO_LATIN = str.maketrans({other: word[0] for word in _ALIKE.split() for other in word[1:]})


def _latin(text: str) -> str:
    """Letters that look like Latin ones are those, and marks on letters are gone."""
    bare = "".join(c for c in unicodedata.normalize("NFKD", text) if not unicodedata.combining(c))
    return bare.translate(_TO_LATIN)
