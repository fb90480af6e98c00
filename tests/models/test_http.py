"""The client under `openai:`: an answer is read in whatever form it comes, a transcript is sent as
it stands."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from recreate.api.errors import Transient
from recreate.api.types import Call
from recreate.models.http import Transcript
from recreate.models.openai import OpenAI

BODY = json.dumps(
    {"choices": [{"message": {"content": "hé " * 50}, "finish_reason": "stop"}]}
).encode()
LENGTH = b"Content-Length: %d\r\n" % len(BODY)


@contextmanager
def server(answer: bytes, *, pieces: int = 1) -> Iterator[tuple[str, list[int]]]:
    """Sends these very bytes for each request, in pieces; and the number of connections so far."""
    listener = socket.create_server(("127.0.0.1", 0))
    count: list[int] = []

    def serve(wire: socket.socket) -> None:
        with wire:
            while b"\r\n\r\n" in wire.recv(65536):
                step = -(-len(answer) // pieces)
                for at in range(0, len(answer), step):
                    wire.sendall(answer[at : at + step])
                    threading.Event().wait(0.002 if pieces > 1 else 0)
                if b"close" in answer or not (b"ength:" in answer or b"chunked" in answer):
                    return

    def accept() -> None:
        while True:
            try:
                wire, _ = listener.accept()
            except OSError:
                return
            count.append(1)
            threading.Thread(target=serve, args=(wire,), daemon=True).start()

    threading.Thread(target=accept, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}/v1", count
    finally:
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()


def ask(url: str, times: int = 2) -> str:
    model = OpenAI(f"{url}#m")
    try:
        for n in range(times):
            reply = model.reply(
                [{"role": "user", "content": "x"}], Call(run="r", attempt="a", step=n), timeout=5
            )
        return reply.text
    finally:
        model.close()


CHUNKED = b"%x\r\n%s\r\n%x\r\n%s\r\n0\r\n\r\n" % (40, BODY[:40], len(BODY) - 40, BODY[40:])


def test_a_hint_before_the_answer_is_passed_over() -> None:
    early = b"HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n"
    with server(early + b"HTTP/1.1 200 OK\r\n" + LENGTH + b"\r\n" + BODY) as (url, _):
        assert ask(url) == "hé " * 50


@pytest.mark.parametrize(
    ("head", "body", "connections"),
    [
        (LENGTH, BODY, 1),
        (LENGTH.lower() + b"Connection: keep-alive\r\n", BODY, 1),
        (b"Connection: close\r\n" + LENGTH, BODY, 2),
        (b"Transfer-Encoding: chunked\r\n", CHUNKED, 1),
        (b"Server: says nothing of a length\r\n", BODY, 2),
    ],
)
@pytest.mark.parametrize("pieces", [1, 7])
def test_an_answer_is_read_in_whatever_form_it_comes(
    head: bytes, body: bytes, connections: int, pieces: int
) -> None:
    with server(b"HTTP/1.1 200 OK\r\n" + head + b"\r\n" + body, pieces=pieces) as (url, count):
        assert ask(url) == "hé " * 50
        assert len(count) == connections


def test_an_answer_that_ends_early_is_a_fault_that_may_pass() -> None:
    with (
        server(
            b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\nx: close\r\n\r\n%s" % (len(BODY) + 9, BODY)
        ) as (url, _),
        pytest.raises(Transient),
    ):
        ask(url)


def test_a_growing_transcript_is_sent_as_it_stands() -> None:
    transcript = Transcript()
    messages: list[dict[str, str]] = [{"role": "system", "content": 'a "quoted"\n[line]'}]
    for n in range(4):
        messages.append({"role": "user", "content": f"{n}é\ud83d"})
        text = bytes(transcript.encode(messages)) + b'"x":1}'  # type: ignore[arg-type]
        sent = json.loads(text)["messages"]
        assert [m["content"].replace("\ud83d", "?") for m in messages] == [
            m["content"] for m in sent
        ]
        messages[0] = {"role": "system", "content": f"changed {n}"}
    again = bytes(transcript.encode(messages[:1])) + b'"x":1}'  # type: ignore[arg-type]
    assert json.loads(again)["messages"] == messages[:1]
