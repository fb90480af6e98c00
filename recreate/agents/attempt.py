"""One agent, one task, one sandbox (a fresh one per sample): attempt(...) -> Trace.

How the agent acts is its scaffold's (agent.toml, `action`):

    bash        the one ```bash block of the reply is run; `submit` alone hands the work in. With `native`, and a
                model that takes tools, the same two are tools, and a reply may call `bash` several times
    json        the reply is {"command": ...}, held to that schema where the endpoint can
    tools       the reply calls functions: the scaffold's tools and MCP servers' (functions.py), in the endpoint's own
                way where the model takes tools, else as {"tool", "arguments"}
    tool:NAME   the whole reply goes to the scaffold's tools/NAME on standard input; exit status 2 says it was
                malformed and the output says how

Tools lie in the sandbox as /work/.recreate/bin/NAME and are on PATH. `before` tools run ahead of the first turn,
`done` after every action (exit 0: handed in), `choose` ranks the samples; none of them sees anything hidden,
because nothing hidden is in the sandbox. What tools may know of the attempt lies in /work/.recreate/attempt.json.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import re
import sys
import time
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from recreate.agents.config import ACT, AgentConfig, ServerEntry, turns_left
from recreate.agents.functions import (
    Function,
    own_functions,
    read_arguments,
    read_call,
    server_functions,
    spelled,
    told,
)
from recreate.agents.mcp import McpError, McpServer, McpTool, RemoteServer
from recreate.agents.request import Requests
from recreate.agents.retrieval import RECALL, LastSeen, LessonRetrieval, MemoryAnswer, Recaller, drawn, recall_query
from recreate.agents.scaffold import Scaffold, Template
from recreate.agents.template import object_of
from recreate.agents.trajectory import cut_middle
from recreate.api.errors import BadInput, Fault, Refused
from recreate.api.ports import BringsServers, Copyable, Domain, Sandbox, SandboxBackend, Talking, ToolsOnly
from recreate.api.theirs import expect
from recreate.api.types import (
    Call,
    Ending,
    Message,
    Output,
    Reply,
    Step,
    Task,
    ToolCall,
    Trace,
    TurnTokens,
    Usage,
    digest,
)
from recreate.storage.log import Log, decode
from recreate.storage.redact import redact

BIN = ".recreate/bin"  # commands start in the work folder, which without a sandbox is not /work
"""Where a scaffold's tools lie, relative to /work. A domain leaves `.recreate/` out of what is handed in."""

ABOUT = ".recreate/attempt.json"
"""Read by tools: `prompt`, the task's words, and `sample`, which try of the attempt this is, from 0."""

SUBMIT = "submit"
QUERY_CHARS = 1500
"""Characters of a result's end that memory is asked with."""
LEFT_OUT = "\n[... {} characters left out here; print less, or a part at a time ...]\n"
KEPT = ".recreate/output"
"""Where an output lies whole of which a part was left out."""
KEPT_OUT = "\n[... {} characters left out here; the output is kept: see the rest by sed -n '%d,%dp' /work/%s ...]\n"
CUT_OFF = 3
"""So many replies in a row that were cut off before they held a command end the attempt: each is billed whole."""
RAISED = "; from now on a reply may have %d tokens"
CUT_CHARS = 1000
"""What is sent again of such a reply."""

_OF_A_SANDBOX = ("run", "write", "read", "close")
COMMAND_SCHEMA = object_of(thought={"type": "string"}, command={"type": "string"})
_ALONE = "nothing was handed in: submit counts when it stands alone, so see what the other commands print, then submit"
_NESTED = (
    "it is not clear where the ```bash block ends, since lines of ``` stand in it: open it with four backticks, "
    "````bash, and close it with ````"
)


def _tool(name: str, words: str, **properties: Any) -> dict[str, Any]:
    return {
        "type": "function",
        "function": {"name": name, "description": words, "parameters": object_of(**properties)},
    }


NATIVE_TOOLS = (
    _tool(
        "bash",
        "Run a command in a fresh shell in /work. Returns what it prints, and its exit status.",
        command={"type": "string", "description": "What bash is to run; several lines are fine."},
    ),
    _tool(SUBMIT, "Hand the work in when it is done. Call it alone: it ends the task."),
)
RECALL_TOOL = _tool(
    RECALL,
    "Ask what is remembered of earlier attempts at other tasks: what was tried, and whether it passed. Say in your own "
    "words what you want to know, with the names and errors that you see. Nothing is changed by it.",
    query={"type": "string", "description": "What to look for."},
)
_RECALL_TOLD = (
    "\n\nThe command `recall WORDS`, when it is all that %s holds, asks what is remembered of earlier attempts at "
    "other tasks: what was tried, and whether it passed. Say in your own words what you want to know, with the names "
    "and errors that you see."
)
_OBSERVE_TOLD = (
    "\n\nYou begin by observing. In the first %d replies your commands run in a copy of /work that is thrown away "
    "after each: look at what you like, and try what you like. When you have seen enough, the command `act`, when it "
    "is all that %s holds, ends this. Only what you do after that counts."
)
_OBSERVED = "\n[This was done in a copy, which is gone. Turns of observing that are left: %d]"
_ACTING = "From now on what you do counts."
_RESTORE_TOLD = (
    "\n\nAfter each of your actions the check `%s` runs. When more fails than before, the action is taken back: the "
    "files are then as they were before it."
)
_TAKEN_BACK = (
    "\n[This action was taken back, and the files are as they were before it: by the check `%s`, %d failed before and "
    "%d after. It said:]\n%s"
)
_UNCOPIED = "it was not run: /work holds a file that cannot be copied, so there is no observing; from now on it counts"
_NOT_ALONE = "nothing was recalled: recall WORDS counts when it is the whole command, in one line"
_NO_MEMORY = "there is no memory here that could be asked: go on without"


class AskAgent(Protocol):
    """How an attempt reaches its model: Calls.ask with model and price filled in."""

    def __call__(self, messages: list[Message], call: Call, **params: Any) -> Reply: ...


FullParams = Callable[[Mapping[str, Any]], Mapping[str, Any]]
"""All that a call asks of its model, from what an attempt asks for: Calls.params with the model filled in."""


def attempt_key(
    scaffold: Scaffold,
    task: Task,
    *,
    model: str,
    sandbox: str,
    memory: str = "",
    grader: str = "",
    repeat: int = 0,
    near: str = "",
) -> str:
    """The attempt's id, and the key under which its score is reused: all that the outcome depends on.

    near: how near another question may be whose reply is taken, and by whose vectors; '' where none is.
    """
    params = scaffold.agent.model.model_dump(exclude={"schema_"})
    made_from = [scaffold.digest, task.id, task.digest, memory, model, params, sandbox, grader, repeat]
    return digest([*made_from, near] if near else made_from)


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
    """Which lessons a sample was offered so far, or might have been; what those offered took; what the step that
    answers to the last offer says of it."""

    ids: set[str] = field(default_factory=set)
    tokens: int = 0
    fresh: dict[str, Any] = field(default_factory=dict)

    def show(self, lessons: Sequence[str]) -> None:
        """These are shown with the last answer."""
        self.ids |= {*lessons}
        if lessons:
            self.fresh["offered"] = (*self.fresh.get("offered", ()), *lessons)


