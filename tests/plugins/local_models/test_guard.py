"""A server of a model answers programs of this machine, and no website that a browser shows."""

from __future__ import annotations

import http.client
import json
import os
import sys
import threading
from collections.abc import Iterator
from http.server import ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from recreate.api.loopback import served_key
from recreate.api.types import Call, Message
from recreate.models.openai import OpenAI
from recreate.plugins.local_models import transformers_server
from recreate.plugins.local_models.server import Launch, ServeConfig, Server, _free_port, plan
from recreate.storage.redact import redact
from tests.plugins.local_models import tiny_gguf

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
    own = f"http://127.0.0.1:{port}"
    assert answer.getheader("Access-Control-Allow-Origin") in (None, own)
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


def test_a_server_that_has_a_key_computes_for_nobody_without_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(transformers_server, "answer", lambda *_: {"ok": True})
    models: Any = type("Models", (), {"known": {"m": None}})
    made = ThreadingHTTPServer(("127.0.0.1", 0), transformers_server.handler(models, "sk-1"))
    threading.Thread(target=made.serve_forever, args=(0.05,), daemon=True).start()
    given = [{}, {"Authorization": "Bearer sk-2"}, {"Authorization": "Bearer sk-1"}]
    asked = [ask(made.server_port, "POST", "/v1/x", {**JSON, **key}, ASKED) for key in given]
    assert asked == [401, 401, 200]
    made.shutdown()
    made.server_close()


PICKY = """
import os, sys
from http.server import BaseHTTPRequestHandler, HTTPServer

class Handler(BaseHTTPRequestHandler):
    def do_GET(self):
        self.answer(200)
    def do_POST(self):
        self.rfile.read(int(self.headers["Content-Length"]))
        asked = self.headers["Authorization"]
        print("Error: asked with", asked, flush=True)
        keys = {os.environ["RECREATE_SERVER_KEY"], os.environ["VLLM_API_KEY"]}
        self.answer(200 if {asked} == {f"Bearer {key}" for key in keys} else 401)
    def answer(self, status):
        self.send_response(status)
        body = b'{"choices": [{"message": {"content": "hi"}, "finish_reason": "stop"}]}'
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
    def log_message(self, *a): pass

HTTPServer(("127.0.0.1", int(sys.argv[1])), Handler).serve_forever()
"""
"""A server that answers whoever knows its key, and prints what it was asked with."""


@pytest.fixture
def picky() -> Iterator[Server]:
    port = _free_port()
    with Server(Launch("picky", (sys.executable, "-c", PICKY, str(port)), port, "m")) as server:
        server.wait(60)
        yield server


def test_a_server_is_asked_with_a_key_that_is_made_at_its_start(
    picky: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-of-somebody-else")
    port = picky.launch.port
    assert ask(port, "POST", "/v1/chat/completions", JSON, ASKED) == 401
    text = {"Content-Type": "text/plain", "Origin": "http://evil.example"}
    assert ask(port, "POST", "/v1/chat/completions", text, ASKED) == 401
    hello: list[Message] = [{"role": "user", "content": "Hello"}]
    for model in (OpenAI(f"{picky.url}#m"), OpenAI(f"{picky.url}#m", key_env="", key=picky.key)):
        assert model.reply(hello, Call(run="r", attempt="a", step=0)).text == "hi"
        model.close()
    assert picky._ask("POST", "/v1/load_lora_adapter", {})[0] == 200
    assert picky.key not in picky.last_words()
    assert picky.key not in redact(f"it has {picky.key} now")


def test_other_programs_read_the_key_in_a_file_of_the_user_alone_while_the_server_runs(
    picky: Server,
) -> None:
    assert picky.key_file.read_text().split()[1] == picky.key
    assert picky.key_file.stat().st_mode & 0o777 == 0o600
    assert picky.key_file.parent.stat().st_mode & 0o777 == 0o700
    own = [Path(f"/proc/{pid}/cmdline").read_bytes() for pid in (picky.pid, os.getpid())]
    assert not any(picky.key.encode() in line for line in own)
    picky.stop()
    assert not picky.key_file.exists()


def test_the_key_of_a_server_that_is_gone_is_not_sent(picky: Server) -> None:
    port = picky.launch.port
    assert served_key("127.0.0.1", port) == served_key("localhost", port) == picky.key
    assert served_key("example.com", port) == served_key("127.0.0.1", None) == ""
    picky.key_file.write_text(f"{2**22 - 3} {picky.key}\n")
    assert served_key("127.0.0.1", port) == ""
    picky.key_file.write_text("torn")
    assert served_key("127.0.0.1", port) == ""


@pytest.mark.slow
def test_llama_cpp_computes_nothing_for_whoever_has_no_key(tmp_path: Path) -> None:
    pytest.importorskip("xllamacpp")
    file = tiny_gguf.model(tmp_path / "tiny.gguf")
    with Server(plan(file, ServeConfig(context=256))) as server:
        server.wait()
        port = server.launch.port
        for path in ("/v1/chat/completions", "/completion", "/v1/completions", "/infill"):
            for kind in ({"Content-Type": "text/plain"}, JSON):
                assert ask(port, "POST", path, kind, ASKED) == 401
        model = OpenAI(f"{server.url}#{server.launch.name}")
        hello: list[Message] = [{"role": "user", "content": "Hello"}]
        assert model.reply(hello, Call(run="r", attempt="a", step=0), max_tokens=2).tokens_out
        model.close()
