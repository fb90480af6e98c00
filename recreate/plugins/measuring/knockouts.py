"""`credit`: what each part of an agent is worth, by attempts with half of its parts switched off;
`rebase`: the same with another model, and how many tasks it takes until the build is repaid.

An agent with parts off is an agent: it has a digest, its attempts have the keys that they have
everywhere, so that what runs/ holds is read back, and going on in the same folder pays for nothing
twice. Validation tasks only. `factorial` says which parts go off together and what came of it;
`parts` what the parts are.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

from recreate.agents.lint import problems, refuse
from recreate.agents.scaffold import Scaffold
from recreate.agents.workplace import try_servers
from recreate.api.errors import BadInput, Fault, OutOfBudget
from recreate.api.shapes import JsonDict
from recreate.api.types import Record, Task, digest
from recreate.builder import past
from recreate.builder.estimate import typical
from recreate.builder.learning import Learning
from recreate.builder.measure import bring, measured_tasks
from recreate.builder.selection import Rater
from recreate.plugins.measuring.blame import AgentVersion, LineWriter, folders_of, versions
from recreate.plugins.measuring.factorial import (
    FOLLOWED,
    Analysis,
    Observation,
    Row,
    Worth,
    analyse,
    cells,
    design,
    half_width,
    mirror,
    stretch,
)
from recreate.plugins.measuring.parts import AgentPart, AgentParts, parts_of
from recreate.runs.attempts import Place, Score, Work, count_new, key_of, run_work
from recreate.runs.budget import Budget
from recreate.runs.reader import Run, default_seed, find_agent, named_run, runs
from recreate.runs.session import Session

Knockout = tuple[Row, Task, int]
"""Which parts are on, the task, and which time they meet."""


class PartCredit(Record):
    """A part: worth with its interval, from so many attempts. advice: what to do with it, in words.
    needs: about how many attempts in all would tell, where these do not; edits: the run, revision
    and reason of each edit of it.
    """

    path: str
    worth: float
    lo: float
    hi: float
    attempts: int
    advice: str
    kind: str
    says: str
    also: tuple[str, ...] = ()
    needs: int = 0
    edits: tuple[Mapping[str, str], ...] = ()

    @property
    def dropped(self) -> bool:
        """Whether the agent is better, or no worse, without it."""
        return self.advice.endswith("drop")


class PairCredit(Record):
    """Two parts of which one is worth `value` more where the other is on; kind: clash, overlap or
    need."""

    parts: tuple[str, str]
    value: float
    lo: float
    hi: float
    kind: str


class BreakEven(Record):
    """tasks: how many it takes until what the builds cost is repaid, None for never; best, worst:
    at the ends of the gain's interval. unit: usd or tokens. saved: by the agent, a task; says: all
    of it in words, and what is assumed.
    """

    tasks: int | None
    best: int | None
    worst: int | None
    unit: str
    cost: float
    saved: float
    says: str


class Credit(Record):
    """full, bare: the predicted score with all parts on, and with none; gain: their difference
    [gain_lo, gain_hi].

    paid: attempts that this run made; the others were read back. fixed: what could not be switched
    off, and why.
    """

    domain: str
    scaffold: str
    agent: str
    base: str
    model: str
    tasks: int
    repeats: int
    attempts: int
    paid: int
    excluded: int
    usd: float
    full: float
    bare: float
    gain: float
    gain_lo: float
    gain_hi: float
    level: str
    parts: tuple[PartCredit, ...]
    pairs: tuple[PairCredit, ...] = ()
    fixed: tuple[tuple[str, str], ...] = ()
    note: str = ""
    status: str = "done"
    break_even: BreakEven | None = None
    task_ids: tuple[str, ...] = ()


class CreditPlan(Record):
    """What it takes, before anything is paid. attempts: new ones of the design; known: of earlier
    runs; follow_up: more at most, where pairs are suspected. half: half of the interval that a
    part's worth will have."""

    parts: int
    tasks: int
    attempts: int
    known: int
    follow_up: int
    usd: tuple[float, float]
    minutes: tuple[float, float]
    half: float
    source: str


