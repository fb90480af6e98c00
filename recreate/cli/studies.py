"""studies list, studies show: what the optimizer looked at, and what it concluded."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from recreate.api.errors import BadInput
from recreate.api.paths import workspace
from recreate.cli.fold import fold, head, wrong
from recreate.cli.options import Json
from recreate.cli.terminal import emit, say, show

app = typer.Typer(help="What the optimizer looked at and concluded.\n\nExample: recreate studies list last")

RunArgument = Annotated[str, typer.Argument(help="A run folder, its name under runs/, or `last`.")]


@app.command("list")
def studies_list(run: RunArgument = "last", as_json: Json = False) -> None:
    """List the studies of a run: how each ended, its cause and edits, how much of it was inspection.

    Example: recreate studies list last
    """
    from recreate.runs.reader import Run, find_run
    from recreate.viewer.markdown import tell_study

    found = Run(find_run(run, workspace())).studies()
    for study in found:
        if as_json:
            emit({**study.model_dump(mode="json"), "run": run})
            continue
        show(f"{study.id}  {tell_study(study)}")
        if study.summary:
            show(f"    {' '.join(study.summary.split())}")
    if not found and not as_json:
        say("no study has ended in this run; `--optimizer recreate` makes them")


@app.command("show")
def studies_show(
    id: Annotated[str, typer.Argument(metavar="ID", help="A study's id, or the beginning of it.")],
    run: Annotated[str, typer.Option("--run", help="The run it is of; default: the newest.")] = "last",
    full: Annotated[bool, typer.Option("--full", help="Every text whole.")] = False,
    as_json: Json = False,
) -> None:
    """Show one study action by action, also while it is still going on.

    Example: recreate studies show 3f2a --full
    """
    from recreate.optimizers.investigator.draft import tell_edit
    from recreate.runs.attempts import read_steps
    from recreate.runs.reader import Run, find_run
    from recreate.viewer.markdown import tell_study

    seen = Run(find_run(run, workspace()))
    folders = [p for p in (seen.folder / "studies").glob(f"{id}*") if p.is_dir()] if id else []
    if len(folders) != 1:
        raise BadInput(
            f"{len(folders) or 'no'} studies of {run} begin with {id!r}",
            fix=f"recreate studies list {run} shows them",
            code="no-study",
        )
    steps = list(read_steps(folders[0]))
    study = next((s for s in seen.studies() if s.id == folders[0].name), None)
    if as_json:
        record: dict[str, Any] = study.model_dump(mode="json") if study else {"id": folders[0].name, "ending": ""}
        emit({**record, "steps": [s.model_dump(mode="json") for s in steps]})
        return
    for step in steps:
        show(head(f"{step.step}: {fold(step.action, full) or 'no tool was called'}", wrong(step)))
        if step.reply and not step.reply.lstrip().startswith("{"):
            show(fold(step.reply, full))
        show(fold(step.output, full))
    if study is None:
        show(head("this study has not ended"))
        return
    show(head(tell_study(study)))
    show(study.summary)
    for number, edit in enumerate(study.edits, 1):
        show(f"\nedit {number}: {tell_edit(edit)}")