def tokens(text: str) -> int:
    """About so many tokens, from the characters: a budget for lessons must not depend on a model's tokenizer."""
    return -(-len(text) // 4)


@dataclass(frozen=True)
class _Action:
    """One thing that a reply asks for: a command, or what is wrong with it. call: the id of the tool call, '' for a
    reply in text. query: what memory is asked. says: what is answered, where nothing is done. function, arguments: what
    is called where it is none of these."""

    command: str
    wrong: str = ""
    call: str = ""
    query: str = ""
    says: str = ""
    function: Function | None = None
    arguments: Mapping[str, Any] = field(default_factory=dict)


@dataclass
class _Done:
    """What came of the actions of one reply. answers: one to each, as it is sent."""

    answers: list[str] = field(default_factory=list)
    commands: list[str] = field(default_factory=list)
    texts: list[str] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)
    recalled: list[MemoryAnswer] = field(default_factory=list)
    observed: bool = False
    restored: str = ""
    status: int | None = None
    seconds: float = 0.0

    @property
    def counts(self) -> bool:
        """Whether something was done that stands."""
        return bool(self.commands) and not self.observed and not self.restored

    def add(self, command: str, text: str, output: Output) -> None:
        self.commands.append(command)
        self.texts.append(text)
        self.status = self.status or output.status
        self.seconds += output.seconds

    def fields(self, actions: Sequence[_Action], called: Sequence[dict[str, Any]]) -> dict[str, Any]:
        """The fields of the step. Of several calls all commands and outputs stand in it, with the first bad status."""
        found: dict[str, Any] = {"action": "\n".join(self.commands)}
        if self.commands:
            found |= {"output": "\n".join(self.texts), "status": self.status, "seconds": self.seconds}
        else:
            found |= {"kind": "malformed", "output": "\n".join(self.wrong)}
        if self.observed:
            found["kind"] = "observe"
        if self.restored:
            found["restored"] = self.restored
        if ids := [id for each in self.recalled for id in each.found]:
            found["recalled"] = tuple(dict.fromkeys(ids))
        if called:
            told = zip(actions, self.answers, strict=False)  # there are fewer when a template could not be filled in
            one = len(called) == 1  # its answer is what the next step saw
            answered = [{"id": action.call, **({} if one else {"text": text})} for action, text in told]
            found["foreign"] = {"tool_calls": list(called), "answered": answered}
        return found


class _Answered(NamedTuple):
    """A reply, what it cost, and all that was asked of the model."""

    reply: Reply
    usage: Usage
    params: Mapping[str, Any]


@dataclass
class _Rollout:
    """What comes of one first action in a copy of the sandbox. wanted: so many candidates asked for it; well: of each
    action, whether it could be read and ended with 0; over: nothing follows; work: what it would hand in, if it did."""

    asked: _Answered
    step: int
    sample: int
    sandbox: Sandbox
    messages: list[Message]
    wanted: int = 1
    well: list[bool] = field(default_factory=list)
    over: bool = False
    work: str | None = None
    rank: float = 0.0

    @property
    def status(self) -> float:
        return sum(self.well) / len(self.well) if self.well else 0.0

    def agreement(self, others: Sequence[_Rollout]) -> float:
        """The share of the other candidates that ask for the same, or come to hand in the same work."""
        alike = sum(r.wanted for r in others if r is self or (r.work is not None and r.work == self.work))
        return (alike - 1) / max(1, sum(r.wanted for r in others) - 1)


