"""A run again from its replies: no key, no network, no server, no weights.

`--replay` takes a run folder, or a recording: what `--record` packs of a run.

    FOLDER/settings.toml       the run's settings, without what is free to change
    FOLDER/journal.jsonl.gz    of its journal what a replay needs, with a last line that tells a cut
    FOLDER/seed/               the agent that a build began with

Each call is looked up by its address and its question, a proposal by what the optimizer is given. A
replay that asks or gives anything else, or whose grader gives another score, stops there
(`Differs`). docs/cassettes.md says more.
"""

from __future__ import annotations

import difflib
import gzip
import hashlib
import json
import shutil
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, NoReturn

from recreate.agents.scaffold import Scaffold, load
from recreate.api import paths
from recreate.api.errors import BadInput, Differs, Fault, Refused, Transient
from recreate.api.ports import Price
from recreate.api.shapes import JsonDict, JsonMap
from recreate.api.types import Call, Edit, Message, Reply, Study, Usage, digest
from recreate.models.chat import content
from recreate.models.replies import Answerer, ModelQuestion
from recreate.runs.journal import FIELDS
from recreate.runs.recording import PACKED, SETTINGS, damaged_recording, read_raw_lines
from recreate.runs.settings import TRUSTED, Settings, flat
from recreate.storage import files
from recreate.storage.log import Fields, fits, plain, seal, unseal

DIFF_LINES = 14
DIFF_CHARS = 110
"""Of the diff that a person is shown."""

_PROPOSED = {
    "edits": ([Edit], None),
    "others": ([[Edit]], None),
    "recorded": (
        {
            "given": dict,
            "tries": [{"edits": [Edit], "tasks": [str], "phase": str, "repeat": int}],
            "spend": dict[str, Usage],
            "studies": [Study],
        },
        None,
    ),
}
KINDS: Fields = {
    **{
        kind: FIELDS[kind]
        for kind in (
            "start",
            "answerers",
            "seed",
            "agent",
            "text",
            "refused",
            "experience",
            "recallable",
            "recalled",
            "end",
        )
    },
    **{kind: {**FIELDS[kind], **_PROPOSED} for kind in ("proposal", "created", "stopped")},
    "reply": {**FIELDS["reply"], "reply": Reply, "messages": ([str], None)},
    "packed": {"sha256": str, "settings": str},
}
"""What a replay reads of a journal, and what it must have."""


# -------------------------------------------------------------------------------------------------
# recording


def claim(folder: Path, run: str, *, resumed: bool) -> Callable[[], None]:
    """Make the folder of a recording; returns what takes it away again while it is empty. Raises
    BadInput (cassette-exists) where something else lies there, Fault of the disk."""
    shown = paths.short(folder)
    if folder.is_dir() and any(folder.iterdir()):
        try:
            ours = resumed and Replay(folder).run == run
        except BadInput:
            ours = False
        if not ours:
            raise BadInput(
                f"{shown} is not empty: a recording is never written over",
                fix=f"give another --record, or rm -r {shown}",
                code="cassette-exists",
            )
    with files.disk(folder):
        files.make_private(folder)
    return partial(_drop_empty, folder)


def _drop_empty(folder: Path) -> None:
    with suppress(OSError):
        folder.rmdir()


def pack(run: Path, folder: Path, settings: str) -> None:
    """Write the recording of a run: what `Replay` reads of it, and these settings. One without a
    reply is none: its folder is taken away again. What the optimizer was answered is left out,
    where what it proposed is there. Raises Fault."""
    lines = [*_read_lines(run)]
    if not any(line["kind"] == "reply" for line in lines):
        _drop_empty(folder)
        return
    files.write(folder / SETTINGS, settings, durable=True, fix=files.RESUME)
    told = {"settings": digest(settings)}
    if (run / "seed").is_dir():
        with files.disk(folder, files.RESUME):
            shutil.copytree(run / "seed", folder / "seed", dirs_exist_ok=True)
    target = folder / PACKED
    whole = hashlib.sha256()
    with (
        files.disk(target, files.RESUME),
        files.replacing(target, durable=True) as out,
        gzip.GzipFile("", "wb", fileobj=out, mtime=0) as zipped,
    ):
        for line in _without_proposing(lines):
            raw = seal(line)
            whole.update(raw)
            zipped.write(raw)
        zipped.write(seal({"kind": "packed", "sha256": whole.hexdigest(), **told}))


