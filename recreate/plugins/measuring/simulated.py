"""Builds by the rule `search` whose agents are given by their chances, judged by the gate's own
functions."""

from __future__ import annotations

import random
from bisect import bisect_left
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import NamedTuple

from recreate.runs.chances import simulate
from recreate.runs.search import (
    CurrentAgent,
    compare,
    conclude,
    is_given_up,
    judge_step,
    make_terms,
    stretch_of,
)
from recreate.runs.settings import Gate
from recreate.runs.terms import POWER, Terms

Held = dict[tuple[str, int], float | None]
Score = Callable[[float, random.Random], float]


@dataclass(frozen=True)
class SimulatedAgent:
    """rates: each task's chance, or mean; level: the mean over such tasks."""

    rates: Sequence[float]
    level: float

    def improve(self, gain: float) -> SimulatedAgent:
        """Return one that gains the same share of what each task lets it gain, or loses the same
        share of what it has."""
        part = min(1.0, gain / (1 - self.level)) if gain >= 0 else min(1.0, -gain / self.level)
        rates = [r + part * (1 - r) if gain >= 0 else r * (1 - part) for r in self.rates]
        return SimulatedAgent(rates, self.level + gain)


class Ended(NamedTuple):
    """word: what was claimed; gain: the true one of what is handed over; attempts: at tasks."""

    word: str
    gain: float
    attempts: int


class SimulatedBuild:
    """A build of simulated candidates. score: draws a task's score by its rate."""

    def __init__(
        self,
        seed: SimulatedAgent,
        rounds: int,
        draw: random.Random,
        *,
        repeats: int = 1,
        score: Score,
        gate: Gate | None = None,
    ) -> None:
        self.seed, self.rounds, self.draw, self.gate = seed, rounds, draw, gate or Gate()
        self.repeats, self.score = repeats, score
        self.order = [str(n) for n in range(len(seed.rates))]
        self.attempts = 0
        self.seed_scores = self._attempt(seed, self.order, range(repeats))
        self.current, self.scores = seed, self.seed_scores
        self.chain, self.known = list[CurrentAgent](), list[Terms]()
        self.agents = {"": seed}

    def _attempt(self, agent: SimulatedAgent, tasks: Sequence[str], repeats: range) -> Held:
        self.attempts += len(tasks) * len(repeats)
        return {(t, n): self.score(agent.rates[int(t)], self.draw) for t in tasks for n in repeats}

    def attempt(self, agent: SimulatedAgent) -> Held:
        """Return an agent's scores on all tasks, attempted as often as the settings say."""
        return self._attempt(agent, self.order, range(self.repeats))

    def take(self, agent: SimulatedAgent, scores: Held) -> None:
        """Make an agent the current one, as a person's edit comes besides the rounds."""
        terms = self._settle(agent, of=0)
        self.chain.append(CurrentAgent(terms, scores))
        self.current, self.scores = agent, scores

    def _settle(self, agent: SimulatedAgent, of: int) -> Terms:
        name, number = f"c{len(self.agents)}", len(self.known)
        terms = make_terms(
            self.gate,
            self.known,
            candidate=name,
            parent="",
            round=number // max(1, of),
            of=of,
            rounds=self.rounds,
            repeats=self.repeats,
            tasks=self.order,
            draw=self.draw.randrange(10**9),
            strata={},
        )
        self.agents[name] = agent
        self.known.append(terms)
        return terms

    def offer(self, candidate: SimulatedAgent, of: int = 1) -> float:
        """Attempt a candidate as the gate does; return the difference that was seen. of: how many
        candidates each round has."""
        terms = self._settle(candidate, of)
        order = terms.order
        after: Held = {}
        for at in range(0, len(order), stretch_of(len(order))):
            part = order[at : at + stretch_of(len(order))]
            after |= self._attempt(candidate, part, range(self.repeats))
            if is_given_up(terms, self.scores, after):
                break
        if judge_step(terms, self.scores, after, alpha=0.1, seed=0).ahead:
            self.chain.append(CurrentAgent(terms, after))
            self.current, self.scores = candidate, after
        return fmean(compare(self.seed_scores, after, self.order))

    def end(self) -> Ended:
        """Return what the build hands over, after the further attempts that it asks for."""
        ended = conclude(self.seed_scores, self.chain, alpha=0.1, draw=0)
        while ended.repeats:
            last, place = self.chain[-1], range(ended.repeats - 1, ended.repeats)
            more = self._attempt(self.current, self.order, place)
            self.chain[-1] = last._replace(scores={**last.scores, **more})
            self.seed_scores |= self._attempt(self.seed, self.order, place)
            ended = conclude(self.seed_scores, self.chain, alpha=0.1, draw=0)
        claim = ended.verdict.claim if ended.verdict else None
        gain = self.agents[ended.agent].level - self.seed.level
        return Ended(claim.word if claim else "none", gain, self.attempts)


def find_gain(
    gate: Gate, tasks: int, repeats: int, base: float, rounds: int, spread: float
) -> float:
    """Return the smallest true gain, to a hundredth, that a build calls shown or likely with
    probability POWER; 1.0 when there is none."""
    base = min(0.99, round(base, 2))
    hundredths = range(1, round(100 * (1 - base)) + 1)

    def is_found(gain: int) -> bool:
        chance = simulate(gate, tasks, repeats, base, rounds, spread, gain / 100)
        return chance.shown + chance.likely >= POWER

    at = bisect_left(hundredths, True, key=is_found)
    return hundredths[at] / 100 if at < len(hundredths) else 1.0
