"""Scaffolds measured on a split, in a run folder; who measures one on test is written down here.

What an earlier measuring of this workspace paid for is read back by the attempt's key, whoever made
it.
"""

from __future__ import annotations

import math
import os
import random
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

from pydantic import Field

from recreate.agents.lint import problems, refuse
from recreate.agents.retrieval import LessonRetrieval
from recreate.agents.scaffold import Scaffold
from recreate.agents.workplace import try_servers
from recreate.api.errors import BadInput, Fault
from recreate.api.types import Record, Split, Task, Usage, digest
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
from recreate.runs.gate import interval, judge, pass_hat
from recreate.runs.reader import CellKey, Run
from recreate.runs.session import Session
from recreate.storage.files import locked
from recreate.storage.log import KIND, Log


class BenchResult(Record):
    """One scaffold on one split. mean with its 90 % interval [lo, hi] over `n` tasks; None when
    nothing was graded.

    set_aside: attempts that an infrastructure failure excluded; scores: task, repeat, score,
    experience of each, how it ended and what it took. usd, tokens, calls: of the graded attempts,
    when they were made; latency: seconds a reply took, their mean. pass_1 with its interval: the
    share that passed; pass_hat: k (as a text) -> the chance that k attempts at a task all pass.
    endings: how many ended how, `passed` and `failed` those that handed in. test_openings: on the
    test split the number of this opening, else how many there were; opened_before: the openings
    that asked the same of the same agent; test_agents: how many agents the split was opened for by
    then, this one counted. date: the UTC day on which the run last measured; command: what measures
    it anew, '' where no command can.
    """

    scaffold: str
    digest: str
    model: str
    domain: str
    split: str
    n: int
    repeats: int
    mean: float | None
    lo: float | None
    hi: float | None
    usd: float
    tokens: int
    set_aside: int
    test_openings: int
    scores: tuple[Mapping[str, Any], ...]
    pass_1: float | None = None
    pass_1_lo: float | None = None
    pass_1_hi: float | None = None
    pass_hat: Mapping[str, float] = Field(default={})
    tokens_in: int = 0
    tokens_out: int = 0
    calls: int = 0
    latency: float | None = None
    endings: Mapping[str, int] = Field(default={})
    opened_before: tuple[int, ...] = ()
    test_agents: int = 0
    date: str = ""
    command: str = ""

    @property
    def key(self) -> CellKey:
        """Which place of a table it is."""
        return CellKey(self.model, self.digest, self.split, self.domain)

    @property
    def by_place(self) -> dict[tuple[str, int], float | None]:
        """(task, repeat) -> score, None for an attempt that was excluded."""
        return {(s["task"], s["repeat"]): s["score"] for s in self.scores}

    def row(self) -> dict[str, Any]:
        """The object that `--json` prints as a cell of the table."""
        return self.model_dump(mode="json", exclude={"schema_"})


class Opening(NamedTuple):
    """One measuring on a domain's test split: its number, and before, agents: as opened_before and
    test_agents of BenchResult. Of another split: how many openings there were."""

    number: int
    before: tuple[int, ...] = ()
    agents: int = 0


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
    opening: Opening
    name: str = ""

    @property
    def key(self) -> CellKey:
        """Which place of a table it is."""
        return CellKey(
            self.session.model_name, self.scaffold.digest, self.split, self.session.domain.name
        )

    def opened(self) -> Cell:
        """The same, its models ready and its opening of the test split counted: it can be measured
        now."""
        self.session.start()
        if self.split != "test":
            return self
        repeats = self.session.settings.repeats
        return replace(
            self, opening=opening(self.session, self.scaffold, self.tasks, repeats, self.offers)
        )

    def work(self) -> list[Work]:
        """Its attempts, in the order of (task, repeat)."""
        rest: dict[str, Any] = {"phase": self.split, "offers": self.offers, "cell": self.name}
        each = (
            (task, repeat) for task in self.tasks for repeat in range(self.session.settings.repeats)
        )
        return [Work(self.session, self.scaffold, task, repeat, **rest) for task, repeat in each]

    def result(self, scores: Mapping[Place, Score]) -> BenchResult:
        """What came of it; an attempt without a score was not made."""
        session, made = self.session, [scores[w.place] for w in self.work() if w.place in scores]
        run, repeats = Run(session.folder), session.settings.repeats
        return _result(
            run, self.key, self.scaffold.name, made, repeats=repeats, opening=self.opening
        )


