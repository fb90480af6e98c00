"""One agent, one task, one sandbox a sample (a fresh one, or a copy where samples branch):
attempt(...) -> Trace.

How the agent acts is its scaffold's (agent.toml, `action`; action.py). `before` tools run ahead of
the first turn, `done` after every action (exit 0: handed in), `choose` ranks the samples, or they
`vote`.
"""

from __future__ import annotations

import contextlib
import math
import time
import zlib
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

from recreate.agents.action import (
    ALONE,
    COMMAND_SCHEMA,
    Action,
    Done,
    asked_for,
    bash_blocks,
    cut_words,
    done_actions,
    exchange,
    function_calls,
    parse,
)
from recreate.agents.config import ACT, turns_left
from recreate.agents.functions import NATIVE_TOOLS, RECALL_TOOL, SUBMIT, call_schema, told
from recreate.agents.progress import (
    AskAgent,
    AttemptProgress,
    FullParams,
    LimitsLeft,
    OfferedSoFar,
    in_tokens,
    steps_log,
)
from recreate.agents.retrieval import LastSeen, LessonRetrieval, Recaller
from recreate.agents.scaffold import Scaffold
from recreate.agents.trajectory import cut_middle
from recreate.agents.workplace import (
    BIN,
    KEPT,
    LEFT_OUT,
    Workplace,
    copied,
    furnish,
    prepared,
    tell_attempt,
    try_servers,
)
from recreate.api.errors import BadInput, Fault, Refused
from recreate.api.ports import Domain, Sandbox, SandboxBackend
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

__all__ = [
    "BIN",
    "COMMAND_SCHEMA",
    "LEFT_OUT",
    "AskAgent",
    "Attempt",
    "attempt",
    "attempt_key",
    "bash_blocks",
    "furnish",
    "may_rise",
    "parse",
    "replay",
    "try_servers",
]

QUERY_CHARS = 1500
"""Characters of a result's end that memory is asked with."""
CUT_OFF = 3
"""So many replies in a row that were cut off before they held a command end the attempt: each is
billed whole."""
RAISED = "; from now on a reply may have %d tokens"
_RECALL_TOLD = (
    "\n\nThe command `recall WORDS`, when it is all that %s holds, asks what is remembered of"
    " earlier attempts at other tasks: what was tried, and whether it passed. Say in your own words"
    " what you want to know, with the names and errors that you see."
)
_OBSERVE_TOLD = (
    "\n\nYou begin by observing. In the first %d replies your commands run in a copy of /work that"
    " is thrown away after each: look at what you like, and try what you like. When you have seen"
    " enough, the command `act`, when it is all that %s holds, ends this. Only what you do after"
    " that counts."
)
_OBSERVED = "\n[This was done in a copy, which is gone. Turns of observing that are left: %d]"
_ACTING = "From now on what you do counts."
_RESTORE_TOLD = (
    "\n\nAfter each of your actions the check `%s` runs. When more fails than before, the action is"
    " taken back: the files are then as they were before it."
)
_TAKEN_BACK = (
    "\n[This action was taken back, and the files are as they were before it: by the check `%s`, %d"
    " failed before and %d after. It said:]\n%s"
)
_UNCOPIED = (
    "it was not run: /work holds a file that cannot be copied, so there is no observing; from now"
    " on it counts"
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
) -> str:
    """The attempt's id, and the key under which its score is reused: all that the outcome depends
    on.

    near: how near another question may be whose reply is taken, and by whose vectors; '' where none
    is.
    """
    params = scaffold.agent.model.model_dump(exclude={"schema_"})
    made_from = [
        scaffold.digest,
        task.id,
        task.digest,
        memory,
        model,
        params,
        sandbox,
        grader,
        repeat,
    ]
    return digest([*made_from, near] if near else made_from)


class _Answered(NamedTuple):
    """A reply, what it cost, and all that was asked of the model."""

    reply: Reply
    usage: Usage
    params: Mapping[str, Any]


