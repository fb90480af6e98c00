"""build, resume, plan, run: the commands that spend."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from recreate.api.errors import BadInput
from recreate.api.paths import memory as memory_folder
from recreate.api.paths import short as here
from recreate.api.paths import workspace
from recreate.api.shapes import JsonDict
from recreate.cli.options import BUILD, RUN, TAPES, Json, RunName, with_settings
from recreate.cli.runner import folder_of, open_with_screen, say_back, stopped_by_budget
from recreate.cli.terminal import EXCLUDED, answer, say
from recreate.runs.settings import Settings

if TYPE_CHECKING:
    from recreate.builder.estimate import Estimate
    from recreate.builder.review import Reviewer
    from recreate.runs.defaults import Chosen
    from recreate.runs.opening import OpenedModels
    from recreate.runs.session import Session


@with_settings(*BUILD, *TAPES)
def build(settings: Settings, where: Path, as_json: Json = False) -> None:
    """Create an agent for a domain from experience.

    Example: recreate build --domain swe --budget 30min
    """
    from recreate.runs.folder import run_folder

    run_build(settings, where, run_folder(where, settings), as_json, again=False)


def resume(
    run: RunName = "last",
    budget: Annotated[
        list[str] | None, typer.Option("--budget", help="New caps in place of the old.")
    ] = None,
    jobs: Annotated[
        int | None, typer.Option("--jobs", min=1, max=256, help="Attempts at once.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Go on with a build that was stopped; nothing is paid for twice.

    Example: recreate resume last --budget 10usd
    """
    from recreate.runs.reader import find_run

    where = workspace()
    change: JsonDict = {"budget": tuple(budget)} if budget else {}
    if jobs:
        change["jobs"] = jobs
    go_on(find_run(run, where), where, as_json, **change)


def go_on(
    folder: Path, where: Path, as_json: bool, review: Reviewer | None = None, **change: Any
) -> None:
    """Go on with a build, some of its settings changed. review: who is asked first about what
    waits."""
    from recreate.runs.reader import Run

    run = Run(folder)
    settings = run.settings
    commands = {r.get("command", "") for r in run.records("start")}
    if "build" not in commands and ("prune" in commands or not (folder / "seed").is_dir()):
        raise BadInput(
            f"{here(folder)} is not a build",
            fix=(
                "run, bench, tune and ablate go on when they are given the same folder: --out"
                f" {here(folder)}"
            ),
            code="not-a-build",
        )
    run_build(settings.model_copy(update=change), where, folder, as_json, again=True, review=review)


def run_build(
    settings: Settings,
    where: Path,
    folder: Path,
    as_json: bool,
    *,
    again: bool,
    review: Reviewer | None = None,
) -> None:
    """Build, or go on with a build, and say what came of it. again: it goes on."""
    from recreate.builder import sdk
    from recreate.viewer import facts, html

    with open_with_screen(settings, where, folder, resume=again, command="build") as session:
        built = sdk.improve(session, where, review=_find_reviewer(session, review))
        domain = session.domain.name
    made = sdk.deliver(where, folder, domain, built)
    agent = made.place if made.stays else here(made.path)
    answer(
        as_json,
        made.record,
        facts.verdict_text(made.verdict),
        made.record["provenance"],
        f"agent: {agent}   report: {here(folder / 'report.md')}, to look at:"
        f" {here(folder / html.FILE)}",
        *(f"{EXCLUDED}: {row['task']}: {row['fault']}" for row in made.record["set_aside"]),
    )
    if "replaced" in made.record:
        say(
            f"{here(made.path)} held an agent that this build did not begin from; --name NAME puts"
            " one beside it"
        )
    if made.kept and (made.kept.saved or "replaced" in made.record):
        say_back(made.kept)
    if made.stays:
        say(f"{here(made.path)} is left as it stands: {made.record['stays']}")
        say(f"recreate keep {made.place} puts the result there")
    if made.waiting:
        say(f"{made.waiting.id} waits for your review: recreate review {here(folder)} shows it")
        say(how(folder))
    if made.status == "ceiling":
        say(facts.HARDER)
    elif made.status == "done" and not made.waiting and not made.stays and not as_json:
        if made.record.get("left_out"):
            seen = f"keep {made.record['left_out']} takes the agent that the build arrived at"
        elif any(revision.kept for revision in made.revisions):
            seen = f"diff {here(folder)}/seed {agent} shows what changed"
        elif made.revisions:
            seen = f"log {here(folder)} shows what was tried, and why it was dropped"
        else:
            seen = f"show {here(folder)} shows what was attempted and studied"
        say(f"next: recreate {seen}")
    if made.status == "budget":
        stopped_by_budget(f"recreate resume {here(folder)}")


