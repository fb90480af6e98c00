"""How often the agents of a run passed its tasks."""

from __future__ import annotations

from contextlib import suppress

from recreate.agents.scaffold import load
from recreate.api.errors import BadInput
from recreate.api.paths import shipped
from recreate.api.ports import Domain
from recreate.api.types import PassRate
from recreate.domains.rates import join_rates
from recreate.runs.attempts import read_experience
from recreate.runs.reader import Run


def read_rates(run: Run, domain: Domain, model: str = "") -> list[PassRate]:
    """Return how often each agent of a run passed each task of the domain that is asked as it was
    then. model: a name to give it; '' for its own."""
    tasks = {task.id: task for task in domain.tasks()}
    names = _names(run)
    found: dict[tuple[str, ...], PassRate] = {}
    for record in run.records("experience"):
        task = tasks.get(record["task"])
        e = read_experience(run.folder / "attempts" / record["attempt"], steps=False)
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
        found[key] = join_rates(found.get(key), rate)
    return sorted(found.values(), key=lambda rate: (rate.task, rate.scaffold))


def _names(run: Run) -> dict[str, str]:
    """Return digest -> name of the agents of a run; one that it does not name, as a folder of
    scaffolds/ that is the same."""
    found = {}
    for root in (shipped("scaffolds"), run.folder.parents[1] / "scaffolds"):
        for file in root.glob("*/agent.toml"):
            with suppress(BadInput):
                found[load(file.parent).digest] = file.parent.name
    found |= {r["scaffold"]: r["name"] for r in run.records("seed", "agent")}
    return found
