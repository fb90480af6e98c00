"""A loopback OpenAI-style endpoint for tests and measurements: canned answers, chosen faults,
counts.

    with Stub(reply="hello") as stub:                       # in this process, on a thread of its
    own
        open_model(f"openai:{stub.url}#stub") ...
        assert stub.calls == ["run/attempt/0"]

    python -m tests.stub --port 0 --delay-ms 20             # in its own process; prints its URL

It is light (one asyncio protocol, canned bytes), so that a measurement beside it shows the client's
own cost. GET /seen answers {"count", "connections", "calls": [...]}, so that a process from outside
can be counted too.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import socket
import threading
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any

Body = dict[str, Any]
Answer = str | Body
"""A text, or a whole response body (a dict with `choices`)."""

Fault = int | str | tuple[int, str] | tuple[int, str, dict[str, str]]
"""A status; a status with the server's words (and headers); or one of
`reset` (hangs up before a byte), `cut` (hangs up in the middle), `hang` (never answers), `garbage`
(not JSON)."""


class Stub:
    """A server on 127.0.0.1, running while the `with` block does.

    reply   a text, a whole body, or a function of the request's body
    delay   seconds before each answer
    faults  what happens to the first requests, one each; None is a normal answer
    fault   a function of the request's body that names a fault (or None); asked when `faults` is
            used up
    hold    from this request on (the first is 1) answers wait for `release`: a process is then
            where a test wants it
    hang_up close the connection after each answer, without announcing it
    """

    def __init__(
        self,
        reply: Answer | Callable[[Body], Answer] = "ok",
        *,
        delay: float = 0.0,
        faults: Iterable[Fault | None] = (),
        fault: Callable[[Body], Fault | None] | None = None,
        models: Iterable[str] = ("stub",),
        hold: int = 0,
        hang_up: bool = False,
        keep: bool = True,
        port: int = 0,
    ) -> None:
        self.reply, self.delay, self.fault, self.hang_up, self.keep = (
            reply,
            delay,
            fault,
            hang_up,
            keep,
        )
        self.faults = list(faults)
        self.models = list(models)
        self.hold = hold
        self.held: list[Callable[[], None]] = []
        self.calls: list[str] = []
        """The x-recreate-call header of every request for an answer, in order of arrival."""
        self.bodies: list[Body] = []
        self.headers: list[dict[str, str]] = []
        self.connections = 0
        self.port = port
        self._loop = asyncio.new_event_loop()
        self._up = threading.Event()
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._open: set[_Wire] = set()
        self._canned = _response(200, completion(reply)) if isinstance(reply, str | dict) else b""

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/v1"

    @property
    def count(self) -> int:
        return len(self.calls)

    def __enter__(self) -> Stub:
        self._thread.start()
        self._up.wait(10)
        return self

    def __exit__(self, *exc: object) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)

    def drop(self) -> None:
        """Close every open connection, as a server does with those that were idle for long."""
        done = threading.Event()

        def close() -> None:
            for wire in list(self._open):
                wire.out.abort()
            self._loop.call_soon(done.set)  # each is closed a turn of the loop later

        self._loop.call_soon_threadsafe(close)
        done.wait(10)

    def release(self, delay: float = 0.0) -> None:
        """Answer what was held; what is asked from now on is answered after `delay` seconds."""
        self.hold, self.delay = 0, delay

        def answer() -> None:
            held, self.held = self.held, []
            for send in held:
                send()

        self._loop.call_soon_threadsafe(answer)

    def run(self, ready: Callable[[], None] = lambda: None) -> None:
        """Serve on this thread until the loop is stopped."""
        asyncio.set_event_loop(self._loop)
        try:
            server = self._loop.run_until_complete(
                self._loop.create_server(lambda: _Wire(self), "127.0.0.1", self.port, backlog=1024)
            )
            self.port = server.sockets[0].getsockname()[1]
            ready()
            self._loop.run_forever()
            server.close()
            for wire in list(self._open):
                wire.out.abort()
            self._loop.run_until_complete(asyncio.sleep(0))
        finally:
            self._loop.close()

    def _serve(self) -> None:
        self.run(self._up.set)

    def _answer(self, head: bytes, payload: bytes) -> tuple[bytes, str]:
        """The bytes to send, and what to do then: '' | 'close' | 'hang'."""
        method, path = head.split(b" ", 2)[:2]
        if method == b"GET":
            if path.endswith(b"/models"):
                return (
                    _response(200, {"object": "list", "data": [{"id": m} for m in self.models]}),
                    "",
                )
            if path.endswith(b"/seen"):
                seen = {"count": self.count, "connections": self.connections, "calls": self.calls}
                return _response(200, seen), ""
            if path == b"/health":
                return _response(200, {}), ""
            return _response(404, {"error": {"message": "no such page"}}), ""
        self.calls.append(_header(head, b"x-recreate-call"))
        body: Body = {}
        if self.keep or callable(self.reply) or self.fault:
            body = json.loads(payload)
        if self.keep:
            self.bodies.append(body)
            lines = head.decode("latin-1").split("\r\n")[1:]
            self.headers.append(
                {k.lower(): v for k, _, v in (line.partition(": ") for line in lines) if k}
            )
        fault = self.faults.pop(0) if self.faults else (self.fault(body) if self.fault else None)
        if fault is None:
            return self._canned or _response(200, completion(self.reply(body))), ""  # type: ignore[operator]
        if fault == "reset":
            return b"", "close"
        if fault == "hang":
            return b"", "hang"
        if fault == "cut":
            whole = _response(200, completion("x" * 1000))
            return whole[: len(whole) // 2], "close"
        if fault == "garbage":
            return _raw(200, b"<html>not json</html>"), ""
        status, text, headers = (*(fault if isinstance(fault, tuple) else (fault,)), "", {})[:3]
        message = text or f"the stub says {status}"
        payload = (
            message.encode()
            if str(message).startswith("{")
            else json.dumps({"error": {"message": message}}).encode()
        )
        return _raw(int(status), payload, headers if isinstance(headers, dict) else {}), ""


class _Wire(asyncio.Protocol):
    def __init__(self, stub: Stub) -> None:
        self.stub = stub
        self.buffer = bytearray()
        self.head, self.need = b"", -1
        self.out: asyncio.Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.out = transport
        self.stub.connections += 1
        self.stub._open.add(self)

    def connection_lost(self, exc: Exception | None) -> None:
        self.stub._open.discard(self)

    def data_received(self, data: bytes) -> None:
        self.buffer += data
        while True:
            if self.need < 0:
                end = self.buffer.find(b"\r\n\r\n")
                if end < 0:
                    return
                self.head = bytes(self.buffer[:end])
                self.need = int(_header(self.head, b"content-length") or 0)
                del self.buffer[: end + 4]
            if len(self.buffer) < self.need:
                return
            payload = bytes(self.buffer[: self.need])
            del self.buffer[: self.need]
            self.need = -1
            answer, then = self.stub._answer(self.head, payload)
            if (
                self.stub.hold
                and self.head.startswith(b"POST")
                and self.stub.count >= self.stub.hold
            ):
                self.stub.held.append(partial(self.send, answer, then))
            elif self.stub.delay and self.head.startswith(b"POST"):
                asyncio.get_running_loop().call_later(self.stub.delay, self.send, answer, then)
            else:
                self.send(answer, then)

    def send(self, answer: bytes, then: str) -> None:
        if self.out.is_closing() or then == "hang":
            return
        self.out.write(answer)
        if then == "close" or self.stub.hang_up:
            self.out.close()


@contextlib.contextmanager
def saying(answer: bytes) -> Iterator[tuple[int, list[bytes]]]:
    """A server that answers each request with the same bytes: (its port, the heads of what it was
    asked)."""
    heads: list[bytes] = []
    server = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        while True:
            try:
                wire, _ = server.accept()
            except OSError:
                return
            with wire:
                got = b""
                while b"\r\n\r\n" not in got:
                    got += wire.recv(65536)
                heads.append(got.partition(b"\r\n\r\n")[0])
                wire.sendall(answer)

    threading.Thread(target=serve, daemon=True).start()
    try:
        yield server.getsockname()[1], heads
    finally:
        server.shutdown(socket.SHUT_RDWR)
        server.close()


def calling(*calls: tuple[str, Any], text: str | None = None) -> Body:
    """A chat completion that calls tools: (name, arguments) each, with the ids `id-0`, `id-1` and
    so on."""
    body = completion(text or "")
    body["choices"][0] = {
        "index": 0,
        "finish_reason": "tool_calls",
        "message": {
            "role": "assistant",
            "content": text,
            "tool_calls": [
                {
                    "id": f"id-{n}",
                    "type": "function",
                    "function": {"name": name, "arguments": json.dumps(arguments)},
                }
                for n, (name, arguments) in enumerate(calls)
            ],
        },
    }
    return body


def completion(answer: Answer) -> Body:
    """A chat completion that says `answer`, with token counts of len/4."""
    if isinstance(answer, dict):
        return answer
    return {
        "id": "stub",
        "object": "chat.completion",
        "model": "stub",
        "choices": [
            {
                "index": 0,
                "message": {"role": "assistant", "content": answer},
                "finish_reason": "stop",
            }
        ],
        "usage": {"prompt_tokens": 10, "completion_tokens": len(answer) // 4 + 1},
    }


def _header(head: bytes, name: bytes) -> str:
    at = head.lower().find(b"\r\n" + name + b":")
    if at < 0:
        return ""
    start = at + len(name) + 3
    end = head.find(b"\r\n", start)
    return head[start : end if end >= 0 else len(head)].strip().decode("latin-1")


def _response(status: int, body: Any) -> bytes:
    return _raw(status, json.dumps(body).encode())


def _raw(status: int, payload: bytes, headers: dict[str, str] | None = None) -> bytes:
    lines = [
        f"HTTP/1.1 {status} Stub",
        "content-type: application/json",
        f"content-length: {len(payload)}",
    ]
    lines += [f"{k}: {v}" for k, v in (headers or {}).items()]
    return ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1") + payload


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--delay-ms", type=float, default=0.0)
    parser.add_argument("--reply", default="ok")
    parser.add_argument("--reply-bytes", type=int, default=0, help="pad the reply to this length")
    args = parser.parse_args()
    stub = Stub(
        args.reply.ljust(args.reply_bytes, "."),
        delay=args.delay_ms / 1000,
        keep=False,
        port=args.port,
    )
    with contextlib.suppress(KeyboardInterrupt):
        stub.run(lambda: print(stub.url, flush=True))


if __name__ == "__main__":
    main()
