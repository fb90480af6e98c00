"""What one sandbox may use of memory, processes and disk, held by the kernel where it does that,
else watched.

A control group of its own, below the group we are in, counts memory and processes. It can be made
where those groups may be written (root on most systems, a delegated systemd slice); elsewhere
`Cgroup.make` says None, and the sandbox is held by rlimits and by `Watch`, which looks at what a
running command uses. rlimits know the address space of one process; what else holds memory is
either refused by `seccomp` or counted here.
"""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from recreate.api.errors import Fault
from recreate.api.ports import Limits
from recreate.api.types import Output
from recreate.sandboxes import filesystem

_TREE = Path("/sys/fs/cgroup")
GROUPS = (
    "start recreate where it may make control groups, such as `systemd-run --user --scope recreate"
    " ...`"
)


@dataclass(frozen=True)
class Cgroup:
    """The folders of one sandbox's groups; None where the kernel does not count for us."""

    memory: Path | None
    pids: Path | None

    @staticmethod
    def make(limits: Limits, spare: int) -> Cgroup | None:
        """Groups with these limits, or None where there can be none. `spare`: processes that are
        the backend's."""
        found = bases()
        if not found:
            return None
        name = _group_name()
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
        """Return how many processes of the sandbox the kernel has ended because memory ran out."""
        if self.memory:
            for file in ("memory.oom_control", "memory.events"):
                with contextlib.suppress(OSError):
                    for line in (self.memory / file).read_text().splitlines():
                        if line.startswith("oom_kill "):
                            return int(line.split()[1])
        return 0

    def forget(self) -> None:
        """Drop what the sandbox's processes, which have ended, brought into memory of files."""
        if self.memory:
            for file, size in (("memory.force_empty", "0"), ("memory.reclaim", f"{1 << 40}")):
                with contextlib.suppress(OSError):
                    (self.memory / file).write_text(size)

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
        # swap; buffers of TCP
        for beside in ("memory.memsw.limit_in_bytes", "memory.kmem.tcp.limit_in_bytes"):
            with contextlib.suppress(OSError):
                (folder / beside).write_text(str(size))


@cache
def bases() -> dict[str, Path]:
    """Return controller -> the folder in which groups can be made. Tried with a real process,
    once."""
    found: dict[str, Path] = {}
    for controller, candidates in _candidates().items():
        for base in candidates:
            if _works(base, controller):
                found[controller] = base
                break
    for base in set(found.values()):
        _sweep(base)
    return found


def holder() -> str:
    """Return what holds memory and processes of a sandbox here, in words."""
    if {"memory", "pids"} <= set(bases()):
        return "control groups"
    return f"rlimits and a look every {TICK:g} s or sooner; for control groups, {GROUPS}"


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
                # Version 2 keeps processes in leaves: a sandbox is our child where we are the root,
                # else our sibling.
                here = _TREE / path.lstrip("/")
                found[controller] += [here, *([here.parent] if here != _TREE else [])]
    return found


def _works(base: Path, controller: str) -> bool:
    folder = base / _group_name()
    try:
        folder.mkdir()
    except OSError:
        return False
    try:
        limit = {"memory": ("memory.max", "memory.limit_in_bytes"), "pids": ("pids.max",)}[
            controller
        ]
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


def _ours() -> str:
    """Return how the names of groups begin whose processes we can see: numbers of another namespace
    mean nothing here."""
    return f"recreate-{Path('/proc/self/ns/pid').stat().st_ino}-"


def _group_name() -> str:
    return f"{_ours()}{os.getpid()}-{os.urandom(4).hex()}"


def _sweep(base: Path) -> None:
    """Remove what a recreate left that was killed: groups of a process that is gone. Ones in use
    refuse."""
    for old in base.glob(f"{_ours()}*-*"):
        pid = old.name.split("-")[2]
        if pid.isdigit() and not Path("/proc", pid).exists():
            with contextlib.suppress(OSError):
                old.rmdir()


TICK = 0.2
"""Seconds between two looks at what a running command uses, at the most."""
_QUICKEST = 0.02
_FILLED = 4e9
"""Bytes of memory that a command can take in a second: a look comes before what is left of its
limit can be full."""
_WAIT = 4
"""A look at memory is followed by so many times its own duration without one: a command with
thousands of descriptors must not keep us busy."""


@dataclass
class DiskCount:
    """When what a sandbox has on the disk is counted next, whatever the file system's free space
    says."""

    due: float = 0.0
    cheap: float = 0.0
    """From when on counting takes a twentieth of the time at most."""


