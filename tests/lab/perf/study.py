"""Own CPU of one study by the optimizer `recreate`, beside a thin client that makes the same calls
and does the tools' work; and the index of a long attempt.

The thin client keeps nothing, checks nothing and writes nothing: its tools are a few lines each.
The index of a trajectory and what sets two apart are the same code on both sides. Each child
process is warm: what is loaded once a process (words of English for the leak scan, templates) is
not counted. Nothing is searched by meaning: an embedder's cost is its own.
"""

from __future__ import annotations

import http.client
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from recreate.agents.lesson import lesson_file
from recreate.agents.scaffold import Scaffold
from recreate.agents.trajectory import differ, index, tell_index
from recreate.api.ports import Sandbox, SandboxBackend
from recreate.api.types import Evidence, Experience, Grade, Message, Split, Step, Task, Trace
from recreate.builder.proposals import Proposals
from recreate.optimizers.context import OptimizerContext
from recreate.optimizers.investigator.read_tools import AlreadyTold, short, tell_whole
from recreate.optimizers.investigator.study import study
from recreate.runs.session import Session
from tests.lab.perf.still import OUTPUTS, REPLY, Still, StillBox, agent, run_session
from tests.lab.perf.table import Row
from tests.stub import Stub

CHILDREN, PAIRS = 5, 7
STEPS, BATCH = 40, 8
LIMIT = 40
FLAGS: dict[str, Any] = {"memory.embedder": "hashed"}
GOAL, INDEX_GOAL = "<=2", "<=0.3"
LONG, MEGABYTES = 200, 5

EVIDENCE = "".join(
    f"E   assert parse(line {n}) == expected: AssertionError: the last token is lost\n"
    for n in range(30)
)
DIFF = "".join(
    f"--- a/src/parser.py\n+++ b/src/parser.py\n@@ -{n} +{n} @@\n-    return tokens\n"
    for n in range(20)
)
RULE = (
    "Run the whole suite once before the work is handed in, and read the first failure to its end."
)


def measure() -> list[Row]:
    same_bodies()
    done = [_child("pairs") for _ in range(CHILDREN)]
    sides = [[statistics.median(d[side]) for d in done] for side in ("ours", "theirs")]
    ratios = sorted(a / b for a, b in zip(*sides, strict=True))
    calls = len(ACTIONS)
    middle = statistics.median
    rows = [
        Row(
            "study",
            f"{calls} calls, {STEPS} steps",
            "ms of CPU a study",
            middle(sides[0]) * 1e3,
            middle(sides[1]) * 1e3,
            middle(ratios),
            ratios[0],
            ratios[-1],
            GOAL,
        )
    ]
    for case in TRACES:
        seconds = [_child("index", case)["seconds"] for _ in range(CHILDREN)]
        rows.append(
            Row(
                "study",
                f"index of {case}",
                "s of CPU",
                middle(seconds),
                None,
                None,
                None,
                None,
                INDEX_GOAL,
                "ours",
            )
        )
    return rows


def _child(*arguments: str) -> dict[str, Any]:
    command = [sys.executable, "-m", "tests.lab.perf.study", *arguments]
    text = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
    found: dict[str, Any] = json.loads(text.splitlines()[-1])
    return found


# ------------------------------------------------------------------------------------------------
# what is studied


class Studied(Still):
    """The still domain with held-out tasks, as many as a build has."""

    def tasks(self, split: Split | None = None) -> list[Task]:
        sizes: dict[Split, int] = {"train": 20, "validation": 20, "test": 20}
        return [
            Task(
                id=f"still:{s}:{n}",
                domain="still",
                prompt=f"Test {n} of this {s} package fails: the last token of the input is lost. "
                * 10,
                split=s,
                group=f"{s}-{n}",
            )
            for s, size in sizes.items()
            if split in (None, s)
            for n in range(size)
        ]

    def prepare(self, task: Task, backend: SandboxBackend) -> Sandbox:
        return StillBox()


