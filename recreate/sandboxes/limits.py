"""A control group for one box, below the group we are in: memory and processes counted by the kernel.

Works where those groups may be written (root on most systems, a delegated systemd slice); elsewhere `make` says
None and the box is held by rlimits and the watch.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import time
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from recreate.api.ports import Limits

_TREE = Path("/sys/fs/cgroup")


@dataclass(frozen=True)
class Cgroup:
    """The folders of one box's groups; None where the kernel does not count for us."""

    memory: Path | None
    pids: Path | None

    @staticmethod
    def make(limits: Limits, spare: int) -> Cgroup | None:
        """Groups with these limits, or None where there can be none. `spare`: processes that are the rung's."""
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
        """How many processes of the box the kernel has ended because memory ran out."""
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
                # Version 2 keeps processes in leaves: a box is our child where we are the root, else our sibling.
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
