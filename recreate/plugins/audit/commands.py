"""tasks audit: a domain's grader, attacked."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from recreate.api.errors import BadInput, CheckFailed
from recreate.api.ports import Domain
from recreate.api.shapes import JsonMap
from recreate.api.types import Task
from recreate.builder.selection import find_task
from recreate.cli.options import (
    DATA,
    JUDGE,
    Json,
    SandboxName,
    open_backend,
    split_of,
    with_settings,
)
from recreate.cli.tasks import (
    DomainName,
    SplitOption,
    domain_of,
    open_judge,
    run_each,
    spread_tasks,
)
from recreate.cli.terminal import answer, bar, say
from recreate.plugins.audit import audit as audit_
from recreate.runs.settings import Settings


@with_settings(*DATA, *JUDGE, "budget")
def audit(
    settings: Settings,
    where: Path,
    typed: JsonMap,
    domain: DomainName = "",
    split: SplitOption = "",
    tasks: Annotated[
        int, typer.Option("--tasks", help="How many, of as many groups as there are.", min=1)
    ] = 1,
    task: Annotated[
        list[str] | None, typer.Option("--task", help="Only this one; repeatable.")
    ] = None,
    exploit: Annotated[
        list[str] | None, typer.Option("--exploit", help="Only this one; repeatable.")
    ] = None,
    each: Annotated[
        int,
        typer.Option(
            "--each", help="So many at a task, dealt round; default: all at every task.", min=0
        ),
    ] = 0,
    jobs: Annotated[int, typer.Option("--jobs", help="Exploits at once.", min=1, max=64)] = 1,
    sandbox: SandboxName = "",
    as_json: Json = False,
) -> int:
    """Attack the domain's grader with answers that leave a task unsolved. Exits 4 when one passes,
    or stops it.

    Example: recreate tasks audit swe --tasks 2

    Example: recreate tasks audit swe --tasks 100 --each 2 --jobs 2
    """
    backend = open_backend(sandbox)
    part = domain_of(domain, settings, typed, where, backend)
    domain = domain or part.name
    known = list(part.tasks(split_of(split)))
    chosen = (
        [find_task(known, id) for id in dict.fromkeys(task)] if task else spread_tasks(known, tasks)
    )
    if not chosen:
        raise BadInput(
            f"{domain} has no {split} tasks to audit".replace("  ", " "),
            fix=f"recreate tasks list {domain} shows what there is",
            code="no-tasks",
        )
    pairs = _attacks(part, chosen, exploit or (), each, domain)
    done: list[audit_.AuditResult] = []
    with open_judge(part, settings, where) as asking, bar("attacking", len(pairs)) as tell:
        for outcome in run_each(pairs, lambda pair: audit_.audit(asking, *pair, backend), jobs):
            done.append(outcome)
            word = "held  " if outcome.grader_held else "STOPS " if outcome.fault else "PASSES"
            say(
                f"{len(done)}/{len(pairs)}  {word}  {outcome.exploit}  {outcome.task} "
                f" {outcome.seconds:.1f} s"
            )
            if outcome.fault:
                say(f"        {outcome.fault.strip().splitlines()[0]}")
            tell("")
    passed = [o for o in done if not o.grader_held and not o.fault]
    stopped = [o for o in done if o.fault]
    answer(
        as_json,
        {
            "domain": part.name,
            "tasks": [one.id for one in chosen],
            "exploits": len({o.exploit for o in done}),
            "graded": len(done),
            "passed": [o.model_dump(mode="json", exclude={"evidence", "fault"}) for o in passed],
            "stopped": [o.model_dump(mode="json", exclude={"evidence", "passed"}) for o in stopped],
            "rate": round(len(passed) / len(done), 4),
        },
        *(
            f"{'stops ' if o.fault else 'passes'}  {o.exploit}  {o.task}"
            for o in (*passed, *stopped)
        ),
        f"{len({o.exploit for o in done})} exploits at {len(chosen)} tasks: {len(passed)} pass,"
        f" {len(stopped)} stop the grading",
    )
    return CheckFailed.exit_code if passed or stopped else 0


def _attacks(
    part: Domain, tasks: Sequence[Task], exploits: Sequence[str], each: int, domain: str
) -> list[tuple[Task, str, str]]:
    """(task, the exploit's name, its answer) of all that is to be graded; exploits: only these,
    unless there are none. Raises BadInput (`unknown-exploit`)."""
    pairs: list[tuple[Task, str, str]] = []
    names: list[str] = []
    for number, one in enumerate(tasks):
        own = audit_.answers(part, one)
        names += own
        wanted = [name for name in own if not exploits or name in exploits]
        pairs += [(one, name, own[name]) for name in audit_.dealt(wanted, number, each)]
    if unknown := [name for name in exploits if name not in names]:
        raise BadInput(
            f"{domain} has no exploit {unknown[0]}",
            fix=f"one of: {', '.join(dict.fromkeys(names))}",
            code="unknown-exploit",
        )
    return pairs
