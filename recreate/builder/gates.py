"""Whether a candidate is kept: its attempts at validation tasks, and the rule that decides on them.

A `GateRule` settles before the first attempt what a candidate may err (terms), says after each
stretch of tasks whether it is clear, and gives the verdict. `SearchRule` goes on from what scores
higher, and says at the end what it can claim; the plug-in `each` keeps what is shown to be better
than its parent. `Judge` makes the attempts and asks the rule.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

from recreate.agents.scaffold import Scaffold
from recreate.api.errors import BadInput, OutOfBudget
from recreate.api.ports import Price
from recreate.api.registry import find
from recreate.api.types import Saving, Task, Verdict
from recreate.builder.learning import Learning
from recreate.builder.measure import find_attempted
from recreate.builder.selection import strata
from recreate.runs import search
from recreate.runs.attempts import (
    SCORES,
    Place,
    Score,
    Work,
    count_new,
    read_ended,
    run_attempts,
    score_of,
)
from recreate.runs.gate import (
    Scores,
    interval,
    not_worse,
    saved,
    saving,
    unjudged,
)
from recreate.runs.reader import Run, tell_taken
from recreate.runs.search import Conclusion
from recreate.runs.session import Session
from recreate.runs.settings import Gate, Settings
from recreate.runs.terms import Terms, share


@dataclass(frozen=True)
class Pairing:
    """A candidate beside the agent that it came from. before: that one's scores; of: how many
    candidates the round has, 0 for a person's edit; kept: revisions that were kept as better."""

    parent: str
    candidate: str
    round: int
    of: int
    before: Scores
    kept: Collection[str] = ()


class GateRule(Protocol):
    """The rule by which a candidate is kept in place of its parent."""

    def settle_terms(self, pairing: Pairing) -> Terms | None:
        """Return what stands in the journal before the candidate's first attempt; None where it is
        tried on all tasks."""

    def find_terms(self, parent: str, candidate: str) -> Terms | None:
        """Return how a candidate is judged, if that stands."""

    def is_clear(self, terms: Terms | None, before: Scores, after: Scores) -> bool:
        """Whether no further stretch of tasks is needed."""

    def decide(
        self, terms: Terms | None, before: Scores, after: Scores, *, whole: bool = False
    ) -> Verdict:
        """Return the verdict on these scores. whole: on all tasks, of a candidate that was kept."""

    def find_top(self, seed: Scores, current: Scores) -> str:
        """Return why nothing could be kept in place of the current agent, '' when something could,
        or where the rule asks that of the seed alone."""

    @property
    def cheaper_alpha(self) -> float:
        """Twice the error that keeping one candidate as cheaper may make."""


class JournalTerms:
    """The terms of candidates, as the journal has them."""

    def __init__(self, session: Session, validation: Sequence[Task], seed: Scaffold) -> None:
        self.session = session
        self.tasks = [task.id for task in validation]
        self.strata = strata(session.domain, validation)

    def read_terms(self) -> list[Terms]:
        """Return the terms of all candidates so far."""
        return [Terms.model_validate(r["terms"]) for r in self.session.journal.records("trial")]

    def find_terms(self, parent: str, candidate: str) -> Terms | None:
        """Return how a candidate is judged, if that stands."""
        pair = parent, candidate
        return next((t for t in self.read_terms() if (t.parent, t.candidate) == pair), None)


class SearchRule(JournalTerms):
    """The build goes on from what scores higher; what is claimed of it is asked at the end."""

    def settle_terms(self, pairing: Pairing) -> Terms:
        terms = self.find_terms(pairing.parent, pairing.candidate)
        if terms is not None:
            return terms
        settings = self.session.settings
        terms = search.make_terms(
            settings.gate,
            self.read_terms(),
            candidate=pairing.candidate,
            parent=pairing.parent,
            round=pairing.round,
            of=pairing.of,
            rounds=settings.rounds,
            repeats=settings.repeats,
            tasks=self.tasks,
            draw=settings.seed,
            strata=self.strata,
        )
        self.session.journal.add("trial", terms=terms.model_dump(mode="json"))
        return terms

    def is_clear(self, terms: Terms | None, before: Scores, after: Scores) -> bool:
        return terms is not None and search.is_given_up(terms, before, after)

    def decide(
        self, terms: Terms | None, before: Scores, after: Scores, *, whole: bool = False
    ) -> Verdict:
        assert terms is not None
        settings = self.session.settings
        alpha, seed = settings.gate.alpha, settings.seed
        return search.judge_step(terms, before, after, alpha=alpha, seed=seed)

    def find_top(self, seed: Scores, current: Scores) -> str:
        settings = self.session.settings
        return search.find_top(settings.gate, settings.rounds, seed, current)

    @property
    def cheaper_alpha(self) -> float:
        return 2 * share(self.session.settings.gate, self.session.settings.rounds)


