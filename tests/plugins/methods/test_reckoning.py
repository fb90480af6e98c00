"""A world that no words help in: its worker cannot add, and runs a tool that its prompt tells of.

A ledger writes its amounts in one of three ways, those of validation in all of them. The
optimizer's model writes a program for the ways that its prompt shows: of one attempt the one that
stood there, of several programs all of theirs.
"""

from __future__ import annotations

import json
import random
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from recreate.agents.scaffold import Scaffold
from recreate.agents.workplace import BIN
from recreate.api.ports import Price, Sandbox, SandboxBackend
from recreate.api.types import Call, Grade, Message, Reply, Split, Task, Trace
from recreate.builder.loop import BuildResult, build
from recreate.models.pricing import FREE
from recreate.runs import settings
from recreate.runs.session import Parts, open_session
from tests.lab.league import COMMAND, SEED

WAYS = {
    r"\d,\d": 'x = x.replace(",", "")',
    r"\(\d": 'x = "-" + x[1:-1] if x[0] == "(" else x',
    r"\dk\b": 'x = x[:-1] + "000" if x[-1] == "k" else x',
}
"""How an amount may be written, as it is recognised and as a program reads it."""
SIZES: dict[Split, int] = {"train": 6, "validation": 6, "test": 1}
HEAD = '"""Adds up the second column of a file: `add_up FILE` prints the sum."""\nimport sys\n'
HEAD += (
    'if sys.argv[1] == "--help":\n    sys.exit(print(__doc__))\ntotal = 0\nfor line in'
    " open(sys.argv[1]):\n"
)


def amounts(split: str, number: int) -> list[tuple[str, int]]:
    """A ledger's amounts as they are written, and what they are."""
    draw = random.Random(f"{split}{number}")
    ways = [number % 3] if split == "train" else [0, 1, 2]
    found = []
    for _ in range(6):
        n = draw.randint(2, 9)
        found.append(
            ((f"{n},500", n * 1000 + 500), (f"({n}0)", -n * 10), (f"{n}k", n * 1000))[
                draw.choice(ways)
            ]
        )
    return found


def program(text: str) -> str:
    """A program for the ways that a text shows, as amounts or as lines of programs; '' for none."""
    lines = [
        line
        for way, line in WAYS.items()
        if re.search(rf"item{way}|item \S*{way}", text) or line in text
    ]
    body = ["x = line.split()[1]", *lines, "total += int(x)"]
    return HEAD + "".join(f"    {line}\n" for line in body) + "print(total)\n" if lines else ""


class Ledgers:
    name = "reckoning"

    def tasks(self, split: Split | None = None) -> Sequence[Task]:
        prompt = (
            "Write what the amounts of the file ledger come to, for book {} of {}, to the file"
            " answer.txt."
        )
        return [
            Task(
                id=f"reckoning:{s}:{n}",
                domain="reckoning",
                prompt=prompt.format(n, s),
                split=s,
                group=f"{s}-{n}",
            )
            for s, size in SIZES.items()
            if split in (None, s)
            for n in range(size)
        ]

    def prepare(self, task: Task, backend: SandboxBackend) -> Sandbox:
        sandbox = backend.open()
        rows = amounts(task.split, int(task.id.rpartition(":")[2]))
        sandbox.write("ledger", "".join(f"item {said}\n" for said, _ in rows).encode())
        return sandbox

    def collect(self, task: Task, sandbox: Sandbox) -> str:
        try:
            return sandbox.read("answer.txt").decode("utf-8", "replace").strip()
        except FileNotFoundError:
            return ""

    def grade(self, task: Task, trace: Trace, backend: SandboxBackend) -> Grade:
        passed = trace.answer == str(
            sum(n for _, n in amounts(task.split, int(task.id.rpartition(":")[2])))
        )
        return Grade(
            score=float(passed),
            passed=passed,
            evidence="right" if passed else "not what they come to",
        )


