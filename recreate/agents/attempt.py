"""One agent, one task, one sandbox (a fresh one per sample): attempt(...) -> Trace.

How the agent acts is its scaffold's (agent.toml, `action`):

    bash        the one ```bash block of the reply is run; `submit` alone hands the work in
    json        the reply is {"command": ...}, held to that schema where the endpoint can
    tool:NAME   the whole reply goes to the scaffold's tools/NAME on standard input; exit status 2 says it was
                malformed and the output says how

Tools lie in the sandbox as /work/.recreate/bin/NAME and are on PATH. `before` tools run ahead of the first turn,
`done` after every action (exit 0: handed in), `choose` ranks the samples; none of them sees anything hidden,
because nothing hidden is in the sandbox.
"""

from __future__ import annotations

import math
import sys
import time
import zlib
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from recreate.agents.retrieval import LastSeen, LessonRetrieval, support
from recreate.agents.scaffold import Scaffold, Template
from recreate.agents.template import object_of
from recreate.agents.trajectory import cut_middle
from recreate.api.errors import BadInput
from recreate.api.ports import Domain, Sandbox, SandboxBackend
from recreate.api.types import Call, Ending, Message, Output, Reply, Step, Task, Trace, TurnTokens, Usage, digest
from recreate.storage.log import Log, decode
from recreate.storage.redact import redact

BIN = ".recreate/bin"
"""Where a scaffold's tools lie, relative to /work. A domain leaves `.recreate/` out of what is handed in."""

SUBMIT = "submit"
QUERY_CHARS = 1500
"""Characters of a result's end that memory is asked with."""
LEFT_OUT = "\n[... {} characters left out here; print less, or a part at a time ...]\n"

COMMAND_SCHEMA = object_of(thought={"type": "string"}, command={"type": "string"})
_BASH = ("```bash", "```sh", "```shell")


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
        self.prompt = redact(self.task.prompt)
        self.shown = {"task": {"prompt": self.prompt}}
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
        """One independent try in a fresh sandbox; the caller closes the sandbox."""
        sandbox = self.domain.prepare(self.task, self.backend)
        try:
            furnish(sandbox, self.scaffold)
            shown = {**self.shown, "before": {n: self.before(sandbox, n, number) for n in self.agent.before}}
            try:
                ending, limit = self.talk(sandbox, shown, number)
            except BadInput as e:
                if e.code != "bad-template":
                    raise
                # the agent's own fault, which no check could foresee: what it had done until then is graded
                self.note(sample=number, kind="malformed", action="", output=e.message)
                ending, limit = "error", "template"
            return sandbox, ending, limit
        except BaseException:
            sandbox.close()
            raise

    def talk(self, sandbox: Sandbox, shown: dict[str, Any], number: int) -> tuple[Ending, str]:
        messages: list[Message] = [
            {"role": "system", "content": self.scaffold.render("system", **shown)},
            {"role": "user", "content": self.scaffold.render("workflow", **shown)},
        ]
        so_far = _Offered()
        seen = "\n".join([self.prompt, *(text[-QUERY_CHARS:] for text in shown["before"].values())])
        messages[1]["content"] += self.offered("start", seen, so_far)
        return self.turns(sandbox, messages, number, so_far)

    def before(self, sandbox: Sandbox, name: str, number: int) -> str:
        output = _masked(sandbox.run([f"/work/{BIN}/{name}"], timeout=self.agent.limits.command_seconds))
        text = cut_middle(output.text, self.agent.limits.observation_chars, LEFT_OUT)
        self.note(sample=number, kind="before", action=name, output=text, status=output.status)
        return text

    def offered(self, why: str, seen: str, so_far: _Offered) -> str:
        """What memory has to say about what the agent sees, as it is shown; '' for nothing, or nothing new."""
        if why not in self.when or self.offers is None:
            return ""
        budget = sys.maxsize if self.offers.forced else self.agent.memory.tokens - so_far.tokens
        own = {lesson.id for lesson in self.scaffold.lessons}
        found = []
        for lesson in self.offers.offer(seen, budget) if budget > 0 else ():
            size = tokens(f"{lesson.title}: {lesson.body}")
            if lesson.id in own or lesson.id in so_far.ids or size > budget:
                continue
            budget -= size
            so_far.tokens += size
            found.append(lesson)
        if not found:
            return ""
        so_far.ids.update(lesson.id for lesson in found)
        so_far.fresh = tuple(lesson.id for lesson in found)
        given = [{**x.model_dump(include={"id", "title", "body", "scope"}), "support": support(x)} for x in found]
        return "\n\n" + self.scaffold.render("offer", offered=given, why=why, **self.shown).strip("\n")

    def turns(self, sandbox: Sandbox, messages: list[Message], number: int, so_far: _Offered) -> tuple[Ending, str]:
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
            usage = Usage.of(reply, call)
            self.usage = self.usage + usage
            seen = messages[-1]["content"]
            fresh, so_far.fresh = so_far.fresh, ()
            left = limits.steps - turn - 1
            action, wrong = parse(self.agent.action, reply)
            output: Output | None = None
            record: dict[str, Any] = {"observation": seen, "reply": reply.text, "usage": usage, "offered": fresh}
            record |= in_tokens(reply, past)
            past = (*(reply.prompt_ids or ()), *(reply.token_ids or ()))
            if action == SUBMIT and not wrong:
                self.note(sample=number, action=SUBMIT, **record)
                return "submitted", ""
            if not wrong:
                output = self.act(sandbox, action)
                if output.status == 2 and self.agent.action.startswith("tool:"):
                    wrong = cut_middle(output.text.strip(), limits.observation_chars, LEFT_OUT, dropped=output.cut)
                    wrong = wrong or "the reply could not be read"
            if wrong:
                fields: dict[str, Any] = {"kind": "malformed", "action": "", "output": wrong}
                template: Template = "format"
                told: dict[str, Any] = {"error": wrong}
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
                fields = {"action": action, "output": text, "status": output.status, "seconds": output.seconds}
                template, told = "observation", {"output": shown, "step": turn}
            try:
                answer = self.scaffold.render(template, **told, steps_left=left, **self.shown)
                if not wrong:
                    last, why = last.after(text)
                    answer += self.offered(why, text[-QUERY_CHARS:], so_far)
            finally:  # it was paid and done, whatever becomes of its answer
                self.note(sample=number, **record, **fields)
            if not wrong and self.agent.done and self.tool(sandbox, self.agent.done).status == 0:
                return "submitted", ""
            messages.append({"role": "assistant", "content": reply.text})
            messages.append({"role": "user", "content": answer})
        return "limit", "steps"

    def act(self, sandbox: Sandbox, action: str) -> Output:
        kind = self.agent.action
        if kind.startswith("tool:"):
            return self.tool(sandbox, kind.removeprefix("tool:"), action)
        line = f'export PATH="/work/{BIN}:$PATH"\n{action}'
        return _masked(sandbox.run(line, timeout=self.agent.limits.command_seconds))

    def tool(self, sandbox: Sandbox, name: str, stdin: str = "") -> Output:
        output = sandbox.run(
            [f"/work/{BIN}/{name}"],
            timeout=self.agent.limits.command_seconds,
            stdin=stdin.encode("utf-8", "surrogatepass"),
        )
        return _masked(output)

    def rank(self, sandbox: Sandbox) -> float:
        """What the `choose` tool thinks of a sample: the number on its last line, lowest when there is none."""
        lines = self.tool(sandbox, self.agent.choose).text.strip().splitlines()
        try:
            rank = float(lines[-1])
        except (IndexError, ValueError):
            return float("-inf")
        return rank if math.isfinite(rank) else float("-inf")


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
            sandbox, ending, limit = work.sample(number)
            try:
                done = ending == "submitted"
                rank = work.rank(sandbox) if agent.choose and agent.samples > 1 and not (done and agent.done) else 0.0
                if done and agent.done:
                    rank = float("inf")
                if best is None or rank > best[0]:
                    best = (rank, number, domain.collect(task, sandbox), ending, limit)
            finally:
                sandbox.close()
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


