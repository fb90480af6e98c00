"""What a thin client of an endpoint needs: kept connections to one host, and a transcript that is
encoded once.

Nothing an endpoint does takes longer than the caller's deadline, or more memory than a bound.

A request is one write and mostly one read; httptools parses the answer. http.client, urllib3,
httpcore, httpx and requests take 1.4 to 3 times as much CPU for a whole step of an agent:
docs/log.md, "The house: HTTP client".
"""

from __future__ import annotations

import http.client
import json
import operator
import select
import socket
import ssl
import threading
import time
from collections.abc import Sequence
from typing import Any

from httptools import HttpParserError, HttpResponseParser
from pydantic_core import PydanticSerializationError, to_json

from recreate.api.types import Message
from recreate.models.deadline import within
from recreate.models.proxies import find_proxy

CONNECT_SECONDS = 10.0
MAX_ANSWER = 16 * 2**20
"""Bytes of an answer, unless the caller expects more."""
MAX_HEAD = 256 * 1024
"""Bytes before an answer's body, hints like 100 Continue included."""

_BLOCK = 65536
_CLOSED_ON_US = 3
_ROLE_AND_CONTENT = operator.itemgetter("role", "content")


class Lost(Exception):
    """No whole answer came, `why` says what happened. sent: whether the request may have been read;
    via: as in Connections; part: what came of the answer."""

    def __init__(self, why: BaseException, sent: bool, via: str = "", part: bytes = b"") -> None:
        super().__init__(f"{why}{via}" if str(why) else f"{type(why).__name__}{via}")
        self.why = why
        self.sent = sent
        self.via = via
        self.part = part


class TooLarge(OSError):
    """An answer over its bound."""


class Answer:
    """The answer to one request, of at most `most` bytes. httptools calls the methods on_..."""

    __slots__ = (
        "_body",
        "_headed",
        "_most",
        "_parser",
        "_taken",
        "body",
        "headers",
        "kept",
        "reason",
        "status",
        "whole",
    )

    def __init__(self, most: int = MAX_ANSWER) -> None:
        self.status = 0
        self.reason = ""
        self.body = b""
        self.headers: dict[bytes, bytes] = {}
        self.whole = self.kept = False
        """Whether all of it came, and whether the connection may be used again."""
        self._body = bytearray()
        self._headed = False
        self._taken = 0
        self._most = most
        self._parser: Any = HttpResponseParser(self)

    def header(self, name: str) -> str:
        """Return a header's text, '' for none; the name in lower case."""
        return self.headers.get(name.encode(), b"").decode("latin-1")

    @property
    def part(self) -> bytes:
        """What came of the body so far."""
        return bytes(self._body)

    def feed(self, block: bytes) -> None:
        """Take what came, b"" for the end. Raises HttpParserError, TooLarge, and
        ConnectionResetError when the end is early."""
        if block:
            self._taken += len(block)
            self._parser.feed_data(block)
            if self._taken > (self._most if self._headed else MAX_HEAD):
                raise TooLarge(f"more than {self._most if self._headed else MAX_HEAD:,} bytes came")
            if (
                self._headed
                and not self.whole
                and int(self.header("content-length") or 0) > self._most
            ):
                raise TooLarge(
                    f"{self.header('content-length')[:40]} bytes are announced, over {self._most:,}"
                )
        elif self.status >= 200 and not self.headers.keys() & {
            b"content-length",
            b"transfer-encoding",
        }:
            self._finish()  # its end is the connection's
        else:
            raise ConnectionResetError("the connection was closed before the answer's end")

    def on_status(self, reason: bytes) -> None:
        self.reason += reason.decode("latin-1")

    def on_header(self, name: bytes, value: bytes) -> None:
        self.headers[name.lower()] = value

    def on_headers_complete(self) -> None:
        self.status = self._parser.get_status_code()
        self._headed = self.status >= 200

    def on_body(self, block: bytes) -> None:
        self._body += block

    def on_message_complete(self) -> None:
        if self.status < 200:  # the final one is still to come
            self.reason = ""
            self.headers = {}
        else:
            self.kept = self._parser.should_keep_alive()
            self._finish()

    def _finish(self) -> None:
        self.whole, self.body = True, bytes(self._body)
        self._parser = None  # it holds us


