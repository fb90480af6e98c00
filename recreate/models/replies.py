"""One store of replies: what a model was asked is the key, and what came of it a record.

A `ModelQuestion` is the key wherever a reply is looked up. A run's journal has the records
(runs/journal.py): what stands there is never paid for again. A replay reads them from the journal
of another run (runs/replay.py). `--cache` shares them among runs:

    FOLDER/ab/abcdef....json   one sealed record, under the question, and the numbers of repeat and
                               sample: a repeat is never served another's reply

Keys are masked before anything is written. A failed call is never shared.
"""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any, Protocol

from pydantic import ValidationError

from recreate.api import paths
from recreate.api.errors import BadInput, Fault, Transient
from recreate.api.ports import Model, Overriding, Price, TaskQuestion, ToolCalling
from recreate.api.shapes import JsonDict, JsonMap
from recreate.api.types import Call, Message, Record, Reply, digest
from recreate.storage import files
from recreate.storage.log import Fields, seal, unseal
from recreate.storage.redact import redacted

_ERROR = {"code": str, "message": str, "fix": str}
_ASKED = {"call": str, "role": str, "request": str, "steady": str, "params": str}
_LOST = [{**_ERROR, "unspent": bool}]
FIELDS: Fields = {
    "text": {"id": str, "text": dict},
    "reply": {**_ASKED, "reply": dict, "lost": (_LOST, None)},
    "refused": {
        **_ASKED,
        "error": {**_ERROR, "kind": str, "last": bool},
        "lost": (_LOST, None),
    },
}
"""What a record of these kinds must have."""

_BEGIN = r"(?:\b|(?<=\\n)|(?<=\\t))"  # of a word in JSON
STEADY = re.compile(
    r"(?=[-bcdlpstMTWFS/\\\d])"  # what any of them begins with: three times as fast
    r"(?:\\n *\d+\.\d+(?=\\+n|\\*\")"  # a decimal number alone on a line: a duration, as a rule
    r"|(?:total \d+\\+n)?[-bcdlps](?:[-r][-w][-xsStT]){3}[.+@]? +\d+ +\S+ +\S+ +\d+(?:, *\d+)?"
    r" +\w{3} +\d+ +[\d:]+ "
    rf"|{_BEGIN}(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun),? +(?:\d+ +)?"
    r"(?:Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec)\b *\d*(?: +\d\d?:\d\d:\d\d)?(?:"
    r" +[A-Z]{2,5})?(?: +\d{4})?\b"
    rf"|{_BEGIN}(?:\d{{4}}-\d\d-\d\d[T ])?\d\d?:\d\d:\d\d(?:[.,]\d+)?\b"
    rf"|{_BEGIN}(?:\d+m)?\d+(?:[.,]\d+)? ?(?:s|ms|us|µs|ns|secs?|seconds?)\b"
    rf"|{_BEGIN}0x[0-9a-f]{{6,}}\b"
    rf"|{_BEGIN}1[5-9]\d{{8}}(?:[.,]\d+)?\b"  # of `date +%s`
    # UIDS of sandboxes
    rf"|{_BEGIN}(?:60(?:5(?:7[89]|[89]\d)|[6-9]\d\d)|61(?:0\d\d|1(?:[0-7]\d|8[0-3])))\b"
    r"|/tmp/[\w.-]+)"
)
"""What wavers by itself in what a command prints: a question that is otherwise the same is the same
one, for a replay and for a run that goes on."""

_NOT_ASKED = ("seed", "timeout")
"""Parameters that have a place of their own in the key, or are no part of the question."""


