"""A transcript as JSON, which grows at its end: what was encoded before is not encoded again."""

from __future__ import annotations

import json
import operator
import threading
from collections.abc import Sequence
from typing import Any

from pydantic_core import PydanticSerializationError, to_json

from recreate.api.types import Message

_ROLE_AND_CONTENT = operator.itemgetter("role", "content")


class Transcript:
    """The messages of the last request of each thread, encoded."""

    def __init__(self) -> None:
        self._sent = threading.local()

    def encode(self, messages: Sequence[Message]) -> bytes | bytearray:
        """`{"messages":[...],`; what this thread sent last is not encoded again: a transcript grows at its end."""
        keys = _keys(messages)
        before: list[Any] = getattr(self._sent, "keys", [])
        if before and keys[: len(before)] == before:
            sent: bytearray = self._sent.text
            self._sent.keys = []  # until it is whole again
            sent[-2:] = b""
        else:
            before, sent = [], bytearray(b'{"messages":[')
        for key in keys[len(before) :]:
            sent += b"" if sent.endswith(b"[") else b","
            sent += _piece(*key)
        sent += b"],"
        self._sent.keys, self._sent.text = keys, sent
        return sent


def _keys(messages: Sequence[Message]) -> list[Any]:
    """What each message is told from others by, and made into JSON from: role, content, and the rest as JSON."""
    if sum(map(len, messages)) == 2 * len(messages):
        try:
            return list(map(_ROLE_AND_CONTENT, messages))
        except KeyError:  # a message without content
            pass
    return [_key(message) for message in messages]


def _key(message: Message) -> tuple[Any, ...]:
    rest = {k: v for k, v in message.items() if k not in ("role", "content")}
    key = (message["role"], message.get("content"))
    return (*key, to_bytes(rest)) if rest else key


def _piece(role: str, content: str | None, rest: bytes = b"") -> bytes:
    # a lone surrogate, from a program's broken output, is taken by no JSON parser
    if isinstance(content, str) and not content.isascii():
        content = content.encode("utf-8", "replace").decode()
    piece = to_json({"role": role, "content": content})
    return piece[:-1] + b"," + rest[1:] if rest else piece


def to_bytes(value: Any) -> bytes:
    try:
        return to_json(value)
    except PydanticSerializationError:  # a lone surrogate
        return json.dumps(value, ensure_ascii=False).encode("utf-8", "replace")
