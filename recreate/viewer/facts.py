"""The facts of a run, gathered once: report.md, the run's page, the site, `show` and the terminal
are views of them."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

from recreate.agents.history import History
from recreate.agents.scaffold import Scaffold
from recreate.api import paths
from recreate.api.errors import BadInput
from recreate.api.plugins import names
from recreate.api.registry import find
from recreate.api.shapes import JsonDict
from recreate.api.types import Change, GateClaim, Lesson, Revision, Study, Usage, Verdict
from recreate.lessons import draws
from recreate.lessons.context import offered_ids
from recreate.runs.budget import Spend
from recreate.runs.gate import interval, unjudged
from recreate.runs.reader import BuildResult, Run
from recreate.runs.results import (
    BenchResult,
    average_by_task,
    judge_pairs,
    pair_cells,
    read_results,
)
from recreate.runs.settings import Settings
from recreate.storage.log import LARGEST
from recreate.viewer.text import signed

Scores = Mapping[str, Mapping[tuple[str, int], float]]
"""scaffold digest -> (task, repeat) -> validation score"""

HARDER = (
    "harder tasks: --difficulty 0.2..0.8, --kind real, --data FILE; more of them: --validation N;"
    " the same score for less: --keep-cheaper"
)
"""What to type after a build that ended because nothing could be kept."""

CLAIMS = {
    "shown": "better (shown)",
    "likely": "likely better",
    "none": "no difference shown",
    "cheaper": "cheaper, and not worse",
}
"""What a build may say of the agent that it hands over."""

REHEARSED = {
    "rehearse": "a rehearsal of an edit",
    "select": "a trial of one of several candidates",
}
"""Phases of attempts at train tasks that the optimizer made, not the agent's own."""


@dataclass(frozen=True)
class Version:
    """The seed (number 0) or a candidate (from 1, in the order they were judged). parent: a number,
    None if unknown.

    mean, lo, hi: its validation score with the interval of that score; None when it was not
    measured.
    """

    number: int
    id: str
    parent: int | None
    fate: str
    title: str
    why: str
    tasks: Mapping[str, float]
    mean: float | None = None
    lo: float | None = None
    hi: float | None = None

    @property
    def on(self) -> bool:
        """Whether the agent went on from here."""
        return self.fate in ("seed", "kept")


class LearnedLesson(NamedTuple):
    """What a build's memory made of a lesson that joined no other.

    events: (round, counted from 1; what happened; why), its birth and what joined or supported it
    aside; joined: how many lessons did; shown: what came of the draws; agent: what became of it in
    the agent.
    """

    lesson: Lesson
    events: list[tuple[int, str, str]]
    joined: int
    shown: str
    agent: list[str]


class SplitCount(NamedTuple):
    """Attempts of a split that ended, and how many of them passed."""

    attempts: int
    passed: int