@dataclass(frozen=True)
class ModelQuestion:
    """What one call asks a model. task: of an attempt what its task asks, in its own words.

    digest   of the model, the messages, the parameters and the seed: the key
    steady   of the same without what wavers by itself (`STEADY`)
    params_digest    the digest of the parameters
    """

    model: str
    messages: Sequence[Message]
    params: JsonMap
    call: Call
    task: TaskQuestion | None = None

    @cached_property
    def _params(self) -> JsonDict:
        return {k: v for k, v in self.params.items() if k not in _NOT_ASKED}

    @cached_property
    def params_digest(self) -> str:
        return _digest_of_params(json.dumps(self._params, default=str))

    @cached_property
    def _both_digests(self) -> list[tuple[str, str]]:
        return [_message_digests(message) for message in self.messages]

    @property
    def message_digests(self) -> list[str]:
        """The digests of the messages."""
        return [own for own, _ in self._both_digests]

    @cached_property
    def digest(self) -> str:
        return digest(
            [self.model, self.message_digests, self.params_digest, self.params.get("seed")]
        )

    @cached_property
    def steady(self) -> str:
        said = [steady for _, steady in self._both_digests]
        return digest([self.model, said, self.params_digest, self.params.get("seed")])

    def texts(self, *, messages: bool, known: Container[str] = ()) -> JsonDict:
        """Return the parameters, and the messages if they are wanted too, by their digests; without
        those that are known."""
        texts: JsonDict = {self.params_digest: self._params}
        if messages:
            texts |= zip(self.message_digests, map(dict, self.messages), strict=True)
        own = {name: value for name, value in texts.items() if name not in known}
        masked: JsonDict = redacted(own, acted_on=True)
        return masked

    def record(self, answer: Reply | BadInput | Fault, lost: Sequence[Transient] = ()) -> JsonDict:
        """Return the record of what came of the call, after the tries that were `lost`."""
        call = self.call.model_dump(
            include={"phase", "task", "repeat", "sample"}, exclude_defaults=True
        )
        record: JsonDict = {"kind": "reply", "call": self.call.id, "role": self.call.role}
        record |= {
            **call,
            "request": self.digest,
            "steady": self.steady,
            "params": self.params_digest,
        }
        if isinstance(answer, Reply):
            record["reply"] = answer.model_dump(mode="json", exclude_defaults=True)
        else:
            error = {**_tell_error(answer), "last": bool(lost) and isinstance(answer, Fault)}
            record |= {"kind": "refused", "error": {**error, "kind": type(answer).__name__}}
        return {**record, "lost": [_tell_error(e) for e in lost]} if lost else record


def _canonical(value: Any) -> str:
    return json.dumps(
        redacted(value, acted_on=True), sort_keys=True, ensure_ascii=False, default=str
    )


def _digests(text: str) -> tuple[str, str]:
    """Return the digest of a text, and of the same without what wavers."""
    own = digest(text)
    steady = STEADY.sub("\ufffd", text)
    return own, own if steady == text else digest(steady)


def steady_digest(value: Any) -> str:
    """Return the digest of what a model is shown, without what wavers by itself."""
    return _digests(_canonical(value))[1]


@lru_cache(maxsize=256)
def _digest_of_params(params: str) -> str:
    """Return the digest of parameters in JSON: a conversation has the same at every turn."""
    return digest(_canonical(json.loads(params)))


@lru_cache(maxsize=4096)
def _digests_of_words(words: str, rest: str) -> tuple[str, str]:
    """Return both digests of words with the rest of their message in JSON. What a model said is
    journalled, so that it never wavers."""
    message = {"content": words, **json.loads(rest)}
    text = _canonical(message)
    by_model = len(message) == 2 and message["role"] == "assistant"
    return (digest(text),) * 2 if by_model else _digests(text)


def _message_digests(message: Message) -> tuple[str, str]:
    """Return both digests of a message, which is asked about again at every turn."""
    words = message.get("content")
    rest = {k: v for k, v in message.items() if k != "content"}
    if not isinstance(words, str):
        return _digests(_canonical(dict(message)))
    return _digests_of_words(words, json.dumps(rest, default=str))


def _tell_error(e: BadInput | Fault) -> JsonDict:
    facts: JsonDict = redacted({"code": e.code, "message": e.message, "fix": e.fix})
    return {**facts, "unspent": e.unspent} if isinstance(e, Fault) else facts


