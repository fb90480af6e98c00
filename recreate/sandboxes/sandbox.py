"""A sandbox: a private folder, and commands run in it by a backend.

On the host                     in the sandbox
    BOX/work                    /work           what is worked on: `source`'s copy, read, write
    BOX/home                    /home/agent     HOME
    BOX/tmp                     /tmp
    BOX/shm                     /dev/shm
    BOX/etc                     /etc            read-only
All but etc may be written by the sandbox, counts as its disk, and lasts as long as the sandbox.
"""

from __future__ import annotations

import errno
import itertools
import os
import platform
import re
import resource
import shutil
import stat
import threading
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Protocol

from recreate.api.errors import BadInput, Fault
from recreate.api.ports import Limits
from recreate.api.types import Output
from recreate.sandboxes import filesystem, rootfs, seccomp
from recreate.sandboxes.limits import Cgroup, DiskCount, Watch, bases
from recreate.sandboxes.process import LAUNCH, Child, Dialogue, launcher, shim

DROP = (
    "setpriv --reuid={uid} --regid={uid} --clear-groups --inh-caps=-all --bounding-set=-all"
    " --no-new-privs"
)
WRITABLE = ("work", "home", "tmp", "shm")
AGENT = 1000
"""The uid inside a user namespace, where the sandbox is our own user under another number."""
UIDS = range(60578, 61184)
"""Where real root finds an identity for a sandbox: a range that distributions leave unused."""
_TAKEN = ("/usr", "/etc", "/proc", "/dev", "/bin", "/sbin", "/lib", "/lib32", "/lib64")
_WHOLE = ("/work", "/tmp", rootfs.HOME)
OPEN_FILES = 1024
"""Descriptors of one process: what systems give by default, and programs that want more are written
to do without."""
_UNREADABLE = (errno.EACCES, errno.EPERM, errno.ENAMETOOLONG)
_counter = itertools.count(os.getpid())
_ARGUMENT = 128 * 1024 - 64


class Enclosure(Protocol):
    """How a backend encloses a command. `own_namespaces` is False for the backend that encloses
    nothing."""

    name: str
    own_namespaces: bool

    def argv(self, sandbox: FolderSandbox, command: Sequence[bytes], given: int) -> list[bytes]:
        """Return what runs `command` in a sandbox. `given`: a descriptor to read a filter from, or
        -1."""
        ...

    def filter(self, sandbox: FolderSandbox) -> bytes:
        """Return the system call filter that `argv` must be started under, b'' when it loads the
        one it is given, or none."""
        ...

    def surroundings(self, sandbox: FolderSandbox) -> tuple[str, dict[str, str]]:
        """Return (the folder a command starts in, the environment that says where it may write)."""
        ...


