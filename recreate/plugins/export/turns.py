"""The turns of an agent apart from who holds the model and the shell: what to run, what to send,
when to stop.

They are those of `attempt`, for replies in text and one sample, and travel with an exported agent
(`source.py`). What has to be done is yielded as a Deed, and what came of it is sent back:

    opening = agent.begin(state)        -> the first two messages
    agent.limit(state)                  -> which limit is reached, '' for none
    turn = agent.take(reply, state)     -> (the messages to send next, how the attempt ended or '')
    perform(opening, do)                -> the value of a generator whose deeds do(deed) does
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from recreate.agents.action import ALONE, cut_words, exchange, parse
from recreate.agents.attempt import CUT_OFF, RAISED, may_rise
from recreate.agents.config import turns_left
from recreate.agents.functions import SUBMIT
from recreate.agents.template import render_text
from recreate.agents.trajectory import cut_middle
from recreate.agents.workplace import ABOUT, BIN, KEPT, KEPT_OUT, LEFT_OUT, executable
from recreate.api.types import Message, Output, Reply


@dataclass(frozen=True)
class ShellCommand:
    """To be run by bash in the folder of the work; stdout and stderr come back as one text."""

    script: str
    stdin: str = ""


@dataclass(frozen=True)
class FilePut:
    """To be written, folders made; the path is relative to the folder of the work. Where that fails
    the Output has another status than 0."""

    path: str
    data: bytes
    mode: int = 0o644


Deed = ShellCommand | FilePut
Value = TypeVar("Value")


@dataclass
class AttemptState:
    """How far an attempt is; plain values, so that it can be stored. raised: what a reply may have
    now in place of max_tokens, 0 for that; began: in seconds of time.time()."""

    task: str
    turn: int = 0
    tokens: int = 0
    usd: float = 0.0
    cut_off: int = 0
    raised: int = 0
    began: float = field(default_factory=time.time)


class PortableAgent:
    """An agent as it was exported. facts: what agent.toml and the prompts say, as `programs.facts`
    writes it; tools: name -> text; work: the folder that it works in. cap: what a reply may have, 0
    where that cannot be raised.
    """

    def __init__(
        self, facts: Mapping[str, Any], tools: Mapping[str, str], work: str = "/work", cap: int = 0
    ) -> None:
        self.facts = facts
        self.action = str(facts["action"])
        self.limits: Mapping[str, Any] = facts["limits"]
        self.turns = self.limits["steps"] + self.limits.get("extension", 0)
        self.tools = tools
        self.work = work
        self.cap = cap
        self.own = {
            "tools": facts["tools"],
            "lessons": facts["lessons"],
            "examples": facts["examples"],
            "limits": self.limits,
            "native": False,
        }

    def render(self, template: str, state: AttemptState, **variables: Any) -> str:
        """The text of a template. Raises BadInput (`bad-template`)."""
        given = {**self.own, "task": {"prompt": state.task}, **variables}
        return render_text(f"{template}.md", self.facts["templates"][template], given)

    def begin(self, state: AttemptState) -> Generator[Deed, Output, list[Message]]:
        """Puts the tools where the agent finds them and runs those that come first. Raises
        BadInput."""
        for name, text in self.tools.items():
            yield FilePut(f"{BIN}/{name}", executable(text), 0o755)
        if self.tools:
            yield FilePut(ABOUT, json.dumps({"prompt": state.task, "sample": 0}).encode())
        before = {}
        for name in self.facts["before"]:
            output = yield self.tool(name)
            before[name] = cut_middle(output.text, self.limits["observation_chars"], LEFT_OUT)
        return [
            {"role": "system", "content": self.render("system", state, before=before)},
            {"role": "user", "content": self.render("workflow", state, before=before)},
        ]

    def limit(self, state: AttemptState) -> str:
        """Which limit ends the attempt before the next call: tokens, usd, seconds, steps; '' for
        none."""
        if state.turn >= self.turns:
            return "steps"
        if state.tokens >= self.limits["tokens"]:
            return "tokens"
        if state.usd >= self.limits["usd"]:
            return "usd"
        return "seconds" if time.time() - state.began >= self.limits["seconds"] else ""

    def take(
        self, reply: Reply, state: AttemptState
    ) -> Generator[Deed, Output, tuple[list[Message], str]]:
        """Does what a reply asks for. -> (the reply as it is sent again and its answer, '' or
        `submitted`, `reply`).

        Raises BadInput (`bad-template`) where the answer cannot be filled in, which ends the
        attempt.
        """
        state.tokens += reply.tokens_in + reply.tokens_out
        state.usd += reply.usd
        turn, state.turn = state.turn, state.turn + 1
        left, extended = turns_left(self.limits["steps"], self.turns - self.limits["steps"], turn)
        command, wrong = parse(self.action, reply)
        if command == SUBMIT:
            return [], "submitted"
        answer = ""
        if not wrong:
            output, text = yield from self.act(command, len(self.facts["before"]) + turn)
            if output.status == 2 and self.action.startswith("tool:"):
                wrong = (text.strip() or "the reply could not be read") + cut_words(reply)
            else:
                told = {
                    "status": output.status,
                    "seconds": output.seconds,
                    "timed_out": output.timed_out,
                }
                shown = {**told, "cut": output.cut, "text": text}
                answer = self.render("observation", state, output=shown, step=turn, steps_left=left)
        if wrong:
            wrong += self.raise_cap(reply, state)
            answer = self.render("format", state, error=wrong, steps_left=left)
        elif self.facts["done"] and (yield self.tool(self.facts["done"])).status == 0:
            return [], "submitted"
        state.cut_off = state.cut_off + 1 if reply.finish == "length" and wrong else 0
        if state.cut_off == CUT_OFF:
            return [], "reply"
        return exchange(reply, (), (answer + extended,), cut=bool(state.cut_off)), ""

    def raise_cap(self, reply: Reply, state: AttemptState) -> str:
        """After a reply that was cut off, the next may have twice the tokens, once: what is said of
        that."""
        if state.raised or reply.finish != "length" or not self.cap:
            return ""
        if not may_rise(
            self.cap, reply, self.limits["tokens"] - state.tokens, self.limits["usd"] - state.usd
        ):
            return ""
        state.raised = 2 * self.cap
        return RAISED % state.raised

    def act(self, action: str, step: int) -> Generator[Deed, Output, tuple[Output, str]]:
        """(what came of an action, its text as it is shown)."""
        limit = self.limits["observation_chars"]
        if self.action.startswith("tool:"):
            output = yield self.tool(self.action.removeprefix("tool:"), action)
            return output, cut_middle(output.text, limit, LEFT_OUT, dropped=output.cut)
        line = f'export PATH="{self.work}/{BIN}:$PATH"\n'
        if SUBMIT not in self.tools:
            line += f"{SUBMIT}() {{ echo '{ALONE}' >&2; return 1; }}\n"
        output = yield ShellCommand(line + action)
        text, mark = output.text, LEFT_OUT
        if len(text) > limit:
            file = f"{KEPT}/{step}.txt"
            put = yield FilePut(file, text.encode("utf-8", "replace"))
            if put.status == 0:
                first = text.count("\n", 0, limit // 2) + 1
                mark = (KEPT_OUT % (first, first + 100, file)).replace("/work/", f"{self.work}/")
        return output, cut_middle(text, limit, mark, dropped=output.cut)

    def tool(self, name: str, stdin: str = "") -> ShellCommand:
        return ShellCommand(f"{self.work}/{BIN}/{name}", stdin)


def open_agent(folder: Path, work: str = "/work", *, raises: bool = False) -> PortableAgent:
    """The agent in a folder: agent.json, prompts/ and tools/. raises: what a reply may have can be
    raised."""
    facts = json.loads((folder / "agent.json").read_text("utf-8"))
    prompts = {path.stem: _read_exact(path) for path in (folder / "prompts").glob("*.md")}
    tools = {tool["name"]: _read_exact(folder / tool["path"]) for tool in facts["tools"]}
    cap = facts["model"]["max_tokens"] if raises else 0
    return PortableAgent({**facts, "templates": prompts}, tools, work, cap)


def _read_exact(path: Path) -> str:
    with path.open(encoding="utf-8", newline="") as file:  # line ends as they are
        return file.read()


def perform(deeds: Generator[Deed, Output, Value], do: Callable[[Deed], Output]) -> Value:
    """The value of a generator whose deeds are done by `do`."""
    try:
        deed = next(deeds)
        while True:
            deed = deeds.send(do(deed))
    except StopIteration as end:
        value: Value = end.value
        return value
