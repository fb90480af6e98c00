"""vLLM itself, started for real: `RECREATE_VLLM_PYTHON=FOLDER pytest -m vllm tests/rl`, where it is
not in this environment. Some minutes on a CPU."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from recreate.api.errors import Fault
from recreate.api.types import Call
from recreate.cli import run as cli
from recreate.models.openai import OpenAI
from recreate.plugins.local_models.server import ServeConfig, Server, plan
from recreate.plugins.local_models.transformers import Transformers
from tests.plugins.rl import tiny

VLLM = os.environ.get("RECREATE_VLLM_PYTHON", "")
"""Read before every test is given an environment without it."""

pytestmark = [pytest.mark.vllm, pytest.mark.filterwarnings("ignore")]
LONG = [{"role": "user", "content": "tell me " * 60}]
"""Longer than a block of vLLM's prefix cache."""
CALL = Call(run="r", attempt="a", step=0)
GAP = 1e-3


@pytest.fixture(scope="module")
def weights(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny.model(tmp_path_factory.mktemp("tiny"), width=128)


@pytest.fixture(autouse=True)
def _vllm(monkeypatch: pytest.MonkeyPatch) -> None:
    if VLLM:
        monkeypatch.setenv("RECREATE_VLLM_PYTHON", VLLM)


def adapted(weights: Path, seed: int) -> Any:
    """The model with an adapter that changes what it says."""
    import peft
    import torch
    from transformers import AutoModelForCausalLM

    torch.manual_seed(seed)
    config = peft.LoraConfig(
        r=4, target_modules="all-linear", init_lora_weights=False, task_type="CAUSAL_LM"
    )
    return peft.get_peft_model(
        AutoModelForCausalLM.from_pretrained(weights, dtype=torch.float32), config
    )


def of(module: Any, reply: Any) -> list[float]:
    """The log-probs that the module itself gives to a reply's tokens."""
    import torch

    ids = torch.tensor([[*reply.prompt_ids, *reply.token_ids]])
    with torch.no_grad():
        logp = module(ids).logits[0].float().log_softmax(-1)
    n = len(reply.prompt_ids)
    return [float(logp[n + k - 1, t]) for k, t in enumerate(reply.token_ids)]


def test_a_checkpoint_is_served_beside_its_base_and_ends_with_recreate(
    weights: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "adapter"
    adapted(weights, 1).save_pretrained(folder)
    command = [sys.executable, "-m", "recreate", "serve", str(folder), "--engine", "vllm", "--json"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        told = json.loads(process.stdout.readline())
        tree = _group(told["pid"])
        assert len(tree) >= 3  # the supervisor, the front and the engine
        said = {}
        for name in (told["model"], "base"):
            model = OpenAI(f"{told['url']}#{name}", key_env="")
            asked: dict[str, Any] = {
                "temperature": 0,
                "max_tokens": 12,
                "logprobs": True,
                "return_token_ids": True,
            }
            said[name] = model.reply(LONG, CALL, **asked)
            model.close()
            assert said[name].token_ids is not None
            assert len(said[name].token_ids) == len(said[name].logprobs or ()) <= 12
            assert list(said[name].prompt_ids or ()) == Transformers(weights).encode(LONG)
        assert said["base"].token_ids != said[told["model"]].token_ids
        process.kill()
        process.communicate()
    _all_gone(tree)


def test_every_version_of_an_adapter_answers_by_its_own_weights(
    weights: Path, tmp_path: Path
) -> None:
    """Nothing that was computed of the prompt under the last version is used."""
    from recreate.plugins.rl.rollout import Served

    base = Transformers(weights)
    base.override = {"temperature": 1.0, "top_p": 1.0, "top_k": 0, "max_tokens": 16}
    served = Served(base, tmp_path / "adapter", "vllm")
    try:
        for seed in (1, 2):
            module = adapted(weights, seed)
            served.update(module)
            for n in (1, 2):
                reply = served.reply(LONG, CALL, seed=n)
                assert reply.logprobs == pytest.approx(of(module, reply), abs=GAP)
        os.kill(served.server.pid, signal.SIGKILL)  # the supervisor alone; its server goes with it
        from recreate.api.errors import Transient

        with pytest.raises(Transient) as e:
            served.reply(LONG, CALL)
        assert e.value.code == "server-died"
        assert served.reply(LONG, CALL, seed=1).logprobs == pytest.approx(
            of(module, served.reply(LONG, CALL, seed=1)), abs=GAP
        )
        tree = _group(served.server.pid)
    finally:
        served.close()
    _all_gone(tree)


@pytest.fixture
def tree() -> Iterator[list[int]]:
    found: list[int] = []
    yield found
    _all_gone(found)


def test_tune_rolls_out_by_vllm_and_goes_on_when_it_was_killed(
    weights: Path,
    workspace: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    tree: list[int],
) -> None:
    from recreate.plugins.rl.rollout import Served

    reply, left = Served.reply, [9]

    def dying(self: Served, *args: Any, **params: Any) -> Any:
        left[0] -= 1
        if left[0] == 0:
            members = _group(self.server.pid)
            tree.extend(members)
            # a worker: what runs out of memory, if anything does
            os.kill(members[-1], signal.SIGKILL)
        return reply(self, *args, **params)

    monkeypatch.setattr(Served, "reply", dying)
    code = cli(
        [
            "tune",
            "--recipe",
            str(tiny.small("grpo", workspace)),
            "--domain",
            "tests.plugins.rl.tiny:Letters",
            "--model",
            str(weights),
            "--scaffold",
            str(tiny.agent(workspace / "agent")),
            "--steps",
            "3",
            "--out",
            "run",
            "--jobs",
            "4",
            "--rollouts",
            "vllm",
            "--json",
        ]
    )
    made = json.loads(capsys.readouterr().out)
    assert code == 0, made
    assert made["curve"][2]["kl"] > 0
    records = [
        json.loads(line) for line in (workspace / "run" / "journal.jsonl").read_text().splitlines()
    ]
    assert sum("starting a server" in r.get("text", "") for r in records) == 2
    updates = [r for r in records if r["kind"] == "update"]
    assert [u["attempts"] for u in updates] == [6, 6, 6]
    assert max(u["sampler_gap"] for u in updates) < GAP


def test_what_vllm_will_not_serve_is_told_with_its_reason(weights: Path) -> None:
    with (
        Server(plan(weights, ServeConfig(engine="vllm", context=100_000))) as server,
        pytest.raises(Fault) as e,
    ):
        server.wait()
    assert e.value.code == "server-died"
    assert "max_model_len" in e.value.message


def _group(pid: int) -> list[int]:
    """The processes of a server, oldest first."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            state, _, group = (folder / "stat").read_text().rpartition(")")[2].split()[:3]
        except OSError:
            continue
        if int(group) == pid and state != "Z":
            found.append(int(folder.name))
    return sorted(found)


def _all_gone(pids: list[int]) -> None:
    end = time.monotonic() + 60
    while (left := [p for p in pids if Path(f"/proc/{p}").exists()]) and time.monotonic() < end:
        time.sleep(0.1)
    assert not left