def _find_reviewer(session: Session, first: Reviewer | None) -> Reviewer | None:
    """Return who is asked about a candidate: `first`, then whom a part of the kind `reviewer`
    knows."""
    from recreate.api.plugins import names
    from recreate.api.registry import find

    found = first
    for name in names("reviewer"):
        found = find("reviewer", name)(session, found)
    return found


def how(folder: Path) -> str:
    """Return what to type about a candidate that waits."""
    return f"recreate review {here(folder)} --accept, --edit or --reject WHY decides, and goes on"


@with_settings(*BUILD)
def plan(settings: Settings, where: Path, as_json: Json = False) -> None:
    """Say what a build would take and what gain it could detect; nothing is spent.

    Example: recreate plan --domain swe --model gpt-5-mini --budget 5usd
    """
    plan = _estimate(settings, where)
    made = plan.made
    settings = plan.chosen.settings
    if plan.opened.note and not as_json:
        say(plan.opened.note)
    for text in plan.told:
        say(text)
    model = plan.opened.model.name
    other = plan.opened.optimizer_model.name
    gain = "the gate keeps no gain eight times in ten: more tasks (--validation), or harder ones"
    gain += " (--difficulty, --kind, --data)"
    if made.chances:
        gain = _tell_chances(made)
    elif made.detectable_gain < 1:
        gain = f"the gate keeps a true gain of {made.detectable_gain:+.2f} eight times in ten"
        gain += "; a smaller one is mostly not kept"
    proposals = (
        f"{made.proposals} of {settings.rounds} proposals are paid for by the budget, at the high"
        " end"
        if settings.budget
        else f"{settings.rounds} proposal{'s' * (settings.rounds != 1)}: no --budget caps what they"
        " take"
    )
    named = settings.optimizer + f" with {other}" * (other != model)
    learns = settings.memory.policy
    parts = {"model": model, "optimizer": settings.optimizer, "models": {"optimizer": other}}
    answer(
        as_json,
        {**made.model_dump(mode="json"), **parts, "refused": plan.refused},
        ": ".join(filter(None, (f"optimizer {named}", plan.chosen.optimizer))),
        ": ".join(filter(None, (f"lessons {learns}", plan.chosen.policy))),
        f"at most {made.attempts} attempts of {plan.seed} with {model},"
        f" {made.spans(settings.jobs)}",
        *(f"  {text}" for text in made.assumes),
        proposals,
        f"on {settings.validation} validation tasks x {settings.repeats}, from a score of"
        f" {made.base_rate:g}, {gain}",
        *filter(None, [plan.refused]),
    )


def _tell_chances(made: Estimate) -> str:
    """Return how often a build would say what of some true gains."""
    rows = [
        f"  a true gain of {c.gain:+.2f}: better (shown) in {c.shown:.0%}, likely better in"
        f" {c.likely:.0%} of builds"
        for c in made.chances
    ]
    return "\n".join(["one candidate that gains, among those that do not:", *rows])


class _Planned(NamedTuple):
    """What a build would take, and of which parts. told: how tasks were selected; refused: why the
    build would not begin, '' where it would."""

    made: Estimate
    chosen: Chosen
    opened: OpenedModels
    seed: str
    told: Sequence[str]
    refused: str