def measure(
    session: Session, scaffold: Scaffold, split: Split, most: int = 0, *, reuse: bool = False
) -> BenchResult:
    """`scaffold` on `most` tasks of a split, 0 for all. What the workspace holds out as another
    split is left out.

    On the test split it is an opening, written down and counted. reuse: attempts that lie in runs/
    are not made again.
    """
    cell = begin(session, scaffold, split, most).opened()
    if reuse:
        bring(session, cell.work())
    scores = run_attempts(
        session,
        scaffold,
        cell.tasks,
        repeats=session.settings.repeats,
        phase=split,
        offers=cell.offers,
    )
    return cell.result({("", s.task, s.repeat): s for s in scores})


def startable(session: Session, scaffold: Scaffold) -> None:
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
    """A cell whose agent is seen to start, in the journal."""
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
    if session.tape is not None:
        session.tape.agent(scaffold.name, scaffold.digest, scaffold.files)
    if scaffold.agent.memory.recall:
        session.recollection.state()  # before any cell adds to memory
    startable(session, scaffold)
    for task in tasks[:1]:
        try_servers(scaffold, task, session.domain, session.backend)
    return Cell(session, scaffold, split, tasks, offers, Opening(test_openings(session)), name)


def bring(session: Session, work: Sequence[Work]) -> int:
    """Take what was attempted before into this run folder: how many attempts that were. Of a
    recording or a replay nothing: a cassette holds all that it was made from."""
    if session.tape is not None:
        return 0
    own = session.folder / "attempts"
    here = {entry.name for entry in os.scandir(own)} if own.is_dir() else set[str]()
    before = _attempted(session.workspace, {*here, *session.journal.renamed})
    found = Counter[str]()
    for each in work if before else ():
        try:
            key = key_of(each.session, each.scaffold, each.task, each.repeat, each.offers)
        except Fault:  # its image cannot be had, which excludes the attempt when its turn comes
            continue
        try:
            known = read_experience(before[key]) if key in before else None
        except BadInput:  # damaged: it is attempted again
            continue
        # what has become another split since then is another record: it is attempted anew
        if known is not None and known.split == each.task.split:
            write_whole(known, own / key)
            found[each.scaffold.name] += 1
    for name, count in found.items():
        session.say("note", {"text": f"{count} attempts of {name} are read back from runs/"})
    return found.total()


def _attempted(workspace: Path, own: set[str]) -> dict[str, Path]:
    """The folders of attempts in runs/, by their keys; not those of `own`. Of what two runs
    attempted at once it is the one that ended first, whatever the runs are called."""
    found: dict[str, Path] = {}
    for folder in sorted(workspace.glob("runs/*/attempts")):
        keys = _keys(folder.parent)
        with os.scandir(folder) as entries:
            for name in (entry.name for entry in entries):
                key = keys.get(name, name)
                if key in own:
                    continue
                there, here = found.get(key), folder / name
                found[key] = here if there is None or _ended_at(here) < _ended_at(there) else there
    return found


def _keys(run: Path) -> dict[str, str]:
    """Of the attempts of a run that are known by another id than their key, which memory had
    already: id -> key."""

    def wanted(raw: bytes) -> bool:
        return raw.startswith(KIND + b'experience"') and b'"key":"' in raw

    records = (
        line.record for line in Log(run / "journal.jsonl").lines(wanted=wanted) if line.record
    )
    return {str(r["attempt"]): str(r["key"]) for r in records if "key" in r}


def _ended_at(attempt: Path) -> float:
    """When an attempt's record was written; inf where it has not ended."""
    try:
        return (attempt / "experience.json").stat().st_mtime
    except FileNotFoundError:
        return math.inf