@dataclass
class Attempt:
    """One attempt under way: its limits, its steps, and what it was offered."""

    scaffold: Scaffold
    task: Task
    domain: Domain
    backend: SandboxBackend
    ask: AskAgent
    call: Call
    lines: Log | None
    on_step: Callable[[Step], None] | None
    offers: LessonRetrieval | None = None
    native: bool = False
    full: FullParams = dict
    recall: Recaller | None = None
    sandbox: Sandbox = field(init=False)
    """Of the sample that is under way."""
    observing: int = 0
    """So many turns of observing are left."""
    failing: int = -1
    """How much failed by the check of [restore] when it ran last; -1: it did not run yet."""
    steps: list[Step] = field(default_factory=list)
    usage: Usage = field(default_factory=Usage)
    requests: Requests = field(default_factory=Requests)
    raised: int = 0

    def __post_init__(self) -> None:
        agent = self.scaffold.agent
        self.agent = agent
        self.limits = _Limits(agent.limits.tokens, agent.limits.usd, time.monotonic() + agent.limits.seconds)
        self.native = self.native and agent.calls
        self.functions: dict[str, Function] = {f.name: f for f in _own(agent)}
        self.servers: dict[str, McpServer] = {}
        self.address = self.call.model_dump(exclude={"step", "sample"})
        self.prompt = redact(self.task.prompt)
        self.when: tuple[str, ...] = ()
        if self.offers is not None and self.offers.lessons:
            self.when = ("start",) if self.offers.forced else agent.memory.when if agent.memory.tokens else ()

    @cached_property
    def params(self) -> dict[str, Any]:
        """What every call asks for, but for `tools` and a cap that was raised."""
        model = self.agent.model
        asked = {k: v for k in ("temperature", "top_p", "max_tokens") if (v := getattr(model, k)) is not None}
        asked |= {"stop": list(model.stop)} if model.stop else {}
        return asked | ({"json_schema": COMMAND_SCHEMA} if self.agent.action == "json" else {})

    @property
    def offered_functions(self) -> dict[str, Any]:
        """`tools`, or the schema of a reply that names one."""
        if self.native:
            own = [f.native for f in self.functions.values()]
            shell = (*NATIVE_TOOLS, RECALL_TOOL) if self.agent.memory.recall else NATIVE_TOOLS
            return {"tools": shell if self.agent.action == "bash" else own}
        return {"json_schema": _call_schema(self.functions)} if self.agent.action == "tools" else {}

    @property
    def shown(self) -> dict[str, Any]:
        """What every template may use."""
        return {"task": {"prompt": self.prompt}, "native": self.native}

    def render(self, name: Template, **shown: Any) -> str:
        """A template filled in, as it is sent: what its words and a text make together may look like a key."""
        return redact(self.scaffold.render(name, **shown, **self.shown))

    def note(self, **fields: Any) -> None:
        step = Step(step=len(self.steps), **fields)
        self.steps.append(step)
        self.requests.know(step)
        if self.lines is not None:
            self.lines.append({"step": step.step, **fields})
        if self.on_step is not None:
            self.on_step(step)

    def sample(self, number: int) -> tuple[Sandbox, Ending, str]:
        """One independent try in a fresh sandbox; the caller closes the sandbox."""
        self.sandbox = sandbox = prepared(self.domain, self.task, self.backend)
        self.observing, self.failing = self.agent.observe.steps if self.agent.observe else 0, -1
        try:
            furnish(sandbox, self.scaffold, self.prompt, number)
            if self.agent.action == "tools":
                try:
                    self.open_functions(sandbox)
                except McpError as e:
                    # what runs before anything is spent has tried the servers: an edit broke one, or its task did
                    self.note(sample=number, kind="malformed", action="", output=redact(str(e)))
                    return sandbox, "error", "mcp"
            before = {n: self.before(sandbox, n, number) for n in self.agent.before}
            try:
                ending, limit = self.talk(before, number)
            except BadInput as e:
                if e.code != "bad-template":
                    raise
                # the agent's own fault, which no check could foresee: what it had done until then is graded
                self.note(sample=number, kind="malformed", action="", output=e.message)
                ending, limit = "error", "template"
            return self.sandbox, ending, limit
        except BaseException:
            self.sandbox.close()
            raise

    def open_functions(self, sandbox: Sandbox, *, elsewhere: bool = True) -> None:
        """What may be called in this sandbox; its MCP servers are started. Raises McpError when one does not start.

        elsewhere: servers that are not in the sandbox are asked too.
        """
        self.servers.clear()
        found = [*_own(self.agent), *own_functions(self.scaffold)]
        entries: dict[str, ServerEntry] = {}
        if isinstance(self.domain, BringsServers):
            for name, what in self.domain.servers(self.task).items():
                entry = ServerEntry(url=what) if isinstance(what, str) else ServerEntry(command=tuple(what))
                entries[spelled(name)] = entry
        entries |= self.agent.mcp
        for name, entry in entries.items():
            if entry.url and not elsewhere:
                continue
            self.servers[name], tools = self.open_server(sandbox, name, entry)
            found += server_functions(name, tools)
        self.functions = {}
        for function in found:
            self.functions.setdefault(function.name, function)

    def open_server(self, sandbox: Sandbox, name: str, entry: ServerEntry) -> tuple[McpServer, list[McpTool]]:
        """A server that runs, and its tools. Raises McpError."""
        patience = self.agent.limits.command_seconds
        if entry.url:
            server = McpServer(name, RemoteServer(entry.url, os.environ.get(entry.token, "")), patience)
            return server, server.open()
        if not isinstance(sandbox, Talking):
            raise McpError(f"the server {name}: sandboxes of {sandbox.backend} cannot keep a program going")
        log = f".recreate/mcp/{name}.log"
        sandbox.write(log, b"", 0o666)
        command = entry.command or (f"./{BIN}/{entry.server}",)
        words = ["/bin/sh", "-c", f'exec "$@" 2>>{log}', "sh", *command]
        server = McpServer(name, sandbox.start(words, self.agent.limits.seconds), patience)
        try:
            return server, server.open()
        except McpError as e:
            raise McpError(f"{e}{_last_words(sandbox, log)}") from None

    def asked_for(self, reply: Reply) -> list[_Action]:
        """What a reply asks for; never none."""
        if self.agent.action != "tools":
            return asked_for(self.agent.action, reply, native=self.native, recalls=self.agent.memory.recall > 0)
        if reply.tool_calls and self.native:
            return [self.function_call(c.name, c.arguments, c.id, reply) for c in reply.tool_calls]
        name, arguments, wrong = read_call(reply.text)
        if not wrong:
            return [self.function_call(name, arguments, "", reply)]
        wrong = "the reply calls no tool" if self.native else wrong
        return [_Action("", wrong + _cut_words(reply))]

    def function_call(self, name: str, arguments: str, call: str, reply: Reply) -> _Action:
        function = self.functions.get(name)
        if function is None:
            return _Action("", f"there is no tool {name[:60]!r}; there are: {', '.join(self.functions)}", call)
        if name == SUBMIT:
            return _Action(SUBMIT, call=call)
        given, wrong = read_arguments(function, arguments)
        if wrong:
            return _Action("", wrong + _cut_words(reply), call)
        if name == "bash":
            command = str(given["command"]).strip()
            return _Action(command, "" if command else "the command was empty", call)
        if name == RECALL and self.agent.memory.recall:
            query = str(given["query"]).strip()
            return _Action(f"{name} {arguments}", "" if query else "the query was empty", call, query)
        return _Action(f"{name} {arguments}", "", call, function=function, arguments=given)

    def call_function(self, sandbox: Sandbox, function: Function, arguments: Mapping[str, Any]) -> Output:
        """A call of a tool of the scaffold's or of a server's."""
        if function.server:
            return _masked(self.servers[function.server].call(function.tool, arguments))
        if function.words:
            command = [f"./{BIN}/{function.tool}", *arguments["args"]]
            return _masked(sandbox.run(command, timeout=self.agent.limits.command_seconds))
        return self.tool(sandbox, function.tool, json.dumps(arguments, ensure_ascii=False))

    def talk(self, before: dict[str, str], number: int) -> tuple[Ending, str]:
        messages: list[Message] = [
            {"role": "system", "content": self.render("system", before=before)},
            {"role": "user", "content": self.render("workflow", before=before)},
        ]
        where = '"command"' if self.agent.action == "json" else "a call" if self.native else "the block"
        if self.agent.action == "tools" and not self.native:
            messages[0]["content"] += "\n\n" + redact(told(list(self.functions.values())))
        elif self.agent.memory.recall and not self.native:
            messages[0]["content"] += _RECALL_TOLD % where
        if self.agent.observe:
            messages[0]["content"] += _OBSERVE_TOLD % (self.agent.observe.steps, where)
        if self.agent.restore:
            messages[0]["content"] += _RESTORE_TOLD % self.agent.restore.check
        so_far = _Offered()
        seen = "\n".join([self.prompt, *(text[-QUERY_CHARS:] for text in before.values())])
        messages[1]["content"] += self.offered("start", seen, so_far)
        try:
            return self.turns(messages, number, so_far)
        except Refused as e:
            if e.code != "no-tools" or not self.native or len(messages) > 2:
                raise
            self.native = False  # the endpoint has just said so
            return self.talk(before, number)

    def before(self, sandbox: Sandbox, name: str, number: int) -> str:
        output = _masked(sandbox.run([f"./{BIN}/{name}"], timeout=self.agent.limits.command_seconds))
        text = cut_middle(output.text, self.agent.limits.observation_chars, LEFT_OUT)
        self.note(sample=number, kind="before", action=name, output=text, status=output.status)
        return text

    def offered(self, why: str, seen: str, so_far: _Offered) -> str:
        """What memory has to say about what the agent sees, as it is shown; '' for nothing, or nothing new."""
        if self.offers is None or not (why in self.when or ("step" in self.when and why != "start")):
            return ""
        budget = sys.maxsize if self.offers.forced else self.agent.memory.tokens - so_far.tokens
        own = {lesson.id for lesson in self.scaffold.lessons}
        found, propensities = [], dict[str, float]()
        for lesson in self.offers.offer(seen, budget) if budget > 0 else ():
            size = tokens(f"{lesson.title}: {lesson.body}")
            if lesson.id in own or lesson.id in so_far.ids or size > budget:
                continue
            so_far.ids.add(lesson.id)
            if (propensity := self.offers.propensities.get(lesson.id)) is not None:
                propensities[lesson.id] = propensity
                if not drawn(self.call.attempt, lesson.id, propensity):
                    continue
            budget -= size
            so_far.tokens += size
            found.append(lesson)
        so_far.fresh |= {"propensities": propensities} if propensities else {}
        if not found:
            return ""
        so_far.show([lesson.id for lesson in found])
        told = self.offers.support
        given = [{**x.model_dump(include={"id", "title", "body", "scope"}), "support": told(x)} for x in found]
        return "\n\n" + self.render("offer", offered=given, why=why).strip("\n")

    def offered_at_start(self) -> tuple[str, dict[str, Any]]:
        """(the same, what its step says of it) for an agent that runs by itself: it is offered nothing later."""
        so_far = _Offered()
        return self.offered("start", self.prompt, so_far), so_far.fresh

    def turns(self, messages: list[Message], number: int, so_far: _Offered) -> tuple[Ending, str]:
        limits = self.agent.limits
        last = LastSeen()
        past: tuple[int, ...] = ()
        seen, cut_off = messages[-1]["content"], 0
        for turn in range(limits.turns):
            reached = self.limits.reached(self.usage)
            if reached:
                return "limit", reached
            looked: dict[str, Any] = {}
            try:
                if self.agent.lookahead and not self.observing:
                    (reply, usage, params), looked = self.look_ahead(self.sandbox, messages, turn, number)
                else:
                    reply, usage, params = self.asked(messages, len(self.steps), number)
            except BadInput as e:
                if e.code != "context-length":
                    raise
                return "limit", "context"
            step = len(self.steps)
            fresh, so_far.fresh = so_far.fresh, {}
            actions = self.asked_for(reply)
            called = self._called(reply, actions)
            record: dict[str, Any] = {"observation": seen, "reply": reply.text, "usage": usage, **fresh, **looked}
            record["sent"] = self.requests.add(step, messages, self.full(params), seen)
            record |= {"cut": True} if reply.finish == "length" else {}
            record |= {"near": reply.near} if reply.near is not None else {}
            record |= in_tokens(reply, past)
            past = (*(reply.prompt_ids or ()), *(reply.token_ids or ()))
            if len(actions) == 1 and actions[0].command == SUBMIT:
                record |= {"foreign": {"tool_calls": called}} if called else {}
                self.note(sample=number, action=SUBMIT, **record)
                return "submitted", ""
            done = _Done()
            try:
                self.carry_out(actions, done, turn, reply)
                so_far.show([id for recalled in done.recalled for id in recalled.lessons])
                if done.commands and not all(action.query for action in actions):
                    last, why = last.after("\n".join(done.texts))
                    done.answers[-1] += self.offered(why or "step", done.texts[-1][-QUERY_CHARS:], so_far)
            except BadInput:  # it was paid and done, whatever becomes of its answer
                self.note(sample=number, **record, **done.fields(actions, called))
                raise
            self.note(sample=number, **record, **done.fields(actions, called))
            if done.counts and self.agent.done and self.tool(self.sandbox, self.agent.done).status == 0:
                return "submitted", ""
            cut_off = cut_off + 1 if reply.finish == "length" and not done.commands else 0
            if cut_off == CUT_OFF:
                return "limit", "reply"
            messages += _exchange(reply, actions, done.answers, cut=bool(cut_off))
            seen = "\n".join(done.answers)
        return "limit", "steps"

    def asked(self, messages: list[Message], step: int, sample: int) -> _Answered:
        """The model's reply, counted."""
        call = Call(**self.address, step=step, sample=sample)
        seed = zlib.crc32(f"{call.attempt}/{step}".encode()) >> 1
        params = {"seed": seed, **self.params, **self.offered_functions}
        params |= {"max_tokens": self.raised} if self.raised else {}
        reply = self.ask(messages, call, **params)
        usage = Usage.of(reply, call)
        self.usage = self.usage + usage
        return _Answered(reply, usage, params)

    def look_ahead(
        self, sandbox: Sandbox, messages: list[Message], turn: int, number: int
    ) -> tuple[_Answered, dict[str, Any]]:
        """(the reply of several whose rollout is best, at no further cost; what its step says of that).

        MAXS (arXiv 2601.09259): every reply and every action of a rollout is a step of the kind `lookahead`, in a
        sample of its own. Candidates that ask for the same are one; where all do, none is rolled out. What is best:
        the number of the tool `choose`, where there is one; then the share of actions that ended with 0; then how
        many of the others ask for the same or come to hand in the same; then the first.
        """
        look, raised, first = self.agent.lookahead, self.raised, len(self.steps)
        assert look is not None
        found: list[_Answered] = []
        while len(found) < look.candidates and not (found and self.limits.reached(self.usage)):
            sample = self.agent.samples + len(found)
            found.append(self.asked(messages, first + len(found), sample))
        rollouts: list[_Rollout] = []
        try:
            self.candidates(sandbox, messages, found, rollouts, turn, number)
            for rollout in rollouts if len(rollouts) > 1 else ():
                self.roll_out(rollout, turn, look.steps)
            best = max(rollouts, key=lambda r: (r.rank, r.status, r.agreement(rollouts)), default=None)
        finally:
            self.raised = raised
            for rollout in rollouts:
                rollout.sandbox.close()
        words = f"the reply of step {best.step if best else first}"
        if best and len(rollouts) > 1:
            words += f", the best of {len(rollouts)}: " + "; ".join(
                f"step {r.step}: {f'{self.agent.choose} {r.rank:g}, ' if self.agent.choose else ''}"
                f"status {r.status:.2f}, agreement {r.agreement(rollouts):.2f}"
                for r in rollouts
            )
        return (best.asked if best else found[0])._replace(usage=Usage()), {"looked": words}

    def candidates(
        self,
        sandbox: Sandbox,
        messages: list[Message],
        found: Sequence[_Answered],
        rollouts: list[_Rollout],
        turn: int,
        number: int,
    ) -> None:
        """Note each candidate, and try out those that differ, each in a copy that `rollouts` then holds. None is tried
        out where there is but one, or where the sandbox made a file that cannot be copied."""
        keys = [self._wants(asked.reply) for asked in found]
        last = next((s for s in reversed(self.steps) if s.sample == number and s.kind != "before"), None)
        alone = len(set(keys)) == 1
        for n, asked in enumerate(found):
            step, sample = len(self.steps), self.agent.samples + n
            copy = None if alone or keys[n] in keys[:n] else _copied(sandbox, self.agent)
            if copy is None:
                self.note(sample=sample, kind="lookahead", **self._looked(asked, messages))
                continue
            rollout = _Rollout(asked, step, sample, copy, list(messages), wanted=keys.count(keys[n]))
            rollouts.append(rollout)
            self.tried(rollout, asked, turn, last is not None and last.status == 0)

    def _wants(self, reply: Reply) -> tuple[tuple[str, str], ...]:
        return tuple((action.command, action.wrong) for action in self.asked_for(reply))

    def _looked(self, asked: _Answered, messages: list[Message]) -> dict[str, Any]:
        sent = self.requests.add(len(self.steps), messages, self.full(asked.params))
        told: dict[str, Any] = {"cut": True} if asked.reply.finish == "length" else {}
        told |= {"near": asked.reply.near} if asked.reply.near is not None else {}
        return {"reply": asked.reply.text, "usage": asked.usage, "sent": sent, **told}

    def roll_out(self, rollout: _Rollout, turn: int, steps: int) -> None:
        """Go on from a first action until `steps` are done, it handed in, or a limit is reached; then say what the tool
        `choose` thinks of it."""
        for ahead in range(turn + 1, min(turn + steps, self.agent.limits.turns)):
            if rollout.over or self.limits.reached(self.usage):
                break
            try:
                asked = self.asked(rollout.messages, len(self.steps), rollout.sample)
            except BadInput as e:
                if e.code != "context-length":
                    raise
                break
            self.tried(rollout, asked, ahead, rollout.well[-1])
        if self.agent.choose:
            rollout.rank = self.rank(rollout.sandbox)

    def tried(self, rollout: _Rollout, asked: _Answered, turn: int, well: bool) -> None:
        """Do in a copy what a reply asks for. well: how the action before it ended: what a hand-in is worth."""
        actions, record = self.asked_for(asked.reply), self._looked(asked, rollout.messages)
        record |= {"sample": rollout.sample}
        if len(actions) == 1 and actions[0].command == SUBMIT:
            self.note(**record, kind="lookahead", action=SUBMIT)
            rollout.over = True
        else:
            done = _Done()
            try:
                self.answer(rollout.sandbox, actions, done, turn, asked.reply)
            finally:
                self.note(**record, **done.fields(actions, self._called(asked.reply, actions)) | {"kind": "lookahead"})
            well = bool(done.commands) and not done.wrong and done.status == 0
            rollout.messages += _exchange(asked.reply, actions, done.answers, cut=False)
            finished = done.commands and self.agent.done
            rollout.over = bool(finished) and self.tool(rollout.sandbox, self.agent.done).status == 0
        rollout.well.append(well)
        if rollout.over:
            rollout.work = self.domain.collect(self.task, rollout.sandbox)

    def _called(self, reply: Reply, actions: Sequence[_Action]) -> list[dict[str, Any]]:
        return [c.model_dump(exclude={"schema_"}) for c in reply.tool_calls if actions[0].call]

    def raise_cap(self, reply: Reply) -> str:
        """After a reply that was cut off before it held what was to be done, let the next have twice the tokens, once
        in an attempt: what is said of that, '' where it is not so.

        Nor is it where that would not help, since the model's own parameters or its window decide, or would eat up what
        is left of the attempt's limits.
        """
        if self.raised or reply.finish != "length":
            return ""
        cap = self.agent.model.max_tokens
        asked = self.full({"max_tokens": 2 * cap}).get("max_tokens")
        left = self.limits.tokens - self.usage.tokens_in - self.usage.tokens_out
        if asked != 2 * cap or not may_rise(cap, reply, left, self.limits.usd - self.usage.usd):
            return ""
        self.raised = 2 * cap
        return RAISED % self.raised

    def carry_out(self, actions: Sequence[_Action], done: _Done, turn: int, reply: Reply) -> None:
        """Do what a reply asks for, and fill in what is answered: in a copy while the sample observes, else in its
        sandbox, which is set back where the check of [restore] then finds that more fails."""
        runs = any(not a.wrong and not a.query and a.command != SUBMIT for a in actions)
        if self.observing:
            self.observe(actions, done, turn, reply, runs)
        elif runs and self.agent.restore:
            self.act_and_check(self.agent.restore.check, actions, done, turn, reply)
        else:
            self.answer(self.sandbox, actions, done, turn, reply)

    def observe(self, actions: Sequence[_Action], done: _Done, turn: int, reply: Reply, runs: bool) -> None:
        """A turn whose commands are done in a copy. runs: there are any."""
        self.observing -= 1
        if [action.command for action in actions] == [ACT]:
            done.observed, self.observing = True, 0
            return self.answer(self.sandbox, [replace(actions[0], says=_ACTING)], done, turn, reply)
        copy = _copied(self.sandbox, self.agent) if runs else None
        if runs and copy is None:
            self.observing = 0
            return self.answer(self.sandbox, [replace(a, wrong=_UNCOPIED) for a in actions], done, turn, reply)
        try:
            done.observed = copy is not None
            self.answer(self.sandbox if copy is None else copy, actions, done, turn, reply)
            if copy is not None:
                self.carry(copy, self.sandbox, len(done.commands))
        finally:
            if copy is not None:
                copy.close()
        done.answers[-1] += _OBSERVED % self.observing + ("" if self.observing else f"\n{_ACTING}")

    def act_and_check(self, check: str, actions: Sequence[_Action], done: _Done, turn: int, reply: Reply) -> None:
        """Do what a reply asks for, and take it back where more fails by the check than did before."""
        if self.failing < 0:
            self.failing, _ = self.failures(check)
        copy = _copied(self.sandbox, self.agent)
        try:
            self.answer(self.sandbox, actions, done, turn, reply)
            failing, said = self.failures(check)
            if copy is None or failing <= self.failing:
                self.failing = failing
                return
            self.carry(self.sandbox, copy, len(done.commands))
            self.sandbox, copy = copy, self.sandbox
            done.restored = f"by {check} {self.failing} failed before and {failing} after"
            done.answers[-1] += _TAKEN_BACK % (check, self.failing, failing, said)
        finally:
            if copy is not None:
                copy.close()

    def failures(self, check: str) -> tuple[int, str]:
        """(how much fails: 0 where the tool exits with 0, else the number on its last line, 1 without one; what it
        said)."""
        output = self.tool(self.sandbox, check)
        last = output.text.strip().rpartition("\n")[2].strip()
        many = min(int(last), sys.maxsize) if re.fullmatch(r"\d{1,18}", last, re.ASCII) else 1
        return max(1, many) if output.status else 0, cut_middle(output.text.strip(), CUT_CHARS, LEFT_OUT)

    def carry(self, source: Sandbox, target: Sandbox, commands: int) -> None:
        """Keep the outputs of this step that the agent was told are kept, where the files of the source go."""
        for n in range(commands):
            file = f"{KEPT}/{_name(len(self.steps), n)}.txt"
            with contextlib.suppress(FileNotFoundError, BadInput, Fault):
                target.write(file, source.read(file))

    def answer(self, sandbox: Sandbox, actions: Sequence[_Action], done: _Done, turn: int, reply: Reply) -> None:
        """Do what a reply asks for, one after the other, and fill in what is answered."""
        left, extended = turns_left(self.agent.limits.steps, self.agent.limits.extension, turn)
        for n, action in enumerate(actions):
            wrong = action.wrong or (_ALONE if action.command == SUBMIT else "")
            if n and not wrong and time.monotonic() >= self.limits.ends:
                wrong = "it was not run: the time is over"
            if not wrong:
                name = _name(len(self.steps), n)
                if action.says:
                    output, text = Output(text=action.says, status=0), action.says
                elif action.query:
                    output, text = self.recalled(action, done)
                else:
                    output, text = self.act(sandbox, action, name)
                if output.status == 2 and self.agent.action.startswith("tool:"):
                    wrong = (text.strip() or "the reply could not be read") + _cut_words(reply)
                else:
                    shown = {**output.model_dump(include={"status", "seconds", "timed_out", "cut"}), "text": text}
                    done.add(action.command, text, output)
                    told = {"output": shown, "step": turn}
                    done.answers.append(self.render("observation", **told, steps_left=left))
                    continue
            wrong += self.raise_cap(reply)
            done.wrong.append(wrong)
            done.answers.append(self.render("format", error=wrong, steps_left=left))
        done.answers[-1] += extended

    def recalled(self, action: _Action, done: _Done) -> tuple[Output, str]:
        """(what memory answers, its text as it is shown)."""
        if self.recall is None:
            return Output(text=_NO_MEMORY, status=1), _NO_MEMORY
        began = time.monotonic()
        found = self.recall(action.query, Call(**self.address, step=len(self.steps)).id)
        done.recalled.append(found)
        return Output(text=found.text, status=0, seconds=time.monotonic() - began), found.text

    def act(self, sandbox: Sandbox, action: _Action, name: str) -> tuple[Output, str]:
        """(what came of an action, its text as it is shown). name: of the file that keeps what is left out of that."""
        kind, limit = self.agent.action, self.agent.limits.observation_chars
        if action.function is not None:
            output = self.call_function(sandbox, action.function, action.arguments)
            return output, self.kept(sandbox, output, f"{KEPT}/{name}.txt")
        if kind.startswith("tool:"):
            output = self.tool(sandbox, kind.removeprefix("tool:"), action.command)
            return output, cut_middle(output.text, limit, LEFT_OUT, dropped=output.cut)
        line = f'export PATH="$PWD/{BIN}:$PATH"\n'
        if SUBMIT not in self.scaffold.tools:
            line += f"{SUBMIT}() {{ echo '{_ALONE}' >&2; return 1; }}\n"
        if self.agent.memory.recall:
            line += f"{RECALL}() {{ echo '{_NOT_ALONE}' >&2; return 1; }}\n"
        output = _run(sandbox, line + action.command, timeout=self.agent.limits.command_seconds)
        return output, self.kept(sandbox, output, f"{KEPT}/{name}.txt")

    def again(self, sandbox: Sandbox, step: Step) -> int | None:
        """Do a step's actions once more, each by itself as it was: its status."""
        calls = [ToolCall.model_validate(c) for c in step.foreign.get("tool_calls", ())]
        recalls = self.agent.memory.recall > 0
        if self.agent.action == "tools":
            self.native = bool(calls)
            actions = self.asked_for(Reply(text=step.reply, tool_calls=tuple(calls)))
        else:
            ours = bool(calls) and all(call.name in ("bash", SUBMIT, RECALL) for call in calls)
            read = _read(step.action, recalls)
            actions = [_called(call, recalls=recalls) for call in calls] if ours else [read]
        if all(action.query for action in actions):
            return step.status  # what was asked of memory changed nothing
        done = _Done()
        for n, action in enumerate(actions):
            if not action.wrong and not action.query and action.command != SUBMIT:
                output, text = self.act(sandbox, action, _name(step.step, n))
                done.add(action.command, text, output)
        return done.status

    def kept(self, sandbox: Sandbox, output: Output, file: str) -> str:
        """Head and tail of an output, the whole in a file of the sandbox when that is not all."""
        text, limit, mark = output.text, self.agent.limits.observation_chars, LEFT_OUT
        if len(text) > limit:
            try:
                sandbox.write(file, text.encode("utf-8", "replace"))
            except (BadInput, Fault):
                pass  # the agent put something else there, or filled its disk: then it sees what it sees
            else:
                line = text.count("\n", 0, limit // 2) + 1
                mark = KEPT_OUT % (line, line + 100, file)
        return cut_middle(text, limit, mark, dropped=output.cut)

    def tool(self, sandbox: Sandbox, name: str, stdin: str = "") -> Output:
        return _run(
            sandbox,
            [f"./{BIN}/{name}"],
            timeout=self.agent.limits.command_seconds,
            stdin=stdin.encode("utf-8", "surrogatepass"),
        )

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
    native: bool = False,
    full: FullParams = dict,
    recall: Recaller | None = None,
) -> Trace:
    """Let the agent work on the task. Returns the trace with what was handed in.

    `call` carries run, attempt, role, phase, task and repeat; its step is counted here. With `folder`, every
    step is in folder/steps.jsonl as soon as it happened. native: the model takes tools. full: what is recorded as
    asked. recall: whom an agent asks that may recall; None: it is told that there is nobody. What the agent does wrong
    is data in the trace; what is raised is ours: OutOfBudget, Refused, Fault, Interrupted.
    """
    lines = None
    if folder is not None:
        path = folder / "steps.jsonl"
        path.unlink(missing_ok=True)
        lines = Log(path)
    work = Attempt(scaffold, task, domain, backend, ask, call, lines, on_step, offers, native, full, recall)
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
                    answer = domain.collect(task, sandbox)
                    expect(isinstance(answer, str), domain, "collect", answer)
                    best = (rank, number, answer, ending, limit)
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