def _estimate(settings: Settings, where: Path) -> _Planned:
    """Open each part without asking a model anything, and estimate. Raises BadInput as build
    does."""
    from recreate.builder import estimate, past
    from recreate.builder.selection import Rater, cannot_decide, fitted, seed_of, select
    from recreate.memory.held_out import HeldOut
    from recreate.runs import opening
    from recreate.runs.defaults import with_defaults
    from recreate.runs.folder import run_folder

    opening.check_settings(settings, run_folder(where, settings))
    for address, _, opens in opening.list_openers(settings, where):
        if not address.startswith("model"):  # those are opened below, without their keys
            opens()
    space = settings.memory.namespace
    domain = opening.open_domain(settings, where)
    held = HeldOut(memory_folder(where, space))
    opened = opening.open_models(settings, asked=False)
    try:
        judge = opening.open_judge(settings, opened, domain, asked=False)
        opened = replace(opened, judge=judge)
        model = opened.model.name
        other = opened.optimizer_model
        chosen = with_defaults(settings, other)
        settings = chosen.settings.model_copy(update={"model": settings.model or model})
        seed = seed_of(settings, domain.name, where, model)
        rater = Rater(seed.name, seed.digest, model)
        selected = None
        if settings.select.is_given:
            selected = select(domain, settings.select, where, rater)
        settings = fitted(settings, domain, held, selected)
        if wrong := cannot_decide(settings):
            raise wrong  # as build does
        judged = held.usable(domain, "validation")[0]
        judged = judged if selected is None else selected.of(judged)
        before = replace(
            past.read_past(where, domain, judged, rater, opened, space),
            taken=past.read_taken(where, settings, domain, judged, seed, model),
        )
        prices = opened.price, opened.optimizer_price
        made, refused = estimate.plan(settings, seed, *prices, before), ""
        try:
            estimate.refuse_if_too_small(settings, seed, *prices)
        except BadInput as e:  # what it takes was asked for, and is told first
            refused = f"build refuses it: {e}; {e.fix}"
    finally:
        opened.close()
    told = selected.told if selected else ()
    chosen = chosen._replace(settings=settings)
    return _Planned(made, chosen, opened, seed.name, told, refused)


WORDS_OF_RUN = {
    "domain": "A built-in, installed or `module:Class` domain; default: that of the task's id.",
    "out": "The run folder; default: runs/run-DATE.",
}


@with_settings(*RUN, *TAPES, words=WORDS_OF_RUN)
def run(
    settings: Settings,
    where: Path,
    scaffold: Annotated[
        str, typer.Argument(help="A scaffold's folder or name; none with --agent.")
    ],
    task: Annotated[
        str, typer.Argument(help="A task's id (`recreate tasks list` shows them).")
    ] = "",
    as_json: Json = False,
) -> None:
    """Let one agent attempt one task.

    Example: recreate run scaffolds/swe swe:parse-1.20.1:1
    """
    from recreate.builder.measure import count_openings
    from recreate.builder.sdk import attempt_one, starting
    from recreate.viewer.text import cut_off

    if settings.agent_table is not None and not task:
        scaffold, task = "", scaffold
    if not task:
        raise BadInput(
            "no task is named", fix="recreate run SCAFFOLD TASK; recreate tasks list", code="usage"
        )
    settings = settings.attempting(task)
    folder = folder_of(settings, where, "run")
    with open_with_screen(settings, where, folder, scaffold=scaffold) as session:
        experience = attempt_one(session, starting(settings, where, scaffold), task)
        opened = {"test_openings": count_openings(session)} if experience.split == "test" else {}
    trace = experience.trace
    grade = experience.grade
    record = {
        "run": str(folder),
        "experience": experience.id,
        "ending": trace.ending,
        "limit": trace.limit,
        "score": grade.score,
        "passed": grade.passed,
        "steps": len(trace.steps),
        "usage": trace.usage.model_dump(mode="json"),
        **opened,
    }
    outcome = "passed" if grade.passed else "failed"
    answer(
        as_json,
        record,
        f"{outcome} ({grade.score:g}), {f'{trace.ending} {trace.limit}'.strip()} after"
        f" {len(trace.steps)} steps"
        + "".join(f"; opening {n} of the test split" for n in opened.values()),
        *filter(None, [cut_off(trace)]),
        f"recreate traces show {experience.id} shows what it did",
    )