def _without_proposing(lines: Sequence[JsonDict]) -> list[JsonDict]:
    """Return the lines without the optimizer's calls, and what was said in no other; all of a run
    whose proposals were begun without being recorded."""
    if any("made" in line and "recorded" not in line for line in lines):
        return [*lines]
    left = [line for line in lines if not _proposes(line)]
    asked = (line for line in left if line["kind"] in ("reply", "refused"))
    used = {id for line in asked for id in (line["params"], *line.get("messages", ()))}
    return [line for line in left if line["kind"] != "text" or line["id"] in used]


def _proposes(line: JsonMap) -> bool:
    """Whether it is what came of a call of the optimizer's for a proposal."""
    return (line.get("role"), line.get("phase")) == ("optimizer", "propose")


def _read_lines(folder: Path) -> Iterator[JsonDict]:
    """Yield what a replay reads of a run folder or a recording. Raises BadInput (no-cassette,
    damaged)."""
    packed = folder / PACKED
    whole = hashlib.sha256()
    end = None
    for number, raw in enumerate(read_raw_lines(folder), 1):
        if not raw.endswith(b"\n"):  # killed as it wrote
            break
        line = unseal(raw)
        if line is None or end is not None or not fits(line, KINDS) or not plain(line):
            raise damaged_recording(folder, f"line {number} was edited or is broken")
        if line["kind"] == "packed":
            end = line
        elif line["kind"] in KINDS:
            whole.update(raw)
            yield line
    if not packed.exists():
        return
    if end is None or end["sha256"] != whole.hexdigest():
        raise damaged_recording(folder, "its lines are not those that were recorded")
    settings = folder / SETTINGS
    if not settings.is_file() or end["settings"] != digest(settings.read_text("utf-8", "replace")):
        raise damaged_recording(folder, f"{SETTINGS} is not as it was recorded")


# -------------------------------------------------------------------------------------------------
# replaying


def check_recording(settings: Settings) -> None:
    """Raise BadInput (`usage`) for what cannot be recorded, or not so."""
    wrong = {
        f"{settings.record} is a file, and a recording a folder": (
            Path(settings.record).is_file(),
            "--record DIR",
        ),
        "--record-replies-only says how to record": (
            settings.record_replies_only and not settings.record,
            "give --record DIR too",
        ),
        "a recording holds replies, and not the memory that --from-experience learns from: it could"
        " not be replayed": (
            settings.record and settings.from_experience,
            "leave --record or --from-experience out",
        ),
    }
    for message, (holds, fix) in wrong.items():
        if holds:
            raise BadInput(message, fix=fix, code="usage")


