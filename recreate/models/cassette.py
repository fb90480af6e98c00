"""Every reply of a run on a cassette, and the run again from it: no key, no network, no server, no
weights.

    DIR/cassette.json      what it is: version, settings, who answered, what it cost, how long it
                           is, its digest
    DIR/replies.jsonl.gz   the replies; replies.jsonl while they are recorded

A reply has a place, the id of its call (`run/attempt/step`, derived) and the digest of the request:
messages, tools, parameters and model. A replay that asks anything else, or whose grader gives
another score, stops there (`Differs`); what a command prints of the clock, durations, lone
decimals, addresses, temporary names, a sandbox's user number and lines of `ls -l` may differ
(STEADY). Keys are masked before anything is written. The lines are sealed as a journal's are;
docs/cassettes.md says their kinds.
"""

from __future__ import annotations

import difflib
import gzip
import hashlib
import json
import os
import re
import shutil
import threading
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

from pydantic import Field, ValidationError

from recreate.api import paths
from recreate.api.errors import BadInput, Differs, Fault, Refused, Transient
from recreate.api.ports import Model, Overriding, Price, ToolCalling
from recreate.api.types import Call, Message, Record, Reply, digest
from recreate.models.chat import content
from recreate.storage import files
from recreate.storage.log import Fields, Log, fits, plain, seal, unseal
from recreate.storage.redact import redacted

VERSION = 1
"""Of the lines and of what a request's digest is made from: a cassette of another one is
refused."""

ABOUT = "cassette.json"
LINES = "replies.jsonl"
PACKED = LINES + ".gz"
_LOCK = ".lock"

_PLACE = {"role": str, "phase": str, "task": str, "repeat": int, "sample": int}
_TOLD = {"code": str, "message": str, "fix": str}
KINDS: Fields = {
    "text": {"id": str, "text": dict},
    "agent": {"name": str, "digest": str, "files": dict[str, str]},
    "reply": {
        "call": str,
        "request": str,
        **_PLACE,
        "model": str,
        "messages": [str],
        "params": str,
        "steady": str | None,
        "lost": [{**_TOLD, "unspent": bool}],
        "reply": Reply | None,
        "error": ({**_TOLD, "kind": str, "last": bool, "unspent": bool | None}, None),
    },
    "grade": {"attempt": str, "score": float, "passed": bool},
    "recallable": {"domain": str, "digest": str},
    "recalled": {"call": str, "query": str, "text": str, "found": [str]},
}
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
"""What wavers by itself in what a command prints: a request that is otherwise the same is the same
one, for a replay and for a run that goes on. A cassette of replies alone has a digest of each
request without it: one that was recorded before this changed is played strictly."""

DIFF_LINES, DIFF_CHARS = 14, 110
"""Of the diff that a person is shown."""

_NOT_ASKED = ("timeout",)
"""Parameters that are no part of the question."""


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


class About(Record):
    """What a cassette says of itself.

    settings  of the run, without what is free to change; budget: its caps; memory: experiences that
              the workspace's memory held of the domain when the recording began
    jobs      attempts that went on at once when it was begun: how far a trial goes before it is
              looked at
    models    by role: agent, and optimizer when it is another; cost: the run's `spend`, as --json
              prints it
    replies_only  requests stand on it by their digests alone, and `data` by its name: it holds no
                  task
    lines, bytes, packed, sha256: of the replies, as they are read, and of their packed file; None
    while it is recorded
    end       status and scaffold, as the run ended; {} where it did not
    """

    version: int = VERSION
    recreate: str = Field(default_factory=paths.version)
    run: str
    command: str
    domain: str
    sandbox: str
    settings: Mapping[str, Any]
    budget: tuple[str, ...] = ()
    jobs: int = Field(default=0, ge=0)
    models: Mapping[str, Answerer]
    memory: int = 0
    cost: Mapping[str, Any] = {}
    end: Mapping[str, Any] = {}
    replies_only: bool = Field(default=False, exclude_if=lambda value: not value)
    lines: int | None = None
    bytes: int = Field(default=0, ge=0)
    packed: int = 0
    sha256: str = ""


