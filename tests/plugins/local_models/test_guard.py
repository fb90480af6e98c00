"""A server of a model answers programs of this machine, and no website that a browser shows."""

from __future__ import annotations

import http.client
import json
import threading
from collections.abc import Iterator
from http.server import ThreadingHTTPServer
from typing import Any

import pytest

from recreate.plugins.local_models import transformers_server

ASKED = json.dumps({"model": "m", "messages": [{"role": "user", "content": "Hello"}]})
JSON = {"Content-Type": "application/json"}


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[int, list[str]]]:
    """A port that answers, and the paths that were let through to the model."""
    asked = list[str]()

    def answer(models: Any, path: str, body: Any) -> Any:
        asked.append(path)
        return {"ok": True}

    monkeypatch.setattr(transformers_server, "answer", answer)
    models: Any = type("Models", (), {"known": {"m": None}})
    made = ThreadingHTTPServer(("127.0.0.1", 0), transformers_server.handler(models))
    threading.Thread(target=made.serve_forever, args=(0.05,), daemon=True).start()
    yield made.server_port, asked
    made.shutdown()
    made.server_close()


def ask(port: int, method: str, path: str, headers: dict[str, str], body: str = "") -> int:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
    connection.putrequest(method, path, skip_host="Host" in headers)
    for name, value in {**headers, "Content-Length": str(len(body))}.items():
        if value:
            connection.putheader(name, value)
    connection.endheaders(body.encode())
    answer = connection.getresponse()
    assert not answer.getheader("Access-Control-Allow-Origin")
    answer.read()
    connection.close()
    return answer.status


def test_a_program_is_answered(server: tuple[int, list[str]]) -> None:
    port, asked = server
    for name in ("127.0.0.1", "localhost", "[::1]"):
        headers = {"Host": f"{name}:{port}", **JSON}
        assert ask(port, "POST", "/v1/chat/completions", headers, ASKED) == 200
    assert (
        ask(port, "POST", "/v1/x", {"Content-Type": "application/json; charset=utf-8"}, ASKED)
        == 200
    )
    assert ask(port, "GET", "/v1/models", {}) == 200
    assert ask(port, "GET", "/health", {}) == 200
    assert len(asked) == 4


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"Content-Type": "text/plain"}, 415),
        ({"Content-Type": "application/x-www-form-urlencoded"}, 415),
        ({"Content-Type": "multipart/form-data; boundary=x"}, 415),
        ({"Content-Type": ""}, 415),
        ({"Content-Type": "text/plain", "Origin": "http://evil.example"}, 403),
        ({**JSON, "Origin": "http://evil.example"}, 403),
        ({**JSON, "Origin": "null"}, 403),
        ({**JSON, "Host": "evil.example"}, 403),
        ({**JSON, "Host": "evil.example", "Origin": "http://evil.example"}, 403),
        ({**JSON, "Host": ""}, 403),
        ({**JSON, "Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate"}, 403),
    ],
)
def test_a_page_has_nothing_generated(
    server: tuple[int, list[str]], headers: dict[str, str], status: int
) -> None:
    port, asked = server
    for path in ("/v1/chat/completions", "/v1/load_lora_adapter"):
        assert ask(port, "POST", path, headers, ASKED) == status
    assert asked == []


@pytest.mark.parametrize(
    "headers", [{"Host": "evil.example"}, {"Sec-Fetch-Site": "cross-site"}, {"Host": ""}]
)
def test_a_page_does_not_read_what_is_served(
    server: tuple[int, list[str]], headers: dict[str, str]
) -> None:
    assert ask(server[0], "GET", "/v1/models", headers) == 403


def test_no_page_is_told_that_it_may_ask(server: tuple[int, list[str]]) -> None:
    headers = {"Origin": "http://evil.example", "Access-Control-Request-Method": "POST"}
    assert ask(server[0], "OPTIONS", "/v1/chat/completions", headers) == 501
