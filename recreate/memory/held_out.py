"""The workspace's registry of what must never be learned from: groups and tasks of validation and test.

memory/held_out.jsonl, a sealed line each: {"group", "task", "split", "domain"}. It only grows. A line that cannot
be read stops everything that asks, because passing over it could show a test task to an optimizer.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from recreate.api.errors import BadInput
from recreate.storage.files import fault, locked
from recreate.storage.log import Log


class Held(NamedTuple):
    """One entry: what a task or an experience says of itself."""

    group: str
    task: str
    split: str
    domain: str


class HeldOut:
    """The registry of one memory folder. Several processes may add to it at once."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "held_out.jsonl"
        self._log = Log(self.path, mask=False, durable=True, fix="")
        self._read: tuple[str, frozenset[str], frozenset[str]] = ("", frozenset(), frozenset())

    def add(self, entries: Iterable[Held]) -> None:
        """Register what is not yet; entries of the train split are ignored."""
        entries = [e for e in entries if e.split != "train"]
        if not entries or self._new(entries) == []:
            return
        with locked(self.path.parent):
            if new := self._new(entries):
                with self._log as log:
                    log.append(*(e._asdict() for e in new))

    def take(self, other: HeldOut) -> None:
        """Register all that another one holds. Raises BadInput when a line of either is damaged."""
        other.read()
        self.add([Held(*(str(record.get(name, "")) for name in Held._fields)) for record in other._log.read()])

    def _new(self, entries: Iterable[Held]) -> list[Held]:
        _, groups, tasks = self.read()
        unknown = {(e.group, e.task): e for e in entries if (e.group and e.group not in groups) or e.task not in tasks}
        return list(unknown.values())

    def read(self) -> tuple[str, frozenset[str], frozenset[str]]:
        """(a stamp that changes with the file, groups, task ids). Raises BadInput when a line is damaged."""
        try:
            stat = self.path.stat()
        except FileNotFoundError:
            return "", frozenset(), frozenset()
        except OSError as e:
            raise fault(self.path.parent, e) from e
        stamp = f"{stat.st_ino}.{stat.st_size}.{stat.st_mtime_ns}"
        if stamp == self._read[0]:
            return self._read
        groups, tasks = set(), set()
        for line in self._log.lines():
            if line.record is None:
                raise BadInput(
                    f"{self.path}: the line at byte {line.offset} is damaged, so what is held out is not known",
                    fix=f"delete that line from {self.path}; the next build writes it again",
                    code="damaged",
                )
            groups.add(str(line.record.get("group", "")))
            tasks.add(str(line.record.get("task", "")))
        self._read = (stamp, frozenset(groups - {""}), frozenset(tasks - {""}))
        return self._read