def furnish(sandbox: Sandbox, scaffold: Scaffold, prompt: str = "", sample: int = 0) -> None:
    """Put the scaffold's tools where its agent finds them; with a prompt, also what tools may know of the attempt."""
    for name, path in scaffold.tools.items():
        sandbox.write(f"{BIN}/{name}", executable(scaffold.files[path]), 0o755)
    if scaffold.tools and prompt:
        sandbox.write(ABOUT, json.dumps({"prompt": prompt, "sample": sample}).encode())


def try_servers(scaffold: Scaffold, task: Task, domain: Domain, backend: SandboxBackend) -> None:
    """Start the MCP servers that the scaffold or the domain names, as an attempt at the task would. Raises BadInput
    (`bad-mcp`) when one does not start, (`calls-no-tools`) for an agent that could do nothing in this domain, and
    (`no-lookahead`, `no-observe`, `no-restore`) for what needs copies where no sandbox can be copied."""
    if scaffold.agent.action != "tools" and isinstance(domain, ToolsOnly) and domain.tools_only:
        raise BadInput(
            f"tasks of {domain.name} are done by calling tools, and the agent {scaffold.name} calls none",
            fix='name one with action = "tools" in its agent.toml, such as --scaffold seed-tools',
            code="calls-no-tools",
        )
    if scaffold.agent.copies:
        sandbox = prepared(domain, task, backend)
        try:
            _copyable(sandbox, scaffold.agent)
        finally:
            sandbox.close()
    if scaffold.agent.action != "tools" or not (scaffold.agent.mcp or isinstance(domain, BringsServers)):
        return
    call = Call(run="try", attempt="try", step=0)
    work = Attempt(scaffold, task, domain, backend, _nobody, call, None, None)
    sandbox = prepared(domain, task, backend)
    try:
        furnish(sandbox, scaffold, work.prompt)
        work.open_functions(sandbox)
    except McpError as e:
        raise BadInput(
            f"MCP: {redact(str(e))}",
            fix="mend the server, or take it out of [mcp] in agent.toml",
            code="bad-mcp",
        ) from None
    finally:
        sandbox.close()


