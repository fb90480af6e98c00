"""A run while it runs: a line of words for each event. On a terminal a plug-in may draw a panel
below them (kind `panel`)."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, Protocol

from recreate.api import plugins
from recreate.api.errors import RecreateError
from recreate.api.paths import short
from recreate.api.shapes import JsonDict, JsonMap
from recreate.api.types import Usage
from recreate.cli.terminal import EXCLUDED, say

if TYPE_CHECKING:
    from recreate.runs.budget import Ledger

OFFERED = 3
"""Lessons that the line of a round names."""


class Panel(Protocol):
    """What is drawn below the lines of a run, made with its `Screen`; its maker returns None where
    nobody watches."""

    def start(self) -> None: ...

    def stop(self) -> None: ...

    def take(self, event: str, facts: JsonMap) -> None:
        """Learn from one event."""
        ...

    def print(self, text: str) -> None:
        """Write a line above the panel."""
        ...


def _proposer(session: Any) -> str:
    """Return who proposes edits, and by which model where that is another than the agent's."""
    from recreate.api.theirs import spelled

    given = session.given.optimizer
    name = session.settings.optimizer if given is None else spelled(given)
    other = session.optimizer_model is not session.model
    return f"{name} with {session.optimizer_model.name}" if other else str(name)


def offered_line(
    lessons: Mapping[str, tuple[int, int]], attempts: int, unproven: Sequence[str] = ()
) -> str:
    """Return what a round's attempts were offered. lessons: id -> attempts that were shown it, and
    that were not, by lot."""
    parts = [
        f"{id} to"
        f" {shown}{f' of {shown + held} by lot' * bool(held)}"
        f"{' (not proven here yet)' * (id in unproven)}"
        for id, (shown, held) in list(lessons.items())[:OFFERED]
    ]
    parts += [f"and {len(lessons) - OFFERED} more"] * (len(lessons) > OFFERED)
    return f"lessons offered in {attempts} attempts: {', '.join(parts)}"


def tell_usage(usage: Usage, whole: int = 100_000) -> str:
    """Return what calls used, in words. whole: tokens from which on they are said in thousands."""
    tokens = usage.tokens_in + usage.tokens_out
    count = (
        f"{tokens:,}"
        if tokens < whole
        else f"{tokens / 1e3:,.0f}k"
        if tokens < 1e7
        else f"{tokens / 1e6:,.1f}M"
    )
    return f"{usage.calls:,} calls, {count} tokens, ${usage.usd:.3f}"


