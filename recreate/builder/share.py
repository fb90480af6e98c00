"""What a build's memory policy may spend, of the budget that was stated: its questions and its
re-runs together a part of each cap, its re-runs never more than a quarter, and none where no cap is
stated that they count against.

What was paid for already, by a process that was killed since, is let through and counted.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from recreate.api.errors import OutOfBudget
from recreate.api.ports import Price
from recreate.api.types import Experience
from recreate.lessons.context import SPENT
from recreate.runs.budget import CELL_BUDGET, Budget, Spend
from recreate.runs.session import Session
from recreate.runs.settings import DRAWN, MemorySettings

QUARTER = 0.25
"""The part of a stated budget that re-runs with and without lessons may take, whatever share the
policy has."""

MOST_RERUNS = 192
"""Of a round that has no cap of its own: one test of a pattern in use."""


def share_of(memory: MemorySettings, budget: Budget) -> Budget:
    """What questions and re-runs may take together; no caps where the policy has no part of its
    own."""
    return budget.share(memory.share) if memory.is_shared else Budget()


def rerun_share(memory: MemorySettings, budget: Budget, price: Price) -> Budget | None:
    """What re-runs may take; None where they have a cap of their own. Without a cap they take
    nothing: nor where the only one is in dollars, and the agent's model has no price."""
    if memory.policy != DRAWN or memory.reruns >= 0:
        return None
    counts = {name for name in budget.caps if name != "usd" or price.tokens_in or price.tokens_out}
    return budget.share(min(QUARTER, memory.share)) if counts else Budget(attempts=0)


