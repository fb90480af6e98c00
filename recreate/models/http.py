"""What a thin client of an endpoint needs: kept connections to one host, and a transcript that is encoded once.

A request is one write and mostly one read; httptools parses the answer. http.client, urllib3, httpcore, httpx and
requests take 1.4 to 3 times as much CPU for a whole step of an agent: docs/log.md, "The house: HTTP client".
"""

from __future__ import annotations

import http.client
import json
import operator
import socket
import ssl
import threading
import urllib.request
from collections.abc import Sequence
from typing import Any
from urllib.parse import urlsplit

from httptools import HttpParserError, HttpResponseParser
from pydantic_core import PydanticSerializationError, to_json

from recreate.api.types import Message

CONNECT_SECONDS = 10.0
LOST = (OSError, http.client.HTTPException, HttpParserError)
"""What `Connections.request` raises when no whole answer came."""

_BLOCK = 65536
_ROLE_AND_CONTENT = operator.itemgetter("role", "content")


class Answer:
    """The answer to one request. httptools calls the methods on_..."""

    __slots__ = ("_blocks", "_parser", "begun", "body", "headers", "kept", "reason", "status", "whole")

    def __init__(self) -> None:
        self.status = 0
        self.reason = ""
        self.body = b""
        self.headers: dict[bytes, bytes] = {}
        self.begun = self.whole = self.kept = False
        """Whether a byte of it came, all of it, and whether the connection may be used again."""
        self._blocks: list[bytes] = []
        self._parser: Any = HttpResponseParser(self)

    def header(self, name: str) -> str:
        """A header's text, '' for none; the name in lower case."""
        return self.headers.get(name.encode(), b"").decode("latin-1")

    def feed(self, block: bytes) -> None:
        """Take what came, b"" for the end. Raises HttpParserError, and ConnectionResetError when the end is early."""
        if block:
            self.begun = True
            self._parser.feed_data(block)
        elif self.status >= 200 and not self.headers.keys() & {b"content-length", b"transfer-encoding"}:
            self._finish()  # its end is the connection's
        else:
            raise ConnectionResetError("the connection was closed before the answer's end")

    def on_status(self, reason: bytes) -> None:
        self.reason += reason.decode("latin-1")

    def on_header(self, name: bytes, value: bytes) -> None:
        self.headers[name.lower()] = value

    def on_headers_complete(self) -> None:
        self.status = self._parser.get_status_code()

    def on_body(self, block: bytes) -> None:
        self._blocks.append(block)

    def on_message_complete(self) -> None:
        if self.status < 200:  # the final one is still to come
            self.reason, self.headers = "", {}
        else:
            self.kept = self._parser.should_keep_alive()
            self._finish()

    def _finish(self) -> None:
        self.whole, self.body = True, b"".join(self._blocks)
        self._parser = None  # it holds us


class Connections:
    """Kept connections to one host, taken and given back by any thread; the last one given is taken first."""

    def __init__(self, scheme: str, host: str, port: int | None) -> None:
        self.scheme, self.host, self.port = scheme, host, port
        self._closed = False
        self._idle: list[socket.socket] = []
        self._tls = ssl.create_default_context() if scheme == "https" else None
        local = host in ("localhost", "::1") or host.startswith("127.") or urllib.request.proxy_bypass(host)
        proxy = None if local else urllib.request.getproxies().get(scheme)
        self._proxy = urlsplit(proxy) if proxy else None

    def close(self) -> None:
        """Close those that are idle now, and the others when they are given back."""
        self._closed = True
        while self._idle:
            self._idle.pop().close()

    def request(self, method: str, path: str, head: bytes, body: Sequence[bytes | bytearray], timeout: float) -> Answer:
        """Ask, in one write. head: header lines, each with its line end; timeout: seconds for connecting (at most
        CONNECT_SECONDS), and for each wait. Raises one of LOST when no whole answer came."""
        if self._proxy and self.scheme == "http":  # the proxy is told the whole address
            path = f"http://{self.host}{f':{self.port}' if self.port else ''}{path}"
        line = f"{method} {path} HTTP/1.1\r\n".encode("ascii", "replace")
        request = b"".join((line, head, b"Content-Length: %d\r\n\r\n" % sum(map(len, body)), *body))
        while True:
            try:
                wire, used = self._idle.pop(), True
            except IndexError:
                wire, used = self._connect(min(CONNECT_SECONDS, timeout)), False
            answer, again = Answer(), False
            try:
                if wire.gettimeout() != timeout:
                    wire.settimeout(timeout)
                wire.sendall(request)
                while not answer.whole:
                    answer.feed(wire.recv(_BLOCK))
                again = answer.kept and not self._closed
            except ConnectionError:
                if answer.begun or not used:
                    raise
                continue  # the server had closed the kept connection: not a fault, ask on a fresh one
            finally:
                if again:
                    self._idle.append(wire)
                else:
                    wire.close()
            return answer

    def _connect(self, timeout: float) -> socket.socket:
        host, port = (self._proxy.hostname or "", self._proxy.port) if self._proxy else (self.host, self.port)
        if self._tls is None:
            connection = http.client.HTTPConnection(host, port, timeout=timeout)
        else:
            connection = http.client.HTTPSConnection(host, port, timeout=timeout, context=self._tls)
            if self._proxy:
                connection.set_tunnel(self.host, self.port)
        connection.connect()
        return connection.sock


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