@dataclass(frozen=True)
class RunFacts:
    """What a run folder says, each fact read once and only when a view asks for it.

    result: of a build whose process has it already. where: the workspace, for the count of test
    openings.
    """

    run: Run
    result: BuildResult | None = None
    where: Path = field(default_factory=paths.workspace)

    @property
    def settings(self) -> Settings:
        return self.run.settings

    @cached_property
    def kind(self) -> str:
        """build | tune | bench | run."""
        if (self.run.folder / "seed").is_dir():
            return "build"
        kinds = {record["kind"] for record in self.run.records("tune", "agent", "arm")}
        return "tune" if "tune" in kinds else "bench" if kinds else "run"

    @cached_property
    def status(self) -> str:
        return self.run.status()

    @cached_property
    def start(self) -> JsonDict:
        """The record of the first start; {} for a run that never began."""
        return next(self.run.records("start"), {})

    @property
    def model(self) -> str:
        return str(self.start.get("model") or self.settings.model)

    @property
    def domain(self) -> str:
        return str(self.start.get("domain") or self.settings.domain)

    @property
    def sandbox(self) -> str:
        return str(self.start.get("sandbox") or self.settings.sandbox)

    @cached_property
    def spend(self) -> Spend:
        return self.run.spend()

    @cached_property
    def usage(self) -> dict[tuple[str, str], Usage]:
        """(role, phase) -> what its calls used."""
        return self.run.usage

    @cached_property
    def excluded(self) -> list[JsonDict]:
        """Attempts that failed because of the infrastructure and count for no agent."""
        return self.run.excluded()

    @cached_property
    def attempts(self) -> dict[str, SplitCount]:
        """How many attempts of each split ended, and passed."""
        ended = Counter[str]()
        passed = Counter[str]()
        for record in self.run.records("experience"):
            ended[record["split"]] += 1
            passed[record["split"]] += bool(record["passed"])
        return {split: SplitCount(count, passed[split]) for split, count in ended.items()}

    # of a build

    @cached_property
    def built(self) -> BuildResult:
        """What the build came to, status `unfinished` while it has not ended. Raises BadInput when
        the folder is not a build's."""
        return self.result or _read_result(self.run)

    @cached_property
    def seed(self) -> Scaffold | None:
        return self.run.seed()

    @cached_property
    def revisions(self) -> list[Revision]:
        return self.run.revisions()

    @cached_property
    def parts(self) -> Mapping[str, list[JsonDict]]:
        """Revision -> what became of each part that it changed, as plug-ins tell it: `text` in a
        line, and `remark` what a reader of the agent has to know."""
        found = defaultdict[str, list[JsonDict]](list)
        for name in names("account"):
            for id, parts in find("account", name)(self.run).items():
                found[id] += parts
        return found

    @cached_property
    def waiting(self) -> Revision | None:
        return self.run.waiting()

    @cached_property
    def verdict(self) -> Verdict | None:
        """The verdict on what a build kept, beside its seed; None for none, and for another run."""
        if self.seed is None or not (self.run.kept or self.status == "ceiling"):
            return None
        return self.run.validation(self.seed.digest, self.run.result)

    @cached_property
    def scores(self) -> Scores:
        """Validation scores by agent, by the journal."""
        scores: dict[str, dict[tuple[str, int], float]] = {}
        for record in (*self.run.taken_attempts(), *self.run.records("experience")):
            if record["split"] == "validation":
                place = record["task"], record["repeat"]
                scores.setdefault(record["scaffold"], {})[place] = record["score"]
        return scores

    @cached_property
    def versions(self) -> list[Version]:
        """The seed and every judged candidate, in order."""
        built = self.built
        listed = list[Version]()
        listed.append(self._version(0, built.seed.digest, None, "seed", "the seed", ""))
        for number, r in enumerate(built.revisions, 1):
            parent = next((v.number for v in reversed(listed) if v.id == r.parent), None)
            words = name_fate(r), name_revision(r), explain_fate(r)
            listed.append(self._version(number, r.id, parent, *words))
        return listed

    def _version(
        self, number: int, id: str, parent: int | None, fate: str, title: str, why: str
    ) -> Version:
        held = self.scores.get(id, {})
        alpha = self.settings.gate.alpha
        range = interval(held, alpha=alpha) if held else (None, None, None)
        return Version(number, id, parent, fate, title, why, average_by_task(held), *range)

    @property
    def before(self) -> Version:
        return self.versions[0]

    @property
    def after(self) -> Version:
        """The version that the build ended with."""
        final = self.built.scaffold.digest
        return next((v for v in reversed(self.versions) if v.id == final), self.versions[0])

    @cached_property
    def studies(self) -> list[Study]:
        return self.run.studies()

    @cached_property
    def idle_rounds(self) -> list[JsonDict]:
        """Rounds of which no candidate came: `round` and `reason`."""
        return list(self.run.records("nothing"))

    @cached_property
    def lessons(self) -> list[LearnedLesson]:
        """The lessons that a build changed: those in use first, then those that most attempts
        support."""
        return list_learned(self.run, self.revisions)

    @cached_property
    def lessons_cost(self) -> str:
        """What the lessons took, in all and for each; '' where none was learned."""
        return tell_lessons_cost(self.run, self.usage, self.lessons)

    @cached_property
    def reruns(self) -> dict[str, str]:
        """Attempt -> which lesson it was a re-run with, or without."""
        return describe_reruns(self.run)

    def tell_agent(self, digest: str, rerun: bool = False) -> str:
        """Return whose scaffold an attempt ran: the seed's, a revision's, or a draft's that nobody
        judged. rerun: of a lesson, which an agent that carries it lacks."""
        if digest == self.built.seed.digest:
            return "the seed"
        for number, revision in enumerate(self.built.revisions, 1):
            if revision.id == digest:
                return f"revision {number}"
        if rerun:
            return "the agent without its file of it"
        return "a draft of the optimizer, which no validation judged"

    @cached_property
    def left_out(self) -> str:
        """RUN:DIGEST of the agent that a build arrived at and did not hand over, '' for none."""
        handed_over = {self.built.scaffold.digest, self.built.seed.digest, ""}
        current = self.run.current if self.built.verdict.claim else ""
        return "" if current in handed_over else f"{paths.short(self.run.folder)}:{current}"

    @property
    def flattery(self) -> str:
        """What it costs that a score is of the tasks that chose its agent: figures of `python -m
        tests.lab.evidence reuse`."""
        if self.built.scaffold.digest == self.built.seed.digest:
            return "These validation tasks chose no agent, so the score does not flatter."
        claim = self.built.verdict.claim
        if claim is not None and claim.anew is not None:
            return (
                "The first attempts chose the agent, so that their score flatters it; those made"
                f" afterwards chose nothing, and their gain is {claim.anew:+.3f}."
            )
        return (
            "The same validation tasks judged every candidate, so this score flatters the result:"
            " simulated builds that kept something ended 11 to 17 points of a hundred too high on"
            " 20 tasks, 8 to 10 on 40 and 2 to 4 on 100."
        )

    @property
    def provenance(self) -> str:
        """Of which agents a build's score is, on what, when, for how much, and the command that
        makes it anew."""
        agents = (self.built.seed.digest, self.built.scaffold.digest)
        again = f"; again: {self.run.command}" if self.run.command else ""
        return (
            f"agent {' -> '.join(dict.fromkeys(agents))} on validation, {self.run.date},"
            f" ${self.spend.total.usd:.4f} for the whole build{again}"
        )

    @property
    def test_command(self) -> str:
        """The command that measures what a build made on the test tasks."""
        agent = f"{paths.short(self.run.folder)}:{self.built.scaffold.digest}"
        return f"recreate bench --scaffold {agent} --domain {self.settings.domain} --split test"

    # of a bench, and of a training

    @cached_property
    def cells(self) -> list[BenchResult]:
        """What a bench measured; [] for another run."""
        if self.seed is not None or not self.run.cells():
            return []
        return read_results(self.run, self.where)

    @cached_property
    def differences(self) -> list[JsonDict]:
        """The gate's verdict on each cell beside the baseline that the bench named for it."""
        if not self.cells or self.run.baselines() is None:
            return []
        pairs = pair_cells(self.run, self.cells)
        return [each.record() for each in judge_pairs(pairs, self.settings, self.run.kinds())]

    @cached_property
    def updates(self) -> list[JsonDict]:
        """What a training says of each step."""
        return list(self.run.records("update"))

    @cached_property
    def tuning(self) -> JsonDict | None:
        """What is trained, from what."""
        return next(self.run.records("tune"), None)


