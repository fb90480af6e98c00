"""A rehearsal: the agent tries a train task with the private copy, before validation is paid for."""

from __future__ import annotations

from recreate.agents.trajectory import clip, index, tell_index
from recreate.api.errors import BadInput
from recreate.optimizers.context import OptimizerContext
from recreate.optimizers.investigator.draft import Draft
from recreate.optimizers.investigator.read_tools import Reader, outcome
from recreate.optimizers.investigator.tool import Tool, Wrong, text


class Rehearsal:
    """At most `study.rehearsals` attempts, each a paid one that can be read like any other."""

    def __init__(self, context: OptimizerContext, reader: Reader, draft: Draft) -> None:
        self.context = context
        self.reader = reader
        self.draft = draft
        self.left = context.limits.rehearsals

    def tools(self) -> list[Tool]:
        """`rehearse`, unless environments are switched off or nothing may be rehearsed."""
        if self.context.attempt is None or "environment" in self.context.without or not self.left:
            return []
        return [
            Tool(
                "rehearse",
                "try",
                f"Let the agent attempt a task of the batch with your private copy (at most {self.left} times: it "
                "costs a whole attempt). `index` and `steps` then show what it did.",
                self.rehearse,
                {"experience": text("an experience of the task; left out: the one studied")},
                ("experience",) if self.reader.subject is not None else (),
            )
        ]

    def rehearse(self, experience: str = "") -> str:
        e = self.reader.find(experience)
        if e.id not in self.reader.batch:
            raise Wrong("only tasks of this batch can be rehearsed")
        if self.draft.current.digest == self.draft.parent.digest:
            raise Wrong("there is no edit to rehearse: that attempt is the one you have")
        if not self.left:
            raise Wrong("no rehearsal is left")
        assert self.context.attempt is not None
        try:
            made = self.context.attempt(self.draft.current, e)
        except BadInput as error:
            raise Wrong(f"{error.message}: it cannot be rehearsed") from None
        self.left -= 1
        if made is None:
            self.left = 0
            raise Wrong("this cannot be rehearsed: there is no budget for it, or the attempt was lost to a fault")
        told = [outcome(made)]
        if "trajectory" not in self.context.without:
            told.append(tell_index(index(made.trace)))
        if "evidence" not in self.context.without:
            told.append("grader: " + clip(made.grade.evidence, 1500))
        return "\n".join([*told, f"[{self.left} rehearsals are left]"])
