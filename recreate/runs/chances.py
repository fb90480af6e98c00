"""How likely a build by the rule `search` claims what is there, by simulation."""

from __future__ import annotations

import math
import random
from functools import lru_cache
from statistics import fmean

from recreate.api.types import Record
from recreate.runs.gate import MIN_TASKS, flip_signs
from recreate.runs.search import BEHIND, HOPE, LIKELY, looks, stretch_of
from recreate.runs.settings import Gate
from recreate.runs.terms import share

GAINS = (0.10, 0.20, 0.30)
DRAWS = 300


class Chance(Record):
    """How often an agent with this true gain in the mean score is called shown, and likely;
    attempts: at validation tasks, that this takes in the mean, the seed's included."""

    gain: float
    shown: float
    likely: float
    attempts: int


def find_chances(
    gate: Gate, tasks: int, repeats: int, base: float, rounds: int, spread: float
) -> tuple[Chance, ...]:
    """Return the chances of the GAINS that a seed with this score leaves room for.

    For yes-or-no scores. Assumed: tasks differ in difficulty (spread: the part of a score's
    variance that lies between them), and the agent, the only one of the build that gains anything,
    gains the same share of what each task still lets it gain. DRAWS builds from fixed seeds.
    """
    possible = [gain for gain in GAINS if gain <= 1 - base]
    return tuple(simulate(gate, tasks, repeats, base, rounds, spread, gain) for gain in possible)


@lru_cache(maxsize=512)
def simulate(
    gate: Gate, tasks: int, repeats: int, base: float, rounds: int, spread: float, gain: float
) -> Chance:
    """Return the chances of one true gain, as `find_chances` assumes it."""
    words, attempts = list[str](), list[int]()
    shape, part = 1 / spread - 1, gain / max(1 - base, 1e-9)
    for number in range(DRAWS):
        draw = random.Random(number)
        rates = [base] * tasks
        if 0 < base < 1:
            rates = [draw.betavariate(shape * base, shape * (1 - base)) for _ in range(tasks)]
        better = [rate + part * (1 - rate) for rate in rates]
        word, took = _draw_build(gate, repeats, share(gate, rounds), rates, better, draw)
        words.append(word)
        attempts.append(took)
    return Chance(
        gain=gain,
        shown=words.count("shown") / DRAWS,
        likely=words.count("likely") / DRAWS,
        attempts=math.ceil(fmean(attempts)),
    )


def _draw_build(
    gate: Gate,
    repeats: int,
    alpha: float,
    rates: list[float],
    better: list[float],
    draw: random.Random,
) -> tuple[str, int]:
    """Return (the word, attempts) of a build of one candidate."""
    tasks, stretch = len(rates), stretch_of(len(rates))
    pairs = list(zip(rates, better, strict=True))

    def attempt(times: int) -> list[int]:
        return [
            sum((draw.random() < new) - (draw.random() < old) for _ in range(times))
            for old, new in pairs
        ]

    gained = attempt(repeats)
    for done in (stretch, 2 * stretch):
        size = math.sqrt(sum(d * d for d in gained[:done]))
        if done < tasks and size and sum(gained[:done]) / size < BEHIND[done > stretch]:
            return "none", repeats * (tasks + done)
    word, took = "none", 2 * repeats * tasks
    if sum(gained) <= 0 or tasks < MIN_TASKS:
        return word, took
    for at, look in enumerate(looks(tasks, gate.confirm)):
        if at:
            gained = [d + more for d, more in zip(gained, attempt(1), strict=True)]
            took += 2 * tasks
        p = flip_signs(gained)
        word = "likely" if look and p <= LIKELY * look * alpha else word
        if look and p <= look * alpha:
            return "shown", took
        if p > HOPE:
            break
    return (word if sum(gained) > 0 else "none"), took
