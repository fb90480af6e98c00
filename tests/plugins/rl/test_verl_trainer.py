"""verl's own trainer, whole, on a CPU: `run.sh` with a platform and rollout servers of
tests.plugins.rl.verl_cpu in place of an accelerator and vLLM. Minutes: it starts Ray and about ten
processes. Needs verl: recreate/plugins/rl/verl.md has the command.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from recreate.cli import run as cli
from recreate.memory.store import ExperienceStore
from recreate.plugins.rl.samples import rows_of
from tests.plugins.rl import tiny

pytestmark = [pytest.mark.verl, pytest.mark.filterwarnings("ignore")]
ROOT = Path(__file__).parents[3]

ALL = """about = "noisy rewards, calm tokens, replay"
source = "test"
[train]
group_size = 3
prompts = 3
max_prompt = 256
max_response = 6
mini_batches = 3
learning_rate = 1e-2
lora_rank = 0
[gapo]
[steer]
scope = "micro"
[a2r]
share = 0.5
[clip]
high = 0.28
dual = 10.0
[token-mean]
"""
STEPS = """about = "GiGPO"
source = "test"
[train]
group_size = 3
prompts = 3
max_prompt = 256
max_response = 6
learning_rate = 1e-2
lora_rank = 0
[gigpo]
[clip]
[token-mean]
"""


def train(
    workspace: Path, name: str, recipe: str, steps: int, capsys: pytest.CaptureFixture[str]
) -> list[dict[str, float]]:
    """Write a run folder and start its run.sh: verl's metrics of each step."""
    tiny.model(workspace / "model")
    tiny.agent(workspace / "agent", steps=2)
    (workspace / f"{name}.toml").write_text(recipe)
    code = cli(
        [
            "tune",
            "--trainer",
            "verl",
            "--recipe",
            str(workspace / f"{name}.toml"),
            "--domain",
            "tests.plugins.rl.tiny:Letters",
            "--scaffold",
            str(workspace / "agent"),
            "--model",
            str(workspace / "model"),
            "--steps",
            str(steps),
            "--out",
            "run",
            "--save-every",
            "2",
            "--json",
        ]
    )
    assert code == 0, capsys.readouterr().out
    run = workspace / "run"
    modules = "tests.plugins.rl.verl_cpu,recreate.plugins.rl.verl.plugin"
    script = (
        (run / "run.sh")
        .read_text()
        .replace("MODULES=recreate.plugins.rl.verl.plugin", f"MODULES={modules}")
    )
    assert modules in script
    (run / "here.sh").write_text(script)
    made = subprocess.run(
        [
            "bash",
            run / "here.sh",
            "trainer.device=cpu",
            "trainer.n_gpus_per_node=1",
            "trainer.logger=[console]",
            "actor_rollout_ref.rollout.name=tiny",
            "actor_rollout_ref.rollout.free_cache_engine=False",
            "actor_rollout_ref.rollout.agent.num_workers=1",
            "actor_rollout_ref.actor.strategy=fsdp2",
            "actor_rollout_ref.actor.fsdp_config.dtype=float32",
            "actor_rollout_ref.actor.use_torch_compile=False",
            "actor_rollout_ref.actor.fsdp_config.use_torch_compile=False",
            "actor_rollout_ref.ref.strategy=fsdp2",
            "ray_kwargs.ray_init.num_cpus=24",
            "+ray_kwargs.ray_init.num_gpus=1",
            "+ray_kwargs.ray_init.include_dashboard=False",
            "transfer_queue.backend.SimpleStorage.num_data_storage_units=1",
            f"ray_kwargs.ray_init.runtime_env.env_vars.VERL_USE_EXTERNAL_MODULES='{modules}'",
        ],
        env={
            **os.environ,
            "VERL_ENV": sys.prefix,
            "PYTHONPATH": str(ROOT),
            "VERL_PLATFORM": "cpu",
            "VERL_ENGINE_DEVICE": "cuda",
            "OMP_NUM_THREADS": "1",
            "HF_HUB_OFFLINE": "1",
            "RAY_DEDUP_LOGS": "0",
        },
        cwd=workspace,
        capture_output=True,
        text=True,
        timeout=1800,
        check=False,
    )
    said = made.stdout + made.stderr
    (workspace / "said.txt").write_text(said)
    assert made.returncode == 0, said[-4000:]
    lines = re.findall(r"step:(\d+) - (.*)", said)
    metrics = [
        {
            k: float(v)
            for k, v in re.findall(r"([\w/@.-]+):(?:np\.float\d+\()?(-?[\d.]+(?:e[-+]?\d+)?)", text)
        }
        for _, text in lines
    ]
    assert [int(n) for n, _ in lines] == list(range(1, steps + 1))
    return metrics


def test_gapo_with_steer_and_a2r_takes_its_steps(workspace: Path, capsys: Any) -> None:
    metrics = train(workspace, "all", ALL, 4, capsys)
    attempted = list(ExperienceStore(workspace).experiences(domain="letters"))
    assert len(attempted) == 4 * 9
    assert Counter(e.trace.model.rpartition(".")[2] for e in attempted) == {
        str(n): 9 for n in range(1, 5)
    }
    for n, row in enumerate(metrics, 1):
        scores = [
            e.grade.score for e in attempted if e.trace.model.endswith(f".{n}") for _ in rows_of(e)
        ]
        # verl's is over rows
        assert row["critic/score/mean"] == pytest.approx(sum(scores) / len(scores), abs=1e-3)
        assert 0.7 <= row["actor/token_weight"] <= 1
        assert row["actor/entropy"] > 1
        assert row["actor/grad_norm"] > 0
        # the servers had the weights that the trainer has
        assert row["training/rollout_probs_diff_max"] < 1e-2
    assert metrics[0]["actor/ppo_kl"] != metrics[1]["actor/ppo_kl"]
    # a task needs two epochs before it is ambiguous: nothing is replayed in the first two steps
    assert [row["a2r/replayed"] for row in metrics[:2]] == [0, 0]
    assert max(row["a2r/replayed"] for row in metrics[2:]) > 0
    assert all(0 < row["a2r/row_weight"] <= 1 for row in metrics if row["a2r/replayed"])
    place = workspace / "run" / "checkpoints" / "global_step_4"
    kept = json.loads((place / "replay.json").read_text())
    assert sorted(kept["histories"]) == [f"letters:train:{n}" for n in range(3)]
    assert (place / "replay.safetensors").is_file()


def test_gigpo_takes_its_steps(workspace: Path, capsys: Any) -> None:
    metrics = train(workspace, "steps", STEPS, 2, capsys)
    assert metrics[-1]["training/num_turns/mean"] == 4  # two turns, as verl counts them
    assert metrics[0]["critic/advantages/max"] > 0 > metrics[0]["critic/advantages/min"]
