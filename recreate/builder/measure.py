"""Scaffolds measured on a split, in a run folder; who measures one on test is written down here.

What an earlier measuring of this workspace paid for is read back by the attempt's key, whoever made
it.
"""

from __future__ import annotations

import math
import os
import random
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from recreate.agents.lint import problems, refuse
from recreate.agents.retrieval import LessonRetrieval
from recreate.agents.scaffold import Scaffold
from recreate.agents.workplace import try_servers
from recreate.api.errors import BadInput, Fault
from recreate.api.shapes import JsonDict, JsonMap
from recreate.api.types import Experience, Split, Task, digest
from recreate.builder.learning import Learning
from recreate.builder.selection import strata, tasks_of
from recreate.runs.attempts import (
    Place,
    Score,
    Work,
    key_of,
    read_experience,
    run_attempts,
    write_whole,
)
from recreate.runs.journal import records
from recreate.runs.reader import CellKey, Run
from recreate.runs.results import BenchResult, SplitOpening, openings_log, sum_up
from recreate.runs.session import Session
from recreate.runs.settings import Settings, load_run
from recreate.storage.files import is_locked, locked
from recreate.storage.log import KIND, Log


@dataclass(frozen=True)
class Cell:
    """What is measured in one place of a table, before it is: an agent on tasks, as the session has
    model and domain.

    name: what the table calls it.
    """

    session: Session
    scaffold: Scaffold
    split: Split
    tasks: Sequence[Task]
    offers: LessonRetrieval | None
    opening: SplitOpening
    name: str = ""

    @property
    def key(self) -> CellKey:
        """Which place of a table it is."""
        return CellKey(
            self.session.model_name, self.scaffold.digest, self.split, self.session.domain.name
        )

    def count_opening(self) -> Cell:
        """Return the same, its models ready and its opening of the test split counted: it can be
        measured now."""
        self.session.start()
        if self.split != "test":
            return self
        repeats = self.session.settings.repeats
        return replace(
            self,
            opening=record_opening(self.session, self.scaffold, self.tasks, repeats, self.offers),
        )

    def work(self) -> list[Work]:
        """Return its attempts, in the order of (task, repeat)."""
        rest: JsonDict = {"phase": self.split, "offers": self.offers, "cell": self.name}
        each = (
            (task, repeat) for task in self.tasks for repeat in range(self.session.settings.repeats)
        )
        return [Work(self.session, self.scaffold, task, repeat, **rest) for task, repeat in each]

    def result(self, scores: Mapping[Place, Score]) -> BenchResult:
        """Return what came of it; an attempt without a score was not made."""
        session = self.session
        made = [scores[w.place] for w in self.work() if w.place in scores]
        run = Run(session.folder)
        repeats = session.settings.repeats
        return sum_up(
            run, self.key, self.scaffold.name, made, repeats=repeats, opening=self.opening
        )


def measure(
    session: Session,
    scaffold: Scaffold,
    split: Split,
    most: int = 0,
    *,
    reuse: bool = False,
    judged: bool = True,
) -> BenchResult:
    """Measure `scaffold` on `most` tasks of a split, 0 for all. What the workspace holds out as
    another split is left out.

    On the test split it is an opening, written down and counted. reuse: attempts that lie in runs/
    are not made again; judged: nor those by which a build judged that agent.
    """
    cell = begin(session, scaffold, split, most).count_opening()
    if reuse:
        bring(session, cell.work(), judged=judged)
    scores = run_attempts(
        session,
        scaffold,
        cell.tasks,
        repeats=session.settings.repeats,
        phase=split,
        offers=cell.offers,
    )
    return cell.result({("", s.task, s.repeat): s for s in scores})


def warn_of_faults(session: Session, scaffold: Scaffold) -> None:
    """Before an agent is only attempted or measured: refuse one whose program the sandbox has not,
    as a build does, and say what is wrong with one of ours, which is measured as it stands."""
    if scaffold.foreign:
        refuse(scaffold, session.backend)
    elif wrong := problems(scaffold):
        more = f", and {len(wrong) - 1} more" if len(wrong) > 1 else ""
        session.say(
            "note", {"text": f"{scaffold.name}/{wrong[0]}{more}; it is measured as it stands"}
        )


