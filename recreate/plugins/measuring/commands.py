"""blame, ablate, transfer: who wrote each line of an agent, and what each part of it is worth, with
the model it was made with or with another."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from recreate.api.errors import BadInput
from recreate.api.paths import short as here
from recreate.api.paths import workspace
from recreate.api.shapes import JsonDict, JsonMap
from recreate.cli import runner
from recreate.cli.options import RUN, SELECT, Json, with_settings
from recreate.cli.terminal import answer, say
from recreate.cli.terminal import show as put
from recreate.plugins.bench.commands import TASKS, count_tasks
from recreate.plugins.bench.opening import open_measuring
from recreate.runs.settings import Settings

if TYPE_CHECKING:
    from recreate.plugins.measuring.knockouts import Credit, Lineage
    from recreate.plugins.measuring.parts import AgentParts

KNOCKOUTS = (*RUN, "repeats", "seed", "gate.alpha", "gate.margin", *SELECT)
WORDS = {
    **TASKS,
    "repeats": (
        "Pairs of attempts that each task is given: with half of the parts, and with the other"
        " half."
    ),
    "gate.alpha": "1 - the level of intervals, which hold for all parts at once.",
    "gate.margin": "A part that is worth less than this, with certainty, is dead weight.",
}
REPEATS = 2
OF_TASKS = (
    "domain",
    "data",
    "repos",
    "prompt",
    "score",
    "columns",
    "model",
    "price",
    "sandbox",
    "limits",
    "validation",
    "seed",
    "select",
    "memory",
    "name",
)
"""What is taken from the build that made an agent, where no flag says it."""
SERVED = "local_models"
"""The table of a plug-in that is taken too: where its model is served."""

Base = Annotated[
    str, typer.Option("--base", help="What the agent was made from, where no build says it.")
]
WholeEdits = Annotated[
    bool, typer.Option("--whole-edits", help="An edit is one part, however many rules it wrote.")
]
PlanOnly = Annotated[bool, typer.Option("--plan", help="Say what it would take, and stop.")]


@with_settings(
    *KNOCKOUTS,
    "gate.false_keep",
    "gate.cheaper",
    words={**WORDS, "out": "The run folder; default: runs/ablate-DOMAIN-DATE."},
)
def ablate(
    settings: Settings,
    where: Path,
    typed: JsonMap,
    what: Annotated[
        str, typer.Argument(metavar="RUN_OR_SCAFFOLD", help="A build, `last`, or an agent.")
    ] = "last",
    base: Base = "",
    whole_edits: WholeEdits = False,
    plan: PlanOnly = False,
    prune: Annotated[
        bool,
        typer.Option(
            "--prune", help="Hand the removal of what it would drop to the gate, as one candidate."
        ),
    ] = False,
    as_json: Json = False,
) -> None:
    """Say what each edit, rule, tool and lesson of an agent is worth, by attempts with half of them
    switched off.

    On validation tasks (20 unless --tasks says how many, each with --repeats 2). Tasks and model
    are those of the build that made the agent, unless flags name others.

    Example: recreate ablate last --tasks 20 --repeats 4 --budget 5usd
    """
    what, lineage, settings = _read_request(what, where, base, settings, typed)
    folder = runner.folder_of(settings, where, f"ablate-{settings.domain}")
    parts = _parts(lineage, settings, whole_edits)
    if plan:
        _plan(settings, where, folder, parts, as_json)
        return
    from recreate.plugins.measuring.knockouts import credit

    with open_measuring(settings, where, folder) as session:
        found = credit(session, parts)
    pruned = _pruned(settings, where, folder, what, parts, found) if prune else None
    record = {"run": str(folder), **found.model_dump(mode="json", exclude={"break_even"})}
    answer(
        as_json,
        record | ({"pruned": pruned[0]} if pruned else {}),
        _table(found),
        *(pruned[1] if pruned else ()),
    )
    _end(found, folder, as_json, prune)


@with_settings(
    *KNOCKOUTS, words={**WORDS, "out": "The run folder; default: runs/transfer-DOMAIN-DATE."}
)
def transfer(
    settings: Settings,
    where: Path,
    typed: JsonMap,
    what: Annotated[
        str, typer.Argument(metavar="SCAFFOLD", help="An agent, or the build that made it.")
    ],
    base: Base = "",
    whole_edits: WholeEdits = False,
    plan: PlanOnly = False,
    worth: Annotated[
        float,
        typer.Option(
            "--worth",
            min=0,
            help="USD that a solved task is worth; default: what one costs without.",
        ),
    ] = 0.0,
    as_json: Json = False,
) -> None:
    """Say what each part of an agent is still worth with another model, and when its build is
    repaid there.

    `relearn`: of no use here, while the model scores lower than the agent's own did. Flags as of
    `ablate`.

    Example: recreate transfer scaffolds/swe --model gpt-5 --tasks 20 --worth 0.50
    """
    if "model" not in typed:
        raise BadInput("which model?", fix=f"recreate transfer {what} --model MODEL", code="usage")
    what, lineage, settings = _read_request(what, where, base, settings, typed)
    folder = runner.folder_of(settings, where, f"transfer-{settings.domain}")
    parts = _parts(lineage, settings, whole_edits)
    if plan:
        _plan(settings, where, folder, parts, as_json)
        return
    from recreate.plugins.measuring.knockouts import rebase

    with open_measuring(settings, where, folder) as session:
        found = rebase(session, parts, lineage, worth)
    even = found.break_even
    told = [even.says] if even is not None else []
    answer(as_json, {"run": str(folder), **found.model_dump(mode="json")}, _table(found), *told)
    _end(found, folder, as_json, prune=True)


def _read_request(
    what: str, where: Path, base: str, settings: Settings, typed: JsonMap
) -> tuple[str, Lineage, Settings]:
    """(its name, the agent with what it was made from, the settings: of the build that made it,
    where no flag says more)."""
    from recreate.plugins.measuring.knockouts import lineage_of, newest_build
    from recreate.runs.reader import Run, named_run

    what = newest_build(where) if what == "last" else what
    lineage = lineage_of(what, where, base)
    named = named_run(what.rpartition(":")[0] or what, where, whole=":" not in what)
    source = named or next(iter(lineage.runs), None)
    settings, count = count_tasks(settings)
    changes: JsonDict = {}
    if source is not None and not {"domain", "data"} & typed.keys():
        known = Run(source).settings
        tables = {
            address.partition(".")[0]
            for address in typed
            if address != "select.tasks" or count is None
        }
        price = {"price"} if "model" in typed else set()  # of the build's model
        changes = {name: getattr(known, name) for name in OF_TASKS if name not in tables | price}
        if SERVED in known.plugins and SERVED not in tables:
            changes["plugins"] = {**settings.plugins, SERVED: known.plugins[SERVED]}
    if count is not None:
        changes["validation"] = count
    if "repeats" not in typed:
        changes["repeats"] = REPEATS
    return what, lineage, settings.model_copy(update=changes)


def _parts(lineage: Lineage, settings: Settings, whole: bool) -> AgentParts:
    from recreate.plugins.measuring.knockouts import parts_in

    return parts_in(lineage, settings, whole=whole)


def _plan(settings: Settings, where: Path, folder: Path, parts: AgentParts, as_json: bool) -> None:
    """The estimate: no model is fetched or started, and a folder that was made for it goes
    again."""
    from recreate.plugins.measuring.knockouts import Knockouts, tell_plan
    from recreate.runs.session import open_session

    begun = (folder / "settings.toml").exists()
    try:
        session = open_session(settings, where, folder, resume=begun)
        try:
            made = Knockouts(session, parts).plan()
        finally:
            session.close()
    finally:
        if not begun:
            shutil.rmtree(folder, ignore_errors=True)
    listed = [f"  {part.kind:<7} {part.path:<32} {part.says}" for part in parts.parts]
    answer(as_json, made.model_dump(mode="json"), tell_plan(made), *listed, *_fixed(parts.fixed))


def _table(found: Credit) -> str:
    from recreate.viewer.html import fill

    width = max(len(part.path) for part in found.parts)
    return fill("credit", Path(__file__).parent, found=found, width=width).rstrip("\n")


def _fixed(fixed: tuple[tuple[str, str], ...]) -> Iterator[str]:
    for path, why in fixed:
        yield f"  {path} cannot be switched off, alone or with another: {why}"


def _pruned(
    settings: Settings, where: Path, folder: Path, what: str, parts: AgentParts, found: Credit
) -> tuple[JsonDict, list[str]]:
    """What the gate says of the agent without what it would drop: (the record, the lines)."""
    from recreate.builder.sdk import deliver
    from recreate.plugins.measuring.pruned import judge_candidate
    from recreate.viewer.facts import verdict_text

    off = [n for n, part in enumerate(found.parts) if part.dropped]
    if not off:
        return {"dropped": []}, ["nothing to prune: no part is known to be harmful or dead weight"]
    each = ((n, found.parts[n]) for n in off)
    reasons = {
        n: f"{p.path}: worth {p.worth:+.3f} [{p.lo:+.3f}, {p.hi:+.3f}], {p.advice}" for n, p in each
    }
    own = next(
        (p for p in (Path(what), where / "scaffolds" / what) if (p / "agent.toml").is_file()), None
    )
    out = folder.with_name(f"{folder.name}-prune")
    gate = settings.gate.model_copy(update={"keep": "each"})  # one step, and nothing to search
    told = {"out": str(out), "rounds": 1, "validation": 2 * found.tasks, "gate": gate}
    settings = settings.model_copy(update=told | ({"name": own.resolve().name} if own else {}))
    with open_measuring(settings, where, out, command="prune") as session:
        built = judge_candidate(session, parts.agent, parts.edits(off, reasons), found.task_ids)
        domain = session.domain.name
    made = deliver(where, out, domain, built)
    dropped = [found.parts[n].path for n in off]
    line = f"without {', '.join(dropped)}: {verdict_text(built.revisions[0].verdict)}"
    fate = f"kept in {made.place}" if built.revisions[0].kept else "the agent stays as it was"
    record = {
        "run": str(made.run),
        "dropped": dropped,
        "kept": built.revisions[0].kept,
        "scaffold": made.place,
    }
    verdict = built.revisions[0].verdict.model_dump(mode="json", exclude={"schema_"})
    return {**record, "verdict": verdict}, [
        line,
        f"{fate}; recreate show {here(made.run)} shows it",
    ]


def _end(found: Credit, folder: Path, as_json: bool, prune: bool) -> None:
    if found.status == "budget":
        runner.stopped_by_budget(f"the same command with --out {here(folder)}")
    if not as_json and not prune and any(part.dropped for part in found.parts):
        say(f"the same command with --out {here(folder)} --prune hands their removal to the gate")


def blame(
    file: Annotated[
        str, typer.Argument(metavar="FILE[:LINE]", help="A file of an agent, and one line of it.")
    ],
    as_json: Json = False,
) -> None:
    """Say who wrote each line of an agent: the seed, a person, or an edit, with its verdict and the
    steps it cites.

    Example: recreate blame scaffolds/swe/tools/localize.py:12
    """
    from recreate.plugins.measuring.blame import read_blame
    from recreate.viewer.facts import verdict_text

    lines = read_blame(file, workspace())
    one = len(lines) == 1
    for line in lines:
        who = line.writer.origin
        revision = line.writer.revision
        edit = line.writer.edit
        said = f"{revision.id[:8]} {revision.verdict.diff or 0:+.2f}" if revision else ""
        answer(as_json, line.record(), f"{who:<5} {said:<14} {line.line:>4}  {line.text}")
        if one and not as_json and revision is not None:
            fate = "kept" if revision.kept else "dropped"
            verdict = verdict_text(revision.verdict)
            put(f"  {fate} in round {revision.round + 1}: {verdict}")
        if one and not as_json and edit is not None:
            put(f"  {edit.path}: {edit.reason or 'no reason given'}")
            for cited in edit.evidence:
                put(f"  recreate traces show {cited.experience}   step {cited.step}")
