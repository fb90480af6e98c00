"""`recreate serve`: a .gguf file answers like any endpoint, nothing of a server is left behind, and
what cannot be served is said before anything starts."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from recreate.api.errors import BadInput, Fault
from recreate.api.types import Call
from recreate.models.openai import OpenAI
from recreate.plugins.local_models.server import (
    DRAFT,
    Launch,
    ServeConfig,
    Server,
    plan,
    vllm_python,
)
from tests.plugins.local_models import tiny_gguf

CALL = Call(run="r", attempt="a", step=0)

FAMILY = """
import os, signal, subprocess, sys
from http.server import BaseHTTPRequestHandler, HTTPServer
deaf = "import signal, time; signal.signal(15, signal.SIG_IGN); time.sleep(600)"
child = subprocess.Popen([sys.executable, "-c", deaf])

class Handler(BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.end_headers()
        self.wfile.write(f"{os.getpid()} {child.pid}".encode())
    def log_message(self, *a): pass

HTTPServer(("127.0.0.1", int(sys.argv[1])), Handler).serve_forever()
"""
"""A server with a worker that does not hear a request to end."""


@pytest.fixture
def family() -> Iterator[tuple[Server, list[int]]]:
    """(the server, the pids of its processes but for the supervisor's)."""
    port = _port()
    with Server(Launch("family", (sys.executable, "-c", FAMILY, str(port)), port, "m")) as server:
        server.wait(60)
        yield server, [int(pid) for pid in server._ask("GET", "/health")[1].split()]


@pytest.fixture(scope="module")
def gguf(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_gguf.model(tmp_path_factory.mktemp("gguf") / "tiny.gguf")


def _told(process: subprocess.Popen[str]) -> dict[str, Any]:
    assert process.stdout is not None
    found: dict[str, Any] = json.loads(process.stdout.readline())
    return found


@pytest.mark.slow
@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGKILL])
def test_a_gguf_file_is_served_until_recreate_ends(gguf: Path, how: signal.Signals) -> None:
    command = [sys.executable, "-m", "recreate", "serve", str(gguf), "--json", "--context", "256"]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        told = _told(process)
        assert told["model"] == "tiny"
        model = OpenAI(f"{told['url']}#{told['model']}", key_env="")
        reply = model.reply(
            [{"role": "user", "content": "hello"}], CALL, max_tokens=4, temperature=0
        )
        assert 1 <= reply.tokens_out <= 4
        with pytest.raises(BadInput) as e:
            model.reply([{"role": "user", "content": "x" * 400}], CALL)
        assert e.value.code == "context-length"
        model.close()
        process.send_signal(how)
        process.communicate()
    assert process.returncode == (0 if how == signal.SIGINT else -how)
    _gone(told["pid"], "the server outlived recreate")


@pytest.mark.slow
def test_no_page_reads_what_llama_cpp_answers(gguf: Path) -> None:
    with Server(plan(gguf, ServeConfig(context=256))) as server:
        server.wait()
        asked = urllib.request.Request(
            f"{server.url}/models",
            headers={"Origin": "http://evil.example", "Authorization": f"Bearer {server.key}"},
        )
        with urllib.request.urlopen(asked) as answer:
            said = answer.headers["Access-Control-Allow-Origin"]
        assert said == server.url.removesuffix("/v1")


@pytest.mark.slow
def test_what_a_reply_repeats_of_its_prompt_is_proposed_and_the_reply_is_as_without(
    gguf: Path,
) -> None:
    said = "".join(chr(97 + n * n % 23) for n in range(60))
    ask = {
        "messages": [{"role": "user", "content": f'{{"said": "{said}"}}'}],
        "temperature": 0.8,
        "seed": 5,
    }
    schema = {"type": "object", "properties": {"said": {"const": said}}, "required": ["said"]}
    ask["response_format"] = {"type": "json_schema", "json_schema": {"name": "s", "schema": schema}}
    told = {}
    for draft in (DRAFT, 0):
        with Server(
            plan(gguf, ServeConfig(threads=1, parallel=1, context=512, draft=draft))
        ) as server:
            server.wait(60)
            told[draft] = json.loads(server._ask("POST", "/v1/chat/completions", ask)[1])
    ours, plain = told[DRAFT], told[0]
    assert ours["choices"][0]["message"] == plain["choices"][0]["message"]
    assert said in ours["choices"][0]["message"]["content"]
    assert ours["timings"]["draft_n_accepted"] > 20
    assert "draft_n" not in plain["timings"]


@pytest.mark.slow
def test_a_prompt_that_other_prompts_followed_is_not_computed_again(gguf: Path) -> None:
    prompts = [chr(97 + n) * 100 for n in range(6)]
    with Server(plan(gguf, ServeConfig(threads=1, parallel=1, context=512))) as server:
        server.wait(60)
        model = OpenAI(f"{server.url}#{server.launch.name}", key_env="")
        for round_ in ("", " Take care."):
            for prompt in prompts:
                reply = model.reply(
                    [{"role": "user", "content": prompt + round_}], CALL, max_tokens=1
                )
                assert (reply.tokens_cached > 90) == bool(round_), (prompt[0], round_, reply)
        model.close()


@pytest.mark.slow
def test_a_worker_that_does_not_listen_ends_with_its_server(
    family: tuple[Server, list[int]],
) -> None:
    server, pids = family
    server.stop()
    for pid in (*pids, server.pid):
        _gone(pid, "left behind by stop()")


@pytest.mark.slow
def test_the_workers_of_a_killed_server_end_and_it_is_seen_to_have_died(
    family: tuple[Server, list[int]],
) -> None:
    server, (front, worker) = family
    os.kill(front, signal.SIGKILL)
    assert not server.alive(20)
    _gone(worker, "a worker outlived its server")
    with pytest.raises(Fault) as e:
        server.wait(1)
    assert e.value.code == "server-died"


@pytest.mark.slow
def test_a_killed_supervisor_takes_the_server_along(family: tuple[Server, list[int]]) -> None:
    server, pids = family
    os.kill(server.pid, signal.SIGKILL)
    assert not server.alive(20)
    server.stop()
    for pid in pids:
        _gone(pid, "left behind by a killed supervisor")


def test_the_reason_is_found_among_a_servers_last_words() -> None:
    words = (
        "INFO hello\\n"
        * 50
        + "EngineCore ValueError: no room for the cache\\nRuntimeError: see root cause"
        " above\\nWARNING OSError: none\\n"
    )
    port = _port()
    with Server(
        Launch("x", (sys.executable, "-c", f"print('{words}'); raise SystemExit(3)"), port, "m")
    ) as server:
        with pytest.raises(Fault) as e:
            server.wait(60)
        assert "ended with status 3" in e.value.message
        assert "ValueError: no room for the cache" in e.value.message
        assert "root cause" not in e.value.message
        assert "WARNING" not in e.value.message


def test_what_cannot_be_served_is_said_before_anything_starts(gguf: Path, tmp_path: Path) -> None:
    other = tmp_path / "other.gguf"
    other.write_bytes(b"no model")
    adapter = tmp_path / "adapter"
    adapter.mkdir()
    (adapter / "adapter_config.json").write_text(
        json.dumps({"base_model_name_or_path": str(tmp_path / "gone"), "r": 8})
    )
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        cases: list[tuple[str | Path, ServeConfig, str]] = [
            (gguf, ServeConfig(port=taken.getsockname()[1]), "port-taken"),
            (gguf, ServeConfig(engine="vllm"), "bad-engine"),
            (tmp_path, ServeConfig(engine="xllamacpp"), "bad-engine"),
            (other, ServeConfig(), "bad-model-file"),
            (tmp_path / "absent.gguf", ServeConfig(), "unknown-model"),
            ("local:nobody", ServeConfig(), "unknown-model"),
            (tmp_path, ServeConfig(), "unknown-model"),
            (adapter, ServeConfig(), "no-base"),
        ]
        for what, wish, code in cases:
            with pytest.raises(BadInput) as e:
                plan(what, wish)
            assert (e.value.code, bool(e.value.fix)) == (code, True), what


def test_the_environment_of_vllm_is_named_by_its_folder_or_its_python(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bare, full = tmp_path / "bare", tmp_path / "full"
    for folder in (bare, full):
        subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True)
    next(full.glob("lib/python*/site-packages")).joinpath("vllm.py").write_text("")
    assert (
        vllm_python(str(full))
        == vllm_python(str(full / "bin" / "python"))
        == str(full / "bin" / "python")
    )
    for named, why in (
        (bare, "has no vLLM"),
        (tmp_path, "is no Python"),
        (tmp_path / "absent", "is no Python"),
    ):
        with pytest.raises(BadInput, match=why) as e:
            vllm_python(str(named))
        assert e.value.code == "missing"
    model = tmp_path / "model"
    model.mkdir()
    (model / "config.json").write_text("{}")
    monkeypatch.setenv("PYTHONPATH", "/ours")
    monkeypatch.setenv("RECREATE_VLLM_PYTHON", str(full))
    launch = plan(model, ServeConfig(gpu=False))
    assert (launch.engine, launch.command[0]) == ("vllm", str(full / "bin" / "python"))
    assert launch.env["PYTHONPATH"] == ""
    assert launch.env["PATH"].startswith(str(full / "bin"))


def _port() -> int:
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return int(s.getsockname()[1])


def _gone(pid: int, otherwise: str) -> None:
    end = time.monotonic() + 30
    while time.monotonic() < end:
        try:
            if Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z":
                return
        except OSError:
            return
        time.sleep(0.05)
    pytest.fail(otherwise)
