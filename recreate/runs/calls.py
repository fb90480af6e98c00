"""Asking a model, once and accountably: budget before, retries around, journal after.

Every paid call of every role goes through `Calls.ask`. A reply that is in the journal is returned
from there; a transient fault is tried again with exponential backoff and full jitter, and then
raised as a Fault: never the agent's failure. A model that is busy is asked less at once (`pace`).
Each try is reserved for by itself, and one that may have been worked on stays charged. What earlier
runs paid for answers first (`--cache`).
"""

from __future__ import annotations

import json
import math
import random
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from copy import deepcopy
from typing import Any

from recreate.api.errors import (
    FILTERED,
    OUTAGE,
    REFUSED_REQUEST,
    BadInput,
    CheckFailed,
    Fault,
    Interrupted,
    Refused,
    Transient,
)
from recreate.api.ports import Model, Overriding, Price, TaskQuestion, Telling
from recreate.api.shapes import JsonDict, JsonMap
from recreate.api.theirs import expect
from recreate.api.types import Call, Message, Reply, ToolCall, Usage, canaries
from recreate.models.chat import content
from recreate.models.replies import ModelQuestion, Replies
from recreate.runs.budget import Ledger
from recreate.runs.journal import Journal
from recreate.runs.pace import BUSY, LONGEST, PATIENCE, Pace, Turn
from recreate.runs.replay import Replayed
from recreate.storage.log import encode
from recreate.storage.redact import redact

MAX_TOKENS = 1024
"""What a reply may cost when nobody says otherwise: a bound is needed to reserve."""

TOOLS_PREAMBLE = 1024
"""Tokens that an endpoint's own words around tools may take: hosted models add some hundreds."""

TOKEN_CHARS = 100
"""Characters of a reply for each token that it may have; what is longer is cut. Natural text has 2
to 6."""
BUSY_TRIES = 30
"""How often a call is refused by a model that is busy, beside its retries: one that is too large
for it ends too."""
BEYOND = 2**17
"""Tokens beyond what was reserved that a call may have been billed; more is taken for a fault."""
_OF_A_REQUEST = ("http-400", "http-413", "http-422")
_OF_A_PROMPT = ("context-length", FILTERED)
"""Codes of a Refused that may be of one request alone, and that certainly are."""
CALLS_IN_A_REPLY = 64
"""Tool calls that are read; those after are passed over."""
_WORD_KEYS = ("name", "enum", "const")
"""Keys of a JSON schema under which its words stand."""


