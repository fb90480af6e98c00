"""tasks agree: how far a grader agrees with people."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from recreate.api.errors import UNSOUND, Fault
from recreate.api.shapes import JsonDict, JsonMap
from recreate.api.types import Trace
from recreate.cli.options import DATA, JUDGE, Json, SandboxName, open_backend, with_settings
from recreate.cli.tasks import DomainName, domain_of, open_judge, run_each
from recreate.cli.terminal import answer, bar
from recreate.plugins.judge import judge
from recreate.runs.settings import Settings


@with_settings(*DATA, *JUDGE, "budget")
def agree(
    settings: Settings,
    where: Path,
    typed: JsonMap,
    labels: Annotated[
        Path,
        typer.Option(
            "--labels", help="Answers that people have labelled: rows of task, answer and label."
        ),
    ],
    domain: DomainName = "",
    jobs: Annotated[int, typer.Option("--jobs", help="Answers at once.", min=1, max=64)] = 4,
    sandbox: SandboxName = "",
    as_json: Json = False,
) -> None:
    """Say how far a domain's grader, such as a judge, agrees with people: on answers that they have
    labelled.

    A label is true or false, or a score from 0 to 1. At least 20 answers are needed.

    Example: recreate tasks agree essays --labels labels.jsonl --models.judge gpt-5-mini
    """
    backend = open_backend(sandbox)
    part = domain_of(domain, settings, typed, where, backend)
    known = {task.id: task for task in part.tasks()}
    rows = judge.labelled(str(labels), known)
    pairs: list[tuple[bool, bool]] = []
    differing: list[JsonDict] = []
    unsure = 0
    with open_judge(part, settings, where) as asking, bar("judging", len(rows)) as tell:

        def grade_row(row: judge.Labelled) -> tuple[judge.Labelled, Any]:
            trace = Trace(attempt="agree", task=row.task, scaffold="", model="", answer=row.answer)
            try:
                return row, asking.grade(known[row.task], trace, backend)
            except Fault as e:
                if e.code != UNSOUND:
                    raise
                return row, None

        for row, found in run_each(rows, grade_row, jobs):
            tell("")
            if found is None:
                unsure += 1
                continue
            pairs.append((found.passed, row.right))
            if found.passed != row.right:
                differing.append(
                    {
                        "row": row.number,
                        "task": row.task,
                        "score": found.score,
                        "evidence": found.evidence,
                    }
                )
    made = judge.agreement(pairs)
    differing.sort(key=lambda each: int(each["row"]))
    kappa = (
        "kappa is not defined: one side says the same of all"
        if made.kappa is None
        else (f"kappa {made.kappa:.2f} [{made.lo:.2f}, {made.hi:.2f}]")
    )
    answer(
        as_json,
        {
            **made.model_dump(mode="json", exclude={"schema_"}),
            "no_verdict": unsure,
            "differing": differing,
        },
        f"{made.agreement:.0%} of {made.n} answers, {kappa}"
        + (f"; {unsure} had no verdict" if unsure else ""),
        f"both right {made.both}   both wrong {made.neither}   only the grader passes"
        f" {made.grader_only}   only people do {made.people_only}",
        *(
            f"  row {each['row']}  {each['task']}  {each['score']:g}  {each['evidence'][:200]}"
            for each in differing[:10]
        ),
    )
