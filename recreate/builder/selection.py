"""Which tasks are taken: --tasks, --kind and --difficulty, within the splits and what the workspace
holds out."""

from __future__ import annotations

import difflib
import fnmatch
import random
import re
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

from recreate.agents.scaffold import Scaffold
from recreate.api.errors import BadInput
from recreate.api.ports import Domain, Rated, extras
from recreate.api.registry import find
from recreate.api.types import PassRate, Record, Split, Task
from recreate.domains.rates import RateFiles
from recreate.memory.held_out import HeldOut
from recreate.runs.gate import MIN_TASKS
from recreate.runs.reader import default_seed, find_agent
from recreate.runs.search import best_word
from recreate.runs.session import Session
from recreate.runs.settings import Select, Settings

CREATE = "create"
"""As `scaffold`: the optimizer writes the seed."""


class Rater(NamedTuple):
    """Whose pass rates tell how hard a task is: an agent by its name and digest, and its model."""

    scaffold: str
    agent: str
    model: str


def strata(domain: Domain, tasks: Sequence[Task]) -> dict[str, str]:
    """Return what each task is counted with; {} where that is the same for all."""
    of = {task.id: str(extras(domain).stratum(task)) for task in tasks}
    return of if len(set(of.values())) > 1 else {}


Selector = Callable[[Domain, Sequence[Task], str, Path, Rater], tuple[list[Task], str]]
"""What `--difficulty` finds (kind `selector`): from the domain, the tasks that may be taken, what
was typed, the workspace and whose rates to the tasks chosen of them, and what is told of it."""


class Selected(Record):
    """The ids that may be taken, of all splits, and what a user is told of how they were chosen."""

    ids: frozenset[str]
    told: tuple[str, ...] = ()

    def of(self, tasks: Iterable[Task]) -> list[Task]:
        """Return those of `tasks`, in their order."""
        return [task for task in tasks if task.id in self.ids]


def selected(session: Session) -> Selected | None:
    """Return the selection of a run; None when nothing is selected. It is made once: rates that are
    measured later, by this very run too, change nothing in it. Raises BadInput."""
    settings = session.settings
    if not settings.select.is_given:
        return None
    wanted = settings.select.model_dump(mode="json")
    here = {"domain": session.domain.name, "wanted": wanted}
    for record in session.journal.records("selection"):
        if all(record.get(key, value) == value for key, value in here.items()):
            return Selected(ids=frozenset(record["tasks"]), told=tuple(record.get("told", ())))
    seed = seed_of(settings, session.domain.name, session.workspace, session.model_name)
    rater = Rater(seed.name, seed.digest, session.model_name)
    found = select(session.domain, settings.select, session.workspace, rater)
    session.journal.add("selection", tasks=sorted(found.ids), told=found.told, **here)
    for text in found.told:
        session.say("note", {"text": text})
    return found


def tasks_of(session: Session, split: Split, *, needed: bool = True) -> list[Task]:
    """Return the tasks of a split that a run may take: selected, and not held out as another split.

    needed: raises BadInput when none is left.
    """
    tasks, found = session.tasks(split, needed=needed), selected(session)
    if found is None:
        return tasks
    left = found.of(tasks)
    if needed and tasks and not left:
        raise BadInput(
            f"none of the {len(tasks)} {split} tasks of {session.domain.name} is among those"
            f" selected ({described(session.settings.select)})",
            fix=(
                f"select {split} tasks too, or leave the flag out; recreate tasks list"
                f" {session.settings.domain} takes the same flags"
            ),
            code="too-few-tasks",
        )
    return left


def draw_tasks(tasks: Sequence[Task], seed: int, split: Split, most: int) -> list[Task]:
    """Return the first of a split's tasks in an order that the seed fixes."""
    drawn = [*tasks]
    random.Random(f"{seed}/{split}").shuffle(drawn)
    return drawn[:most]


