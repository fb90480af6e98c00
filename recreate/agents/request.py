"""What a model was sent, told by what it was sent before: each message is kept once, each step has
references.

    requests = Requests()
    sent = requests.add(step, messages, params, observation)     # before the step is made: its
    field `sent`
    requests.know(step)                                          # its texts need not be kept again

    had = Recorded(experience.trace.steps)
    had[3].messages, had[3].params                               # as they were sent before step 3

A request mostly goes on from the one before: the answer to that, and what came of it. Both are
texts of a step, so what is new is a few references; a system message and the schemas of tools stand
in the first request of an attempt. Messages and params are JSON: a tuple comes back as a list,
nothing else changes, the order of keys included.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from itertools import count
from operator import is_
from typing import Any, NamedTuple

from recreate.api.shapes import JsonDict, JsonMap
from recreate.api.types import Message, Sent, Step
from recreate.storage.log import encode

REF = "@"
"""The key of a reference, in place of a text: {"@": [STEP, FIELD, ...]}, the way to it in the
steps."""
SHORTEST = 40
"""Characters of a text for which a reference is shorter."""
TEXTS = ("observation", "reply", "output", "foreign")
"""The fields of a step that a reference may name."""
OPEN = 16
"""So many conversations of one attempt are gone on with; what goes on from an older one is kept as
a new one."""


class SentRequest(NamedTuple):
    """What a model was asked with: chat messages, and the parameters of the call (`tools`,
    `temperature`, ...)."""

    messages: list[Message]
    params: JsonDict


class _Chat(NamedTuple):
    step: int
    messages: Sequence[Message]
    params: JsonMap


class _Part(NamedTuple):
    base: int | None
    keep: int
    own: list[int]
    length: int


_NOTHING = _Part(None, 0, [], 0)


class Requests:
    """The requests of one attempt as they are sent, made into what its steps keep."""

    def __init__(self) -> None:
        self._open: list[_Chat] = []
        self._numbers: dict[bytes, int] = {}
        self._texts: dict[str, tuple[str | int, ...]] = {}

    def add(
        self,
        step: int,
        messages: Sequence[Message],
        params: JsonMap | None = None,
        observation: str = "",
    ) -> Sent:
        """Return how a request goes on from an earlier one. step, observation: of the step whose
        reply answers it.

        The messages are held until the next request: whoever changes one makes another of it.
        """
        params = params or {}
        self._know(observation, (step, "observation"))
        base = None
        keep = 0
        for each in reversed(self._open):
            same = _alike(each.messages, messages)
            if base is None or same > keep:
                base = each
                keep = same
            if keep == len(each.messages):
                break
        rest = tuple(self._part(message) for message in messages[keep:])
        others = [each for each in self._open if each is not base or keep < len(each.messages)]
        self._open = [*others[-OPEN + 1 :], _Chat(step, list(messages), dict(params))]
        before = base.params if base is not None else {}
        return Sent(
            base=base.step if base is not None else None,
            keep=keep,
            rest=rest,
            params={k: v for k, v in params.items() if k not in before or not _same(v, before[k])},
            dropped=tuple(k for k in before if k not in params),
        )

    def know(self, step: Step) -> None:
        """Take in a step that is over: later requests may repeat its texts."""
        for field in ("reply", "output"):
            self._know(getattr(step, field), (step.step, field))
        for n, call in enumerate(step.foreign.get("tool_calls", ())):
            self._know(call.get("arguments"), (step.step, "foreign", "tool_calls", n, "arguments"))
        for n, answer in enumerate(step.foreign.get("answered", ())):
            self._know(answer.get("text"), (step.step, "foreign", "answered", n, "text"))

    def _know(self, text: Any, at: tuple[str | int, ...]) -> None:
        if isinstance(text, str) and len(text) >= SHORTEST:
            self._texts.setdefault(text, at)

    def _part(self, message: Message) -> int | JsonDict:
        """Return the number of a message that was sent before, else the message with references for
        texts of steps."""
        key = hashlib.sha256(_json(message)).digest()
        if (number := self._numbers.get(key)) is not None:
            return number
        self._numbers[key] = len(self._numbers)
        if _has_ref(message):
            return {REF: encode(message)}
        made: JsonDict = self._short(message)
        return made

    def _short(self, value: Any) -> Any:
        if isinstance(value, str):
            at = self._texts.get(value) if len(value) >= SHORTEST else None
            return value if at is None else {REF: list(at)}
        if isinstance(value, Mapping):
            return {k: self._short(v) for k, v in value.items()}
        return [self._short(v) for v in value] if isinstance(value, list | tuple) else value


class Recorded:
    """The requests of an attempt, had back from its steps by the number of the step; `in` says
    whether one is there.

    Steps of an earlier version have none. Where a step is missing, or a reference leads nowhere, it
    and those after it have none: nothing is guessed.
    """

    def __init__(self, steps: Sequence[Step]) -> None:
        self.messages: list[Message] = []
        """Every message that was sent, once, in the order in which they were sent first."""
        self._parts: dict[int, _Part] = {}
        self._params: dict[int, JsonDict] = {}
        by_number = {step.step: step for step in steps}
        for n, step in enumerate(steps):
            if step.step != n:
                return
            if step.sent is not None:
                try:
                    self._take(n, step.sent, by_number)
                except (LookupError, TypeError, ValueError, AttributeError):
                    return

    def _take(self, step: int, sent: Sent, steps: Mapping[int, Step]) -> None:
        base = self._parts[sent.base] if sent.base is not None else _NOTHING
        parts = [p if isinstance(p, int) else _with_texts(p, steps) for p in sent.rest]
        new = [p for p in parts if not isinstance(p, int)]
        table = count(len(self.messages))
        numbers = [p if isinstance(p, int) else next(table) for p in parts]
        if not 0 <= sent.keep <= base.length or any(
            not 0 <= n < len(self.messages) + len(new) for n in numbers
        ):
            raise IndexError("no such message")
        before = self._params[sent.base] if sent.base is not None else {}
        self._params[step] = {
            **{k: v for k, v in before.items() if k not in sent.dropped},
            **sent.params,
        }
        self._parts[step] = _Part(sent.base, sent.keep, numbers, sent.keep + len(numbers))
        self.messages += new

    def __contains__(self, step: int) -> bool:
        return step in self._parts

    def __getitem__(self, step: int) -> SentRequest:
        return SentRequest([self.messages[n] for n in self.numbers(step)], dict(self._params[step]))

    def numbers(self, step: int) -> list[int]:
        """Return which of `messages` were sent before a step, in order. Raises KeyError."""
        pieces: list[list[int]] = []
        at: int | None = step
        most: int | None = None
        while at is not None and most != 0:
            base, keep, own, _ = self._parts[at]
            pieces.append(own if most is None else own[: max(0, most - keep)])
            most = keep if most is None else min(keep, most)
            at = base
        return [n for piece in reversed(pieces) for n in piece]

    def ranges(self, step: int) -> list[list[int]]:
        """Return the same as [first, end] of each run of neighbours: of a conversation that only
        grew there is one."""
        found: list[list[int]] = []
        for n in self.numbers(step):
            if found and found[-1][1] == n:
                found[-1][1] = n + 1
            else:
                found.append([n, n + 1])
        return found

    def new(self, step: int) -> list[Message]:
        """Return what was sent before a step that the request which it goes on from did not
        have."""
        return [self.messages[n] for n in self._parts[step].own]

    def last(self) -> Iterator[int]:
        """Yield the steps that end a conversation: no later request goes on from all that was sent
        before them."""
        parts = self._parts
        gone_on = {
            p.base for p in parts.values() if p.base is not None and p.keep == parts[p.base].length
        }
        return (step for step in self._parts if step not in gone_on)


def _alike(one: Sequence[Message], other: Sequence[Message]) -> int:
    """Return how many messages two requests have in common from the first on."""
    least = min(len(one), len(other))
    if all(map(is_, one, other)):
        return least
    return next((n for n in range(least) if not _same(one[n], other[n])), least)


def _same(a: Any, b: Any) -> bool:
    """Whether two values are the same JSON, byte for byte."""
    return a is b or (a == b and _json(a) == _json(b))


def _json(value: Any) -> bytes:
    return encode(value).encode("utf-8", "surrogatepass")


def _has_ref(value: Any) -> bool:
    """Whether something in it looks like a reference of ours, and is none."""
    if isinstance(value, Mapping):
        return REF in value or any(map(_has_ref, value.values()))
    return isinstance(value, list | tuple) and any(map(_has_ref, value))


def _with_texts(part: Any, steps: Mapping[int, Step]) -> Any:
    """Return a message with its texts in place of their references. Raises LookupError, TypeError,
    ValueError."""
    if isinstance(part, Mapping):
        if REF not in part:
            return {k: _with_texts(v, steps) for k, v in part.items()}
        if isinstance(part[REF], str):
            return json.loads(part[REF])
        number, field, *rest = part[REF]
        if field not in TEXTS:
            raise KeyError(field)
        found = getattr(steps[number], field)
        for key in rest:
            found = found[key]
        if not isinstance(found, str):
            raise TypeError("a reference leads to no text")
        return found
    return [_with_texts(v, steps) for v in part] if isinstance(part, list | tuple) else part