def read_reply(record: JsonMap) -> Reply | None:
    """Return the reply of a `reply` record; None for what is none."""
    try:
        return Reply.model_validate(record["reply"])
    except (ValidationError, KeyError):
        return None


class Answerer(Record):
    """A model as a replay stands in for it: what decisions hang on."""

    name: str
    price: Price
    native_tools: bool | None = None
    override: Mapping[str, Any] = {}

    @classmethod
    def of(cls, model: Model, price: Price) -> Answerer:
        native = model.native_tools if isinstance(model, ToolCalling) else None
        override = dict(model.override) if isinstance(model, Overriding) else {}
        return cls(name=model.name, price=price, native_tools=native, override=override)


class Replies(Protocol):
    """Replies that were paid for by other calls: the runs' shared ones, or those with what a part
    of the kind `replies` puts around them when it is called with (settings, memory, replies).

    key: how it answers what was asked otherwise, a part of an attempt's key; '' for not at all.
    """

    key: str

    def get(self, question: ModelQuestion) -> Reply | None:
        """Return the reply to a question with `from_cache` set; None where it is to be asked."""
        ...

    def keep(self, question: ModelQuestion, reply: Reply) -> None:
        """Keep a reply. A disk that does not take it stops nobody."""
        ...


ON = "on"
"""What `--cache` without a folder means."""


def folder_of(setting: str) -> Path:
    """Return the folder that the setting `cache` names: below RECREATE_HOME for `on`."""
    return paths.home() / "replies" if setting == ON else Path(setting).expanduser()


class SharedReplies:
    """The replies of a folder. Any number of threads and processes may share it."""

    key = ""

    def __init__(self, folder: Path) -> None:
        """Raise BadInput for what is no folder."""
        if folder.exists() and not folder.is_dir():
            raise BadInput(
                f"{paths.short(folder)} is a file",
                fix="name a folder with --cache",
                code="bad-cache",
            )
        self.folder = folder

    def get(self, question: ModelQuestion) -> Reply | None:
        """See `Replies`. What is kept and damaged is asked again."""
        try:
            record = unseal(self._file(question).read_bytes())
        except (OSError, BadInput):
            return None
        reply = read_reply(record) if record is not None else None
        return None if reply is None else reply.model_copy(update={"from_cache": True})

    def keep(self, question: ModelQuestion, reply: Reply) -> None:
        """See `Replies`. A reply whose endpoint told what cannot be is not kept."""
        if not reply.doubtful:
            with contextlib.suppress(Fault, OSError):
                files.make_private(self.folder)
                files.write(self._file(question), seal(question.record(reply)))

    def _file(self, question: ModelQuestion) -> Path:
        call = question.call
        key = digest([question.digest, weights(question.model), call.repeat, call.sample], 32)
        return self.folder / key[:2] / f"{key}.json"

    def size(self) -> tuple[int, int]:
        """Return how many replies are kept, those of plug-ins among them, and their bytes."""
        kept = [file.read_bytes() for file in self._files()]
        return sum(each.count(b"\n") for each in kept), sum(map(len, kept))

    def clear(self) -> None:
        """Forget all replies, and nothing else that lies there."""
        for file in self._files():
            file.unlink(missing_ok=True)
            with contextlib.suppress(OSError):
                file.parent.rmdir()

    def _files(self) -> list[Path]:
        return [*self.folder.glob("??/*.json"), *self.folder.glob("near/*.jsonl")]


def weights(model: str) -> Any:
    """Return what tells a file or folder of weights, or a script, from what stood under the same
    name before."""
    name = model.partition(":")[2]
    place = Path(name).expanduser()
    with contextlib.suppress(OSError, ValueError):
        if name and place.exists():
            stats = [p.stat() for p in ([place] if place.is_file() else sorted(place.glob("*")))]
            return [[s.st_size, s.st_mtime_ns] for s in stats]
    return None
