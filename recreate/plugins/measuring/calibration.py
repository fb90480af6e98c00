"""What an agent's own noise lets the gate see: the agent against itself on validation tasks, before
a build pays.

Each task is attempted several times. From how the scores differ within a task and between tasks
come: how often a build would keep a candidate that changes nothing, simulated with the gate itself
on scores drawn from these; and the smallest gain that it would keep eight times in ten, for more
and fewer tasks and repeats. A line for each agent and model is kept beside the domain's tasks
(`benchmarks/DOMAIN/calibration.jsonl` in the workspace); `plan` and `build` go by it.
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from statistics import fmean, variance

from pydantic import ValidationError

from recreate.agents.scaffold import Scaffold
from recreate.api.errors import BadInput
from recreate.api.types import Record
from recreate.builder.measure import measure, measured_tasks
from recreate.builder.past import CALIBRATION
from recreate.plugins.each.trial import finds, trial
from recreate.plugins.measuring.shares import wilson
from recreate.plugins.measuring.simulated import SimulatedAgent, SimulatedBuild, find_gain
from recreate.runs.gate import MIN_TASKS, Scores, interval, judge
from recreate.runs.results import BenchResult
from recreate.runs.session import Session
from recreate.runs.settings import Settings
from recreate.runs.terms import share, spread_of
from recreate.storage import files
from recreate.storage.log import encode

BUILDS = 400
"""So many builds are simulated, of candidates that change nothing."""


class Noise(Record):
    """within: the variance of a score over repeats of one task; between: of the tasks' own means.
    flips: the share of tasks whose repeats were not all alike."""

    within: float
    between: float
    flips: float


class FalseKeep(Record):
    """How often a build keeps anything, of candidates that change nothing: rate with its 95 %
    interval."""

    rate: float
    lo: float
    hi: float
    builds: int
    candidates: int


class Detectable(Record):
    """The smallest true gain that a build calls shown or likely eight times in ten; 1 when there is
    none."""

    tasks: int
    repeats: int
    gain: float


class Calibration(Record):
    """mean with its 90 % interval over `tasks`, each attempted `repeats` times; agent: its
    digest."""

    domain: str
    scaffold: str
    agent: str
    model: str
    tasks: int
    repeats: int
    mean: float
    lo: float
    hi: float
    noise: Noise
    false_keep: FalseKeep
    detectable: tuple[Detectable, ...]

    @property
    def spread(self) -> float:
        """The part of a score's variance that lies between tasks."""
        return spread_of(self.noise.within, self.noise.between)


def calibrate(session: Session, scaffold: Scaffold) -> tuple[Calibration, BenchResult]:
    """The agent on `validation` tasks of its split, `repeats` times each. Raises BadInput for one
    repeat, and when too few tasks were scored."""
    settings = session.settings
    if settings.repeats < 2:
        raise BadInput("one attempt a task says nothing of noise", fix="--repeats 3", code="usage")
    if (count := len(measured_tasks(session, "validation", settings.validation))) < MIN_TASKS:
        raise BadInput(
            f"{count} validation tasks say nothing of noise: at least {MIN_TASKS} are needed",
            fix=f"--validation {MIN_TASKS}, or more tasks: recreate tasks make",
            code="too-few-tasks",
        )
    cell = measure(session, scaffold, "validation", settings.validation, reuse=True, judged=False)
    scores = {place: score for place, score in cell.by_place.items() if score is not None}
    found = calibration(scores, settings, (cell.domain, cell.scaffold, cell.digest, cell.model))
    keep(session.workspace / "benchmarks" / session.domain.name / CALIBRATION, found)
    return found, cell


