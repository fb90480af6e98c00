"""A foreign agent's way to its model: an HTTP server that speaks the APIs of `dialects.py`, and
holds no key.

It listens on a Unix socket that is mounted into the agent's sandbox, where `launcher.py` relays a
port of 127.0.0.1 to it: the sandbox has no other way out. What the agent sends as a key is not
looked at. For an agent in our own process it listens on 127.0.0.1 and asks for a key that nobody
else on this machine knows.

Requests are answered one at a time, in the order in which they came: their order is their address
in the journal.
"""

from __future__ import annotations

import contextlib
import hmac
import json
import secrets
import shutil
import socket
import socketserver
import tempfile
import threading
from collections.abc import Callable, Mapping
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

from recreate.api.errors import Fault
from recreate.api.loopback import find_foreign_change, find_stranger
from recreate.api.types import Reply
from recreate.plugins.foreign.dialects import DIALECTS, Asked, BadRequest, ChatCompletions, Dialect
from recreate.storage.log import decode

SOCKET = "gateway.sock"
"""The socket's name in its folder."""
STOP = "/stop"
"""What the launcher asks for: answered when the command is to be ended, or the gateway is gone."""
MODEL = "recreate"
"""The one name that is offered; every other is taken too."""
MOST_BYTES = 64 * 2**20
"""Of one request."""
CONNECTIONS = 64
BAD_REQUESTS = 100
"""So many that cannot be passed on, or came after the end, and the agent is stopped: it does not
listen."""


class Denied(Exception):
    """A request is not answered: the status and the code that its API has for that, and why."""

    def __init__(self, message: str, status: int = 400, code: str = "limit_reached") -> None:
        super().__init__(message)
        self.message = message
        self.status = status
        self.code = code


Answer = Callable[[Asked], tuple[Reply, str]]
"""(the reply to a request, what its id is made of). Raises Denied. Never called twice at once."""


