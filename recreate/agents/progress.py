"""An attempt that is under way, whoever's agent makes it: its limits, its steps, and what it was
offered."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from recreate.agents.config import AgentLimits
from recreate.agents.request import Requests
from recreate.agents.retrieval import LessonRetrieval, draw_lesson
from recreate.agents.scaffold import Scaffold, Template
from recreate.api.errors import FILTERED, REFUSED_REQUEST, BadInput, Fault
from recreate.api.ports import Domain, SandboxBackend
from recreate.api.shapes import JsonDict, JsonMap
from recreate.api.types import Call, Ending, Message, Reply, Step, Task, Trace, TurnTokens, Usage
from recreate.storage.log import Log
from recreate.storage.redact import redact, redacted


class AskAgent(Protocol):
    """How an attempt reaches its model: Calls.ask with model and price filled in."""

    def __call__(self, messages: list[Message], call: Call, **params: Any) -> Reply: ...


FullParams = Callable[[JsonMap], JsonMap]
"""All that a call asks of its model, from what an attempt asks for: Calls.params with the model
filled in."""


@dataclass
class LimitsLeft:
    """What is left of the scaffold's limits, over all samples but for `steps`, which is per
    sample."""

    tokens: int
    usd: float
    ends: float

    @classmethod
    def of(cls, limits: AgentLimits) -> LimitsLeft:
        """Return all of them, from now on."""
        return cls(limits.tokens, limits.usd, time.monotonic() + limits.seconds)

    def reached(self, usage: Usage) -> str:
        if usage.tokens_in + usage.tokens_out >= self.tokens:
            return "tokens"
        if usage.usd >= self.usd:
            return "usd"
        return "seconds" if time.monotonic() >= self.ends else ""


@dataclass
class OfferedSoFar:
    """Which lessons a sample was offered so far, or might have been; what those offered took; what
    the step that answers to the last offer says of it."""

    ids: set[str] = field(default_factory=set)
    tokens: int = 0
    fresh: JsonDict = field(default_factory=dict)

    def show(self, lessons: Sequence[str]) -> None:
        """Show these lessons with the last answer."""
        self.ids |= {*lessons}
        if lessons:
            self.fresh["offered"] = (*self.fresh.get("offered", ()), *lessons)


def tokens(text: str) -> int:
    """About so many tokens, from the characters: a budget for lessons must not depend on a model's
    tokenizer."""
    return -(-len(text) // 4)


@dataclass
class AttemptProgress:
    """How far one attempt is: its limits, its steps, and what it was offered."""

    scaffold: Scaffold
    task: Task
    domain: Domain
    backend: SandboxBackend
    ask: AskAgent
    call: Call
    lines: Log | None
    """Where each step is written as soon as it happened."""
    on_step: Callable[[Step], None] | None
    offers: LessonRetrieval | None = None
    native: bool = False
    """The model takes tools, and the agent uses that."""
    full: FullParams = dict
    steps: list[Step] = field(default_factory=list)
    usage: Usage = field(default_factory=Usage)
    requests: Requests = field(default_factory=Requests)

    def __post_init__(self) -> None:
        agent = self.scaffold.agent
        self.agent = agent
        self.limits = LimitsLeft.of(agent.limits)
        self.native = self.native and agent.takes_tools
        self.address = self.call.model_dump(exclude={"step", "sample"})
        self.prompt = redact(self.task.prompt, acted_on=True)
        self.when: tuple[str, ...] = ()
        if self.offers is not None and self.offers.lessons:
            self.when = (
                ("start",)
                if self.offers.forced
                else agent.memory.when
                if agent.memory.tokens
                else ()
            )

    def close(self) -> None:
        """Write no more steps."""
        if self.lines is not None:
            self.lines.close()

    def trace(self, model: str, ending: Ending, limit: str, answer: str, chosen: int = 0) -> Trace:
        """Return the attempt, when it is over."""
        return Trace(
            attempt=self.call.attempt,
            task=self.task.id,
            scaffold=self.scaffold.digest,
            model=model,
            repeat=self.call.repeat,
            steps=tuple(self.steps),
            ending=ending,
            limit=limit,
            answer=answer,
            chosen=chosen,
            usage=self.usage,
        )

    @property
    def variables(self) -> JsonDict:
        """What every template may use."""
        return {"task": {"prompt": self.prompt}, "native": self.native}

    def render(self, name: Template, **shown: Any) -> str:
        """Return a template filled in, as it is sent: what its words and a text make together may
        look like a key."""
        text = self.scaffold.render(name, **shown, **self.variables)
        return redact(text, acted_on=True)

    def note(self, **fields: Any) -> None:
        step = Step(step=len(self.steps), **fields)
        self.steps.append(step)
        self.requests.know(step)
        if self.lines is not None:
            kept = step.model_dump(mode="json", by_alias=True, exclude_unset=True)
            self.lines.append(redacted(kept))
        if self.on_step is not None:
            self.on_step(step)

    def offer(self, why: str, seen: str, so_far: OfferedSoFar) -> str:
        """Return what memory has to say about what the agent sees, as it is shown; '' for nothing,
        or nothing new."""
        if self.offers is None or not (
            why in self.when or ("step" in self.when and why != "start")
        ):
            return ""
        budget = sys.maxsize if self.offers.forced else self.agent.memory.tokens - so_far.tokens
        own = {lesson.id for lesson in self.scaffold.lessons}
        found = []
        propensities = dict[str, float]()
        for lesson in self.offers.offer(seen, budget) if budget > 0 else ():
            size = tokens(f"{lesson.title}: {lesson.body}")
            if lesson.id in own or lesson.id in so_far.ids or size > budget:
                continue
            so_far.ids.add(lesson.id)
            if (propensity := self.offers.propensities.get(lesson.id)) is not None:
                propensities[lesson.id] = propensity
                if not draw_lesson(self.call.attempt, lesson.id, propensity):
                    continue
            budget -= size
            so_far.tokens += size
            found.append(lesson)
        so_far.fresh |= {"propensities": propensities} if propensities else {}
        if not found:
            return ""
        so_far.show([lesson.id for lesson in found])
        told = self.offers.support
        given = [
            {**x.model_dump(include={"id", "title", "body", "scope"}), "support": told(x)}
            for x in found
        ]
        return "\n\n" + self.render("offer", offered=given, why=why).strip("\n")

    def offer_at_start(self) -> tuple[str, JsonDict]:
        """Return (the same, what its step says of it) for an agent that runs by itself: it is
        offered nothing later."""
        so_far = OfferedSoFar()
        return self.offer("start", self.prompt, so_far), so_far.fresh


def end_of_refusal(e: BadInput | Fault, turns: int) -> tuple[Ending, str] | None:
    """Return how an attempt ends whose model did not take its request, after so many turns; None
    for what is not the attempt's own. What it asks first is its domain's and its scaffold's."""
    ends: dict[str, tuple[Ending, str]] = {
        "context-length": ("limit", "context"),
        FILTERED: ("error", "filter"),
        **({REFUSED_REQUEST: ("error", "request")} if turns else {}),
    }
    return ends.get(e.code)


def steps_log(folder: Path | None) -> Log | None:
    """Return folder/steps.jsonl, empty; None without a folder."""
    if folder is None:
        return None
    path = folder / "steps.jsonl"
    path.unlink(missing_ok=True)
    return Log(path)


def turn_tokens(reply: Reply, past: tuple[int, ...] = ()) -> dict[str, TurnTokens]:
    """Return {"tokens": ...} of a reply whose model tells all that training needs; else {}. past:
    the last turn's ids."""
    if reply.token_ids is None or reply.logprobs is None or reply.prompt_ids is None:
        return {}
    known = len(past) if reply.prompt_ids[: len(past)] == past else 0
    return {
        "tokens": TurnTokens(
            past=known,
            prompt=reply.prompt_ids[known:],
            reply=reply.token_ids,
            logprobs=reply.logprobs,
            tokenizer=reply.tokenizer_digest or "",
            mix_ids=reply.mix_ids,
            mix=reply.mix,
            cut=reply.finish == "length",
        )
    }