def calibration(
    scores: Mapping[tuple[str, int], float], settings: Settings, who: tuple[str, str, str, str]
) -> Calibration:
    """Of these scores; pure. who: domain, scaffold, its digest, model. Raises BadInput
    (`too-few-tasks`)."""
    by_task: dict[str, list[float]] = {}
    for (task, _), score in sorted(scores.items()):
        by_task.setdefault(task, []).append(score)
    several = [each for each in by_task.values() if len(each) > 1]
    if len(several) < MIN_TASKS:
        raise BadInput(
            f"{len(several)} tasks were scored more than once, at least {MIN_TASKS} are needed",
            fix="more tasks with --validation, and see why attempts were excluded",
            code="too-few-tasks",
        )
    repeats = min(map(len, several))
    within = fmean(variance(each) for each in several)
    between = max(0.0, variance([fmean(each) for each in several]) - within / repeats)
    noise = Noise(
        within=within, between=between, flips=fmean(len(set(each)) > 1 for each in several)
    )
    mean, lo, hi = interval(scores)
    spread, rounds = spread_of(within, between), max(1, settings.rounds)
    sizes = sorted({settings.validation, *(settings.validation * n for n in (2, 5)), len(several)})
    domain, scaffold, agent, model = who
    return Calibration(
        domain=domain,
        scaffold=scaffold,
        agent=agent,
        model=model,
        tasks=len(several),
        repeats=repeats,
        mean=mean,
        lo=lo,
        hi=hi,
        noise=noise,
        false_keep=_false_keep(list(by_task.values()), settings, rounds, mean, spread),
        detectable=tuple(
            Detectable(tasks=n, repeats=r, gain=_find_gain(settings, n, r, mean, rounds, spread))
            for n in sizes
            for r in (1, 2, 3)
        ),
    )


def _find_gain(
    settings: Settings, tasks: int, repeats: int, mean: float, rounds: int, spread: float
) -> float:
    gate = settings.gate
    if gate.searches:
        return find_gain(gate, tasks, repeats, mean, rounds, spread)
    return round(finds(gate, tasks, repeats, mean, rounds, spread), 3)


def _false_keep(
    tasks: Sequence[list[float]], settings: Settings, rounds: int, mean: float, spread: float
) -> FalseKeep:
    """A task's score is drawn from those that it had, or, as often as one of them, from all: two
    repeats alike are no proof that a third would be."""
    if settings.gate.searches:
        return _false_claim(tasks, settings, rounds)
    draw, wrong = random.Random(0), 0
    pool = [score for each in tasks for score in each]
    gate, order = settings.gate, [str(n) for n in range(settings.validation)]
    alpha, gain = share(gate, rounds), finds(gate, len(order), 1, mean, rounds, spread)

    def scored(chosen: Sequence[list[float]]) -> dict[tuple[str, int], float | None]:
        return {
            (name, 0): draw.choice([*each, draw.choice(pool)])
            for name, each in zip(order, chosen, strict=True)
        }

    def would_keep(before: Scores, after: Scores) -> bool:
        if not gate.false_keep:
            return judge(before, after, alpha=gate.alpha, seed=settings.seed).better
        return trial(before, after, order, repeats=1, alpha=alpha, gain=gain)[0].better

    for _ in range(BUILDS):
        chosen = draw.choices(tasks, k=len(order))
        before = scored(chosen)
        wrong += any(would_keep(before, scored(chosen)) for _ in range(rounds))
    lo, hi = wilson(wrong, BUILDS)
    return FalseKeep(rate=wrong / BUILDS, lo=lo, hi=hi, builds=BUILDS, candidates=rounds)


def _false_claim(tasks: Sequence[list[float]], settings: Settings, rounds: int) -> FalseKeep:
    """Return how often a build calls an agent `shown` of candidates that change nothing."""
    draw, wrong = random.Random(0), 0
    pool = [score for each in tasks for score in each]

    def score(task: float, _: random.Random) -> float:
        return draw.choice([*tasks[int(task)], draw.choice(pool)])

    for _ in range(BUILDS):
        chosen = [float(n) for n in draw.choices(range(len(tasks)), k=settings.validation)]
        seed = SimulatedAgent(chosen, 0.0)
        work = SimulatedBuild(seed, rounds, draw, score=score, gate=settings.gate)
        for _ in range(rounds):
            work.offer(seed)
        wrong += work.end().word == "shown"
    lo, hi = wilson(wrong, BUILDS)
    return FalseKeep(rate=wrong / BUILDS, lo=lo, hi=hi, builds=BUILDS, candidates=rounds)


def keep(file: Path, found: Calibration) -> None:
    """Write it in place of an earlier one of the same agent and model."""
    file.parent.mkdir(parents=True, exist_ok=True)
    with files.locked(file.parent):
        others = [c for c in _read(file) if (c.agent, c.model) != (found.agent, found.model)]
        lines = [encode(c.model_dump(mode="json", by_alias=True)) for c in (*others, found)]
        files.write(file, "".join(f"{line}\n" for line in lines))


def _read(file: Path) -> Iterator[Calibration]:
    try:
        lines = file.read_text("utf-8").splitlines()
    except (OSError, UnicodeError):
        return
    for line in lines:
        try:
            found = Calibration.model_validate_json(line)
        except ValidationError:
            continue
        if math.isfinite(found.noise.within) and math.isfinite(found.noise.between):
            yield found
