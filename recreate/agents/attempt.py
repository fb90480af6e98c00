"""One agent, one task, one sandbox a sample: attempt(...) -> Trace. A turn is: ask, act, observe.

How the agent acts is its scaffold's (agent.toml, `action`; action.py). `before` tools run ahead of
the first turn, `done` after every action (exit 0: handed in), `choose` ranks the samples, or they
`vote`. What else a turn may be is a strategy's, a class above Attempt that a plug-in brings
(`recreate.turns`) and agent.toml asks for by its key.
"""

from __future__ import annotations

import contextlib
import math
import time
import zlib
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

from recreate.agents.action import (
    ALONE,
    COMMAND_SCHEMA,
    Action,
    Done,
    cut_words,
    exchange,
    read_actions,
)
from recreate.agents.config import AgentConfig, turns_left
from recreate.agents.functions import (
    NATIVE_TOOLS,
    RECALL_TOOL,
    SUBMIT,
    call_schema,
    describe_functions,
)
from recreate.agents.progress import (
    AskAgent,
    AttemptProgress,
    FullParams,
    OfferedSoFar,
    end_of_refusal,
    steps_log,
    turn_tokens,
)
from recreate.agents.retrieval import LastSeen, LessonRetrieval, Recaller
from recreate.agents.scaffold import Scaffold
from recreate.agents.trajectory import cut_middle
from recreate.agents.workplace import LEFT_OUT, Workplace, furnish, prepare_sandbox, tell_attempt
from recreate.api.errors import BadInput, Fault, Refused
from recreate.api.ports import Domain, Sandbox, SandboxBackend
from recreate.api.registry import find
from recreate.api.shapes import JsonDict, JsonMap
from recreate.api.theirs import expect
from recreate.api.types import (
    Call,
    Ending,
    Message,
    Output,
    Reply,
    Step,
    Task,
    Trace,
    Usage,
    digest,
)
from recreate.storage.redact import redact

QUERY_CHARS = 1500
"""Characters of a result's end that memory is asked with."""
CUT_OFF = 3
"""So many replies in a row that were cut off before they held a command end the attempt: each is
billed whole."""
RAISED = "; from now on a reply may have %d tokens"
_MAY_RECALL = (
    "\n\nThe command `recall WORDS`, when it is all that %s holds, asks what is remembered of"
    " earlier attempts at other tasks: what was tried, and whether it passed. Say in your own words"
    " what you want to know, with the names and errors that you see."
)
_NO_MEMORY = "there is no memory here that could be asked: go on without"


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
    tools: str = "",
) -> str:
    """Return the attempt's id, and the key under which its score is reused: the digest of all that
    the outcome depends on.

    near: how near another question may be whose reply is taken, and by whose vectors; '' where none
    is. tools: what tells the tools that the agent's MCP servers list; '' without servers.
    """
    params = scaffold.agent.model.model_dump(exclude={"schema_"})
    made_from: list[Any] = [
        scaffold.digest,
        task.id,
        task.digest,
        memory,
        model,
        params,
        sandbox,
        grader,
    ]
    made_from.append(repeat)
    made_from += [near] if near or tools else []
    return digest([*made_from, tools] if tools else made_from)


class Answered(NamedTuple):
    """A reply, what it cost, all that was asked of the model, and what its step says besides."""

    reply: Reply
    usage: Usage
    params: JsonMap
    about: Mapping[str, Any] = {}


@dataclass(eq=False)
class SampleState:
    """How far a try at the task is. seen: what the agent is shown next; results: turns in which
    something was done; past: the ids of the last turn; after: the step of another sample that it
    goes on from; kept: what strategies know of it."""

    number: int
    sandbox: Sandbox
    messages: list[Message] = field(default_factory=list)
    so_far: OfferedSoFar = field(default_factory=OfferedSoFar)
    seen: str = ""
    turn: int = 0
    results: int = 0
    last: LastSeen = field(default_factory=LastSeen)
    past: tuple[int, ...] = ()
    cut_off: int = 0
    after: int | None = None
    kept: dict[str, int] = field(default_factory=dict)

    def branch(self, number: int, sandbox: Sandbox, after: int | None) -> SampleState:
        """Return another sample that has come as far, in a sandbox of its own."""
        so_far = replace(self.so_far, ids={*self.so_far.ids}, fresh={**self.so_far.fresh})
        own: JsonDict = {
            "messages": [*self.messages],
            "kept": {**self.kept},
            "so_far": so_far,
        }
        return replace(self, number=number, sandbox=sandbox, after=after, **own)