class Connections:
    """Kept connections to one host, taken and given back by any thread; the last one given is taken
    first.

    tls: what https trusts, in place of what this machine does.
    """

    def __init__(
        self, scheme: str, host: str, port: int | None, tls: ssl.SSLContext | None = None
    ) -> None:
        self.scheme = scheme
        self.host = host
        self.port = port
        self._closed = False
        self._idle: list[socket.socket] = []
        self._closed_on_us = 0
        """Kept connections that were closed as they were asked: a server that does so often is
        asked on fresh ones."""
        self._tls = (tls or ssl.create_default_context()) if scheme == "https" else None
        self.proxy = find_proxy(scheme, host, port)

    @property
    def via(self) -> str:
        """What is said of the way there, behind a name of the place; '' for the straight one."""
        return f" through the proxy {self.proxy.shown}" if self.proxy else ""

    def close(self) -> None:
        """Close those that are idle now, and the others when they are given back."""
        self._closed = True
        while self._idle:
            self._idle.pop().close()

    def request(
        self,
        method: str,
        path: str,
        head: bytes,
        body: Sequence[bytes | bytearray],
        timeout: float,
        most: int = MAX_ANSWER,
    ) -> Answer:
        """Ask, in one write. head: header lines, each with its line end; timeout: seconds for all
        of it, for connecting at most CONNECT_SECONDS; most: bytes of the answer. Raises Lost when
        no whole answer came.
        """
        ends = time.monotonic() + timeout
        if self.proxy and self.scheme == "http":  # the proxy is told the whole address
            path = f"http://{self.host}{f':{self.port}' if self.port else ''}{path}"
            own = "".join(f"{name}: {value}\r\n" for name, value in self.proxy.headers.items())
            head += own.encode("ascii")
        line = f"{method} {path} HTTP/1.1\r\n".encode("ascii", "replace")
        request = b"".join((line, head, b"Content-Length: %d\r\n\r\n" % sum(map(len, body)), *body))
        sent = again = False
        wire: socket.socket | None = None
        answer = Answer(most)
        try:
            wire = self._take_idle()
            used = wire is not None
            if wire is None:
                patience = min(CONNECT_SECONDS, _seconds_left(ends))
                wire = within(patience, self._connect, patience, late=socket.socket.close)
            wire.settimeout(_seconds_left(ends))
            sent = True
            try:
                wire.sendall(request)
                answer.feed(wire.recv(_BLOCK))
            except ConnectionError:
                # it was open when we looked: whether the endpoint read the request, nobody knows
                self._closed_on_us += used
                raise
            while not answer.whole:
                wire.settimeout(_seconds_left(ends))
                answer.feed(wire.recv(_BLOCK))
            again = answer.kept and not self._closed and self._closed_on_us < _CLOSED_ON_US
        except (OSError, http.client.HTTPException, HttpParserError) as e:
            raise Lost(e, sent, self.via, answer.part) from None
        finally:
            if wire is not None:
                if again:
                    self._idle.append(wire)
                else:
                    wire.close()
        return answer

    def _take_idle(self) -> socket.socket | None:
        """Return a kept connection that the server has not closed."""
        while self._idle:
            try:
                wire = self._idle.pop()
            except IndexError:  # another thread was quicker
                return None
            now = select.poll()
            now.register(wire, select.POLLIN)
            if not now.poll(0):
                return wire
            wire.close()  # its end came, or words that nobody asked for
        return None

    def _connect(self, timeout: float) -> socket.socket:
        host, port = (self.proxy.host, self.proxy.port) if self.proxy else (self.host, self.port)
        if self._tls is None:
            connection = http.client.HTTPConnection(host, port, timeout=timeout)
        else:
            connection = http.client.HTTPSConnection(host, port, timeout=timeout, context=self._tls)
            if self.proxy:
                connection.set_tunnel(self.host, self.port, self.proxy.headers)
        try:
            connection.connect()
        except BaseException:  # a tunnel that was not made is left open
            connection.close()
            raise
        return connection.sock


def _seconds_left(ends: float) -> float:
    left = ends - time.monotonic()
    if left <= 0:
        raise TimeoutError("the deadline has passed")
    return left


class Transcript:
    """The messages of the last request of each thread, encoded."""

    def __init__(self) -> None:
        self._sent = threading.local()

    def encode(self, messages: Sequence[Message]) -> bytes | bytearray:
        """Return `{"messages":[...],`; what this thread sent last is not encoded again: a
        transcript grows at its end."""
        keys = _keys(messages)
        before: list[Any] = getattr(self._sent, "keys", [])
        if before and keys[: len(before)] == before:
            sent: bytearray = self._sent.text
            self._sent.keys = []  # until it is whole again
            sent[-2:] = b""
        else:
            before = []
            sent = bytearray(b'{"messages":[')
        for key in keys[len(before) :]:
            sent += b"" if sent.endswith(b"[") else b","
            sent += _piece(*key)
        sent += b"],"
        self._sent.keys, self._sent.text = keys, sent
        return sent


def _keys(messages: Sequence[Message]) -> list[Any]:
    """Return what each message is told from others by, and made into JSON from: role, content, and
    the rest as JSON."""
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