class Replay:
    """A run or a recording, read whole. Raises BadInput for one that was cut or edited, or that is
    of another format.

    start       its first `start`; models: who answered, by role; end: how it ended, {} where it did
                not
    agents      digest -> name of those that were built from or measured
    renamed     key -> id of the attempts that were known by another than their key
    recallable  domain -> digest of what the agents could recall
    recalled    (call, words) -> what memory answered, and the ids that it told of
    proposals   digest of what the optimizer was given -> what was proposed
    wavered     calls that asked the same but for what wavers by itself
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.start: JsonDict = {}
        self.end: JsonDict = {}
        self.agents: dict[str, str] = {}
        self.renamed: dict[str, str] = {}
        self.recallable: dict[str, str] = {}
        self.recalled: dict[tuple[str, str], tuple[str, tuple[str, ...]]] = {}
        self.wavered: set[str] = set()
        self.proposals: dict[str, JsonDict] = {}
        self._asked = False
        self._texts: dict[str, JsonMap] = {}
        self._calls: dict[str, dict[str, JsonDict]] = {}
        self._grades: dict[str, tuple[float, bool]] = {}
        answerers: JsonDict = {}
        for line in _read_lines(folder):
            match line["kind"]:
                case "start":
                    self.start = self.start or line
                    answerers = line.get("models") or {}
                case "answerers":
                    answerers = line["models"]
                case "seed" | "agent":
                    self.agents[line["scaffold"]] = line["name"]
                case "text":
                    self._texts[line["id"]] = line["text"]
                case "proposal" | "created" | "stopped" if "recorded" in line:
                    self.proposals[digest(line["recorded"]["given"])] = line
                case "reply" | "refused":
                    self._asked |= _proposes(line)
                    # of one call and question the last counts
                    self._calls.setdefault(line["call"], {})[line["request"]] = line
                case "experience":
                    self._grades[line["attempt"]] = line["score"], line["passed"]
                    self.renamed[str(line.get("key", line["attempt"]))] = line["attempt"]
                case "recallable":
                    self.recallable[line["domain"]] = line["digest"]
                case "recalled":
                    self.recalled[line["call"], line["query"]] = line["text"], tuple(line["found"])
                case "end":
                    self.end = line
        # how near questions were answered, which is a part of the attempts' keys
        self.key = str(self.start.get("near", ""))
        self.models = {role: Answerer.model_validate(who) for role, who in answerers.items()}
        if "agent" not in self.models:
            raise damaged_recording(folder, "it does not say how the run began")

    @property
    def run(self) -> str:
        """The id of the run."""
        return str(self.start["run"])

    def check(self, command: str, domain: str, sandbox: str) -> None:
        """Raise BadInput where it is replayed with another command, domain or sandbox: attempts are
        known by their sandbox too, and in another one nothing would be found."""
        kinds = {"command": command, "domain": domain, "sandbox": sandbox}
        then = {kind: str(self.start.get(kind) or "") for kind in kinds}
        walls = f"--sandbox {then['sandbox']}; recreate doctor says what works here"
        fixes = {
            "command": "replay it with the command it is of",
            "domain": "leave --domain out: a replay has that of its recording",
            "sandbox": TRUSTED if then["sandbox"] == "none" else walls,
        }
        for kind, fix in fixes.items():
            if kinds[kind] != then[kind]:
                other = "run or bench"
                raise BadInput(
                    f"the recording {paths.short(self.folder)} was made with the {kind}"
                    f" {then[kind] or other}, and this is {kinds[kind] or other}",
                    fix=fix,
                    code="another-build",
                )

    @property
    def calls(self) -> int:
        """How many calls were answered, those for proposals among them."""
        spent = (line["recorded"]["spend"] for line in self.proposals.values() if not self._asked)
        asked = sum(each["optimizer"].get("calls", 0) for each in spent if "optimizer" in each)
        replies = (line for known in self._calls.values() for line in known.values())
        return int(asked) + sum("reply" in line for line in replies)

    def open_models(self) -> tuple[Replayed, Price, Replayed, Price, str]:
        """Return the agent's model, its price, the optimizer's, its price, and what to tell of it;
        one model where it was one."""
        who = self.models["agent"]
        other = self.models.get("optimizer", who)
        agent = Replayed(self, who)
        optimizer = agent if other is who else Replayed(self, other)
        names = " and ".join(dict.fromkeys(each.name for each in (who, other)))
        note = (
            f"a replay of {paths.short(self.folder)}: {self.calls} calls, recorded with {names};"
            " nothing is asked or paid now"
        )
        return agent, who.price, optimizer, other.price, note

    def open_judge(self) -> tuple[Replayed, Price] | None:
        """Return the judge's model and its price, where it was one of its own."""
        who = self.models.get("judge")
        return None if who is None else (Replayed(self, who), who.price)

    def load_seed(self) -> Scaffold | None:
        """Return the agent that a build began with; None where the recording has none."""
        if not (self.folder / "seed" / "agent.toml").is_file():
            return None
        seed = load(self.folder / "seed")
        return seed.model_copy(update={"name": self.agents.get(seed.digest, seed.name)})

    def check_agent(self, name: str, agent: str) -> None:
        """Raise BadInput (another-scaffold) for an agent, by digest, that was not recorded."""
        if agent not in self.agents:
            there = ", ".join(f"{n} ({d})" for d, n in self.agents.items()) or "none"
            raise BadInput(
                f"the recording {paths.short(self.folder)} is of another scaffold: {name} is"
                f" {agent}, and it was recorded with {there}",
                fix=(
                    "put the scaffold back as it was (git checkout, or RUN:DIGEST of a run that has"
                    " it); of a build, leave --scaffold out: the recording has its own. Or record"
                    " again with --record"
                ),
                code="another-scaffold",
            )

    def check_grade(self, attempt: str, score: float, passed: bool) -> None:
        """Raise Differs when an attempt was graded otherwise than it was then."""
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

    def check_end(self, scaffold: str) -> None:
        """Raise Differs when the run ends in another agent than it did then."""
        then = self.end.get("scaffold") or scaffold
        if then != scaffold:
            raise Differs(
                f"the replay ends with the agent {scaffold}, and the recording ended with {then}",
                fix="recreate diff shows what differs",
                call="end",
                expected=then,
                got=scaffold,
            )

    def get(self, question: ModelQuestion) -> Reply | None:
        """Return the reply of a call that came from a cache when it was recorded, as it does now;
        None of any other."""
        line = self._calls.get(question.call.id, {}).get(question.digest, {})
        reply = line.get("reply") or {}
        return Reply.model_validate(reply) if reply.get("from_cache") else None

    def keep(self, question: ModelQuestion, reply: Reply) -> None:
        """Keep nothing: a replay adds to no cache."""

    def find(self, question: ModelQuestion) -> JsonDict:
        """Return the record of a call. Raises Differs, or Refused (no-tools) where it was asked
        without tools."""
        there = self._calls.get(question.call.id, {})
        if (line := there.get(question.digest)) is not None:
            return line
        for known in reversed(there.values()):  # a run that was resumed went on with the last
            if known["steady"] == question.steady:
                self.wavered.add(question.call.id)
                return known
        asked = [self._texts.get(known["params"], {}) for known in there.values()]
        if "tools" in question.params and asked and not any("tools" in each for each in asked):
            # then the model had turned tools down by now, in another attempt
            raise Refused(f"{question.model} took no tools when it was recorded", code="no-tools")
        self._differs(question, list(there.values()))

    def find_proposal(self, call: str, given: JsonMap) -> JsonDict | None:
        """Return what was proposed for what the optimizer is given; None where it is to be asked,
        since its replies are here. Raises Differs."""
        known = self.proposals.get(digest(given))
        if known is not None or self._asked:
            return known
        rounds = [line["recorded"]["given"] for line in self.proposals.values()]
        alike = next((g for g in rounds if g.get("round") == given.get("round")), None)
        now, then = flat(dict(given)), flat(alike or {})
        parts = [n for n in sorted({*now, *then}) if now.get(n) != then.get(n)]
        words = [f"{n} was {then.get(n)!r} and is {now.get(n)!r}" for n in parts[:DIFF_LINES]]
        head = "the optimizer is given something else than when it proposed: " + "; ".join(words)
        if alike is None:
            head = "the recording has no proposal of this round" + self._tell_unfinished()
        raise self._difference(head, call, digest(alike) if alike else None, digest(given))

    def _tell_unfinished(self) -> str:
        unfinished = self.start.get("command") == "build" and self.end.get("status", "budget")
        return "; the run was not finished" if unfinished == "budget" else ""

    def _differs(self, question: ModelQuestion, there: Sequence[JsonMap]) -> NoReturn:
        call = question.call
        shown = (
            f"at {call.id} (" + ", ".join(filter(None, (call.role, call.phase, call.task))) + ")"
        )
        head = f"the replay asks something else than was asked {shown}"
        expected = there[-1]["request"] if there else None
        if not there:
            there = self._alike(call)
            head = f"the replay asks {shown}, and there the recording has no call"
            head += self._tell_unfinished()
            head += "; below is the nearest one that it has" if there else ""
        diff = f"\n{self._diff(there[-1], question)}" if there else ""
        raise self._difference(head, call.id, expected, question.digest, diff)

    def _difference(
        self, head: str, call: str, expected: str | None, got: str, diff: str = ""
    ) -> Differs:
        notes = [head]
        if (then := self.start.get("recreate")) != paths.version():
            notes.append(f"it was recorded by recreate {then}, this is {paths.version()}")
        if memory := self.start.get("memory"):
            notes.append(f"memory held {memory} experiences then, and a replay begins with none")
        return Differs(
            "; ".join(notes) + diff,
            fix=(
                "put back what changed since (the scaffold, tasks, tools or this program), or"
                " record again: --record"
            ),
            call=call,
            expected=expected,
            got=got,
        )

    def _alike(self, call: Call) -> list[JsonMap]:
        """Return the records of the same role, task, repeat and step, those of the same phase
        last."""
        wanted = (call.role, call.task, call.repeat, call.sample, str(call.step))

        def place(line: JsonMap) -> tuple[Any, ...]:
            numbers = line.get("repeat", 0), line.get("sample", 0)
            return line["role"], line.get("task", ""), *numbers, line["call"].rpartition("/")[2]

        lines = [line for known in self._calls.values() for line in known.values()]
        alike = [line for line in lines if place(line) == wanted]
        return sorted(alike, key=lambda line: line.get("phase", "train") == call.phase)

    def _diff(self, then: JsonMap, question: ModelQuestion) -> str:
        if "messages" not in then:
            return "(which words were sent then, it does not tell: it was made without --record)"
        # a message that is the same, and that is not here, is not shown either
        told = {**question.texts(messages=True), **dict.fromkeys(then["messages"], NOT_HERE)}
        texts = {**told, **self._texts}
        was = _spell(then["params"], then["messages"], texts)
        now = _spell(question.params_digest, question.message_digests, texts)
        lines = list(difflib.unified_diff(was, now, "recorded", "asked now", n=1, lineterm=""))
        if not lines:
            return "(the same words: another seed, so another attempt of the same task)"
        cut = [
            line if len(line) <= DIFF_CHARS else line[: DIFF_CHARS - 4] + " ..."
            for line in lines[:DIFF_LINES]
        ]
        more = len(lines) - DIFF_LINES
        return "\n".join([*cut, f"[{more} lines more]"] if more > 0 else cut)


