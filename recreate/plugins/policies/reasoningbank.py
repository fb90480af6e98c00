"""`reasoningbank`: items of title, description and content, of successes and failures, appended and
never sorted out.

After ReasoningBank (Ouyang et al., "ReasoningBank: Scaling Agent Self-Evolving with Reasoning
Memory", arXiv 2509.25140). From the paper: each attempt, passed or failed, is distilled into at
most three items, of a success what made it one, of a failure what would have prevented it; new
items are added to the bank as they are, and nothing is merged or dropped; an agent is given the
items of the past attempts whose tasks are nearest to its own by embedding.

Inferred, or otherwise here: the domain's grader says whether an attempt passed, in place of a model
that judges it; the tasks of a build come again and again, so items are counted in place of
attempts, as many as one attempt can give, and of those whose tasks are equally near the ones whose
own words are nearest; an item whose attempt memory has no more is looked up by its own words; what
a person vetoed (cosine 0.90) is not added again. The paper's scaling at test time, several attempts
at one task compared, is not here.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from recreate.agents.template import object_of
from recreate.agents.trajectory import tell
from recreate.api.types import Change, Experience, Lesson
from recreate.lessons.context import (
    STRING,
    AskingPolicy,
    PolicyContext,
    learnable,
    new_lesson,
    rows,
    text,
)
from recreate.lessons.similarity import dot, fitting
from recreate.plugins.policies import PROMPTS

MOST = 3
"""Items of one attempt, and items that are offered."""
SAME = 0.90
ITEM = object_of(title=STRING, description=STRING, content=STRING)
DISTIL = object_of(happened=STRING, items={"type": "array", "maxItems": MOST, "items": ITEM})


class ReasoningBank(AskingPolicy):
    """A bank of what attempts taught as a memory policy."""

    prompts = PROMPTS

    def __init__(self, context: PolicyContext) -> None:
        super().__init__(context)
        self.tasks: dict[str, str] = {}

    def offer(self, query: str, budget: int) -> Sequence[Lesson]:
        """The items of the tasks that are nearest to the query."""
        by_task: dict[str, list[Lesson]] = {}
        for item in self.lessons.values():
            if item.status in ("active", "candidate"):
                by_task.setdefault(self.task(item), []).append(item)
        if not by_task:
            return []
        (asked,) = self.similarity.vectors([query], "query")
        near = {
            task: dot(asked, v)
            for task, v in zip(by_task, self.similarity.vectors(list(by_task)), strict=True)
        }
        items: list[Lesson] = []
        for task in sorted(near, key=lambda task: (-near[task], task)):
            own = zip(
                self.similarity.cosines(query, by_task[task], "query"), by_task[task], strict=True
            )
            items += [item for _, item in sorted(own, key=lambda found: (-found[0], found[1].id))]
            if len(items) >= MOST:
                break
        return fitting(items[:MOST], budget)

    def task(self, item: Lesson) -> str:
        """The words of the task that an item was learned at."""
        if item.id not in self.tasks:
            known = next(filter(None, map(self.context.find, item.born_of)), None)
            self.tasks[item.id] = (
                known.prompt if known is not None else f"{item.title}\n{item.body}"
            )
        return self.tasks[item.id]

    def observe(self, experiences: Sequence[Experience]) -> Sequence[Change]:
        batch = learnable(experiences)
        self.observed += len(batch)
        self.count_offered(batch)
        distilled = {id for item in self.lessons.values() for id in item.born_of}
        changes = [change for e in batch if e.id not in distilled for change in self.distil(e)]
        self.note_malformed()
        return changes

    def distil(self, experience: Experience) -> Iterator[Change]:
        """What one attempt adds to the bank."""
        found = self.ask(
            "distil", DISTIL, passed=experience.grade.passed, attempt=tell(experience), most=MOST
        )
        for row in rows(found, "items", MOST):
            title = text(row, "title", 120)
            content = text(row, "content", 1000)
            description = text(row, "description", 300)
            if title and content:
                body = f"{description}\n\n{content}" if description else content
                yield from self.add(
                    experience, new_lesson(self.context.domain, title, body, [experience])
                )

    def add(self, experience: Experience, item: Lesson) -> Iterator[Change]:
        vetoed = [x for x in self.lessons.values() if x.status == "vetoed"]
        if item.id in self.lessons or self.similarity.nearest(item, vetoed, SAME, 1):
            return
        self.put_lesson(item, status="active", domains=(self.context.domain,), seen=self.observed)
        why = "passed" if experience.grade.passed else "failed"
        yield Change(kind="born", lesson=item.id, why=f"of {experience.id}, which {why}")