def prepared(domain: Domain, task: Task, backend: SandboxBackend) -> Sandbox:
    """A sandbox in which the task can be worked on. Raises BadInput where the domain gives none."""
    sandbox = domain.prepare(task, backend)
    expect(all(callable(getattr(sandbox, each, None)) for each in _OF_A_SANDBOX), domain, "prepare", sandbox)
    return sandbox


_COPYING = {"lookahead": "looks ahead", "observe": "observes in copies", "restore": "takes back what fails its check"}


def _copyable(sandbox: Sandbox, agent: AgentConfig) -> Copyable:
    """Raises BadInput (`no-lookahead`, ...) for a sandbox that cannot be copied."""
    if not isinstance(sandbox, Copyable):
        raise BadInput(
            f"the agent {_COPYING[agent.copies]}, and sandboxes of {sandbox.backend} cannot be copied",
            fix=f"use --sandbox bwrap or --sandbox unshare, or take [{agent.copies}] out of agent.toml",
            code=f"no-{agent.copies}",
        )
    return sandbox


def _copied(sandbox: Sandbox, agent: AgentConfig) -> Sandbox | None:
    """A copy; None where the agent made a file that cannot be copied: then it acts without one."""
    try:
        return _copyable(sandbox, agent).copy()
    except BadInput as e:
        if e.code != "no-copy":
            raise
        return None


