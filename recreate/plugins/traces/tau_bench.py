"""Results of tau-bench (Yao et al., arXiv 2406.12045): a JSON array with {"task_id", "reward",
"info", "traj", "trial"} of each attempt at a conversation with a simulated user.

`reward` is the grade. The prompt is what the user was told to want, as in the domain `apiworld`;
the agent was told it bit by bit. The actions that a task expects are its answer, and are not kept.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from recreate.api.types import Usage
from recreate.plugins.traces.format import (
    Foreign,
    Unreadable,
    amount,
    count,
    grade,
    list_of,
    object_of,
    without,
)
from recreate.plugins.traces.messages import read_message, steps_of


class TauBench:
    """One record, one attempt."""

    def reads(self, value: Any) -> bool:
        return {"task_id", "reward", "info", "traj"} <= object_of(value).keys()

    def read(self, values: Sequence[Any], key: str, source: str) -> Iterator[Foreign]:
        for raw in values:
            info = object_of(raw["info"])
            task = object_of(info.get("task"))
            rewarded = object_of(info.get("reward_info"))
            fault = str(info.get("error") or "")
            if not list_of(raw["traj"]):
                raise Unreadable(f"nothing was said in it: {fault or 'its traj is empty'}")
            system, asked, steps = steps_of([read_message(m) for m in list_of(raw["traj"])])
            rest = without(raw, "traj", "info", "reward", "task_id", "trial") | {
                "info": without(info, "task", "reward_info", "user_cost"),
                "reward_info": without(rewarded, "actions"),
            }
            yield Foreign(
                task=_name(raw["task_id"], system, source),
                prompt=str(task.get("instruction") or asked),
                system=system,
                steps=steps,
                ending="error" if fault else "submitted",
                answer=steps[-1].reply or steps[-1].action,
                usage=Usage(calls=len(steps), usd=amount(info.get("user_cost"))),
                repeat=count(raw.get("trial")),
                fault=fault,
                grade=(
                    None
                    if fault
                    else grade(raw["reward"], f"tau-bench's reward is {raw['reward']}")
                ),
                rest=without(rest),
            )


def _name(number: Any, system: str, source: str) -> str:
    """The task as its benchmark's rows are called: `airline_test_3`. The world stands in the
    policy's title; of the split a file tells nothing, so it is tau-bench's default, `test`, unless
    the file's name holds another.
    """
    world = system.partition("\n")[0].strip("# ").lower().partition(" ")[0]
    split = next((s for s in ("train", "dev") if s in source.lower()), "test")
    return f"{world}_{split}_{number}" if world.isalpha() else f"tau-{number}"
