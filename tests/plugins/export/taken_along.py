"""What proves an export equal: tasks of three domains, replies as models give them, what was sent
and run for them.

Every odd thing that a reply may be is among the replies: no block, two, one cut off, nothing at
all, `submit` between other words, a heredoc with fences of its own, an output too long to be shown,
a command that fails or takes too long.
"""

from __future__ import annotations

import importlib.util
import re
import sys
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from recreate.agents import scaffold as scaffolds
from recreate.agents.attempt import attempt
from recreate.agents.scaffold import Scaffold
from recreate.api.paths import shipped
from recreate.api.ports import Domain, Sandbox, SandboxBackend
from recreate.api.types import Call, Message, Output, Reply, Task
from recreate.plugins.demo.functions import Functions
from recreate.sandboxes import choose
from tests.examples.domain import Filters
from tests.toy import Toy

Asked = list[tuple[str, str]]
"""The messages of one call: role and text of each."""


@dataclass
class Seen:
    """What an agent sent and ran, and what it handed in. ending: submitted or not."""

    asked: list[Asked] = field(default_factory=list)
    caps: list[Any] = field(default_factory=list)  # max_tokens of each call, where the tool says it
    ran: list[tuple[str, str]] = field(default_factory=list)  # script, standard input
    answer: str = ""
    submitted: bool = False


@dataclass(frozen=True)
class Case:
    """An agent, a task and the replies that it gets, the last one for ever: text and finish."""

    scaffold: Scaffold
    domain: Domain
    task: Task
    replies: Sequence[tuple[str, str]]
    tokens_out: int = 5  # of each reply

    @property
    def name(self) -> str:
        return self.task.id.replace(":", "-")

    def reply(self, number: int) -> tuple[str, str]:
        return self.replies[min(number, len(self.replies) - 1)]


TOKENS_IN = 10
"""What each prompt is said to have used."""


class Watched:
    """A sandbox that notes what is run in it. As `run` it is given scripts, or the words of a
    tool."""

    def __init__(self, sandbox: Sandbox, ran: list[tuple[str, str]]) -> None:
        self._sandbox = sandbox
        self._ran = ran

    def __getattr__(self, name: str) -> Any:
        return getattr(self._sandbox, name)

    def run(
        self, command: str | Sequence[str], timeout: float | None = None, stdin: bytes | None = None
    ) -> Output:
        script = command if isinstance(command, str) else " ".join(command)
        # one place, spelt whole
        script = re.sub(r"\$PWD/(?=\.recreate/bin:)|^\./(?=\.recreate/bin/)", "/work/", script)
        self._ran.append((script, (stdin or b"").decode()))
        return self._sandbox.run(command, timeout=timeout, stdin=stdin)


def ours(case: Case) -> Seen:
    """What our own loop does."""
    seen = Seen()

    class Watching:
        def prepare(self, task: Task, backend: SandboxBackend) -> Sandbox:
            return Watched(case.domain.prepare(task, backend), seen.ran)  # type: ignore[return-value]

        def collect(self, task: Task, sandbox: Sandbox) -> str:
            return case.domain.collect(task, sandbox._sandbox)  # type: ignore[attr-defined]

    def ask(messages: list[Message], call: Call, **params: Any) -> Reply:
        text, finish = case.reply(len(seen.asked))
        seen.asked.append([(str(m["role"]), str(m["content"])) for m in messages])
        seen.caps.append(params.get("max_tokens"))
        return Reply(text=text, finish=finish, tokens_in=TOKENS_IN, tokens_out=case.tokens_out)

    call = Call(run="r", attempt="a", step=0)
    trace = attempt(case.scaffold, case.task, Watching(), choose(), ask, call)  # type: ignore[arg-type]
    seen.answer, seen.submitted = trace.answer, trace.ending == "submitted"
    return seen


# ------------------------------------------------------------------------------------------------
# agents

LOOK = (
    '#!/usr/bin/env python3\n"""Looks around."""\nimport os\nprint(sorted(os.listdir(".")), "word "'
    " * 200)\n"
)
COUNT = "#!/bin/bash\n# Counts lines.\nwc -l < answer.txt\n"
LESSON = "# Look first\n\nThere may be more than one sees; {{ braces }} too.\n\nborn_of: abc\n"
EXAMPLE = "# A word\n\nTask: a {{ word }}\n\nReply: submit\n\nborn_of: abc\n"
PROMPT = """{{ task.prompt }}

Seen: {{ before.look[:60] }}
{% for l in lessons %}{{ loop.index }}. {{ l.title }}{% endfor %}
"""


def shell() -> Scaffold:
    """The seed with a lesson, an example, and tools, one of which runs first; little is shown of an
    output."""
    seed = scaffolds.load(shipped("scaffolds") / "seed")
    toml = 'before = ["look"]\n[limits]\nsteps = 9\nobservation_chars = 300\ncommand_seconds = 2\n'
    tools = {"tools/look.py": LOOK, "tools/count.sh": COUNT}
    files = {
        **seed.files,
        "agent.toml": toml,
        "memory/look-first.md": LESSON,
        "examples/word.md": EXAMPLE,
        "workflow.md": PROMPT,
        **tools,
    }
    return Scaffold(name="shell", files=files)


