"""A run folder that is followed: read once, and from then on only what was appended to it.

Replies are passed over: they are most of a journal, and each is a step of some attempt, which is
read where it is shown. Nothing here takes a lock, so the run goes on; nothing is written.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from recreate.agents.scaffold import Scaffold
from recreate.api.errors import RecreateError
from recreate.api.shapes import JsonDict, JsonMap
from recreate.api.types import Usage
from recreate.runs.attempts import Score
from recreate.runs.budget import LINES, Spend
from recreate.runs.journal import FIELDS, passed_over
from recreate.runs.reader import Run
from recreate.runs.settings import load_run
from recreate.storage.log import KIND, Log, fits
from recreate.viewer.facts import RunFacts

_COUNTED = ("calls", "tokens_in", "tokens_out", "usd")
_UNSHOWN = {
    "memory": ("before",),
    "proposal": ("edits", "others", "recorded"),
    "created": ("edits", "recorded"),
    "stopped": ("recorded",),
}
"""What long records have that no page shows."""


class LiveRun(Run):
    """A `Run` whose records and spending are kept in memory; `refresh` takes in what was appended.

    at: the journal's byte offset up to which it was read; damaged: how many of its lines were
    passed over. fault: why it cannot be read on, None when it can. paid: attempt -> calls, tokens
    in and out, usd; begun: attempts in the order in which they were. agents: those of its lineage
    that were read, by digest.
    """

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.lock = threading.RLock()
        self.fault: RecreateError | None = None
        self.agents: dict[str, Scaffold] = {}
        self.made: dict[str, tuple[Any, Any]] = {}
        self._facts: tuple[tuple[int, int], RunFacts] | None = None
        self._ledger = Log(folder / "ledger.jsonl")
        self._forget()

    def _forget(self) -> None:
        self.at = self._paid_at = self.damaged = 0
        self._kept: list[JsonDict] = []
        self._spend = Spend()
        self._ends = b"", b""
        self._used: dict[tuple[str, str], list[float]] = {}
        self.paid: dict[str, list[float]] = {}
        self.begun: dict[str, None] = {}

    def refresh(self) -> None:
        """Take in what is new; a file that was replaced or cut is read anew. Raises BadInput
        (newer-schema), Fault."""
        with self.lock:
            try:
                sizes = [_size(log.path) for log in (self._journal, self._ledger)]
                ends = _end(self._journal.path, self.at), _end(self._ledger.path, self._paid_at)
                if ends != self._ends:
                    self.settings = load_run(self.folder)
                    self.made.clear()
                    self._forget()
                for line in self._journal.lines(self.at, _no_reply) if sizes[0] > self.at else ():
                    self.at = line.offset + line.length
                    if line.record is not None and fits(line.record, FIELDS):
                        self._take(line.record)
                    elif line.record != {}:  # a reply, which nobody read
                        self.damaged += 1
                for line in self._ledger.lines(self._paid_at) if sizes[1] > self._paid_at else ():
                    self._paid_at = line.offset + line.length
                    if line.record is not None:
                        self._pay(line.record)
                self._ends = (
                    _end(self._journal.path, self.at),
                    _end(self._ledger.path, self._paid_at),
                )
                self.fault = None
            except RecreateError as e:
                self.fault = e
                raise

    def _take(self, record: JsonDict) -> None:
        for name in _UNSHOWN.get(record["kind"], ()):
            record.pop(name, None)
        record.pop("schema", None)
        # of a lesson only what it is now: each round has all of its evidence again
        if record["kind"] == "memory":
            newer = {lesson["id"] for lesson in record["after"]}
            for n, kept in enumerate(self._kept):
                if kept["kind"] == "memory" and any(
                    lesson["id"] in newer for lesson in kept["after"]
                ):
                    after = [lesson for lesson in kept["after"] if lesson["id"] not in newer]
                    self._kept[n] = {**kept, "after": after}
        self._kept.append(record)

    def _pay(self, line: JsonMap) -> None:
        if not fits(line, LINES) or line["kind"] not in LINES:
            return
        self._spend.take_all((line,))
        if line["kind"] == "attempt":
            self.begun[line["attempt"]] = None
        if line["kind"] == "settle":
            paid = [float(line["usage"].get(name) or 0) for name in _COUNTED]
            whose = line["role"], str(line.get("phase", ""))
            of = _attempt(line["call"])
            for sums in (
                self._used.setdefault(whose, [0.0] * 4),
                self.paid.setdefault(of, [0.0] * 4),
            ):
                for n, value in enumerate(paid):
                    sums[n] += value

    def records(self, *kinds: str) -> Iterator[JsonDict]:
        """Of what was read; replies are not among it."""
        with self.lock:
            kept = self._kept[:]
        return (r for r in kept if not kinds or r["kind"] in kinds)

    def spend(self) -> Spend:
        """What the ledger had at the last refresh."""
        return self._spend

    def passed_over(self) -> str:
        """Of what was read up to here."""
        return passed_over(self._journal.path, self.damaged)

    @property
    def usage(self) -> dict[tuple[str, str], Usage]:
        """(role, phase) -> what was paid."""
        with self.lock:
            return {
                whose: Usage(calls=int(calls), tokens_in=int(read), tokens_out=int(wrote), usd=usd)
                for whose, (calls, read, wrote, usd) in self._used.items()
            }

    @property
    def kind(self) -> str:
        """build | bench | tune | arms (a table of arms) | run."""
        if (self.folder / "seed").is_dir():
            return "build"
        if (self.folder / "arms").is_dir():
            return "arms"
        kinds = {record["kind"] for record in self.records("tune", "agent")}
        return "tune" if "tune" in kinds else "bench" if "agent" in kinds else "run"

    def facts(self, where: Path) -> RunFacts:
        """Return the facts as they stand now, the same object until something was taken in."""
        if self._facts is None or self._facts[0] != self.stamp:
            self._facts = self.stamp, RunFacts(self, where=where)
        return self._facts[1]

    def read_score(self, row: JsonMap) -> Score:
        """Return an attempt as journal and ledger have it: no attempt's folder is read."""
        place = row["attempt"], row["task"], row["repeat"]
        if "fault" in row:
            return Score(*place, None, ending="error", fault=row["fault"])
        calls, read, wrote, usd = self.paid.get(row["attempt"], [0.0] * 4)
        usage = Usage(calls=int(calls), tokens_in=int(read), tokens_out=int(wrote), usd=usd)
        passed = bool(row["passed"])
        ending = str(row["ending"])
        return Score(*place, row["score"], passed=passed, ending=ending, usage=usage)

    @property
    def stamp(self) -> tuple[int, int]:
        """What changes whenever something was taken in."""
        return self.at, self._paid_at


def _attempt(call: str) -> str:
    """The attempt of a call RUN/ATTEMPT/STEP."""
    return call.partition("/")[2].partition("/")[0]


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0


def _end(path: Path, at: int) -> bytes:
    """The last bytes before an offset, a line's checksum among them: others, when it is another
    file by now."""
    try:
        with path.open("rb") as file:
            file.seek(max(0, at - 16))
            return file.read(min(at, 16))
    except OSError:
        return b""


def _no_reply(line: bytes) -> bool:
    """Whether a line is neither a reply nor a text of its question."""
    return not line.startswith((KIND + b'reply"', KIND + b'text"'))