class Calls:
    """The one door to models. Thread-safe."""

    def __init__(
        self,
        run: str,
        journal: Journal,
        ledger: Ledger,
        *,
        retries: int = 3,
        backoff: float = 1.0,
        cache: Replies | None = None,
        told: Callable[[str], None] = lambda text: None,
    ) -> None:
        """told: takes what a user is to hear of a model that is busy."""
        self.run = run
        self.journal = journal
        self.ledger = ledger
        self.retries = retries
        self.backoff = backoff
        self.cache = cache
        self.stop = threading.Event()
        self.told = told
        self._resumed = ledger.spent.calls > 0
        self._waits = set[str]()
        self._lock = threading.Lock()
        self._paces: dict[int, tuple[Model, Pace]] = {}
        self._overriding: dict[int, tuple[Model, bool]] = {}

    def ask(
        self,
        model: Model,
        price: Price,
        messages: Sequence[Message],
        call: Call,
        *,
        task: TaskQuestion | None = None,
        **params: Any,
    ) -> Reply:
        """Return one reply to `messages`, paid at most once.

        task: of an attempt what its task asks, for a cache that answers near questions too.

        Raises OutOfBudget before the call or one of its tries, Refused when the endpoint will not,
        Fault after `retries` transient failures, or when the messages hold what was made of a
        held-out task's attempts, Interrupted when the run is being stopped.
        """
        if self.stop.is_set():
            raise Interrupted("stopped")
        if call.role != "agent":  # an agent's are ours
            _refuse_none(messages)
        _refuse_held_out(messages, call)
        # what the model asks in any case, or the bound would be of another question: a recipe's
        # max_response
        params = self.params(model, params)
        question = ModelQuestion(model.name, messages, params, call, task)
        if (known := self.journal.reply(question)) is not None:
            return known
        lost: list[Transient] = []
        reply = self.cache.get(question) if self.cache is not None else None
        if reply is None:
            bound = tokens_bound(messages, params.get("tools") or ()), int(params["max_tokens"])
            try:
                reply = self._try(model, price, messages, call, params, bound, lost)
            except (BadInput, Fault) as e:
                with suppress(Fault):  # a full disk: what the model said of it matters more
                    self.journal.keep(question, e, lost)
                raise
            if self.cache is not None:
                self.cache.keep(question, reply)
        try:
            self.journal.keep(question, reply, lost)
        except BaseException:
            if not reply.from_cache:
                self.ledger.drop(call, unspent=False)
            raise
        told = {
            "doubtful": reply.doubtful,
            "from_cache": reply.from_cache,
            "near": reply.near is not None,
        }
        self.ledger.settle(call, Usage.of(reply, call), **told)
        return reply

    def params(self, model: Model, params: JsonMap) -> JsonDict:
        """Return all that `model` is asked for by a call with these parameters."""
        return {"max_tokens": MAX_TOKENS, **params, **self._override(model)}

    def _override(self, model: Model) -> JsonMap:
        """Asked of a model once: a Protocol's isinstance costs as much as sending the request."""
        known = self._overriding.get(id(model))
        if known is None or known[0] is not model:
            known = self._overriding[id(model)] = model, isinstance(model, Overriding)
        return model.override if known[1] else {}  # type: ignore[attr-defined]

    def _try(
        self,
        model: Model,
        price: Price,
        messages: Sequence[Message],
        call: Call,
        params: JsonDict,
        bound: tuple[int, int],
        lost: list[Transient],
    ) -> Reply:
        """Return the reply, as it is to be paid; what was reserved for it is still held. lost:
        takes the tries that failed."""
        pace = self._pace(model)
        tried = 0
        answered = pace.answered
        while True:
            most = bound[0], bound[1] + pace.beyond
            try:
                with pace.turn(self.stop) as turn:
                    reply = self._try_once(model, price, messages, call, params, most, turn)
            except Refused as refused:
                if (fault := self._fault_of_request(refused, call, pace)) is None:
                    raise
                raise fault from refused
            if reply is not None:
                self._lessen(price, call, bound, reply, lost)
                return reply.model_copy(update={"retries": len(lost)}) if lost else reply
            assert turn.refused is not None
            e = turn.refused
            busy = turn.refused.code in BUSY
            lost.append(e)
            # a model that is busy, and answered others since this one's last try, will answer it
            # too: that is no failed try; nor is it while others are under way. There are ever fewer
            # of these where all of them are refused
            tried += not busy or (turn.alone and pace.answered == answered)
            answered = pace.answered
            if tried > self.retries or len(lost) > self.retries + BUSY_TRIES:
                text = f"{e.message} (tried {len(lost)} times)"
                raise Fault(text, fix=e.fix, code=e.code, unspent=e.unspent) from e
            wait = min(random.uniform(0, self.backoff * 2 ** min(len(lost) - 1, 10)), LONGEST)
            if self.stop.wait(wait if e.after is None else self._wait_asked_for(model, e, e.after)):
                raise Interrupted("stopped")

    def _lessen(
        self,
        price: Price,
        call: Call,
        bound: tuple[int, int],
        reply: Reply,
        lost: Sequence[Transient],
    ) -> None:
        """Take off what was charged for lost tries beyond the tokens that their prompt has, as the
        reply tells them: it is the same prompt."""
        many = sum(not (e.unspent or e.spent) for e in lost)
        over = bound[0] - reply.tokens_in
        if many and over > 0 and not (reply.estimated or reply.doubtful):
            usd = price.most(*bound) - price.most(reply.tokens_in, bound[1])
            self.ledger.lessen(call, many * usd, many * over)

    def _wait_asked_for(self, model: Model, e: Transient, seconds: float) -> float:
        """Return the seconds that are waited at a model's wish; a long wait is told. Raises Fault
        for one that is too long."""
        if seconds <= LONGEST:
            return seconds
        until = time.strftime("%H:%M", time.localtime(time.time() + seconds))
        wish = f"{model.name} asks to wait {_duration(seconds)}, until {until}"
        if seconds > PATIENCE:
            fix = f"after {until} recreate resume RUN, or the same command with --out RUN, goes on"
            text = f"{wish}: {e.message}"
            raise Fault(text, fix=fix, code=OUTAGE, unspent=e.unspent) from e
        with self._lock:
            new = wish not in self._waits
            self._waits.add(wish)
        if new:
            self.told(wish)
        return seconds

    def _fault_of_request(self, e: Refused, call: Call, pace: Pace) -> Fault | None:
        """Return what to raise for the refusal of one request by a model that answers others; None
        where it stays as it is. An agent's prompt that cannot be is its own: that ends its
        attempt."""
        certain = e.code in _OF_A_PROMPT
        if call.role == "agent" if certain else e.code not in _OF_A_REQUEST:
            return None
        if not (self._resumed or pace.has_answered(self.stop)):
            return None
        code = e.code if certain else REFUSED_REQUEST
        return Fault(e.message, fix=e.fix, code=code, unspent=True)

    def _try_once(
        self,
        model: Model,
        price: Price,
        messages: Sequence[Message],
        call: Call,
        params: JsonDict,
        bound: tuple[int, int],
        turn: Turn,
    ) -> Reply | None:
        """Return the reply of one try, reserved for by itself; None where it failed in a way that
        may pass, which the turn is told."""
        self.ledger.reserve(call, sum(bound), price.most(*bound))
        try:
            own = type(model).__module__.startswith("recreate.")
            # a stranger may change them
            asked, more = (messages, params) if own else deepcopy(([*messages], params))
            reply = model.reply(asked, call, **more)
            if isinstance(reply, Reply):
                then = isinstance(model, Replayed)
                if not then:
                    self._note_beyond(model, reply, bound[0] + int(params["max_tokens"]))
                return _charge(masked(reply, params), price, *bound, then=then)
        except Transient as e:
            cost = None if e.spent is None else (price.most(*e.spent), sum(e.spent))
            self.ledger.drop(call, unspent=e.unspent, cost=cost)
            turn.refused = e
            return None
        except BaseException as e:
            # turned down with a reason, or by itself said to have cost nothing; of all else nobody
            # knows
            unspent = e.unspent if isinstance(e, Fault) else isinstance(e, BadInput | CheckFailed)
            self.ledger.drop(call, unspent=unspent)
            raise
        self.ledger.drop(call, unspent=False)
        expect(False, model, "reply", reply, f"answered with {type(reply).__name__}, not a Reply")
        raise AssertionError("unreachable")

    def _note_beyond(self, model: Model, reply: Reply, asked: int) -> None:
        """From the first reply on that was billed with more tokens than it could have, so many more
        are reserved for each call: thinking that max_tokens does not bound."""
        over = reply.tokens_in + reply.tokens_out - asked
        pace = self._pace(model)
        if not reply.doubtful and pace.beyond < over <= BEYOND:
            pace.beyond = over
            words = f"{over:,} tokens more than a reply was to have: as many more are reserved"
            self.told(f"{model.name} billed {words} for each call from now on")

    def _pace(self, model: Model) -> Pace:
        with self._lock:
            known = self._paces.get(id(model))
            if known is None or known[0] is not model:

                def tell(limit: str) -> None:
                    self.told(f"{model.name} is busy: {limit}, more again as it answers")

                known = self._paces[id(model)] = model, Pace(tell)
                if isinstance(model, Telling):
                    model.told = self.told
            return known[1]