# -------------------------------------------------------------------------------------------------
# a request


@dataclass(frozen=True)
class Request:
    """What is asked of a model, masked. texts: messages and parameters by their digests; digest: of
    all of it."""

    model: str
    messages: tuple[str, ...]
    params: str
    seed: Any
    texts: Mapping[str, Mapping[str, Any]]

    @classmethod
    def of(cls, model: str, messages: Sequence[Message], params: Mapping[str, Any]) -> Request:
        asked = redacted({k: v for k, v in params.items() if k not in ("seed", *_NOT_ASKED)})
        said = [redacted(dict(message)) for message in messages]
        ids = [digest(message) for message in said]
        own = digest(asked)
        return cls(
            model,
            tuple(ids),
            own,
            params.get("seed"),
            {own: asked, **dict(zip(ids, said, strict=True))},
        )

    @property
    def digest(self) -> str:
        return digest([self.model, self.messages, self.params, self.seed])

    @property
    def steady(self) -> str:
        """The digest of all of it but what wavers by itself (STEADY)."""
        return _steady(self.model, [self.texts[id] for id in self.messages], self.params, self.seed)


def _steady(model: str, messages: Sequence[Mapping[str, Any]], params: str, seed: Any) -> str:
    said = [
        STEADY.sub("\ufffd", json.dumps(message, sort_keys=True, ensure_ascii=False))
        for message in messages
    ]
    return digest([model, said, params, seed])


# -------------------------------------------------------------------------------------------------
# recording