def fitted(settings: Settings, domain: Domain, held: HeldOut, found: Selected | None) -> Settings:
    """Return the settings with no more tasks than may be used of the domain; what is in memory is
    not limited by them."""

    def there(split: Split) -> int:
        usable = held.usable(domain, split)[0]
        return len(usable if found is None else found.of(usable))

    train = settings.train if settings.from_experience else min(settings.train, there("train"))
    judged = min(settings.validation, there("validation"))
    return settings.model_copy(update={"train": max(1, train), "validation": max(1, judged)})


def seed_of(settings: Settings, domain: str, where: Path, model: str) -> Scaffold:
    """Return the agent that a build with these settings starts from, as far as it is there
    already."""
    named = settings.scaffold if settings.scaffold != CREATE else "seed"
    return named_or_default(
        settings, find_agent(named, where) if named else None, domain, where, model
    )


def named_or_default(
    settings: Settings, named: Scaffold | None, domain: str, where: Path, model: str
) -> Scaffold:
    """Return the agent that was named, else that of a plug-in (`--agent`), else the domain's own or
    a seed; with the limits that the settings give. Raises BadInput (`usage`) when two are named."""
    if (table := settings.agent_table) is not None and named is not None:
        raise BadInput(
            "--agent is in place of --scaffold, and both are given",
            fix="leave one out",
            code="usage",
        )
    if table is not None:
        named = table.agent()
    agent = named or default_seed(domain, where, model, settings.name)
    return agent.limited(settings.limits.model_dump())


def select(domain: Domain, wanted: Select, where: Path, rater: Rater) -> Selected:
    """Return the tasks that all of `wanted` hold for; `difficulty` goes by the rater's pass rates.
    Raises BadInput."""
    tasks, told = list(domain.tasks()), list[str]()
    if wanted.tasks:
        known = {task.id: task for task in tasks}
        tasks = [
            known[id]
            for id in dict.fromkeys(id for text in wanted.tasks for id in matching(tasks, text))
        ]
    if wanted.kind:
        kinds = {task.id: extras(domain).kind(task) for task in domain.tasks()}
        if wanted.kind not in kinds.values():
            there = ", ".join(sorted({*kinds.values()} - {""}))
            raise BadInput(
                f"{domain.name} has no tasks of the kind {wanted.kind!r}",
                fix=(
                    f"--kind {there}"
                    if there
                    else "leave --kind out: this domain has one kind of task"
                ),
                code="unknown-kind",
            )
        tasks = [task for task in tasks if kinds[task.id] == wanted.kind]
    if wanted.difficulty:
        choose: Selector = find("selector", "difficulty")
        tasks, text = choose(domain, tasks, wanted.difficulty, where, rater)
        told.append(text)
    return Selected(ids=frozenset(task.id for task in tasks), told=tuple(told))


def rates_of(domain: Domain, where: Path) -> Rated:
    """Return where the domain's measured pass rates are: its own, else the workspace's files."""
    return domain if isinstance(domain, Rated) else RateFiles([where / "benchmarks" / domain.name])


def pass_rate(rates: Iterable[PassRate], rater: Rater) -> float | None:
    """Return the rate of one task; where the agent was not measured itself, that of what was called
    so before."""
    named = [r for r in rates if (r.scaffold, r.model) == (rater.scaffold, rater.model)]
    fit = [r for r in named if r.agent == rater.agent] or named
    attempts = sum(r.attempts for r in fit)
    return sum(r.passed for r in fit) / attempts if attempts else None


def described(wanted: Select) -> str:
    """Return the flags that a selection was made with."""
    flags = [f"--kind {wanted.kind}"] * bool(wanted.kind)
    flags += [f"--difficulty {wanted.difficulty}"] * bool(wanted.difficulty)
    return ", ".join([*flags, *[f"--tasks, {len(wanted.tasks)} of them"] * bool(wanted.tasks)])


def too_few(count: int, session: Session) -> BadInput:
    """Return the error for fewer validation tasks than the gate decides from."""
    wanted, found = session.settings.select, selected(session)
    told = "".join(f"; {text}" for text in found.told) if found else ""
    asked = "task is" if count == 1 else "tasks are"
    asked += f" left by {described(wanted)}" if found else " too few"
    return BadInput(
        f"{count} validation {asked}: the gate decides from {MIN_TASKS} on{told}",
        fix=(
            "select more: recreate tasks list takes the same flags, and says how many there are"
            if found
            else "raise --validation, or add tasks with recreate tasks make"
        ),
        code="too-few-tasks",
    )


