"""SmolLM2-135M with LoRA learns a small verifiable task family on a CPU, by `recreate tune`. See
recreate/plugins/rl/README.md.

    python -m tests.lab.experiments.smol FOLDER [--seeds 0 1] [--steps 30]

Needs recreate-agents[rl] and gguf. Everything goes through the command line that a user has; what
it made stays in FOLDER, and the same command goes on where it was stopped.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path
from statistics import fmean
from typing import Any

from recreate.storage.log import Log
from tests.lab.experiments.gguf_folder import convert
from tests.lab.experiments.opposites import agent

DOMAIN = "tests.lab.experiments.opposites:Opposites"
RECIPE = """about = "Plain GRPO with LoRA, sizes for two cores."
source = "arXiv 2402.03300"

[train]
group_size = 8
prompts = 2
max_prompt = 96
max_response = 8
learning_rate = 5e-4
warmup_steps = 2
lora_rank = 8
lora_alpha = 16

[grpo]

[clip]
low = 0.2
high = 0.28

[token-mean]
"""


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1])
    parser.add_argument("--steps", type=int, default=30)
    parser.add_argument(
        "--model", type=Path, help="a folder of the model; default: fetched and made"
    )
    args = parser.parse_args()
    where: Path = args.folder.resolve()
    where.mkdir(parents=True, exist_ok=True)
    (where / "recreate.toml").touch()
    agent(where / "agent")
    (where / "grpo-smol.toml").write_text(RECIPE)
    model = args.model.resolve() if args.model else smol(where / "model")
    rows = [train(where, model, seed, args.steps) for seed in args.seeds]
    for row in rows:
        print(json.dumps(row))
    print(
        "| seed | minutes | reward, first fifth | last fifth | slope per step | words it never saw,"
        " before | after |\n|---|---|---|---|---|---|---|"
    )
    for r in rows:
        print(
            f"| {r['seed']} | {r['minutes']:.1f} | {r['first']:.3f} | {r['last']:.3f} |"
            f" {r['slope']:+.4f} ± {1.96 * r['error']:.4f} | {_interval(r['before'])} |"
            f" {_interval(r['after'])} |"
        )
    return 0


def smol(folder: Path) -> Path:
    """SmolLM2-135M-Instruct of recreate's own catalogue, as a folder."""
    from recreate.plugins.local_models.catalog import fetch_model

    return convert(fetch_model("smollm2-135m"), folder)


def train(where: Path, model: Path, seed: int, steps: int) -> dict[str, Any]:
    """One seed's run and what it says; before and after it `bench` measures the validation
    words."""
    common = ["--domain", DOMAIN, "--scaffold", "./agent"]
    run = where / f"seed-{seed}"
    told = recreate(
        where,
        *("tune", "--recipe", "./grpo-smol.toml", "--model", str(model), *common),
        *("--steps", str(steps), "--seed", str(seed), "--micro-batch", "16", "--out", str(run)),
    )
    curve = told["curve"]
    seconds = sum(record["seconds"] for record in updates(run))
    rewards = [row["reward"] for row in curve]
    slope, error = line(rewards)
    fifth = max(1, len(rewards) // 5)
    cells = {}
    for name, what in (("before", model), ("after", run)):
        out = where / f"{name}-{seed}"
        told = recreate(
            where,
            *(
                "bench",
                *common,
                "--model",
                f"transformers:{checkpoint(what)}",
                "--split",
                "validation",
            ),
            *("--repeats", "4", "--seed", str(seed), "--out", str(out)),
        )
        cells[name] = {key: told["cells"][0][key] for key in ("mean", "lo", "hi", "n", "repeats")}
    return {
        "seed": seed,
        "steps": steps,
        "minutes": seconds / 60,
        "first": fmean(rewards[:fifth]),
        "last": fmean(rewards[-fifth:]),
        "slope": slope,
        "error": error,
        "entropy": [curve[0]["entropy"], curve[-1]["entropy"]],
        "kl": curve[-1]["kl"],
        "rewards": [round(r, 3) for r in rewards],
        **cells,
    }


def recreate(where: Path, *words: str) -> dict[str, Any]:
    """The record that a command prints under --json; its progress goes to this command's stderr."""
    print("recreate " + " ".join(words), file=sys.stderr, flush=True)
    env = os.environ | {
        "PYTHONPATH": os.pathsep.join([str(Path.cwd()), os.environ.get("PYTHONPATH", "")])
    }
    done = subprocess.run(
        [sys.executable, "-m", "recreate", *words, "--json"],
        cwd=where,
        env=env,
        stdout=subprocess.PIPE,
        check=True,
    )
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def updates(run: Path) -> list[dict[str, Any]]:
    """The journal's records of updates, the last of each step."""
    found = (r for r in Log(run / "journal.jsonl").read() if r["kind"] == "update")
    return list({record["step"]: record for record in found}.values())


def checkpoint(what: Path) -> Path:
    return max((what / "checkpoints").glob("step-*"), default=what)


def line(values: list[float]) -> tuple[float, float]:
    """(slope of the least-squares line over the steps, its standard error)."""
    n = len(values)
    mean_x, mean_y = (n - 1) / 2, fmean(values)
    spread = sum((x - mean_x) ** 2 for x in range(n))
    slope = sum((x - mean_x) * (y - mean_y) for x, y in enumerate(values)) / spread
    rest = sum((y - mean_y - slope * (x - mean_x)) ** 2 for x, y in enumerate(values))
    return slope, (rest / max(1, n - 2) / spread) ** 0.5


def _interval(cell: dict[str, Any]) -> str:
    return f"{cell['mean']:.3f} [{cell['lo']:.3f}, {cell['hi']:.3f}]"


if __name__ == "__main__":
    raise SystemExit(main())