class Recording:
    """Writes a cassette while a run goes on. Thread-safe. A run that is resumed goes on with its
    own."""

    def __init__(self, folder: Path, about: About, *, begun: bool = False) -> None:
        """begun: the run has replies already, so that the cassette must have them too.

        Raises BadInput for a folder that holds another cassette or lacks these replies, Fault of
        the disk.
        """
        self.folder = folder
        self.about = about
        self._lock = threading.Lock()
        self._texts: set[str] = set()
        self._places: set[tuple[str, str]] = set()
        self._said: set[str] = set()
        self._end: Mapping[str, Any] = {}
        with files.disk(folder):
            folder.mkdir(parents=True, exist_ok=True)
            self._held = files.lock(folder / _LOCK, wait=False)
        if self._held is None:
            raise BadInput(
                f"another run records into {paths.short(folder)}",
                fix="give another --record",
                code="cassette-in-use",
            )
        try:
            self._begin(begun)
        except BaseException:
            os.close(self._held)
            raise

    def _begin(self, begun: bool) -> None:
        shown = paths.short(self.folder)
        if (self.folder / ABOUT).exists():
            old = read_about(self.folder)
            lines = list(_lines(self.folder, old))
            if any(line["kind"] == "reply" for line in lines) and (
                old.run != self.about.run or not begun
            ):
                raise BadInput(
                    f"{shown} holds a cassette already, of run {old.run}",
                    fix=f"give another --record, or rm -r {shown}",
                    code="cassette-exists",
                )
            if begun:
                self._end = old.end
                self.about = self.about.model_copy(update={"memory": old.memory, "jobs": old.jobs})
                for line in lines:
                    self._know(line)
                if old.lines is not None:
                    plain = self.folder / LINES
                    with (
                        files.disk(plain),
                        files.replacing(plain) as out,
                        gzip.open(self.folder / PACKED) as packed,
                    ):
                        shutil.copyfileobj(packed, out)
            else:
                (self.folder / LINES).unlink(missing_ok=True)
        elif begun:
            raise BadInput(
                f"this run was begun without --record {shown}: its first replies would be missing",
                fix="go on without --record, or begin anew with another --out",
                code="not-recorded",
            )
        elif (self.folder / LINES).exists():
            raise BadInput(
                f"{shown} holds a {LINES} that is no recording",
                fix="give another --record",
                code="cassette-exists",
            )
        self._write()
        self._log = Log(self.folder / LINES, fix=files.RESUME)

    def _know(self, line: Mapping[str, Any]) -> None:
        match line["kind"]:
            case "text":
                self._texts.add(line["id"])
            case "reply":
                if "reply" in line:
                    self._places.add((line["call"], line["request"]))
            case "agent" | "grade":
                self._said.add(line.get("digest") or line["attempt"])
            case "recallable":
                self._said.add(f"recallable {line['domain']}")
            case "recalled":
                self._said.add(f"recalled {line['call']} {line['query']}")

    def agent(self, name: str, agent: str, texts: Mapping[str, str]) -> None:
        """An agent that is built from or measured, by the digest of its files."""
        self._once(agent, {"kind": "agent", "name": name, "digest": agent, "files": dict(texts)})

    def grade(self, attempt: str, score: float, passed: bool, key: str = "") -> None:
        """key: of the attempt, where it is known by another id."""
        named = {"key": key} if key not in ("", attempt) else {}
        self._once(
            attempt,
            {"kind": "grade", "attempt": attempt, "score": score, "passed": passed, **named},
        )

    def may_recall(self, domain: str, digest: str) -> None:
        """What the agents of the run may recall of a domain, by its digest."""
        self._once(
            f"recallable {domain}", {"kind": "recallable", "domain": domain, "digest": digest}
        )

    def recalled(self, call: str, query: str, text: str, found: Sequence[str]) -> None:
        """What memory answered an agent after a call."""
        line = {
            "kind": "recalled",
            "call": call,
            "query": query,
            "text": text,
            "found": list(found),
        }
        self._once(f"recalled {call} {query}", line)

    def end(self, status: str, scaffold: str) -> None:
        """How the run ended, and with which agent."""
        self._end = {"status": status, "scaffold": scaffold}

    def keep(
        self,
        model: str,
        messages: Sequence[Message],
        params: Mapping[str, Any],
        call: Call,
        answer: Reply | BadInput | Fault,
        lost: Sequence[Transient] = (),
    ) -> None:
        """What came of a call: the reply, or the error that it ended with, after the tries that
        were `lost`.

        A reply that is there already is not written again.
        """
        request = Request.of(model, messages, params)
        line: dict[str, Any] = {"kind": "reply", "call": call.id, "request": request.digest}
        line |= call.model_dump(include={"role", "phase", "task", "repeat", "sample"})
        line |= {
            "model": model,
            "messages": request.messages,
            "params": request.params,
            "seed": request.seed,
        }
        line |= {"lost": [_told(e) for e in lost]} | (
            {"steady": request.steady} if self.about.replies_only else {}
        )
        if isinstance(answer, Reply):
            line["reply"] = answer.model_dump(mode="json", exclude_defaults=True)
        else:
            line["error"] = {**_told(answer), "last": bool(lost) and isinstance(answer, Fault)}
        place = call.id, request.digest
        with self._lock:
            if place in self._places:
                return
            kept = {request.params} if self.about.replies_only else request.texts.keys()
            new = {id: request.texts[id] for id in kept if id not in self._texts}
            self._log.append(
                *({"kind": "text", "id": id, "text": text} for id, text in new.items()), line
            )
            self._texts.update(new)
            if "reply" in line:
                self._places.add(place)

    def _once(self, id: str, line: Mapping[str, Any]) -> None:
        with self._lock:
            if id not in self._said:
                self._log.append(line)
                self._said.add(id)

    def close(
        self, cost: Mapping[str, Any] | None = None, models: Mapping[str, Answerer] | None = None
    ) -> None:
        """Pack it, and write what it is. Safe to call twice; one without a reply is taken away
        again. Raises Fault."""
        with self._lock:
            if self._held is None:
                return
            try:
                self._log.close()
                if self._places:
                    self._pack(
                        {
                            "cost": cost or {},
                            "end": self._end,
                            "models": models or self.about.models,
                        }
                    )
                else:
                    for name in (LINES, ABOUT):
                        (self.folder / name).unlink(missing_ok=True)
            finally:
                os.close(self._held)
                self._held = None
                (self.folder / _LOCK).unlink(missing_ok=True)
                if not self._places and not any(self.folder.iterdir()):
                    self.folder.rmdir()

    def _pack(self, change: dict[str, Any]) -> None:
        whole, lines = hashlib.sha256(), 0
        plain, packed = self.folder / LINES, self.folder / PACKED
        with (
            files.disk(packed, files.RESUME),
            files.replacing(packed, durable=True) as out,
            gzip.GzipFile("", "wb", fileobj=out, mtime=0) as zipped,
            plain.open("rb") as raw,
        ):
            for line in raw:
                whole.update(line)
                lines += 1
                zipped.write(line)
        sizes = {"lines": lines, "bytes": plain.stat().st_size, "packed": packed.stat().st_size}
        self.about = self.about.model_copy(update={**change, **sizes, "sha256": whole.hexdigest()})
        self._write()
        plain.unlink()

    def _write(self) -> None:
        files.write(
            self.folder / ABOUT,
            seal(self.about.model_dump(mode="json")),
            durable=True,
            fix=files.RESUME,
        )


