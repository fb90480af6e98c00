"""Looks at what a running command uses where the kernel does not hold the limit itself."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Sequence
from pathlib import Path

from recreate.api.ports import Limits
from recreate.api.types import Output
from recreate.sandboxes import filesystem
from recreate.sandboxes.limits import Cgroup

_PAGE = os.sysconf("SC_PAGE_SIZE")


class Watch:
    """One command's use of disk, memory and processes.

    Counting a folder costs in proportion to its files, so it is done when the file system's free space fell by
    an eighth of the quota since the last count, else every other second, and for a twentieth of the time at most.
    """

    def __init__(self, limits: Limits, folders: Sequence[Path], cgroup: Cgroup | None) -> None:
        self.limits = limits
        self.folders = list(folders)
        self.cgroup = cgroup
        self.quota = limits.disk_mb * 1024 * 1024
        self._free = self._start = self._left()
        self._killed = cgroup.killed() if cgroup else 0
        self._next = time.monotonic() + 2.0

    def look(self, init: int | None) -> str:
        """The name of the limit that is exceeded now, or ''."""
        if not (self.cgroup and self.cgroup.memory and self.cgroup.pids):
            processes, memory = census(init)
            if not (self.cgroup and self.cgroup.pids) and processes > self.limits.processes:
                return "processes"
            most = self.limits.memory_mb * 1024 * 1024
            if not (self.cgroup and self.cgroup.memory) and memory > most and shared_out(init) > most:
                return "memory"
        left = self._left()
        now = time.monotonic()
        if self._free - left > self.quota // 8 or now >= self._next:
            used = filesystem.usage(self.folders, self.quota)
            if used <= self.quota and self._start - left > self.quota:
                used += unlinked(init)
            if used > self.quota:
                return "disk"
            self._free = left
            self._next = time.monotonic() + max(2.0, 20 * (time.monotonic() - now))
        return ""

    def last(self, output: Output) -> Output:
        """The output with what can only be known at the end: memory ran out, or the disk quota is exceeded."""
        if output.limit:
            return output
        if self.cgroup and output.status and self.cgroup.killed() > self._killed:
            return output.model_copy(update={"limit": "memory"})
        if self._free - self._left() > self.quota // 8 and filesystem.usage(self.folders, self.quota) > self.quota:
            return output.model_copy(update={"limit": "disk", "status": output.status or 137})
        return output

    def _left(self) -> int:
        about = os.statvfs(self.folders[0])
        return about.f_bavail * about.f_frsize


def census(init: int | None) -> tuple[int, int]:
    """(processes, bytes of resident memory) of the box whose init has this pid outside."""
    processes = memory = 0
    for process in _inside(init):
        with contextlib.suppress(OSError, ValueError, IndexError):
            memory += int((process / "statm").read_text().split()[1]) * _PAGE
            processes += 1
    return processes, memory


def shared_out(init: int | None) -> int:
    """Bytes of resident memory of the box in which what processes share is counted once: exact, and slower."""
    memory = 0
    for process in _inside(init):
        with contextlib.suppress(OSError, ValueError, IndexError):
            for line in (process / "smaps_rollup").read_text().splitlines():
                if line.startswith("Pss:"):
                    memory += int(line.split()[1]) * 1024
    return memory


def unlinked(init: int | None) -> int:
    """Bytes of files that the box's processes hold open and that no folder shows any more."""
    total = 0
    seen: set[tuple[int, int]] = set()
    for process in _inside(init):
        with contextlib.suppress(OSError):
            for handle in (process / "fd").iterdir():
                with contextlib.suppress(OSError):
                    about = handle.stat()
                    if about.st_nlink == 0 and (about.st_dev, about.st_ino) not in seen:
                        seen.add((about.st_dev, about.st_ino))
                        total += about.st_blocks * 512
    return total


def _inside(init: int | None) -> list[Path]:
    if init is None:
        return []
    try:
        # The box's own /proc: it lists all of its processes and no other.
        return [process for process in Path(f"/proc/{init}/root/proc").iterdir() if process.name.isdigit()]
    except OSError:
        return []