class Lineage(Record):
    """An agent, what it was made from, and its versions between the two, the newest first."""

    agent: Scaffold
    base: Scaffold
    versions: tuple[AgentVersion, ...] = ()

    @property
    def runs(self) -> list[Path]:
        """The builds that made it."""
        return list(
            dict.fromkeys(
                v.run for v in self.versions if v.run is not None and v.revision is not None
            )
        )


def newest_build(where: Path) -> str:
    """What `last` means here: the newest run that made revisions of its own. Raises BadInput when
    there is none."""
    for folder in runs(where):
        first = next(Run(folder).records("start"), {})
        if (folder / "seed").is_dir() and first.get("command") != "prune":
            return str(folder)
    raise BadInput(
        "there is no build here yet",
        fix="recreate build makes one; or name an agent",
        code="no-run",
    )


def lineage_of(what: str, where: Path, base: str = "") -> Lineage:
    """Of a scaffold: all builds of the workspace back to the first seed; of a run: itself. base:
    what it was made from, where somebody names it. Raises BadInput (`no-parts`) for an agent that
    has nothing beyond it.
    """
    agent = find_agent(what, where)
    run = named_run(what.rpartition(":")[0] or what, where, whole=":" not in what)
    run = (
        None
        if (where / "scaffolds" / what / "agent.toml").is_file()
        or Path(what, "agent.toml").is_file()
        else run
    )
    known = list(versions(agent, dict.fromkeys([*folders_of(where), *([run] if run else [])])))
    seed = Run(run).seed() if run is not None else None
    if base:
        start = find_agent(base, where)
    elif seed is not None:
        start = seed
    elif len(known) > 1:
        start = known[-1].files
    else:
        start = _parent(agent, where)
    cut = next((n for n, v in enumerate(known) if v.files.digest == start.digest), len(known) - 1)
    if start.digest == agent.digest:
        raise BadInput(
            f"{what} has no parts: it is what it was made from, {start.name}",
            fix="name an agent that a build changed, or what it was made from: --base SCAFFOLD",
            code="no-parts",
        )
    return Lineage(agent=agent, base=start, versions=tuple(known[: cut + 1]))


def _parent(agent: Scaffold, where: Path) -> Scaffold:
    """What an agent says it was made from, else the seed of its domain."""
    if agent.agent.parent:
        try:
            return find_agent(agent.agent.parent, where)
        except BadInput:
            pass
    found = default_seed(f"seed-{agent.agent.domain}" if agent.agent.domain else "seed", where, "")
    return found if found.digest != agent.digest else default_seed("seed", where, "")


def parts_in(lineage: Lineage, settings: Any, *, whole: bool = False) -> AgentParts:
    """Its parts, with the limits that the settings give to both sides. Raises BadInput
    (`no-parts`)."""
    limits = settings.limits.model_dump()
    agent, base = (each.limited(limits) for each in (lineage.agent, lineage.base))
    refuse(agent)
    found = parts_of(agent, base, lineage.versions, whole=whole)
    if not len(found):
        why = f": {found.fixed[0][0]}: {found.fixed[0][1]}" if found.fixed else ""
        raise BadInput(
            f"no part of {agent.name} can be switched off{why}",
            fix="recreate diff shows what it has beyond its seed",
            code="no-parts",
        )
    return found


# --------------------------------------------------------------------------------------------- the
# experiment


