"""A world in which a beginning and what is made of it can each go wrong: what samples that share
beginnings are worth.

    python -m tests.plugins.turns.branching [TASKS]

Prints independent samples and branches, where looking or concluding is hard.

The model looks once (it looks at the right table with the chance `look`), is told what it saw, and
answers (rightly with the chance `conclude` where it saw the right table, else with one of seven
answers at random). The answer that most samples come to is handed in. It costs nothing and needs no
key; sandboxes are dictionaries, so that a task takes 1 ms.
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
from recreate.agents.scaffold import Scaffold
from recreate.api.paths import shipped
from recreate.api.ports import Sandbox, SandboxBackend
from recreate.api.types import Call, Grade, Message, Output, Reply, Split, Task, Trace
from recreate.models.chat import content
from recreate.sandboxes import choose

ANSWERS = 7
AGENTS = MappingProxyType(
    {
        "one sample": "samples = 1",
        "4 independent": "samples = 4",
        "4 of one beginning": "samples = 4\nbranches = [4]",
        "7 of one beginning": "samples = 7\nbranches = [7]",
        "5 of 3 beginnings": "samples = 5\nbranches = [2]",
    }
)
CHANCES = ((0.95, 0.5), (0.8, 0.7), (0.6, 0.9))


class Folder:
    """A sandbox of files alone, in which `look`, `answer` and the tools of the agent below can be
    run."""

    backend = "folder"

    def __init__(self, files: Mapping[str, bytes] = MappingProxyType({})) -> None:
        self.files = dict(files)

    def run(self, command: str | Sequence[str], **how: Any) -> Output:
        words = command.splitlines()[-1].split() if isinstance(command, str) else command
        if words[0] == "look":
            return Output(text=f"table {words[1]}", status=0)
        if words[0] == "answer":
            self.files["answer"] = words[1].encode()
        said = self.files.get("answer", b"").decode()
        return Output(text=said, status=0 if said else 1)

    def write(self, path: str, data: bytes, mode: int = 0o644) -> None:
        self.files[path] = data

    def read(self, path: str, limit: int = 0) -> bytes:
        return self.files[path]

    def close(self) -> None:
        pass

    def copy(self) -> Folder:
        return Folder(self.files)


class Tables:
    """Say what the right table says. tests.plugins.turns.branching:Tables"""

    name = "tables"

    def __init__(self, tasks: int = 20) -> None:
        self.many = tasks

    def tasks(self, split: Split | None = None) -> Sequence[Task]:
        return [
            Task(
                id=f"tables:train:{n}",
                domain="tables",
                prompt="What does it say?",
                split="train",
                group=f"t-{n}",
            )
            for n in range(self.many)
        ]

    def prepare(self, task: Task, backend: SandboxBackend) -> Sandbox:
        return Folder()

    def collect(self, task: Task, sandbox: Sandbox) -> str:
        return sandbox.run(["answer?"]).text

    def grade(self, task: Task, trace: Trace, backend: SandboxBackend) -> Grade:
        right = trace.answer == "0"
        return Grade(score=float(right), passed=right)


def play(toml: str, tasks: int, look: float, conclude: float) -> tuple[float, float, float]:
    """(the share solved, calls a task, tokens a task) of a model with these chances."""

    def model(messages: Sequence[Message], call: Call, **params: Any) -> Reply:
        draw = random.Random(f"{call.task}/{params['seed']}")
        if not any(m["role"] == "assistant" for m in messages):
            command = f"look {'right' if draw.random() < look else 'wrong'}"
        elif "table right" in content(messages[-1]) and draw.random() < conclude:
            command = "answer 0"
        else:
            command = f"answer {draw.randrange(ANSWERS)}"
        size = sum(len(content(m)) for m in messages) // 4
        return Reply(
            text=f"```bash\n{command}\n```", tokens_in=size, tokens_out=len(command) // 4 + 1
        )

    world, backend = Tables(tasks), choose("none")
    seed = scaffolds.load(shipped("scaffolds") / "seed")
    tools = {"tools/said.py": "print()\n", "tools/ready.py": "print()\n"}
    agent = Scaffold(
        name="tables",
        files={**seed.files, **tools, "agent.toml": f'vote = "said"\ndone = "ready"\n{toml}'},
    )
    traces = [
        attempt(agent, t, world, backend, model, Call(run="r", attempt=t.id, step=0, task=t.id))
        for t in world.tasks()
    ]
    used = [trace.usage for trace in traces]
    solved = mean(trace.answer == "0" for trace in traces)
    return solved, mean(u.calls for u in used), mean(u.tokens_in + u.tokens_out for u in used)


def main() -> None:
    tasks = int(sys.argv[1]) if len(sys.argv) > 1 else 2000
    for look, conclude in CHANCES:
        print(f"looks at the right table in {look}, concludes rightly from it in {conclude}")
        for name, toml in AGENTS.items():
            solved, calls, tokens = play(toml, tasks, look, conclude)
            print(
                f"  {name:20} solved {solved:.3f}, {calls:.2f} calls and {tokens:.0f} tokens a task"
            )


if __name__ == "__main__":
    main()
