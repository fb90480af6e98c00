"""What the answer is without the model: a new tool is run on the tasks' words alone, and what it
answers is graded.

At the end of a build, in the run's own sandboxes, over the train and validation tasks that it
attempted, with no model asked; nobody is told of it but the reader of the report. How a tool is
called is tried out on a few tasks, train ones first:

    a command     that the model typed alike for two tasks or more, or that a prompt, a lesson or
                  the tool's own help tells (with `<question>` or QUESTION, the task's words)
    by itself     as a hook: it reads the attempt's words from .recreate/attempt.json
    stdin         the task's words there; as JSON where its schema has one text
    an argument   the task's words

Its answer is what it left where the domain looks for one, else what it printed, or the last line of
that. Of the ways that give an answer, the one that passes most goes on over the other tasks.
"""

from __future__ import annotations

import json
import random
import re
import shlex
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from dataclasses import dataclass, field
from typing import Literal

from recreate.agents.functions import read_schema
from recreate.agents.scaffold import Scaffold
from recreate.agents.trajectory import tools
from recreate.agents.workplace import BIN, furnish, prepare_sandbox
from recreate.api.errors import BadInput, Interrupted
from recreate.api.ports import AsksModel
from recreate.api.shapes import JsonDict
from recreate.api.types import Output, Task, Trace, digest
from recreate.plugins.parts.account import RECORD, account_for, read_pair
from recreate.plugins.parts.changed import ChangedPart, list_changed
from recreate.plugins.parts.settings import PartsSettings
from recreate.runs.reader import BuildResult, Run
from recreate.runs.session import Session
from recreate.storage.redact import redact

TRIED = 6
"""Tasks on which the ways to call a tool are tried out."""
GIVEN_UP = 2
"""Tasks without an answer, or with a failure, after which a way is given up while no other task
had one."""
LONGEST = 30.0
"""Seconds of one run of a tool."""
_CODE = re.compile(r"```[^\n]*\n(.*?)```|`([^`\n]+)`", re.DOTALL)
_HOLE = re.compile(r"""(["']?)(?:<[^<>|&\n]{1,40}>|\.\.\.|\b[A-Z][A-Z_]{2,}\b)\1""")
_PASSING_ON = ("cat", "tee", "head", "tail", "tr", "submit")
"""Programs that answer nothing by themselves."""
_PATH = f'export PATH="$PWD/{BIN}:$PATH"\n'

Reading = Literal["whole", "last line"]
READINGS: tuple[Reading, ...] = ("whole", "last line")


@dataclass(frozen=True)
class Way:
    """How a tool is called. command: of a shell, with HOLE where the task's words stand; stdin:
    whether they are given there, as the text `key` of a JSON object where that is named."""

    says: str
    command: str
    stdin: bool = False
    key: str = ""


HOLE = "\x00"
"""Stands in a command for the task's words."""


@dataclass
class WayOutcome:
    """What a way came to, its answer read in one way, task by task: None where there was none."""

    way: Way
    reading: Reading
    passed: dict[str, bool | None] = field(default_factory=dict)

    @property
    def answered(self) -> int:
        return sum(each is not None for each in self.passed.values())

    @property
    def won(self) -> int:
        return sum(each is True for each in self.passed.values())

    @property
    def says(self) -> str:
        """How the tool was called, and its answer read."""
        return self.way.says + ", the last line of what it prints" * (self.reading != "whole")


class OutOfTime(Exception):
    """The seconds of the settings are over."""


