"""Domains with a planted convention: every task needs it, no prompt tells it, and one source of
evidence shows it.

A kind says where its rule hides, and what follows from it. The worker is a model that takes nothing
from what it meets on the way: it does right when its own prompt tells the rule, and else the
obvious. So an agent becomes better only by what its files are made to say, and an optimizer that
cannot see the source cannot find the rule.

    trajectory    what a live place said once, to the agent: a copy of the environment does not say
                  it again; how a reply was refused; what another attempt said that it did
    environment   what the agent never looked at, or left behind
    evidence      the grader's words

    python -m tests.lab.planted KIND MODEL [--without SOURCE]    lets a real model be the optimizer;
    ends with 0 when it
                                                             found what is planted and the gate kept
                                                             it
"""

from __future__ import annotations

import argparse
import io
import json
import sys
import tempfile
import threading
import zipfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, get_args

from recreate.agents.scaffold import Scaffold
from recreate.api.ports import Model, Price, Sandbox, SandboxBackend
from recreate.api.types import Call, Experience, Grade, Message, Reply, Split, Step, Task, Trace
from recreate.builder.loop import BuildResult, build
from recreate.models.pricing import FREE
from recreate.runs import settings
from recreate.runs.session import Parts, open_session

Source = Literal["trajectory", "environment", "evidence"]
SOURCES: tuple[Source, ...] = get_args(Source)
SIZES: dict[Split, int] = {"train": 2, "validation": 5, "test": 1}
PROMPT = "Write entry {} of the {} list to the file answer.txt."
NOT_SO = "Not accepted."

SEED = Scaffold(
    name="planted",
    files={
        "agent.toml": (
            'description = "An agent that knows nothing of its domain."\n\n[limits]\nsteps = 16\n'
        ),
        "system.md": (
            "You work in a Linux shell.\n{% for lesson in lessons %}\n- {{ lesson.body }}\n{%"
            " endfor %}\n"
        ),
        "workflow.md": "{{ task.prompt }}\n",
        "observation.md": "{{ output.text }}\n",
        "format.md": "{{ error }}\n",
    },
)


def entry(number: int) -> str:
    return f"w{number}"


def program(code: str) -> bytes:
    """An executable whose text cannot be read: what it says, it says when it is run."""
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        archive.writestr(zipfile.ZipInfo("__main__.py"), code, zipfile.ZIP_DEFLATED)
    return b"#!/usr/bin/env python3\n" + packed.getvalue()


@dataclass(frozen=True)
class Kind:
    """One hidden convention.

    rule      the words that tell it; a prompt that holds them tells the worker
    plain     the obvious answer to the entry with a number; right: the one that is accepted
    acts      what the agent runs before it writes its answer
    files     in every box; those that can be run are bytes
    once      in the box of an attempt, but in no copy of it that is made later: what a live place
              said then
    env       the box's environment
    refusal   the grader's words on a wrong answer
    luck      said and done right by the second train attempt, which knows no better
    earlier   said in a failed attempt of an earlier run
    unfenced  the worker does not know how a reply is to be written
    """

    source: Source
    rule: str
    right: Callable[[int], str]
    plain: Callable[[int], str] = entry
    acts: Sequence[str] = ()
    files: Mapping[str, str | bytes] = field(default_factory=dict)
    once: Mapping[str, str] = field(default_factory=dict)
    env: Mapping[str, str] = field(default_factory=dict)
    refusal: str = NOT_SO
    luck: str = ""
    earlier: str = ""
    unfenced: bool = False


_QUEUE = (
    "from pathlib import Path\nspool = Path('spool')\nprint(spool.read_text() if spool.exists()"
    " else 'no orders')\n"
)
_BULLETIN = "Item {}: the office is closed on the day of the yearly fair, as it has been before.\n"
_LEAVES = (
    "import sys\nfrom pathlib import Path\n"
    "if sys.argv[1:] == ['next']:\n"
    "    Path('.state').mkdir(exist_ok=True)\n"
    "    Path('.state/last').write_text('Order taken. An answer must start with a plus sign.\\n')\n"
)
_CHECKS = (
    "import sys\nfrom pathlib import Path\n"
    "file = Path('answer.txt')\n"
    "if '--help' in sys.argv:\n    print('usage: check')\n"
    "elif file.exists() and not file.read_text().startswith('#'):\n"
    "    sys.exit('answer.txt: a hash sign is expected before the entry')\n"
)

