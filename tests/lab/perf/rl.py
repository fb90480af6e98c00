"""Advantages of 100,000 rows in groups of 8, from group ids, against one flat torch.sort of the
rewards; one thread.

From an int64 tensor of ids to (B,) float32, grouping included; `in order` has the rows of a group
together, `shuffled` has not. CPU time of the thread, since the machine may be busy. GiGPO's ids are
three (prompt, trajectory, step group), and its returns are given. torch is needed
(recreate-agents[rl]).
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from tests.lab.perf.table import Row, paired

ROWS, GROUP, PAIRS = 100_000, 8, 31
GOAL = "<=1.0"


def measure() -> list[Row]:
    import torch

    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        return _rows(torch)
    finally:
        torch.set_num_threads(threads)


def _rows(torch: Any) -> list[Row]:
    from recreate.plugins.rl.parts.advantages import dr_grpo, grpo, rloo
    from recreate.plugins.rl.parts.gapo import gapo
    from recreate.plugins.rl.parts.gigpo import gigpo
    from recreate.plugins.rl.parts.groups import grouped

    generator = torch.Generator().manual_seed(0)
    rewards = torch.rand(ROWS, generator=generator)
    returns = torch.rand(ROWS, generator=generator)
    together = torch.arange(ROWS) // GROUP
    order = torch.randperm(ROWS, generator=generator)
    apart = together[order]
    # a trajectory has two steps, and half of all steps share their observation with another
    trajectory = torch.arange(ROWS) // 2
    step = torch.randint(0, ROWS // 2, (ROWS,), generator=generator)

    parts: dict[str, Callable[[Any], Any]] = {
        "grpo": lambda ids: grpo(rewards, grouped(ids)),
        "dr-grpo": lambda ids: dr_grpo(rewards, grouped(ids)),
        "rloo": lambda ids: rloo(rewards, grouped(ids)),
        "gapo": lambda ids: gapo(rewards, grouped(ids)),
        "gigpo": lambda ids: gigpo(
            rewards,
            grouped(ids),
            trajectories=grouped(trajectory if ids is together else trajectory[order]),
            returns=returns,
            steps=grouped(step),
        ),
    }

    def sort() -> float:
        begun = time.thread_time()
        torch.sort(rewards)
        return (time.thread_time() - begun) * 1e3

    def timed(part: Callable[[Any], Any], ids: Any) -> Callable[[], float]:
        def once() -> float:
            begun = time.thread_time()
            part(ids)
            return (time.thread_time() - begun) * 1e3

        return once

    return [
        paired("rl", f"{name}, {case}", "ms", timed(part, ids), sort, pairs=PAIRS, goal=GOAL)
        for name, part in parts.items()
        for case, ids in (("in order", together), ("shuffled", apart))
    ]