def _told(e: BadInput | Fault) -> dict[str, Any]:
    told = {"kind": type(e).__name__, "code": e.code, "message": e.message, "fix": e.fix}
    unspent = {"unspent": e.unspent} if isinstance(e, Fault) else {}
    return {**redacted(told), **unspent}


# -------------------------------------------------------------------------------------------------
# replaying


def read_about(folder: Path) -> About:
    """What a cassette is. Raises BadInput: `no-cassette`, `damaged`, `other-version`,
    `newer-schema`."""
    try:
        raw = (folder / ABOUT).read_bytes()
    except OSError:
        raise BadInput(
            f"{paths.short(folder)} is no cassette",
            fix="recreate build ... --record DIR makes one",
            code="no-cassette",
        ) from None
    try:
        record = unseal(raw)
    except ValueError:
        record = None
    if record is None:
        raise _damaged(folder, f"{ABOUT} was cut or edited")
    if (version := record.get("version")) != VERSION:
        newer = isinstance(version, int) and version > VERSION
        raise BadInput(
            f"{paths.short(folder)} is a cassette of version {version}, by recreate"
            f" {record.get('recreate', '?')}; this recreate plays version {VERSION}",
            fix=paths.upgrade() if newer else "record it again: the same command with --record",
            code="other-version",
        )
    try:
        about = About.model_validate(record)
    except ValidationError as e:
        raise _damaged(
            folder, f"{ABOUT} lacks {'.'.join(map(str, e.errors()[0]['loc']))}"
        ) from None
    if "agent" not in about.models:
        raise _damaged(folder, f"{ABOUT} lacks models.agent")
    if not plain(record):
        raise _damaged(folder, f"{ABOUT} has a number that cannot be")
    return about


def _lines(folder: Path, about: About) -> Iterator[dict[str, Any]]:
    """The lines of a cassette; of one whose recording was killed those that are whole."""
    whole, number, size = hashlib.sha256(), 0, 0
    try:
        with (
            gzip.open(folder / PACKED) if about.lines is not None else (folder / LINES).open("rb")
        ) as file:
            # never more than it says: a few bytes unpack to any length
            while raw := file.readline(-1 if about.lines is None else about.bytes - size + 1):
                if about.lines is None and not raw.endswith(b"\n"):
                    return
                if about.lines is not None and size + len(raw) > about.bytes:
                    raise _damaged(folder, "it holds more than it says")
                number, size = number + 1, size + len(raw)
                whole.update(raw)
                line = unseal(raw)
                if line is None or not fits(line, KINDS) or not _answered(line):
                    raise _damaged(folder, f"line {number} was edited or is broken")
                yield line
    except FileNotFoundError:
        if about.lines is None and (folder / PACKED).exists():
            raise BadInput(
                f"the recording of {paths.short(folder)} ended while it was read",
                fix="the same command again",
                code="cassette-in-use",
            ) from None
        if about.lines is None:  # killed before the first line
            return
        raise _damaged(folder, f"{PACKED} is gone") from None
    except (EOFError, zlib.error, gzip.BadGzipFile, OSError) as e:
        raise _damaged(folder, f"{PACKED} was cut or edited after line {number} ({e})") from None
    if about.lines is not None and number < about.lines:
        raise _damaged(folder, f"it was cut: {number} of {about.lines} lines are there")
    if about.lines is not None and whole.hexdigest() != about.sha256:
        raise _damaged(folder, "its lines are not those that were recorded")