class Gateway:
    """Use as a context manager.

    answer: who answers; flooded: called once, when so many requests were useless that the agent is
    to be stopped.
    """

    def __init__(self, answer: Answer, flooded: Callable[[], None] = lambda: None) -> None:
        self.answer = answer
        self.flooded = flooded
        self.key = ""
        self.port = 0
        self.folder: Path | None = None
        self.refused: set[str] = set()
        """Why requests could not be passed on, in words."""
        self._stopping = threading.Event()
        self._bad = 0
        self.line = _InOrder()
        """Held while a request is answered."""
        self._lock = threading.Lock()
        self._open: set[socket.socket] = set()
        self._server: socketserver.BaseServer | None = None

    def on_socket(self) -> Path:
        """Listen on a Unix socket: returns the folder that holds it, to be mounted. Raises
        Fault."""
        try:
            private = Path(tempfile.mkdtemp(prefix="recreate-"))
            if len(str(private)) > 80:  # the kernel's bound on the name of a socket
                private.rmdir()
                private = Path(tempfile.mkdtemp(prefix="recreate-", dir="/tmp"))
            self.folder = private / "gateway"
            self.folder.mkdir(mode=0o755)
            self._serve(_UnixServer(str(self.folder / SOCKET), self._handler()))
            # who is in the sandbox has another number; nobody else comes through the folder above
            (self.folder / SOCKET).chmod(0o666)
            self.folder.chmod(0o755)
        except OSError as e:
            raise Fault(
                f"the gateway cannot listen: {e}", fix="make room in the folder for temporary files"
            ) from e
        return self.folder

    def on_loopback(self) -> str:
        """Listen on 127.0.0.1 for who has `key`: returns the address. Raises Fault."""
        self.key = secrets.token_urlsafe(24)
        try:
            server = _TcpServer(("127.0.0.1", 0), self._handler())
        except OSError as e:
            raise Fault(f"the gateway cannot listen: {e}", fix="free a port of 127.0.0.1") from e
        self.port = int(server.server_address[1])
        self._serve(server)
        return f"http://127.0.0.1:{self.port}"

    def _serve(self, server: socketserver.BaseServer) -> None:
        self._server = server
        threading.Thread(
            target=server.serve_forever, args=(0.05,), name="gateway", daemon=True
        ).start()

    def stop(self) -> None:
        """Have the launcher end the agent's command. Safe to call from any thread, and twice."""
        self._stopping.set()

    def close(self) -> None:
        """End every connection. Safe to call twice."""
        self.stop()
        if self._server is not None:
            self._server.shutdown()
            self._server.server_close()
            self._server = None
        with self._lock:
            for connection in self._open:
                with contextlib.suppress(OSError):
                    connection.shutdown(socket.SHUT_RDWR)
        if self.folder is not None:
            shutil.rmtree(self.folder.parent, ignore_errors=True)

    def __enter__(self) -> Gateway:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # ------------------------------------------------------------------------------------------ one
    # request

    def enter(self, connection: socket.socket) -> bool:
        """Whether another connection is taken."""
        with self._lock:
            if len(self._open) >= CONNECTIONS:
                return False
            self._open.add(connection)
            return True

    def leave(self, connection: socket.socket) -> None:
        with self._lock:
            self._open.discard(connection)

    def wait(self) -> None:
        self._stopping.wait()

    def allowed(self, headers: Mapping[str, str]) -> bool:
        """Whether a request comes from whom it should."""
        if not self.key:
            return True
        given = (
            (headers.get("authorization") or "").removeprefix("Bearer ").strip()
            or headers.get("x-api-key")
            or ""
        )
        return hmac.compare_digest(given.encode(), self.key.encode())

    def reply(self, dialect: Dialect, body: bytes) -> tuple[int, str, bytes]:
        """(status, content type, body) of the answer."""
        try:
            try:
                found = decode(body.decode("utf-8"))
                if not isinstance(found, dict):
                    raise ValueError("no object")
            except (ValueError, RecursionError):
                raise BadRequest("the body is no JSON object") from None
            asked = dialect.read(found)
            with self.line:
                reply, id = self.answer(asked)
        except BadRequest as e:
            self.refused.add(e.message)
            self.useless()
            return self.error(dialect, 400, e.message, e.code or "bad_request")
        except Denied as e:
            self.useless()
            # a library in this process that would try again, and again, cannot be killed
            return self.error(dialect, 400 if self.key else e.status, e.message, e.code)
        if asked.stream:
            return (
                200,
                "text/event-stream",
                "".join(dialect.events(reply, asked, id)).encode("utf-8", "replace"),
            )
        return 200, "application/json", _json(dialect.complete(reply, asked, id))

    def error(
        self, dialect: Dialect, status: int, message: str, code: str
    ) -> tuple[int, str, bytes]:
        return status, "application/json", _json(dialect.error(status, message, code))

    def useless(self) -> None:
        with self._lock:
            self._bad += 1
            now = self._bad == BAD_REQUESTS
        if now:
            self.flooded()

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        return type("Handler", (_Handler,), {"gateway": self})


def _json(value: Any) -> bytes:
    return json.dumps(value).encode("utf-8", "replace")


class _InOrder:
    """A lock that is had in the order in which it was asked for."""

    def __init__(self) -> None:
        self._change = threading.Condition()
        self._next = self._now = 0

    def __enter__(self) -> None:
        with self._change:
            mine = self._next
            self._next += 1
            self._change.wait_for(lambda: self._now == mine)

    def __exit__(self, *_: object) -> None:
        with self._change:
            self._now += 1
            self._change.notify_all()


class _UnixServer(socketserver.ThreadingMixIn, socketserver.UnixStreamServer):
    daemon_threads = True
    block_on_close = False
    request_queue_size = 64

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A connection that breaks off is the agent's own affair."""


class _TcpServer(socketserver.ThreadingMixIn, socketserver.TCPServer):
    daemon_threads = True
    block_on_close = False
    request_queue_size = 64
    allow_reuse_address = True

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A connection that breaks off is the agent's own affair."""