def _result(
    run: Run,
    key: CellKey,
    name: str,
    made: Sequence[Score],
    *,
    repeats: int,
    opening: Opening,
) -> BenchResult:
    held = {(s.task, s.repeat): s for s in made if s.score is not None}
    alpha, nothing = run.settings.gate.alpha, (None, None, None)
    mean, lo, hi = (
        interval({place: s.score for place, s in held.items()}, alpha=alpha) if held else nothing
    )
    passes = {place: s.passed for place, s in held.items()}
    passed = {place: float(value) for place, value in passes.items()}
    pass_1, pass_lo, pass_hi = interval(passed, alpha=alpha) if held else nothing
    usage = sum((s.usage for s in held.values()), Usage())
    return BenchResult(
        scaffold=name,
        digest=key.agent,
        model=key.model,
        domain=key.domain,
        split=key.split,
        n=len({task for task, _ in held}),
        repeats=repeats,
        mean=mean,
        lo=lo,
        hi=hi,
        usd=round(usage.usd, 6),
        tokens=usage.tokens_in + usage.tokens_out,
        tokens_in=usage.tokens_in,
        tokens_out=usage.tokens_out,
        calls=usage.calls,
        latency=round(usage.seconds / usage.calls, 3) if usage.calls else None,
        set_aside=len(made) - len(held),
        pass_1=pass_1,
        pass_1_lo=pass_lo,
        pass_1_hi=pass_hi,
        pass_hat={str(k): value for k, value in pass_hat(passes).items()},
        endings=dict(sorted(Counter(s.how for s in made).items())),
        test_openings=opening.number,
        opened_before=opening.before,
        test_agents=opening.agents,
        date=run.date,
        command=run.command,
        scores=tuple(_score(s) for s in made),
    )


def _score(s: Score) -> dict[str, Any]:
    row = {
        "task": s.task,
        "repeat": s.repeat,
        "score": s.score,
        "experience": s.attempt,
        "passed": s.passed,
    }
    paid = {
        "usd": round(s.usage.usd, 6),
        "tokens": s.usage.tokens_in + s.usage.tokens_out,
        "calls": s.usage.calls,
    }
    paid |= {"seconds": round(s.usage.seconds, 3)}
    return row | {"ending": s.how} | paid | ({"fault": s.fault} if s.fault else {})


def measured_tasks(session: Session, split: Split, most: int = 0) -> list[Task]:
    """The tasks that `measure` takes, in their order."""
    tasks = tasks_of(session, split)
    if most and most < len(tasks):
        random.Random(f"{session.settings.seed}/{split}").shuffle(tasks)
        tasks = tasks[:most]
    return tasks


def measured_in(run: Run, workspace: Path) -> list[BenchResult]:
    """What a run measured, read back: of a build its result on validation, else each agent on each
    split.

    Raises BadInput when there is nothing.
    """
    seed, found = run.seed(), run.results()
    if not found:
        raise BadInput(
            f"{run.folder} measured nothing",
            fix="name a run of bench or of build",
            code="no-scores",
        )
    names = {r["scaffold"]: r["name"] for r in run.records("agent")} | (
        {seed.digest: seed.name} if seed else {}
    )
    alone, arms = seed is None and len(found) == 1, run.arms()
    opened = Counter(r.get("domain") for r in openings_of(workspace).read())
    return [
        _result(
            run,
            key,
            arms.get((key.model, key.agent)) or names.get(key.agent, key.agent),
            [
                _made(run, row)
                for _, row in sorted((_excluded(run, key, alone=alone) | rows).items())
            ],
            repeats=len({repeat for _, repeat in rows}),
            opening=_opened(run, key, opened[key.domain]),
        )
        for key, rows in found.items()
    ]


def _excluded(run: Run, key: CellKey, *, alone: bool) -> dict[tuple[str, int], dict[str, Any]]:
    """(task, repeat) -> the record of an attempt of this cell that was excluded. alone: the run has
    no other cell, and those whose cell is not known are its own."""
    whose = {"scaffold": key.agent, "model": key.model, "domain": key.domain}
    return {
        (row["task"], row["repeat"]): row
        for row in run.excluded()
        if row["phase"] == key.split
        and (whose.items() <= row.items() or (alone and "scaffold" not in row))
    }