def _answered(line: Mapping[str, Any]) -> bool:
    """Whether a call has one end: a reply, or an error."""
    return line["kind"] != "reply" or (line.get("reply") is None) != (line.get("error") is None)


def _damaged(folder: Path, why: str) -> BadInput:
    return BadInput(
        f"the cassette {paths.short(folder)} cannot be trusted: {why}",
        fix=(
            "put it back from a copy (git checkout), or record it again: the same command with"
            " --record"
        ),
        code="damaged",
    )


class Cassette:
    """A recorded run, read whole. Raises BadInput for one that was cut, edited, or is of another
    version."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.about = read_about(folder)
        self.agents: dict[str, tuple[str, Mapping[str, str]]] = {}
        self._texts: dict[str, Mapping[str, Any]] = {}
        self._calls: dict[str, dict[str, dict[str, Any]]] = {}
        self._grades: dict[str, tuple[float, bool]] = {}
        self.renamed: dict[str, str] = {}
        """key -> id of the attempts that were known by another than their key"""
        self.recallable: dict[str, str] = {}
        """domain -> digest of what the agents could recall"""
        self.recalled: dict[tuple[str, str], tuple[str, tuple[str, ...]]] = {}
        """(call, words) -> what memory answered, and the ids that it told of"""
        self.wavered: set[str] = set()
        """Calls that asked the same but for what wavers by itself."""
        for line in _lines(folder, self.about):
            match line["kind"]:
                case "text":
                    self._texts[line["id"]] = line["text"]
                case "agent":
                    self.agents[line["digest"]] = line["name"], line["files"]
                case "reply":
                    self._calls.setdefault(line["call"], {})[line["request"]] = line
                case "grade":
                    self._grades[line["attempt"]] = line["score"], line["passed"]
                    if "key" in line:
                        self.renamed[line["key"]] = line["attempt"]
                case "recallable":
                    self.recallable[line["domain"]] = line["digest"]
                case "recalled":
                    self.recalled[line["call"], line["query"]] = line["text"], tuple(line["found"])

    def models(self) -> tuple[Replayed, Price, Replayed, Price, str]:
        """(agent's model, its price, optimizer's, its price, what to tell of it); one model where
        it was one."""
        who = self.about.models["agent"]
        other = self.about.models.get("optimizer", who)
        agent = Replayed(self, who)
        optimizer = agent if other is who else Replayed(self, other)
        told = (
            f"a replay of {paths.short(self.folder)}: {self.about.cost.get('calls', 'its')} calls,"
            " recorded with "
        )
        told += (
            " and ".join(dict.fromkeys(each.name for each in (who, other)))
            + "; nothing is asked or paid now"
        )
        return agent, who.price, optimizer, other.price, told

    def judge(self) -> tuple[Replayed, Price] | None:
        """The judge's model and its price, where it was one of its own."""
        who = self.about.models.get("judge")
        return None if who is None else (Replayed(self, who), who.price)

    def agent(self, name: str, agent: str, texts: Mapping[str, str]) -> None:
        """Raises BadInput (another-scaffold) for an agent that was not recorded."""
        if agent not in self.agents:
            there = ", ".join(f"{n} ({d})" for d, (n, _) in self.agents.items()) or "none"
            raise BadInput(
                f"the cassette {paths.short(self.folder)} is of another scaffold: {name} is"
                f" {agent}, and it was recorded with {there}",
                fix=(
                    "put the scaffold back as it was (git checkout, or RUN:DIGEST of a run that has"
                    " it); of a build, leave --scaffold out: the cassette has its own. Or record"
                    " again with --record"
                ),
                code="another-scaffold",
            )

    def grade(self, attempt: str, score: float, passed: bool, key: str = "") -> None:
        """Raises Differs when an attempt was graded otherwise than it was then."""
        then = self._grades.get(attempt)
        if then is not None and then != (score, passed):
            raise Differs(
                f"attempt {attempt} is graded {score:g} here, and was graded {then[0]:g} when it"
                " was recorded: its commands or its grader did something else",
                fix=(
                    f"recreate traces show {attempt} shows what it did; tests that waver cannot be"
                    " replayed"
                ),
                call=attempt,
                expected=then[0],
                got=score,
            )

    def end(self, status: str, scaffold: str) -> None:
        """Raises Differs when the run ends in another agent than it did then."""
        then = self.about.end.get("scaffold", scaffold)
        if then != scaffold:
            raise Differs(
                f"the replay ends with the agent {scaffold}, and the recording ended with {then}",
                fix="recreate diff shows what differs",
                call="end",
                expected=then,
                got=scaffold,
            )

    def find(self, call: Call, request: Request) -> dict[str, Any]:
        """The line of a call. Raises Differs, or Refused (no-tools) where it was asked without
        tools."""
        there = self._calls.get(call.id, {})
        line = there.get(request.digest)
        if line is not None:
            return line
        asked_now = request.steady if there else ""
        for known in reversed(there.values()):  # a run that was resumed went on with the last
            if self._steady(known) == asked_now:
                self.wavered.add(call.id)
                return known
        asked = [self._texts.get(known["params"], {}) for known in there.values()]
        if (
            "tools" in request.texts[request.params]
            and asked
            and not any("tools" in params for params in asked)
        ):
            # then the model had turned tools down by now, in another attempt
            raise Refused(f"{request.model} took no tools when it was recorded", code="no-tools")
        self._differs(call, request, list(there.values()))

    def _steady(self, line: Mapping[str, Any]) -> str:
        """Of a recorded request; '' where neither it nor its messages are on the cassette."""
        if told := line.get("steady"):
            return str(told)
        texts = [self._texts.get(id) for id in line["messages"]]
        if None in texts:
            return ""
        return _steady(
            line["model"],
            [text for text in texts if text is not None],
            line["params"],
            line.get("seed"),
        )

    def get(
        self, model: str, messages: Sequence[Message], params: Mapping[str, Any], call: Call
    ) -> Reply | None:
        """The reply of a call that came from a cache when it was recorded, as it does now; None of
        any other."""
        there = self._calls.get(call.id, {})
        if not any((line.get("reply") or {}).get("from_cache") for line in there.values()):
            return None
        reply = there.get(Request.of(model, messages, params).digest, {}).get("reply") or {}
        return Reply.model_validate(reply) if reply.get("from_cache") else None

    def _differs(
        self, call: Call, request: Request, there: Sequence[Mapping[str, Any]]
    ) -> NoReturn:
        shown = (
            f"at {call.id} (" + ", ".join(filter(None, (call.role, call.phase, call.task))) + ")"
        )
        if there:
            head = f"the replay asks something else than was asked {shown}:"
        else:
            head = f"the replay asks {shown}, and there the cassette has no call"
            head += "; the recording was not finished" if self.about.lines is None else ""
            there = self._alike(call)
            head += "; the nearest one that it has was asked:" if there else ""
        diff = ""
        if there:
            was = _shown(there[-1], self._texts)
            asked = {"model": request.model, "messages": request.messages, "params": request.params}
            both = {id: self._texts.get(id, _LEFT_OUT) for id in there[-1]["messages"]}
            diff = "\n" + _diff(was, _shown(asked, {**request.texts, **both}))
        notes = [
            (
                f"it was recorded by recreate {self.about.recreate}, this is {paths.version()}"
                if self.about.recreate != paths.version()
                else ""
            ),
            (
                f"memory held {self.about.memory} experiences then, and a replay begins with none"
                if self.about.memory
                else ""
            ),
        ]
        fix = (
            "put back what changed since (the scaffold, tasks, tools or this program), or record"
            " again: --record"
        )
        expected = there[-1]["request"] if there and there[-1]["call"] == call.id else None
        raise Differs(
            "; ".join(filter(None, [head, *notes])) + diff,
            fix=fix,
            call=call.id,
            expected=expected,
            got=request.digest,
        )

    def _alike(self, call: Call) -> list[Mapping[str, Any]]:
        """Requests of the same role, task, repeat and step, those of the same phase last."""
        wanted = [call.role, call.task, call.repeat, call.sample, str(call.step)]
        lines = [line for known in self._calls.values() for line in known.values()]
        places = ("role", "task", "repeat", "sample")
        found = [
            x for x in lines if [*(x[k] for k in places), x["call"].rpartition("/")[2]] == wanted
        ]
        return sorted(found, key=lambda line: line["phase"] == call.phase)


