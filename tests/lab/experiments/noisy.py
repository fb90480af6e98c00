"""GRPO, GAPO, GAPO+STEER and GAPO+STEER+A2R under a noisy grader, over seeds: rewards and
entropies. See recreate/plugins/rl/README.md.

    python -m tests.lab.experiments.noisy FOLDER [--seeds 0 12] [--steps 96] [--methods grpo ...]
    python -m tests.lab.experiments.noisy FOLDER --report

A seed fixes the tasks, the pre-trained model, the order of tasks, and so the first step's rollouts
and rewards, of all methods alike. Training is recreate's own (`Tune`, recipes, replay); only the
attempts are made in one batch without a sandbox, since a run has thousands. Runs that are in
FOLDER/results.jsonl are not made again.
"""

from __future__ import annotations

import argparse
import json
import random
import time
from collections.abc import Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

import torch

from recreate.agents.scaffold import Scaffold
from recreate.api.types import Experience, Grade, Task, Trace
from recreate.builder.sdk import find_scaffold
from recreate.plugins.rl.recipe import Recipe, read
from recreate.plugins.rl.rollout import Rollout
from recreate.plugins.rl.samples import Row
from recreate.plugins.rl.trainer import TrainConfig, Tune
from recreate.runs.session import Parts, Session, open_session
from recreate.runs.settings import Settings
from tests.lab.experiments import noisy_report, opposites
from tests.lab.experiments.sorting import LONGEST, Sorting, answers, pretrained, score

TRAIN = f"""
about = "A comparison over seeds."
source = "tests.lab.experiments.noisy"

[train]
group_size = 8
prompts = 8
max_prompt = 16
max_response = {LONGEST}
mini_batches = 2
learning_rate = RATE
lora_rank = 0

[clip]
low = 0.2
high = 0.28
dual = 10.0

[token-mean]
"""
PARTS = {
    "grpo": "[grpo]",
    "gapo": "[gapo]\nfraction = 0.5",
    "gapo+steer": '[gapo]\nfraction = 0.5\n[steer]\nleast = 0.7\nscope = "mini"',
    "gapo+steer+a2r": (
        '[gapo]\nfraction = 0.5\n[steer]\nleast = 0.7\nscope = "mini"\n[a2r]\nshare = 0.25'
    ),
}
EVERY = 8
"""Steps between two measurements on tasks that are not trained on."""


