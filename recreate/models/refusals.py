"""What an endpoint means that refuses a request: which field it does not take, how much room a
reply has, or that the prompt is too long.

No two providers use the same words, and gateways lose the fields of an error; so an endpoint's
words are read, wherever they stand.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, NamedTuple, TypeGuard

from recreate.api.shapes import JsonDict, JsonMap
from recreate.api.types import Message

REFUSES = (400, 413, 422)
"""Statuses of an endpoint that read a request and does not serve it as it is."""
LEAST_REPLY = 256
"""Where a prompt leaves less room than this for a reply, it is too long."""
OPTIONAL = (
    "temperature",
    "top_p",
    "max_tokens",
    "seed",
    "stop",
    "logprobs",
    "top_logprobs",
    "return_token_ids",
)
"""Fields of a request without which it is still the same question. In place of max_tokens, which
bounds the reply, max_completion_tokens is sent."""

_WORDS = 10_000
"""Characters of an endpoint's own words that are looked at."""
_MUCH = r"(?:exceed|longer than|larger than|too (?:long|large))"
_TOO_LONG = re.compile(
    r"context[ _](?:length|size|window|limit|the overflow)|maximum context|token limit"
    r"|(?:prompt|input|request|message|content|string)[^\n]{0,120}?too (?:long|large)"
    rf"|(?:prompt|input|message|request|token)[^\n]{{0,120}}?{_MUCH}"
    r"[^\n]{0,80}?(?:token|limit|length|context|max)"
    r"|max(?:imum|_)?[ _]?(?:prompt|input|model|seq|sequence)[ _]?len|expected maxlength"
    r"|entity too large|too many (?:input )?tokens|reduce (?:the length|your prompt|the number of)"
    r"|range of input length|must (?:have less than \d+ tokens|be <= \d+)|only supports up to \d+"
)
_MOST_OUT = re.compile(
    r"supports? at most (\d+) (?:completion|output)|max_tokens: \d+ > (\d+)"
    r"|max_tokens[^\n]{0,60}?(?:less than or equal to|cannot be greater than) (?:\w+=)*`?(\d+)"
    r"|range of max_tokens (?:is|should be) \[\d+, ?(\d+)\]"
    r"|maximum tokens you requested exceeds the model limit of (\d+)"
    r"|maxoutputtokens value of \d+ but the supported range is from \d+ \(inclusive\) to (\d+)"
)
_WINDOW = re.compile(
    r"maximum context length (?:is|of) (\d+)|context limit: \d+ \+ \d+ > (\d+)"
    r"|must be <= (\d+)|\(tpm\): limit (\d+)"
)
# "at least 900 input tokens" is where counting ended, and no count
_PROMPT = re.compile(
    r"(?<!at least )\b(\d+) (?:input tokens|`?inputs`? tokens|of text input\b"
    r"|(?:tokens )?(?:in|from) (?:the |your )(?:input )?(?:messages|prompt))"
    r"|context limit: (\d+) \+|resulted in (\d+) tokens|prompt contains (\d+) tokens"
)
_FLOOR = re.compile(r"at least (\d+) input tokens")
_TOTAL = re.compile(r"requested(?: a total of| about)? (\d+)(?: tokens|,)")
_OF_THE_REPLY = re.compile(r"output tokens|completion|max_(?:\w+_)?tokens|you requested")
_OF_MONEY = re.compile(r"credit|quota|billing|spend|balance|payment|insufficient funds|arrearage")
_NOT_TAKEN = re.compile(
    r"unsupported|not support|unknown|unrecogni|unexpected|\bextra[ _]|not permitted|not allowed"
    r"|not accept|forbidden|deprecated|cannot both|cannot be used|not available|not implemented"
    r"|cannot find field|invalid (?:parameter|field|argument|request)|no such"
)
_OF_RANGE = re.compile(r"between|(?:less|greater) than|at (?:most|least)|\brange\b|[<>]=?|must be")
_EMPTY = re.compile(r"non-?empty|non-?whitespace|(?:be|is|are) empty|empty (?:content|text|string)")
_OF_CONTENT = re.compile(
    r"content[ _](?:filter|policy|management|moderation)|moderation|flagged|prohibited_content"
    r"|safety (?:system|polic)|data_inspection_failed|inappropriate content|usage polic"
)


class Said(NamedTuple):
    """What an endpoint says of an error. text: all that may tell what it means, in lower case;
    fields: those of the request that it names apart from its words."""

    words: str
    text: str
    fields: frozenset[str] = frozenset()


