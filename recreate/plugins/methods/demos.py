"""`demos`: worked examples of the agent's own successes, chosen by a search over sets of them.

After BootstrapFewShotWithRandomSearch of DSPy (Khattab et al., "DSPy: Compiling Declarative
Language Model Calls into Self-Improving Pipelines", arXiv 2310.03714). Published: demonstrations
are what the program itself did where its metric was content, and labelled ones where these are too
few; sets of random size and order are drawn, each is scored, and the best stays. No model is asked
but the agent's own.

Inferred: which train tasks score is drawn before anything is known of them, and what is of their
groups is no candidate: examples come from the others, and so agent and sets are compared on the
same tasks, none of which was chosen by how the agent did there, nor is an example of it. Sets race:
a third of the tasks, of the better half another third, of the better half of these the rest; one
that could not do better than the agent if it solved all that is left goes out at once. A set takes
the place of the examples that the agent has.
"""

from __future__ import annotations

import random
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from math import fsum

from pydantic import BaseModel, Field

from recreate.agents.lesson import lesson_id
from recreate.agents.scaffold import Scaffold, apply
from recreate.agents.trajectory import clip
from recreate.api.errors import OutOfBudget
from recreate.api.ports import Hit
from recreate.api.shapes import JsonMap
from recreate.api.types import Edit, Evidence, Experience, digest
from recreate.optimizers.context import OptimizerContext

SHOWS = """\
{% if examples %}
Examples of tasks like yours, done well:
{% for example in examples %}

{{ example.body }}
{% endfor %}

{% endif %}
"""
"""What shows them, where no prompt of the agent does: put before the task in workflow.md."""
PROMPTS = ("system", "workflow")
SHOWN = re.compile(r"\{[{%][^{}]*\bexamples\b")
TITLE = 8
"""Words of the task in an example's title."""
QUERY = 2000
"""Characters of prompts that memory is asked with."""
MOST_OUTPUT = 600
"""Characters of what came of an action in an example."""
MOST_ANSWER = 1000
REMEMBERED = 40
"""Successes of earlier runs that are looked at."""


class DemosSettings(BaseModel, frozen=True, extra="forbid"):
    """sets: how many are tried; size: the most examples of one; attempts: at train tasks, in one
    proposal; candidates: the best so many are proposed, one after the other; seed: of the draws."""

    sets: int = Field(default=8, ge=1, le=64)
    size: int = Field(default=4, ge=1, le=20)
    attempts: int = Field(default=96, ge=4, le=100_000)
    candidates: int = Field(default=1, ge=1, le=10)
    seed: int = 0


@dataclass(frozen=True)
class Example:
    """A worked example: the file that shows it, what prompts show of that, and the attempt that it
    is of."""

    path: str
    text: str
    body: str
    of: Experience

    @property
    def evidence(self) -> tuple[Evidence, ...]:
        return (Evidence(experience=self.of.id, step=max(0, len(self.of.trace.steps) - 1)),)


@dataclass
class ExampleSet:
    """Examples that are tried together, and the score of each train task that they were tried
    on."""

    child: Scaffold
    edits: Sequence[Edit]
    scores: dict[str, float] = field(default_factory=dict)