def name_fate(revision: Revision) -> str:
    """Return kept | rejected (by a person) | dropped (by the gate)."""
    if revision.kept:
        return "kept"
    return "rejected" if revision.review.startswith("rejected") else "dropped"


def tell_fate(revision: Revision) -> str:
    """Return a revision's fate, in words: what the build went on from is kept for now."""
    for_now = revision.kept and revision.verdict.step
    return name_fate(revision) + " for now" * for_now


def stand_text(verdict: Verdict) -> str:
    """Return how a candidate stands beside the current agent, in a word."""
    diff = verdict.diff or 0.0
    return "ahead" if diff > 0 else "behind" if diff < 0 else "level"


def range_text(verdict: Verdict) -> str:
    """Return a verdict's interval, '' for none."""
    if verdict.lo is None or verdict.hi is None:
        return ""
    return f" [{signed(verdict.lo)}, {signed(verdict.hi)}]"


def verdict_text(verdict: Verdict) -> str:
    """Return a verdict in one line."""
    if verdict.diff is None or verdict.before is None or verdict.after is None:
        return f"{verdict.verdict}: {verdict.reason}"
    if verdict.claim is not None:
        return claim_text(verdict, verdict.claim)
    if verdict.step:
        scores = f"{verdict.before:.3f} -> {verdict.after:.3f} on {count(verdict.tasks, 'task')}"
        return f"{stand_text(verdict)}: {scores}; {verdict.reason}"
    interval = range_text(verdict)
    p = f", p = {verdict.p:.3f}" if verdict.p is not None else ""
    return (
        f"{verdict.verdict}: {verdict.before:.3f} -> {verdict.after:.3f}, difference"
        f" {signed(verdict.diff)}{interval} over {verdict.tasks} tasks x {verdict.repeats}{p}"
        + (f"; {verdict.reason}" if verdict.reason else "")
    )


