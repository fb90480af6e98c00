"""Keys never reach a record: they are masked on the way to the disk.

Two nets: the values of this process's environment variables whose names look like keys, and the common shapes
of keys. One search for all that a shape must contain goes first, so a text without a key costs about a microsecond.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Collection
from typing import Any

from pydantic_core import SchemaValidator, core_schema

SHORTEST = 8
"""Shorter values are left alone: masking `dev` or `true` everywhere would destroy texts and protect nothing."""

_NAME = re.compile(r"(KEY|TOKEN|SECRET|PASSWORD|PASSWD|CREDENTIALS?)S?$", re.IGNORECASE)

# (a substring without which the pattern cannot match, the pattern). A group named `keep` stays in the text.
_SHAPES = (
    ("sk-", r"(?<![A-Za-z0-9])sk-[A-Za-z0-9_\-]{16,}"),
    ("gh", r"(?<![A-Za-z0-9])gh[pousr]_[A-Za-z0-9]{20,}"),
    ("github_pat_", r"(?<![A-Za-z0-9])github_pat_[A-Za-z0-9_]{20,}"),
    ("glpat-", r"(?<![A-Za-z0-9])glpat-[A-Za-z0-9_\-]{16,}"),
    ("AKIA", r"(?<![A-Za-z0-9])AKIA[A-Z0-9]{16}(?![A-Za-z0-9])"),
    ("ASIA", r"(?<![A-Za-z0-9])ASIA[A-Z0-9]{16}(?![A-Za-z0-9])"),
    ("AIza", r"(?<![A-Za-z0-9])AIza[A-Za-z0-9_\-]{30,}"),
    ("hf_", r"(?<![A-Za-z0-9])hf_[A-Za-z0-9]{24,}"),
    ("xox", r"(?<![A-Za-z0-9])xox[abeoprs]-[A-Za-z0-9\-]{12,}"),
    ("earer ", r"(?P<keep>[Bb]earer )[A-Za-z0-9._~+/\-]{12,}=*"),
    (
        "PRIVATE KEY-----",
        r"-----BEGIN [A-Z ]*PRIVATE KEY-----.{16,}?-----END [A-Z ]*PRIVATE KEY-----",
    ),
)
_COMPILED = tuple((mark, re.compile(pattern, re.DOTALL)) for mark, pattern in _SHAPES)

# pydantic's regular expressions look for all marks at once, 50 times as fast as one `in` after the other; none of
# the marks has a character that needs escaping.
_MARKED = SchemaValidator(core_schema.str_schema(pattern="|".join(mark for mark, _ in _SHAPES)))


def redact(text: str) -> str:
    """`text` with keys replaced by `[redacted]`, or by `[redacted:NAME]` for an environment variable's value.

    Works on plain text, on JSON, and on JSON within JSON (a tool call's arguments): a value is also found in its
    escaped spellings, and the mask needs no escaping.
    """
    for value, name in _environment():
        if value in text:
            text = text.replace(value, f"[redacted:{name}]")
    if not _encodes(text) or _MARKED.isinstance_python(text):
        for mark, pattern in _COMPILED:
            if mark in text:
                text = pattern.sub(_mask, text)
    return text


def _encodes(text: str) -> bool:
    """Whether pydantic can read it at all: it takes no lone surrogates."""
    if text.isascii():
        return True
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def redact_fields(record: Any, keep: Collection[str] = ()) -> Any:
    """A copy of JSON-like data with every string redacted; the values of top-level fields in `keep` stay."""
    if isinstance(record, dict):
        return {k: v if k in keep else _each(v, redact) for k, v in record.items()}
    return _each(record, redact)


def _each(value: Any, change: Callable[[str], str]) -> Any:
    if isinstance(value, str):
        return change(value)
    if isinstance(value, dict):
        return {k: _each(v, change) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [_each(v, change) for v in value]
    return value


def _mask(match: re.Match[str]) -> str:
    return f"{match.groupdict().get('keep') or ''}[redacted]"


_seen: int | None = None
_values: tuple[tuple[str, str], ...] = ()


def _environment() -> tuple[tuple[str, str], ...]:
    """(value, name) of the variables that look like keys, longest value first; read again when any changed."""
    global _seen, _values
    # The stored bytes keep their hash, so this costs a microsecond; going through os.environ decodes everything.
    raw = getattr(os.environ, "_data", None)
    now = hash(tuple(raw.values())) if raw is not None else hash(tuple(os.environ.items()))
    if now != _seen:
        found: dict[str, str] = {}
        for name, value in os.environ.items():
            if len(value) >= SHORTEST and _NAME.search(name):
                for spelling in _spellings(value):
                    found.setdefault(spelling, name)
        _values = tuple(sorted(found.items(), key=lambda pair: (-len(pair[0]), pair[0])))
        _seen = now
    return _values


def _spellings(value: str) -> set[str]:
    """The value itself, and as it stands in JSON, and in JSON within JSON."""
    found = {value}
    for _ in range(2):
        found |= {json.dumps(text, ensure_ascii=ascii)[1:-1] for text in found for ascii in (True, False)}
    return found
