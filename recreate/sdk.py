"""What the commands do, as functions: `recreate.build`, `recreate.run`, `recreate.bench`.

Every part may be a name, as on the command line, or an object of your own that fits its port; every setting has the
name of its flag (`models.timeout` is written `models__timeout`). What is paid for is on disk, as with the commands.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from recreate import page, paths, report
from recreate import scaffold as scaffolds
from recreate import settings as settings_
from recreate.agents import find_agent, seed_for
from recreate.cell import measure
from recreate.errors import BadInput, Fault
from recreate.gather import one, read_experience
from recreate.keep import Kept, keep, standing, untouched
from recreate.loop import Built, create
from recreate.loop import build as build_loop
from recreate.plan import refuse_if_too_small
from recreate.ports import Domain, Model, Optimizer, Rung
from recreate.review import Reviewer
from recreate.runs import Run
from recreate.scaffold import Scaffold
from recreate.settings import Settings
from recreate.types import Experience, Record, Revision, Split, Task, Verdict
from recreate.workshop import Parts, Say, Workshop, open_workshop, run_folder, silent

CREATE = "create"
"""As `scaffold`: the optimizer writes the seed."""


@dataclass(frozen=True)
class Outcome:
    """What a build ended with. `path` is the agent's folder, `run` the run folder with reports and lineage.

    place: where the result is found again: the folder, or RUN:DIGEST when what stood in the folder `stays` there.
    status: done | budget | review (it waits for a person). `scaffold` is the best version, `verdict` compares it with
    `seed` on validation. waiting: the candidate a person must see. kept: what was put into the folder, and what stood
    there before; None when nothing was.
    """

    run: Path
    path: Path
    place: str
    stays: bool
    status: str
    seed: Scaffold
    scaffold: Scaffold
    verdict: Verdict
    revisions: tuple[Revision, ...]
    record: Mapping[str, Any]
    """The object that `recreate build --json` prints."""
    waiting: Revision | None = None
    kept: Kept | None = None


class Cell(Record):
    """One scaffold on one split. mean with its 90 % interval [lo, hi] over `n` tasks; None when nothing was graded."""

    scaffold: str
    digest: str
    model: str
    domain: str
    split: str
    n: int
    repeats: int
    mean: float | None
    lo: float | None
    hi: float | None
    usd: float
    tokens: int
    set_aside: int
    test_openings: int
    scores: tuple[Mapping[str, Any], ...]


def build(
    domain: str | Domain = "swe",
    *,
    model: str | Model = "",
    optimizer: str | Callable[..., Optimizer] = "",
    optimizer_model: str | Model = "",
    scaffold: str | Path | Scaffold = "",
    sandbox: str | Rung = "",
    workspace: str | Path | None = None,
    review: bool | Reviewer = False,
    say: Say = silent,
    **settings: Any,
) -> Outcome:
    """Create an agent for a domain from experience: what `recreate build` does.

    `settings` are the flags of the command: budget="5usd", rounds=2, train=8, validation=20, jobs=4, out="runs/mine".
    `review` is asked before a revision is kept (see docs/review.md); True waits there, with status `review`.
    With `out` naming a run folder that holds a part of the same build, it goes on there and pays for nothing twice.

    Raises BadInput for what the caller can mend, Refused when an endpoint refuses, Fault for the infrastructure. A
    budget that is used up is not raised: the status says it.
    """
    settings = {"review": True, **settings} if review else settings
    with _started(domain, model, optimizer, optimizer_model, sandbox, workspace, say, settings) as (shop, where):
        built = improve(shop, where, scaffold, review=review if callable(review) else None)
        folder, name = shop.folder, shop.domain.name
    return deliver(where, folder, name, built)


def run(
    scaffold: str | Path | Scaffold,
    task: str | Task,
    domain: str | Domain = "swe",
    *,
    model: str | Model = "",
    sandbox: str | Rung = "",
    workspace: str | Path | None = None,
    say: Say = silent,
    **settings: Any,
) -> Experience:
    """Let one agent attempt one task, and grade it: what `recreate run` does.

    Raises BadInput for an unknown task, Fault when the attempt was lost to the infrastructure three times.
    """
    with _started(domain, model, "", "", sandbox, workspace, say, settings, prefix="run") as (shop, where):
        return attempt_one(shop, find_scaffold(scaffold, where), task if isinstance(task, str) else task.id)


def bench(
    scaffold: str | Path | Scaffold | Sequence[str | Path | Scaffold],
    domain: str | Domain = "swe",
    *,
    split: Split = "validation",
    tasks: int = 0,
    model: str | Model = "",
    sandbox: str | Rung = "",
    workspace: str | Path | None = None,
    say: Say = silent,
    **settings: Any,
) -> list[Cell]:
    """Measure scaffolds on a split, one cell each: what `recreate bench` does. tasks: at most so many, 0 for all.

    split="test" opens the test tasks, which is written down in the workspace and counted.
    """
    several = [scaffold] if isinstance(scaffold, str | Path | Scaffold) else list(scaffold)
    with _started(domain, model, "", "", sandbox, workspace, say, settings, prefix="bench") as (shop, where):
        agents = [find_scaffold(each, where) for each in several]
        return [Cell.model_validate(measure(shop, agent, split, tasks)) for agent in agents]


# ------------------------------------------------------------------------------- the parts that commands share


def improve(
    shop: Workshop, where: Path, scaffold: str | Path | Scaffold = "", *, review: Reviewer | None = None
) -> Built:
    """The loop in an opened workshop, from its seed; the run folder remembers which one that was."""
    shop.settings = fitted(shop.settings, shop.domain)
    seed = _seed(shop, where, scaffold)
    refuse_if_too_small(shop.settings, seed, shop.price, shop.optimizer_price)
    shop.say("seed", {"scaffold": seed, "shop": shop})
    built = build_loop(shop, seed, review=review)
    shop.journal.add("end", status=built.status, scaffold=built.scaffold.digest)
    return built


def deliver(where: Path, folder: Path, domain: str, built: Built) -> Outcome:
    """Put the agent into scaffolds/DOMAIN and write the reports; after the workshop is closed.

    An agent there that a person changed while the build ran stays as it stands: then `stays` is True.
    """
    seen = Run(folder)
    target = where / "scaffolds" / domain
    agent = built.scaffold.model_copy(update={"name": target.name})
    place, stays, kept = str(target), False, None
    if any(r.kept for r in built.revisions) or not target.exists():
        if stays := not untouched(target, seen):
            place = f"{paths.short(folder)}:{agent.digest}"
        else:
            kept = keep(agent, folder, target, report.readme(agent, seen, built))
    (folder / "report.md").write_text(report.report(seen, built), "utf-8")
    page.write(seen, built)
    return Outcome(
        run=folder,
        path=target,
        place=place,
        stays=stays,
        status=built.status,
        seed=built.seed,
        scaffold=built.scaffold,
        verdict=built.verdict,
        revisions=built.revisions,
        record=report.result(seen, built, place),
        waiting=built.waiting,
        kept=kept,
    )


def attempt_one(shop: Workshop, agent: Scaffold, task: str) -> Experience:
    """One graded attempt in an opened workshop."""
    tasks = {t.id: t for t in shop.domain.tasks()}
    if task not in tasks:
        raise unknown_task(task, list(tasks))
    score = one(shop, agent, tasks[task], 0, tasks[task].split)
    experience = read_experience(shop.folder / "attempts" / score.attempt)
    if experience is None:
        raise Fault(shop.aside[-1]["fault"], fix="mend that and run it again", code="set-aside")
    return experience


def fitted(settings: Settings, domain: Domain) -> Settings:
    """The settings with no more tasks than the domain has."""
    return settings.model_copy(
        update={
            "train": max(1, min(settings.train, len(domain.tasks("train")))),
            "validation": max(1, min(settings.validation, len(domain.tasks("validation")))),
        }
    )


def unknown_task(task: str, known: list[str]) -> BadInput:
    """The error for a task id that is not there."""
    import difflib

    near = difflib.get_close_matches(task, known, 1, 0.3)
    return BadInput(
        f"there is no task {task!r}",
        fix=f"did you mean {near[0]}?" if near else "recreate tasks list shows them",
        code="unknown-task",
    )


def ready(model: Any, progress: Any = None, say: Callable[[str], None] = lambda text: None) -> None:
    """Let a model that must be fetched or started do so now, and not inside its first call."""
    if hasattr(model, "prepare"):
        model.prepare(progress or (lambda done, total: None), say)


def _seed(shop: Workshop, where: Path, scaffold: str | Path | Scaffold) -> Scaffold:
    folder = shop.folder / "seed"
    if not folder.is_dir():
        wanted = scaffold or shop.settings.scaffold
        if wanted == CREATE:
            chosen = create(shop, find_scaffold("seed", where))
        elif wanted:
            chosen = find_scaffold(wanted, where)
        else:
            chosen = default_seed(shop.domain.name, where, shop.model.name)
        scaffolds.save(chosen, folder)
        stood = standing(where / "scaffolds" / shop.domain.name)
        shop.journal.add("seed", name=chosen.name, scaffold=chosen.digest, stood=stood)
    seed = scaffolds.load(folder)
    named = next(shop.journal.records("seed"), {"name": seed.name})
    return seed.model_copy(update={"name": named["name"]})


@contextmanager
def _started(
    domain: str | Domain,
    model: str | Model,
    optimizer: str | Callable[..., Optimizer],
    optimizer_model: str | Model,
    sandbox: str | Rung,
    workspace: str | Path | None,
    say: Say,
    settings: Mapping[str, Any],
    prefix: str = "",
) -> Iterator[tuple[Workshop, Path]]:
    where = Path(workspace).resolve() if workspace else paths.workspace()
    named = {
        "domain": domain,
        "model": model,
        "optimizer": optimizer,
        "models.optimizer": optimizer_model,
        "sandbox": sandbox,
    }
    flags = {key: value if isinstance(value, str) else spelled(value) for key, value in named.items() if value}
    flags |= {key.replace("__", "."): value for key, value in settings.items()}
    loaded = settings_.load(where, flags)
    folder = run_folder(where, loaded if loaded.out or not prefix else loaded.model_copy(update={"domain": prefix}))
    parts = Parts(
        domain=None if isinstance(domain, str) else domain,
        model=None if isinstance(model, str) else model,
        optimizer=None if isinstance(optimizer, str) else optimizer,
        optimizer_model=None if isinstance(optimizer_model, str) else optimizer_model,
        rung=None if isinstance(sandbox, str) else sandbox,
    )
    resume = (folder / "settings.toml").exists()
    shop = open_workshop(loaded, where, folder, say=say, resume=resume, parts=parts)
    try:
        for each in dict.fromkeys((shop.model, shop.optimizer_model)):
            ready(each)
        yield shop, where
    finally:
        shop.close()


def spelled(part: Any) -> str:
    """How an object's class is named in settings: `module:Class`, which finds it again when it can be imported."""
    kind = part if isinstance(part, type) else type(part)
    return f"{kind.__module__}:{kind.__qualname__}"


def find_scaffold(named: str | Path | Scaffold, where: Path) -> Scaffold:
    """A scaffold itself, or by folder, name or RUN:DIGEST."""
    return named if isinstance(named, Scaffold) else find_agent(str(named), where)


def default_seed(domain: str, where: Path, model: str) -> Scaffold:
    """The agent to start from when nobody names one: the domain's own, else a shipped seed."""
    seed: Scaffold = seed_for(domain, where, model)
    return seed