class FolderSandbox:
    """A `recreate.api.ports.Sandbox`. Make one with a backend's `open`."""

    def __init__(
        self,
        enclosure: Enclosure,
        *,
        drop: bool,
        source: Path | None,
        mounts: Mapping[str, Path] | None,
        env: Mapping[str, str] | None,
        limits: Limits | None,
        uid: int = AGENT,
    ) -> None:
        """`drop`: real root gives the sandbox an identity of its own, which then owns its files;
        `uid`: what a sandbox without one calls us."""
        self.backend = enclosure.name
        self.limits = limits or Limits()
        self.mounts = _mounts(mounts or {})
        self.env = _environment(env or {})
        self._enclosure = enclosure
        self._running: set[Child] = set()
        self._closed = False
        self._one = threading.RLock()
        self.owner = UIDS[next(_counter) % len(UIDS)] if drop else None
        self.uid = uid if self.owner is None else self.owner
        self.root = filesystem.make_folder()
        self._cgroup: Cgroup | None = None
        self._disk = DiskCount()
        try:
            if self.owner is not None:
                _readable(self.mounts)
            with filesystem.ours("fill a sandbox folder"):
                for name in (*WRITABLE, "etc"):
                    (self.root / name).mkdir(mode=0o755)
                rootfs.fill_etc(self.root / "etc", self.uid)
                if source is not None:
                    if not source.is_dir():
                        raise BadInput(
                            f"{source} is not a folder",
                            fix="name a folder to copy into the sandbox",
                        )
                    try:
                        filesystem.copy(source, self.root / "work", self.owner)
                    except (RecursionError, OSError) as e:
                        if isinstance(e, OSError) and e.errno != errno.ENAMETOOLONG:
                            raise
                        raise BadInput(
                            f"{source} has folders nested too deeply to be copied",
                            fix="name a folder without them",
                        ) from None
                if self.owner is not None:
                    for name in WRITABLE:
                        os.chown(self.root / name, self.owner, self.owner)
            self._cgroup = self._grouped() if enclosure.own_namespaces else None
            if (
                enclosure.own_namespaces
                and self.owner is None
                and os.geteuid() == 0
                and not self._counts_processes
            ):
                raise Fault("the control group that holds the processes of root cannot be made")
        except BaseException:
            self.close()
            raise

    def _grouped(self) -> Cgroup | None:
        return Cgroup.make(self.limits, spare=4)

    @property
    def _counts_processes(self) -> bool:
        """Whether a control group counts the processes; `_counts_memory`: the memory."""
        return self._cgroup is not None and self._cgroup.pids is not None

    @property
    def _counts_memory(self) -> bool:
        return self._cgroup is not None and self._cgroup.memory is not None

    @property
    def work(self) -> Path:
        """The host's name of /work."""
        return self.root / "work"

    def above_mounts(self) -> list[str]:
        """Return the folders that must be made for the mounts to have a place, outermost first."""
        made: dict[str, None] = {}
        for inside in self.mounts:
            for above in reversed(Path(inside).parents[:-1] if not _system(inside) else ()):
                if not self.within(str(above)) and not any(
                    above.is_relative_to(other) for other in self.mounts
                ):
                    made[str(above)] = None
        return list(made)

    def within(self, inside: str) -> tuple[Path, str] | None:
        """Return (host folder, path in it) for a path below what the sandbox may write, else
        None."""
        for name, there in (("work", "/work"), ("home", rootfs.HOME), ("tmp", "/tmp")):
            if inside == there or inside.startswith(there + "/"):
                return self.root / name, inside[len(there) + 1 :]
        return None

    def _place_mounts(self) -> None:
        for inside, outside in self.mounts.items():
            found = self.within(inside)
            if found and not any(inside.startswith(other + "/") for other in self.mounts):
                filesystem.place(*found, outside.is_dir(), self.owner)

    def run(
        self, command: str | Sequence[str], timeout: float | None = None, stdin: bytes | None = None
    ) -> Output:
        """Run a shell command or an argv; `timeout` in seconds. Raises Fault when the sandbox
        itself fails."""
        words = (
            self._shell(_bytes(command)) if isinstance(command, str) else [*map(_bytes, command)]
        )
        if refused := _refused(words):
            return Output(text=refused + "\n", status=126)
        with self._one:
            self._mend()
            return self._run(
                words, self.limits.seconds if timeout is None else timeout, stdin or b""
            )

    def start(self, command: str | Sequence[str], timeout: float) -> Dialogue:
        """Start a program that goes on beside the commands that are run: lines go to its input and
        come from its output, for `timeout` seconds at the most. It shares the sandbox's files and
        limits, not its processes.

        Raises Fault when the sandbox itself fails, BadInput for a command that no kernel would run.
        """
        words = (
            self._shell(_bytes(command)) if isinstance(command, str) else [*map(_bytes, command)]
        )
        if refused := _refused(words):
            raise BadInput(
                f"it cannot be started: {refused}", fix="give a program and its arguments"
            )
        with self._one:
            self._mend()
            if self._enclosure.own_namespaces:
                self._place_mounts()
            start, places = self._enclosure.surroundings(self)
            inside = shim(words, {**LAUNCH, **places, **self.env}, self._ulimits(), start)
            talk, watch = self._started(inside, b"", Dialogue)
            assert isinstance(talk, Dialogue)
            self._running.add(talk)
            talk.go(timeout, watch.look, lambda: self._running.discard(talk))
        return talk

    def _run(self, words: Sequence[bytes], seconds: float, stdin: bytes) -> Output:
        if self._enclosure.own_namespaces:
            try:
                self._place_mounts()
            except BadInput as e:
                # The sandbox moved what a mount needs, and must not lead the mount elsewhere: its
                # doing, not a fault.
                return Output(text=f"{e.message}: nothing can be mounted there\n", status=126)
        start, places = self._enclosure.surroundings(self)
        child, watch = self._started(
            shim(words, {**LAUNCH, **places, **self.env}, self._ulimits(), start), stdin
        )
        self._running.add(child)
        if self._closed:
            child.kill()
        try:
            output = child.finish(seconds, watch.look)
        finally:
            self._running.discard(child)
        return watch.last(output)

    def _shell(self, command: bytes) -> list[bytes]:
        return [_shell(), b"-c", command]

    def _started(
        self, inside: Sequence[bytes], stdin: bytes, kind: type[Child] = Child
    ) -> tuple[Child, Watch]:
        """Return the shim, started in its walls, and what watches it."""
        joins = self._cgroup.joins if self._cgroup else ()
        walls = self._enclosure.own_namespaces
        under = self._enclosure.filter(self)
        with filesystem.ours("prepare a system call filter"):
            given = seccomp.descriptor() if walls and not under else -1
        try:
            argv = launcher(self._enclosure.argv(self, inside, given), joins)
            child = kind(
                self.backend, argv, stdin, self.limits.output_bytes, not walls, given, under
            )
        finally:
            if given >= 0:
                os.close(given)
        return child, Watch(self.limits, self._writable, self._cgroup, walls, self._disk)

    @property
    def _writable(self) -> list[Path]:
        return [self.root / name for name in WRITABLE]

    def write(self, path: str, data: bytes, mode: int = 0o644) -> None:
        """Put a file, making the folders above it. Raises BadInput when the path leads through a
        link."""
        self._mend()
        filesystem.write(self.work, path, data, mode, self.owner)

    def read(self, path: str) -> bytes:
        """Return the file's bytes. Raises FileNotFoundError, also for a link or what is no regular
        file; BadInput for `..`."""
        self._mend()
        return filesystem.read(self.work, path)

    def copy(self) -> FolderSandbox:
        """Another sandbox with the same files, mounts, environment and limits; no program that runs
        goes along.

        Raises BadInput (`no-copy`) where the sandbox made a file that cannot be read or named,
        Fault for the host.
        """
        with self._one:
            self._mend()
            dropped = self.owner is not None
            made: FolderSandbox | None = None
            try:
                made = FolderSandbox(
                    self._enclosure,
                    drop=dropped,
                    source=None,
                    mounts=self.mounts,
                    env=self.env,
                    limits=self.limits,
                    uid=AGENT if dropped else self.uid,
                )
                linked: dict[tuple[int, int], Path] = {}
                with filesystem.ours("copy a sandbox folder"):
                    for name in WRITABLE:
                        filesystem.copy(self.root / name, made.root / name, made.owner, linked)
            except BaseException as e:
                if made is not None:
                    made.close()
                theirs = isinstance(e.__cause__, OSError) and e.__cause__.errno in _UNREADABLE
                if theirs or isinstance(e, RecursionError):
                    raise BadInput(
                        "the sandbox holds a file that cannot be copied", code="no-copy"
                    ) from e
                raise
            return made

    def close(self) -> None:
        """Kill what runs and delete the folder. Safe to call twice."""
        self._closed = True
        for child in tuple(self._running):
            child.kill()
            if isinstance(child, Dialogue):
                child.close()
        with self._one:
            if self._cgroup:
                if self.limits.forgets:
                    self._cgroup.forget()
                self._cgroup.remove()
            filesystem.delete(self.root)

    def __enter__(self) -> FolderSandbox:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _mend(self) -> None:
        """Mend the modes of the sandbox's own top folders: what it did to them must not stop the
        next command."""
        if self._closed:
            raise Fault("this sandbox is closed", code="sandbox-closed")
        for name in WRITABLE:
            there = self.root / name
            mode = there.stat().st_mode
            if mode & 0o700 != 0o700:
                there.chmod(stat.S_IMODE(mode) | 0o700)

    def _ulimits(self) -> list[str]:
        limits = self.limits
        megabyte = 1024 * 1024
        cpu = _allowed(resource.RLIMIT_CPU, limits.cpu_seconds + 1)
        rules = [
            "-c 0",
            # first: a hard limit below the soft one is refused
            f"-S -t {min(cpu, limits.cpu_seconds)}",
            f"-H -t {cpu}",
            f"-n {_allowed(resource.RLIMIT_NOFILE, OPEN_FILES)}",
            f"-f {_allowed(resource.RLIMIT_FSIZE, limits.disk_mb * megabyte) // 512}",
        ]
        if not self._counts_memory:
            # Twice: address space that is reserved and never used is common; the watch counts what
            # is used.
            rules.append(
                f"-v {_allowed(resource.RLIMIT_AS, 2 * limits.memory_mb * megabyte) // 1024}"
            )
        if not self._counts_processes and (self._enclosure.own_namespaces or os.geteuid() != 0):
            rules.append(f"{_processes_flag()} {_allowed(resource.RLIMIT_NPROC, limits.processes)}")
        return rules