def _run(sandbox: Sandbox, command: str | Sequence[str], **how: Any) -> Output:
    output = sandbox.run(command, **how)
    expect(isinstance(output, Output), sandbox, "run", output)
    return _masked(output)


def replay(
    scaffold: Scaffold, task: Task, trace: Trace, domain: Domain, backend: SandboxBackend
) -> tuple[Sandbox, str]:
    """(a fresh sandbox in which the actions of the sample that was handed in are done again, how faithful that is).

    A sandbox is not kept for this: it would be lost with the process, and an experience of an earlier run has none.
    """
    call = Call(run="replay", attempt=trace.attempt, step=0)
    work = Attempt(scaffold, task, domain, backend, _nobody, call, None, None)
    sandbox = prepared(domain, task, backend)
    again, other = 0, []
    try:
        furnish(sandbox, scaffold, work.prompt, trace.chosen)
        if work.agent.action == "tools":
            try:
                work.open_functions(sandbox, elsewhere=False)  # what is not in the sandbox is not done twice
            except McpError as e:
                other.append(str(e))
        for step in trace.steps:
            if step.sample != trace.chosen or step.kind in ("malformed", "ended") or step.action in ("", SUBMIT):
                continue
            if step.kind == "observe" or step.restored:
                continue  # nothing of it stood
            if scaffold.foreign and (theirs := _not_shell(step)):
                other.append(f"step {step.step} called {theirs}, which only the agent's own program can do")
                continue
            if work.limits.reached(Usage()):
                other.append(f"there was no time for step {step.step} and what followed")
                break
            status = work.tool(sandbox, step.action).status if step.kind == "before" else work.again(sandbox, step)
            again += 1
            if status != step.status and step.status is not None:  # what a program of its own ran told no status
                other.append(f"step {step.step} ended with status {status}, it had been {step.status}")
    except BaseException:
        sandbox.close()
        raise
    summary = f"{again} actions were done again"
    return sandbox, f"{summary}; {'; '.join(other)}" if other else f"{summary}, and all ended as they had"