class _Handler(BaseHTTPRequestHandler):
    gateway: Gateway
    protocol_version = "HTTP/1.1"
    server_version = "recreate"
    sys_version = ""
    disable_nagle_algorithm = False

    def handle(self) -> None:
        if not self.gateway.enter(self.connection):
            return
        try:
            with contextlib.suppress(OSError, ValueError):
                super().handle()
        finally:
            self.gateway.leave(self.connection)

    def log_message(self, format: str, *args: Any) -> None:
        """Nothing is logged: the trace tells what was asked."""

    def do_GET(self) -> None:
        path = self.path.partition("?")[0]
        if self._is_page(find_stranger(self.headers.get)):
            return
        if path == STOP:
            self.gateway.wait()
            self.close_connection = True
            return
        one = {
            "id": MODEL,
            "object": "model",
            "type": "model",
            "created": 0,
            "owned_by": "recreate",
        }
        if path in ("/v1/models", "/models"):
            self._send(
                200, "application/json", _json({"object": "list", "data": [one], "has_more": False})
            )
        elif path.startswith(("/v1/models/", "/models/")):
            self._send(200, "application/json", _json({**one, "id": path.rpartition("/")[2]}))
        else:
            self._nothing_here()

    def do_POST(self) -> None:
        path = self.path.partition("?")[0].rstrip("/")
        path = path if path.startswith("/v1/") else f"/v1{path}"
        body = self._body()
        if body is None or self._is_page(find_foreign_change(self.headers.get)):
            return
        if not self.gateway.allowed({name.lower(): value for name, value in self.headers.items()}):
            self._send(
                *self.gateway.error(
                    ChatCompletions(), 401, "this key is not this attempt's", "invalid_api_key"
                )
            )
        elif path == "/v1/messages/count_tokens":
            self._send(200, "application/json", _json({"input_tokens": -(-len(body) // 4)}))
        elif path in DIALECTS:
            self._send(*self.gateway.reply(DIALECTS[path], body))
        else:
            self._nothing_here()

    def _is_page(self, stranger: str) -> bool:
        """Whether a website's page asks, which is then turned away: where the sandbox is `none` the
        agent's way here is a port of this machine."""
        if stranger:
            self.close_connection = True
            self._send(*self.gateway.error(ChatCompletions(), 403, stranger, "stranger"))
        return bool(stranger)

    def _nothing_here(self) -> None:
        self.gateway.useless()
        there = ", ".join(DIALECTS)
        words = f"there is no {self.path[:100]} here; there are: {there}, /v1/models"
        self._send(*self.gateway.error(ChatCompletions(), 404, words, "not_found"))

    def _body(self) -> bytes | None:
        """The request's body; None when it cannot be had, which is then said."""
        if "chunked" in (self.headers.get("Transfer-Encoding") or "").lower():
            found = self._chunks()
        else:
            length = self.headers.get("Content-Length") or "0"
            size = int(length) if length.isascii() and length.isdecimal() else -1
            found = self.rfile.read(size) if 0 <= size <= MOST_BYTES else None
        if found is None:
            self.close_connection = True
            self.gateway.useless()
            words = f"a request has at most {MOST_BYTES} bytes, and says how many"
            self._send(*self.gateway.error(ChatCompletions(), 413, words, "too_large"))
        return found

    def _chunks(self) -> bytes | None:
        whole = bytearray()
        while True:
            try:
                size = int(self.rfile.readline(100).partition(b";")[0], 16)
            except ValueError:
                return None
            if size < 0 or len(whole) + size > MOST_BYTES:
                return None
            whole += self.rfile.read(size)
            self.rfile.readline(100)
            if not size:
                return bytes(whole)

    def _send(self, status: int, kind: str, body: bytes) -> None:
        with contextlib.suppress(OSError):
            self.send_response(status)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(body)))
            if status >= 400:
                # OpenAI's and Anthropic's clients heed it
                self.send_header("x-should-retry", "false")
            if self.close_connection:
                self.send_header("Connection", "close")
            self.end_headers()
            self.wfile.write(body)
