"""The line that an experience is kept as: keys masked, large texts taken out, sealed with a checksum."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from pydantic import BaseModel

from recreate.api.types import SCHEMA, Experience
from recreate.memory.blobs import is_large, take_out
from recreate.storage.log import encode, now, seal
from recreate.storage.redact import redact, redact_fields

IDENTITY = ("id", "schema", "domain", "task", "group", "split", "digest", "run")
"""What redaction leaves alone: a masked id would be another experience."""


def sealed(e: Experience) -> tuple[bytes, dict[str, bytes]]:
    """The line to be written, keys masked, and the texts that are too large for it by SHA-256."""
    when = now()
    if any(map(is_large, _texts(e))):
        record, refs, large = take_out(e.model_dump(mode="json"), IDENTITY)
        line = {"experience": _masked(record), "blobs": [ref._asdict() for ref in refs], "when": when}
        return seal(line), large
    text = encode({"experience": e, "schema": SCHEMA, "when": when})
    if redact(text) == text:
        return seal(text), {}
    record = e.model_dump(mode="json")
    return seal({"experience": _masked(record), "when": when}), {}


def _masked(record: Mapping[str, Any]) -> dict[str, Any]:
    plain: dict[str, Any] = redact_fields(record, keep=IDENTITY)
    for name in ("attempt", "task", "scaffold", "model", "ending"):
        plain["trace"][name] = record["trace"][name]
    return plain


def _texts(e: Experience) -> Iterator[str]:
    """Every text of an experience that may be large."""
    stack: list[Any] = [e]
    while stack:
        value = stack.pop()
        if isinstance(value, str):
            yield value
        elif isinstance(value, BaseModel):
            stack += [*vars(value).values(), *(value.model_extra or {}).values()]
        elif isinstance(value, Mapping):
            stack += value.values()
        elif isinstance(value, list | tuple):
            stack += value
