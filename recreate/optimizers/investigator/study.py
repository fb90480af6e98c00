"""One study: an optimizer investigates one experience, and hands in edits of its private copy, or
none.

Only a study that is handed in with `finish` delivers; one that ran into a limit, wrote prose, or
lost its endpoint leaves a record and no edit.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from recreate.agents.scaffold import Scaffold
from recreate.agents.trajectory import clip
from recreate.api.errors import Fault
from recreate.api.shapes import JsonDict, JsonMap
from recreate.api.types import Experience, Message, Study
from recreate.optimizers.context import OptimizerContext, prompts
from recreate.optimizers.investigator.conversation import Talk, Tool, Wrong, numbers, one_of, text
from recreate.optimizers.investigator.draft import Draft
from recreate.optimizers.investigator.edit_tools import Writer
from recreate.optimizers.investigator.read_tools import (
    Reader,
    outcome,
    short,
    tell_agent,
    tell_files,
)
from recreate.optimizers.investigator.run_tools import Environments, Rehearsal
from recreate.storage import files
from recreate.storage.log import encode
from recreate.storage.redact import redact

CAUSES = ("knowledge", "strategy", "tool", "none")
WHERE = (
    "`knowledge` (it did not know something), `strategy` (it went about it badly), `tool` (it"
    " lacked a means, or one is wrong) or `none` (no edit would have helped)"
)
CITING = {
    "steps": numbers("the steps that show the need; you must have read them"),
    "experience": text("the experience they are of; left out: the one studied"),
}


def study(
    context: OptimizerContext,
    scaffold: Scaffold,
    experience: Experience,
    batch: Sequence[Experience],
) -> Study:
    """Investigate one experience. A fault of the infrastructure is a record (`ending` fault), not
    an exception.

    Raises OutOfBudget, Refused, Interrupted.
    """
    blank = Study(
        id=context.thread(experience.id),
        scaffold=scaffold.digest,
        experience=experience.id,
        task=experience.task,
        passed=experience.grade.passed,
    )
    draft = Draft(scaffold, context)
    reader = Reader(context, draft, experience, batch)

    def cite(given: JsonMap) -> Any:
        return reader.cited(given.get("steps", ()), given.get("experience", ""))

    # without trajectories nothing can be read, and the end of the attempt is what is cited
    optional = ("experience",) if "trajectory" not in context.without else ("steps", "experience")
    writer = Writer(draft, cite, CITING, optional)
    with Environments(context, reader, draft) as sandboxes:
        rehearsal = Rehearsal(context, reader, draft)
        result: JsonDict = {}

        def finish(summary: str, cause: str = "") -> str:
            if cause == "none" and draft.edits:
                causes = ", ".join(CAUSES[:-1])
                raise Wrong(
                    f"you made {len(draft.edits)} edits: name their cause ({causes}), or `undo`"
                    " them"
                )
            if cause not in ("none", "") and not draft.edits:
                raise Wrong("there is no edit: make one, or say that the cause is `none`")
            result.update(summary=summary, cause=cause, edits=tuple(draft.edits))
            return "handed in"

        tools = [*reader.tools(), *sandboxes.tools(), *writer.tools(), *rehearsal.tools()]
        tools.append(finishing(context, finish))
        return converse(
            context,
            blank,
            draft,
            tools,
            result,
            guidance="guidance" not in context.without,
            has=[tool.name for tool in tools],
            outcome=outcome(experience),
            model=experience.trace.model or "a model that was not recorded",
            agent=tell_agent(scaffold.agent),
            task=clip(experience.prompt, 6000),
            others=[outcome(e) for e in batch if e.id != experience.id],
        )


def finishing(context: OptimizerContext, finish: Callable[..., str]) -> Tool:
    """Return the tool that hands a study in; without guidance nobody asks for the cause."""
    summary = text("what happened, why, and what your edits change (or why none helps)")
    cause = one_of(*CAUSES, description=f"where the need lies: {WHERE}")
    asked = (
        {"summary": summary}
        if "guidance" in context.without
        else {"summary": summary, "cause": cause}
    )
    help = "Hand your work in. With no edit made, it says that none is needed."
    if "cause" in asked:
        help += f" `cause` is {WHERE}."
    return Tool(
        "finish",
        "decide",
        help,
        finish,
        asked,
        required=tuple(asked),
    )


def converse(
    context: OptimizerContext,
    blank: Study,
    draft: Draft,
    tools: Sequence[Tool],
    result: JsonMap,
    **variables: Any,
) -> Study:
    """Let the model work with the tools until one of them fills `result`, and write down what came
    of it.

    The prompt is the one that is named like the study's kind; its `variables` are those of this
    kind alone.
    """

    def prompt(native: bool) -> list[Message]:
        return prompts(
            blank.kind,
            tools=None if native else [tool.describe() for tool in tools],
            turns=context.limits.steps,
            domain=context.domain,
            files=tell_files(draft),
            kinds=tell_kinds(context),
            **variables,
        )

    file = context.folder / blank.id / "steps.jsonl" if context.folder else None
    talk = Talk(
        context.ask, blank.id, prompt, tools, context.limits, context.native(), result, file
    )
    try:
        ending, why = talk.run()
        found: JsonDict = {"ending": ending, "why": why}
    except Fault as e:
        found = {"ending": "fault", "why": redact(e.message)}
    if found["ending"] == "finished":
        found |= {"edits": tuple(draft.edits), **result}
    done = blank.model_copy(
        update={**found, "actions": dict(talk.actions), "kinds": talk.kinds, "usage": talk.usage}
    )
    save_study(context.folder, done)
    context.studied(done)
    return done


def tell_kinds(context: OptimizerContext) -> list[str]:
    """Return the kinds of the run's train tasks with the marks of these, one a line; [] when there
    is one kind only."""
    found: dict[str, list[str]] = {}
    for task, kind in context.kinds.items():
        found.setdefault(kind, []).append(short(task))
    return [f"{kind}: {', '.join(tasks)}" for kind, tasks in sorted(found.items())]


def save_study(folder: Path | None, study: Study) -> None:
    """Write a study down beside its steps."""
    if folder is None:
        return
    files.write(
        folder / study.id / "study.json", encode(study.model_dump(mode="json")), fix=files.RESUME
    )


def read_study(context: OptimizerContext, thread: str) -> Study | None:
    """Return a study that ended in an earlier session. One that a fault ended is tried again: its
    replies are paid."""
    file = context.folder / thread / "study.json" if context.folder else None
    if file is None or not file.is_file():
        return None
    found = Study.model_validate_json(file.read_text("utf-8"))
    return None if found.ending == "fault" else found