class Watch:
    """One command's use of disk, memory and processes.

    Counting a folder costs in proportion to its files, so it is done when the file system's free
    space fell by an eighth of the quota since the last count, else every other second, and for a
    twentieth of the time at most. Free space alone would not do: what others on the machine free
    hides what the sandbox writes.
    """

    def __init__(
        self,
        limits: Limits,
        folders: Sequence[Path],
        cgroup: Cgroup | None,
        walls: bool = True,
        disk: DiskCount | None = None,
    ) -> None:
        """`walls`: the command has a process namespace of its own, whose processes can be counted.
        disk: the sandbox's, over all its commands."""
        self.limits = limits
        self.folders = list(folders)
        self.cgroup = cgroup
        self.counts = walls and not (cgroup and cgroup.memory and cgroup.pids)
        self.quota = limits.disk_mb * 1024 * 1024
        self._free = self._most = self._free_bytes()
        self._killed = cgroup.killed() if cgroup else 0
        self._begun = False
        self._count = disk or DiskCount()

    def look(self, init: int | None) -> tuple[str, float]:
        """Return (the name of the limit that is exceeded now or '', seconds until the next look).

        The first look comes before the command starts. Raises Fault when it does not see the
        sandbox's processes.
        """
        begun = self._begun
        self._begun = True
        pause = TICK if begun else TICK / 2
        now = time.monotonic()
        if self.counts:
            exceeded, left = self._processes_and_memory(init, begun)
            if exceeded:
                return exceeded, 0.0
            pause = min(pause, max(_QUICKEST, left / _FILLED, _WAIT * (time.monotonic() - now)))
        if begun and self._disk(init):
            return "disk", 0.0
        return "", pause

    def _processes_and_memory(self, init: int | None, begun: bool) -> tuple[str, int]:
        """Return (the name of the limit that is exceeded or '', bytes of memory left)."""
        processes, memory = census(init)
        if not processes and not begun:
            raise Fault(
                "nothing would hold memory and processes: no control group can be made, and /proc"
                " hides the sandbox's processes",
                fix=GROUPS,
                code="sandbox-failed",
            )
        if not (self.cgroup and self.cgroup.pids) and processes > self.limits.processes:
            return "processes", 0
        if self.cgroup and self.cgroup.memory:
            return "", self.limits.memory_mb * 1024 * 1024
        most = self.limits.memory_mb * 1024 * 1024
        if begun:
            held = buffers(init)
            memory += held
            if memory > most:
                memory = shared_out(init) + held
        return ("memory" if memory > most else ""), most - memory

    def _disk(self, init: int | None) -> bool:
        left = self._free_bytes()
        self._most = max(self._most, left)
        used = self._count_used(left, init)
        return used is not None and used > self.quota

    def _count_used(self, left: int, init: int | None = None, last: bool = False) -> int | None:
        """Bytes in the folders, no further than above the quota, and in what no folder shows; None
        where a count is not due.

        last: the command has ended, and a count is due as soon as those before are a small part of
        the time.
        """
        now = time.monotonic()
        if self._free - left <= self.quota // 8 and now < (
            self._count.cheap if last else self._count.due
        ):
            return None
        used = filesystem.usage(self.folders, self.quota)
        if used <= self.quota and init is not None:
            init = self.inside(init)
            used += unlinked(init)
            lost = self._most - left
            if used <= self.quota < lost and sends_files(init):  # nothing tells of what size
                used += lost
        self._free = left
        took = time.monotonic() - now
        self._count.cheap = 0.0 if used > self.quota else now + 21 * took
        self._count.due = 0.0 if used > self.quota else now + took + max(2.0, 20 * took)
        return used

    def inside(self, init: int | None) -> int | None:
        """Return the pid, outside, of a process in whose /proc are those of the sandbox."""
        return init

    def last(self, output: Output) -> Output:
        """Return the output with what can only be known at the end: memory ran out, or the disk
        quota is exceeded."""
        if output.limit:
            return output
        if self.cgroup and output.status and self.cgroup.killed() > self._killed:
            return output.model_copy(update={"limit": "memory"})
        if (self._count_used(self._free_bytes(), last=True) or 0) > self.quota:
            return output.model_copy(update={"limit": "disk", "status": output.status or 137})
        return output

    def _free_bytes(self) -> int:
        about = os.statvfs(self.folders[0])
        return about.f_bavail * about.f_frsize


_OF_STATUS = re.compile(rb"^(?:VmRSS|VmSwap|VmPTE|HugetlbPages):\s*(\d+)", re.MULTILINE)
_NOT_SHARED = re.compile(rb"^(?:VmPTE|HugetlbPages):\s*(\d+)", re.MULTILINE)
_OF_ROLLUP = re.compile(rb"^(?:Pss|SwapPss):\s*(\d+)", re.MULTILINE)


def _kilobytes(pattern: re.Pattern[bytes], file: Path) -> int:
    return 1024 * sum(map(int, pattern.findall(file.read_bytes())))


def census(init: int | None) -> tuple[int, int]:
    """Return (processes, bytes of memory: resident, swapped, page tables) of the sandbox whose init
    has this pid outside."""
    processes = memory = 0
    for process in _inside(init):
        with contextlib.suppress(OSError):
            memory += _kilobytes(_OF_STATUS, process / "status")
            processes += 1
    return processes, memory