class Noisy(Tune):
    """A run whose attempts are made in one batch, and whose grader replaces a share `flaky` of the
    scores."""

    def __init__(
        self, session: Session, scaffold: Scaffold, how: Recipe, plan: TrainConfig, flaky: float
    ) -> None:
        super().__init__(session, scaffold, how, plan)
        self.flaky = flaky
        self.true: list[float] = []
        self.held_out: dict[int, float] = {}
        self.others = [t for t in session.domain.tasks("validation")]

    def _roll(self, tasks: Sequence[Task]) -> list[list[Rollout]]:
        size, step = self.how.train.group_size, self.step
        if step % EVERY == 0:
            self.measure()
        module, words = self.model.load()
        flat = [task for task in tasks for _ in range(size)]
        generator = torch.Generator().manual_seed(1000 * self.plan.seed + step)
        luck = random.Random(f"grader/{self.plan.seed}/{step}")
        said = answers(module, words, [t.prompt for t in flat], generator, self.how.does("rollout"))
        self.true.append(fmean(score(t.prompt, s.text) for t, s in zip(flat, said, strict=True)))
        groups: list[list[Rollout]] = [[] for _ in tasks]
        for n, (task, one) in enumerate(zip(flat, said, strict=True)):
            flaked, drawn = luck.random() < self.flaky, luck.random()
            value = drawn if flaked else score(task.prompt, one.text)
            name = f"{step}-{n}"
            row = Row(
                attempt=name,
                task=task.id,
                turn=0,
                anchor="",
                prompt=tuple(self.model.encode([{"role": "user", "content": task.prompt}])),
                response=tuple(one.tokens),
                mask=(True,) * len(one.tokens),
                sampled=tuple(one.log_probs),
                mix_ids=tuple(map(tuple, one.mix_ids)),
                mix=tuple(map(tuple, one.mix)),
                cut="reply" if one.cut else "",
            )
            attempted = Experience(
                id=name,
                domain=task.domain,
                task=task.id,
                group=task.group,
                split=task.split,
                prompt=task.prompt,
                digest=task.digest,
                trace=Trace(
                    attempt=name,
                    task=task.id,
                    scaffold="",
                    model="",
                    repeat=n % size,
                    answer=one.text,
                ),
                grade=Grade(score=value, passed=value == 1.0),
            )
            groups[n // size].append(Rollout(attempted, (row,)))
        return groups

    def measure(self) -> None:
        """The true score on the tasks that are not trained on, four answers each."""
        module, words = self.model.load()
        asked = [t.prompt for t in self.others for _ in range(4)]
        generator = torch.Generator().manual_seed(7 + self.step)
        said = answers(module, words, asked, generator, self.how.does("rollout"))
        self.held_out[self.step] = fmean(score(a, s.text) for a, s in zip(asked, said, strict=True))


def run(
    where: Path, method: str, seed: int, steps: int, rate: float, flaky: float
) -> dict[str, Any]:
    """One run, from the seed's pre-trained model; what is kept of it."""
    base = where / "models" / str(seed)
    if not (base / "config.json").is_file():
        pretrained(base, seed)
    text = TRAIN.replace("RATE", repr(rate)) + PARTS[method] + "\n"
    how = read(text, name=method)
    folder = where / "runs" / f"{method}-{seed}-{rate:g}-{time.time_ns()}"
    settings = Settings(
        domain="tests.lab.experiments.sorting:Sorting", model=f"transformers:{base}", seed=seed
    )
    scaffold = find_scaffold(str(opposites.agent(where / "agent")), where)
    begun = time.monotonic()
    session = open_session(settings, where, folder, parts=Parts(domain=Sorting(seed)))
    try:
        work = Noisy(
            session,
            scaffold,
            how,
            TrainConfig(steps, seed, micro_batch=128, save_every=10**6),
            flaky,
        )
        work.run()
        work.measure()
        curve = [work.curve[n] for n in sorted(work.curve)]
    finally:
        session.close()
    return {
        "method": method,
        "seed": seed,
        "rate": rate,
        "flaky": flaky,
        "steps": steps,
        "seconds": time.monotonic() - begun,
        "reward": work.true,
        "graded": [row["reward"] for row in curve],
        "entropy": [row["entropy"] for row in curve],
        "kl": [row["kl"] for row in curve],
        "clip": [row["clip"] for row in curve],
        "replayed": [row["replayed"] for row in curve],
        "held_out": [work.held_out[n] for n in sorted(work.held_out)],
        "every": EVERY,
    }


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path)
    parser.add_argument(
        "--seeds", type=int, nargs=2, default=[0, 12], metavar=("FIRST", "PAST_LAST")
    )
    parser.add_argument("--steps", type=int, default=96)
    parser.add_argument("--methods", nargs="+", choices=PARTS, default=list(PARTS))
    parser.add_argument(
        "--rate", type=float, default=1e-3, help="learning rate, of every method alike"
    )
    parser.add_argument(
        "--flaky", type=float, default=0.2, help="the share of scores that the grader makes up"
    )
    parser.add_argument(
        "--report", action="store_true", help="only the tables and the figure of what is there"
    )
    args = parser.parse_args()
    where: Path = args.folder.resolve()
    where.mkdir(parents=True, exist_ok=True)
    (where / "recreate.toml").touch()
    torch.set_num_threads(1)
    file = where / "results.jsonl"
    done = [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []
    of = {(r["method"], r["seed"], r["rate"], r["flaky"], r["steps"]) for r in done}
    for seed in range(*args.seeds) if not args.report else ():
        for method in args.methods:
            if (method, seed, args.rate, args.flaky, args.steps) in of:
                continue
            made = run(where, method, seed, args.steps, args.rate, args.flaky)
            with file.open("a") as out:
                out.write(json.dumps(made) + "\n")
            done.append(made)
            print(
                f"{method:16} seed {seed}  reward {fmean(made['reward'][:8]):.3f} ->"
                f" {fmean(made['reward'][-8:]):.3f}  entropy {made['entropy'][0]:.2f} ->"
                f" {made['entropy'][-1]:.2f}  {made['seconds']:.0f} s",
                flush=True,
            )
    same = [
        r
        for r in done
        if (r["rate"], r["flaky"], r["steps"]) == (args.rate, args.flaky, args.steps)
    ]
    noisy_report.write(where, [r for r in same if r["seed"] in range(*args.seeds)])
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
