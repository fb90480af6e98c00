"""Kept connections to one host: a request is one write and mostly one read."""

from __future__ import annotations

import http.client
import io
import re
import socket
import ssl
import urllib.request
from typing import Any
from urllib.parse import urlsplit

CONNECT_SECONDS = 10.0
_STALE = (http.client.RemoteDisconnected, BrokenPipeError, ConnectionResetError, ConnectionAbortedError)
_BLOCK = 65536
_LENGTH = re.compile(rb"\r\ncontent-length:[ \t]*(\d{1,12})[ \t]*(?=\r\n)")
_KEPT = re.compile(rb"\r\nconnection:[ \t]*keep-alive[ \t]*(?=\r\n)")
_NO_HEADERS = http.client.HTTPMessage()


class Wires:
    """Kept connections to one host, taken and given back by any thread; the last one given is taken first."""

    def __init__(self, scheme: str, host: str, port: int | None) -> None:
        self.scheme, self.host, self.port = scheme, host, port
        self.closed = False
        self._idle: list[http.client.HTTPConnection] = []
        self._tls = ssl.create_default_context() if scheme == "https" else None
        proxy = None if host == "localhost" or host.startswith("127.") or host == "::1" else _proxy(scheme, host)
        self._proxy = urlsplit(proxy) if proxy else None

    def target(self, path: str) -> str:
        """What the request line names: the path, or all of it when a proxy is to fetch it."""
        if self._proxy and self.scheme == "http":
            return f"http://{self.host}{f':{self.port}' if self.port else ''}{path}"
        return path

    def take(self) -> tuple[http.client.HTTPConnection, bool]:
        """A connection, and whether it was used before."""
        try:
            return self._idle.pop(), True
        except IndexError:
            return self._new(), False

    def give(self, wire: http.client.HTTPConnection) -> None:
        if self.closed:
            wire.close()
        else:
            self._idle.append(wire)

    def close(self) -> None:
        self.closed = True
        while self._idle:
            self._idle.pop().close()

    def exchange(self, method: str, request: bytes, timeout: float) -> tuple[int, str, http.client.HTTPMessage, bytes]:
        """(status, reason, headers, body) of one request, sent in one write; `timeout` in seconds.

        Raises OSError and http.client.HTTPException when no whole answer came.
        """
        while True:
            wire, kept = self.take()
            answer: http.client.HTTPResponse | None = None
            begun = whole = False
            try:
                if wire.sock is None:
                    wire.timeout = min(CONNECT_SECONDS, timeout)
                    wire.connect()
                if wire.sock.gettimeout() != timeout:
                    wire.sock.settimeout(timeout)
                wire.sock.sendall(request)
                first = wire.sock.recv(_BLOCK)
                begun = bool(first)
                raw = _plain(wire.sock, first)
                if raw is not None:
                    whole = True
                    return 200, "OK", _NO_HEADERS, raw
                answer = http.client.HTTPResponse(_Begun(wire.sock, first), method=method)  # type: ignore[arg-type]
                answer.begin()
                raw = answer.read()
                whole = not answer.will_close
            except _STALE:
                if not kept or begun:
                    raise
                continue  # the server had closed the kept connection: not a fault, ask on a fresh one
            finally:
                if answer is not None:
                    answer.close()
                if whole:
                    self.give(wire)
                else:
                    wire.close()
            return answer.status, answer.reason, answer.headers, raw

    def _new(self) -> http.client.HTTPConnection:
        host, port = (self._proxy.hostname or "", self._proxy.port) if self._proxy else (self.host, self.port)
        if self._tls is None:
            return http.client.HTTPConnection(host, port)
        wire = http.client.HTTPSConnection(host, port, context=self._tls)
        if self._proxy:
            wire.set_tunnel(self.host, self.port)
        return wire


def _proxy(scheme: str, host: str) -> str | None:
    return None if urllib.request.proxy_bypass(host) else urllib.request.getproxies().get(scheme)


def _plain(wire: socket.socket, first: bytes) -> bytes | None:
    """The body of the answer that `first` begins, when it is the common kind: 200, its length said, kept open.

    None leaves it to http.client, whose reading of headers takes longer than all the rest of a call.
    """
    end = first.find(b"\r\n\r\n")
    if end < 0 or not first.startswith(b"HTTP/1.1 200"):
        return None
    found = _LENGTH.findall(head := first[: end + 2].lower())
    if len(found) != 1 or b"\r\ntransfer-encoding:" in head or b"\r\nconnection:" in _KEPT.sub(b"", head):
        return None
    size = int(found[0])
    if len(first) == end + 4 + size:
        return first[end + 4 :]
    if len(first) > end + 4 + size:
        return None
    raw = bytearray(first[end + 4 :])
    while len(raw) < size:
        block = wire.recv(min(size - len(raw), 1 << 20))
        if not block:
            raise http.client.IncompleteRead(bytes(raw), size - len(raw))
        raw += block
    return bytes(raw)


class _Begun(io.RawIOBase):
    """A socket of which a part was read, as http.client wants to have it."""

    def __init__(self, wire: socket.socket, first: bytes) -> None:
        self.wire, self.first = wire, memoryview(first)

    def makefile(self, mode: str) -> io.BufferedReader:
        return io.BufferedReader(self)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        if not self.first:
            return self.wire.recv_into(buffer)
        size = min(len(buffer), len(self.first))
        buffer[:size], self.first = self.first[:size], self.first[size:]
        return size
