"""`gepa`: the gepa package itself over an agent's files, its pool scored on train tasks.

Agrawal et al., "GEPA: Reflective Prompt Evolution Can Outperform Reinforcement Learning" (arXiv
2507.19457). Selection from the Pareto front, minibatches, reflection and acceptance are the
package's; a component is a text file of the agent, a metric call an attempt at a train task of the
batch, the reflection model the optimizer's. Its own state is a pickle and therefore not kept: a
build that goes on finds the attempts and replies in the journal, and the same seed leads it the
same way.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from types import SimpleNamespace
from typing import Any

from pydantic import BaseModel, Field

from recreate.agents.scaffold import Scaffold
from recreate.agents.trajectory import tell
from recreate.api.types import Edit, Experience, Message
from recreate.optimizers.context import OptimizerContext
from recreate.optimizers.reflect import editable
from recreate.optimizers.search import ATTEMPT_CHARS, Measured, Search

FIRST = ("system.md", "workflow.md")
ROLES = {
    "system.md": "what the agent is told first, at every task",
    "workflow.md": "what it is told next, at every task, with the task itself",
    "observation.md": "how it is shown what came of an action",
    "format.md": "how it is told that its reply could not be read",
}
ROLE = "a lesson, which the agent's other texts show it"
KEEP = (
    "Keep every template mark ({{ ... }} and {% ... %}) of the present text. Name no task,"
    " function, file, test or value of the examples: the agent is measured on other tasks."
)
_MARK = re.compile(r"\{\{.*?\}\}|\{%.*?%\}", re.DOTALL)


class GepaSettings(BaseModel, frozen=True, extra="forbid"):
    """attempts: metric calls of a proposal (one that was made before costs nothing and counts);
    minibatch: tasks a mutation is tried on first; merge: whether the package's merge of two members
    is on."""

    attempts: int = Field(default=48, ge=1, le=100_000)
    minibatch: int = Field(default=3, ge=1, le=100)
    merge: bool = False


class Gepa:
    """The optimizer `gepa`; `[optimizer_settings]`: see GepaSettings. Needs the extra `gepa`."""

    Config = GepaSettings
    needs = ("gepa",)

    def __init__(self, context: OptimizerContext) -> None:
        self.context = context
        self.settings: GepaSettings = context.settings
        self.asked = 0

    @staticmethod
    def takes(settings: GepaSettings, batch: int) -> tuple[int, int]:
        # a mutation takes at least the parent's minibatch and its own, and one call; a kept one the
        # batch besides
        return (
            settings.attempts // (2 * min(settings.minibatch, batch)) + 1,
            settings.attempts + batch,
        )

    def propose(self, scaffold: Scaffold, experiences: Sequence[Experience]) -> Sequence[Edit]:
        """The edits to the member of the pool with the best mean on the batch's train tasks; []
        when it is the seed."""
        from gepa import optimize

        search = Search(self.context, scaffold, experiences)
        texts = components(scaffold, search.parent.experiences)
        tasks = list(search.parent.scores)
        if not search.evidence or not texts:
            return []
        agents = _Agents(search, texts)
        result = optimize(
            seed_candidate=texts,
            trainset=tasks,
            adapter=agents,
            reflection_lm=self.reflect,
            reflection_minibatch_size=min(self.settings.minibatch, len(tasks)),
            use_merge=self.settings.merge,
            max_metric_calls=self.settings.attempts,
            stop_callbacks=lambda state: search.spent,
            logger=SimpleNamespace(log=lambda text: None),
            raise_on_exception=True,
            seed=0,
        )
        scores = result.val_aggregate_scores
        self.context.note(
            f"gepa's pool: {', '.join(f'{score:.3f}' for score in scores)} on the batch's train"
            " tasks"
        )
        best = max(range(len(scores)), key=lambda i: scores[i])
        return agents.edits(result.candidates[best]) if scores[best] > scores[0] else []

    def reflect(self, question: Any) -> str:
        """The package's question to its reflection model, answered by the optimizer's."""
        messages: list[Message] = (
            [{"role": "user", "content": question}] if isinstance(question, str) else list(question)
        )
        self.asked += 1
        return self.context.ask(messages, step=self.asked - 1, temperature=1.0).text


class _Agents:
    """The package's adapter: an agent made of component texts attempts train tasks."""

    propose_new_texts = None

    def __init__(self, search: Search, texts: Mapping[str, str]) -> None:
        self.search = search
        self.texts = texts

    def edits(self, candidate: Mapping[str, str]) -> list[Edit]:
        changed = {
            path: text.rstrip("\n") + "\n"
            for path, text in candidate.items()
            if text != self.texts[path]
        }
        return self.search.edits(changed, "a member of gepa's pool, the best on train tasks")

    def evaluate(
        self, batch: list[str], candidate: dict[str, str], capture_traces: bool = False
    ) -> Any:
        """Scores 0..1 in the order of the batch; what cannot be an agent scores 0, and its fault is
        what is told. The package has no score for an attempt that was excluded: it counts as the
        parent's did, neither for nor against.
        """
        from gepa import EvaluationBatch

        edits = self.edits(candidate)
        faults = [
            f"{path} lost {mark}"
            for path, text in self.texts.items()
            for mark in find_lost_marks(text, candidate[path])
        ]
        faults = faults or (
            self.search.context.validate(self.search.scaffold, edits) if edits else []
        )
        made = None if faults else self.measured(edits, batch)
        told = (
            {e.task: tell(e, ATTEMPT_CHARS, self.search.context.without) for e in made.experiences}
            if made
            else {}
        )
        fault = (
            "this text cannot be used: " + "; ".join(faults)
            if faults
            else "the attempt did not end"
        )
        scores = [
            made.scores.get(task, self.search.parent.scores.get(task, 0.0)) if made else 0.0
            for task in batch
        ]
        return EvaluationBatch(
            outputs=list(batch),
            scores=scores,
            trajectories=[told.get(task, fault) for task in batch],
        )

    def measured(self, edits: Sequence[Edit], batch: Sequence[str]) -> Measured | None:
        """The parent's own scores are those of the batch that was handed in: they are paid
        already."""
        return self.search.measure(edits, batch) if edits else self.search.parent

    def make_reflective_dataset(
        self, candidate: dict[str, str], eval_batch: Any, components_to_update: list[str]
    ) -> dict[str, list[dict[str, str]]]:
        """What the reflection model is shown for each component: the attempts, and what a new text
        must keep."""
        return {
            component: self.rows(component, eval_batch.trajectories)
            for component in components_to_update
        }

    def rows(self, component: str, told: Sequence[str]) -> list[dict[str, str]]:
        """The package's question says nothing of where a text stands: the first row does. A task
        that fills up a minibatch a second time is told once."""
        others = ", ".join(path for path in self.texts if path != component) or "nothing else"
        about = (
            f"The instructions are one of the agent's texts, {component}:"
            f" {ROLES.get(component, ROLE)}. "
        )
        about += f"The others, which stay as they are: {others}."
        rows = [{"Attempt": attempt, "Remember": KEEP} for attempt in dict.fromkeys(told)]
        return [{"About": about, **row} if number == 0 else row for number, row in enumerate(rows)]


def find_lost_marks(text: str, new: str) -> list[str]:
    """The template marks of a text that a new one has not kept: a refusal or an apology has none of
    them."""
    return [mark for mark in dict.fromkeys(_MARK.findall(text)) if mark not in new]


def components(scaffold: Scaffold, experiences: Sequence[Experience]) -> dict[str, str]:
    """The agent's texts that attempts were shown, in the order in which the package takes them in
    turn: those that every attempt is shown first. A proposal pays for a few mutations only, and
    none can help that nobody reads.
    """
    steps = [step for e in experiences for step in e.trace.steps if step.kind != "before"]
    unread = {
        "format.md": all(step.kind != "malformed" for step in steps),
        "observation.md": (
            len(steps) <= len({(e.id, step.sample) for e in experiences for step in e.trace.steps})
        ),
    }
    paths = [
        path
        for path in editable(scaffold)
        if not path.startswith("tools/") and not unread.get(path)
    ]
    ordered = sorted(paths, key=lambda path: (path not in FIRST, path in unread, path))
    return {path: scaffold.files[path] for path in ordered}