def json_agent() -> Scaffold:
    """Its replies are JSON; five steps are all it has."""
    files = {
        "agent.toml": 'action = "json"\n[limits]\nsteps = 5\ntokens = 70\n',
        "system.md": (
            'Reply with {"command": ...}. {{ limits.steps }} steps, {{ limits.tokens }} tokens.'
        ),
        "workflow.md": "{{ task.prompt }}",
    }
    return Scaffold(name="json", files=files)


def demo() -> Scaffold:
    """The demo's seed: the whole reply goes to a tool, and another says when it is done."""
    return scaffolds.load(shipped("benchmarks") / "demo" / "seed")


def bash(command: str) -> tuple[str, str]:
    return f"So:\n```bash\n{command}\n```", "stop"


FENCES = "````bash\ncat > notes.md <<'END'\n# how\n```bash\nls\n```\nEND\ncat notes.md\n````"
SHELL = [
    bash("ls -A; count"),
    ("I would rather think.", "stop"),
    ("", "stop"),
    ("```bash\nls\n```\n```bash\npwd\n```", "stop"),
    (FENCES, "stop"),
    ("```bash\necho 'no end", "length"),
    bash("seq 1 400"),
    bash("echo oh >&2; exit 3"),
    bash("printf 'ä\\n\\0\\377'; echo done && submit"),
    ("```bash\ncat <<A\n```bash\nit\n```\nA\n```", "stop"),
    bash("sleep 30"),
    bash("kill -9 $$"),
    bash("sed -n 1,3p .recreate/output/*.txt; cat .recreate/attempt.json"),
]
"""What is said before the answer is written: each task has four of them."""


def cases() -> Iterator[Case]:
    """22 tasks of three domains."""
    for task in Toy().tasks("train"):
        at = zlib.crc32(task.id.encode())
        said = [SHELL[(at + n * 5) % len(SHELL)] for n in range(4)]
        write = bash(f"printf '{task.id}' > answer.txt; count")
        end = bash("submit") if at % 2 else bash("echo more")  # or its steps end
        yield Case(shell(), Toy(), task, [*said, write, end])
    for n, task in enumerate(Filters().tasks("validation")[:7]):
        odd = [
            ("{not json", "stop"),
            ('{"command": ""}', "stop"),
            ('{"thought": "cut', "length"),
            ("[1]", "stop"),
        ][n % 4]
        write = f'{{"thought": "", "command": "printf \'cat #{n}\\\\n\' > filter.sh"}}'
        yield Case(
            json_agent(), Filters(), task, [odd, (write, "stop"), ('{"command": "submit"}', "stop")]
        )
    for n, task in enumerate(Functions().tasks("validation")[:7]):
        wrong = [
            "No function.",
            "```python\ndef f(:\n```",
            "",
            "```python\ndef wrong(text):\n    return 1\n```",
        ][n % 4]
        right = f"```python\n{task.facts['gold']}```"
        finish = "length" if n in (0, 2) else "stop"
        yield Case(
            demo(), Functions(), task, [(wrong, finish), (right if n % 3 else wrong, finish)]
        )


def cut_off() -> Case:
    """Three replies in a row that were cut off end it."""
    task = Toy().tasks("train")[0]
    return Case(shell(), Toy(), task, [("A long thought. " * 100, "length")])


def raised() -> list[Case]:
    """Replies that reach their cap: what the next may have is raised, in text and where a tool
    reads the reply."""
    task, function = Toy().tasks("train")[0], Functions().tasks("validation")[0]
    long, empty = ("A long thought. " * 100, "length"), ("", "length")
    done = bash("submit")
    # no room
    return [
        Case(shell(), Toy(), task, [long, long, done], 1024),
        Case(demo(), Functions(), function, [empty, ("None.", "length")], 200),
        Case(
            json_agent(),
            Filters(),
            Filters().tasks("validation")[0],
            [("{", "length"), ("{", "stop")],
            1024,
        ),
    ]


def written(scaffold: Scaffold, target: str, folder: Path) -> Path:
    """An export of a scaffold, made once for a folder."""
    from recreate.plugins.export import export

    out = folder / f"{scaffold.name}-{scaffold.digest}"
    if not out.exists():
        export(scaffold, target, out)
    return out


def module_of(folder: Path, file: str) -> Any:
    """A program of an export, with the turns beside it."""
    name = file.removesuffix(".py")
    sys.path.insert(0, str(folder))
    try:
        sys.modules.pop("scaffold_turns", None)
        spec = importlib.util.spec_from_file_location(f"exported_{name}", folder / file)
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        sys.modules[f"exported_{name}"] = module
        spec.loader.exec_module(module)
    finally:
        sys.path.remove(str(folder))
    return module


WITHOUT_RECREATE = """
import sys
class Refused:
    @staticmethod
    def find_spec(name, path=None, target=None):
        if name.partition(".")[0] == "recreate":
            raise ImportError("recreate is not here")
sys.meta_path.insert(0, Refused)
"""
"""A program's head, after which recreate cannot be imported."""
