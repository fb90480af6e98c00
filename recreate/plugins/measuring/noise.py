"""calibrate, turn-limit, tasks rate: what attempts teach of noise, of turns, and of how hard tasks
are."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from recreate.api.errors import BadInput
from recreate.api.paths import short as here
from recreate.api.paths import workspace
from recreate.api.shapes import JsonMap
from recreate.cli.cells import tell_cell
from recreate.cli.options import DATA, RUN, SELECT, Json, open_run, with_settings
from recreate.cli.runner import folder_of
from recreate.cli.tasks import DomainName, domain_of
from recreate.cli.terminal import answer
from recreate.plugins.bench.opening import open_measuring
from recreate.runs.settings import Settings, as_flags

if TYPE_CHECKING:
    from recreate.agents.scaffold import Scaffold
    from recreate.plugins.measuring.turns import TurnLimit

CALIBRATE = (*RUN, "repeats", "validation", "rounds", "seed", "gate.false_keep", *SELECT)


@with_settings(
    *CALIBRATE,
    words={
        "rounds": "Candidates of the build, one a round.",
        "validation": "Validation tasks of the build.",
        "out": "The run folder; default: runs/calibrate-DOMAIN-DATE.",
    },
)
def calibrate(
    settings: Settings,
    where: Path,
    typed: JsonMap,
    scaffold: Annotated[
        str, typer.Option("--scaffold", help="The agent: a folder or a name.")
    ] = "",
    as_json: Json = False,
) -> None:
    """Run an agent against itself: its noise, and the gains that a build of it could tell from
    noise.

    What it finds is kept in benchmarks/DOMAIN, and `plan` and `build` go by it. --repeats: 3 unless
    given.

    Example: recreate calibrate --scaffold seed --domain swe --validation 20
    """
    from recreate.builder.sdk import starting
    from recreate.plugins.measuring.calibration import calibrate as calibrated

    if "repeats" not in typed:
        settings = settings.model_copy(update={"repeats": 3})
    folder = folder_of(settings, where, f"calibrate-{settings.domain}")
    if scaffold:  # one that is not there is refused before a run folder is made
        starting(settings, where, scaffold)
    with open_measuring(settings, where, folder) as session:
        agent = starting(settings, where, scaffold, session.domain.name, session.model_name)
        found, cell = calibrated(session, agent)
    noise = found.noise
    wrong = found.false_keep
    named = ["--scaffold", scaffold] if scaffold else []
    command = shlex.join(["recreate", "calibrate", *named, *as_flags(settings, CALIBRATE)])
    table = [
        f"  {d.tasks:>4} tasks x {d.repeats}: " + (f"{d.gain:+.2f}" if d.gain < 1 else "none")
        for d in found.detectable
    ]
    answer(
        as_json,
        {"run": str(folder), "usd": cell.usd, "command": command, **found.model_dump(mode="json")},
        f"{tell_cell(cell)}; {noise.flips:.0%} of the tasks are solved at times",
        f"of candidates that change nothing, {wrong.candidates} a build, one is kept in"
        f" {wrong.rate:.1%} [{wrong.lo:.1%}, {wrong.hi:.1%}] of builds",
        "the smallest gain that is kept eight times in ten:",
        *table,
        f"again: {command}",
    )


def find_turn_limit(
    runs: Annotated[
        list[str],
        typer.Argument(
            metavar="RUN...", help="Where the agent was attempted: folders, names, or `last`."
        ),
    ],
    percentile: Annotated[
        float,
        typer.Option(
            "--percentile", min=0.01, max=1.0, help="The share of attempts that the limit lets end."
        ),
    ] = 0.75,
    write: Annotated[
        Path | None,
        typer.Option(
            "--write", metavar="FOLDER", help="Put the limit into this agent's agent.toml."
        ),
    ] = None,
    as_json: Json = False,
) -> None:
    """Learn from attempts how many turns an agent needs: what a lower limit keeps, and what it
    saves. Nothing is spent.

    The limit is `steps`; the turns between it and what the agent has today become `extension`:
    granted once, and told only to attempts that are not done by then. Of train and validation
    attempts; those of test tune no agent. The agents of several runs are told apart by their
    digest.

    Example: recreate turn-limit calibrate-swe --write scaffolds/swe
    """
    from recreate.agents.scaffold import load
    from recreate.plugins.measuring.turns import PERCENTILES, count_turns, limits
    from recreate.runs.attempts import read_experience
    from recreate.runs.reader import Run, find_run

    where = workspace()
    by_agent = dict[str, list[Any]]()
    folders = [Run(find_run(name, where)).folder for name in runs]
    for folder in sorted(path for run in folders for path in (run / "attempts").glob("*")):
        experience = read_experience(folder)
        if experience is not None and experience.split != "test" and not experience.trace.fault:
            by_agent.setdefault(experience.trace.scaffold, []).append(experience)
    agent = load(write) if write else None
    if agent and agent.digest not in by_agent:
        raise BadInput(
            f"no attempt of {agent.name} ({agent.digest}) as it stands there was made in these"
            " runs",
            fix=(
                "one of its runs, or the agent whose attempts these are:"
                f" {', '.join(by_agent) or 'none'}"
            ),
            code="no-attempts",
        )
    rows = []
    lines = []
    for digest, experiences in sorted(by_agent.items(), key=lambda item: -len(item[1])):
        attempts = list(count_turns(experiences))
        wanted = sorted({*PERCENTILES, percentile})
        table = limits(attempts, wanted)
        lines.append(
            f"{digest}: {len(attempts)} attempts, {sum(a.passed for a in attempts)} passed"
        )
        told = {
            row.steps: row for row in table
        }.values()  # of several percentiles at one limit the highest
        lines += [
            f"  {row.percentile:>4.0%} of attempts end within {row.steps}"
            f" turn{'s' * (row.steps > 1)}: {row.kept:.0%} [{row.lo:.0%}, {row.hi:.0%}] of what"
            f" passed, {row.tokens:.0%} of the tokens"
            for row in told
        ] or ["  none passed, so that nobody can tell what a limit would lose"]
        rows.append(
            {
                "agent": digest,
                "attempts": len(attempts),
                "limits": [r.model_dump(mode="json") for r in table],
            }
        )
        if agent and digest == agent.digest:
            chosen = next((row for row in table if row.percentile == percentile), None)
            lines.append(_limited(agent, Path(write or ""), chosen))
    if not by_agent:
        raise BadInput(
            "these runs hold no train or validation attempt",
            fix="recreate calibrate --scaffold NAME",
            code="no-attempts",
        )
    lines.append(
        "an attempt that a limit would have cut counts as lost; whether it learns to hurry, only a"
        " run tells"
    )
    answer(as_json, {"runs": list(map(str, folders)), "agents": rows}, *lines)


def _limited(agent: Scaffold, folder: Path, chosen: TurnLimit | None) -> str:
    """Puts a limit into the agent in a folder, and says so. Raises BadInput (`no-attempts`) for
    none, which is so where no attempt passed."""
    from recreate.storage import files

    file = folder / "agent.toml"
    if chosen is None:
        raise BadInput(
            f"no attempt of {agent.name} passed, so that nobody can tell what a limit would lose;"
            f" {here(file)} is as it was",
            fix="runs in which it passed some tasks, or no --write",
            code="no-attempts",
        )
    beyond = max(0, agent.agent.limits.turns - chosen.steps)
    files.write(
        file, agent.limited({"steps": chosen.steps, "extension": beyond}).files["agent.toml"]
    )
    why = (
        ""
        if beyond
        else f": {chosen.percentile:.0%} of attempts need all its turns: nothing is saved"
    )
    return f"  {here(file)}: [limits] steps = {chosen.steps}, extension = {beyond}{why}"


@with_settings(*DATA)
def rate(
    settings: Settings,
    where: Path,
    typed: JsonMap,
    run: Annotated[
        list[str],
        typer.Option("--from", metavar="RUN", help="A run with finished attempts; repeatable."),
    ],
    domain: DomainName = "",
    name: Annotated[
        str, typer.Option("--model", help="Write the rates under this name of the model.")
    ] = "",
    file: Annotated[
        Path | None, typer.Option("--out", help="The file to write; default: the workspace's.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Write down how often tasks were passed, from the attempts of runs: what --difficulty goes by.

    Example: recreate tasks rate swe --from last
    """
    from recreate.domains import rates
    from recreate.plugins.measuring.rates import read_rates

    part = domain_of(domain, settings, typed, where)
    domain = domain or part.name
    beside = Path(typed.get("data", ""))
    folder = where / "benchmarks" / part.name
    if "data" in typed and not (folder / "domain.toml").is_file() and beside.exists():
        folder = beside if beside.is_dir() else beside.parent
    place = file or folder / rates.RATES
    found = [each for one in run for each in read_rates(open_run(one), part, name)]
    if not found:
        raise BadInput(
            f"{' and '.join(run)} holds no graded attempt at a task of {domain} as it is now",
            fix=f"recreate bench --domain {domain} --scaffold NAME --repeats 3 makes some",
            code="no-attempts",
        )
    tasks, new = rates.add(place, found)
    rows = [each.model_dump(mode="json", exclude={"each"}) for each in found]
    answer(
        as_json,
        {"file": str(place), "tasks": tasks, "new": new, "rates": rows},
        *(f"{r.passed}/{r.attempts}  {r.task}  ({r.scaffold} with {r.model})" for r in found),
        f"{new} attempts are new; {here(place)} has rates of {tasks} tasks",
    )