def _allowed(which: int, wanted: int) -> int:
    hard = resource.getrlimit(which)[1]
    return wanted if hard == resource.RLIM_INFINITY else min(hard, wanted)


@cache
def _shell() -> bytes:
    return b"bash" if shutil.which("bash", path=LAUNCH["PATH"]) else b"sh"


@cache
def _processes_flag() -> str:
    """Return ulimit's flag for processes: dash and busybox call it -p, bash -u."""
    return "-p" if Path("/bin/sh").resolve().name in ("dash", "busybox") else "-u"


def _bytes(word: str) -> bytes:
    try:
        return word.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:  # half of a surrogate pair, as models write them
        return word.encode("utf-8", "replace")


def _refused(words: Sequence[bytes]) -> str:
    """Return why no kernel would run this argv, in the words a shell would use."""
    if not words or not words[0]:
        return "no command given"
    if any(b"\0" in word for word in words):
        return "a command cannot hold a NUL byte"
    if any(len(word) > _ARGUMENT for word in words):
        return "Argument list too long"
    return ""


def _mounts(mounts: Mapping[str, Path]) -> dict[str, Path]:
    found: dict[str, Path] = {}
    for inside, outside in sorted(mounts.items(), key=lambda item: item[0].count("/")):
        if not inside.startswith("/") or ".." in inside.split("/") or inside.strip("/") == "":
            raise BadInput(
                f"{inside!r} is not a place for a mount",
                fix="give an absolute path",
                code="bad-mount",
            )
        if not outside.exists():
            raise BadInput(
                f"{outside} cannot be mounted: it does not exist",
                fix="check the path",
                code="bad-mount",
            )
        place = Path(inside)
        if (_system(inside) and not _masks(place, outside)) or str(place) in _WHOLE:
            raise BadInput(
                f"nothing can be mounted at {inside}", fix="choose another path", code="bad-mount"
            )
        found[str(place)] = outside
    return found