def _refuse_none(messages: Any) -> None:
    """Raise BadInput for what a stranger's part asks that are no messages, before a model is handed
    them."""
    listed = isinstance(messages, list | tuple) and messages
    for at, message in enumerate(messages if listed else [messages]):
        fields = message if isinstance(message, Mapping) else {}
        texts = isinstance(fields.get("role"), str) and isinstance(fields.get("content", 0), str)
        if not listed or not (
            texts or (fields.get("role") == "assistant" and fields.get("tool_calls"))
        ):
            what = f"messages[{at}] is" if listed else "messages are"
            raise BadInput(
                f"a model was asked with what are no messages: {what} {message!r}"[:300],
                fix='ask([{"role": "user", "content": "..."}], step=0)',
                code="bad-messages",
            )


def _refuse_held_out(messages: Sequence[Message], call: Call) -> None:
    """Refuse a request that tells of an attempt at a held-out task: where one would, a door was
    left open."""
    found = {each for message in messages for each in canaries(str(message.get("content") or ""))}
    if found:
        raise Fault(
            f"a request of the {call.role} ({call.phase}) holds {min(found)}: what was made of an"
            " attempt at a held-out task was on its way to a model that must not see it; nothing"
            " was sent",
            fix=(
                "`recreate tasks list DOMAIN --json` names the task; a plug-in that hands it on"
                " must not, and if there is none, report it: it is recreate's own fault"
            ),
            code="held-out-leak",
        )


