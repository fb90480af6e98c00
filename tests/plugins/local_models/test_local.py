"""`local:`: a llama.cpp server of our own that answers, and is gone when we are.

The tests marked live fetch SmolLM2-135M (98 MB) unless RECREATE_TEST_GGUF names a small instruct
model's file.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from recreate.api.errors import Fault, Transient
from recreate.api.types import Call, Message, Reply
from recreate.models import open_model
from recreate.models.openai import OpenAI
from recreate.plugins.local_models import server
from recreate.plugins.local_models.served import Local

CALL = Call(run="run", attempt="attempt", step=0)
ASK: list[Message] = [{"role": "user", "content": "Name a fruit."}]
SCHEMA = {
    "type": "object",
    "properties": {"fruit": {"type": "string", "maxLength": 20}},
    "required": ["fruit"],
}

FAKE = """
import sys
sys.path.insert(0, {root!r})
if "broken" in " ".join(sys.argv):
    sys.exit("llama_model_load: error: this file is broken")
from tests.stub import Stub
stub = Stub("fake answer", port=int(sys.argv[sys.argv.index("--port") + 1]))
stub.run()
"""


def gone(pid: int, seconds: float = 10.0) -> bool:
    """Whether a process ends within some seconds (a zombie has ended)."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        try:
            state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        except (FileNotFoundError, ProcessLookupError):
            return True
        if state == "Z":
            return True
        time.sleep(0.05)
    return False


@pytest.fixture
def fake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A model file, and a program that serves a stub instead of llama.cpp: only our own part is
    tested."""
    program = tmp_path / "server.py"
    program.write_text(FAKE.format(root=str(Path(__file__).parents[3])))
    monkeypatch.setattr(server, "_LLAMA_SERVER", (str(program),))
    file = tmp_path / "m.gguf"
    file.write_bytes(b"GGUF")
    return file


def pid_of(model: Local) -> int:
    """The server's process, 0 while there is none."""
    return model.server.pid if model.server else 0


def test_nothing_is_started_before_the_first_call(fake: Path) -> None:
    model = Local(fake, jobs=1, threads=1)
    assert pid_of(model) == 0
    model.close()
    with pytest.raises(Fault):
        model.reply(ASK, CALL)


def test_models_of_one_file_share_a_server_that_the_last_one_stops(fake: Path) -> None:
    one, two = Local(fake, threads=1), Local(fake, threads=1)
    assert one.reply(ASK, CALL).text == "fake answer"
    two.prepare()
    pid = pid_of(one)
    assert pid_of(two) == pid
    one.close()
    assert two.reply(ASK, CALL).model == f"local:{fake}"
    two.close()
    two.close()
    assert gone(pid)


def test_threads_slots_and_context_are_stated(fake: Path) -> None:
    config = Local(fake, jobs=16).config
    assert config.threads == len(os.sched_getaffinity(0))
    assert 1 <= config.parallel <= 16
    config = Local(fake, jobs=16, threads=3, parallel=5, context=1000).config
    assert (config.threads, config.parallel, config.context) == (3, 5, 1000)
    assert Local("smollm2-135m").config.context == 4096


def test_log_probs_that_proposed_tokens_would_falsify_are_not_asked_for(
    fake: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[dict[str, Any]] = []

    def reply(self: OpenAI, messages: Sequence[Message], call: Call, **params: Any) -> Reply:
        seen.append(params)
        return Reply(text="ok", model="m")

    monkeypatch.setattr(OpenAI, "reply", reply)
    model = Local(fake, threads=1)
    model.reply(ASK, CALL, logprobs=True, top_logprobs=1, temperature=0)
    model.close()
    assert seen[0].keys() == {"temperature", "timeout"}


@pytest.mark.slow
def test_a_server_that_died_is_told_and_started_anew(fake: Path) -> None:
    model = Local(fake, threads=1)
    model.prepare()
    pid = pid_of(model)
    os.kill(pid, signal.SIGKILL)
    assert gone(pid)
    with pytest.raises(Transient, match="status -9") as e:
        model.reply(ASK, CALL)
    assert e.value.code == "server-died"
    assert model.reply(ASK, CALL).text == "fake answer"
    assert pid_of(model) != pid
    model.close()


def test_a_file_llama_cpp_cannot_read_is_a_fault_with_its_last_words(
    fake: Path, tmp_path: Path
) -> None:
    broken = tmp_path / "broken.gguf"
    broken.write_bytes(b"GGUF")
    with pytest.raises(Fault, match="this file is broken") as e:
        Local(broken, threads=1).reply(ASK, CALL)
    assert e.value.code == "server-died"


def test_the_server_gets_no_keys(fake: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOME_API_KEY", "secret-value")
    model = Local(fake, threads=1)
    model.prepare()
    environment = Path(f"/proc/{pid_of(model)}/environ").read_bytes()
    model.close()
    assert b"secret-value" not in environment
    assert b"GOMP_SPINCOUNT" in environment


# --- with a real model
# --------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def weights(tmp_path_factory: pytest.TempPathFactory) -> str:
    named = os.environ.get("RECREATE_TEST_GGUF")
    if named:
        return named
    patch = pytest.MonkeyPatch()
    patch.setenv("RECREATE_HOME", str(tmp_path_factory.mktemp("home")))
    try:
        from recreate.plugins.local_models.catalog import fetch_model

        return str(fetch_model("smollm2-135m"))
    finally:
        patch.undo()


@pytest.mark.live
def test_a_real_model_answers_by_schema_reuses_the_prefix_and_is_gone_afterwards(
    weights: str,
) -> None:
    model = open_model(f"local:{weights}", jobs=2, threads=1, context=1024)
    long: list[Message] = [{"role": "system", "content": "You name fruits. " * 30}, *ASK]
    for _ in range(2):
        reply = model.reply(long, CALL, json_schema=SCHEMA, max_tokens=60, temperature=0)
        assert set(json.loads(reply.text)) == {"fruit"}
        assert reply.tokens_in > 100
        assert reply.usd == 0
    assert reply.tokens_cached > 100
    assert isinstance(model, Local)
    pid = pid_of(model)
    assert not gone(pid, 0.1)
    model.close()
    assert gone(pid)


@pytest.mark.live
@pytest.mark.parametrize("signal_", [signal.SIGKILL, signal.SIGTERM, None])
def test_the_server_dies_with_its_parent_however_that_ends(
    weights: str, signal_: int | None
) -> None:
    code = (
        "import sys, time, threading\n"
        "from recreate.models import open_model\n"
        "m = open_model(sys.argv[1], threads=1, context=512)\n"
        # the starting thread ends first
        "t = threading.Thread(target=m.prepare); t.start(); t.join()\n"
        "time.sleep(0.3)\n"
        "print(m.server.pid, flush=True)\n"
        "sys.stdin.read()\n"
    )
    root = str(Path(__file__).parents[3])
    command = [sys.executable, "-c", code, f"local:{weights}"]
    with subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": root},
    ) as parent:
        assert parent.stdout is not None
        assert parent.stdin is not None
        pid = int(parent.stdout.readline())
        assert not gone(pid, 0.5)
        if signal_ is None:
            parent.stdin.close()  # it ends by itself, without closing the model
        else:
            parent.send_signal(signal_)
        parent.wait(30)
    assert gone(pid)