def _system(inside: str) -> bool:
    return any(Path(inside).is_relative_to(taken) for taken in _TAKEN)


def _masks(place: Path, outside: Path) -> bool:
    """Whether a mount does nothing but hide something of the system: an empty file or folder over
    one that is there."""
    empty = not any(outside.iterdir()) if outside.is_dir() else outside.stat().st_size == 0
    return empty and len(place.parts) > 2 and place.is_relative_to("/usr")


def _readable(mounts: Mapping[str, Path]) -> None:
    """Let everybody read it: a sandbox with an identity of its own reads no more."""
    for outside in mounts.values():
        needed = 0o005 if outside.is_dir() else 0o004
        if outside.stat().st_mode & needed != needed:
            raise BadInput(
                f"{outside} cannot be mounted: a sandbox may not read it",
                fix=f"chmod -R go+rX {outside}",
                code="bad-mount",
            )


def _environment(env: Mapping[str, str]) -> dict[str, str]:
    for name, value in env.items():
        if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name) or "\0" in value:
            raise BadInput(
                f"{name!r} cannot be an environment variable", fix="letters, digits and _ only"
            )
    return dict(env)


class Walled(ABC):
    """A backend with walls: namespaces of its own for everything, a minimal read-only system, no
    capabilities.

    Real root gives each sandbox an unused uid (`drop`); an ordinary user, or a root that may not
    change identity, gets a user namespace (`userns`).
    """

    name: str
    own_namespaces = True

    @abstractmethod
    def missing(self) -> str:
        """Return '' when the programs are here that it is built with, else which are not."""

    def filter(self, sandbox: FolderSandbox) -> bytes:
        """Return b'': the backend loads the filter that it is given."""
        return b""

    @abstractmethod
    def argv(self, sandbox: FolderSandbox, command: Sequence[bytes], given: int) -> list[bytes]:
        """Return the command in a sandbox: read-only system, the sandbox's folders, the mounts, and
        nothing else."""

    def surroundings(self, sandbox: FolderSandbox) -> tuple[str, dict[str, str]]:
        """Return (the folder a command starts in, the environment that says where it may write)."""
        return "/work", {"HOME": rootfs.HOME}

    def probe(self) -> str:
        """Return '' when a sandbox was really made and a command run in it, else why not."""
        return identity(self)[1]

    def open(
        self,
        *,
        source: Path | None = None,
        mounts: Mapping[str, Path] | None = None,
        env: Mapping[str, str] | None = None,
        limits: Limits | None = None,
    ) -> FolderSandbox:
        """Open a sandbox as the port says. Raises BadInput when the probe says no, Fault when the
        host fails."""
        how, why = identity(self)
        if why:
            raise BadInput(
                f"the {self.name} sandbox does not work here: {why}",
                fix="recreate doctor",
                code="no-sandbox",
            )
        return FolderSandbox(
            self, drop=how == "drop", source=source, mounts=mounts, env=env, limits=limits
        )


