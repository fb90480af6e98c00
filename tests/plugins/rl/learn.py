"""Does each shipped recipe learn, as it is shipped? A table over seeds, on a tiny model. See
recreate/plugins/rl/README.md.

    python -m tests.plugins.rl.learn FOLDER [--recipes grpo gapo ...] [--seeds 3] [--steps 40]
        [--set train.lr=1e-6]
    python -m tests.plugins.rl.learn FOLDER --report

Tiny: a Qwen2 of 2 layers, width 64 (83,000 weights), which the seed has half taught to sort six
letters of ten; 64 train tasks, partial credit, an answer of at most eight tokens. The recipe is the
shipped file without a change: its learning rate, its LoRA, its batches, its clip. Training is
recreate's own; only the attempts are made in one batch without a sandbox, since a step has
hundreds. Runs that are in FOLDER/results.jsonl are not made again.
"""

from __future__ import annotations

import argparse
import json
import math
import time
from collections.abc import Sequence
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

import torch

from recreate.builder.sdk import find_scaffold
from recreate.plugins.rl import recipe
from recreate.plugins.rl.trainer import TrainConfig
from recreate.runs.session import Parts, open_session
from recreate.runs.settings import Settings
from tests.lab.experiments import opposites
from tests.lab.experiments.noisy import Noisy
from tests.lab.experiments.sorting import Sorting, pretrained

T95 = {1: 12.706, 2: 4.303, 3: 3.182, 4: 2.776, 5: 2.571, 6: 2.447, 7: 2.365, 8: 2.306, 9: 2.262}
"""Student's t at 97.5 %, by degrees of freedom."""


def run(where: Path, name: str, seed: int, steps: int, changes: Sequence[str]) -> dict[str, Any]:
    """One run of a shipped recipe, from the seed's model; what is kept of it."""
    base = where / "models" / str(seed)
    if not (base / "config.json").is_file():
        pretrained(base, seed)
    settings = Settings(
        domain="tests.lab.experiments.sorting:Sorting", model=f"transformers:{base}", seed=seed
    )
    scaffold = find_scaffold(str(opposites.agent(where / "agent")), where)
    begun = time.monotonic()
    folder = where / "runs" / f"{name}-{seed}-{time.time_ns()}"
    session = open_session(settings, where, folder, parts=Parts(domain=Sorting(seed)))
    try:
        work = Noisy(
            session,
            scaffold,
            recipe.load(name, changes),
            TrainConfig(steps, seed, 256, save_every=10**6),
            0.0,
        )
        work.run()
        work.measure()
    finally:
        session.close()
    curve = [work.curve[n] for n in sorted(work.curve)]
    return {
        "recipe": " ".join([name, *changes]),
        "seed": seed,
        "steps": steps,
        "seconds": time.monotonic() - begun,
        "reward": [row["reward"] for row in curve],
        "held_out": [work.held_out[n] for n in sorted(work.held_out)],
        "attempts": fmean(row["attempts"] for row in curve),
        **{
            key: [row.get(key, 0.0) for row in curve]
            for key in ("kl", "entropy", "clip", "idle", "updates")
        },
    }


def change(
    runs: Sequence[dict[str, Any]], key: str, width: int
) -> tuple[float, float, float, float, float]:
    """(mean of the first `width` values, of the last, their difference, its 95 % interval over
    seeds)."""
    first, last = [fmean(r[key][:width]) for r in runs], [fmean(r[key][-width:]) for r in runs]
    moved = [b - a for a, b in zip(first, last, strict=True)]
    half = (
        T95[len(moved) - 1] * stdev(moved) / math.sqrt(len(moved)) if len(moved) > 1 else math.inf
    )
    return fmean(first), fmean(last), fmean(moved), fmean(moved) - half, fmean(moved) + half


def report(done: Sequence[dict[str, Any]]) -> str:
    """The table as Markdown; a recipe learns where the interval of its change is above 0."""
    lines = [
        (
            "| recipe | attempts a step | reward, steps 0-4 | last 5 | change [95 % over seeds] |"
            " other tasks, change | KL | entropy | clipped | idle rows | learns |"
        ),
        "|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    for name in dict.fromkeys(r["recipe"] for r in done):
        runs = [r for r in done if r["recipe"] == name]
        a, b, moved, low, high = change(runs, "reward", 5)
        _, _, other, other_low, other_high = change(runs, "held_out", 1)
        kl, clip, idle = (fmean(fmean(r[key]) for r in runs) for key in ("kl", "clip", "idle"))
        kl = fmean(r["kl"][-1] for r in runs)
        start, end = (fmean(r["entropy"][n] for r in runs) for n in (0, -1))
        lines.append(
            f"| `{name}` | {fmean(r['attempts'] for r in runs):.0f} | {a:.3f} | {b:.3f} |"
            f" {moved:+.3f} [{low:+.3f}, {high:+.3f}] | {other:+.3f} [{other_low:+.3f},"
            f" {other_high:+.3f}] | {kl:.3f} | {start:.2f} to {end:.2f} | {clip:.2%} | {idle:.0%} |"
            f" {'yes' if low > 0 else 'not shown'} |"
        )
    return "\n".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path)
    parser.add_argument("--recipes", nargs="+", choices=recipe.names(), default=recipe.names())
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument(
        "--set",
        nargs="+",
        default=[],
        help="as of recreate tune: then it is not the shipped recipe",
    )
    parser.add_argument("--report", action="store_true", help="only the table of what is there")
    args = parser.parse_args()
    where: Path = args.folder.resolve()
    where.mkdir(parents=True, exist_ok=True)
    (where / "recreate.toml").touch()
    torch.set_num_threads(1)
    file = where / "results.jsonl"
    done = [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []
    of = {(r["recipe"], r["seed"], r["steps"]) for r in done}
    for seed in range(args.seeds) if not args.report else ():
        for name in args.recipes:
            if (" ".join([name, *args.set]), seed, args.steps) in of:
                continue
            made = run(where, name, seed, args.steps, args.set)
            with file.open("a") as out:
                out.write(json.dumps(made) + "\n")
            done.append(made)
            before, after = fmean(made["reward"][:5]), fmean(made["reward"][-5:])
            print(
                f"{made['recipe']:16} seed {seed}  reward {before:.3f} -> {after:.3f} "
                f" {made['seconds']:.0f} s",
                flush=True,
            )
    asked = {" ".join([name, *args.set]) for name in args.recipes}
    print(report([r for r in done if r["steps"] == args.steps and r["recipe"] in asked]))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
