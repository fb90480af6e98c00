"""What was measured in a workspace before: attempts of one agent and model, studies of one
optimizer's model."""

from __future__ import annotations

import contextlib
import heapq
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from recreate.agents.attempt import attempt_key
from recreate.agents.scaffold import Scaffold
from recreate.api.errors import BadInput
from recreate.api.ports import Domain, extras
from recreate.api.shapes import JsonDict
from recreate.api.types import Task, Usage
from recreate.builder.estimate import CHARS, Past
from recreate.builder.gates import takes
from recreate.builder.measure import list_attempted, read_attempted
from recreate.builder.selection import Rater, draw_tasks, pass_rate, rates_of
from recreate.memory.store import ExperienceStore
from recreate.runs.gate import MIN_TASKS
from recreate.runs.opening import OpenedModels, open_backend
from recreate.runs.reader import Run
from recreate.runs.settings import Settings
from recreate.runs.terms import spread_of

RUNS = 50
"""Of a workspace so many runs are looked at, the last ones."""


def read_past(
    where: Path,
    domain: Domain,
    validation: Sequence[Task],
    rater: Rater,
    models: OpenedModels,
    namespace: str = "",
) -> Past:
    """Return all that is known before a build."""
    prompts = [len(task.prompt) for task in validation]
    return replace(
        read_attempts(where, domain, validation, rater, namespace),
        studies=read_studies(where, models.optimizer_model.name),
        spread=read_spread(where, domain.name, rater.agent, rater.model),
        prompt=sum(prompts) // (CHARS * len(prompts)) if prompts else 0,
        judge=models.judge and models.judge[1],
    )


def read_attempts(
    where: Path,
    domain: Domain,
    validation: Sequence[Task],
    rater: Rater,
    namespace: str | None = None,
) -> Past:
    """Return attempts of the rater's agent with its model; how it did on these validation tasks,
    by them or else by the pass rates that were measured."""
    wanted = {task.id: task for task in validation}
    usages = list[Usage]()
    scores = dict[str, list[float]]()
    for e in ExperienceStore(where, namespace=namespace).experiences(domain=domain.name):
        if e.trace.model == rater.model and e.digest == rater.agent:
            usages.append(e.trace.usage)
            if e.task in wanted and e.grade.graded:
                scores.setdefault(e.task, []).append(e.grade.score)
    if len(scores) >= MIN_TASKS:
        return Past(
            usages,
            _mean(scores),
            f"{_mean(scores):.2f} on {len(scores)} validation tasks attempted here",
        )
    rated = rates_of(domain, where)
    known = {
        t.id: [rate]
        for t in validation
        if (rate := pass_rate(rated.pass_rates(t), rater)) is not None
    }
    if len(known) >= MIN_TASKS:
        text = f"{_mean(known):.2f} by the measured pass rates of {len(known)} validation tasks"
        return Past(usages, _mean(known), text)
    return Past(usages)


def read_taken(
    where: Path,
    settings: Settings,
    domain: Domain,
    validation: Sequence[Task],
    seed: Scaffold,
    model: str,
) -> list[JsonDict]:
    """Return the run and the usage of each attempt at the seed that a build would take of other
    runs; none where only the build itself can tell."""
    agent = seed.agent
    offered = agent.memory.recall or (agent.memory.tokens and settings.memory.policy != "none")
    if offered or agent.action == "tools" or hasattr(domain, "image") or settings.cache:
        return []
    if not takes(settings) or settings.record or settings.replay:
        return []
    sandbox = open_backend(settings).name
    keys = [
        attempt_key(
            seed,
            task,
            model=model,
            sandbox=sandbox,
            grader=extras(domain).grader or domain.name,
            repeat=repeat,
        )
        for task in draw_tasks(validation, settings.seed, "validation", settings.validation)
        for repeat in range(settings.repeats)
    ]
    before = list_attempted(where, settings, judged=False)
    return [
        {"run": before[key].parents[1].name, "usage": known.trace.usage}
        for key, known in read_attempted(where, before, keys, {seed.digest})
        if known.split == "validation"
    ]


def read_studies(where: Path, model: str) -> list[Usage]:
    """Return what each study and distilling took that this model made in the workspace's last runs
    and that ended."""
    found = list[Usage]()
    files = (where / "runs").glob("*/settings.toml")
    for file in heapq.nlargest(RUNS, files, key=lambda file: (file.stat().st_mtime, file)):
        try:
            run = Run(file.parent)
        except BadInput:  # a run that cannot be read tells nothing
            continue
        begun = next(iter(run.records("start")), {})
        named = str(run.settings.models.optimizer or begun.get("model", ""))
        if named.removeprefix("litellm:") == model.removeprefix("litellm:"):
            found += [s.usage for s in run.studies() if s.usage.calls and s.ending != "fault"]
    return found


def _mean(scores: Mapping[str, Sequence[float]]) -> float:
    return sum(sum(each) / len(each) for each in scores.values()) / len(scores)


CALIBRATION = "calibration.jsonl"
"""The file beside a domain's tasks that says how noisy its agents are (`recreate calibrate`)."""


def read_spread(where: Path, domain: str, agent: str, model: str) -> float | None:
    """Return the part of a score's variance that lies between tasks, as it was calibrated for an
    agent with a model in this workspace; None where it was not."""
    try:
        lines = (where / "benchmarks" / domain / CALIBRATION).read_text("utf-8").splitlines()
    except (OSError, UnicodeError):
        return None
    for line in lines:
        with contextlib.suppress(ValueError, LookupError, TypeError):
            row = json.loads(line)
            noise = float(row["noise"]["within"]), float(row["noise"]["between"])
            if (row["agent"], row["model"]) == (agent, model) and all(map(math.isfinite, noise)):
                return spread_of(*noise)
    return None