class Screen:
    """Turns a session's events into words on stderr: a line per event.

    `ledger` may be set later: it says what is left. at_once: attempts that run at the same time;
    rounds: of a build, whose last verdict is its result and so said at its end.
    """

    def __init__(self, at_once: int = 1, rounds: int = 0) -> None:
        self.at_once = at_once
        self.rounds = rounds
        self.started = time.monotonic()
        self.ledger: Ledger | None = None
        self.phase = ""
        self.total = 0
        self.done = 0
        self.cells = False
        self.agent = ""
        self.seed = ""
        self.trial: JsonMap = {}
        self.confirming = 0
        self.scores: dict[str, dict[tuple[str, int], float]] = {}
        self._alone = threading.Lock()
        self.panel: Panel | None = None
        from recreate.api import registry  # with all ports, which help does without

        for name in plugins.names("panel"):
            with suppress(RecreateError):  # `recreate plugins` says what is wrong with it
                self.panel = self.panel or registry.find("panel", name)(self)

    def __enter__(self) -> Screen:
        if self.panel:
            self.panel.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self.panel:
            self.panel.stop()

    @contextmanager
    def aside(self) -> Iterator[None]:
        """Take the panel away while somebody else draws."""
        self.__exit__()
        yield
        self.__enter__()

    def line(self, text: str) -> None:
        """Write a line, above the panel where there is one."""
        (self.panel.print if self.panel else say)(text)

    @property
    def cap(self) -> str:
        """The budget in words, '' for none."""
        return str(self.ledger.budget).replace("no cap", "") if self.ledger else ""

    @property
    def minutes(self) -> float:
        return self.ledger.minutes if self.ledger else (time.monotonic() - self.started) / 60

    def tell_spent(self) -> str:
        """Return what was spent, and of what cap; '' where the panel says so."""
        if self.panel:
            return ""
        spent = self.ledger.spent if self.ledger else Usage()
        cap = f" of {self.cap}" if self.cap else ""
        lost = f" ({self.ledger.lost})" if self.ledger and self.ledger.lost else ""
        return f"   {tell_usage(spent, 10**9)}{lost}, {self.minutes:.1f} min{cap}"

    def _count(self, event: str, facts: JsonMap) -> None:
        """Keep which phase it is, and how much of it is done."""
        with self._alone:
            if event == "gather":
                self.phase = facts["phase"]
                if not self.confirming:
                    self.total = facts["total"]
                    self.done = 0
                self.cells = len(facts.get("cells", {})) > 1
                self.agent = facts.get("scaffold", "")
                if self.phase == "validation":
                    self.seed = self.seed or self.agent
            elif event == "score":
                self.done += 1
                score = facts["score"]
                if score.score is not None:
                    known = self.scores.setdefault(self.agent, {})
                    known[score.task, score.repeat] = score.score
            elif event == "confirm":
                self.confirming = facts["attempts"]
                self.total = facts["total"]
                self.done = 0
            elif event in ("trial", "revision"):
                self.trial = facts
        if self.panel:
            self.panel.take(event, facts)

    def __call__(self, event: str, facts: JsonDict) -> None:
        self._count(event, facts)
        if event in ("review", "reviewed"):  # what moves would be in the way of whoever types
            (self.__exit__ if event == "review" else self.__enter__)()
        elif event in LINES:
            self.line(LINES[event].format(**facts).rstrip(": "))
        elif event not in ("gather", "trial", "begin", "step", "grading", "ended"):
            for line in self._tell(event, facts):
                self.line(line)

    def _tell(self, event: str, facts: JsonMap) -> Iterator[str]:
        """Yield the lines of an event that is more than a template."""
        from recreate.viewer.facts import verdict_text
        from recreate.viewer.markdown import study_text
        from recreate.viewer.text import reasons

        match event:
            case "score":
                yield from self._tell_score(facts["score"], facts.get("cell", ""))
            case "seed":
                session = facts["session"]
                yield (
                    f"run folder {short(session.folder)}; seed agent {facts['scaffold'].digest},"
                    f" model {session.model_name}, optimizer {_proposer(session)}, sandbox"
                    f" {session.backend.name}"
                )
            case "indexing":
                done = facts["done"]
                total = facts["total"]
                if total >= 20 and (done == total or done % max(1, total // 4) == 0):
                    yield f"indexing memory for search: {done} of {total}"
            case "study":
                yield "  " + study_text(facts["study"])
            case "build":
                of = f" of {facts['pool']}" if facts.get("pool", 0) > facts["train"] else ""
                yield f"{facts['train']} train tasks{of}, {facts['validation']} validation tasks"
            case "offered":
                yield offered_line(**facts)
            case "rerun":
                lessons = f"with {', '.join(facts['lessons'])}" if facts["lessons"] else "without"
                score = EXCLUDED if facts["score"] is None else f"{facts['score']:g}"
                yield f"  re-run of {facts['task']} {lessons}: {score}{self.tell_spent()}"
            case "candidate":
                yield "a candidate is judged on validation:"
                for edit, said in reasons(facts["edits"]):
                    yield f"  {said}" if edit.reason else f"  {edit.path}: {edit.new[:80]!r}"
            case "revision":
                revision = facts["revision"]
                last = self.panel is not None and revision.round + 1 == self.rounds
                verdict = f": {verdict_text(revision.verdict)}"
                told_at_the_end = last and sys.stdout.isatty()
                yield ("KEPT" if revision.kept else "dropped") + verdict * (not told_at_the_end)
                if revision.review:
                    yield f"  a person {revision.review}"
            case "update":
                keys = ("reward", "kl", "entropy", "clip", "length")
                figures = ", ".join(f"{key} {facts[key]:.4g}" for key in keys)
                yield f"step {facts['step']}: {figures}{self.tell_spent()}"
            case _:
                yield str(facts.get("text", event))

    def _tell_score(self, score: Any, cell: str) -> Iterator[str]:
        if score.score is not None and not score.reused:
            mark = "passed" if score.passed else "failed"
            if 0 < score.score < 1:
                mark = f"{score.score:.2f}"
            of = f"[{cell}] " if self.cells else ""
            yield (
                f"  {self.phase} {self.done}/{self.total}  {mark}  {of}{score.task}"
                f" ({f'{score.ending} {score.limit}'.strip()}, {score.usage.calls} calls)"
                f"{self._tell_mean()}{self.tell_spent()}"
            )

    def _tell_mean(self) -> str:
        """Return the mean score so far on validation beside that of whom it is compared with, in
        the same places, and what a candidate needs; '' elsewhere."""
        mine = self.scores.get(self.agent, {})
        if self.phase != "validation" or not mine:
            return ""
        if self.confirming:  # what chose nothing
            mine = {place: s for place, s in mine.items() if place[1] == self.confirming - 1}
            return f"   {_mean(mine)} so far by the {self._name_beside(mine)}"
        if self.trial.get("candidate") != self.agent:
            return f"   {_mean(mine)} so far"
        from recreate.runs.search import tell_standing

        current = self.scores.get(self.trial["parent"], {})
        same = {place: current[place] for place in mine if place in current}
        beside = f", {_mean(same)} before" if same else ""
        terms = self.trial["terms"]
        stands = "" if terms is None else tell_standing(terms, current, mine)
        return f"   {_mean(mine)} so far{beside}{': ' * bool(stands)}{stands}"

    def _name_beside(self, mine: Mapping[tuple[str, int], float]) -> str:
        """Return who attempts the tasks once more, and the seed's scores in the same places."""
        if self.agent == self.seed:
            return "seed"
        seed = self.scores.get(self.seed, {})
        return (
            f"agent, {_mean({place: seed[place] for place in mine if place in seed})} by the seed"
        )


def _mean(scores: Mapping[tuple[str, int], float]) -> str:
    return f"{sum(scores.values()) / len(scores):.2f}" if scores else "nothing"


LINES = {
    "aside": f"  {EXCLUDED}: {{task}}: {{fault}}",
    "confirm": "the seed and the agent attempt each task once more, to show what was gained:",
    "round": "round {round} of {rounds}: attempting train tasks",
    "observe": "the policy {policy} learns from {experiences} experiences",
    "learned": "  {change.lesson} {change.kind}: {change.why}",
    "propose": "the optimizer studies {experiences} experiences ({failures} of them failed)",
    "nothing": "nothing to judge this round: {reason}",
}
"""Event -> its line, of its facts."""