def _not_shell(step: Step) -> str:
    """The functions of a foreign agent that a step called and that are no shell's command; '' for none."""
    lines = step.action.split("\n")
    calls = step.foreign.get("tool_calls", ())
    return ", ".join(c["name"] for c in calls if f"{c['name']} {c['arguments']}" in lines)


def _own(agent: AgentConfig) -> list[Function]:
    """`bash`, `submit` and `recall` as functions, those that the agent has."""
    there = {"bash": agent.shell, RECALL: agent.memory.recall > 0}
    told = [each["function"] for each in (*NATIVE_TOOLS, RECALL_TOOL)]
    return [Function(f["name"], f["description"], f["parameters"]) for f in told if there.get(f["name"], True)]


def _call_schema(functions: Sequence[str] | Mapping[str, Function]) -> dict[str, Any]:
    """What a reply is held to that names a function as JSON."""
    tool = {"type": "string", "enum": list(functions)}
    named = {"thought": {"type": "string"}, "tool": tool, "arguments": {"type": "object"}}
    return {"type": "object", "properties": named, "required": list(named)}


def _last_words(sandbox: Sandbox, log: str) -> str:
    """What a program said on stderr at last."""
    try:
        text = sandbox.read(log).decode("utf-8", "replace").strip()
    except (FileNotFoundError, BadInput):
        return ""
    return f"; it said: {text[-500:]}" if text else ""


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


def asked_for(kind: str, reply: Reply, *, native: bool = False, recalls: bool = False) -> list[_Action]:
    """What a reply asks for: its tool calls, else what its text says; never none. recalls: it may ask memory."""
    if native and reply.tool_calls:
        return [_called(call, cut=reply.finish == "length", recalls=recalls) for call in reply.tool_calls]
    command, wrong = parse(kind, reply)
    if wrong and native:
        wrong = "the reply calls no tool" + _cut_words(reply) if "```" not in reply.text else wrong
    return [_Action(command, wrong) if wrong else _read(command, recalls)]