def shared_out(init: int | None) -> int:
    """Bytes of memory of the sandbox in which what processes share is counted once: exact, and
    slower. A process that does not let us look counts whole."""
    memory = 0
    for process in _inside(init):
        with contextlib.suppress(OSError):
            try:
                memory += _kilobytes(_OF_ROLLUP, process / "smaps_rollup")
                memory += _kilobytes(_NOT_SHARED, process / "status")
            except OSError:
                memory += _kilobytes(_OF_STATUS, process / "status")
    return memory


_PIPE = 64 * 1024
_FULL_PIPES = 1024
_SMALL_PIPE = 8 * 1024
"""A pipe holds 64 KB; above a thousand of one user the kernel makes them smaller."""
_TERMINAL = 128 * 1024
_QUEUED = 11
"""Datagrams that wait at a socket of the kind, each with a buffer of its sender."""


def buffers(init: int | None) -> int:
    """Return the most bytes that the kernel may hold in the sandbox's pipes, sockets and terminals.

    Nothing tells what is in a buffer, but `seccomp` sees to it that none is larger than usual.
    """
    held = 0
    pipes: set[str] = set()
    sockets = False
    for process in _inside(init):
        try:
            for handle in (process / "fd").iterdir():
                with contextlib.suppress(OSError):
                    name = str(handle.readlink())
                    if name.startswith("pipe:"):
                        pipes.add(name)
                    elif name.startswith("socket:"):
                        sockets = True
        except OSError:
            sockets = True
    held += min(len(pipes), _FULL_PIPES) * _PIPE + max(0, len(pipes) - _FULL_PIPES) * _SMALL_PIPE
    with contextlib.suppress(OSError):
        held += len(list(Path(f"/proc/{init}/root/dev/pts").iterdir())) * _TERMINAL
    return held + (_sockets(init) if sockets else 0)


def _sockets(init: int | None) -> int:
    """Return what the sockets in the sandbox's network hold, also one that no descriptor shows: it
    waits to be accepted, or is on its way to another process."""
    held = 0
    buffer = _buffer()
    for family in ("unix", "netlink", "tcp", "tcp6", "udp", "udp6"):
        with contextlib.suppress(OSError):
            for line in Path(f"/proc/{init}/net/{family}").read_bytes().splitlines()[1:]:
                columns = line.split(None, 5)
                if family == "unix":
                    held += buffer * (_QUEUED if columns[4] == b"0002" else 1)
                else:
                    held += buffer
                if family.startswith("tcp"):
                    held += 2 * sum(int(size, 16) for size in columns[4].split(b":"))
    return held


@cache
def _buffer() -> int:
    sizes = []
    for name in ("wmem_default", "rmem_default"):
        with contextlib.suppress(OSError, ValueError):
            sizes.append(int(Path("/proc/sys/net/core", name).read_text()))
    return max(sizes, default=212_992)


_DELETED = re.compile(r"^(\w+-\w+) \S+ (\w+) \S+ [1-9]\d* +.*\(deleted\)$", re.MULTILINE)


def unlinked(init: int | None) -> int:
    """Bytes of files that the sandbox's processes hold open, or have in their memory, and that no
    folder shows any more. Of those in memory alone only root is told the size: else what of them is
    mapped counts.
    """
    found: dict[object, int] = {}
    for process in _inside(init):
        with contextlib.suppress(OSError):
            for handle in (process / "fd").iterdir():
                with contextlib.suppress(OSError):
                    _take_deleted(handle, found)
        with contextlib.suppress(OSError):
            for place, offset in _DELETED.findall((process / "maps").read_text("utf-8", "replace")):
                try:
                    _take_deleted(process / "map_files" / place, found)
                except FileNotFoundError:
                    pass  # it is gone by now
                except OSError:
                    start, end = (int(n, 16) for n in place.split("-"))
                    found[process, place] = int(offset, 16) + end - start
    return sum(found.values())


def _take_deleted(file: Path, found: dict[object, int]) -> None:
    about = file.stat()
    if about.st_nlink == 0:
        found[about.st_dev, about.st_ino] = about.st_blocks * 512


def sends_files(init: int | None) -> bool:
    """Whether open files wait in a socket of the sandbox, where no process has them."""
    for process in _inside(init):
        with contextlib.suppress(OSError):
            for told in (process / "fdinfo").iterdir():
                with contextlib.suppress(OSError):
                    if re.search(r"^scm_fds:\s*[1-9]", told.read_text(), re.MULTILINE):
                        return True
    return False


def _inside(init: int | None) -> list[Path]:
    if init is None:
        return []
    try:
        # The sandbox's own /proc: it lists all of its processes and no other.
        return [
            process
            for process in Path(f"/proc/{init}/root/proc").iterdir()
            if process.name.isdigit()
        ]
    except OSError:
        return []