class Knockouts:
    """The experiment of one run folder."""

    def __init__(self, session: Session, parts: AgentParts) -> None:
        self.session = session
        self.parts = parts
        self.checked = dict[Row, list[str]]()
        settings = session.settings
        self.tasks = measured_tasks(session, "validation", settings.validation)
        self.offers = Learning(session).offers()
        blocks = len(self.tasks) * settings.repeats
        if blocks < (least := max(3, stretch(len(parts)))):
            raise BadInput(
                f"to tell apart {len(parts)} parts takes {least} pairs of attempts at least, and"
                f" {len(self.tasks)} tasks x {settings.repeats} are {blocks}",
                fix=(
                    f"--repeats {-(-least // len(self.tasks))}, more --tasks, or --whole-edits: an"
                    " edit is one part"
                ),
                code="too-few-tasks",
            )
        self.work = self.designed(blocks)
        self.agree()

    def designed(self, blocks: int) -> list[Knockout]:
        """Each task under its rows and their mirrors; what a check refuses is left out, and
        said."""
        left = Counter[str]()
        met = Counter[tuple[str, Row]]()
        work = list[Knockout]()
        for n, half in enumerate(design(len(self.parts), blocks, self.session.settings.seed)):
            task = self.tasks[n % len(self.tasks)]
            rows = (half, mirror(half))
            if wrong := [fault for row in rows for fault in self.faults(row)]:
                left[wrong[0]] += 1
                continue
            for row in rows:
                work.append((row, task, met[task.id, row]))
                met[task.id, row] += 1
        for why, count in left.items():
            self.session.say(
                "note",
                {"text": f"{count} pairs of attempts are left out, since the check refuses: {why}"},
            )
        return work

    def faults(self, row: Row) -> list[str]:
        if row not in self.checked:
            self.checked[row] = problems(self.parts.without(row))
        return self.checked[row]

    def agree(self) -> None:
        """A folder goes on with the experiment that it was begun with."""
        which = digest([[self.parts.without(row).digest, task.id, n] for row, task, n in self.work])
        record = {"agent": self.parts.agent.digest, "base": self.parts.base.digest, "design": which}
        begun = next(self.session.journal.records("knockouts"), None)
        if begun is None:
            self.session.journal.add(
                "knockouts", **record, parts=[part.path for part in self.parts.parts]
            )
            self.session.journal.add(
                "agent", name=self.parts.agent.name, scaffold=self.parts.agent.digest
            )
        elif not record.items() <= begun.items():
            raise BadInput(
                "the agent, its parts or the tasks are others than this folder was begun with",
                fix="give another folder with --out",
                code="another-run",
            )

    def each(self, work: Sequence[Knockout]) -> list[Work]:
        """As the queue of attempts takes them: a row is a cell."""
        told: JsonDict = {"phase": "validation", "offers": self.offers}
        agents = ((self.parts.without(row), task, n) for row, task, n in work)
        return [
            Work(self.session, agent, task, n, cell=agent.digest, **told)
            for agent, task, n in agents
        ]

    def has_attempt(self, agent: Scaffold, task: Task, n: int) -> bool:
        """Whether the run folder has this attempt."""
        try:
            key = key_of(self.session, agent, task, n, self.offers)
        except Fault:  # its image cannot be had, which excludes the attempt when its turn comes
            return False
        id = self.session.journal.renamed.get(key, key)
        return (self.session.folder / "attempts" / id / "experience.json").exists()

    def unpaid(self, work: Sequence[Knockout]) -> int:
        return sum(
            count_new(self.session, w.scaffold, [w.task], [w.repeat], self.offers)
            for w in self.each(work)
        )

    def plan(self) -> CreditPlan:
        """What it will take; reads back what earlier runs paid for. Raises BadInput
        (`budget-too-small`)."""
        session = self.session
        settings = self.session.settings
        bring(session, self.each(self.work))
        new = sum(not self.has_attempt(w.scaffold, w.task, w.repeat) for w in self.each(self.work))
        begun = session.ledger.attempts
        rater = Rater(self.parts.agent.name, self.parts.agent.digest, session.model_name)
        known = past.read_attempts(
            session.workspace, session.domain, self.tasks, rater, session.settings.memory.namespace
        )
        span = typical(self.parts.agent, known, session.price, settings)
        price = session.price
        usd = [
            price.usd(u.tokens_in, u.tokens_out, u.tokens_cached, u.tokens_cache_written)
            for u in span[:2]
        ]
        budget = Budget.parse(settings.budget)
        wanted = [f"--budget {new + begun}attempts"] * (
            budget.attempts is not None and budget.attempts < new + begun
        )
        wanted += [f"--budget {new * usd[1]:.2f}usd"] * (
            budget.usd is not None and budget.usd < new * usd[0] / 2
        )
        if wanted:
            raise BadInput(
                f"a budget of {budget} does not pay for the {new} attempts that are to be made",
                fix=f"give {' and '.join(wanted)}, or fewer with --tasks and --repeats",
                code="budget-too-small",
            )
        pairs = min(FOLLOWED, len(self.parts) * (len(self.parts) - 1) // 2)
        return CreditPlan(
            parts=len(self.parts),
            tasks=len(self.tasks),
            attempts=new,
            known=len(self.work) - new,
            follow_up=(
                len(self.tasks) * (1 + min(len(self.parts), 2 * pairs) + pairs) if pairs else 0
            ),
            usd=(round(new * usd[0], 4), round(new * usd[1], 4)),
            minutes=_minutes(new * span.low.seconds, new * span.high.seconds, settings.jobs),
            half=round(half_width(len(self.parts), len(self.work), settings.gate.alpha), 3),
            source=span.source,
        )

    def run(self) -> tuple[Analysis, list[tuple[Knockout, Score]], str]:
        """(what was found, the attempts, why it ended early). Raises what `run_attempts` raises
        before the design is whole."""
        session = self.session
        for task in self.tasks[:1]:
            try_servers(self.parts.agent, task, session.domain, session.backend)
        made = self.scored(self.work)
        ended = ""
        found = self.analysed(made)
        follow = list(
            dict.fromkeys(
                chain.from_iterable(cells(len(self.parts), pair) for pair in found.suspects)
            )
        )
        more = [(row, task, 0) for row in follow if not self.faults(row) for task in self.tasks]
        done = {(row, task.id, n) for row, task, n in self.work}
        more = [(row, task, n) for row, task, n in more if (row, task.id, n) not in done]
        if more:
            names = "; ".join(
                " and ".join(self.parts.parts[n].path for n in pair) for pair in found.suspects
            )
            session.say(
                "note",
                {
                    "text": (
                        f"{len(more)} attempts more look at pairs that may depend on each other:"
                        f" {names}"
                    )
                },
            )
            try:
                bring(session, self.each(more))
                session.ledger.afford(self.unpaid(more))
                made += self.scored(more)
                found = self.analysed(made)
            except OutOfBudget:
                ended = "the budget ended before suspected pairs were looked at again"
        return found, made, ended

    def scored(self, work: Sequence[Knockout]) -> list[tuple[Knockout, Score]]:
        each = self.each(work)
        scores = dict[Place, Score]()
        self.session.say(
            "gather",
            {"phase": "validation", "total": len(work), "scaffold": self.parts.agent.digest},
        )
        run_work(self.session, each, scores)
        return [(one, scores[w.place]) for one, w in zip(work, each, strict=True)]

    def analysed(self, made: Sequence[tuple[Knockout, Score]]) -> Analysis:
        gate = self.session.settings.gate
        outcomes = [
            Observation(task.id, row, s.score) for (row, task, _), s in made if s.score is not None
        ]
        try:
            return analyse(outcomes, len(self.parts), alpha=gate.alpha, margin=gate.margin)
        except ValueError as e:
            raise BadInput(
                f"{e}: {len(made) - len(outcomes)} of {len(made)} attempts were excluded",
                fix="see why: recreate show RUN; then more --tasks or --repeats in another folder",
                code="too-few-tasks",
            ) from None


def credit(session: Session, parts: AgentParts) -> Credit:
    """What each part is worth with this session's model. The estimate is told before anything is
    paid."""
    work = Knockouts(session, parts)
    session.say("note", {"text": tell_plan(work.plan())})
    found, made, ended = work.run()
    return _store_result(session, _record(work, found, made, ended))


def rebase(session: Session, parts: AgentParts, lineage: Lineage, worth: float = 0.0) -> Credit:
    """The same with another model, and what of it to learn anew. worth: USD that a solved task is
    worth; 0: what it costs to solve one without the agent's parts."""
    work = Knockouts(session, parts)
    session.say("note", {"text": tell_plan(work.plan())})
    found, made, ended = work.run()
    record = _record(work, found, made, ended)
    before = _reached(lineage)
    behind = before is not None and record.full < before
    rows = [
        part.model_copy(update={"advice": "relearn"}) if behind and _useless(part) else part
        for part in record.parts
    ]
    change = {
        "parts": tuple(rows),
        "break_even": break_even(record, _costs(work, made), _sum_spent(lineage.runs), worth),
    }
    if before is not None:
        why = f"its builds' model reached {before:.3f} with it, this one {record.full:.3f}"
        change["note"] = "; ".join(filter(None, [record.note, why]))
    return _store_result(session, record.model_copy(update=change))


def _store_result(session: Session, record: Credit) -> Credit:
    session.journal.add("credit", result=record.model_dump(mode="json", by_alias=True))
    return record


def _useless(part: PartCredit) -> bool:
    return part.advice.startswith(("dead weight", "harmful"))


def _reached(lineage: Lineage) -> float | None:
    """The score at which the agent was kept last, by its builds' model."""
    judged = (
        v.revision.verdict.after
        for v in lineage.versions
        if v.revision is not None and v.revision.kept
    )
    return next((after for after in judged if after is not None), None)


class Cost(NamedTuple):
    """Of an attempt with all parts, and with none, in `unit`."""

    unit: str
    full: float
    bare: float


def _costs(work: Knockouts, made: Sequence[tuple[Knockout, Score]]) -> Cost:
    scored = [(row, task, s.usage) for (row, task, _), s in made if s.score is not None]
    unit = "usd" if any(usage.usd for _, _, usage in scored) else "tokens"
    values = [
        usage.usd if unit == "usd" else float(usage.tokens_in + usage.tokens_out)
        for *_, usage in scored
    ]
    outcomes = [
        Observation(task.id, row, value)
        for (row, task, _), value in zip(scored, values, strict=True)
    ]
    found = analyse(outcomes, len(work.parts), bounded=False)
    return Cost(unit, max(0.0, found.full), max(0.0, found.bare))


def _sum_spent(runs: Sequence[Path]) -> Mapping[str, float]:
    """What builds took by their ledgers, all roles."""
    totals = [Run(folder).spend().total for folder in runs]
    return {
        "usd": sum(t.usd for t in totals),
        "tokens": float(sum(t.tokens_in + t.tokens_out for t in totals)),
    }


def break_even(
    record: Credit, cost: Cost, paid: Mapping[str, float], worth: float = 0.0
) -> BreakEven:
    """After how many tasks the agent has saved what its builds cost; pure.

    A task saves what its solving is worth, times the gain in the score, less what the attempt costs
    more. Where nobody says what a solved task is worth, it is what one costs without the parts:
    cost / score.
    """
    unit = cost.unit
    build = paid[cost.unit]
    value = worth if worth else cost.bare / record.bare if record.bare > 0 else 0.0
    if worth and unit == "tokens":
        return _never(
            "tokens",
            build,
            "--worth is in USD, and these attempts have no price: give --price IN,OUT",
        )
    if not value:
        return _never(
            unit,
            build,
            "without its parts the agent solves nothing, so no cost stands for a solved task:"
            " --worth USD",
        )

    def tasks(gain: float) -> int | None:
        saved = value * gain - (cost.full - cost.bare)
        # else it is rounding
        return math.ceil(build / saved - 1e-9) if saved > 1e-9 * value else None

    saved = value * record.gain - (cost.full - cost.bare)
    money = "${:.4g}" if unit == "usd" else "{:,.0f} tokens"
    of = money.format(value) + (" as given" if worth else ", what one costs without the parts")
    middle = tasks(record.gain)
    best = tasks(record.gain_hi)
    worst = tasks(record.gain_lo)
    span = f"{_count(best)} to {_count(worst)} at the ends of the gain's interval"
    says = f"after {middle:,} tasks" if middle is not None else "never"
    gain = f"{record.gain:+.3f} [{record.gain_lo:+.3f}, {record.gain_hi:+.3f}]"
    says = (
        f"the build's {money.format(build)} are repaid {says} ({span}): a task saves"
        f" {money.format(saved)}, at a gain of {gain} and {money.format(cost.full)} an attempt in"
        f" place of {money.format(cost.bare)}; assumed: a solved task is worth {of}, and tasks to"
        " come are like these"
    )
    return BreakEven(
        tasks=middle, best=best, worst=worst, unit=unit, cost=build, saved=saved, says=says
    )


def _never(unit: str, cost: float, why: str) -> BreakEven:
    return BreakEven(
        tasks=None, best=None, worst=None, unit=unit, cost=cost, saved=0.0, says=f"not known: {why}"
    )


def _count(tasks: int | None) -> str:
    return "never" if tasks is None else f"{tasks:,}"


def tell_plan(plan: CreditPlan) -> str:
    """The estimate in a line."""
    more = f", and up to {plan.follow_up} more where pairs are suspected" if plan.follow_up else ""
    back = f" ({plan.known} are read back)" if plan.known else ""
    usd = " to ".join(dict.fromkeys(f"${x:.2f}" for x in plan.usd))
    minutes = " to ".join(dict.fromkeys(f"{x:g}" for x in plan.minutes))
    return (
        f"{plan.parts} parts on {plan.tasks} validation tasks: {plan.attempts}"
        f" attempts{back}{more}; {usd}, {minutes} minutes ({plan.source}). A part's worth will be"
        f" known to about {plan.half:.2f} either way"
    )


def _record(
    work: Knockouts, found: Analysis, made: Sequence[tuple[Knockout, Score]], ended: str
) -> Credit:
    session = work.session
    parts = work.parts
    scores = [s.score for _, s in made if s.score is not None]
    flat = (
        f"every attempt scored {scores[0]:g}: these tasks tell no part from another"
        if len(set(scores)) == 1
        else ""
    )
    gate = session.settings.gate
    # a prediction may lie beside what a score can be
    return Credit(
        domain=session.domain.name,
        scaffold=parts.agent.name,
        agent=parts.agent.digest,
        base=parts.base.digest,
        model=session.model_name,
        tasks=len(work.tasks),
        repeats=session.settings.repeats,
        attempts=found.attempts,
        paid=session.ledger.attempts,
        excluded=len(made) - len(scores),
        usd=round(session.ledger.record()["usd"], 6),
        full=round(min(1.0, max(0.0, found.full)), 4),
        bare=round(min(1.0, max(0.0, found.bare)), 4),
        gain=round(found.gain[0], 4),
        gain_lo=round(found.gain[1], 4),
        gain_hi=round(found.gain[2], 4),
        level=f"{1 - gate.alpha:.0%}, for all parts at once",
        parts=tuple(
            _part(part, worth, parts.parts, found.attempts, flat)
            for part, worth in zip(parts.parts, found.parts, strict=True)
        ),
        pairs=tuple(
            PairCredit(
                parts=(parts.parts[p.first].path, parts.parts[p.second].path),
                value=round(p.value, 4),
                lo=round(p.lo, 4),
                hi=round(p.hi, 4),
                kind=p.kind,
            )
            for p in found.pairs
        ),
        fixed=parts.fixed,
        note="; ".join(filter(None, [flat, ended])),
        status="budget" if ended else "done",
        task_ids=tuple(task.id for task in work.tasks),
    )


def _part(
    part: AgentPart, worth: Worth, every: Sequence[AgentPart], attempts: int, flat: str
) -> PartCredit:
    match worth.advice:
        case "clash":
            assert worth.with_ is not None
            advice = (
                f"clashes with {every[worth.with_].path}:"
                f" {'drop' if worth.drop else 'keep without it'}"
            )
        case "keep" | "undecided":
            advice = worth.advice
        case _:
            advice = f"{worth.advice}: drop"
    if flat:
        advice = "undecided"
    return PartCredit(
        path=part.path,
        worth=round(worth.value, 4),
        lo=round(worth.lo, 4),
        hi=round(worth.hi, 4),
        attempts=attempts,
        advice=advice,
        kind=part.kind,
        says=part.says,
        also=part.also,
        needs=0 if flat else worth.needed,
        edits=tuple(map(_edit, part.edits)),
    )


def _edit(writer: LineWriter) -> dict[str, str]:
    return {
        "origin": writer.origin,
        "run": str(writer.run or ""),
        "revision": writer.revision.id if writer.revision else "",
        "reason": writer.edit.reason if writer.edit else "",
    }


def _minutes(low: float, high: float, jobs: int) -> tuple[float, float]:
    return round(low / jobs / 60, 1), round(high / jobs / 60, 1)