def furnish(sandbox: Sandbox, scaffold: Scaffold) -> None:
    """Put the scaffold's tools where its agent finds them."""
    for name, path in scaffold.tools.items():
        sandbox.write(f"{BIN}/{name}", executable(scaffold.files[path]), 0o755)


def replay(
    scaffold: Scaffold, task: Task, trace: Trace, domain: Domain, backend: SandboxBackend
) -> tuple[Sandbox, str]:
    """(a fresh sandbox in which the actions of the sample that was handed in are done again, how faithful that is).

    A sandbox is not kept for this: it would be lost with the process, and an experience of an earlier run has none.
    """
    call = Call(run="replay", attempt=trace.attempt, step=0)
    work = _Attempt(scaffold, task, domain, backend, _nobody, call, None, None)
    sandbox = domain.prepare(task, backend)
    again, other = 0, []
    try:
        furnish(sandbox, scaffold)
        for step in trace.steps:
            if step.sample != trace.chosen or step.kind == "malformed" or step.action in ("", SUBMIT):
                continue
            if work.limits.reached(Usage()):
                other.append(f"there was no time for step {step.step} and what followed")
                break
            output = work.tool(sandbox, step.action) if step.kind == "before" else work.act(sandbox, step.action)
            again += 1
            if output.status != step.status:
                other.append(f"step {step.step} ended with status {output.status}, it had been {step.status}")
    except BaseException:
        sandbox.close()
        raise
    summary = f"{again} actions were done again"
    return sandbox, f"{summary}; {'; '.join(other)}" if other else f"{summary}, and all ended as they had"


def _masked(output: Output) -> Output:
    """What a command printed becomes what is seen, told and stored: without keys."""
    text = redact(output.text)
    return output if text == output.text else output.model_copy(update={"text": text})


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
            cut=reply.finish == "length",
        )
    }


def parse(action: str, reply: Reply) -> tuple[str, str]:
    """(what to do, '') or ('', what is wrong with the reply)."""
    text = reply.text
    if action.startswith("tool:"):
        return (text, "") if text.strip() else ("", "the reply was empty")
    if action == "json":
        try:
            command = decode(text).get("command")
        except (ValueError, AttributeError):
            command = None
        if not isinstance(command, str) or not command.strip():
            return "", 'the reply must be one JSON object with a "command"'
        return command.strip(), ""
    blocks = bash_blocks(text)
    if len(blocks) != 1:
        short = " (it was cut off at the token limit)" if reply.finish == "length" else ""
        return "", f"the reply must hold exactly one ```bash block; found {len(blocks)}{short}"
    command = blocks[0].strip()
    return (command, "") if command else ("", "the ```bash block was empty")


def bash_blocks(text: str) -> list[str]:
    """What stands between each line ```bash (sh, shell) and the next line ```; a block without an end is none."""
    blocks: list[str] = []
    opened: list[str] | None = None
    for line in text.split("\n"):
        mark = line.rstrip(" \t")
        if opened is None:
            opened = [] if mark in _BASH else None
        elif mark == "```":
            blocks.append("".join(opened))
            opened = None
        else:
            opened.append(line + "\n")
    return blocks


def executable(text: str) -> bytes:
    """A tool as it lies in the sandbox: with a first line that says what runs it."""
    return (text if text.startswith("#!") else "#!/usr/bin/env python3\n" + text).encode("utf-8")
