"""A world in which the first action cannot be taken back, and nothing tells it apart but what
follows from it.

    python -m tests.plugins.turns.lookahead [TASKS]

Prints what acting at once and looking ahead make of it, and their calls.

A box has three doors. Each opens ("It is open.", status 0), one leaves the letter whole, the other
two burn it. The model takes a door at random, then copies the letter to answer.txt, then submits.
It costs nothing and needs no key.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Mapping, Sequence
from statistics import mean
from types import MappingProxyType
from typing import Any

from recreate.agents import scaffold as scaffolds
from recreate.agents.attempt import attempt
from recreate.agents.progress import AskAgent
from recreate.agents.scaffold import Scaffold
from recreate.api.paths import shipped
from recreate.api.ports import Sandbox, SandboxBackend
from recreate.api.types import Call, Grade, Message, Reply, Split, Task, Trace
from recreate.models.chat import content
from recreate.sandboxes import choose

DOORS = 3
TABLES = ("", *(f"[lookahead]\ncandidates = {n}\nsteps = {k}" for n, k in ((3, 1), (3, 2), (6, 2))))


class Boxes:
    """Get the letter out of the box. tests.plugins.turns.lookahead:Boxes"""

    name = "boxes"

    def __init__(self, tasks: int = 20) -> None:
        self.many = tasks

    def tasks(self, split: Split | None = None) -> Sequence[Task]:
        draw = random.Random(2601)
        return [
            Task(
                id=f"boxes:train:{n}",
                domain="boxes",
                prompt=(
                    "Open one of the doors 1, 2 and 3 (`sh doorN`), and copy the letter to"
                    " answer.txt."
                ),
                split="train",
                group=f"box-{n}",
                facts={"word": f"letter {n}", "right": draw.randint(1, DOORS)},
            )
            for n in range(self.many)
        ]

    def prepare(self, task: Task, backend: SandboxBackend) -> Sandbox:
        sandbox = backend.open()
        sandbox.write("box/letter", str(task.facts["word"]).encode())
        for n in range(1, DOORS + 1):
            does = "mv box/letter letter" if n == task.facts["right"] else "rm box/letter"
            sandbox.write(f"door{n}", f"{does}; rm door*; echo It is open.\n".encode())
        return sandbox

    def collect(self, task: Task, sandbox: Sandbox) -> str:
        try:
            return sandbox.read("answer.txt").decode()
        except FileNotFoundError:
            return ""

    def grade(self, task: Task, trace: Trace, backend: SandboxBackend) -> Grade:
        right = trace.answer == task.facts["word"]
        return Grade(score=float(right), passed=right)


def policy(messages: Sequence[Message], call: Call, **params: Any) -> Reply:
    """A model that does not know the doors apart."""
    turn = sum(m["role"] == "assistant" for m in messages)
    door = random.Random(f"{call.task}/{params['seed']}").randint(1, DOORS)
    command = (f"sh door{door}", "cp letter answer.txt", "submit")[min(turn, 2)]
    size = sum(len(content(m)) for m in messages) // 4
    return Reply(text=f"```bash\n{command}\n```", tokens_in=size, tokens_out=len(command) // 4 + 1)


def play(
    toml: str,
    tasks: int,
    sandbox: str = "",
    model: AskAgent = policy,
    tools: Mapping[str, str] = MappingProxyType({}),
) -> tuple[float, float, float]:
    """(the share solved, calls a task, tokens a task). tools: more files of the agent."""
    world, backend = Boxes(tasks), choose(sandbox) if sandbox else choose()
    seed = scaffolds.load(shipped("scaffolds") / "seed")
    agent = Scaffold(name="boxes", files={**seed.files, "agent.toml": toml, **tools})
    traces = [
        attempt(agent, t, world, backend, model, Call(run="r", attempt=t.id, step=0, task=t.id))
        for t in world.tasks()
    ]
    solved = mean(
        world.grade(t, trace, backend).score for t, trace in zip(world.tasks(), traces, strict=True)
    )
    used = [trace.usage for trace in traces]
    return solved, mean(u.calls for u in used), mean(u.tokens_in + u.tokens_out for u in used)


def main() -> None:
    tasks = int(sys.argv[1]) if len(sys.argv) > 1 else 60
    for toml in TABLES:
        solved, calls, tokens = play(toml, tasks)
        what = toml.replace("[lookahead]\n", "").replace("\n", ", ") or "acting at once"
        print(f"{what:28} solved {solved:.2f}, {calls:.1f} calls and {tokens:.0f} tokens a task")


if __name__ == "__main__":
    main()