def batch(scaffold: Scaffold) -> list[Experience]:
    """Attempts of 40 steps each; every other one passed, the second at the task of the first."""
    found = []
    tasks = Studied().tasks("train")[:BATCH]
    for n, task in enumerate([tasks[0], *tasks[: BATCH - 1]]):
        steps = tuple(
            Step(
                step=k,
                observation=task.prompt if k == 0 else OUTPUTS[(n + k - 1) % len(OUTPUTS)],
                reply=REPLY,
                action=(
                    f"grep -rn 'def split_lines' src | head -{k + 5}; sed -n '40,80p' src/parser.py"
                ),
                output=OUTPUTS[(n + k) % len(OUTPUTS)],
                status=1,
            )
            for k in range(STEPS)
        )
        id = f"{n:016x}"
        trace = Trace(
            attempt=id,
            task=task.id,
            scaffold=scaffold.digest,
            model="openai:stub",
            steps=steps,
            answer=DIFF * (n % 3),
        )
        found.append(
            Experience(
                id=id,
                domain="still",
                task=task.id,
                group=task.group,
                split="train",
                prompt=task.prompt,
                digest=scaffold.digest,
                trace=trace,
                grade=Grade(score=float(n % 2), passed=bool(n % 2), evidence=EVIDENCE),
                run="perf",
            )
        )
    return found


OTHER = f"{1:016x}"
ACTIONS: list[tuple[str, dict[str, Any]]] = [
    ("index", {}),
    *(("steps", {"first": k, "last": k + 7}) for k in range(0, STEPS, 8)),
    ("evidence", {}),
    ("submission", {"experience": f"{2:016x}"}),
    ("scaffold", {}),
    ("scaffold", {"path": "workflow.md"}),
    ("contrast", {}),
    ("index", {"experience": OTHER}),
    ("steps", {"first": 30, "last": 39, "experience": OTHER}),
    ("search", {"query": "tokens parse", "by": "words", "k": 6}),
    ("rejected", {}),
    *(("run", {"command": f"ls -la src; cat src/part{k}"}) for k in range(4)),
    (
        "edit",
        {
            "path": "workflow.md",
            "old": "",
            "new": RULE,
            "reason": "It was not seen.",
            "steps": [3, 12],
        },
    ),
    (
        "lesson",
        {"title": "The whole suite", "text": RULE, "reason": "It was not seen.", "steps": [31]},
    ),
    ("finish", {"summary": "The suite was not run. " * 10, "cause": "strategy"}),
]
"""What the endpoint answers, turn by turn; in the order of a study that looks before it edits."""