KINDS: dict[str, Kind] = {
    # -------------------------------------------------------------------------------------------
    # trajectory
    "deprecation": Kind(
        "trajectory",
        "use a leading double colon instead",
        lambda n: f"::{n}",
        lambda n: f"{n}",
        acts=["./orders"],
        files={"orders": program(_QUEUE)},
        once={
            "spool": "1 order. Bare numbers are deprecated: use a leading double colon instead.\n"
        },
    ),
    "refused-reply": Kind(
        "trajectory", "must hold exactly one ```bash block", entry, unfenced=True
    ),
    "out-of-sight": Kind(
        "trajectory",
        "Every answer must end with a semicolon.",
        lambda n: f"w{n};",
        acts=["cat bulletin", *(f"seq {k}00 {k}50 | tr '\\n' ' '; seq 1 300" for k in range(1, 7))],
        once={
            "bulletin": "".join(
                _BULLETIN.format(n)
                + ("Every answer must end with a semicolon.\n" if n == 45 else "")
                for n in range(1, 91)
            )
        },
    ),
    "one-that-passed": Kind(
        "trajectory",
        "the number must be raised by one",
        lambda n: f"w{n + 1}",
        luck="The list counts from one, so the number must be raised by one.",
    ),
    "earlier-run": Kind(
        "trajectory",
        "letters are required to be capitals",
        lambda n: f"W{n}",
        earlier="As far as I see, letters are required to be capitals.",
    ),
    # ------------------------------------------------------------------------------------------
    # environment
    "helper": Kind(
        "environment",
        "must be wrapped in square brackets",
        lambda n: f"[w{n}]",
        files={
            "bin/seal": program(
                "print('usage: seal WORD. Every answer must be wrapped in square brackets.')"
            )
        },
    ),
    "hidden-file": Kind(
        "environment",
        "Answers are expected in reverse.",
        lambda n: f"{n}w",
        files={".project/CONVENTIONS": "Work in small steps.\nAnswers are expected in reverse.\n"},
    ),
    "variable": Kind(
        "environment",
        "each entry is required twice",
        lambda n: f"w{n},w{n}",
        env={"ANSWER_STYLE": "each entry is required twice, parted by a comma"},
    ),
    "left-behind": Kind(
        "environment",
        "An answer must start with a plus sign.",
        lambda n: f"+w{n}",
        acts=["./orders next"],
        files={"orders": program(_LEAVES)},
    ),
    "checker": Kind(
        "environment",
        "a hash sign is expected before the entry",
        lambda n: f"#w{n}",
        files={"check": program(_CHECKS)},
    ),
    # ---------------------------------------------------------------------------------------------
    # evidence
    "json": Kind(
        "evidence",
        "must be a JSON object whose only key is value",
        lambda n: json.dumps({"value": f"w{n}"}),
        refusal="AssertionError: the answer must be a JSON object whose only key is value",
    ),
    "rounding": Kind(
        "evidence",
        "Numbers must have two decimals.",
        lambda n: f"{n}.46",
        lambda n: f"{n}.4567",
        refusal=f"{NOT_SO} Numbers must have two decimals.",
    ),
    "date": Kind(
        "evidence",
        "a date must read year, month, day",
        lambda n: f"2024-02-0{n + 1}",
        lambda n: f"{n + 1} February 2024",
        refusal=f"{NOT_SO} With dashes between them, a date must read year, month, day.",
    ),
    "last-line": Kind(
        "evidence",
        "A last line that says only end is required.",
        lambda n: f"w{n}\nend",
        refusal=f"{NOT_SO} A last line that says only end is required.",
    ),
}


def of(source: Source) -> list[str]:
    """The names of the kinds that only this source shows."""
    return [name for name, kind in KINDS.items() if kind.source == source]


class Planted:
    """The domain of one kind. A train task's first box is the attempt's; those after it are
    copies."""

    name = "planted"

    def __init__(self, kind: Kind) -> None:
        self.planted = kind
        self.opened: set[str] = set()
        self.lock = threading.Lock()

    def tasks(self, split: Split | None = None) -> Sequence[Task]:
        return [
            Task(
                id=f"planted:{s}:{n}",
                domain="planted",
                prompt=PROMPT.format(n, s),
                split=s,
                group=f"{s}-{n}",
                facts={"number": n},
            )
            for s, size in SIZES.items()
            if split in (None, s)
            for n in range(size)
        ]

    def prepare(self, task: Task, backend: SandboxBackend) -> Sandbox:
        with self.lock:
            copy = task.split == "train" and task.id in self.opened
            self.opened.add(task.id)
        sandbox = backend.open(env=self.planted.env)
        for path, whole in {**self.planted.files, **({} if copy else self.planted.once)}.items():
            data = whole.encode() if isinstance(whole, str) else whole
            sandbox.write(path, data, 0o755 if isinstance(whole, bytes) else 0o644)
        return sandbox

    def collect(self, task: Task, sandbox: Sandbox) -> str:
        try:
            return sandbox.read("answer.txt").decode("utf-8", "replace").strip()
        except FileNotFoundError:
            return ""

    def grade(self, task: Task, trace: Trace, backend: SandboxBackend) -> Grade:
        passed = trace.answer == self.planted.right(task.facts["number"])
        return Grade(
            score=float(passed),
            passed=passed,
            evidence="accepted" if passed else self.planted.refusal,
        )


