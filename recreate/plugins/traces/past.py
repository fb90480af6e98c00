"""What was measured in a workspace before: attempts of one agent and model, studies of one
optimizer's model."""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from recreate.agents.scaffold import load
from recreate.api.errors import BadInput
from recreate.api.paths import shipped
from recreate.api.ports import Domain
from recreate.api.types import PassRate, Task, Usage
from recreate.builder.curriculum import Tried
from recreate.builder.estimate import Past
from recreate.builder.selection import Rater, pass_rate, rates_of
from recreate.domains.rates import joined
from recreate.memory.store import ExperienceStore
from recreate.runs.attempts import read_experience
from recreate.runs.gate import MIN_TASKS
from recreate.runs.reader import Run
from recreate.runs.session import Session


def attempts(
    where: Path,
    domain: Domain,
    validation: Sequence[Task],
    rater: Rater,
    namespace: str | None = None,
) -> Past:
    """Attempts of the rater's agent with its model; how it did on these validation tasks, by them
    or else by the pass rates that were measured."""
    wanted, usages, scores = (
        {task.id: task for task in validation},
        list[Usage](),
        dict[str, list[float]](),
    )
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


def tried_before(session: Session, lineage: Collection[str]) -> list[Tried]:
    """What these versions of an agent, with this model, made of the domain's train tasks in other
    runs of the workspace."""
    wanted = {"domain": session.domain.name, "split": "train", "model": session.model_name}
    here = {r["attempt"] for r in session.journal.records("experience")}
    rows = session.memory.facts(wanted, "optimizer")
    fit = (
        r for r in rows if r["digest"] in lineage and r["id"] not in here and r["score"] is not None
    )
    return [Tried(r["task"], r["digest"], r["repeat"], r["score"]) for r in fit]


def attempted_in(records: Iterable[Mapping[str, Any]]) -> list[Tried]:
    """What agents made of train tasks, by a journal's `experience` records; re-runs with other
    lessons left out."""
    fit = (r for r in records if r["split"] == "train" and r.get("phase") != "rerun")
    return [Tried(r["task"], r["scaffold"], r["repeat"], r["score"]) for r in fit]


def rates_in(run: Run, domain: Domain, model: str = "") -> list[PassRate]:
    """How often each agent of a run passed each task of the domain that is asked as it was then.
    model: a name to give it; '' for its own."""
    tasks = {task.id: task for task in domain.tasks()}
    names = _names(run)
    found: dict[tuple[str, ...], PassRate] = {}
    for record in run.records("experience"):
        task, e = (
            tasks.get(record["task"]),
            read_experience(run.folder / "attempts" / record["attempt"], steps=False),
        )
        if task is None or e is None or not e.grade.graded or e.prompt != task.prompt:
            continue
        rate = PassRate(
            task=task.id,
            digest=task.digest,
            scaffold=names.get(e.digest, e.digest),
            agent=e.digest,
            model=model or e.trace.model,
            attempts=1,
            passed=int(e.grade.passed),
            each={e.id: e.grade.passed},
        )
        key = (rate.task, rate.agent, rate.model)
        found[key] = joined(found.get(key), rate)
    return sorted(found.values(), key=lambda rate: (rate.task, rate.scaffold))


def studies(where: Path, model: str) -> list[Usage]:
    """What each study and distilling took that this model made in the workspace's runs and that
    ended."""
    found = []
    for file in sorted((where / "runs").glob("*/settings.toml")):
        try:
            run = Run(file.parent)
        except BadInput:  # a run that cannot be read tells nothing
            continue
        begun = next(iter(run.records("start")), {})
        named = str(run.settings.models.optimizer or begun.get("model", ""))
        if named.removeprefix("litellm:") == model.removeprefix("litellm:"):
            found += [s.usage for s in run.studies() if s.usage.calls and s.ending != "fault"]
    return found


def _names(run: Run) -> dict[str, str]:
    """digest -> name of the agents of a run; one that it does not name, as a folder of scaffolds/
    that is the same."""
    found = {}
    for root in (shipped("scaffolds"), run.folder.parents[1] / "scaffolds"):
        for file in root.glob("*/agent.toml"):
            with contextlib.suppress(BadInput):
                found[load(file.parent).digest] = file.parent.name
    found |= {r["scaffold"]: r["name"] for r in run.records("seed", "agent")}
    return found


def _mean(scores: Mapping[str, Sequence[float]]) -> float:
    return sum(sum(each) / len(each) for each in scores.values()) / len(scores)