def cannot_decide(settings: Settings) -> BadInput | None:
    """Return the error for settings with which no candidate could be kept, whatever it did; None
    where one could."""
    gate, tasks = settings.gate, settings.validation
    if not settings.rounds:
        return None
    if not gate.searches:
        return find("gate", "each").explain_too_few(settings)  # type: ignore[no-any-return]
    if best_word(gate, settings.rounds, [1.0] * tasks) != "none":
        return None
    return BadInput(
        f"--validation {tasks} decides nothing in --rounds {settings.rounds}: an agent that solved"
        " all of these, where the seed solves none, could not be told from it",
        fix=f"more with --validation{', or fewer --rounds' * (tasks >= MIN_TASKS)}",
        code="too-few-tasks",
    )


_SLICE = re.compile(r"(-?\d*):(-?\d*)(?::(-?\d*))?")


def matching(tasks: Sequence[Task], text: str) -> list[str]:
    """Return the ids that a word of --tasks means: `0:20` is the first twenty of each split, in
    their order, `0:20:2` every second of them; what has * ? or [ is a pattern (fnmatch); else what
    `find_task` takes. Raises BadInput where there is none."""
    if found := _SLICE.fullmatch(text):
        try:
            part = slice(*(int(end) if end else None for end in found.groups()))
            range(0)[part]
        except ValueError:  # `-`, or a step of 0
            fix = (
                "--tasks FROM:TO:STEP as in Python: 0:40:2 takes every second of the first forty of"
                " each split"
            )
            raise BadInput(f"--tasks {text} is no slice", fix=fix, code="usage") from None
        splits = dict.fromkeys(task.split for task in tasks)
        ids = [task.id for split in splits for task in [t for t in tasks if t.split == split][part]]
        missing = f"--tasks {text} takes none of {len(tasks)} tasks"
        fix = "--tasks 0:20 takes the first twenty of each split"
    elif any(c in text for c in "*?["):
        ids = fnmatch.filter([task.id for task in tasks], text)
        missing, fix = f"no task's id is like {text!r}", "recreate tasks list DOMAIN shows them"
    else:
        return [find_task(tasks, text).id]
    if not ids:
        raise BadInput(missing, fix=fix, code="unknown-task")
    return ids


def find_task(tasks: Iterable[Task], id: str) -> Task:
    """Return the task of an id, of the unique beginning of one, or else of the last parts of one,
    from a `:` on; but a number alone is none, since it says how many elsewhere. Raises BadInput
    (`unknown-task`) with the near ones.
    """
    known = {task.id: task for task in tasks}
    if id in known:
        return known[id]
    begin = [name for name in known if id and name.startswith(id)]
    end = [name for name in known if id and name.endswith(f":{id}") and not _is_number(id)]
    near, how = (begin, "begin") if begin else (end, "end")
    if len(near) == 1:
        return known[near[0]]
    if near:
        some = ", ".join(near[:8]) + (", ..." if near[8:] else "")
        raise BadInput(
            f"{len(near)} tasks {how} with {id!r}", fix=f"one of: {some}", code="unknown-task"
        )
    raise unknown_task(id, list(known))


def _is_number(text: str) -> bool:
    return text.removeprefix("-").isdigit()


def unknown_task(task: str, known: list[str]) -> BadInput:
    """Return the error for a task id that is not there, with the one whose whole, or whose last
    parts, are nearest."""
    parts = ((":".join(id.split(":")[at:]), id) for id in known for at in range(id.count(":") + 1))
    whole = dict(reversed(list(parts)))  # of several the first
    near = difflib.get_close_matches(task, whole, 1, 0.3)
    count = " (--train and --validation say how many)" if _is_number(task) else ""
    return BadInput(
        f"there is no task {task!r}{count}",
        fix=f"did you mean {whole[near[0]]}?" if near else "recreate tasks list shows them",
        code="unknown-task",
    )