def claim_text(verdict: Verdict, claim: GateClaim) -> str:
    """Return what a build claims, in one line."""
    if verdict.before == verdict.after and not claim.looks:
        score = "" if "the score is" in verdict.reason else f"the score is {verdict.before:.3f}; "
        return f"{CLAIMS[claim.word]}: {score}{verdict.reason}"
    attempts = count(verdict.repeats, "attempt")
    parts = [f"{verdict.before:.3f} -> {verdict.after:.3f}"]
    if claim.anew is not None:
        parts.append(f"{signed(claim.anew)} in the attempts that chose nothing")
    parts.append(f"{claim.won} won, {claim.lost} lost of {verdict.tasks} tasks x {attempts}")
    return f"{CLAIMS[claim.word]}: {', '.join(parts)}" + (
        f"; {verdict.reason}" if verdict.reason else ""
    )


def explain_fate(revision: Revision) -> str:
    """Return the reason for a revision's fate, in one line."""
    if name_fate(revision) == "rejected":
        return "rejected by review" + revision.review.removeprefix("rejected")
    v = revision.verdict
    if v.diff is None:
        return f"not measured: {v.reason}" if v.reason else "not measured"
    told = f"{v.verdict}, {signed(v.diff)}{range_text(v)}"
    if v.step:
        told = f"{stand_text(v)}, {signed(v.diff)} on {count(v.tasks, 'task')}"
    return told + (f": {v.reason}" if v.reason else "")


def name_revision(revision: Revision) -> str:
    """Return what a revision is about: its edits' first reason, or else the files."""
    reasons = [" ".join(e.reason.split()) for e in revision.edits if e.reason.strip()]
    files = ", ".join(dict.fromkeys(e.path for e in revision.edits))
    text = reasons[0] if reasons else files or "no edit"
    more = f" (and {len(revision.edits) - 1} more)" if len(revision.edits) > 1 else ""
    return (text if len(text) <= 200 else text[:197].rstrip() + "...") + more


def choose_agent(scaffold: Scaffold, run: Run) -> BuildResult:
    """Return any agent of a run as a result: its score against the seed's as it was measured
    there."""
    seed = run.seed()
    waiting = run.waiting()
    assert seed is not None
    verdict = run.validation(seed.digest, scaffold.digest)
    verdict = verdict or unjudged("undecided", "these files had no attempts")
    revisions = (*run.revisions(), *([waiting] if waiting else []))
    return BuildResult("chosen", seed, scaffold, verdict, revisions)


def _read_result(run: Run) -> BuildResult:
    seed = run.seed()
    if seed is None:
        raise BadInput(
            f"{run.folder.name} is not a build",
            fix="name a run of recreate build; recreate show RUN shows a bench",
            code="not-a-build",
        )
    revisions = run.revisions()
    end = run.end()
    final = seed
    if run.result != seed.digest:
        final = History(run.folder / "scaffold.git").read(run.result)
    verdict = run.validation(seed.digest, final.digest)
    return BuildResult(
        status=str(end["status"]) if end else "unfinished",
        seed=seed,
        scaffold=final,
        verdict=verdict or unjudged("undecided", "validation has not ended"),
        revisions=tuple(revisions),
        waiting=run.waiting(),
    )


# ------------------------------------------------------------------------------------------------
# lessons


def describe_reruns(run: Run) -> dict[str, str]:
    """Return attempt -> which lesson it was a re-run with, or without: where none was shown, those
    that were at that place."""
    made = [r for r in run.records("experience") if r.get("phase") == "rerun"]
    shown = dict[str, set[str]]()
    beside = dict[tuple[str, int], set[str]]()
    for r in made:
        try:
            shown[r["attempt"]] = offered_ids(run.experience(r["attempt"]))
        except BadInput:  # its folder is gone
            continue
        beside.setdefault((r["task"], r["repeat"]), set()).update(shown[r["attempt"]])
    words = dict[str, str]()
    for r in made:
        lessons = shown.get(r["attempt"])
        if lessons is None:
            words[r["attempt"]] = "a re-run with or without a lesson"
            continue
        names = ", ".join(sorted(lessons or beside[r["task"], r["repeat"]])) or "any lesson"
        words[r["attempt"]] = f"a re-run {'with' if lessons else 'without'} {names}"
    return words