_identities: dict[str, tuple[str, str]] = {}


def identity(backend: Walled) -> tuple[str, str]:
    """Return (`drop` or `userns`, '') for what works here, else ('', why nothing does). Tried once
    in a process."""
    if backend.name not in _identities:
        why = backend.missing()
        if not seccomp.program():
            why = f"no system call filter is known for the processor {platform.machine()}"
        for how in () if why else ("drop", "userns") if os.geteuid() == 0 else ("userns",):
            why = try_enclosure(backend, how)
            if not why:
                _identities[backend.name] = how, ""
                break
        else:
            _identities[backend.name] = "", why
    return _identities[backend.name]


def try_enclosure(backend: Enclosure, how: str) -> str:
    """Make a sandbox and run a command in it: '' when that works and it is closed to the network,
    else why not."""
    if how == "userns" and os.geteuid() == 0 and "pids" not in bases():
        return (
            "root may not change identity here and no cgroup counts processes: nothing would stop a"
            " fork bomb"
        )
    try:
        with FolderSandbox(
            backend, drop=how == "drop", source=None, mounts=None, env=None, limits=None
        ) as sandbox:
            output = sandbox.run(["cat", "/proc/self/status", "/proc/net/dev"], timeout=60)
    except Fault as e:
        return e.message
    closed = ("CapEff:\t0000000000000000", "NoNewPrivs:\t1", "Seccomp:\t2")
    if (
        output.status != 0
        or "eth0" in output.text
        or not all(words in output.text for words in closed)
    ):
        return f"a sandbox was made but is not closed: {output.text[-200:]}"
    return ""