@dataclass
class _Rollout:
    """What comes of one first action in a copy of the sandbox. wanted: so many candidates asked for
    it; well: of each action, whether it could be read and ended with 0; over: nothing follows;
    work: what it would hand in, if it did.
    """

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
        """The share of the other candidates that ask for the same, or come to hand in the same
        work."""
        alike = sum(
            r.wanted for r in others if r is self or (r.work is not None and r.work == self.work)
        )
        return (alike - 1) / max(1, sum(r.wanted for r in others) - 1)


@dataclass(eq=False)
class _Path:
    """How far a sample is. seen: what the agent is shown next; results: turns in which something
    was done; past: the ids of the last turn; after: the step of another sample that it goes on
    from."""

    sample: int
    messages: list[Message]
    so_far: OfferedSoFar
    seen: str
    turn: int = 0
    results: int = 0
    last: LastSeen = field(default_factory=LastSeen)
    past: tuple[int, ...] = ()
    cut_off: int = 0
    after: int | None = None

    def again(self, sample: int, after: int | None) -> _Path:
        """The same for another sample."""
        so_far = replace(self.so_far, ids={*self.so_far.ids}, fresh={**self.so_far.fresh})
        return replace(self, sample=sample, messages=[*self.messages], so_far=so_far, after=after)


@dataclass(eq=False)
class _Fork:
    """Where so many more samples go on from, in copies of a sandbox. observing, failing: as of the
    attempt."""

    path: _Path
    sandbox: Sandbox
    ways: int
    observing: int
    failing: int


