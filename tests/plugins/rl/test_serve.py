"""`recreate serve`: a checkpoint answers like any endpoint, adapters are loaded into it, and
nothing is left behind."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from recreate.api.errors import BadInput, Transient
from recreate.api.types import Call
from recreate.cli import run as cli
from recreate.models.openai import OpenAI
from recreate.plugins.local_models.served import VLLM
from recreate.plugins.local_models.server import ServeConfig, Server, plan
from recreate.plugins.local_models.transformers import Transformers
from tests.plugins.rl import tiny

pytestmark = [pytest.mark.rl, pytest.mark.filterwarnings("ignore")]
ASK = [{"role": "user", "content": "hello"}]
CALL = Call(run="r", attempt="a", step=0)


@pytest.fixture(scope="module")
def adapter(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An adapter that changes what its base says."""
    import peft
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    base = tiny.model(tmp_path_factory.mktemp("base"))
    config = peft.LoraConfig(
        r=4, target_modules="all-linear", init_lora_weights=False, task_type="CAUSAL_LM"
    )
    torch.manual_seed(1)
    folder = tmp_path_factory.mktemp("adapter")
    peft.get_peft_model(AutoModelForCausalLM.from_pretrained(base), config).save_pretrained(folder)
    AutoTokenizer.from_pretrained(base).save_pretrained(folder)
    return folder


def test_a_checkpoint_is_served_and_ends_with_its_process_tree(adapter: Path) -> None:
    command = [
        sys.executable,
        "-m",
        "recreate",
        "serve",
        str(adapter),
        "--engine",
        "transformers",
        "--json",
    ]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        told = json.loads(process.stdout.readline())
        model = OpenAI(f"{told['url']}#{told['model']}", key_env="")
        one = model.reply(ASK, CALL, max_tokens=6, seed=3, logprobs=True, return_token_ids=True)
        assert one.token_ids is not None
        assert len(one.token_ids) == len(one.logprobs or ()) <= 6
        assert one.prompt_ids
        assert one.text == model.reply(ASK, CALL, max_tokens=6, seed=3).text
        with pytest.raises(BadInput) as e:
            model.reply([{"role": "user", "content": "x" * 2000}], CALL)
        assert e.value.code == "context-length"
        model.close()
    finally:
        process.kill()  # not asked to stop: its tree must end all the same
        process.wait()
        process.stdout.close()  # type: ignore[union-attr]
    end = time.monotonic() + 30
    while _lives(told["pid"]) and time.monotonic() < end:
        time.sleep(0.1)
    assert not _lives(told["pid"])


def test_an_adapter_is_loaded_into_a_running_server(adapter: Path, tmp_path: Path) -> None:
    base = json.loads((adapter / "adapter_config.json").read_text())["base_model_name_or_path"]
    with Server(plan(base, ServeConfig(engine="transformers"))) as server:
        server.wait(120)
        server.load("tuned", adapter)
        texts = []
        for name in (server.launch.name, "tuned"):
            model = OpenAI(f"{server.url}#{name}", key_env="")
            texts.append(model.reply(ASK, CALL, max_tokens=12, seed=0).text)
            model.close()
        assert texts[0] != texts[1]
        server.unload("tuned")
        for name, folder, code in (
            ("tuned", adapter, "taken"),
            ("new", tiny.model(tmp_path), "another-model"),
        ):
            with pytest.raises(BadInput) as e:
                server.load(name, folder)
            assert e.value.code == code


def test_vllm_is_started_with_the_adapter_beside_its_base(
    adapter: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(BadInput) as e:
        plan(adapter, ServeConfig(engine="vllm"))
    assert e.value.code == "missing"
    assert "--vllm-python" in e.value.fix
    monkeypatch.setattr("recreate.plugins.local_models.server.find_spec", lambda name: object())
    launch = plan(adapter, ServeConfig(port=8123, gpu=True, context=512, share=0.4))
    said = " ".join(launch.command)
    assert "vllm.entrypoints.openai.api_server" in said
    assert f"--lora-modules {adapter.name}={adapter}" in said
    assert "--max-lora-rank 8" in said
    assert "--max-model-len 512" in said
    assert "--gpu-memory-utilization 0.4" in said
    assert launch.env["VLLM_ALLOW_RUNTIME_LORA_UPDATING"] == "True"
    assert "--enforce-eager" not in launch.command
    cpu = plan(adapter, ServeConfig(port=8123, gpu=False, share=0.4)).command
    assert "--enforce-eager" in cpu
    assert "--gpu-memory-utilization" not in cpu


def test_a_model_with_a_server_of_its_own_starts_it_again_when_it_died(
    adapter: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The protocol of `vllm:` on our own server; test_vllm.py has it on vLLM."""
    monkeypatch.setattr(VLLM, "engine", "transformers")
    model = VLLM(str(adapter))
    try:
        one = model.reply(ASK, CALL, max_tokens=6, seed=1)
        first = model.server
        assert first is not None
        os.killpg(first.pid, signal.SIGKILL)
        with pytest.raises(Transient) as e:
            model.reply(ASK, CALL, max_tokens=6, seed=1)
        assert e.value.code == "server-died"
        assert model.reply(ASK, CALL, max_tokens=6, seed=1).text == one.text
        second = model.server
        assert second is not None
    finally:
        model.close()
    assert not first.alive()
    assert not second.alive()


def test_a_server_that_reads_other_tokens_than_the_trainer_stops_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A fault would set aside just the attempts that differ, and train on the rest."""
    from peft import LoraConfig, get_peft_model

    from recreate.plugins.rl.rollout import Served

    base = Transformers(str(tiny.model(tmp_path / "tiny")))
    module = get_peft_model(
        base.load()[0], LoraConfig(r=4, target_modules="all-linear", task_type="CAUSAL_LM")
    )
    served = Served(base, tmp_path / "adapter", "transformers")
    try:
        served.update(module)
        assert served.reply(ASK, CALL, max_tokens=4).token_ids
        encode = base.encode
        monkeypatch.setattr(base, "encode", lambda messages: [*encode(messages), 5])
        with pytest.raises(BadInput) as e:
            served.reply(ASK, CALL, max_tokens=4)
        assert e.value.code == "other-tokens"
    finally:
        served.close()


def test_tune_says_at_once_that_there_is_no_vllm(
    workspace: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli(["tune", "--model", "./model", "--rollouts", "vllm", "--json"]) == 2
    error = json.loads(capsys.readouterr().out)["error"]
    assert error["code"] == "missing"
    assert "--vllm-python" in error["fix"]


def _lives(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
