"""Tokens a second of `--rollouts here` beside those of a server: the same recipe, tasks, seed and jobs, in turns.

    python -m tests.rl.rollout_speed MODEL --jobs 4 --vllm-python /path/to/its/environment

Each round trains a few steps with either; a step counts the tokens that its attempts drew, by the seconds from the
first attempt's start to the last one's grade. A server's start is not in them, and is told apart.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import Any

from tests.rl import tiny


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path)
    parser.add_argument("--with", dest="server", default="vllm", help="vllm or transformers")
    parser.add_argument("--jobs", type=int, default=4)
    parser.add_argument("--steps", type=int, default=3)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--tokens", type=int, default=64, help="of one reply, at most")
    parser.add_argument("--vllm-python", default=os.environ.get("RECREATE_VLLM_PYTHON", ""))
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    steps: dict[str, list[dict[str, Any]]] = {"here": [], args.server: []}
    loads = []
    with tempfile.TemporaryDirectory() as place:
        where = Path(place)
        (where / "recreate.toml").write_text("")
        tiny.agent(where / "agent", steps=1)
        train = {"prompts": 3, "group_size": 8, "max_response": args.tokens, "learning_rate": 1e-5, "mini_batches": 1}
        tiny.small("grpo", where, **train)
        for n in range(args.rounds):
            for who in steps if n % 2 == 0 else reversed(steps):
                run = f"{who}-{n}"
                begun = time.monotonic()
                _tune(args, where, who, run)
                lines = [json.loads(line) for line in (where / run / "journal.jsonl").read_text().splitlines()]
                updates = [line for line in lines if line["kind"] == "update"]
                steps[who] += updates
                loads.append(round(os.getloadavg()[0], 1))
                print(f"{run}: {time.monotonic() - begun:.0f} s, load {loads[-1]}", file=sys.stderr, flush=True)
    found = {who: _told(updates) for who, updates in steps.items()}
    ratio = found[args.server]["tokens_per_second"] / found["here"]["tokens_per_second"]
    told = {"jobs": args.jobs, "cores": len(os.sched_getaffinity(0)), "load": loads, "ratio": ratio, **found}
    if args.json:
        print(json.dumps(told))
        return
    for who, row in found.items():
        print(f"{who:12}", "  ".join(f"{key} {value:.4g}" for key, value in row.items()))
    print(f"{args.server} / here: {ratio:.2f} with {args.jobs} jobs on {told['cores']} cores, load {loads}")


def _tune(args: argparse.Namespace, where: Path, who: str, run: str) -> None:
    command = [sys.executable, "-m", "recreate", "tune", "--recipe", "./grpo-small.toml", "--domain"]
    command += ["tests.rl.tiny:Letters", "--scaffold", "./agent", "--model", str(args.model.resolve()), "--out", run]
    command += ["--steps", str(args.steps), "--jobs", str(args.jobs), "--rollouts", who, "--json"]
    if args.vllm_python and who == "vllm":
        command += ["--vllm-python", args.vllm_python]
    root = str(Path(__file__).resolve().parents[2])
    subprocess.run(command, cwd=where, env={**os.environ, "PYTHONPATH": root}, check=True, stdout=subprocess.DEVNULL)


def _told(updates: list[dict[str, Any]]) -> dict[str, float]:
    speeds = sorted(u["tokens"] / u["rollout_seconds"] for u in updates)
    return {
        "tokens_per_second": median(speeds),
        "lowest": speeds[0],
        "highest": speeds[-1],
        "steps": len(speeds),
        "tokens": sum(u["tokens"] for u in updates),
        "sampler_gap": max(u["sampler_gap"] for u in updates),
    }


if __name__ == "__main__":
    main()