class MemoryShare:
    """Of one run. Its policy asks one thing after the other; re-runs that go side by side have what
    is left together.

    ahead: re-runs of this round that a process made which was killed since: what they took counts
    once they are asked for again, so that the round is given what it was given then.
    """

    def __init__(self, session: Session) -> None:
        memory, self.ledger, self.journal = session.settings.memory, session.ledger, session.journal
        self.whole = share_of(memory, session.ledger.budget)
        self.for_reruns = rerun_share(memory, session.ledger.budget, session.price)
        self.used: dict[bool, dict[str, float]] = {}
        self.dearest: dict[str, float] = {}
        self.call: dict[str, float] = {}
        self.ahead: set[str] = set()

    @property
    def refusal(self) -> str:
        """Why no re-run is made, and what to type."""
        if self.for_reruns is not None and self.for_reruns.attempts == 0 and not self.whole.caps:
            return (
                "no lesson is tested by re-runs without a --budget: --memory.reruns 24 allows so"
                " many a round"
            )
        part = f"{self.for_reruns}" if self.for_reruns is not None else "--memory.reruns"
        return (
            f"lessons wait for re-runs: of the budget these may take {part} (--memory.share,"
            " --memory.reruns)"
        )

    def begin(self, batch: Sequence[Experience]) -> None:
        """Before a round: what was used so far, and what an attempt takes at most, as the round's
        own did."""
        known = {id for r in self.journal.records("memory") for id in r.get("reruns", ())}
        again = [r for r in self.journal.records("experience", "aside") if _is_rerun(r)]
        ahead = [r for r in again if r["kind"] == "experience" and r["attempt"] not in known]
        self.ahead = {_key(r) for r in ahead}
        asked, rerun = (
            self.ledger.spent_on((), ("observe",)),
            self.ledger.spent_on({_key(r) for r in again} - self.ahead),
        )
        self.used = {False: _figures(asked), True: _figures(rerun)}
        self.call = (
            self.ledger.dearest_call({e.id for e in batch}) if self.for_reruns is not None else {}
        )
        taken = [e.trace.usage for e in batch]
        self.dearest = {
            "usd": max((u.usd for u in taken), default=0.0),
            "tokens": max((u.tokens_in + u.tokens_out for u in taken), default=0),
            "minutes": max((u.seconds for u in taken), default=0.0) / 60,
            "attempts": 1,
        }

    def remainder(self, *, rerun: bool) -> Budget:
        """What a question, or a re-run, may still take."""
        if rerun and self.for_reruns is None:
            return Budget()
        counted = (False, True) if self.for_reruns is not None else (False,)
        whole = self.whole.less(
            {name: sum(self.used[kind][name] for kind in counted) for name in self.dearest}
        )
        own = (
            self.for_reruns.less(self.used[True])
            if rerun and self.for_reruns is not None
            else Budget()
        )
        return Budget.model_validate(
            {name: min(_caps(name, whole, own)) for name in {**whole.caps, **own.caps}}
        )

    def affords(self, count: int, *, easily: bool) -> bool:
        """Whether so many re-runs fit, each as dear as the dearest attempt of the round; easily:
        twice as dear, and with room for a call, which takes up what it may cost at most until it is
        answered."""
        caps = self.remainder(rerun=True).caps
        easy = {
            name: self.dearest[name] if name in ("usd", "tokens") and easily else 0.0
            for name in self.dearest
        }
        each = {name: self.dearest[name] + easy[name] for name in self.dearest}
        spare = {name: self.call.get(name, 0.0) if easily else 0.0 for name in self.dearest}
        return (
            all(each[x] * count + spare[x] <= cap for x, cap in caps.items())
            and caps.get("minutes", 1.0) > 0
        )

    def room(self) -> float:
        """So many re-runs fit, each as dear as the dearest attempt of the round."""
        left = self.remainder(rerun=True).caps
        return min(
            (cap // self.dearest[name] for name, cap in left.items() if self.dearest[name]),
            default=math.inf,
        )

    @contextmanager
    def asking(self, attempt: str) -> Iterator[None]:
        """While a question is asked. Raises OutOfBudget, code `memory-share`, when the share is
        used up."""
        left = self.remainder(rerun=False)
        if left.minutes is not None and left.minutes <= 0:
            raise _spent()
        try:
            with self._count_usage(rerun=False), self.ledger.within([attempt], left, "memory"):
                yield
        except OutOfBudget as e:
            raise _spent() if e.code == CELL_BUDGET else e from None

    @contextmanager
    def rerunning(self, keys: Collection[str]) -> Iterator[None]:
        """While these re-runs are made. They raise OutOfBudget, code `cell-budget`, when the share
        is used up."""
        before = self.ahead.intersection(keys)
        left = self.remainder(rerun=True).less(_figures(self.ledger.spent_on(self.ahead)))
        with self._count_usage(rerun=True), self.ledger.within(keys, left, "memory"):
            yield
        took = _figures(self.ledger.spent_on(before))
        self.used[True] = {name: used + took[name] for name, used in self.used[True].items()}
        self.ahead -= before

    @contextmanager
    def _count_usage(self, *, rerun: bool) -> Iterator[None]:
        before = self.ledger.figures()
        try:
            yield
        finally:
            used, after = self.used[rerun], self.ledger.figures()
            self.used[rerun] = {name: used[name] + after[name] - before[name] for name in used}


def _spent() -> OutOfBudget:
    return OutOfBudget("memory's share of the budget is used up", fix="--memory.share", code=SPENT)


def _caps(name: str, *budgets: Budget) -> Iterator[float]:
    return (each.caps[name] for each in budgets if name in each.caps)


def _key(record: Mapping[str, Any]) -> str:
    """What an attempt is known by in the ledger."""
    return str(record.get("key", record["attempt"]))


def _is_rerun(record: Mapping[str, object]) -> bool:
    return record.get("phase") == "rerun"


def _figures(spend: Spend) -> dict[str, float]:
    """By the names of the caps; minutes as replies took."""
    minutes = spend.total.seconds / 60
    return {
        "usd": spend.usd,
        "tokens": spend.tokens,
        "attempts": spend.attempts,
        "minutes": minutes,
    }