def _charge(
    reply: Reply, price: Price, bound_in: int, bound_out: int, *, then: bool = False
) -> Reply:
    """Return the reply with what is charged for it: never more than was reserved, and all of that
    where its counts cannot be. then: it is a replay's, and its counts are what was charged when it
    was recorded.

    What is longer than its tokens can be is cut: it would be sent again with every turn, at a bound
    that no cap covers.
    """
    counts = reply.tokens_in, reply.tokens_out
    change: JsonDict = {}
    if (reply.doubtful and not then) or min(counts) < 0:
        counts = bound_in, bound_out
    # a gateway's own words may be more than the prompt has bytes: what was reserved covers them
    covered = sum(counts) <= bound_in + bound_out
    covered = covered and price.most(*counts) <= price.most(bound_in, bound_out)
    kept = counts if covered else (min(counts[0], bound_in), min(counts[1], bound_out))
    if kept != (reply.tokens_in, reply.tokens_out):
        change = {"tokens_in": kept[0], "tokens_out": kept[1], "doubtful": True}
    cached = reply.tokens_cached
    written = reply.tokens_cache_written
    if min(cached, written) < 0 or cached + written > kept[0]:
        cached = written = 0
        change |= {"tokens_cached": 0, "tokens_cache_written": 0, "doubtful": True}
    # a model without a price may tell what it took itself
    usd = price.usd(*kept, cached, written) or reply.usd
    usd = usd if math.isfinite(usd) and usd >= 0 else 0.0
    if usd != reply.usd:
        change["usd"] = usd
    most = TOKEN_CHARS * (bound_out + 1)
    if len(reply.text) > most:
        change |= {"text": reply.text[:most], "finish": "length", "doubtful": True}
    if len(reply.reasoning) > most:
        change |= {"reasoning": reply.reasoning[:most], "doubtful": True}
    if reply.tool_calls and (cut := _calls_within(reply.tool_calls, most)) != reply.tool_calls:
        change |= {"tool_calls": cut, "doubtful": True}
    if not math.isfinite(reply.latency) or reply.latency < 0:
        change["latency"] = 0.0
    return reply.model_copy(update=change) if change else reply


def _duration(seconds: float) -> str:
    hours, minutes = divmod(math.ceil(seconds / 60), 60)
    return f"{hours} h {minutes} min" if hours else f"{minutes} min"


def _calls_within(calls: Sequence[ToolCall], most: int) -> tuple[ToolCall, ...]:
    kept = []
    for call in calls[:CALLS_IN_A_REPLY]:
        most -= len(call.name) + len(call.arguments) + len(call.id)
        if most < 0:
            break
        kept.append(call)
    return tuple(kept)


def masked(reply: Reply, params: JsonMap) -> Reply:
    """Return the reply without keys: what is acted on, and what the journal gives back after a
    kill.

    params: what was asked for. A password that is a word of it (a tool's name, a choice) does not
    spoil the answer.
    """
    texts = (reply.text, reply.reasoning, *(call.arguments for call in reply.tool_calls))
    if all(redact(text, acted_on=True) is text for text in texts):
        return reply
    spare = set(_asked_for([params.get("json_schema"), params.get("tools")]))
    calls = [
        call.model_copy(update={"arguments": redact(call.arguments, spare, acted_on=True)})
        for call in reply.tool_calls
    ]
    text = redact(reply.text, spare, acted_on=True)
    told = {"text": text, "reasoning": redact(reply.reasoning), "tool_calls": tuple(calls)}
    return reply.model_copy(update=told)


def _asked_for(schema: Any, *, word: bool = False) -> Iterator[str]:
    """Yield the words of a JSON schema: names of fields and tools, and what may be chosen. word: a
    text here is one; a property may be called `name` or `enum` itself, and then has a schema."""
    if isinstance(schema, Mapping):
        for key, value in schema.items():
            yield key
            yield from _asked_for(value, word=key in _WORD_KEYS)
    elif isinstance(schema, list | tuple):
        for each in schema:
            yield from _asked_for(each, word=word)
    elif word and isinstance(schema, str):
        yield schema


def tokens_bound(messages: Sequence[Message], tools: Sequence[JsonMap] = ()) -> int:
    """Return an upper bound on the prompt's tokens: no tokenizer makes more tokens than bytes, chat
    marks aside.

    A tool call counts as the JSON of its message, which says more than models are shown of it;
    tools count as JSON in its long spelling, spaces and escapes included, since some endpoints show
    just that.
    """
    texts = [content(message) for message in messages]
    texts += [
        encode(_rest(message))
        for message in messages
        if len(message) > 2 or "tool_calls" in message
    ]
    if tools:
        texts.append(json.dumps(tools))
    total = sum(map(len, texts))
    if not all(map(str.isascii, texts)):
        total += sum(
            len(t.encode("utf-8", "surrogatepass")) - len(t) for t in texts if not t.isascii()
        )
    return 16 + total + 16 * len(messages) + (TOOLS_PREAMBLE if tools else 0)


def _rest(message: Message) -> JsonDict:
    return {key: value for key, value in message.items() if key not in ("role", "content")}
