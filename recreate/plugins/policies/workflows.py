"""`workflows`: routines induced from successes, their values made variables, all of them shown to
the agent.

After Agent Workflow Memory (Wang et al., "Agent Workflow Memory", arXiv 2409.07429), as it works
online: each attempt that passed is turned into workflows as it comes, which are added to memory; a
workflow is a description and the steps of a routine that recurs, abstracted, so that a name or
value of one task is a variable; the agent has all of them before it works. What the paper calls
offline, workflows of examples that are given beforehand, is the same with experiences that were
there before.

Inferred, or otherwise here: the domain's grader says which attempts passed, in place of a model
that judges them; a workflow with the steps of one that is there is that one again, and supports it;
when not all fit the budget, those nearest to the query are shown; what a person vetoed (cosine
0.90) is not added again. Failures teach nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from recreate.agents.template import object_of
from recreate.agents.trajectory import tell
from recreate.api.types import Change, Experience, Lesson
from recreate.lessons.context import STRING, AskingPolicy, learnable, new_lesson, rows, text
from recreate.lessons.promotion import free
from recreate.lessons.similarity import fitting
from recreate.plugins.policies import PROMPTS

MOST = 3
STEPS = 12
SAME = 0.90
_STEPS = {"type": "array", "maxItems": STEPS, "items": STRING}
_WORKFLOW = object_of(title=STRING, description=STRING, steps=_STEPS)
INDUCE = object_of(workflows={"type": "array", "maxItems": MOST, "items": _WORKFLOW})


class Workflows(AskingPolicy):
    """Agent Workflow Memory as a memory policy."""

    prompts = PROMPTS

    def offer(self, query: str, budget: int) -> Sequence[Lesson]:
        """All workflows, as many as fit, the nearest first."""
        there = [x for x in self.lessons.values() if x.status in ("active", "candidate")]
        cosines = self.similarity.cosines(query, there, "query")
        order = sorted(zip(cosines, there, strict=True), key=lambda found: (-found[0], found[1].id))
        return fitting([workflow for _, workflow in order], budget)

    def observe(self, experiences: Sequence[Experience]) -> Sequence[Change]:
        batch = learnable(experiences)
        self.observed += len(batch)
        self.count_offered(batch)
        induced = {id for workflow in self.lessons.values() for id in workflow.supports}
        passed = [e for e in batch if e.grade.passed and e.id not in induced]
        changes = [change for e in passed for change in self.induce(e)]
        self.note_malformed()
        return changes

    def induce(self, experience: Experience) -> Iterator[Change]:
        """The workflows of one success."""
        found = self.ask("induce", INDUCE, attempt=tell(experience), most=MOST)
        for row in rows(found, "workflows", MOST):
            title = text(row, "title", 120)
            description = text(row, "description", 300)
            said = [
                " ".join(step.split())[:300]
                for step in rows(row, "steps", STEPS)
                if isinstance(step, str)
            ]
            steps = "\n".join(f"{n}. {step}" for n, step in enumerate(filter(None, said), 1))
            if title and steps:
                body = f"{description}\n\n{steps}" if description else steps
                yield from self.add(
                    experience, new_lesson(self.context.domain, title, body, [experience]), steps
                )

    def add(self, experience: Experience, workflow: Lesson, steps: str) -> Iterator[Change]:
        others = list(self.lessons.values())
        same = next(
            (x for x in others if x.body.rpartition("\n\n")[2].casefold() == steps.casefold()), None
        )
        vetoed = [x for x in others if x.status == "vetoed"]
        if same is None and self.similarity.nearest(workflow, vetoed, SAME, 1):
            return
        if same is None:
            self.put_lesson(
                workflow, status="active", domains=(self.context.domain,), seen=self.observed
            )
            yield Change(kind="born", lesson=workflow.id, why=f"of {experience.id}")
        elif free(same) and experience.id not in same.supports:
            supports = (*same.supports, experience.id)
            groups = tuple(dict.fromkeys((*same.groups, experience.group)))
            self.put_lesson(same, supports=supports, groups=groups, seen=self.observed)
            yield Change(kind="supported", lesson=same.id, why=f"{experience.id} went the same way")