def read_error(body: Any) -> Said:
    """Return what an error's body says: text, or JSON of any provider's shape."""
    if isinstance(body, list) and body:
        body = body[0]
    error = (body.get("error") or body) if isinstance(body, Mapping) else body
    if not isinstance(error, Mapping):
        words = str(error)[:_WORDS]
        return Said(words, words.lower())
    details = error.get("detail")
    found = error.get("message") or details or error.get("msg") or error
    words = str(found)[:_WORDS]
    behind = error.get("metadata")  # the words of whoever stands behind a gateway
    if isinstance(behind, Mapping) and isinstance(raw := behind.get("raw"), str):
        words = f"{words}: {raw}"[:_WORDS]
    named = [error.get("param")]
    for each in details if isinstance(details, list) else ():
        named += (each.get("loc") or ()) if isinstance(each, Mapping) else ()
    more = " ".join(str(error.get(name)) for name in ("code", "type", "status", "details"))
    return Said(words, f"{words} {more[:_WORDS]}".lower(), frozenset(filter(_is_text, named)))


def _is_text(value: Any) -> TypeGuard[str]:
    return isinstance(value, str)


def too_long(words: str) -> bool:
    """Return whether an endpoint's words say that the prompt does not fit."""
    return bool(_TOO_LONG.search(words.lower())) and not is_of_money(words)


def is_of_money(words: str) -> bool:
    """Return whether they say that the account pays for nothing any more."""
    return bool(_OF_MONEY.search(words.lower()))


def is_of_content(words: str) -> bool:
    """Return whether they say that a filter turned the prompt down for what stands in it."""
    return bool(_OF_CONTENT.search(words.lower()))


def reply_room(words: str, asked: int | None) -> int:
    """Return for how many tokens a reply is to be asked next, fewer than were `asked` for; 0 where
    asking for less does not help: exactly where the numbers are told, else half."""
    if not asked:
        return 0
    words = words.lower()
    room = _number(_MOST_OUT, words)
    if room is None and (window := _number(_WINDOW, words)) is not None:
        prompt = _number(_PROMPT, words)
        total = _number(_TOTAL, words)
        if total is not None and total > asked:
            prompt = total - asked
        if prompt is not None:
            room = window - prompt
        elif window - (_number(_FLOOR, words) or 0) < LEAST_REPLY:
            return 0
    if room is not None and room < asked:
        return room if room >= LEAST_REPLY else 0
    if room is None and not (too_long(words) and _OF_THE_REPLY.search(words)):
        return 0
    return max(asked // 2, LEAST_REPLY) if asked > LEAST_REPLY else 0


def _number(pattern: re.Pattern[str], words: str) -> int | None:
    found = pattern.search(words)
    return int(next(filter(None, found.groups()))) if found else None


class Concessions:
    """What an endpoint was found not to take, for all threads: left out from then on.

    dropped: fields of a request; no_empty: a text that is empty beside tool calls. told: called
    once with what is left out.
    """

    def __init__(self, told: Callable[[str], None], drop: Collection[str] = ()) -> None:
        self.told = told
        self.dropped = frozenset(drop)
        self.no_empty = False

    def fields(self, params: JsonMap) -> JsonDict:
        """Return the optional fields of a request for those of these parameters that are given."""
        given = {name: params[name] for name in OPTIONAL if params.get(name) is not None}
        body = {name: value for name, value in given.items() if name not in self.dropped}
        if "max_tokens" in given and "max_tokens" not in body:
            body["max_completion_tokens"] = given["max_tokens"]
        return body

    def messages(self, messages: Sequence[Message]) -> Sequence[Message]:
        """Return the messages as they are to be sent."""
        if not self.no_empty:
            return messages
        blank: Any = {"content": None}
        return [Message(**{**m, **blank}) if _is_blank(m) else m for m in messages]

    def learn(self, said: Said, sent: Collection[str], messages: Sequence[Message]) -> bool:
        """Return whether a request is to be sent again without what was refused. sent: its
        fields."""
        if too_long(said.text):
            return False
        optional = [name for name in OPTIONAL if name in sent]
        # another thread may have found it out meanwhile: what counts is what was sent
        if refused := _refused_fields(said, optional):
            if new := sorted(refused - self.dropped):
                self.dropped |= refused
                self.told(f"does not take {' and '.join(new)}, left out from now on")
            return True
        if _EMPTY.search(said.text) and any(map(_is_blank, messages)):
            self.no_empty = True
            return True
        return False


def _is_blank(message: Message) -> bool:
    said = message.get("content")
    return bool(message.get("tool_calls")) and said is not None and not said.strip()


def _refused_fields(said: Said, sent: Sequence[str]) -> frozenset[str]:
    """Return which of these fields an endpoint does not take: those that its error names, else the
    first one in its words, since others may be what it wants instead."""
    refused = bool(_NOT_TAKEN.search(said.text))
    if named := said.fields.intersection(sent):
        return named if refused or not _OF_RANGE.search(said.text) else frozenset()
    places = {
        found.start(): name for name in sent if (found := re.search(rf"\b{name}\b", said.text))
    }
    return frozenset({places[min(places)]} if refused and places else ())
