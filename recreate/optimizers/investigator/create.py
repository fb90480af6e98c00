"""`create`: the seed, written by the optimizer from the domain's description and two train
tasks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from recreate.agents.scaffold import Scaffold
from recreate.agents.trajectory import clip
from recreate.api.errors import Fault
from recreate.api.shapes import JsonDict
from recreate.api.types import Experience, Grade, Study, Task, Trace, digest
from recreate.optimizers.context import OptimizerContext
from recreate.optimizers.investigator.conversation import Tool, text
from recreate.optimizers.investigator.draft import Draft
from recreate.optimizers.investigator.edit_tools import Writer
from recreate.optimizers.investigator.read_tools import Reader, tell_agent
from recreate.optimizers.investigator.run_tools import Environments
from recreate.optimizers.investigator.study import converse, read_study

NOTHING_TO_READ = ("trajectory", "evidence")


def create(
    context: OptimizerContext, start: Scaffold, description: str, tasks: Sequence[Task], model: str
) -> Scaffold:
    """Return a scaffold made of `start` for the domain of `tasks`, which are train tasks. model:
    what it will run on.

    Raises Fault when the optimizer did not finish one; OutOfBudget, Refused, Interrupted.
    """
    blanks = [blank(task, start) for task in tasks]
    context = replace(context, without=NOTHING_TO_READ)
    thread = context.thread("create")
    draft = Draft(start, context)
    known = read_study(context, thread)
    if known is not None and known.ending == "finished":
        for edit in known.edits:
            draft.add(edit)
        return draft.current
    reader = Reader(context, draft, blanks[0], blanks)
    writer = Writer(draft, lambda given: (), {}, (), origin="search")
    result: JsonDict = {}

    def finish(summary: str) -> str:
        result.update(summary=summary)
        return "handed in"

    with Environments(context, reader, draft) as sandboxes:
        looking = [tool for tool in reader.tools() if tool.name == "scaffold"]
        ending = Tool(
            "finish",
            "decide",
            "Hand the agent in.",
            finish,
            {"summary": text("what it does, and why so")},
        )
        tools = [*looking, *sandboxes.tools(), *writer.tools(), ending]

        done = converse(
            context,
            Study(id=thread, kind="create", scaffold=start.digest),
            draft,
            tools,
            result,
            description=description,
            model=model,
            agent=tell_agent(start.agent),
            tasks=[(e.id, clip(e.prompt, 4000)) for e in blanks],
        )
    if done.ending != "finished":
        raise Fault(
            f"the optimizer did not finish a seed ({done.ending} {done.why}".rstrip() + ")",
            fix=(
                "raise --study.steps, take another --models.optimizer, or start from a seed: leave"
                " --scaffold out"
            ),
            code="no-seed",
        )
    return draft.current


def blank(task: Task, scaffold: Scaffold) -> Experience:
    """Return a task as an experience that nobody has had yet: it can be looked into, and nothing
    else."""
    id = digest(["blank", task.id])
    return Experience(
        id=id,
        domain=task.domain,
        task=task.id,
        group=task.group,
        split=task.split,
        prompt=task.prompt,
        digest=scaffold.digest,
        trace=Trace(attempt=id, task=task.id, scaffold=scaffold.digest, model=""),
        grade=Grade(score=0.0, passed=False),
    )