class Worker:
    """The agent's model: it does what is obvious, or what its prompt says; what it meets teaches it
    nothing."""

    name = "scripted:worker"
    price: Price | None = FREE

    def __init__(self, kind: Kind) -> None:
        self.kind = kind

    def reply(self, messages: Sequence[Message], call: Call, **params: Any) -> Reply:
        kind, number = self.kind, int(call.task.rpartition(":")[2])
        told = any(kind.rule in message["content"] for message in messages[:2])
        lucky = bool(kind.luck) and call.task == "planted:train:1"
        turn = len(messages) // 2 - 1
        answer = kind.right(number) if told or lucky else kind.plain(number)
        commands = [*kind.acts, f"printf '%s\\n' '{answer}' > answer.txt", "submit"]
        command = commands[min(turn, len(commands) - 1)]
        if kind.unfenced and not told:
            return Reply(text=command)
        thought = kind.luck if lucky and turn == len(kind.acts) else "I go on."
        return Reply(text=f"{thought}\n```bash\n{command}\n```")

    def close(self) -> None:
        pass


def attempted(kind: Kind) -> list[Experience]:
    """What an earlier run left in the workspace's memory: one attempt that failed at something
    else."""
    if not kind.earlier:
        return []
    steps = (
        Step(step=0, reply="I look."),
        Step(step=1, reply=kind.earlier, action="true", status=0),
    )
    trace = Trace(
        attempt="e" * 16,
        task="planted:train:8",
        scaffold="s" * 16,
        model="m",
        steps=steps,
        ending="limit",
    )
    return [
        Experience(
            id="e" * 16,
            domain="planted",
            task="planted:train:8",
            group="train-8",
            split="train",
            prompt=PROMPT.format(8, "train"),
            digest="s" * 16,
            trace=trace,
            grade=Grade(score=0.0, passed=False, evidence=NOT_SO),
            run="earlier",
        )
    ]


def grow(
    name: str, workspace: Path, reader: Model, without: Sequence[Source] = (), **flags: Any
) -> BuildResult:
    """A build on the domain of a kind, in workspace/runs/NAME."""
    kind = KINDS[name]
    parts = Parts(domain=Planted(kind), model=Worker(kind), optimizer_model=reader)
    flags = {
        "domain": "planted",
        "optimizer": "recreate",
        "train": 2,
        "validation": 5,
        "without": without,
        **flags,
    }
    session = open_session(
        settings.load(workspace, flags), workspace, workspace / "runs" / name, parts=parts
    )
    try:
        session.memory.add(attempted(kind))
        return build(session, SEED)
    finally:
        session.close()


def main() -> int:
    from recreate.models import open_model

    parser = argparse.ArgumentParser(
        prog="python -m tests.lab.planted", description="Example: json openai:URL#MODEL"
    )
    parser.add_argument("kind", choices=KINDS)
    parser.add_argument("model", help="the optimizer's model, as --models.optimizer takes it")
    parser.add_argument("--without", choices=SOURCES, action="append", default=[])
    parser.add_argument("--price", default="", help="in,out in US dollars per million tokens")
    given = parser.parse_args()
    workspace = Path(tempfile.mkdtemp(prefix=f"planted-{given.kind}-"))
    flags = {"models.optimizer_price": given.price} if given.price else {}
    built = grow(given.kind, workspace, open_model(given.model), given.without, **flags)
    kept = [revision for revision in built.revisions if revision.kept]
    for revision in built.revisions:
        for edit in revision.edits:
            print(
                "kept" if revision.kept else "dropped",
                edit.path,
                edit.new.strip(),
                sep="\n",
                end="\n\n",
            )
    print(
        f"{given.kind}: {'found' if kept else 'not found'}; its studies are in"
        f" {workspace}/runs/{given.kind}/studies"
    )
    return 0 if kept else 4


if __name__ == "__main__":
    sys.exit(main())
