"""A world whose rule no task tells and no file holds: only earlier attempts show it.

    python -m tests.plugins.recall.recalling [TASKS]
                             what an agent makes of held-out tasks without memory, and when it may
                             recall

Each guild writes its dates in a way of its own; a task asks for a date as one of the guilds writes
it. The model knows six ways, and takes one at random. Where it may recall, it asks for the guild
first, and does as an attempt did that passed. Train tasks are attempted once by the agent that
recalls nothing. It costs nothing and needs no key.
"""

from __future__ import annotations

import random
import re
import sys
import tempfile
from collections.abc import Sequence
from datetime import date, timedelta
from pathlib import Path
from typing import Any

from recreate.agents import scaffold as scaffolds
from recreate.agents.scaffold import Scaffold
from recreate.api.paths import shipped
from recreate.api.ports import Price, Sandbox, SandboxBackend
from recreate.api.types import Call, Grade, Message, Reply, Split, Task, Trace
from recreate.builder.sdk import bench
from recreate.models.chat import content

GUILDS = ("Heron", "Marten", "Plover", "Sorrel", "Tansy")
WAYS = ("%d.%m.%Y", "%Y/%m/%d", "%d-%b-%Y", "%b %d %Y", "%j of %Y", "%y%m%d")
RECALL = "[memory]\nrecall = 1250"


class Guilds:
    """Write a date as a guild writes it. tests.plugins.recall.recalling:Guilds"""

    name = "guilds"

    def __init__(self, tasks: int = 60) -> None:
        self.many = tasks

    def tasks(self, split: Split | None = None) -> Sequence[Task]:
        draw = random.Random(17)
        way = dict(zip(GUILDS, draw.sample(WAYS, len(GUILDS)), strict=True))
        splits: tuple[Split, ...] = ("train", "validation")
        found = []
        for s in splits:
            for n in range(self.many):
                guild, day = (
                    GUILDS[n % len(GUILDS)],
                    date(1900, 1, 1) + timedelta(draw.randrange(50_000)),
                )
                found.append(
                    Task(
                        id=f"guilds:{s}:{n}",
                        domain="guilds",
                        prompt=(
                            f"Write {day.isoformat()} to answer.txt as the guild {guild} writes its"
                            " dates."
                        ),
                        split=s,
                        group=f"{s}-{n}",
                        facts={"written": day.strftime(way[guild])},
                    )
                )
        return [task for task in found if split in (None, task.split)]

    def prepare(self, task: Task, backend: SandboxBackend) -> Sandbox:
        return backend.open()

    def collect(self, task: Task, sandbox: Sandbox) -> str:
        try:
            return sandbox.read("answer.txt").decode().strip()
        except FileNotFoundError:
            return ""

    def grade(self, task: Task, trace: Trace, backend: SandboxBackend) -> Grade:
        right = trace.answer == task.facts["written"]
        return Grade(
            score=float(right),
            passed=right,
            evidence="right" if right else "the guild does not write it so",
        )


class Scribe:
    """A model that knows ways to write a date, and not which guild has which."""

    name = "scribe"
    price = Price()

    def reply(self, messages: Sequence[Message], call: Call, **params: Any) -> Reply:
        said = [content(m) for m in messages]
        found = re.search(r"Write (\S+) to answer.txt as the guild (\w+)", "\n".join(said))
        assert found is not None
        day, guild = date.fromisoformat(found[1]), found[2]
        turn = sum(m["role"] == "assistant" for m in messages)
        asks = "`recall WORDS`" in said[0]
        if turn == asks + 1:
            command = "submit"
        elif turn == 0 and asks:
            command = f"recall how the guild {guild} writes its dates"
        else:
            way = (asks and learned(said[-1], guild)) or random.Random(call.task).choice(WAYS)
            command = f"echo '{day.strftime(way)}' > answer.txt"
        return Reply(
            text=f"```bash\n{command}\n```",
            tokens_in=sum(map(len, said)) // 4,
            tokens_out=len(command) // 4,
        )

    def close(self) -> None:
        pass


def learned(told: str, guild: str) -> str:
    """The way in which an attempt that passed wrote a date of the guild, as memory told of it."""
    for each in re.split(r"\n\n\d+\. ", told)[1:]:
        asked = re.search(rf"Write (\S+) to answer.txt as the guild {guild} ", each)
        wrote = re.search(r"^it handed in: (.*)$", each, re.MULTILINE)
        if asked and wrote and "passed" in each.split("\n")[0]:
            day = date.fromisoformat(asked[1])
            return next((way for way in WAYS if day.strftime(way) == wrote[1]), "")
    return ""


def agent(toml: str = "") -> Scaffold:
    seed = scaffolds.load(shipped("scaffolds") / "seed")
    return Scaffold(
        name="recalls" if toml else "plain",
        files={**seed.files, "agent.toml": f"[limits]\nsteps = 4\n{toml}"},
    )


def play(workspace: Path, tasks: int, sandbox: str = "") -> dict[str, float]:
    """The share of the held-out tasks that each agent solves: before anything was attempted, and
    after the train tasks were."""
    world: dict[str, Any] = {
        "domain": Guilds(tasks),
        "model": Scribe(),
        "workspace": workspace,
        "sandbox": sandbox,
    }
    world |= {"memory__embedder": "hashed", "jobs": 2}
    (workspace / "recreate.toml").touch()
    solved = {}
    for name, toml in (
        ("nothing to recall yet", RECALL),
        ("without memory", ""),
        ("recalling", RECALL),
    ):
        if name == "without memory":
            bench(agent(), split="train", out=str(workspace / "runs" / "train"), **world)
        (cell,) = bench(
            agent(toml),
            split="validation",
            out=str(workspace / "runs" / name.replace(" ", "-")),
            **world,
        )
        assert cell.mean is not None
        solved[name] = cell.mean
    return solved


def main() -> None:
    tasks = int(sys.argv[1]) if len(sys.argv) > 1 else 60
    with tempfile.TemporaryDirectory() as folder:
        for name, solved in play(Path(folder), tasks).items():
            print(f"{name:22} solved {solved:.2f} of {tasks} held-out tasks")


if __name__ == "__main__":
    main()
