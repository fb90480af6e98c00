"""One agent, one task, one sandbox (a fresh one per sample): attempt(...) -> Trace.

How the agent acts is its scaffold's (agent.toml, `action`):

    bash        the one ```bash block of the reply is run; `submit` alone hands the work in
    json        the reply is {"command": ...}, held to that schema where the endpoint can
    tool:NAME   the whole reply goes to the scaffold's tools/NAME on standard input; exit status 2 says it was
                malformed and the output says how

Tools lie in the box as /work/.recreate/bin/NAME and are on PATH. `before` tools run ahead of the first turn,
`done` after every action (exit 0: handed in), `choose` ranks the samples; none of them sees anything hidden,
because nothing hidden is in the box.
"""

from __future__ import annotations

import json
import re
import sys
import time
import zlib
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from recreate.agents.retrieval import LastSeen, LessonRetrieval, support
from recreate.agents.scaffold import Scaffold
from recreate.agents.trajectory import cut_middle
from recreate.api.errors import BadInput
from recreate.api.ports import Domain, Sandbox, SandboxBackend
from recreate.api.types import Call, Ending, Message, Output, Reply, Step, Task, Trace, TurnTokens, Usage, digest
from recreate.storage.log import Log

BIN = ".recreate/bin"
"""Where a scaffold's tools lie, relative to /work. A domain leaves `.recreate/` out of what is handed in."""

SUBMIT = "submit"
QUERY_CHARS = 1500
"""Characters of a result's end that memory is asked with."""
LEFT_OUT = "\n[... {} characters left out here; print less, or a part at a time ...]\n"

COMMAND_SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {"thought": {"type": "string"}, "command": {"type": "string"}},
    "required": ["thought", "command"],
    "additionalProperties": False,
}
_FENCE = re.compile(r"^```(?:bash|sh|shell)[ \t]*\n(.*?)^```[ \t]*$", re.MULTILINE | re.DOTALL)


class AskAgent(Protocol):
    """How an attempt reaches its model: Calls.ask with model and price filled in."""

    def __call__(self, messages: list[Message], call: Call, **params: Any) -> Reply: ...


def attempt_key(
    scaffold: Scaffold, task: Task, *, model: str, sandbox: str, memory: str = "", grader: str = "", repeat: int = 0
) -> str:
    """The attempt's id, and the key under which its score is reused: all that the outcome depends on."""
    params = scaffold.agent.model.model_dump(exclude={"schema_"})
    return digest([scaffold.digest, task.id, task.digest, memory, model, params, sandbox, grader, repeat])


@dataclass
class _Limits:
    """What is left of the scaffold's limits, over all samples but for `steps`, which is per sample."""

    tokens: int
    usd: float
    ends: float

    def reached(self, usage: Usage) -> str:
        if usage.tokens_in + usage.tokens_out >= self.tokens:
            return "tokens"
        if usage.usd >= self.usd:
            return "usd"
        return "seconds" if time.monotonic() >= self.ends else ""


@dataclass
class _Offered:
    """Which lessons a sample was offered so far, what they took, and which of them it has not answered to yet."""

    ids: set[str] = field(default_factory=set)
    tokens: int = 0
    fresh: tuple[str, ...] = ()