class Demos:
    """The optimizer `demos`; `[optimizer_settings]`: see DemosSettings."""

    Config = DemosSettings

    def __init__(self, context: OptimizerContext) -> None:
        self.context = context
        self.settings: DemosSettings = context.settings or DemosSettings()
        # a quarter of the attempts is for successes
        self.room = self.settings.attempts * 3 // 4
        self.sets = min(self.settings.sets, self.room - 1)

    @staticmethod
    def takes(settings: DemosSettings, batch: int) -> tuple[int, int]:
        return 0, settings.attempts

    def propose(self, scaffold: Scaffold, experiences: Sequence[Experience]) -> Sequence[Edit]:
        """The edits that show the best set; [] when none does better than the agent as it is."""
        return next(iter(self.candidates(scaffold, experiences)), [])

    def candidates(
        self, scaffold: Scaffold, experiences: Sequence[Experience]
    ) -> Sequence[Sequence[Edit]]:
        """The edits of each of the best sets, the best first."""
        if scaffold.foreign or not scaffold.agent.examples.tokens:
            self.context.note("demos: prompts of this agent show no examples")
            return []
        order = sorted(self.context.tasks, key=lambda id: digest([self.settings.seed, id]))
        count = self.count_scored(len(order) // 2)
        shown = (self.context.get(id) for example in scaffold.examples for id in example.born_of)
        carried = {e.group for e in shown if e is not None}
        parent = [e for e in self.attempt(scaffold, order[:count]) if e.group not in carried]
        scores = {e.task: e.grade.score for e in parent}
        if not scores or min(scores.values()) == 1:
            self.context.note("demos: the agent solves all train tasks that would score sets")
            return []
        pool = self.gather(scaffold, experiences, parent, order[count:])
        sets = list(self.draw_sets(scaffold, pool))
        self.context.note(
            f"demos: {len(sets)} sets of {len(pool)} worked examples, scored on {len(scores)} train"
            f" tasks, where the agent as it is has {fsum(scores.values()) / len(scores):.3f}"
        )
        best = self.race(sets, scores)
        self.context.note(
            "demos: against that the best sets have"
            f" {', '.join(f'{gain(each, scores):+.3f}' for each in best) or 'nothing'}"
        )
        better = [each for each in best if gain(each, scores) > 0]
        return [each.edits for each in better[: self.settings.candidates]]

    def count_scored(self, most: int) -> int:
        """Return how many train tasks can score: the agent and the race are to be paid."""
        count = 0
        while count < most and count + 1 + self.cost_of_race(count + 1) <= self.room:
            count += 1
        return count

    def cost_of_race(self, tasks: int) -> int:
        """Return how many attempts a race takes at most."""
        third = -(-tasks // 3)
        shares = [min(third, tasks - at) for at in range(0, tasks, third)]
        return sum(share * -(-self.sets // 2**n) for n, share in enumerate(shares))

    def attempt(self, child: Scaffold, tasks: Sequence[str]) -> list[Experience]:
        """Return attempts at train tasks, [] once the budget has none to spare."""
        try:
            return self.context.evaluate(child, tasks)
        except OutOfBudget:
            self.context.note("demos: the budget has no attempts left to choose with")
            return []

    def gather(
        self,
        scaffold: Scaffold,
        batch: Sequence[Experience],
        scored: Sequence[Experience],
        others: Sequence[str],
    ) -> list[Example]:
        """Return what may be shown, one of a task: the agent's own successes at tasks that do not
        score, of the batch, of memory, and of attempts that are made for this; where these are not
        enough for a set, right answers besides, as far as the domain shows them."""
        closed = {e.group for e in scored}
        found = dict[str, Experience]()

        def take(experiences: Iterable[Experience | None]) -> None:
            for e in experiences:
                if e and e.trust == "own" and e.split == "train" and e.group not in closed:
                    best = found.setdefault(e.task, e)
                    found[e.task] = e if e.grade.passed and not best.grade.passed else best

        failed = "\n".join(e.prompt for e in (*batch, *scored) if not e.grade.passed)
        wanted = {"domain": self.context.domain, "passed": True, "grain": "experience"}
        take(batch)
        take(self.context.get(h.experience) for h in self.recall(failed[:QUERY], wanted))
        left = [id for id in others if id not in found][: self.settings.attempts // 4]
        while left and sum(e.grade.passed for e in found.values()) < 2 * self.settings.size:
            block, left = left[: self.settings.size], left[self.settings.size :]
            take(self.attempt(scaffold, block))
        passed = [e for e in found.values() if e.grade.passed]
        made = [make_example(e, tell_attempt(e)) for e in passed]
        if len(passed) < self.settings.size:
            golds = ((e, self.context.gold(e)) for e in found.values())
            lacking = [(e, gold) for e, gold in golds if gold and not e.grade.passed]
            made += [make_example(e, f"Answer: {gold}") for e, gold in lacking]
        wrong = {
            each.path: faults
            for each in made
            if (faults := self.context.validate(scaffold, show(scaffold, [each])))
        }
        if wrong:
            self.context.note(f"demos: {len(wrong)} left out, such as {next(iter(wrong.values()))}")
        return sorted((e for e in made if e.path not in wrong), key=lambda e: e.path)

    def recall(self, words: str, filters: JsonMap) -> Sequence[Hit]:
        """Return successes of memory that are like what failed."""
        return self.context.recall(words, REMEMBERED, filters) if words.strip() else []

    def draw_sets(self, scaffold: Scaffold, pool: Sequence[Example]) -> Iterator[ExampleSet]:
        """Yield the sets: of random examples, as many as it goes, and then of random size. None is
        drawn twice, nor was dropped before."""
        draw = random.Random(digest([self.settings.seed, self.context.key]))
        seen = {scaffold.digest, *(revision.id for revision in self.context.rejected)}
        most = min(self.settings.size, len(pool))
        for number in range(20 * self.sets if pool else 0):
            size = most if number < self.sets // 2 else draw.randint(1, most)
            examples = fitting(draw.sample(pool, size), scaffold.agent.examples.tokens)
            edits = show(scaffold, examples) if examples else []
            if edits and not self.context.validate(scaffold, edits):
                child = apply(scaffold, edits)
                if child.digest not in seen:
                    seen.add(child.digest)
                    yield ExampleSet(child, edits)
            if len(seen) > self.sets + len(self.context.rejected):
                return

    def race(self, sets: Sequence[ExampleSet], parent: Mapping[str, float]) -> Sequence[ExampleSet]:
        """Return the sets that came to the end, the best first: after each third of the tasks the
        better half goes on, of those that could still do better than the agent."""
        tasks = list(parent)
        third = -(-len(tasks) // 3)
        for at in range(0, len(tasks), third):
            for each in sets:
                made = self.attempt(each.child, tasks[at : at + third])
                each.scores |= {e.task: e.grade.score for e in made}
            hoped = dict.fromkeys(tasks[at + third :], 1.0)
            sets = sorted(sets, key=lambda each: -gain(each, parent))
            sets = sets[: -(-len(sets) // 2)] if hoped else sets
            sets = [each for each in sets if gain(each, parent, hoped) > 0]
        return sets


def gain(made: ExampleSet, parent: Mapping[str, float], hoped: Mapping[str, float] = {}) -> float:
    """Return by how much a set beats the agent on average over the tasks; one that was excluded
    counts as level."""
    scores = {**made.scores, **hoped}
    return fsum(scores[task] - parent[task] for task in scores) / len(parent)


def fitting(examples: Sequence[Example], tokens: int) -> list[Example]:
    """Return the first of these examples that prompts show together, in so many tokens."""
    sizes = accumulate(len(example.body) for example in examples)
    return [e for e, size in zip(examples, sizes, strict=True) if size <= 4 * tokens]


def show(scaffold: Scaffold, examples: Sequence[Example]) -> list[Edit]:
    """Return the edits by which an agent shows these examples, in place of those that it has."""
    files = {example.path: example for example in examples}
    last = examples[0].evidence
    old = {path: text for path, text in scaffold.files.items() if path.startswith("examples/")}
    edits = [
        Edit(path=path, old=text, reason="other worked examples take its place", evidence=last)
        for path, text in old.items()
        if path not in files
    ]
    if not any(SHOWN.search(scaffold.files.get(f"{name}.md", "")) for name in PROMPTS):
        reason = "shows the agent its worked examples"
        task = scaffold.files["workflow.md"]
        new = SHOWS + task
        edits.append(Edit(path="workflow.md", old=task, new=new, reason=reason, evidence=last))
    return edits + [
        Edit(path=path, old="", new=e.text, reason="a worked example", evidence=e.evidence)
        for path, e in files.items()
        if path not in old
    ]


def make_example(of: Experience, done: str) -> Example:
    """Return the worked example of an attempt: of the task's words those that the agent was shown,
    and what it said and did."""
    seen = {line for step in of.trace.steps for line in step.observation.splitlines()}
    lines = of.prompt.splitlines()
    words = "\n".join(line for line in lines if line in seen).strip() or of.prompt.strip()
    body = f"Task: {words}\n\n{done}"
    title = " ".join(words.split()[:TITLE]).strip("#").strip()
    text = f"# {title}\n\n{body}\n\nborn_of: {of.id}\n"
    return Example(f"examples/{lesson_id(title, body)}.md", text, body, of)


def tell_attempt(e: Experience) -> str:
    """Return what the agent said and did in an attempt, and what came of it, without what could not
    be read."""
    steps = [step for step in e.trace.path() if step.kind == "action"]
    told = []
    for step in steps:
        said = step.reply.strip()
        told.append(f"Reply: {said if step.action in said else f'{said} {step.action}'.strip()}")
        if step is not steps[-1] and step.output.strip():
            told.append(f"Result: {clip(step.output, MOST_OUTPUT)}")
    text = "\n\n".join(told)
    answer = e.trace.answer.strip()
    if text == f"Reply: {answer}":
        return f"Answer: {answer}"
    return text if answer in text else f"{text}\n\nAnswer: {clip(answer, MOST_ANSWER)}"