def list_learned(run: Run, revisions: Sequence[Revision]) -> list[LearnedLesson]:
    """Return the lessons that a build changed: those in use first, then by support."""
    now = dict[str, Lesson]()
    events = dict[str, list[tuple[int, str, str]]]()
    for record in run.records("memory"):
        now |= {x.id: x for x in map(Lesson.model_validate, record["after"])}
        for change in map(Change.model_validate, record["changes"]):
            if change.kind not in ("born", "merged", "supported"):
                event = (record["round"] + 1, change.kind, change.why)
                events.setdefault(change.lesson, []).append(event)
    agent = dict[str, list[str]]()
    for number, revision in enumerate(revisions, 1):
        for edit in revision.edits:
            if edit.path.startswith("memory/"):
                words = "taken out" if edit.origin == "prune" else "taken into the agent"
                became = f"{'' if revision.kept else 'not '}{words}, revision {number}"
                name = edit.path.removeprefix("memory/").removesuffix(".md")
                agent.setdefault(name, []).append(became)
    alone = [x for x in now.values() if x.status != "merged"]
    alone.sort(key=lambda x: (x.status != "active", -len(x.supports), x.id))
    here = {r["attempt"] for r in run.records("experience")}
    shown = {x.id: "; ".join(filter(None, (x.origin, _tell_draws(x, here)))) for x in alone}
    return [
        LearnedLesson(x, events.get(x.id, []), len(x.merged), shown[x.id], agent.get(x.id, []))
        for x in alone
    ]


def _tell_draws(lesson: Lesson, here: Collection[str]) -> str:
    """Return what came of a lesson's draws in these attempts of a build, and over all builds where
    others made some."""
    inside = tuple(d for d in lesson.draws if d.experience in here)
    own = lesson.model_copy(update={"draws": inside})
    if len(inside) in (0, len(lesson.draws)):
        return draws.describe_draws(lesson) + ", in other builds" * (
            len(inside) < len(lesson.draws)
        )
    return (
        f"in this build {draws.describe_draws(own)}; over all builds {draws.describe_draws(lesson)}"
    )


def tell_lessons_cost(
    run: Run, usage: Mapping[tuple[str, str], Usage], lessons: Sequence[LearnedLesson]
) -> str:
    """Return what a build's lessons took, in all and for each; '' where none was learned."""
    if not lessons:
        return ""
    asking = [u for (_, phase), u in usage.items() if phase == "observe"]
    spent = sum((u for (_, phase), u in usage.items() if phase == "rerun"), sum(asking, Usage()))
    asked = sum(u.calls for u in asking)
    again = sum(r.get("phase") == "rerun" for r in run.records("experience"))
    rose = [any(kind == "promoted" for _, kind, _ in x.events) for x in lessons]
    pairs = zip(lessons, rose, strict=True)
    proven = sum(rose)
    before = sum(not new and x.lesson.status == "active" for x, new in pairs)
    usd = spent.usd
    each = f"${usd / len(lessons):.4f} for each of {count(len(lessons), 'lesson')}"
    if proven:
        each += f", ${usd / proven:.4f} for each of {count(proven, 'new pattern')}"
    else:
        each += f", none {'a new' if before else 'a'} pattern"
    each += f", {before} {'was' if before == 1 else 'were'} one before" if before else ""
    tokens = spent.tokens_in + spent.tokens_out
    what = f"{count(asked, 'question')} and {count(again, 're-run')}"
    return f"{what}: ${usd:.4f} and {tokens:,} tokens, {each}"


def count(n: int, one: str, many: str = "") -> str:
    """Return a number with its noun."""
    return f"{n} {one if n == 1 else many or one + 's'}"


def read_figure(value: Any) -> float | None:
    """Return what a training tells, where it is a number that can be drawn: a loss may have become
    nan."""
    return float(value) if type(value) in (int, float) and abs(value) <= LARGEST else None