def tokens(text: str) -> int:
    """About so many tokens, from the characters: a budget for lessons must not depend on a model's tokenizer."""
    return -(-len(text) // 4)


@dataclass
class _Attempt:
    scaffold: Scaffold
    task: Task
    domain: Domain
    backend: SandboxBackend
    ask: AskAgent
    call: Call
    lines: Log | None
    on_step: Callable[[Step], None] | None
    offers: LessonRetrieval | None = None
    steps: list[Step] = field(default_factory=list)
    usage: Usage = field(default_factory=Usage)

    def __post_init__(self) -> None:
        agent = self.scaffold.agent
        self.agent = agent
        self.limits = _Limits(agent.limits.tokens, agent.limits.usd, time.monotonic() + agent.limits.seconds)
        self.params: dict[str, Any] = {
            k: v for k in ("temperature", "top_p", "max_tokens") if (v := getattr(agent.model, k)) is not None
        }
        if agent.action == "json":
            self.params["json_schema"] = COMMAND_SCHEMA
        self.address = self.call.model_dump(exclude={"step", "sample"})
        self.shown = {"task": {"prompt": self.task.prompt}}
        self.when: tuple[str, ...] = ()
        if self.offers is not None and self.offers.lessons:
            self.when = ("start",) if self.offers.forced else agent.memory.when if agent.memory.tokens else ()

    def note(self, offered: tuple[str, ...] = (), **fields: Any) -> None:
        fields |= {"offered": offered} if offered else {}
        step = Step(step=len(self.steps), **fields)
        self.steps.append(step)
        if self.lines is not None:
            self.lines.append({"step": step.step, **fields})
        if self.on_step is not None:
            self.on_step(step)

    def sample(self, number: int) -> tuple[Sandbox, Ending, str]:
        """One independent try in a fresh box; the caller closes the box."""
        box = self.domain.prepare(self.task, self.backend)
        try:
            furnish(box, self.scaffold)
            shown = {**self.shown, "before": {n: self.before(box, n, number) for n in self.agent.before}}
            messages: list[Message] = [
                {"role": "system", "content": self.scaffold.render("system", **shown)},
                {"role": "user", "content": self.scaffold.render("workflow", **shown)},
            ]
            told = _Offered()
            seen = "\n".join([self.task.prompt, *(text[-QUERY_CHARS:] for text in shown["before"].values())])
            messages[1]["content"] += self.offered("start", seen, told)
            ending, limit = self.turns(box, messages, number, told)
            return box, ending, limit
        except BaseException:
            box.close()
            raise

    def before(self, box: Sandbox, name: str, number: int) -> str:
        output = box.run([f"/work/{BIN}/{name}"], timeout=self.agent.limits.command_seconds)
        text = cut_middle(output.text, self.agent.limits.observation_chars, LEFT_OUT)
        self.note(sample=number, kind="before", action=name, output=text, status=output.status)
        return text

    def offered(self, why: str, seen: str, told: _Offered) -> str:
        """What memory has to say about a situation, as it is shown; '' for nothing, or nothing new."""
        if why not in self.when or self.offers is None:
            return ""
        budget = sys.maxsize if self.offers.forced else self.agent.memory.tokens - told.tokens
        own = {lesson.id for lesson in self.scaffold.lessons}
        found = []
        for lesson in self.offers.offer(seen, budget) if budget > 0 else ():
            size = tokens(f"{lesson.title}: {lesson.body}")
            if lesson.id in own or lesson.id in told.ids or size > budget:
                continue
            budget -= size
            told.tokens += size
            found.append(lesson)
        if not found:
            return ""
        told.ids.update(lesson.id for lesson in found)
        told.fresh = tuple(lesson.id for lesson in found)
        given = [{**x.model_dump(include={"id", "title", "body", "scope"}), "support": support(x)} for x in found]
        return "\n\n" + self.scaffold.render("offer", offered=given, why=why, **self.shown).strip("\n")

    def turns(self, box: Sandbox, messages: list[Message], number: int, told: _Offered) -> tuple[Ending, str]:
        limits = self.agent.limits
        last = LastSeen()
        past: tuple[int, ...] = ()
        for turn in range(limits.steps):
            reached = self.limits.reached(self.usage)
            if reached:
                return "limit", reached
            step = len(self.steps)
            call = Call(**self.address, step=step, sample=number)
            seed = zlib.crc32(f"{call.attempt}/{step}".encode()) >> 1
            try:
                reply = self.ask(messages, call, seed=seed, **self.params)
            except BadInput as e:
                if e.code != "context-length":
                    raise
                return "limit", "context"
            usage = Usage.of(reply)
            self.usage = self.usage + usage
            seen = messages[-1]["content"]
            given, told.fresh = told.fresh, ()
            left = limits.steps - turn - 1
            action, wrong = parse(self.agent.action, reply)
            output: Output | None = None
            said: dict[str, Any] = {"observation": seen, "reply": reply.text, "usage": usage, "offered": given}
            said |= in_tokens(reply, past)
            past = (*(reply.prompt_ids or ()), *(reply.token_ids or ()))
            if action == SUBMIT and not wrong:
                self.note(sample=number, action=SUBMIT, **said)
                return "submitted", ""
            if not wrong:
                output = self.act(box, action)
                if output.status == 2 and self.agent.action.startswith("tool:"):
                    wrong = output.text.strip() or "the reply could not be read"
            if wrong:
                answer = self.scaffold.render("format", error=wrong, steps_left=left, **self.shown)
                fields: dict[str, Any] = {"kind": "malformed", "action": "", "output": wrong}
            else:
                assert output is not None
                text = cut_middle(output.text, limits.observation_chars, LEFT_OUT, dropped=output.cut)
                shown = {
                    "text": text,
                    "status": output.status,
                    "seconds": output.seconds,
                    "timed_out": output.timed_out,
                    "cut": output.cut,
                }
                answer = self.scaffold.render("observation", output=shown, step=turn, steps_left=left, **self.shown)
                fields = {"action": action, "output": text, "status": output.status, "seconds": output.seconds}
                last, why = last.after(text)
                answer += self.offered(why, text[-QUERY_CHARS:], told)
            self.note(sample=number, **said, **fields)
            if not wrong and self.agent.done and self.tool(box, self.agent.done).status == 0:
                return "submitted", ""
            messages.append({"role": "assistant", "content": reply.text})
            messages.append({"role": "user", "content": answer})
        return "limit", "steps"

    def act(self, box: Sandbox, action: str) -> Output:
        kind = self.agent.action
        if kind.startswith("tool:"):
            return self.tool(box, kind.removeprefix("tool:"), action)
        return box.run(f'export PATH="/work/{BIN}:$PATH"\n{action}', timeout=self.agent.limits.command_seconds)

    def tool(self, box: Sandbox, name: str, stdin: str = "") -> Output:
        return box.run(
            [f"/work/{BIN}/{name}"],
            timeout=self.agent.limits.command_seconds,
            stdin=stdin.encode("utf-8", "surrogatepass"),
        )

    def rank(self, box: Sandbox) -> float:
        """What the `choose` tool thinks of a sample: the number on its last line, lowest when there is none."""
        lines = self.tool(box, self.agent.choose).text.strip().splitlines()
        try:
            return float(lines[-1])
        except (IndexError, ValueError):
            return float("-inf")


def attempt(
    scaffold: Scaffold,
    task: Task,
    domain: Domain,
    backend: SandboxBackend,
    ask: AskAgent,
    call: Call,
    *,
    model: str = "",
    folder: Path | None = None,
    on_step: Callable[[Step], None] | None = None,
    offers: LessonRetrieval | None = None,
) -> Trace:
    """Let the agent work on the task. Returns the trace with what was handed in.

    `call` carries run, attempt, role, phase, task and repeat; its step is counted here. With `folder`, every
    step is in folder/steps.jsonl as soon as it happened. What the agent does wrong is data in the trace; what
    is raised is ours: OutOfBudget, Refused, Fault, Interrupted.
    """
    lines = None
    if folder is not None:
        path = folder / "steps.jsonl"
        path.unlink(missing_ok=True)
        lines = Log(path)
    work = _Attempt(scaffold, task, domain, backend, ask, call, lines, on_step, offers)
    agent = scaffold.agent
    best: tuple[float, int, str, Ending, str] | None = None
    try:
        for number in range(max(1, agent.samples)):
            box, ending, limit = work.sample(number)
            try:
                done = ending == "submitted"
                rank = work.rank(box) if agent.choose and agent.samples > 1 and not (done and agent.done) else 0.0
                if done and agent.done:
                    rank = float("inf")
                if best is None or rank > best[0]:
                    best = (rank, number, domain.collect(task, box), ending, limit)
            finally:
                box.close()
            if rank == float("inf") or limit in ("tokens", "usd", "seconds"):
                break
    finally:
        if lines is not None:
            lines.close()
    assert best is not None
    return Trace(
        attempt=call.attempt,
        task=task.id,
        scaffold=scaffold.digest,
        model=model,
        repeat=call.repeat,
        steps=tuple(work.steps),
        ending=best[3],
        limit=best[4],
        answer=best[2],
        chosen=best[1],
        usage=work.usage,
    )


def furnish(box: Sandbox, scaffold: Scaffold) -> None:
    """Put the scaffold's tools where its agent finds them."""
    for name, path in scaffold.tools.items():
        box.write(f"{BIN}/{name}", executable(scaffold.files[path]), 0o755)


def replay(
    scaffold: Scaffold, task: Task, trace: Trace, domain: Domain, backend: SandboxBackend
) -> tuple[Sandbox, str]:
    """(a fresh box in which the actions of the sample that was handed in are done again, how faithful that is).

    A box is not kept for this: it would be lost with the process, and an experience of an earlier run has none.
    """
    call = Call(run="replay", attempt=trace.attempt, step=0)
    work = _Attempt(scaffold, task, domain, backend, _nobody, call, None, None)
    box = domain.prepare(task, backend)
    again, other = 0, []
    try:
        furnish(box, scaffold)
        for step in trace.steps:
            if step.sample != trace.chosen or step.kind == "malformed" or step.action in ("", SUBMIT):
                continue
            if work.limits.reached(Usage()):
                other.append(f"there was no time for step {step.step} and what followed")
                break
            output = work.tool(box, step.action) if step.kind == "before" else work.act(box, step.action)
            again += 1
            if output.status != step.status:
                other.append(f"step {step.step} ended with status {output.status}, it had been {step.status}")
    except BaseException:
        box.close()
        raise
    said = f"{again} actions were done again"
    return box, f"{said}; {'; '.join(other)}" if other else f"{said}, and all ended as they had"


def _nobody(messages: list[Message], call: Call, **params: Any) -> Reply:
    raise AssertionError("a replay asks no model")


def in_tokens(reply: Reply, past: tuple[int, ...] = ()) -> dict[str, TurnTokens]:
    """{"tokens": ...} of a reply whose model tells all that training needs; else {}. past: the last turn's ids."""
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
        )
    }


def parse(action: str, reply: Reply) -> tuple[str, str]:
    """(what to do, '') or ('', what is wrong with the reply)."""
    text = reply.text
    if action.startswith("tool:"):
        return (text, "") if text.strip() else ("", "the reply was empty")
    if action == "json":
        try:
            command = json.loads(text).get("command")
        except (ValueError, AttributeError):
            command = None
        if not isinstance(command, str) or not command.strip():
            return "", 'the reply must be one JSON object with a "command"'
        return command.strip(), ""
    blocks = _FENCE.findall(text)
    if len(blocks) != 1:
        short = " (it was cut off at the token limit)" if reply.finish == "length" else ""
        return "", f"the reply must hold exactly one ```bash block; found {len(blocks)}{short}"
    command = blocks[0].strip()
    return (command, "") if command else ("", "the ```bash block was empty")


def executable(text: str) -> bytes:
    """A tool as it lies in the box: with a first line that says what runs it."""
    return (text if text.startswith("#!") else "#!/usr/bin/env python3\n" + text).encode("utf-8")