class Judge:
    """Attempts at validation tasks in a build, and what the gate makes of them."""

    def __init__(
        self, session: Session, validation: Sequence[Task], learning: Learning, seed: Scaffold
    ) -> None:
        self.session = session
        self.validation = validation
        self.learning = learning
        self.seed = seed
        self.gate = session.settings.gate
        rule = SearchRule if self.gate.searches else find("gate", "each")
        self.rule: GateRule = rule(session, validation, seed)

    @property
    def attempts(self) -> int:
        """How many attempts it takes to judge a candidate."""
        return len(self.validation) * self.session.settings.repeats

    def afford(self, child: Scaffold) -> None:
        """Raises OutOfBudget when the attempts that judging a candidate still takes, and a claim
        after that, are not left."""
        repeats, offers = range(self.session.settings.repeats), self.learning.offers()
        left = (
            count_new(self.session, agent, self.validation, repeats, offers)
            for agent in (child, self.seed)
        )
        self.session.ledger.afford(sum(left))

    def take(self) -> None:
        """Write down which attempts at the seed other runs in runs/ have, once, before the first
        of this build: the search goes by them. What is claimed at its end does not: a build that
        was begun since luck was against the seed there would claim that luck."""
        session, settings = self.session, self.session.settings
        if any(session.journal.records("taken", "experience")) or not takes(settings):
            return
        offers, repeats = self.learning.offers(), range(settings.repeats)
        each = ((task, repeat) for task in self.validation for repeat in repeats)
        work = [Work(session, self.seed, *at, "validation", offers=offers) for at in each]
        found = find_attempted(session, work, judged=False)
        about = {"split": "validation", "scaffold": self.seed.digest}
        rows = [
            {**SCORES.dump_python(score_of(known, each), mode="json"), **about, "run": run}
            for _, each, known, run in found
        ]
        if session.replay is None and not settings.record:
            session.journal.add("taken", of=len(work), attempts=rows)
        if told := tell_taken(rows, len(work)):
            session.say("note", {"text": told})

    @cached_property
    def taken_scores(self) -> dict[Place, Score]:
        """The seed's scores that the search takes of other runs."""
        rows = map(SCORES.validate_python, Run(self.session.folder).taken_attempts())
        return {("", each.task, each.repeat): each for each in rows}

    def attempt(self, scaffold: Scaffold) -> list[Score]:
        """Return the validation scores by which an agent is searched for: run once, read back ever
        after."""
        known = self.taken_scores if scaffold.digest == self.seed.digest else {}
        return self._attempt(scaffold, self.session.settings.repeats, known=known)

    def _attempt(
        self,
        scaffold: Scaffold,
        repeats: int,
        start: int = 0,
        known: Mapping[Place, Score] = {},
    ) -> list[Score]:
        """Return the scores of so many attempts at each task, from number `start` on."""
        return run_attempts(
            self.session,
            scaffold,
            self.validation,
            repeats=repeats,
            phase="validation",
            offers=self.learning.offers(),
            first={task.id: start for task in self.validation},
            known=known,
        )

    def conclude(self, chain: Sequence[Scaffold], *, paused: bool = False) -> Conclusion:
        """Return what the build hands over in place of the seed, after the further attempts that
        this takes; where the budget ends before them, by what was attempted.

        chain: the agents that were current ones, in their order; paused: the build waits for a
        person and goes on later, so nothing is attempted yet.
        """
        run = Run(self.session.folder)
        ended = run.conclude()
        agents = {agent.digest: agent for agent in chain}
        while ended.repeats and ended.verdict is not None and not paused:
            try:
                first = ended.repeats == self.session.settings.repeats
                start = 0 if first else ended.repeats - 1
                total = 2 * len(self.validation) * (ended.repeats - start)
                self.session.say("confirm", {"attempts": ended.repeats, "total": total})
                for agent in (self.seed, agents[run.current]):
                    self._attempt(agent, ended.repeats - start, start)
            except OutOfBudget as e:
                self.session.say("budget", {"text": e.message})
                break
            ended = run.conclude()
        if self.gate.cheaper and ended.verdict is not None and not (ended.agent or paused):
            self._note_cheaper(agents[run.current], ended.verdict)
            ended = run.conclude()
        return ended

    def _note_cheaper(self, agent: Scaffold, verdict: Verdict) -> None:
        """Write into the journal that an agent is cheaper than the seed and not worse, if it is."""
        scored = [self._attempt(each, verdict.repeats) for each in (self.seed, agent)]
        less = self._saving(*scored)
        before, after = map(by_place, scored)
        worse = not_worse(before, after, margin=self.gate.margin, alpha=2 * (verdict.alpha or 0.0))
        if less is not None and less.cheaper and not worse:
            record = {"agent": agent.digest, "saving": less.model_dump(mode="json")}
            if not any(
                record.items() <= r.items() for r in self.session.journal.records("cheaper")
            ):
                self.session.journal.add("cheaper", **record)

    def _saving(self, before: Sequence[Score], after: Sequence[Score]) -> Saving | None:
        price, gate = self.session.price, self.gate
        unit = gate.cost or ("usd" if price.tokens_in or price.tokens_out else "tokens")
        costs = (cost_of(side, price, unit) for side in (before, after))
        return saving(*costs, unit=unit, alpha=gate.alpha, seed=self.session.settings.seed)

    def _try(self, child: Scaffold, terms: Terms | None, before: Scores) -> list[Score]:
        """Return a candidate's scores, stretch by stretch until it is clear."""
        if terms is None:
            return self.attempt(child)
        place = {id: at for at, id in enumerate(terms.order)}

        def is_clear(done: Sequence[Score]) -> bool:
            after = by_place(done)
            return self._broken(done) is not None or self.rule.is_clear(terms, before, after)

        return run_attempts(
            self.session,
            child,
            sorted(self.validation, key=lambda task: place[task.id]),
            repeats=self.session.settings.repeats,
            phase="validation",
            offers=self.learning.offers(),
            until=is_clear,
            stretch=terms.stretch,
        )

    def judge(
        self,
        current: Scaffold,
        child: Scaffold,
        round: int,
        of: int = 0,
        kept: Iterable[Scaffold] = (),
        better: Collection[str] = (),
    ) -> Verdict:
        """Return the gate's verdict on a candidate; what is not better may be cheaper and not
        worse, which the reason then says.

        Not worse than the best agent so far, which need not be the one that it came from: or each
        that is kept as cheaper could lose a little, and all of them together a lot. of: how many
        candidates the round has; kept: the agents kept so far, better: the digests of those that
        were kept as better.
        """
        gate, scored = self.gate, self.attempt(current)
        before = by_place(scored)
        pairing = Pairing(current.digest, child.digest, round, of, before, better)
        terms = self.rule.settle_terms(pairing)
        pair = {"parent": current.digest, "candidate": child.digest}
        self.session.say("trial", {**pair, "terms": terms})
        after = self._try(child, terms, before)
        verdict = self._broken(after) or self.rule.decide(terms, before, by_place(after))
        if verdict.better or verdict.diff is None or (gate.false_keep and not gate.cheaper):
            return verdict
        if verdict.step and (verdict.ahead or verdict.diff < 0):
            return verdict
        after = self.attempt(child)
        less = self._saving(scored, after)
        if less is None or not less.cheaper:
            return verdict
        if verdict.step:
            reason = f"cheaper: {saved(less)}, and as good; kept for now"
            changes = {"verdict": "undecided", "ahead": True, "reason": reason, "saving": less}
            return verdict.model_copy(update=changes)
        agents = [by_place(self.attempt(each)) for each in (self.seed, *kept)]
        best = max(agents, key=lambda scores: interval(scores)[0])
        worse = not_worse(best, by_place(after), margin=gate.margin, alpha=self.rule.cheaper_alpha)
        if worse and not gate.cheaper:
            return verdict
        reason = (
            f"cheaper: {saved(less)}, and a fall of its score by {gate.margin:g} or more is"
            " ruled out"
        )
        if worse:
            reason = f"{verdict.reason}; it is cheaper ({saved(less)}), but {worse}"
        elif not gate.cheaper:
            reason = f"{verdict.reason}; {reason}: --keep-cheaper would keep it"
        return verdict.model_copy(update={"reason": reason, "saving": None if worse else less})

    def keeps(self, verdict: Verdict) -> bool:
        """Whether a candidate is kept: better, or cheaper where that was asked for."""
        return verdict.better or verdict.ahead or (self.gate.cheaper and verdict.saving is not None)

    def compare(self, before: Scaffold, after: Scaffold) -> Verdict:
        """Return what the build ends with, on all validation tasks. With less than the gate needs
        on disk (the budget ended first): undecided."""
        over = "the budget ended before validation did"
        try:
            a, b = by_place(self.attempt(before)), by_place(self.attempt(after))
        except OutOfBudget:
            known = Run(self.session.folder).validation(before.digest, after.digest)
            same = before.digest == after.digest
            return unjudged("undecided", over) if same or known is None else known
        if before.digest == after.digest:
            settings, reason = self.session.settings, "nothing was kept"
            return search.judge_seed(self.gate, settings.rounds, a, reason, settings.seed)
        return self.rule.decide(self.rule.find_terms(before.digest, after.digest), a, b, whole=True)

    def _broken(self, scores: Sequence[Score]) -> Verdict | None:
        """Return the verdict on an agent whose template could not be filled in with what
        happened."""
        failed = [s for s in scores if s.limit == "template"]
        if not failed:
            return None
        first = read_ended(self.session, failed[0].attempt)
        assert first is not None
        # where, and not what it met: these tasks are held out
        at = first.trace.steps[-1].output.partition(": ")[0]
        many = f"it ended {len(failed)} attempts"
        words = f"the check failed: {at} cannot be filled in at run time: {many}"
        return unjudged("not-better", words)

    def find_ceiling(self, current: Scaffold) -> str:
        """Return why nothing could be kept in place of the current agent, '' when something could,
        or where the rule asks that of the seed alone."""
        before, now = (by_place(self.attempt(agent)) for agent in (self.seed, current))
        return self._find_top(before, now)

    def _find_top(self, seed: Scores, current: Scores) -> str:
        gate, text = self.gate, self.rule.find_top(seed, current)
        if not text or not gate.cheaper:
            return text
        alpha = self.rule.cheaper_alpha
        best = not_worse(seed, dict.fromkeys(seed, 1.0), margin=gate.margin, alpha=alpha)
        return f"{text}; nor could one be kept as cheaper: {best}" if best else ""

    def check_seed_is_worth(self) -> None:
        """Say how many validation tasks a seed that is to be written may solve for the build to go
        on with it; raises BadInput where it is none."""
        if not self.session.settings.rounds:
            return
        count = len(self.validation)

        def ends(solved: int) -> bool:
            scores = {(task.id, 0): float(n < solved) for n, task in enumerate(self.validation)}
            return bool(self._find_top(scores, scores))

        most = bisect_left(range(1, count + 1), True, key=ends)
        if not most:
            raise BadInput(
                f"{count} validation tasks are too few to write a seed for: nothing could be kept"
                " in place of one that solves a single one of them",
                fix="more with --validation, or start from a seed: leave --scaffold out",
                code="too-few-tasks",
            )
        if most < count:
            text = f"a seed that solves more than {most} of {count} validation tasks leaves nothing"
            self.session.say("note", {"text": f"{text} to be kept: the build then ends with it"})


