"""A run's journal: what happened, in order, and replies that need not be paid for again."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from recreate.agents.retrieval import MemoryAnswer
from recreate.api.errors import BadInput, Fault, Transient
from recreate.api.paths import short
from recreate.api.types import Change, Lesson, Reply, Revision, Saving, Usage, digest
from recreate.models import replies
from recreate.models.replies import Answerer, ModelQuestion, read_reply
from recreate.runs.terms import Terms
from recreate.storage.files import lock, make_private
from recreate.storage.log import Fields, Log, fits

_OF_ATTEMPT = {"attempt": str, "task": str, "split": str, "passed": bool}
_SCORED = {"repeat": int, "scaffold": str, "score": float, "ending": str}
_TEXT, _WHOLE, _NUMBER = str | None, int | None, float | None
FIELDS: Fields = {
    **replies.FIELDS,
    "start": {
        "run": str,
        "model": _TEXT,
        "domain": _TEXT,
        "sandbox": _TEXT,
        "command": _TEXT,
        "at": _TEXT,
        "recreate": _TEXT,
        "jobs": _WHOLE,
        "memory": _WHOLE,
        "models": dict[str, Answerer] | None,
    },
    "answerers": {"models": dict[str, Answerer]},
    "seed": {"name": str, "scaffold": str},
    "taken": {"of": int, "attempts": [{**_OF_ATTEMPT, **_SCORED, "run": str, "usage": Usage}]},
    "agent": {"name": str, "scaffold": str},
    "cell": {"model": str, "agent": str, "split": str, "domain": str},
    "kinds": {"domain": str, "of": [{"kind": str, "tasks": [str]}]},
    "baselines": {"of": [{"cell": [str], "baseline": [str]}]},
    "experience": {
        **_OF_ATTEMPT,
        **_SCORED,
        "model": _TEXT,
        "domain": _TEXT,
    },
    "brought": {
        **_OF_ATTEMPT,
        "repeat": _WHOLE,
        "scaffold": _TEXT,
        "score": _NUMBER,
        "ending": _TEXT,
    },
    "aside": {
        "attempt": str,
        "task": str,
        "repeat": int,
        "phase": str,
        "fault": str,
        "scaffold": _TEXT,
        "model": _TEXT,
        "domain": _TEXT,
    },
    "snapshot": {"round": int, "file": str},
    "recallable": {"domain": str, "file": str, "digest": str},
    "recalled": {"call": str, "query": str, "text": str, "found": [str]},
    "memory": {
        "round": int,
        "policy": str,
        "changes": [Change],
        "before": [Lesson],
        "after": [Lesson],
    },
    "proposal": {"attempt": str, "round": int, "edits": list},
    "created": {"attempt": str, "edits": list},
    "stopped": {"attempt": str, "why": str},
    "nothing": {"round": int, "reason": str},
    "selection": {"tasks": [str]},
    "batch": {"round": int, "tasks": [str], "repeats": [int], "why": [str], "told": str},
    "revision": {"revision": Revision},
    "trial": {"terms": Terms},
    "cheaper": {"agent": str, "saving": Saving},
    "candidate": {"offer": int, "revision": Revision},
    "review": {"offer": int, "decision": str, "reason": str, "edited": str, "revision": _TEXT},
    "tune": {"name": str, "recipe": str, "scaffold": str, "base": str, "seed": int},
    "update": {"step": int},
    "arm": {
        "arm": str,
        "model": str,
        "digest": str,
        "n": _WHOLE,
        "tokens": _WHOLE,
        "usd": _NUMBER,
        "mean": _NUMBER,
        "lo": _NUMBER,
        "hi": _NUMBER,
    },
    "test-opened": {"domain": str, "scaffold": str, "number": _WHOLE, "agents": _WHOLE},
    "end": {"status": str, "why": _TEXT, "scaffold": _TEXT},
    "note": {"text": str},
}
"""What records of these kinds are read for. One without it is passed over like one whose checksum
is wrong."""


class Journal:
    """A run's journal: replies that need not be paid for again, and the events of the run.

    ended    the attempts whose end is written down; renamed: key -> id of those that are known by
             another than that
    runs     the ids under which replies were paid for
    first    the first `start`, {} before there is one; damaged: lines that are passed over
    models   who answers, by role, as far as that was known last
    listed   whether replies have the digests of the messages that were asked; worded: whether their
             words are kept too, once each, so that a replay can show what differs

    Kinds of record: `start` (a session began), `answerers` (who answered, when it ended), `seed`,
    `taken` (the seed's scores that other runs had),
    `agent` (one is measured), `cell` (with a model, on a domain's split), `kinds` (of which kind
    each of its tasks is), `baselines` (what each cell is compared with), `selection` (which tasks
    are taken), `batch` (those of a round), `reply`, `refused` (what came of a call), `text` (of a
    message or of parameters), `recallable` (what agents may recall), `recalled` (what one was
    told), `experience` (an attempt ended and was graded), `aside` (it was excluded for an
    infrastructure failure), `proposal`, `created` (a seed), `stopped` (before either), `nothing`,
    `trial` (how a candidate is judged), `revision`, `candidate` (it waits for a person), `review`
    (what the person decided), `test-opened`, `arm` (a row of a table), `end`.

    Only replies of attempts that have not ended are kept findable, as byte offsets: memory does not
    grow with the number of finished attempts.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.log = Log(folder / "journal.jsonl")
        self.ended: set[str] = set()
        self.renamed: dict[str, str] = {}
        self.runs: set[str] = set()
        self.first: Mapping[str, Any] = {}
        self.models: Mapping[str, Any] = {}
        self.listed = self.worded = False
        self.damaged = 0
        self._replies: dict[str, dict[str, int]] = {}
        self._texts: set[str] = set()
        self._lock_file: int | None = None

    def open(self) -> None:
        """Take the run folder for this process and index what is there.

        Raises BadInput when another process holds the folder or it was written by a newer recreate.
        """
        make_private(self.folder, self.log.path.name)
        self._lock_file = lock(self.folder / "lock", wait=False)
        if self._lock_file is None:
            holder = (self.folder / "lock").read_text("ascii", "replace").strip()
            raise BadInput(
                f"{self.folder} is in use by process {holder or '?'}",
                fix="wait for it, stop it with Ctrl-C, or give another folder with --out",
                code="run-in-use",
            )
        os.ftruncate(self._lock_file, 0)
        os.pwrite(self._lock_file, str(os.getpid()).encode(), 0)
        for line in self.log.lines():
            if line.record is None or not fits(line.record, FIELDS):
                self.damaged += 1
            elif line.record["kind"] == "reply":
                self._remember(line.record["call"], line.offset)
            elif line.record["kind"] == "recalled":
                self._remember(
                    _recall_address(line.record["call"], line.record["query"]), line.offset
                )
            else:
                self._take(line.record)

    def _take(self, record: Mapping[str, Any]) -> None:
        match record["kind"]:
            case "start" | "answerers":
                if record["kind"] == "start":
                    self.first = self.first or record
                self.models = record.get("models") or {}
            case "text":
                self._texts.add(record["id"])
            case "proposal":
                self.forget(record["attempt"])
            case "experience" | "brought":
                key = record.get("key", record["attempt"])
                self.forget(key)
                self.ended.add(record["attempt"])
                if key != record["attempt"]:
                    self.renamed[key] = record["attempt"]

    def check_beginning(self, **parts: str) -> None:
        """Raise BadInput where the run was begun with other parts (a class found by name may make
        another object than a script did), or its journal is gone and its attempts are not."""
        for kind, name in parts.items():
            if (first := self.first.get(kind, name)) != name:
                raise BadInput(
                    f"{short(self.folder)} was begun with the {kind} {first}, and this is {name}",
                    fix=(
                        f"go on with the {kind} it was begun with, or give another folder with"
                        " --out"
                    ),
                    code="another-run",
                )
        attempts, ledger = self.folder / "attempts", self.folder / "ledger.jsonl"
        spent = ledger.is_file() and ledger.stat().st_size > 0
        if not self.first and (spent or (attempts.is_dir() and any(attempts.iterdir()))):
            raise BadInput(
                f"{short(self.log.path)} does not say how this run began, and there are attempts:"
                " it was emptied or lost",
                fix=(
                    "put it back from a copy, or give another folder with --out; what was"
                    f" attempted is still in memory, and in {short(attempts)}"
                ),
                code="damaged",
            )

    def forget(self, attempt: str) -> None:
        """Let go of the replies of an attempt or a proposal that is complete: nobody asks for them
        again."""
        self._replies.pop(attempt, None)

    def reply(self, question: ModelQuestion) -> Reply | None:
        """Return the journalled reply to a question, or None. One that differs in what wavers alone
        is the same: an attempt that goes on runs its commands again."""
        record = self._at(question.call.attempt, question.call.id)
        if record is None or (
            record["request"] != question.digest and record["steady"] != question.steady
        ):
            return None
        return read_reply(record)

    def keep(
        self,
        question: ModelQuestion,
        answer: Reply | BadInput | Fault,
        lost: Sequence[Transient] = (),
    ) -> None:
        """Journal what came of a call, after the tries that were `lost`. From here on a reply is
        paid for."""
        texts = question.texts(messages=self.worded, known=self._texts)
        if texts:
            self.log.append(*({"kind": "text", "id": id, "text": t} for id, t in texts.items()))
            self._texts.update(texts)
        record = question.record(answer, lost)
        if self.listed:
            record["messages"] = question.message_digests
        offset = self.log.append(record)
        if isinstance(answer, Reply):
            self._remember(question.call.id, offset)

    def recalled(self, call: str, query: str) -> MemoryAnswer | None:
        """Return what memory answered an agent that asked this after a call; None where it did
        not."""
        record = self._at(_attempt(call), _recall_address(call, query))
        if record is None or record["query"] != query:
            return None
        return MemoryAnswer(record["text"], tuple(record["found"]))

    def _at(self, attempt: str, address: str) -> Mapping[str, Any] | None:
        offset = self._replies.get(attempt, {}).get(address)
        line = self.log.at(offset) if offset is not None else None
        return line.record if line is not None else None

    def keep_recalled(self, call: str, query: str, told: MemoryAnswer) -> None:
        """Journal what memory answered: after a kill the agent is told the same."""
        record = {
            "kind": "recalled",
            "call": call,
            "query": query,
            "text": told.text,
            "found": list(told.found),
        }
        self._remember(_recall_address(call, query), self.log.append(record))

    def _remember(self, call: str, offset: int) -> None:
        self.runs.add(call.partition("/")[0])
        self._replies.setdefault(_attempt(call), {})[call] = offset

    def add(self, kind: str, **fields: Any) -> None:
        record = {"kind": kind, **fields}
        self.log.append(record)
        self._take(record)

    def records(self, *kinds: str) -> Iterator[dict[str, Any]]:
        """Yield the records of some kinds (all when none is named), in order."""
        return records(self.log, *kinds)

    @property
    def closed(self) -> bool:
        """Whether the run folder is free for others."""
        return self._lock_file is None

    def close(self) -> None:
        self.log.close()
        if self._lock_file is not None:
            os.close(self._lock_file)
            self._lock_file = None


def records(log: Log, *kinds: str) -> Iterator[dict[str, Any]]:
    """Yield the records of some kinds (all when none is named) of a journal that nobody need have
    opened, in order."""
    return log.read(FIELDS, kinds)


def passed_over(path: Path, damaged: int) -> str:
    """Return what is to be said of so many damaged lines; '' for none."""
    if not damaged:
        return ""
    lines = f"{damaged} damaged line{'s' * (damaged > 1)} of {short(path)}"
    return (
        f"{lines} passed over; recreate resume makes again what they told, from the other files or"
        " by asking again"
    )


def _recall_address(call: str, query: str) -> str:
    """Return the address of what memory answered."""
    return f"{call}/{digest(query)}"


def _attempt(call: str) -> str:
    return call.split("/", 2)[1] if "/" in call else ""