def _read(command: str, recalls: bool) -> _Action:
    """A command of a reply in text."""
    return _Action(command, query=recall_query(command) if recalls else "")


def _name(step: int, n: int) -> str:
    """Of the file that keeps the output of the nth command of a step."""
    return f"{step}-{n}" if n else f"{step}"


def _called(call: ToolCall, *, cut: bool = False, recalls: bool = False) -> _Action:
    if call.name == SUBMIT:
        return _Action(SUBMIT, call=call.id)
    takes = {"bash": "command"} | ({RECALL: "query"} if recalls else {})
    key = takes.get(call.name)
    if key is None:
        there = ", ".join([*takes, SUBMIT])
        return _Action("", f"there is no tool {call.name[:60]!r}; there are: {there}", call.id)
    try:
        text = decode(call.arguments or "{}", strict=False).get(key)
    except (ValueError, AttributeError):
        text = None
    if isinstance(text, str) and (text := text.strip()):
        return _Action(text, call=call.id) if key == "command" else _Action(f"{RECALL} {text}", "", call.id, text)
    short = "; the reply was cut off at the token limit" if cut else ""
    return _Action("", f'the arguments of {call.name} must be one JSON object with a "{key}"{short}', call.id)


def _exchange(reply: Reply, actions: Sequence[_Action], answers: Sequence[str], *, cut: bool) -> list[Message]:
    """A turn as it is sent again. cut: the reply was cut off and held nothing to do: little of it is sent again."""
    calls = [
        {
            "id": call.id,
            "type": "function",
            # providers read the arguments, and refuse a transcript in which they are no JSON
            "function": {"name": call.name, "arguments": "{}" if action.wrong else call.arguments},
        }
        for call, action in zip(reply.tool_calls, actions, strict=False)
        if action.call
    ]
    if cut or not calls:
        text = cut_middle(reply.text, CUT_CHARS, "\n[... {} characters left out here ...]\n") if cut else reply.text
        said: Message = {"role": "assistant", "content": text if text.strip() else "(nothing was said)"}
        return [said, {"role": "user", "content": "\n".join(answers)}]
    told = zip(actions, answers, strict=True)
    return [
        {"role": "assistant", "content": reply.text, "tool_calls": calls},
        *[Message(role="tool", content=answer, tool_call_id=action.call) for action, answer in told],
    ]


def may_rise(cap: int, reply: Reply, tokens: int, usd: float) -> bool:
    """Whether a reply that was cut off did reach its cap, and what is left of tokens and usd has room for twice it."""
    return reply.tokens_out >= cap // 2 and tokens >= 4 * cap and usd >= 2 * reply.usd


def _cut_words(reply: Reply) -> str:
    return f": it was cut off at its limit of {reply.tokens_out} tokens" if reply.finish == "length" else ""


def parse(action: str, reply: Reply) -> tuple[str, str]:
    """(what to do, '') or ('', what is wrong with the reply)."""
    text = reply.text
    if action.startswith("tool:"):
        return (text, "") if text.strip() else ("", "the reply was empty" + _cut_words(reply))
    if action == "json":
        try:
            command = decode(text).get("command")
        except (ValueError, AttributeError):
            command = None
        if not isinstance(command, str) or not command.strip():
            return "", 'the reply must be one JSON object with a "command"' + _cut_words(reply)
        return command.strip(), ""
    blocks, wrong = bash_blocks(text)
    if wrong:
        return "", wrong
    if len(blocks) != 1:
        return "", f"the reply must hold exactly one ```bash block; found {len(blocks)}{_cut_words(reply)}"
    command = blocks[0].strip()
    return (command, "") if command else ("", "the ```bash block was empty")


_OPENS = re.compile(r"(`{3,})(?:bash|sh|shell)[ \t]*$")
_FENCE = re.compile(r"(`{3,})([^`]*)$")
_HEREDOC = r"""<<<|<<-?[ \t]*(?:'([^'\n]+)'|"([^"\n]+)"|\\?([A-Za-z_]\w*))"""
_SHELL = {
    "": re.compile(rf"""\\.|\$'|['"]|{_HEREDOC}|(?:(?<=[\s;|&(])|^)\#.*"""),
    '"': re.compile(rf'\\.|"|{_HEREDOC}'),
    "'": re.compile("'"),
    "$'": re.compile(r"\\.|'"),
}
"""By the quote that is open: what changes how a shell reads on."""


def bash_blocks(text: str) -> tuple[list[str], str]:
    """(what stands in each block of ```bash, sh or shell, what is wrong); a block without an end is none.

    A block ends at the first line of as many backticks as opened it, or more, that no heredoc of its command holds.
    Where a quote is open at that line, or another block begins before it, nobody can tell: that is said, for half a
    command must not be run.
    """
    lines = text.split("\n")
    final = {line.lstrip("\t"): n for n, line in enumerate(lines)}
    bare = [n for n, line in enumerate(lines) if line.startswith("```") and not line.rstrip(" \t").strip("`")]
    blocks: list[str] = []
    at = 0
    while at < len(lines):
        opened = _OPENS.match(lines[at])
        at += 1
        if not opened:
            continue
        end, wrong = _end(lines, at, len(opened[1]), final, bare[-1] if bare else -1)
        if wrong:
            return [], wrong
        if end < 0:
            break
        blocks.append("".join(line + "\n" for line in lines[at:end]))
        at = end + 1
    return blocks, ""


def _end(lines: Sequence[str], start: int, ticks: int, final: dict[str, int], last: int) -> tuple[int, str]:
    """(the line that closes a block, -1 for none; what is wrong). final: where each line occurs for the last time;
    last: the last line of backticks alone."""
    waits: list[str] = []  # the ends of heredocs that are open
    quote, inner = "", False
    for n in range(start, len(lines)):
        line = lines[n]
        fence = _FENCE.match(line)
        if waits:
            if line.lstrip("\t") == waits[0]:
                waits.pop(0)
                inner = False
            elif fence:
                if fence[2].strip() and inner:
                    return -1, _NESTED  # what looked like the text of a heredoc is another block of the reply
                inner = not inner
            continue
        if fence and len(fence[1]) >= ticks:
            if fence[2].strip() or (quote and n < last):
                return -1, _NESTED
            return n, ""
        at = 0
        while found := _SHELL[quote].search(line, at):
            at, token = found.end(), found[0]
            if token in ("'", '"', "$'"):
                quote = "" if quote else token
            elif found.lastindex and final.get(word := found[found.lastindex], -1) > n:
                waits.append(word)
    return -1, ""


def executable(text: str) -> bytes:
    """A tool as it lies in the sandbox: with a first line that says what runs it."""
    return (text if text.startswith("#!") else "#!/usr/bin/env python3\n" + text).encode("utf-8")