@dataclass
class Attempt(AttemptProgress):
    """One attempt of an agent of ours, under way."""

    recall: Recaller | None = None
    raised: int = 0
    """What a reply may have now in place of max_tokens; 0: that."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.place = Workplace(self.scaffold, self.task, self.domain)

    # ------------------------------------------------------------------------------- a sample

    def begin(self, number: int) -> SampleState:
        """Return a sample that is to be gone on with. The caller closes its sandbox."""
        return SampleState(number, prepare_sandbox(self.domain, self.task, self.backend))

    def go_on(self, sample: SampleState) -> tuple[Ending, str]:
        """Take the turns of a sample, to its end."""
        try:
            if not sample.messages:
                furnish(sample.sandbox, self.scaffold, self.prompt, sample.number)
                if self.agent.action == "tools":
                    self.place.open_functions(sample.sandbox)
                return self.talk(sample, {n: self.run_before(sample, n) for n in self.agent.before})
            if self.scaffold.tools:
                # the agent may have put something else there, or filled its disk
                with contextlib.suppress(BadInput, Fault):
                    tell_attempt(sample.sandbox, self.prompt, sample.number)
            return self.take_turns(sample)
        except BadInput as e:
            # the agent's own fault, which no check could foresee: what it had done until then is
            # graded; of a server, which was tried before anything was spent, an edit's or a task's
            ends = {"bad-template": "template", "bad-mcp": "mcp"}
            if e.code not in ends:
                raise
            self.note(sample=sample.number, kind="malformed", action="", output=e.message)
            return "error", ends[e.code]

    def talk(self, sample: SampleState, before: dict[str, str]) -> tuple[Ending, str]:
        """Show the agent its prompts, and take its turns."""
        prompts = [self.render(name, before=before) for name in ("system", "workflow")]
        where = (
            '"command"' if self.agent.action == "json" else "a call" if self.native else "the block"
        )
        if self.agent.action == "tools" and not self.native:
            words = describe_functions(self.place.functions.values())
            prompts[0] += "\n\n" + redact(words, acted_on=True)
        elif self.agent.memory.recall and not self.native:
            prompts[0] += _MAY_RECALL % where
        sample.so_far = OfferedSoFar()
        query = "\n".join([self.prompt, *(text[-QUERY_CHARS:] for text in before.values())])
        prompts[1] += self.offer("start", query, sample.so_far)
        prompts[0] += self.more_words(where)
        sample.seen = prompts[1]
        sample.messages = [
            {"role": role, "content": text}
            for role, text in zip(("system", "user"), prompts, strict=True)
        ]
        try:
            return self.take_turns(sample)
        except Refused as e:
            if e.code != "no-tools" or not self.native or len(sample.messages) > 2:
                raise
            self.native = False  # the endpoint has just said so
            return self.talk(sample, before)

    def more_words(self, where: str) -> str:
        """Return what the system message says besides. where: what of a reply holds a command."""
        return ""

    def run_before(self, sample: SampleState, name: str) -> str:
        """Run a tool ahead of the first turn; return what it printed."""
        output = self.place.run_tool(sample.sandbox, name)
        text = cut_middle(output.text, self.agent.limits.observation_chars, LEFT_OUT)
        self.note(
            sample=sample.number, kind="before", action=name, output=text, status=output.status
        )
        return text

    # --------------------------------------------------------------------------------- a turn

    def take_turns(self, sample: SampleState) -> tuple[Ending, str]:
        """Take turns until the sample ends."""
        while sample.turn < self.agent.limits.turns:
            if reached := self.limits.reached(self.usage):
                return "limit", reached
            try:
                answered = self.ask_turn(sample)
            except (BadInput, Fault) as e:
                if (end := end_of_refusal(e, sample.turn)) is None:
                    raise
                about = {"observation": sample.seen, "output": e.message}
                self.note(sample=sample.number, kind="malformed", action="", **about)
                return end
            if end := self.take_turn(sample, answered):
                return end
        return "limit", "steps"

    def take_turn(self, sample: SampleState, answered: Answered) -> tuple[Ending, str] | None:
        """Do what a reply asks for, and make of what came of it what is sent next."""
        reply, usage, params, about = answered
        step = len(self.steps)
        fresh, sample.so_far.fresh = sample.so_far.fresh, {}
        actions = self.read(reply)
        calls = calls_of(reply, actions)
        record: JsonDict = {
            "sample": sample.number,
            "observation": sample.seen,
            "reply": reply.text,
            "usage": usage,
            **fresh,
            **about,
            "sent": self.requests.add(step, sample.messages, self.full(params), sample.seen),
            **facts_of(reply),
        }
        record |= {"after": sample.after} if sample.after is not None else {}
        record |= turn_tokens(reply, sample.past)
        sample.after = None
        sample.past = (*(reply.prompt_ids or ()), *(reply.token_ids or ()))
        if hands_in(actions):
            record |= {"foreign": {"tool_calls": calls}} if calls else {}
            self.note(action=SUBMIT, **record)
            return "submitted", ""
        done = Done()
        try:
            self.act(sample, actions, done, reply)
            sample.so_far.show([id for recalled in done.recalled for id in recalled.lessons])
            if done.commands and not all(action.query for action in actions):
                sample.last, why = sample.last.after("\n".join(done.texts))
                query = done.texts[-1][-QUERY_CHARS:]
                done.answers[-1] += self.offer(why or "step", query, sample.so_far)
        finally:  # it was paid and done, whatever becomes of its answer
            self.note(**record, **done.fields(actions, calls))
        if done.counts and self.is_done(sample.sandbox):
            return "submitted", ""
        cut = reply.finish == "length" and not done.commands
        sample.cut_off = sample.cut_off + 1 if cut else 0
        if sample.cut_off == CUT_OFF:
            return "limit", "reply"
        sample.messages += exchange(reply, actions, done.answers, cut=cut)
        sample.seen = "\n".join(done.answers)
        sample.turn += 1
        if done.commands:
            sample.results += 1
            self.after_result(sample, step)
        return None

    def after_result(self, sample: SampleState, step: int) -> None:
        """Take note of a turn that had a result."""

    def is_done(self, sandbox: Sandbox) -> bool:
        """Return whether the tool `done` says that the work is handed in."""
        done = self.agent.done
        return bool(done) and self.place.run_tool(sandbox, done).status == 0

    # ------------------------------------------------------------------------------------ ask

    @cached_property
    def params(self) -> JsonDict:
        """What every call asks for, but for `tools` and a cap that was raised."""
        model = self.agent.model.model_dump(include={"temperature", "top_p", "max_tokens"})
        asked = {key: value for key, value in model.items() if value is not None}
        asked |= {"stop": list(self.agent.model.stop)} if self.agent.model.stop else {}
        return asked | ({"json_schema": COMMAND_SCHEMA} if self.agent.action == "json" else {})

    @property
    def functions(self) -> JsonDict:
        """`tools`, or the schema of a reply that names one."""
        if self.native:
            own = [f.native for f in self.place.functions.values()]
            shell = (*NATIVE_TOOLS, RECALL_TOOL) if self.agent.memory.recall else NATIVE_TOOLS
            return {"tools": shell if self.agent.action == "bash" else own}
        named = self.agent.action == "tools"
        return {"json_schema": call_schema(self.place.functions)} if named else {}

    def ask_turn(self, sample: SampleState) -> Answered:
        """Return the reply that the next turn of a sample carries out."""
        return self.ask_model(sample.messages, len(self.steps), sample.number)

    def ask_model(self, messages: list[Message], step: int, sample: int) -> Answered:
        """Return the model's reply, counted."""
        call = Call(**self.address, step=step, sample=sample)
        # of the task and not of the agent, so that agents which are compared share their luck
        seed = zlib.crc32(f"{call.task}/{call.repeat}/{step}".encode()) >> 1
        params = {"seed": seed, **self.params, **self.functions}
        params |= {"max_tokens": self.raised} if self.raised else {}
        reply = self.ask(messages, call, **params)
        usage = Usage.of(reply, call)
        self.usage = self.usage + usage
        return Answered(reply, usage, params)

    def read(self, reply: Reply) -> list[Action]:
        """Return what a reply asks for; never none."""
        recalls = self.agent.memory.recall > 0
        own = self.place.functions
        return read_actions(self.agent.action, reply, own, native=self.native, recalls=recalls)

    def raise_cap(self, reply: Reply) -> str:
        """Let the reply after one that was cut off before it held what was to be done have twice
        the tokens, once in an attempt; return what is said of that, '' where it is not so.

        Nor is it where that would not help, since the model's own parameters or its window decide,
        or would eat up what is left of the attempt's limits.
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

    # ------------------------------------------------------------------------- act and observe

    def act(self, sample: SampleState, actions: Sequence[Action], done: Done, reply: Reply) -> None:
        """Do what a reply asks for, and fill in what is answered."""
        self.do_all(sample.sandbox, sample.turn, actions, done, reply)

    def do_all(
        self, sandbox: Sandbox, turn: int, actions: Sequence[Action], done: Done, reply: Reply
    ) -> None:
        """Do in a sandbox what a reply asks for, one after the other."""
        left, extended = turns_left(self.agent.limits.steps, self.agent.limits.extension, turn)
        for n, action in enumerate(actions):
            wrong = action.wrong or (ALONE if action.command == SUBMIT else "")
            if n and not wrong and time.monotonic() >= self.limits.ends:
                wrong = "it was not run: the time is over"
            if not wrong:
                output, text = self.do(sandbox, action, n, done)
                if output.status != 2 or not self.agent.action.startswith("tool:"):
                    shown = output.model_dump(include={"status", "seconds", "timed_out", "cut"})
                    done.add(action.command, text, output)
                    told = {"output": {**shown, "text": text}, "step": turn, "steps_left": left}
                    done.answers.append(self.render("observation", **told))
                    continue
                wrong = (text.strip() or "the reply could not be read") + cut_words(reply)
            wrong += self.raise_cap(reply)
            done.wrong.append(wrong)
            done.answers.append(self.render("format", error=wrong, steps_left=left))
        done.answers[-1] += extended

    def do(self, sandbox: Sandbox, action: Action, n: int, done: Done) -> tuple[Output, str]:
        """Do the nth action of a reply; return what came of it, and its text as it is shown."""
        if action.says:
            return Output(text=action.says, status=0), action.says
        if not action.query:
            return self.place.act(sandbox, action, output_name(len(self.steps), n))
        if self.recall is None:
            return Output(text=_NO_MEMORY, status=1), _NO_MEMORY
        began = time.monotonic()
        answer = self.recall(action.query, Call(**self.address, step=len(self.steps)).id)
        done.recalled.append(answer)
        return Output(text=answer.text, status=0, seconds=time.monotonic() - began), answer.text


class TurnStrategy(Attempt, ABC):
    """An attempt whose turns are taken in another way where agent.toml has the key by which this
    class is found (`recreate.turns`). Of several each goes on to the next by `super()`."""

    Config: ClassVar[Any]
    """The type of what stands under the key, for pydantic. Its `tools`, if it has any, are names of
    the scaffold's tools that it uses."""
    commands: ClassVar[tuple[str, ...]] = ()
    """Words that are commands to it: no tool may be called so."""

    @classmethod
    def refusal(cls, agent: AgentConfig) -> str:
        """Return why an agent cannot have this, '' where it can."""
        return ""

    @classmethod
    @abstractmethod
    def describe(cls, agent: AgentConfig) -> str:
        """Return a sentence that tells people and optimizers what it does."""

    @classmethod
    def try_sandbox(cls, sandbox: Sandbox) -> None:
        """Raise BadInput for a sandbox in which it cannot be done."""

    @classmethod
    def count_calls(cls, agent: AgentConfig, calls: int, turns: int) -> int:
        """Return how many calls become of those of an attempt whose samples take so many turns."""
        return calls


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

    `call` carries run, attempt, role, phase, task and repeat; its step is counted here. With
    `folder`, every step is in folder/steps.jsonl as soon as it happened. native: the model takes
    tools. full: what is recorded as asked. recall: whom an agent asks that may recall; None: it is
    told that there is nobody. What the agent does wrong is data in the trace; what is raised is
    ours: OutOfBudget, Refused, Fault, Interrupted.
    """
    agent = scaffold.agent
    strategies = [find("turns", key) for key in agent.turns]
    kind: type[Attempt] = type("Attempt", (*strategies, Attempt), {}) if strategies else Attempt
    given = scaffold, task, domain, backend, ask, call, steps_log(folder), on_step, offers
    work = kind(*given, native=native, full=full, recall=recall)
    ends: list[tuple[str, Ending, str]] = []
    ranks: list[float] = []
    ballots: list[str | None] = []
    with contextlib.closing(work):
        for number in range(agent.samples):
            sample = work.begin(number)
            try:
                ending, limit = work.go_on(sample)
                idle = sample.after is not None
                asked = agent.samples > 1 and not idle
                if agent.vote:
                    ballots.append(work.place.ballot(sample.sandbox) if asked else None)
                    best, settled = count_votes(ballots, agent.samples - number - 1)
                else:
                    settled = ending == "submitted" and bool(agent.done)
                    ranked = agent.choose and asked and not settled
                    rank = work.place.rank(sample.sandbox) if ranked else 0
                    ranks.append(-math.inf if idle else rank)
                    best = number if settled else ranks.index(max(ranks))
                answer = domain.collect(task, sample.sandbox)
                expect(isinstance(answer, str), domain, "collect", answer)
                ends.append((answer, ending, limit))
            finally:
                sample.sandbox.close()
            if settled or limit in ("tokens", "usd", "seconds"):
                break
    answer, ending, limit = ends[best]
    return work.trace(model, ending, limit, answer, best)


def count_votes(ballots: Sequence[str | None], left: int) -> tuple[int, bool]:
    """Return the first of the most samples that came to the same, the first of all where none has
    a say; and whether the `left` that are still to be made cannot change it.

    Self-consistency (Wang et al., arXiv 2203.11171, section 2), without the samples that can decide
    nothing any more.
    """
    # a Counter keeps the order of equals
    counts = Counter(ballot for ballot in ballots if ballot is not None)
    if not counts:
        return 0, not left
    most = max(counts, key=counts.__getitem__)
    rest = list(counts)
    rivals = [
        counts[ballot] + left + (rest.index(ballot) < rest.index(most))
        for ballot in rest
        if ballot != most
    ]
    return ballots.index(most), counts[most] >= max(rivals, default=left)


def hands_in(actions: Sequence[Action]) -> bool:
    return len(actions) == 1 and actions[0].command == SUBMIT


def calls_of(reply: Reply, actions: Sequence[Action]) -> list[JsonDict]:
    return [call.model_dump(exclude={"schema_"}) for call in reply.tool_calls if actions[0].call]


def facts_of(reply: Reply) -> JsonDict:
    """Return what a step says of its reply where it is not as usual."""
    cut: JsonDict = {"cut": True} if reply.finish == "length" else {}
    cut |= {"reasoning": reply.reasoning} if reply.reasoning else {}
    return cut | ({"near": reply.near} if reply.near is not None else {})


def output_name(step: int, n: int) -> str:
    """Return the name of the file that keeps the output of the nth command of a step."""
    return f"{step}-{n}" if n else f"{step}"


def may_rise(cap: int, reply: Reply, tokens: int, usd: float) -> bool:
    """Return whether a reply that was cut off did reach its cap, and what is left of tokens and usd
    has room for twice it."""
    return reply.tokens_out >= cap // 2 and tokens >= 4 * cap and usd >= 2 * reply.usd