_LEFT_OUT = {"role": "a message", "content": "(left out: --record-replies-only)"}
"""What a message is shown as whose text is not on the cassette."""


def _shown(asked: Mapping[str, Any], texts: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """A request as lines to compare."""
    params = texts.get(asked["params"], {})
    lines = [
        f"model: {asked['model']}",
        *json.dumps(params, indent=1, sort_keys=True, default=str).split("\n"),
    ]
    for id in asked["messages"]:
        message: Any = texts.get(id, _LEFT_OUT)
        rest = {k: v for k, v in message.items() if k not in ("role", "content")}
        lines += [f"--- {message.get('role', '?')}", *str(content(message)).split("\n")]
        lines += json.dumps(rest, indent=1, sort_keys=True).split("\n") if rest else []
    return lines


def _diff(was: Sequence[str], now: Sequence[str]) -> str:
    lines = list(difflib.unified_diff(was, now, "recorded", "asked now", n=1, lineterm=""))
    if not lines:
        return "(the same words: another seed, so another attempt of the same task)"
    cut = [
        line if len(line) <= DIFF_CHARS else line[: DIFF_CHARS - 4] + " ..."
        for line in lines[:DIFF_LINES]
    ]
    return "\n".join(
        [*cut, f"[{len(lines) - DIFF_LINES} lines more]"] if len(lines) > DIFF_LINES else cut
    )


class Replayed:
    """A model that answers what its cassette says. Thread-safe; nothing is opened, started or
    sent."""

    def __init__(self, cassette: Cassette, who: Answerer) -> None:
        self.cassette = cassette
        self.name = who.name
        self.price: Price | None = who.price
        self.native_tools = bool(who.native_tools)
        self.override = who.override
        self._lock = threading.Lock()
        self._lost: dict[tuple[str, str], int] = {}

    def reply(self, messages: Sequence[Message], call: Call, **params: Any) -> Reply:
        """The recorded reply, after the tries that failed then. Raises Differs, or what was raised
        then."""
        request = Request.of(self.name, messages, params)
        line = self.cassette.find(call, request)
        place, lost, error = (call.id, request.digest), line["lost"], line.get("error")
        with self._lock:
            n = self._lost.get(place, 0)
            over = n == len(lost) or (error is not None and error["last"] and n + 1 == len(lost))
            self._lost[place] = 0 if over else n + 1
        if n < len(lost):
            told = lost[n]
            raise Transient(
                told["message"],
                fix=told["fix"],
                code=told["code"],
                after=0.0,
                unspent=told["unspent"],
            )
        if error is None:
            return Reply.model_validate(line["reply"])
        if error["kind"] in ("Fault", "Transient"):
            raise Fault(
                error["message"],
                fix=error["fix"],
                code=error["code"],
                unspent=bool(error.get("unspent")),
            )
        raise (Refused if error["kind"] == "Refused" else BadInput)(
            error["message"], fix=error["fix"], code=error["code"]
        )

    def close(self) -> None:
        pass
