"""A run's journal: what happened, in order, and replies that need not be paid for again."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from recreate.api.errors import BadInput
from recreate.storage.files import lock
from recreate.storage.log import Log


class Journal:
    """A run's journal: replies that need not be paid for again, and the events of the run.

    Kinds of record: `start` (a session began), `seed`, `reply` (call, check, reply), `experience` (an attempt ended and
    was graded), `aside` (it was excluded for an infrastructure failure), `proposal`, `nothing`, `revision`,
    `candidate` (it waits for a person), `review` (what the person decided), `test-opened`, `arm` (a row of a table),
    `end`.

    Only replies of attempts that have not ended are kept findable, as byte offsets: memory does not grow with
    the number of finished attempts.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.log = Log(folder / "journal.jsonl")
        self._replies: dict[str, dict[str, int]] = {}
        self._lock_file: int | None = None

    def open(self) -> None:
        """Take the run folder for this process and index what is there.

        Raises BadInput when another process holds the folder or it was written by a newer recreate.
        """
        self.folder.mkdir(parents=True, exist_ok=True)
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
            record = line.record or {}
            if record.get("kind") == "reply":
                self._remember(record["call"], line.offset)
            elif record.get("kind") in ("experience", "proposal"):
                self.forget(record["attempt"])

    def forget(self, attempt: str) -> None:
        """An attempt (or a proposal) is complete: its replies will not be asked for again."""
        self._replies.pop(attempt, None)

    def reply(self, call: str, check: str) -> dict[str, Any] | None:
        """The journalled reply to this very request, or None. `check` guards against a changed request."""
        offset = self._replies.get(call.split("/")[1], {}).get(call)
        line = self.log.at(offset) if offset is not None else None
        if line is None or line.record is None or line.record["check"] != check:
            return None
        found: dict[str, Any] = line.record["reply"]
        return found

    def keep(self, call: str, check: str, reply: Mapping[str, Any]) -> None:
        """Journal a reply. From here on it is paid for."""
        self._remember(call, self.log.append({"kind": "reply", "call": call, "check": check, "reply": reply}))

    def _remember(self, call: str, offset: int) -> None:
        self._replies.setdefault(call.split("/")[1], {})[call] = offset

    def add(self, kind: str, **fields: Any) -> None:
        self.log.append({"kind": kind, **fields})

    def records(self, *kinds: str) -> Iterator[dict[str, Any]]:
        """The records of some kinds (all when none is named), in order."""
        for record in self.log.read():
            if not kinds or record["kind"] in kinds:
                yield record

    def close(self) -> None:
        self.log.close()
        if self._lock_file is not None:
            os.close(self._lock_file)
            self._lock_file = None
