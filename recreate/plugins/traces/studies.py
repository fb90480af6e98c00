"""What the optimizer looked at and concluded.

Example: recreate studies list last"""

from __future__ import annotations

from typing import Annotated

import typer

from recreate.api.errors import BadInput
from recreate.api.shapes import JsonDict
from recreate.cli.options import Json, RunName, open_run
from recreate.cli.terminal import answers, emit, fold, head
from recreate.cli.terminal import show as put
from recreate.plugins.traces.flags import Full
from recreate.viewer.text import wrong


def list_studies(run: RunName = "last", as_json: Json = False) -> None:
    """List the studies of a run: how each ended, its cause and edits, how much of it was
    inspection.

    Example: recreate studies list last
    """
    from recreate.viewer.markdown import study_text

    found = open_run(run).studies()
    summaries = [f"\n    {' '.join(s.summary.split())}" if s.summary else "" for s in found]
    rows = (
        ({**study.model_dump(mode="json"), "run": run}, f"{study.id}  {study_text(study)}{summary}")
        for study, summary in zip(found, summaries, strict=True)
    )
    answers(
        as_json,
        rows,
        "" if as_json else "no study has ended in this run; `--optimizer recreate` makes them",
    )


def show_study(
    id: Annotated[str, typer.Argument(metavar="ID", help="A study's id, or the beginning of it.")],
    run: Annotated[
        str, typer.Option("--run", help="The run it is of; default: the newest.")
    ] = "last",
    full: Full = False,
    as_json: Json = False,
) -> None:
    """Show one study action by action, also while it is still going on.

    Example: recreate studies show 3f2a --full
    """
    from recreate.optimizers.investigator.draft import tell_edit
    from recreate.runs.attempts import read_steps
    from recreate.viewer.markdown import study_text

    found = open_run(run)
    folders = [p for p in (found.folder / "studies").glob(f"{id}*") if p.is_dir()] if id else []
    if len(folders) != 1:
        raise BadInput(
            f"{len(folders) or 'no'} studies of {run} begin with {id!r}",
            fix=f"recreate studies list {run} shows them",
            code="no-study",
        )
    steps = list(read_steps(folders[0]))
    study = next((s for s in found.studies() if s.id == folders[0].name), None)
    if as_json:
        record: JsonDict = (
            study.model_dump(mode="json") if study else {"id": folders[0].name, "ending": ""}
        )
        emit({**record, "steps": [s.model_dump(mode="json") for s in steps]})
        return
    for step in steps:
        put(head(f"{step.step}: {fold(step.action, full) or 'no tool was called'}", wrong(step)))
        if step.reply and not step.reply.lstrip().startswith("{"):
            put(fold(step.reply, full))
        put(fold(step.output, full))
    if study is None:
        put(head("this study has not ended"))
        return
    put(head(study_text(study)), study.summary)
    put(*(f"\nedit {number}: {tell_edit(edit)}" for number, edit in enumerate(study.edits, 1)))