class Hands:
    """Both models: a worker that runs a tool or writes 0, and a writer of programs."""

    name = "scripted:hands"
    price: Price | None = FREE

    def reply(self, messages: Sequence[Message], call: Call, **params: Any) -> Reply:
        text = "\n".join(str(m["content"]) for m in messages)
        if call.role == "agent":
            tool = COMMAND.search(text)
            write = f"{BIN}/{tool[1]} ledger" if tool else "echo 0"
            command = ["cat ledger", f"{write} > answer.txt", "submit"][
                min(2, len(messages) // 2 - 1)
            ]
            return Reply(text=f"```bash\n{command}\n```")
        return Reply(text=json.dumps(self.answer(text, params["json_schema"]["properties"])))

    def answer(self, text: str, asked: Mapping[str, Any]) -> dict[str, Any]:
        if "groups" in asked:
            return {"groups": [re.findall(r"^- (\w+): ", text, re.MULTILINE)]}
        name = "add_up"
        replies = {
            "lacked": {"lacked": "a sum", "name": name},
            "skill": {"skill": name, "form": "program"},
        }
        replies["merged"], replies["instruction"] = (
            {"merged": name},
            {"instruction": f"Add with care{len(text) * '!'}"},
        )
        key = next(key for key in replies if key in asked)
        return replies[key] | (
            {} if key == "instruction" else {"body" if key == "skill" else "code": program(text)}
        )

    def close(self) -> None:
        pass


def grow(workspace: Path, optimizer: str, *settings_: str) -> BuildResult:
    model = Hands()
    flags: dict[str, Any] = {
        "domain": "reckoning",
        "optimizer": optimizer,
        "rounds": 1,
        "sandbox": "none",
        "jobs": 1,
    }
    flags |= {
        "train": 6,
        "batch": 6,
        "validation": 6,
        "memory.policy": "none",
        "memory.embedder": "hashed",
    }
    parts = Parts(domain=Ledgers(), model=model, optimizer_model=model)
    loaded = settings.load(workspace, {**flags, "optimizer_settings": list(settings_)})
    session = open_session(loaded, workspace, workspace / "runs" / optimizer, parts=parts)
    try:
        return build(session, SEED)
    finally:
        session.close()


@pytest.mark.slow
@pytest.mark.parametrize(("optimizer", "setting"), [("yunjue", "mends=0"), ("sage", "length=6")])
def test_an_agent_that_cannot_add_is_given_one_program_for_all_ways_that_its_attempts_met(
    workspace: Path, optimizer: str, setting: str
) -> None:
    built = grow(workspace, optimizer, setting)
    assert list(built.scaffold.tools) == ["add_up"]
    assert all(line in built.scaffold.files["tools/add_up.py"] for line in WAYS.values())
    # its prompts tell of none
    assert "- `add_up`: Adds up the second column" in built.scaffold.files["memory/tools.md"]
    (revision,) = built.revisions
    assert revision.kept
    assert (revision.verdict.before, revision.verdict.after) == (0.0, 1.0)


@pytest.mark.slow
def test_words_do_not_help_there(workspace: Path) -> None:
    assert not grow(workspace, "opro").revisions


def test_a_program_for_one_way_does_not_read_the_others() -> None:
    one = program("item 2,500\nitem 3,500\n")
    assert [line in one for line in WAYS.values()] == [True, False, False]
    both = program(one + program("item (20)\n"))
    assert [line in both for line in WAYS.values()] == [True, True, False]


def test_an_agent_whose_replies_go_to_one_tool_is_grown_none(workspace: Path) -> None:
    from recreate.plugins.methods.tools import calls_tools, is_told, with_notice

    tool = {"tools/act.py": '"""Acts."""\n'}
    toml = 'description = "x"\naction = "tool:act"\n'
    assert not calls_tools(Scaffold(name="a", files={**SEED.files, **tool, "agent.toml": toml}))
    told = Scaffold(
        name="a", files={**SEED.files, "system.md": "{% for t in tools %}{{ t.help }}{% endfor %}"}
    )
    assert is_told(Scaffold(name="a", files={**told.files, **tool}), "act")
    assert with_notice(told, tool) == tool
    assert with_notice(SEED, tool)["memory/tools.md"].endswith("- `act`: Acts.\n")
