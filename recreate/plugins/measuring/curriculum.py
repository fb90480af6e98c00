"""`--choose learning`: a round attempts the train tasks that teach most, and forgets none.

What is known of a task is what this agent and the versions that it came from made of it, older
versions counting half as much each (`DECAY`). It teaches most where it is solved sometimes: its
weight is the expected variance p(1 - p) of one more attempt, p having a Beta posterior whose prior
is one attempt with the mean of all tasks. That is A2R's ambiguity over epochs (rl/parts/a2r.py), an
epoch being a version here, reckoned for few attempts: tasks that all versions solve or fail lose
weight slowly, and quickly where most others do the same. A task that one version solved and the
next did not, or the other way round, counts double (`FLIPPED`).

Tasks that no version attempted come first, in an order that the seed fixes. Then the least
attempted have a share of each batch (`FLOOR`), so that after k * ceil(pool / that share) rounds
each task was attempted k times at least, and the rest is drawn by weight. `python -m
tests.lab.evidence tasks` compares it with taking them in turn; figures in docs/log.md.
"""

from __future__ import annotations

import math
import random
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from statistics import fmean
from typing import NamedTuple

from recreate.agents.scaffold import Scaffold
from recreate.api.shapes import JsonDict, JsonMap
from recreate.plugins.measuring.blame import folders_of, versions
from recreate.runs.session import Session

FLOOR = 0.5
DECAY = 0.5
FLIPPED = 2.0


class Tried(NamedTuple):
    """One attempt at a train task: its agent's digest, its number as a repeat, its score in
    0..1."""

    task: str
    agent: str
    repeat: int
    score: float


class DrawnTask(NamedTuple):
    """A task of a batch, the number of the attempt to be made, and what was known of it."""

    task: str
    repeat: int
    why: str


def learning(
    session: Session, seed: Scaffold, pool: Sequence[str], kept: Sequence[str], size: int, lot: str
) -> JsonDict:
    """Return the tasks of a round, by what is known of them in this workspace and this build; with
    a recording by this build alone, since who replays it has another workspace."""
    lineage = [seed.digest]
    history = list[Tried]()
    if not session.settings.record and not session.settings.replay:
        found = versions(seed, folders_of(session.workspace))
        lineage = [version.files.digest for version in found][::-1]
        history = list_tried_before(session, lineage)
    history += list_tried(session.journal.records("experience"))
    drawn = draw(pool, history, [*lineage, *kept], size, lot)
    tasks, repeats, why = map(list, zip(*drawn, strict=True))
    return {"tasks": tasks, "repeats": repeats, "why": why, "told": summarise(why)}


def draw(
    pool: Sequence[str], history: Sequence[Tried], lineage: Sequence[str], size: int, seed: object
) -> list[DrawnTask]:
    """A batch of different tasks of the pool, which is in the order that ties go by.

    lineage: digests of the agent's versions, itself last; attempts of others count for nothing. The
    same seed draws the same.
    """
    known = _by_version(history, lineage)
    random_ = random.Random(repr(seed))
    left = list(pool)
    batch = list[str]()
    newest = {task: max(versions) for task, versions in known.items()}
    tries = {task: sum(map(len, versions.values())) for task, versions in known.items()}
    floor = math.ceil(FLOOR * size)
    weights = dict[str, float]()
    for number in range(min(size, len(pool))):
        chosen = min(left, key=lambda task: (tries.get(task, 0), newest.get(task, -1)))
        if chosen in known and number >= floor:
            weights = weights or chances(pool, history, lineage)
            (chosen,) = random_.choices(left, [weights[task] for task in left])
        left.remove(chosen)
        batch.append(chosen)
    made = Counter[str]()
    for tried in history:
        if tried.agent == lineage[-1]:
            made[tried.task] = max(made[tried.task], tried.repeat + 1)
    return [DrawnTask(task, made[task], describe_task(known.get(task, {}))) for task in batch]


def list_tried_before(session: Session, lineage: Collection[str]) -> list[Tried]:
    """Return what these versions of an agent, with this model, made of the domain's train tasks in
    other runs of the workspace."""
    wanted = {"domain": session.domain.name, "split": "train", "model": session.model_name}
    here = {r["attempt"] for r in session.journal.records("experience")}
    rows = session.memory.facts(wanted, "optimizer")
    fit = (
        r for r in rows if r["digest"] in lineage and r["id"] not in here and r["score"] is not None
    )
    return [Tried(r["task"], r["digest"], r["repeat"], r["score"]) for r in fit]


def list_tried(records: Iterable[JsonMap]) -> list[Tried]:
    """Return what agents made of train tasks, by a journal's `experience` records; re-runs with
    other lessons left out."""
    fit = (r for r in records if r["split"] == "train" and r.get("phase") != "rerun")
    return [Tried(r["task"], r["scaffold"], r["repeat"], r["score"]) for r in fit]


def chances(
    pool: Sequence[str], history: Sequence[Tried], lineage: Sequence[str]
) -> dict[str, float]:
    """How likely each task is to be the first that is drawn by weight: they add up to 1."""
    known = _by_version(history, lineage)
    sums = {
        task: [
            math.fsum(
                DECAY ** (len(lineage) - 1 - at) * part
                for at, scores in versions.items()
                for part in scores
            )
            for versions in (known.get(task, {}), _failed(known.get(task, {})))
        ]
        for task in pool
    }
    won, lost = (math.fsum(pair[side] for pair in sums.values()) for side in (0, 1))
    mean = (won + 0.5) / (won + lost + 1)
    found = {task: _variance(mean + a, 1 - mean + b) for task, (a, b) in sums.items()}
    found = {
        task: value * (FLIPPED if flipped(known.get(task, {})) else 1)
        for task, value in found.items()
    }
    return {task: value / math.fsum(found.values()) for task, value in found.items()}


def flipped(versions: Mapping[int, Sequence[float]]) -> bool:
    """Whether the last two versions that attempted a task came to another outcome."""
    last = [fmean(scores) >= 0.5 for _, scores in sorted(versions.items())][-2:]
    return len(set(last)) == 2


def describe_task(versions: Mapping[int, Sequence[float]]) -> str:
    """Return what is known of a task in two words. versions: version -> its scores."""
    mean = fmean([score for scores in versions.values() for score in scores]) if versions else None
    if mean is None:
        return "never tried"
    if flipped(versions):
        return "flipped"
    return {0.0: "never solved", 1.0: "always solved"}.get(mean, "solved sometimes")


def summarise(why: Sequence[str]) -> str:
    """Return a batch in one line."""
    kinds = ", ".join(f"{count} {name}" for name, count in Counter(why).most_common())
    return f"{len(why)} train {'task' if len(why) == 1 else 'tasks'}: {kinds}"


def _by_version(
    history: Sequence[Tried], lineage: Sequence[str]
) -> dict[str, dict[int, list[float]]]:
    """Task -> number in the lineage -> scores."""
    number = {agent: at for at, agent in enumerate(lineage)}
    found: dict[str, dict[int, list[float]]] = {}
    for tried in history:
        if tried.agent in number:
            found.setdefault(tried.task, {}).setdefault(number[tried.agent], []).append(tried.score)
    return found


def _failed(versions: Mapping[int, Sequence[float]]) -> dict[int, list[float]]:
    return {at: [1 - score for score in scores] for at, scores in versions.items()}


def _variance(a: float, b: float) -> float:
    """The mean of p(1 - p) where p is Beta(a, b)."""
    return a * b / ((a + b) * (a + b + 1))