def takes(settings: Settings) -> bool:
    """Whether a build's search goes by attempts at the seed that other runs have."""
    return bool(settings.rounds) and settings.gate.searches and not settings.fresh


def find_limits(gate: Gate, tasks: int, rounds: int) -> str:
    """Return what so few validation tasks cannot decide, '' where they decide all."""
    if gate.searches:
        text = f"{tasks} validation tasks can make an agent likely better, and show nothing"
        text *= search.best_word(gate, rounds, [1.0] * tasks) != "shown"
    else:
        text = find("gate", "each").tell_limits(gate, tasks, rounds)
    return text and f"{text}: more with --validation, or --gate.false_keep"


def by_place(scores: Sequence[Score]) -> dict[tuple[str, int], float | None]:
    """Return scores by task and repeat."""
    return {(s.task, s.repeat): s.score for s in scores}


def cost_of(
    scores: Sequence[Score], price: Price, unit: str
) -> dict[tuple[str, int], float | None]:
    """Return what each attempt took: usd at the full price of its tokens, which no cache takes part
    of; tokens in and out; calls; or seconds."""
    costs: dict[tuple[str, int], float | None] = {}
    for s in scores:
        used = s.usage
        cost = {
            "usd": price.usd(used.tokens_in, used.tokens_out),
            "tokens": used.tokens_in + used.tokens_out,
            "calls": used.calls,
            "seconds": used.seconds,
        }[unit]
        costs[s.task, s.repeat] = None if s.score is None else float(cost)
    return costs