def begin(
    session: Session, scaffold: Scaffold, split: Split, most: int = 0, name: str = ""
) -> Cell:
    """Begin a cell whose agent is seen to start, in the journal."""
    tasks = measured_tasks(session, split, most)
    offers = Learning(session).offers()
    who = {"name": scaffold.name, "scaffold": scaffold.digest}
    if not any(who.items() <= r.items() for r in session.journal.records("agent")):
        session.journal.add("agent", **who)
    key = CellKey(session.model_name, scaffold.digest, split, session.domain.name)._asdict()
    if not any(key.items() <= r.items() for r in session.journal.records("cell")):
        session.journal.add("cell", **key)
    of = dict[str, list[str]]()
    for id, kind in strata(session.domain, tasks).items():
        of.setdefault(kind, []).append(id)
    told = {
        "domain": session.domain.name,
        "of": [{"kind": kind, "tasks": ids} for kind, ids in of.items()],
    }
    if of and not any(told.items() <= r.items() for r in session.journal.records("kinds")):
        session.journal.add("kinds", **told)
    if session.replay is not None:
        session.replay.check_agent(scaffold.name, scaffold.digest)
    if scaffold.agent.memory.recall:
        session.recollection.state()  # before any cell adds to memory
    warn_of_faults(session, scaffold)
    for task in tasks[:1]:
        try_servers(scaffold, task, session.domain, session.backend)
    return Cell(
        session, scaffold, split, tasks, offers, SplitOpening(count_openings(session)), name
    )


def bring(session: Session, work: Sequence[Work], *, judged: bool = True) -> int:
    """Take what was attempted before into this run folder: how many attempts that were. Of a
    recording or a replay nothing: a recording holds all that it was made from. judged: see
    `find_attempted`."""
    own = session.folder / "attempts"
    found = Counter[str]()
    for key, each, known, _ in find_attempted(session, work, judged=judged):
        write_whole(known, own / key)
        found[each.scaffold.name] += 1
    for name, count in found.items():
        session.say("note", {"text": f"{count} attempts of {name} are read back from runs/"})
    return found.total()


def find_attempted(
    session: Session, work: Sequence[Work], *, judged: bool
) -> Iterator[tuple[str, Work, Experience, str]]:
    """Yield (key, work, attempt, run's name) of what other runs in runs/ attempted, unless this run
    is recorded or replayed.

    judged: also attempts by which a build kept, or turned down, that very agent. They flatter it,
    or the contrary: what is compared with it is not to gain by them. Without these, runs that go on
    or are replays give nothing either.
    """
    if session.replay is not None or session.settings.record:
        return
    own = session.folder / "attempts"
    here = {entry.name for entry in os.scandir(own)} if own.is_dir() else set[str]()
    own_ids = {*here, *session.journal.renamed}
    before = list_attempted(session.workspace, session.settings, own_ids, judged=judged)
    wanted = dict[str, Work]()
    for each in work if before else ():
        with suppress(Fault):  # its image cannot be had, which excludes it when its turn comes
            wanted[key_of(each.session, each.scaffold, each.task, each.repeat, each.offers)] = each
    agents = set[str]() if judged else {each.scaffold.digest for each in work}
    for key, known in read_attempted(session.workspace, before, wanted, agents):
        # what has become another split since then is another record: it is attempted anew
        if known.split == wanted[key].task.split:
            yield key, wanted[key], known, before[key].parents[1].name


def list_attempted(
    workspace: Path, settings: Settings, own: Set[str] = frozenset(), *, judged: bool
) -> dict[str, Path]:
    """Return the folders of attempts in runs/, by their keys; not those of `own`, nor of runs that
    asked otherwise than `settings` do. Of what two runs attempted at once it is the one that ended
    first, whatever the runs are called. judged: see `find_attempted`."""
    found: dict[str, Path] = {}
    for folder in sorted(workspace.glob("runs/*/attempts")):
        if not _asked_alike(folder.parent, settings, judged):
            continue
        keys = _keys(folder.parent)
        with os.scandir(folder) as entries:
            for name in (entry.name for entry in entries):
                key = keys.get(name, name)
                if key in own:
                    continue
                there = found.get(key)
                here = folder / name
                found[key] = here if there is None or _ended_at(here) < _ended_at(there) else there
    return found


def _asked_alike(run: Path, settings: Settings, judged: bool) -> bool:
    """Whether a run's attempts may stand for those of a run with these settings, where their keys
    are the same."""
    try:
        then = load_run(run)
    except BadInput:
        return False
    if not judged and (then.replay or is_locked(run / "lock")):
        return False
    return then.models.drop == settings.models.drop


