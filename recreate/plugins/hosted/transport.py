"""`Connections` as a transport of httpx: other people's clients get our deadline, our bounds and no
redirects."""

from __future__ import annotations

import contextvars
import ssl
import threading

import httpx

from recreate.models import chat
from recreate.models.http import MAX_ANSWER, Connections, Lost

TIMEOUT_SECONDS = 300.0
"""Of a request that says none."""
_NOT_HANDED_ON = (
    b"content-length",
    b"transfer-encoding",
    b"connection",
    b"accept-encoding",
    b"content-encoding",
)
_LOCATION = b"location"
"""Left out of an answer, nothing is followed: a redirect would take the question, and its key, to
another place."""

worked_on: contextvars.ContextVar[list[bool] | None] = contextvars.ContextVar(
    "worked_on", default=None
)
"""Where a caller wants to know it: of each request made meanwhile, whether a model may have worked
on it."""


class Transport(httpx.BaseTransport):
    """Answers are read whole, and never unpacked. A request's timeout is its `read`, and for all of
    it."""

    def __init__(self, tls: ssl.SSLContext | None = None, most: int = MAX_ANSWER) -> None:
        self.tls = tls
        self.most = most
        self._lock = threading.Lock()
        self._places: dict[tuple[str, str, int | None], Connections] = {}

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        """Raises what httpx raises: ConnectError, ReadTimeout, RemoteProtocolError,
        UnsupportedProtocol."""
        url = request.url
        if url.scheme not in ("http", "https"):
            raise httpx.UnsupportedProtocol(
                f"{url.scheme!r} is neither http nor https", request=request
            )
        place = url.scheme, url.host, url.port
        with self._lock:
            if (connections := self._places.get(place)) is None:
                connections = self._places[place] = Connections(*place, tls=self.tls)
        lines = [(k, v) for k, v in request.headers.raw if k.lower() not in _NOT_HANDED_ON]
        lines.append((b"Accept-Encoding", b"identity"))
        head = b"".join(k + b": " + v + b"\r\n" for k, v in lines)
        timeout = request.extensions.get("timeout", {}).get("read") or TIMEOUT_SECONDS
        path = url.raw_path.decode("ascii")
        body = request.read()
        told = worked_on.get()
        try:
            answer = connections.request(request.method, path, head, [body], timeout, self.most)
        except Lost as e:
            if told is not None:
                told.append(e.sent)
            raise _as_httpx(e, request) from None
        if told is not None:
            told.append(chat.worked_on(answer.status))
        if packed := answer.header("content-encoding").strip().lower().replace("identity", ""):
            words = f"the answer is packed ({packed[:40]}), which nobody asked for"
            raise httpx.RemoteProtocolError(words, request=request)
        given = [(k, v) for k, v in answer.headers.items() if k not in (*_NOT_HANDED_ON, _LOCATION)]
        return httpx.Response(answer.status, headers=given, content=answer.body, request=request)

    def close(self) -> None:
        """Close what is idle."""
        with self._lock:
            for connections in self._places.values():
                connections.close()
            self._places.clear()


def _as_httpx(lost: Lost, request: httpx.Request) -> httpx.TransportError:
    e = lost.why
    words = f"{type(e).__name__}: {e}{lost.via}"
    if isinstance(e, TimeoutError):
        words = f"no whole answer before the deadline{lost.via}"
        return httpx.ReadTimeout(words, request=request)
    if not lost.sent:
        return httpx.ConnectError(words, request=request)
    return httpx.RemoteProtocolError(words, request=request)