NOT_HERE = {"role": "a message", "content": "(left out: --record-replies-only)"}
"""What a message is shown as whose words are not kept."""


def _spell(asked: str, said: Sequence[str], texts: Mapping[str, JsonMap]) -> list[str]:
    """Return a request as lines to compare."""
    params = texts.get(asked, {})
    lines = json.dumps(params, indent=1, sort_keys=True, default=str).split("\n")
    for id in said:
        message: Any = texts.get(id, NOT_HERE)
        rest = {k: v for k, v in message.items() if k not in ("role", "content")}
        lines += [f"--- {message.get('role', '?')}", *str(content(message)).split("\n")]
        lines += json.dumps(rest, indent=1, sort_keys=True).split("\n") if rest else []
    return lines


class Replayed:
    """A model that answers what was recorded. Thread-safe; nothing is opened, started or sent."""

    def __init__(self, replay: Replay, who: Answerer) -> None:
        self.replay = replay
        self.name = who.name
        self.price: Price | None = who.price
        self.native_tools = bool(who.native_tools)
        self.override = who.override
        self._lock = threading.Lock()
        self._lost: dict[tuple[str, str], int] = {}

    def reply(self, messages: Sequence[Message], call: Call, **params: Any) -> Reply:
        """Return the recorded reply, after the tries that failed then. Raises Differs, or what was
        raised then."""
        question = ModelQuestion(self.name, messages, params, call)
        line = self.replay.find(question)
        place = (call.id, question.digest)
        lost = line.get("lost", ())
        error = line.get("error")
        with self._lock:
            n = self._lost.get(place, 0)
            over = n == len(lost) or (error is not None and error["last"] and n + 1 == len(lost))
            self._lost[place] = 0 if over else n + 1
        if n < len(lost):
            told = {**lost[n]}
            raise Transient(told.pop("message"), after=0.0, **told)
        if error is None:
            return Reply.model_validate(line["reply"])
        raise _error_of(error)

    def close(self) -> None:
        pass


def _error_of(error: JsonMap) -> BadInput | Fault:
    """Return the error that a call ended with."""
    told = {"fix": error["fix"], "code": error["code"]}
    if error["kind"] in ("Fault", "Transient"):
        return Fault(error["message"], **told, unspent=bool(error.get("unspent")))
    kinds: Mapping[str, Callable[..., BadInput]] = {"Refused": Refused}
    return kinds.get(error["kind"], BadInput)(error["message"], **told)