def read_attempted(
    workspace: Path, before: Mapping[str, Path], keys: Iterable[str], agents: Set[str]
) -> Iterator[tuple[str, Experience]]:
    """Yield (key, attempt) of those of `before` that ended, but for those by which a build judged
    one of these agents."""
    biased = _list_judged(workspace, agents) if before and agents else set[tuple[str, str]]()
    for key in keys:
        with suppress(BadInput):  # damaged: it is attempted again
            known = read_experience(before[key]) if key in before else None
            if known is not None and (known.run, known.digest) not in biased:
                yield key, known


def _list_judged(workspace: Path, agents: Set[str]) -> set[tuple[str, str]]:
    """Return (run, agent) for the runs in runs/ whose gate judged one of these agents."""
    found = set[tuple[str, str]]()
    for file in workspace.glob("runs/*/journal.jsonl"):
        runs = set[str]()
        seen = set[str]()
        for record in records(Log(file), "start", "revision"):
            if record["kind"] == "start":
                runs.add(record["run"])
            elif record["revision"]["id"] in agents:
                seen.add(record["revision"]["id"])
        found |= {(run, agent) for run in runs for agent in seen}
    return found


def _keys(run: Path) -> dict[str, str]:
    """Return of the attempts of a run that are known by another id than their key, which memory had
    already: id -> key."""

    def wanted(raw: bytes) -> bool:
        return raw.startswith(KIND + b'experience"') and b'"key":"' in raw

    records = (
        line.record for line in Log(run / "journal.jsonl").lines(wanted=wanted) if line.record
    )
    return {str(r["attempt"]): str(r["key"]) for r in records if "key" in r}


def _ended_at(attempt: Path) -> float:
    """Return when an attempt's record was written; inf where it has not ended."""
    try:
        return (attempt / "experience.json").stat().st_mtime
    except FileNotFoundError:
        return math.inf


def measured_tasks(session: Session, split: Split, most: int = 0) -> list[Task]:
    """Return the tasks that `measure` takes, in their order."""
    tasks = tasks_of(session, split)
    if most and most < len(tasks):
        random.Random(f"{session.settings.seed}/{split}").shuffle(tasks)
        tasks = tasks[:most]
    return tasks


def count_openings(session: Session) -> int:
    """Return how often the test split of this domain was opened in this workspace."""
    return len(_openings(session, openings_log(session.workspace)))


def _openings(session: Session, file: Log) -> list[JsonMap]:
    """Return those of this domain, in their order; a damaged line may be one, and counts as
    such."""
    records = [line.record for line in file.lines()]
    return [r or {} for r in records if r is None or r.get("domain") == session.domain.name]


def record_opening(
    session: Session,
    scaffold: Scaffold,
    tasks: Sequence[Task],
    repeats: int,
    offers: LessonRetrieval | None,
) -> SplitOpening:
    """Write down this opening of the domain's test split, before anything is attempted.

    One measuring is one opening: these attempts (agent, tasks, model, lessons, grader, repeats) in
    this run folder. Going on with it, or reading it back, is the same one; another agent there, or
    the same one elsewhere, is the next.
    """
    # Without the images: they are pulled one by one, each when its first attempt begins.
    each = ((task, repeat) for task in tasks for repeat in range(repeats))
    work = sorted(
        key_of(session, scaffold, task, repeat, offers, image="") for task, repeat in each
    )
    known = {"run": str(session.folder), "measuring": digest(work)}
    asked = {"model": session.model_name, "of": sorted(task.id for task in tasks)}
    facts = {
        "domain": session.domain.name,
        "scaffold": scaffold.digest,
        "tasks": len(tasks),
        **known,
        **asked,
    }
    file = openings_log(session.workspace)
    with locked(file.path.parent), file:
        opened = _openings(session, file)
        number = next((n for n, r in enumerate(opened, 1) if known.items() <= r.items()), 0)
        found = _numbered(number or len(opened) + 1, [*opened[: number or None], facts])
        if not number:
            file.append({"kind": "test-opened", **facts})
            in_run = {k: v for k, v in facts.items() if k not in ("run", "of")}
            session.journal.add("test-opened", **found._asdict(), **in_run)
    return found


def _numbered(number: int, opened: Sequence[JsonMap]) -> SplitOpening:
    """opened: the lines up to this opening's own, which is the last. The same question is the same
    agent and model on a test task that it was measured on before; a line of before 2026-11-23 does
    not say which, and may be of it.
    """
    own = opened[-1]
    before = tuple(
        n
        for n, r in enumerate(opened[: number - 1], 1)
        if (r.get("scaffold"), r.get("model", own["model"])) == (own["scaffold"], own["model"])
        and not {*own["of"]}.isdisjoint(r.get("of", own["of"]))
    )
    return SplitOpening(number, before, len({r.get("scaffold") for r in opened}))