def measure_alone(session: Session, built: BuildResult) -> None:
    """Run a build's new tools without the model, and write down what became of each part of its
    revisions. What an earlier session measured is not measured again."""
    run = Run(session.folder)
    revisions = run.revisions()
    attempted = {record["scaffold"] for record in run.records("experience")}
    known = dict[tuple[str, str], JsonDict]()
    for record in run.records(RECORD):
        for part in record["parts"]:
            if "of" in part.get("alone", {}):
                known[record["revision"], part["path"]] = part["alone"]
    order = sorted(reversed(revisions), key=lambda r: (r.id != built.scaffold.digest, not r.kept))
    bench = AloneBench(session, run)
    for revision in order if bench.seconds else ():
        pair = None
        if revision.id in attempted:
            pair = read_pair(run.folder, revision.parent, revision.id)
        if pair is None:
            continue
        for part in list_changed(*pair):
            place = (revision.id, part.path)
            if part.kind == "tool" and part.change != "gone" and place not in known:
                known[place] = bench.measure(pair[1], part)
    for id, parts in account_for(run, revisions, known):
        if not any(r["revision"] == id and r["parts"] == parts for r in run.records(RECORD)):
            session.journal.add(RECORD, revision=id, parts=parts)


class AloneBench:
    """The tasks of a run, and the time that is left for running tools on them."""

    def __init__(self, session: Session, run: Run) -> None:
        self.session = session
        self.run = run
        cap = session.ledger.budget.minutes
        left = float("inf") if cap is None else 60 * (cap - session.ledger.minutes)
        self.seconds = min(session.settings.of(PartsSettings).seconds, left)
        self.ends = time.monotonic() + self.seconds
        self.made = dict[str, JsonDict]()
        self.broken = ""
        """Why a tool could not be run, or its answer not be graded, last."""
        self.records = list(run.records("experience"))
        attempted = {r["task"] for r in self.records if r["split"] in ("train", "validation")}
        held = [*session.domain.tasks("train"), *session.domain.tasks("validation")]
        self.tasks = [task for task in held if task.id in attempted]
        random.Random("alone").shuffle(self.tasks)
        self.trial = sorted(self.tasks, key=lambda task: task.split != "train")[:TRIED]

    def measure(self, agent: Scaffold, part: ChangedPart) -> JsonDict:
        """Return what a tool answers without the model; of one that was measured before the
        same."""
        files = {path: text for path, text in agent.files.items() if path.startswith("tools/")}
        ways = list(self.list_ways(agent, part))
        key = digest([part.name, files, [way.command for way in ways]])
        if key not in self.made:
            self.say(f"{part.path} is run without the model")
            self.made[key] = self._measure(agent, ways)
        found = self._beside(agent, self.made[key])
        self.say(f"{part.path} {found['text']}")
        return found

    def say(self, text: str) -> None:
        self.session.say("note", {"text": text})

    def _measure(self, agent: Scaffold, ways: Sequence[Way]) -> JsonDict:
        domain = self.session.domain
        if isinstance(domain, AsksModel) and domain.asks_model:
            return {"why": "its answers are graded by a model"}
        if not self.tasks:
            return {"why": "no task of this build is there any more"}
        outcomes = list[WayOutcome]()
        with suppress(OutOfTime):
            for way in ways:
                outcomes += self.try_way(agent, way)
            best = choose_outcome(outcomes)
            if best is not None and best.won:
                self.run_way(agent, [best], [t for t in self.tasks if t.id not in best.passed])
        best = choose_outcome(outcomes)
        if best is not None:
            return self._record(best)
        if time.monotonic() >= self.ends:
            return {"why": "there was no time"}
        return {"why": self.broken or "it answers nothing to the tasks' words alone"}

    def _record(self, best: WayOutcome) -> JsonDict:
        splits = {task.id: task.split for task in self.tasks}
        by_split = {
            split: {
                "passed": sum(best.passed[id] is True for id in ids),
                "of": len(ids),
            }
            for split in ("train", "validation")
            if (ids := [id for id in best.passed if splits[id] == split])
        }
        return {
            "passed": best.won,
            "of": len(best.passed),
            "left_out": len(self.tasks) - len(best.passed),
            "way": best.says,
            "splits": by_split,
            "tasks": sorted(best.passed),
            "won": sorted(id for id, passed in best.passed.items() if passed),
        }

    def _beside(self, agent: Scaffold, made: JsonDict) -> JsonDict:
        """Return the outcome with its words, and with what the agent itself did at these tasks."""
        if "why" in made:
            return {**made, "text": f"not run without the model: {made['why']}"}
        made = dict(made)
        tasks = set(made.pop("tasks"))
        won = set(made.pop("won"))
        own = {
            r["task"]: bool(r["passed"])
            for r in reversed(self.records)
            if r["scaffold"] == agent.digest and r["task"] in tasks
        }
        text = f"alone, without the model, passes {made['passed']} of {made['of']} tasks"
        if own:
            beside = {"alone": len(won & own.keys()), "agent": sum(own.values()), "of": len(own)}
            made["beside"] = beside
            text += f" (of the {len(own)} that the agent attempted it passes {beside['alone']}"
            text += f", the agent {beside['agent']})"
        if made["left_out"]:
            text += f"; {made['left_out']} were left out"
        return {**made, "text": text}

    # ------------------------------------------------------------------------------- the ways

    def list_ways(self, agent: Scaffold, part: ChangedPart) -> Iterator[Way]:
        """Yield the ways in which a tool may be called on a task's words alone."""
        name = part.name
        seen = set[str]()
        commands = [
            *(("the model's command", c) for c in self.typed(agent, name)),
            *(("the command of its prompts", c) for c in told_commands(agent, name)),
        ]
        for says, command in commands:
            if command not in seen:
                seen.add(command)
                yield Way(f"{says} {_shown(command)}", command)
        yield Way("by itself", name)
        schema = agent.files.get(f"tools/{name}.json")
        if schema is not None and (key := _one_text(schema)):
            yield Way(f"{key} as JSON on stdin", name, stdin=True, key=key)
        yield Way("the task's words on stdin", name, stdin=True)
        yield Way("the task's words as its argument", f"{name} {HOLE}")

    def typed(self, agent: Scaffold, name: str) -> list[str]:
        """Return the commands with a tool that a model typed alike for two tasks or more, the most
        usual first."""
        tasks = dict[str, set[str]]()
        for record in self.records:
            if record["scaffold"] == agent.digest:
                with suppress(BadInput):  # a damaged attempt says nothing
                    for step in self.run.experience(record["attempt"]).trace.steps:
                        programs = set(tools(step.action)) if step.kind == "action" else {""}
                        if name in programs and programs <= {name, *_PASSING_ON}:
                            tasks.setdefault(step.action.strip(), set()).add(record["task"])
        counts = Counter({c: len(of) for c, of in tasks.items() if len(of) > 1 and len(c) < 500})
        return [command for command, _ in counts.most_common(2)]

    # ------------------------------------------------------------------------------- the runs

    def try_way(self, agent: Scaffold, way: Way) -> list[WayOutcome]:
        """Return what a way comes to on a few tasks, by how its answer is read; given up where it
        gives none."""
        outcomes = [WayOutcome(way, reading) for reading in READINGS]
        for n, task in enumerate(self.trial, 1):
            self.run_way(agent, outcomes, [task])
            if n >= GIVEN_UP and not any(each.answered for each in outcomes):
                break
        return outcomes

    def run_way(
        self, agent: Scaffold, outcomes: Sequence[WayOutcome], tasks: Sequence[Task]
    ) -> None:
        """Run a way on tasks, several at once. Raises OutOfTime, and Interrupted after Ctrl-C."""
        way = outcomes[0].way
        readings = [each.reading for each in outcomes]

        def one(task: Task) -> list[bool | None] | None:
            if self.session.calls.stop.is_set() or time.monotonic() >= self.ends:
                return None
            return self.passes(agent, way, task, readings)

        with ThreadPoolExecutor(self.session.settings.jobs, thread_name_prefix="alone") as pool:
            found = list(pool.map(one, tasks))
        for task, passed in zip(tasks, found, strict=True):
            for outcome, each in zip(outcomes, passed or (), strict=False):
                outcome.passed[task.id] = each
        if self.session.calls.stop.is_set():
            raise Interrupted("stopped")
        if None in found:
            raise OutOfTime

    def passes(
        self, agent: Scaffold, way: Way, task: Task, readings: Sequence[Reading]
    ) -> list[bool | None]:
        """Return whether a tool's answer passes, read in each way; None where it gives none."""
        domain = self.session.domain
        try:
            answers = self.answers(agent, way, task, readings)
            graded = dict[str, bool]()
            for answer in filter(None, answers):
                about: JsonDict = {"attempt": "alone", "task": task.id, "scaffold": agent.digest}
                trace = Trace(**about, model="", answer=answer)
                if answer not in graded:
                    grade = domain.grade(task, trace, self.session.backend)
                    graded[answer] = bool(grade.passed)
            return [graded.get(answer) for answer in answers]
        except Exception as e:  # a stranger's domain, or no sandbox: a build does not end by it
            self.broken = f"it could not be run: {str(e) or type(e).__name__}".splitlines()[0]
            return [None for _ in readings]

    def answers(
        self, agent: Scaffold, way: Way, task: Task, readings: Sequence[Reading]
    ) -> list[str]:
        """Return a tool's answer to a task, read in each way."""
        domain = self.session.domain
        prompt = redact(task.prompt, acted_on=True)
        words = json.dumps({way.key: prompt}) if way.key else prompt
        with closing(prepare_sandbox(domain, task, self.session.backend)) as sandbox:
            furnish(sandbox, agent, prompt)
            before = domain.collect(task, sandbox)
            output = sandbox.run(
                _PATH + way.command.replace(HOLE, shlex.quote(prompt)),
                timeout=min(LONGEST, agent.agent.limits.command_seconds),
                stdin=words.encode("utf-8", "surrogatepass") if way.stdin else b"",
            )
            left = domain.collect(task, sandbox)
        if left.strip() and left != before:
            return [left for _ in readings]
        return [read_printed(output, reading) for reading in readings]