def answer(body: dict[str, Any]) -> dict[str, Any]:
    """The action of the turn that the messages have come to, as a native tool call."""
    turn = min(len(body["messages"]) // 2 - 1, len(ACTIONS) - 1)
    called = {"name": ACTIONS[turn][0], "arguments": json.dumps(ACTIONS[turn][1])}
    message = {
        "role": "assistant",
        "content": "I look at what came of it before I go on. " * 6,
        "tool_calls": [{"id": f"call-{turn}", "type": "function", "function": called}],
    }
    return {
        "id": "stub",
        "object": "chat.completion",
        "model": "stub",
        "choices": [{"index": 0, "message": message, "finish_reason": "tool_calls"}],
        "usage": {"prompt_tokens": 4000 + 900 * turn, "completion_tokens": 80},
    }


# ------------------------------------------------------------------------------------------------
# ours


class Ours:
    """A run with its parts as a build has them, and what is studied in memory."""

    def __init__(self, session: Session) -> None:
        self.session = session
        self.scaffold = agent(STEPS)
        self.batch = batch(self.scaffold)
        session.memory.add(self.batch)
        self.studies = 0

    def context(self) -> OptimizerContext:
        self.studies += 1
        key = f"{self.studies:016x}"
        attempted = Proposals(
            self.session, key, self.scaffold, self.batch, [], 0, lambda digest: self.scaffold
        )
        return attempted.context()

    def study(self) -> float:
        """Seconds of CPU."""
        begun = time.process_time()
        made = study(self.context(), self.scaffold, self.batch[0], self.batch)
        seconds = time.process_time() - begun
        assert (made.ending, len(made.edits), sum(made.actions.values())) == (
            "finished",
            2,
            len(ACTIONS),
        ), made
        return seconds


@contextmanager
def opened(url: str) -> Iterator[Ours]:
    with run_session(
        f"openai:{url}#stub", domain="tests.lab.perf.study:Studied", optimizer="recreate", **FLAGS
    ) as session:
        yield Ours(session)


# ------------------------------------------------------------------------------------------------
# theirs


class ThinStudy:
    """The same talk on http.client and json. `first` is a body that ours sent: its prompt and its
    schema."""

    def __init__(self, url: str, ours: Ours, first: dict[str, Any]) -> None:
        parts = urlsplit(url)
        self.wire, self.path = (
            http.client.HTTPConnection(parts.netloc),
            f"{parts.path}/chat/completions",
        )
        self.first = first
        self.files = dict(ours.scaffold.files)
        self.batch = {e.id: e for e in ours.batch}
        self.own = ours.batch[0]
        self.memory = next(
            (ours.session.workspace / "memory" / "still" / "experiences").glob("*.jsonl")
        )

    def study(self) -> float:
        """Seconds of CPU."""
        begun = time.process_time()
        messages: list[Message] = list(self.first["messages"])
        self.draft, self.edits = dict(self.files), 0
        self.sandbox: StillBox | None = None
        self.told = AlreadyTold()
        for turn in range(len(ACTIONS)):
            body = {**self.first, "messages": messages, "seed": 123456789 + turn}
            self.wire.request(
                "POST", self.path, json.dumps(body).encode(), {"Content-Type": "application/json"}
            )
            message = json.loads(self.wire.getresponse().read())["choices"][0]["message"]
            call = message["tool_calls"][0]
            said = getattr(self, call["function"]["name"])(
                **json.loads(call["function"]["arguments"])
            )
            if (left := LIMIT - turn - 1) < 4:
                said += (
                    f"\n[{left} turns are left: hand your work in with `finish` before they end]"
                )
            messages += [message, {"role": "tool", "content": said, "tool_call_id": call["id"]}]
        return time.process_time() - begun

    def outcome(self, e: Experience) -> str:
        passed = "PASSED" if e.grade.passed else f"FAILED (score {e.grade.score:g})"
        return (
            f"experience {e.id}: {passed}, ended by submitted after {len(e.trace.steps)} steps;"
            f" task {short(e.task)}"
        )

    def index(self, experience: str = "") -> str:
        e = self.batch.get(experience, self.own)
        return f"{self.outcome(e)}\ntask: {e.prompt.strip()}\n\n{tell_index(index(e.trace))}"

    def steps(self, first: int, last: int, experience: str = "") -> str:
        parts, room = [], 22_000
        e = self.batch.get(experience, self.own)
        for step in e.trace.steps[first : last + 1]:
            at = Evidence(experience=e.id, step=step.step)
            whole = tell_whole(step, 6_000, partial(self.told.fold_repeats, at=at))
            if len(whole) > room:
                break
            room -= len(whole)
            parts.append(whole)
            self.told.keep(whole, at)
        return "\n\n".join(parts)

    def evidence(self) -> str:
        return f"{self.outcome(self.own)}\n{self.own.grade.evidence}"

    def submission(self, experience: str) -> str:
        return self.batch[experience].trace.answer.strip()

    def scaffold(self, path: str = "") -> str:
        return (
            self.draft[path]
            if path
            else "\n".join(f"{p}, {len(t)} characters" for p, t in sorted(self.draft.items()))
        )

    def contrast(self) -> str:
        other = self.batch[OTHER]
        told = differ(self.own, other)
        return (
            f"{told}\n\n`index` and `steps` with experience {other.id} show it; its task:"
            f" {_cut(other.prompt, 400)}"
        )

    def search(self, query: str, by: str, k: int) -> str:
        words = query.split()
        hits: list[str] = []
        for line in self.memory.read_text().splitlines():
            e = json.loads(line)["experience"]
            head = (
                f"{e['id']}\n{e['task']}\n{e['prompt']}"
                f"\n{e['trace'].get('answer', '')}\n{e['grade']['evidence']}"
            )
            parts = [
                (
                    f" step {s['step']}",
                    "step",
                    f"{s['observation']}\n{s['reply']}\n{s['action']}\n{s['output']}",
                )
                for s in e["trace"]["steps"]
            ]
            passed = "passed" if e["grade"]["passed"] else "failed"
            for where, grain, text in [("", "experience", head), *parts]:
                folded = text.casefold()
                if all(word in folded for word in words) and len(hits) < k:
                    at = max(0, folded.find(words[0]) - 150)
                    shown = _cut(text[at : at + 500].strip(), 500)
                    hits.append(
                        f"experience {e['id']}{where} ({grain} {passed}, task"
                        f" {short(e['task'])})\n{shown}"
                    )
            if len(hits) >= k:
                break
        return "\n\n".join(hits)

    def rejected(self) -> str:
        return "none was rejected so far"

    def run(self, command: str) -> str:
        told = ""
        if self.sandbox is None:
            self.sandbox = StillBox()
            for step in self.own.trace.steps:
                self.sandbox.run(step.action)
            told = (
                f"[the environment was rebuilt: {STEPS} actions were done again, and all ended as"
                " they had]\n"
            )
        output = self.sandbox.run(command)
        return f"{told}{output.text.rstrip()}\n[exit status {output.status}]"

    def edit(self, path: str, old: str, new: str, reason: str, steps: list[int]) -> str:
        self.draft[path] += new + "\n"
        return self._made(path)

    def lesson(self, title: str, text: str, reason: str, steps: list[int]) -> str:
        path, whole = lesson_file(title, text, [self.own.id])
        self.draft[path] = whole
        return self._made(path)

    def finish(self, summary: str, cause: str) -> str:
        return "handed in"

    def _made(self, path: str) -> str:
        self.edits += 1
        return f"edit {self.edits} is made: {path}."

    def close(self) -> None:
        self.wire.close()


def _cut(text: str, limit: int) -> str:
    text = text.strip()
    half = (limit - 7) // 2
    return text if len(text) <= limit else f"{text[:half]}\n[...]\n{text[-half:]}"


def same_bodies() -> dict[str, Any]:
    """Both sides must ask the same; a comparison of different requests would be worth nothing. The
    first body."""
    bodies: list[list[dict[str, Any]]] = []
    with Stub(answer) as stub, opened(stub.url) as ours:
        ours.study()
        bodies.append(list(stub.bodies))
        stub.bodies.clear()
        thin = ThinStudy(stub.url, ours, bodies[0][0])
        thin.study()
        thin.close()
        bodies.append(list(stub.bodies))
    for turn, (left, right) in enumerate(zip(*bodies, strict=True)):
        for body in (left, right):
            body["seed"] = type(body["seed"])
        assert left == right, (turn, left["messages"][-1], right["messages"][-1])
    return bodies[0][0]


# ---------------------------------------------------------------------------------------------- a
# long attempt


def long_trace(output: str, action: str = "python -m pytest -q tests/test_parser.py") -> Trace:
    steps = tuple(
        Step(step=k, reply=REPLY, action=action, output=output, status=1) for k in range(LONG)
    )
    return Trace(attempt="a", task="t", scaffold="s", model="m", steps=steps)


def filled(text: str) -> str:
    size = MEGABYTES * 1_000_000 // LONG
    return (text * (size // len(text) + 1))[:size]


TRACES: dict[str, Callable[[], Trace]] = {
    "200 steps, 5 MB of test output": lambda: long_trace(
        filled(OUTPUTS[3] + EVIDENCE + "FAILED tests/a.py::test_b\n")
    ),
    "200 steps, 5 MB in long lines": lambda: long_trace(
        filled("an Error here, 3 failed and 4 passed; ")
    ),
    "200 steps, 5 MB written by the agent": lambda: long_trace(
        "ok", "cat > src/part.py <<'EOF'\n" + filled(Path(__file__).read_text("utf-8")) + "\nEOF\n"
    ),
}


def main(what: str, case: str = "") -> None:
    if what == "index":
        trace = TRACES[case]()
        begun = time.process_time()
        rows = index(trace)
        print(json.dumps({"seconds": time.process_time() - begun, "rows": len(rows)}))
        return
    with Stub(answer) as first, opened(first.url) as ours:
        ours.study()
        body = first.bodies[0]
    with endpoint() as url, opened(url) as ours:
        thin = ThinStudy(url, ours, body)
        sides: dict[str, list[float]] = {"ours": [], "theirs": []}
        for n in range(PAIRS + 1):
            for side in ("ours", "theirs") if n % 2 else ("theirs", "ours"):
                seconds = ours.study() if side == "ours" else thin.study()
                if n:
                    sides[side].append(seconds)
        thin.close()
    print(json.dumps(sides))


@contextmanager
def endpoint() -> Iterator[str]:
    """The endpoint that answers with ACTIONS, in a process of its own."""
    command = [sys.executable, "-m", "tests.lab.perf.study", "serve"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            yield process.stdout.readline().strip()
        finally:
            process.terminate()
            process.wait(10)


def serve() -> None:
    stub = Stub(answer, keep=False)
    stub.run(lambda: print(stub.url, flush=True))


if __name__ == "__main__":
    serve() if sys.argv[1] == "serve" else main(*sys.argv[1:])