def _made(run: Run, row: Mapping[str, Any]) -> Score:
    """An attempt as a run's journal and its folder have it; one whose folder is damaged has its
    score."""
    if "fault" in row:
        return Score(
            row["attempt"], row["task"], row["repeat"], None, ending="error", fault=row["fault"]
        )
    try:
        known = read_experience(run.folder / "attempts" / row["attempt"], steps=False)
    except BadInput:
        known = None
    trace = known.trace if known is not None else None
    return Score(
        attempt=row["attempt"],
        task=row["task"],
        repeat=row["repeat"],
        score=row["score"],
        passed=bool(row["passed"]),
        ending=row["ending"],
        limit=trace.limit if trace is not None else "",
        usage=trace.usage if trace is not None else Usage(),
    )


def compared(
    before: Sequence[BenchResult],
    after: Sequence[BenchResult],
    *,
    alpha: float = 0.10,
    seed: int = 0,
    kinds: Mapping[str, str] = {},
) -> list[dict[str, Any]]:
    """The gate's verdict on each agent of `after` against each of `before`, over the tasks of one
    split that both were measured on; a pair without such tasks is left out. kinds: task -> its
    kind."""
    verdicts = []
    for a in before:
        for b in after:
            old, new = a.by_place, b.by_place
            both = sorted(old.keys() & new.keys())
            verdict = judge(
                {k: old[k] for k in both},
                {k: new[k] for k in both},
                alpha=alpha,
                seed=seed,
                kinds=kinds,
            )
            if (a.domain, a.split) != (b.domain, b.split) or not verdict.tasks:
                continue
            place = {
                "split": a.split,
                "domain": a.domain,
                "before_agent": a.scaffold,
                "after_agent": b.scaffold,
            }
            place |= {"before_digest": a.digest, "after_digest": b.digest}
            place |= {"before_model": a.model, "after_model": b.model}
            verdicts.append({**place, **verdict.model_dump(mode="json", exclude={"schema_"})})
    return verdicts


def openings_of(workspace: Path) -> Log:
    """A workspace's list of test openings."""
    return Log(workspace / "runs" / "test_openings.jsonl", durable=True)


def openings_file(session: Session) -> Log:
    """The list of the session's workspace."""
    return openings_of(session.workspace)


def test_openings(session: Session) -> int:
    """How often the test split of this domain was opened in this workspace."""
    return len(_openings(session, openings_file(session)))


def _openings(session: Session, file: Log) -> list[Mapping[str, Any]]:
    """Those of this domain, in their order; a damaged line may be one, and counts as such."""
    records = [line.record for line in file.lines()]
    return [r or {} for r in records if r is None or r.get("domain") == session.domain.name]


def opening(
    session: Session,
    scaffold: Scaffold,
    tasks: Sequence[Task],
    repeats: int,
    offers: LessonRetrieval | None,
) -> Opening:
    """This opening of the domain's test split, written down before anything is attempted.

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
    file = openings_file(session)
    with locked(file.path.parent), file:
        opened = _openings(session, file)
        number = next((n for n, r in enumerate(opened, 1) if known.items() <= r.items()), 0)
        found = _numbered(number or len(opened) + 1, [*opened[: number or None], facts])
        if not number:
            file.append({"kind": "test-opened", **facts})
            in_run = {k: v for k, v in facts.items() if k not in ("run", "of")}
            session.journal.add("test-opened", **found._asdict(), **in_run)
    return found


def _numbered(number: int, opened: Sequence[Mapping[str, Any]]) -> Opening:
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
    return Opening(number, before, len({r.get("scaffold") for r in opened}))


def _opened(run: Run, key: CellKey, many: int) -> Opening:
    """The last opening of a cell that is read back; for none of its own, how many there were."""
    own = {"scaffold": key.agent, "model": key.model}
    found = [
        r for r in run.records("test-opened") if key.split == "test" and own.items() <= r.items()
    ]
    return (
        Opening(found[-1]["number"], tuple(found[-1]["before"]), found[-1]["agents"])
        if found
        else Opening(many)
    )
