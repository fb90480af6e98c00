"""build, resume, plan, run: the commands that spend."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from recreate.cli.options import Json, with_settings
from recreate.cli.out import emit, say, show
from recreate.errors import BadInput, OutOfBudget
from recreate.paths import short as here
from recreate.paths import workspace
from recreate.settings import Settings

if TYPE_CHECKING:
    from recreate.review import Reviewer
    from recreate.workshop import Parts

BUILD = (
    "domain", "model", "models.optimizer", "optimizer", "without", "best_of", "review", "from_experience",
    "study.steps", "study.tokens", "study.usd", "study.rehearsals", "study.tools", "budget", "rounds", "train",
    "validation", "repeats", "jobs", "seed", "out", "scaffold", "sandbox", "price", "batch",
    "models.optimizer_price", "models.threads", "models.timeout", "models.retries", "gate.alpha", "memory.policy",
    "memory.embedder", "memory.recall", "vllm_python",
)  # fmt: skip
RUN = (
    "domain", "model", "budget", "jobs", "out", "sandbox", "price", "models.threads", "models.timeout", "memory.policy",
    "vllm_python",
)  # fmt: skip


def add(app: typer.Typer) -> None:
    """Put the commands on the app."""
    app.command("build")(build)
    app.command("resume")(resume)
    app.command("plan")(plan)
    app.command("run")(run)


@with_settings(*BUILD)
def build(settings: Settings, where: Path, as_json: Json = False) -> None:
    """Create an agent for a domain from experience.

    Example: recreate build --domain swe --budget 30min
    """
    from recreate.workshop import run_folder

    _build(settings, where, run_folder(where, settings), as_json, again=False)


def resume(
    run: Annotated[str, typer.Argument(help="A run folder, its name under runs/, or `last`.")] = "last",
    budget: Annotated[list[str] | None, typer.Option("--budget", help="New caps in place of the old.")] = None,
    jobs: Annotated[int | None, typer.Option("--jobs", help="Attempts at once.")] = None,
    as_json: Json = False,
) -> None:
    """Go on with a build that was stopped; nothing is paid for twice.

    Example: recreate resume last --budget 10usd
    """
    from recreate.runs import find_run

    where = workspace()
    change: dict[str, Any] = {"budget": tuple(budget)} if budget else {}
    if jobs:
        change["jobs"] = jobs
    go_on(find_run(run, where), where, as_json, **change)


def go_on(folder: Path, where: Path, as_json: bool, review: Reviewer | None = None, **change: Any) -> None:
    """Go on with a build, some of its settings changed. review: who is asked first about what waits."""
    from recreate.workshop import load_run

    settings = load_run(folder)
    if not (folder / "seed").is_dir():
        raise BadInput(
            f"{here(folder)} is not a build",
            fix=f"run, bench and tune go on when they are given the same folder: --out {here(folder)}",
            code="not-a-build",
        )
    _build(settings.model_copy(update=change), where, folder, as_json, again=True, review=review)


@with_settings(*BUILD)
def plan(settings: Settings, where: Path, as_json: Json = False) -> None:
    """Say what a build would take and what gain it could detect; nothing is spent.

    Example: recreate plan --domain swe --model gpt-5-mini --budget 5usd
    """
    from recreate import plan as planning
    from recreate.memory import Workspace
    from recreate.plug import find
    from recreate.sdk import CREATE, default_seed, find_scaffold, fitted
    from recreate.workshop import default_optimizer, open_domain, open_models

    if settings.optimizer:
        find("optimizer", settings.optimizer)
    domain = open_domain(settings, where)
    settings = fitted(settings, domain)
    model, price, other, other_price, told = open_models(settings)
    try:
        settings = settings.model_copy(update={"optimizer": settings.optimizer or default_optimizer(other)})
        named = settings.scaffold if settings.scaffold != CREATE else "seed"
        seed = find_scaffold(named, where) if named else default_seed(domain.name, where, model.name)
        past = [
            e.trace.usage
            for e in Workspace(where).experiences(domain=domain.name)
            if e.trace.model == model.name and e.digest == seed.digest
        ]
        made = planning.plan(settings, seed, price, other_price, past)
    finally:
        model.close()
        other.close()
    if as_json:
        emit(made.model_dump(mode="json"))
        return
    if told:
        say(told)
    show(
        f"{made.attempts} attempts of {seed.name} with {model.name}, about {made.calls} calls, {made.tokens:,} tokens, "
        f"${made.usd:.2f}, {made.minutes:g} minutes with {settings.jobs} at once\n"
        f"  ({made.source})\n"
        f"{made.proposals} of {settings.rounds} proposals are paid for by the budget\n"
        f"on {settings.validation} validation tasks x {settings.repeats} the gate keeps a true gain of "
        f"{made.detectable_gain:+.2f} eight times in ten; a smaller one will mostly stay undecided"
    )


@with_settings(*RUN)
def run(
    settings: Settings,
    where: Path,
    scaffold: Annotated[str, typer.Argument(help="A scaffold's folder or name.")],
    task: Annotated[str, typer.Argument(help="A task's id (`recreate tasks list` shows them).")],
    as_json: Json = False,
) -> None:
    """Let one agent attempt one task.

    Example: recreate run scaffolds/swe swe:parse-1.20.1:1
    """
    from recreate.sdk import attempt_one, find_scaffold
    from recreate.workshop import run_folder

    folder = run_folder(where, settings if settings.out else settings.model_copy(update={"domain": "run"}))
    with opened(settings, where, folder) as shop:
        experience = attempt_one(shop, find_scaffold(scaffold, where), task)
    trace, grade = experience.trace, experience.grade
    if as_json:
        emit(
            {
                "run": str(folder),
                "experience": experience.id,
                "ending": trace.ending,
                "score": grade.score,
                "passed": grade.passed,
                "steps": len(trace.steps),
                "usage": trace.usage.model_dump(mode="json"),
            }
        )
        return
    show(f"{'passed' if grade.passed else 'failed'} ({grade.score:g}), {trace.ending} after {len(trace.steps)} steps")
    show(f"recreate traces show {experience.id} shows what it did")


# ------------------------------------------------------------------------------------------------- their parts


def _build(
    settings: Settings, where: Path, folder: Path, as_json: bool, *, again: bool, review: Reviewer | None = None
) -> None:
    from recreate import page, report, sdk
    from recreate.cli.keep import say_back
    from recreate.cli.review import at_terminal, how

    with opened(settings, where, folder, resume=again) as shop:
        built = sdk.improve(shop, where, review=at_terminal(shop, review))
        domain = shop.domain.name
    made = sdk.deliver(where, folder, domain, built)
    if as_json:
        emit(made.record)
    else:
        show(report.say_verdict(made.verdict))
        agent = made.place if made.stays else here(made.path)
        show(f"agent: {agent}   report: {here(folder / 'report.md')}, to look at: {here(folder / page.FILE)}")
        for row in made.record["set_aside"]:
            show(f"set aside: {row['task']}: {row['fault']}")
    if made.kept and made.kept.saved:
        say_back(made.kept)
    if made.stays:
        say(f"{here(made.path)} was changed while this build ran, so it is left as it stands")
        say(f"recreate keep {made.place} puts the result there")
    if made.waiting:
        say(f"{made.waiting.id} waits for your review: recreate review {here(folder)} shows it")
        say(how(folder))
    if made.status == "budget":
        say(f"stopped by the budget; recreate resume {here(folder)} --budget MORE goes on")
        raise typer.Exit(OutOfBudget.exit_code)


@contextmanager
def opened(
    settings: Settings, where: Path, folder: Path, *, resume: bool = False, parts: Parts | None = None, go_on: str = ""
) -> Iterator[Any]:
    """A workshop with its screen; Ctrl-C and SIGTERM stop it cleanly, a second Ctrl-C at once.

    go_on: what to type to go on; default: `recreate resume` of the folder.
    """
    from recreate.cli.screen import Screen
    from recreate.sdk import models_of, stopping
    from recreate.workshop import open_workshop

    screen = Screen()
    go_on = go_on or f"recreate resume {here(folder)}"
    shop = open_workshop(settings, where, folder, say=screen, resume=resume, parts=parts)
    screen.ledger = shop.ledger
    try:
        for model in models_of(shop):
            ready(model)
    except BaseException:
        shop.close()
        raise
    with screen:
        try:
            with stopping(shop, go_on, (signal.SIGINT, signal.SIGTERM), screen.line):
                yield shop
        except OutOfBudget as e:
            raise OutOfBudget(e.message, fix=f"{go_on} --budget MORE goes on") from None
        finally:
            shop.close()


def ready(model: Any) -> None:
    """The same as a library user gets, with progress on the screen."""
    from recreate import sdk
    from recreate.cli.models import Progress

    if hasattr(model, "prepare"):
        with Progress(model.name) as progress:
            sdk.ready(model, progress, say)
