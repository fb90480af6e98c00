"""The calls of one foreign attempt: each under its limits, at its address in the journal, and a
step of the trace."""

from __future__ import annotations

import json
import threading
import time
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from recreate.agents.action import read_actions
from recreate.agents.attempt import facts_of
from recreate.agents.progress import AttemptProgress, end_of_refusal, tokens, turn_tokens
from recreate.agents.trajectory import cut_middle
from recreate.api.errors import BadInput, Fault, Interrupted
from recreate.api.shapes import JsonDict, JsonMap
from recreate.api.types import Call, Ending, Message, Output, Reply, Usage
from recreate.plugins.foreign.dialects import Asked, arguments_of
from recreate.plugins.foreign.gateway import Denied
from recreate.storage.redact import redact

_LEFT = "\n[... {} characters left out here ...]\n"
_COMMANDS = ("command", "cmd", "bash", "script")
"""Arguments of a tool that hold a shell's command."""


@dataclass
class Conversation:
    """The calls of one foreign attempt: each under its limits, at its address, and a step of the
    trace."""

    work: AttemptProgress
    halt: Callable[[], None] = lambda: None
    stop: threading.Event | None = None
    turns: int = 0
    over: str = ""
    """The limit that was reached; later requests are turned away."""
    failed: BaseException | None = None
    """What is ours, and ends more than this attempt."""
    refused: tuple[Ending, str] | None = None
    """How the attempt ends where its agent does, since the model refused its last request; None
    where it did not."""
    why: str = ""
    """What the model said then."""
    pending: JsonDict | None = None
    prompt: str = ""
    """The task's words, and the lessons that are offered with them."""
    offered: JsonDict = field(default_factory=dict)
    threads: list[list[int]] = field(default_factory=list)
    said: set[str] = field(default_factory=set)
    answered_at: float = 0.0

    def __post_init__(self) -> None:
        text, self.offered = self.work.offer_at_start()
        self.prompt = self.work.prompt + text

    def answer(self, asked: Asked) -> tuple[Reply, str]:
        """For the gateway: the reply, and what its id is made of. Raises Denied."""
        reply = self.turn(asked.messages, asked.params, asked.left_out)
        return reply, f"{self.work.call.attempt}-{self.turns - 1}"

    def turn(self, messages: Sequence[Message], params: JsonMap, left_out: set[str]) -> Reply:
        """One call and its step. Raises Denied at a limit, and when the run itself is to stop
        (`failed`)."""
        self._allow()
        work = self.work
        sent = [_masked(message) for message in messages]
        self._fits(sent)
        seen, came = self._news(sent)
        self.flush(seen if came else "", sent)
        step = len(work.steps)
        call = Call(**work.address, step=step)
        asked = self._params(params, call)
        try:
            reply = work.ask(sent, call, **asked)
        # the agent's own code stands between this and the run, which raises it (`failed`)
        except BaseException as e:
            end = end_of_refusal(e, self.turns) if isinstance(e, BadInput | Fault) else None
            if end is not None:
                self.refused = end
                self.why = str(e)
                code = "context_length_exceeded" if end[1] == "context" else f"refused_{end[1]}"
                raise Denied(self.why, 400, code) from None
            self.failed = e
            self.end("stopped")
            raise Denied("the run was stopped", 503, "stopped") from None
        self.refused = None
        self.turns += 1
        self.answered_at = time.monotonic()
        usage = Usage.of(reply, call)
        work.usage = work.usage + usage
        self.threads.append(_marks(sent))
        seen = cut_middle(seen, work.agent.limits.observation_chars, _LEFT)
        record: JsonDict = {"observation": seen, "reply": reply.text, "usage": usage}
        record["sent"] = work.requests.add(step, sent, work.full(asked), seen)
        record |= facts_of(reply)
        record |= {"action": action_of(reply), **turn_tokens(reply)}
        foreign: JsonDict = {}
        if reply.tool_calls:
            foreign["tool_calls"] = [c.model_dump(exclude={"schema_"}) for c in reply.tool_calls]
        if fresh := sorted(left_out - self.said):
            self.said |= left_out
            foreign["left_out"] = fresh
        self.pending = record | ({"foreign": foreign} if foreign else {}) | self.offered
        self.offered = {}
        return reply

    def _allow(self) -> None:
        limits = self.work.agent.limits
        if self.stop is not None and self.stop.is_set() and self.failed is None:
            self.failed = Interrupted("stopped")
            self.end("stopped")
        if not self.over:
            reached = (
                "steps" if self.turns >= limits.steps else self.work.limits.reached(self.work.usage)
            )
            if reached:
                self.end(reached)
        if self.over == "stopped":
            raise Denied("the run was stopped", 503, "stopped")
        if self.over:
            most = getattr(limits, self.over, "")
            raise Denied(f"the attempt is over: its limit of {self.over} ({most}) is reached", 429)

    def _fits(self, messages: Sequence[Message]) -> None:
        """A prompt that alone is more than the attempt may use ends the attempt: under the cap it
        could end the run."""
        work = self.work
        size = sum(tokens(json.dumps(message)) for message in messages)
        if work.usage.tokens_in + work.usage.tokens_out + size > work.limits.tokens:
            self.end("tokens")
            raise Denied(
                f"the prompt is about {size} tokens, more than are left to the attempt", 429
            )

    def end(self, why: str) -> None:
        """No more calls: the agent is to stop."""
        self.over = self.over or why
        self.halt()

    def _params(self, params: JsonMap, call: Call) -> JsonDict:
        """What is asked of the model: as the agent asks, within what agent.toml says."""
        model = self.work.agent.model
        asked = {"seed": zlib.crc32(f"{call.attempt}/{call.step}".encode()) >> 1, **params}
        asked |= {k: v for k in ("temperature", "top_p") if (v := getattr(model, k)) is not None}
        asked |= {"stop": list(model.stop)} if model.stop else {}
        most = self.work.agent.reply_tokens
        return asked | {"max_tokens": min(asked.get("max_tokens", most), most)}

    def _news(self, messages: Sequence[Message]) -> tuple[str, bool]:
        """(what the agent tells its model that it did not tell before, whether it follows on the
        last reply)."""
        marks = _marks(messages)
        known = max((len(t) for t in self.threads if marks[: len(t)] == t), default=0)
        follows = bool(self.threads) and known == len(self.threads[-1])
        # it rewrote its history: what is the same at its beginning is no news
        if not known and self.threads:
            last = self.threads[-1]
            known = next(
                (n for n, (a, b) in enumerate(zip(marks, last, strict=False)) if a != b),
                min(len(marks), len(last)),
            )
        new = [m for m in messages[known:] if m["role"] != "assistant"]
        told = [m for m in new if m["role"] != "system"] or new
        return "\n".join(m["content"] for m in told), follows

    def ran(self, command: str, output: Output) -> None:
        """A command that the agent ran where we see it: what its last reply led to."""
        text = cut_middle(
            output.text, self.work.agent.limits.observation_chars, _LEFT, dropped=output.cut
        )
        done: JsonDict = {
            "action": command,
            "output": text,
            "status": output.status,
            "seconds": output.seconds,
        }
        record = self.pending
        if record is None:
            self.work.note(**done)
        elif "output" not in record:
            record |= done
        else:
            for key in ("action", "output"):
                record[key] += "\n" + done[key]
            record["status"] = record["status"] or output.status
            record["seconds"] += output.seconds

    def flush(self, output: str = "", messages: Sequence[Message] = ()) -> None:
        """Put the last turn into the trace, with what came of it."""
        record = self.pending
        self.pending = None
        if record is None:
            return
        foreign = dict(record.get("foreign", {}))
        if "output" not in record:
            record["output"] = cut_middle(output, self.work.agent.limits.observation_chars, _LEFT)
            record["seconds"] = time.monotonic() - self.answered_at if output else 0.0
        if calls := foreign.get("tool_calls"):
            texts = {m.get("tool_call_id"): m["content"] for m in messages if m["role"] == "tool"}
            told = [(c["id"], texts.get(c["id"])) for c in calls]
            one = len(calls) == 1
            most = self.work.agent.limits.observation_chars
            foreign["answered"] = [
                {"id": id} if one else {"id": id, "text": cut_middle(text, most, _LEFT)}
                for id, text in told
                if text is not None
            ]
            record["foreign"] = foreign
        self.work.note(**record)


def action_of(reply: Reply) -> str:
    """What a reply asks its agent to do, as a shell's commands where it is that: of its tool calls,
    else of the one block of bash in its text; '' for a reply that is an answer."""
    if reply.tool_calls:
        return "\n".join(
            command_of(c.name, arguments_of(c)) or f"{c.name} {c.arguments}"
            for c in reply.tool_calls
        )
    (action,) = read_actions("bash", reply)
    return action.command


def command_of(name: str, arguments: JsonMap) -> str:
    """The shell's command that a tool call holds; '' for another tool."""
    return next((v for k in _COMMANDS if isinstance(v := arguments.get(k), str)), "")


def _masked(message: Message) -> Message:
    text = redact(message["content"], acted_on=True)
    return message if text is message["content"] else Message(**{**message, "content": text})


def _marks(messages: Sequence[Message]) -> list[int]:
    return [
        zlib.crc32(json.dumps(message, sort_keys=True).encode("utf-8", "surrogatepass"))
        for message in messages
    ]