def read_printed(output: Output, reading: Reading) -> str:
    """Return what a tool printed as an answer; '' for none, and where it failed."""
    text = output.text.strip() if output.status == 0 else ""
    if reading == "whole":
        return text
    lines = text.splitlines()
    return lines[-1].strip() if len(lines) > 1 else ""


def told_commands(agent: Scaffold, name: str) -> list[str]:
    """Return the commands with a tool that an agent's prompts and lessons, or its own help, tell,
    with holes for the task's words."""
    texts = [text for path, text in agent.files.items() if path.endswith(".md")]
    texts.append(agent.help(name))
    found = dict[str, None]()
    for match in (m for text in texts for m in _CODE.finditer(text)):
        for line in (match[1] or match[2]).splitlines():
            command = _HOLE.sub(HOLE, line.strip().removeprefix("$ "))
            if name in tools(command.replace(HOLE, "x")) and command != name:
                found[command] = None
    return [command for command in found if "{{" not in command and "{%" not in command][:3]


def _one_text(schema: str) -> str:
    """Return the one text that a tool's schema asks for; '' where it asks for other things."""
    parameters = read_schema(schema)[0] or {}
    properties: Mapping[str, JsonDict] = parameters.get("properties", {})
    needed = parameters.get("required") or list(properties)
    one = needed[0] if len(needed) == 1 else ""
    return one if one and properties.get(one, {}).get("type") == "string" else ""


def _shown(command: str) -> str:
    """Return a command as it is told."""
    text = " ".join(command.replace(HOLE, "WORDS").split())
    return f"`{text if len(text) <= 80 else text[:77] + '...'}`"


def choose_outcome(outcomes: Sequence[WayOutcome]) -> WayOutcome | None:
    """Return the way that passes most, the first of equals; None where none answers."""
    there = [outcome for outcome in outcomes if outcome.answered]
    return max(there, key=lambda outcome: outcome.won, default=None)
