"""What one sandbox may use of memory, processes and disk, held by the kernel where it does that, else watched.

A control group of its own, below the group we are in, counts memory and processes. It can be made where those groups
may be written (root on most systems, a delegated systemd slice); elsewhere `Cgroup.make` says None, and the sandbox is
held by rlimits and by `Watch`, which looks at what a running command uses.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from recreate.api.ports import Limits
from recreate.api.types import Output
from recreate.sandboxes import filesystem

_TREE = Path("/sys/fs/cgroup")
_PAGE = os.sysconf("SC_PAGE_SIZE")


@dataclass(frozen=True)
class Cgroup:
    """The folders of one sandbox's groups; None where the kernel does not count for us."""

    memory: Path | None
    pids: Path | None

    @staticmethod
    def make(limits: Limits, spare: int) -> Cgroup | None:
        """Groups with these limits, or None where there can be none. `spare`: processes that are the backend's."""
        found = bases()
        if not found:
            return None
        name = f"recreate-{os.getpid()}-{os.urandom(4).hex()}"
        memory = found["memory"] / name if "memory" in found else None
        pids = found["pids"] / name if "pids" in found else None
        group = Cgroup(memory, pids)
        try:
            for folder in group.folders:
                folder.mkdir()
            if memory:
                _set_memory(memory, limits.memory_mb * 1024 * 1024)
            if pids:
                (pids / "pids.max").write_text(f"{limits.processes + spare}")
        except OSError:
            group.remove()
            return None
        return group

    @property
    def folders(self) -> tuple[Path, ...]:
        return tuple({folder: None for folder in (self.memory, self.pids) if folder})

    @property
    def joins(self) -> tuple[Path, ...]:
        """The files into which a process writes 0 to join."""
        return tuple(folder / "cgroup.procs" for folder in self.folders)

    def killed(self) -> int:
        """How many processes of the sandbox the kernel has ended because memory ran out."""
        if self.memory:
            for file in ("memory.oom_control", "memory.events"):
                with contextlib.suppress(OSError):
                    for line in (self.memory / file).read_text().splitlines():
                        if line.startswith("oom_kill "):
                            return int(line.split()[1])
        return 0

    def remove(self) -> None:
        """Remove the groups. A process that is still ending keeps one for a moment."""
        for folder in self.folders:
            for wait in (0.0, 0.01, 0.1, 0.5):
                time.sleep(wait)
                try:
                    folder.rmdir()
                    break
                except FileNotFoundError:
                    break
                except OSError:
                    continue


def _set_memory(folder: Path, size: int) -> None:
    if (folder / "memory.max").exists():
        (folder / "memory.max").write_text(str(size))
        with contextlib.suppress(OSError):
            (folder / "memory.swap.max").write_text("0")
    else:
        (folder / "memory.limit_in_bytes").write_text(str(size))
        with contextlib.suppress(OSError):
            (folder / "memory.memsw.limit_in_bytes").write_text(str(size))


@cache
def bases() -> dict[str, Path]:
    """controller -> the folder in which groups can be made. Tried with a real process, once."""
    found: dict[str, Path] = {}
    for controller, candidates in _candidates().items():
        for base in candidates:
            if _works(base, controller):
                found[controller] = base
                break
    for base in set(found.values()):
        _sweep(base)
    return found


def _candidates() -> dict[str, list[Path]]:
    try:
        lines = Path("/proc/self/cgroup").read_text().splitlines()
    except OSError:
        return {}
    found: dict[str, list[Path]] = {"memory": [], "pids": []}
    for line in lines:
        _, controllers, path = line.split(":", 2)
        for controller in found:
            if controller in controllers.split(","):
                found[controller].append(_TREE / controller / path.lstrip("/"))
            elif not controllers:
                # Version 2 keeps processes in leaves: a sandbox is our child where we are the root, else our sibling.
                here = _TREE / path.lstrip("/")
                found[controller] += [here, *([here.parent] if here != _TREE else [])]
    return found


def _works(base: Path, controller: str) -> bool:
    folder = base / f"recreate-{os.getpid()}-{os.urandom(4).hex()}"
    try:
        folder.mkdir()
    except OSError:
        return False
    try:
        limit = {"memory": ("memory.max", "memory.limit_in_bytes"), "pids": ("pids.max",)}[controller]
        if not any(os.access(folder / file, os.W_OK) for file in limit):
            return False
        tried = subprocess.run(
            ["/bin/sh", "-c", 'echo 0 >"$1"', "sh", str(folder / "cgroup.procs")],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            check=False,
        )
        return tried.returncode == 0
    finally:
        Cgroup(folder, None).remove()


def _sweep(base: Path) -> None:
    """Remove what a recreate left that was killed: groups of a process that is gone. Ones in use refuse."""
    for old in base.glob("recreate-*-*"):
        pid = old.name.split("-")[1]
        if pid.isdigit() and not Path("/proc", pid).exists():
            with contextlib.suppress(OSError):
                old.rmdir()


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
    """(processes, bytes of resident memory) of the sandbox whose init has this pid outside."""
    processes = memory = 0
    for process in _inside(init):
        with contextlib.suppress(OSError, ValueError, IndexError):
            memory += int((process / "statm").read_text().split()[1]) * _PAGE
            processes += 1
    return processes, memory


def shared_out(init: int | None) -> int:
    """Bytes of resident memory of the sandbox in which what processes share is counted once: exact, and slower."""
    memory = 0
    for process in _inside(init):
        with contextlib.suppress(OSError, ValueError, IndexError):
            for line in (process / "smaps_rollup").read_text().splitlines():
                if line.startswith("Pss:"):
                    memory += int(line.split()[1]) * 1024
    return memory


def unlinked(init: int | None) -> int:
    """Bytes of files that the sandbox's processes hold open and that no folder shows any more."""
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
        # The sandbox's own /proc: it lists all of its processes and no other.
        return [process for process in Path(f"/proc/{init}/root/proc").iterdir() if process.name.isdigit()]
    except OSError:
        return []
