"""`--gate.keep each`: a revision is kept where it is shown to be better than its parent.

A build keeps anything that does not help in at most `gate.false_keep` of cases. With 0, each
candidate is judged by itself, by the paired test on all tasks.
"""

from __future__ import annotations

import math
import random
from collections.abc import Sequence

from recreate.agents.scaffold import Scaffold
from recreate.api.errors import BadInput
from recreate.api.types import Task, Verdict
from recreate.builder.gates import JournalTerms, Pairing
from recreate.builder.past import read_spread
from recreate.plugins.each.trial import (
    LATTICE,
    decidable,
    detectable,
    finds,
    handed_on,
    odds,
    room,
    tried,
    wins,
)
from recreate.runs.attempts import stretch_of
from recreate.runs.gate import Scores, judge
from recreate.runs.session import Session
from recreate.runs.settings import Gate, Settings
from recreate.runs.terms import SPREAD, Terms, share


class Each(JournalTerms):
    """Validation tasks in an order of the candidate's own, one stretch after the other, until it is
    clear."""

    def __init__(self, session: Session, validation: Sequence[Task], seed: Scaffold) -> None:
        super().__init__(session, validation, seed)
        spread = read_spread(
            session.workspace, session.domain.name, seed.digest, session.model_name
        )
        self.spread = SPREAD if spread is None else spread

    def settle_terms(self, pairing: Pairing) -> Terms | None:
        settings, gate = self.session.settings, self.session.settings.gate
        terms = self.find_terms(pairing.parent, pairing.candidate)
        if terms is not None or not gate.false_keep:
            return terms
        known, over = self.read_terms(), decidable(gate, len(self.tasks), settings.rounds)
        of = pairing.of
        if len({t.round for t in known if t.of} - {pairing.round}) >= over:
            of = 0  # more candidates than so few tasks decide
        extra = sum(not t.of for t in known) + 1
        alpha = share(gate, over, of=of) if of else share(gate, over, extra=extra)
        alpha += handed_on(known, pairing.kept)
        order = [*self.tasks]
        random.Random(f"{settings.seed}/{pairing.candidate}").shuffle(order)
        held = [score for score in pairing.before.values() if score is not None]
        rate = min(0.99, round(sum(held) / max(1, len(held)), 2))
        gain = 1.0
        if not gate.cheaper:
            gain = detectable(len(order), settings.repeats, rate, alpha, self.spread)
        terms = Terms(
            candidate=pairing.candidate,
            parent=pairing.parent,
            round=pairing.round,
            of=of,
            alpha=alpha,
            gain=gain,
            repeats=settings.repeats,
            order=tuple(order),
            strata=self.strata,
            stretch=stretch_of(self.session, settings.repeats),
        )
        self.session.journal.add("trial", terms=terms.model_dump(mode="json"))
        return terms

    def is_clear(self, terms: Terms | None, before: Scores, after: Scores) -> bool:
        if terms is None or self.session.settings.gate.cheaper:
            return False  # that it is not worse takes every task to be seen
        return tried(terms, before, after)[1]

    def decide(
        self, terms: Terms | None, before: Scores, after: Scores, *, whole: bool = False
    ) -> Verdict:
        settings = self.session.settings
        if terms is None:
            return judge(before, after, alpha=settings.gate.alpha, seed=settings.seed)
        return self.judge(terms, before, after, whole)

    def find_top(self, seed: Scores, current: Scores) -> str:
        settings = self.session.settings
        if current != seed:
            return ""  # it is asked of the seed alone
        return self.find_room(settings.gate, settings.rounds, seed, settings.seed)

    @property
    def cheaper_alpha(self) -> float:
        gate, rounds = self.session.settings.gate, self.session.settings.rounds
        if not gate.false_keep:
            return gate.alpha
        return 2 * share(gate, decidable(gate, len(self.tasks), rounds))

    @staticmethod
    def judge(terms: Terms, before: Scores, after: Scores, whole: bool) -> Verdict:
        return tried(terms, before, after, whole=whole)[0]

    @staticmethod
    def find_room(gate: Gate, rounds: int, before: Scores, seed: int) -> str:
        return room(gate, rounds, before, seed)

    @staticmethod
    def explain_too_few(settings: Settings) -> BadInput | None:
        gate, tasks = settings.gate, settings.validation
        if not gate.false_keep or decidable(gate, tasks, 1):
            return None
        return BadInput(
            f"{tasks} validation tasks decide nothing: with an error of {gate.false_keep:g} it"
            f" takes {wins(tasks, share(gate, 1))} tasks that are won, and none lost, to keep a"
            " candidate",
            fix="more with --validation, or --gate.false_keep 0, which judges each candidate by"
            " itself",
            code="too-few-tasks",
        )

    @staticmethod
    def tell_limits(gate: Gate, tasks: int, rounds: int) -> str:
        over = decidable(gate, tasks, rounds) if gate.false_keep else 0
        if not 0 < over < rounds:
            return ""
        first = f"the first {over}" if over > 1 else "the first one"
        return f"{tasks} validation tasks decide {first} of {rounds} rounds' candidates"

    @staticmethod
    def forecast(settings: Settings, rate: float, spread: float) -> tuple[float, int]:
        tasks, repeats, gate = settings.validation, settings.repeats, settings.gate
        gain = finds(gate, tasks, repeats, rate, settings.rounds, spread)
        if gate.cheaper or not gate.false_keep:
            return gain, tasks * repeats
        alpha = share(gate, decidable(gate, tasks, settings.rounds))
        few = min(tasks, LATTICE)
        seen = odds(few, repeats, rate, 0.0, alpha=alpha, worth=gain, spread=spread).tasks
        return gain, min(tasks * repeats, math.ceil(seen * repeats) + settings.jobs)