@dataclass
class Attempt(AttemptProgress):
    """One attempt of an agent of ours, under way."""

    recall: Recaller | None = None
    sandbox: Sandbox = field(init=False)
    """Of the sample that is under way."""
    observing: int = 0
    """So many turns of observing are left."""
    failing: int = -1
    """How much failed by the check of [restore] when it ran last; -1: it did not run yet."""
    raised: int = 0
    """What a reply may have now in place of max_tokens; 0: that."""
    forks: list[_Fork] = field(default_factory=list)
    """Where samples that are still to be made go on from."""
    idle: bool = False
    """The last sample went on from another, and a limit was reached before it did anything."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.place = Workplace(self.scaffold, self.task, self.domain)

    def close(self) -> None:
        super().close()
        while self.forks:
            self.forks.pop().sandbox.close()

    @cached_property
    def params(self) -> dict[str, Any]:
        """What every call asks for, but for `tools` and a cap that was raised."""
        model = self.agent.model
        asked = {
            k: v
            for k in ("temperature", "top_p", "max_tokens")
            if (v := getattr(model, k)) is not None
        }
        asked |= {"stop": list(model.stop)} if model.stop else {}
        return asked | ({"json_schema": COMMAND_SCHEMA} if self.agent.action == "json" else {})

    @property
    def offered_functions(self) -> dict[str, Any]:
        """`tools`, or the schema of a reply that names one."""
        if self.native:
            own = [f.native for f in self.place.functions.values()]
            shell = (*NATIVE_TOOLS, RECALL_TOOL) if self.agent.memory.recall else NATIVE_TOOLS
            return {"tools": shell if self.agent.action == "bash" else own}
        return (
            {"json_schema": call_schema(self.place.functions)}
            if self.agent.action == "tools"
            else {}
        )

    def sample(self, number: int) -> tuple[Sandbox, Ending, str]:
        """One try, from where an earlier one branches, else in a fresh sandbox; the caller closes
        the sandbox."""
        path = self.branch(number)
        if path is None:
            self.sandbox = prepared(self.domain, self.task, self.backend)
            self.observing, self.failing = self.agent.observe.steps if self.agent.observe else 0, -1
        sandbox = self.sandbox
        try:
            before = dict[str, str]()
            if path is None:
                furnish(sandbox, self.scaffold, self.prompt, number)
                if self.agent.action == "tools":
                    try:
                        self.place.open_functions(sandbox)
                    except BadInput as e:
                        if e.code != "bad-mcp":
                            raise
                        # what runs before anything is spent has tried the servers: an edit broke
                        # one, or its task did
                        self.note(sample=number, kind="malformed", action="", output=e.message)
                        return sandbox, "error", "mcp"
                before = {n: self.before(sandbox, n, number) for n in self.agent.before}
            elif self.scaffold.tools:
                # the agent put something else there, or filled its disk
                with contextlib.suppress(BadInput, Fault):
                    tell_attempt(sandbox, self.prompt, number)
            try:
                ending, limit = self.talk(before, number) if path is None else self.turns(path)
            except BadInput as e:
                if e.code != "bad-template":
                    raise
                # the agent's own fault, which no check could foresee: what it had done until then
                # is graded
                self.note(sample=number, kind="malformed", action="", output=e.message)
                ending, limit = "error", "template"
            self.idle = path is not None and path.after is not None
            return self.sandbox, ending, limit
        except BaseException:
            self.sandbox.close()
            raise

    def branch(self, number: int) -> _Path | None:
        """What a sample goes on from, its sandbox made; None where it begins anew. Those that share
        the least go first, since they can differ the most."""
        fork = min(self.forks, key=lambda fork: fork.path.results, default=None)
        if fork is None:
            return None
        fork.ways -= 1
        copy = copied(fork.sandbox, self.agent) if fork.ways else None
        if copy is None:
            self.forks.remove(fork)
        self.sandbox = fork.sandbox if copy is None else copy
        self.observing, self.failing = fork.observing, fork.failing
        return fork.path.again(number, fork.path.after)

    def fork(self, path: _Path, step: int) -> None:
        """After a step that had a result: where `branches` says so, keep what further samples go on
        from, as far as samples that share less leave any to be made; and what they leave none for
        no longer."""
        widths, at, left = self.agent.branches, path.results, self.agent.samples - path.sample - 1
        if at > len(widths) or path.turn >= self.agent.limits.turns:
            return
        ways = min(
            widths[at - 1] - 1, left - sum(f.ways for f in self.forks if f.path.results <= at)
        )
        copy = copied(self.sandbox, self.agent) if ways > 0 else None
        if copy is None:
            return
        self.forks.append(
            _Fork(path.again(path.sample, step), copy, ways, self.observing, self.failing)
        )
        while (spare := sum(f.ways for f in self.forks) - left) > 0:
            last = max(reversed(self.forks), key=lambda f: f.path.results)
            last.ways -= min(spare, last.ways)
            if not last.ways:
                self.forks.remove(last)
                last.sandbox.close()

    def asked_for(self, reply: Reply) -> list[Action]:
        """What a reply asks for; never none."""
        recalls = self.agent.memory.recall > 0
        if self.agent.action == "tools":
            return function_calls(reply, self.place.functions, native=self.native, recalls=recalls)
        return asked_for(self.agent.action, reply, native=self.native, recalls=recalls)

    def talk(self, before: dict[str, str], number: int) -> tuple[Ending, str]:
        messages: list[Message] = [
            {"role": "system", "content": self.render("system", before=before)},
            {"role": "user", "content": self.render("workflow", before=before)},
        ]
        where = (
            '"command"' if self.agent.action == "json" else "a call" if self.native else "the block"
        )
        if self.agent.action == "tools" and not self.native:
            messages[0]["content"] += "\n\n" + redact(told(list(self.place.functions.values())))
        elif self.agent.memory.recall and not self.native:
            messages[0]["content"] += _RECALL_TOLD % where
        if self.agent.observe:
            alone = "a reply" if self.native else where
            messages[0]["content"] += _OBSERVE_TOLD % (self.agent.observe.steps, alone)
        if self.agent.restore:
            messages[0]["content"] += _RESTORE_TOLD % self.agent.restore.check
        so_far = OfferedSoFar()
        seen = "\n".join([self.prompt, *(text[-QUERY_CHARS:] for text in before.values())])
        messages[1]["content"] += self.offered("start", seen, so_far)
        try:
            return self.turns(_Path(number, messages, so_far, messages[-1]["content"]))
        except Refused as e:
            if e.code != "no-tools" or not self.native or len(messages) > 2:
                raise
            self.native = False  # the endpoint has just said so
            return self.talk(before, number)

    def before(self, sandbox: Sandbox, name: str, number: int) -> str:
        output = self.place.tool(sandbox, name)
        text = cut_middle(output.text, self.agent.limits.observation_chars, LEFT_OUT)
        self.note(sample=number, kind="before", action=name, output=text, status=output.status)
        return text

    def turns(self, path: _Path) -> tuple[Ending, str]:
        messages, so_far, number = path.messages, path.so_far, path.sample
        while path.turn < self.agent.limits.turns:
            reached = self.limits.reached(self.usage)
            if reached:
                return "limit", reached
            looked: dict[str, Any] = {}
            try:
                if self.agent.lookahead and not self.observing:
                    (reply, usage, params), looked = self.look_ahead(
                        self.sandbox, messages, path.turn, number
                    )
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
            record: dict[str, Any] = {
                "observation": path.seen,
                "reply": reply.text,
                "usage": usage,
                **fresh,
                **looked,
            }
            record["sent"] = self.requests.add(step, messages, self.full(params), path.seen)
            record |= {"cut": True} if reply.finish == "length" else {}
            record |= {"near": reply.near} if reply.near is not None else {}
            record |= {"after": path.after} if path.after is not None else {}
            path.after = None
            record |= in_tokens(reply, path.past)
            path.past = (*(reply.prompt_ids or ()), *(reply.token_ids or ()))
            if len(actions) == 1 and actions[0].command == SUBMIT:
                record |= {"foreign": {"tool_calls": called}} if called else {}
                self.note(sample=number, action=SUBMIT, **record)
                return "submitted", ""
            done = Done()
            try:
                self.carry_out(actions, done, path.turn, reply)
                so_far.show([id for recalled in done.recalled for id in recalled.lessons])
                if done.commands and not all(action.query for action in actions):
                    path.last, why = path.last.after("\n".join(done.texts))
                    done.answers[-1] += self.offered(
                        why or "step", done.texts[-1][-QUERY_CHARS:], so_far
                    )
            except BadInput:  # it was paid and done, whatever becomes of its answer
                self.note(sample=number, **record, **done.fields(actions, called))
                raise
            self.note(sample=number, **record, **done.fields(actions, called))
            if (
                done.counts
                and self.agent.done
                and self.place.tool(self.sandbox, self.agent.done).status == 0
            ):
                return "submitted", ""
            path.cut_off = path.cut_off + 1 if reply.finish == "length" and not done.commands else 0
            if path.cut_off == CUT_OFF:
                return "limit", "reply"
            messages += exchange(reply, actions, done.answers, cut=bool(path.cut_off))
            path.seen = "\n".join(done.answers)
            path.turn += 1
            if done.commands:
                path.results += 1
                self.fork(path, step)
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
        """(the reply of several whose rollout is best, at no further cost; what its step says of
        that).

        MAXS (arXiv 2601.09259): every reply and every action of a rollout is a step of the kind
        `lookahead`, in a sample of its own. Candidates that ask for the same are one; where all do,
        none is rolled out. What is best: the number of the tool `choose`, where there is one; then
        the share of actions that ended with 0; then how many of the others ask for the same or come
        to hand in the same; then the first.
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
            best = max(
                rollouts, key=lambda r: (r.rank, r.status, r.agreement(rollouts)), default=None
            )
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
        """Note each candidate, and try out those that differ, each in a copy that `rollouts` then
        holds. None is tried out where there is but one, or where the sandbox made a file that
        cannot be copied."""
        keys = [self._wants(asked.reply) for asked in found]
        last = next(
            (s for s in reversed(self.steps) if s.sample == number and s.kind != "before"), None
        )
        alone = len(set(keys)) == 1
        for n, asked in enumerate(found):
            step, sample = len(self.steps), self.agent.samples + n
            copy = None if alone or keys[n] in keys[:n] else copied(sandbox, self.agent)
            if copy is None:
                self.note(sample=sample, kind="lookahead", **self._looked(asked, messages))
                continue
            rollout = _Rollout(
                asked, step, sample, copy, list(messages), wanted=keys.count(keys[n])
            )
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
        """Go on from a first action until `steps` are done, it handed in, or a limit is reached;
        then say what the tool `choose` thinks of it."""
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
            rollout.rank = self.place.rank(rollout.sandbox)

    def tried(self, rollout: _Rollout, asked: _Answered, turn: int, well: bool) -> None:
        """Do in a copy what a reply asks for. well: how the action before it ended: what a hand-in
        is worth."""
        actions, record = self.asked_for(asked.reply), self._looked(asked, rollout.messages)
        record |= {"sample": rollout.sample}
        if len(actions) == 1 and actions[0].command == SUBMIT:
            self.note(**record, kind="lookahead", action=SUBMIT)
            rollout.over = True
        else:
            done = Done()
            try:
                self.answer(rollout.sandbox, actions, done, turn, asked.reply)
            finally:
                self.note(
                    **record,
                    **done.fields(actions, self._called(asked.reply, actions))
                    | {"kind": "lookahead"},
                )
            well = bool(done.commands) and not done.wrong and done.status == 0
            rollout.messages += exchange(asked.reply, actions, done.answers, cut=False)
            finished = done.commands and self.agent.done
            rollout.over = (
                bool(finished) and self.place.tool(rollout.sandbox, self.agent.done).status == 0
            )
        rollout.well.append(well)
        if rollout.over:
            rollout.work = self.domain.collect(self.task, rollout.sandbox)

    def _called(self, reply: Reply, actions: Sequence[Action]) -> list[dict[str, Any]]:
        return [c.model_dump(exclude={"schema_"}) for c in reply.tool_calls if actions[0].call]

    def raise_cap(self, reply: Reply) -> str:
        """After a reply that was cut off before it held what was to be done, let the next have
        twice the tokens, once in an attempt: what is said of that, '' where it is not so.

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

    def carry_out(self, actions: Sequence[Action], done: Done, turn: int, reply: Reply) -> None:
        """Do what a reply asks for, and fill in what is answered: in a copy while the sample
        observes, else in its sandbox, which is set back where the check of [restore] then finds
        that more fails."""
        runs = any(not a.wrong and not a.query and a.command != SUBMIT for a in actions)
        if self.observing:
            self.observe(actions, done, turn, reply, runs)
        elif runs and self.agent.restore:
            self.act_and_check(self.agent.restore.check, actions, done, turn, reply)
        else:
            self.answer(self.sandbox, actions, done, turn, reply)

    def observe(
        self, actions: Sequence[Action], done: Done, turn: int, reply: Reply, runs: bool
    ) -> None:
        """A turn whose commands are done in a copy. runs: there are any."""
        self.observing -= 1
        if [action.command for action in actions] == [ACT]:
            done.observed, self.observing = True, 0
            return self.answer(self.sandbox, [replace(actions[0], says=_ACTING)], done, turn, reply)
        copy = copied(self.sandbox, self.agent) if runs else None
        if runs and copy is None:
            self.observing = 0
            return self.answer(
                self.sandbox, [replace(a, wrong=_UNCOPIED) for a in actions], done, turn, reply
            )
        try:
            done.observed = copy is not None
            self.answer(self.sandbox if copy is None else copy, actions, done, turn, reply)
            if copy is not None:
                self.carry(copy, self.sandbox, len(done.commands))
        finally:
            if copy is not None:
                copy.close()
        done.answers[-1] += _OBSERVED % self.observing + ("" if self.observing else f"\n{_ACTING}")

    def act_and_check(
        self, check: str, actions: Sequence[Action], done: Done, turn: int, reply: Reply
    ) -> None:
        """Do what a reply asks for, and take it back where more fails by the check than did
        before."""
        if self.failing < 0:
            self.failing, _ = self.place.failures(self.sandbox, check)
        copy = copied(self.sandbox, self.agent)
        try:
            self.answer(self.sandbox, actions, done, turn, reply)
            failing, said = self.place.failures(self.sandbox, check)
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

    def carry(self, source: Sandbox, target: Sandbox, commands: int) -> None:
        """Keep the outputs of this step that the agent was told are kept, where the files of the
        source go."""
        for n in range(commands):
            file = f"{KEPT}/{_name(len(self.steps), n)}.txt"
            with contextlib.suppress(FileNotFoundError, BadInput, Fault):
                target.write(file, source.read(file))

    def answer(
        self, sandbox: Sandbox, actions: Sequence[Action], done: Done, turn: int, reply: Reply
    ) -> None:
        """Do what a reply asks for, one after the other, and fill in what is answered."""
        left, extended = turns_left(self.agent.limits.steps, self.agent.limits.extension, turn)
        for n, action in enumerate(actions):
            wrong = action.wrong or (ALONE if action.command == SUBMIT else "")
            if n and not wrong and time.monotonic() >= self.limits.ends:
                wrong = "it was not run: the time is over"
            if not wrong:
                output, text = self.act(sandbox, action, n, done)
                if output.status == 2 and self.agent.action.startswith("tool:"):
                    wrong = (text.strip() or "the reply could not be read") + cut_words(reply)
                else:
                    shown = {
                        **output.model_dump(include={"status", "seconds", "timed_out", "cut"}),
                        "text": text,
                    }
                    done.add(action.command, text, output)
                    told = {"output": shown, "step": turn}
                    done.answers.append(self.render("observation", **told, steps_left=left))
                    continue
            wrong += self.raise_cap(reply)
            done.wrong.append(wrong)
            done.answers.append(self.render("format", error=wrong, steps_left=left))
        done.answers[-1] += extended

    def recalled(self, action: Action, done: Done) -> tuple[Output, str]:
        """(what memory answers, its text as it is shown)."""
        if self.recall is None:
            return Output(text=_NO_MEMORY, status=1), _NO_MEMORY
        began = time.monotonic()
        found = self.recall(action.query, Call(**self.address, step=len(self.steps)).id)
        done.recalled.append(found)
        return Output(text=found.text, status=0, seconds=time.monotonic() - began), found.text

    def act(self, sandbox: Sandbox, action: Action, n: int, done: Done) -> tuple[Output, str]:
        """(what came of the nth action of a reply, its text as it is shown)."""
        if action.says:
            return Output(text=action.says, status=0), action.says
        if action.query:
            return self.recalled(action, done)
        return self.place.act(
            sandbox, action, _name(len(self.steps), n), observing=self.observing > 0
        )


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
    lines = steps_log(folder)
    work = Attempt(
        scaffold,
        task,
        domain,
        backend,
        ask,
        call,
        lines,
        on_step,
        offers,
        native=native,
        full=full,
        recall=recall,
    )
    agent = scaffold.agent
    tried: list[tuple[str, Ending, str]] = []
    ranks: list[float] = []
    ballots: list[str | None] = []
    with contextlib.closing(work):
        for number in range(agent.samples):
            sandbox, ending, limit = work.sample(number)
            try:
                asked = agent.samples > 1 and not work.idle
                if agent.vote:
                    ballots.append(work.place.ballot(sandbox) if asked else None)
                    best, settled = voted(ballots, agent.samples - number - 1)
                else:
                    settled = ending == "submitted" and bool(agent.done)
                    rank = work.place.rank(sandbox) if agent.choose and asked and not settled else 0
                    ranks.append(-math.inf if work.idle else rank)
                    best = number if settled else ranks.index(max(ranks))
                answer = domain.collect(task, sandbox)
                expect(isinstance(answer, str), domain, "collect", answer)
                tried.append((answer, ending, limit))
            finally:
                sandbox.close()
            if settled or limit in ("tokens", "usd", "seconds"):
                break
    answer, ending, limit = tried[best]
    return work.trace(model, ending, limit, answer, best)


def voted(ballots: Sequence[str | None], left: int) -> tuple[int, bool]:
    """(the first of the most samples that came to the same, the first of all where none has a say;
    whether the `left` that are still to be made cannot change it).

    Self-consistency (Wang et al., arXiv 2203.11171, section 2), without the samples that can decide
    nothing any more.
    """
    counts = Counter(ballot for ballot in ballots if ballot is not None)
    # the first of equals: a Counter keeps their order
    most = max(counts, key=counts.__getitem__, default=None)
    if most is None:
        return 0, not left
    rest = list(counts)
    rivals = [
        counts[ballot] + left + (rest.index(ballot) < rest.index(most))
        for ballot in rest
        if ballot != most
    ]
    return ballots.index(most), counts[most] >= max(rivals, default=left)


def replay(
    scaffold: Scaffold, task: Task, trace: Trace, domain: Domain, backend: SandboxBackend
) -> tuple[Sandbox, str]:
    """(a fresh sandbox in which the actions of the sample that was handed in are done again, how
    faithful that is).

    A sandbox is not kept for this: it would be lost with the process, and an experience of an
    earlier run has none.
    """
    place = Workplace(scaffold, task, domain)
    limits = LimitsLeft.of(scaffold.agent.limits)
    sandbox = prepared(domain, task, backend)
    again, other = 0, []
    try:
        path, prompt = trace.path(), redact(task.prompt)
        furnish(sandbox, scaffold, prompt, path[0].sample if path else trace.chosen)
        if scaffold.agent.action == "tools":
            try:
                # what is not in the sandbox is not done twice
                place.open_functions(sandbox, elsewhere=False)
            except BadInput as e:
                if e.code != "bad-mcp":
                    raise
                other.append(e.message)
        for step in path:
            if step.after is not None and scaffold.tools:
                tell_attempt(sandbox, prompt, step.sample)
            if step.kind in ("malformed", "ended") or step.action in ("", SUBMIT):
                continue
            if step.kind == "observe" or step.restored:
                continue  # nothing of it stood
            if scaffold.foreign and (theirs := _not_shell(step)):
                other.append(
                    f"step {step.step} called {theirs}, which only the agent's own program can do"
                )
                continue
            if limits.reached(Usage()):
                other.append(f"there was no time for step {step.step} and what followed")
                break
            status = _again(place, sandbox, step)
            again += 1
            # what a program of its own ran told no status
            if status != step.status and step.status is not None:
                other.append(
                    f"step {step.step} ended with status {status}, it had been {step.status}"
                )
    except BaseException:
        sandbox.close()
        raise
    summary = f"{again} actions were done again"
    return (
        sandbox,
        f"{summary}; {'; '.join(other)}" if other else f"{summary}, and all ended as they had",
    )


def _again(place: Workplace, sandbox: Sandbox, step: Step) -> int | None:
    """Do what a step did once more: its status."""
    if step.kind == "before":
        return place.tool(sandbox, step.action).status
    agent = place.agent
    actions = done_actions(agent.action, step, place.functions, recalls=agent.memory.recall > 0)
    if all(action.query for action in actions):
        return step.status  # what was asked of memory changed nothing
    done = Done()
    for n, action in enumerate(actions):
        if not action.wrong and not action.query and action.command != SUBMIT:
            output, text = place.act(sandbox, action, _name(step.step, n))
            done.add(action.command, text, output)
    return done.status


def _not_shell(step: Step) -> str:
    """The functions of a foreign agent that a step called and that are no shell's command; '' for
    none."""
    lines = step.action.split("\n")
    calls = step.foreign.get("tool_calls", ())
    return ", ".join(c["name"] for c in calls if f"{c['name']} {c['arguments']}" in lines)


def _name(step: int, n: int) -> str:
    """Of the file that keeps the output of the nth command of a step."""
    return f"{step}-{n}" if n else f"{step}"


def may_rise(cap: int, reply: Reply, tokens: int, usd: float) -> bool:
    """Whether a reply that was cut off did reach its cap, and what is left of tokens and usd has
    room for twice it."""
    return reply.tokens_out >= cap // 2 and tokens >= 4 * cap and usd >= 2 * reply.usd
