"""The `docker` and `podman` backends: a container for each command, made by a container engine.

What lasts lies in the sandbox's folders on the host, as with every backend: they are mounted into
the containers, all else is read-only. So a command leaves nothing running, `read` and `write`
follow no link, and disk is counted.

    without an image     the host's own system, read-only, as in the other backends: nothing is
                         fetched
    with an image        its files, read-only; the folder worked on is copied out of it first

A container is not our child: the engine starts it. `Reaper` ends it when we are killed, `clean`
what even that left. Whatever the engine is asked to keep carries the label `recreate`, or lies in
the repository `recreate-pulled`.
"""

from __future__ import annotations

import atexit
import base64
import contextlib
import copy
import io
import json
import os
import resource
import shutil
import subprocess
import sys
import tarfile
import tempfile
import threading
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from recreate.api import paths
from recreate.api.errors import IMAGE, BadInput, Fault
from recreate.api.ports import Limits
from recreate.api.shapes import JsonDict
from recreate.api.types import Output, digest
from recreate.plugins.docker.filter import profile
from recreate.sandboxes import filesystem, rootfs
from recreate.sandboxes.limits import Cgroup, DiskCount, Watch
from recreate.sandboxes.process import LAUNCH, Child
from recreate.sandboxes.sandbox import OPEN_FILES, FolderSandbox

LABEL = "recreate"
PULLED = "localhost/recreate-pulled/"
"""Images that were pulled for a task get a second name: this, and their own in base 32."""
_HOST = "localhost/recreate-host"
_STARVED = b"\x01starved\x01"
_INIT = """env -i "$@"
status=$?
if [ $status != 0 ]; then
    cat /sys/fs/cgroup/memory.events /sys/fs/cgroup/memory/memory.oom_control 2>/dev/null | while \
read -r what count; do
        [ "$what" = oom_kill ] && [ "$count" != 0 ] && printf '\\001starved\\001' >&2
    done
fi
exit $status
"""
"""The first process of a container: the second is like any other, and may be killed by its own
signals. The kernel's word that memory ran out comes from here, since engines tell it of the first
process alone."""
_ALL_OF_US = 32_768
"""RLIMIT_NPROC counts a user's processes wherever they are. The group counts those of the sandbox;
this is only what podman does not fail at, as it does at its own default."""
_SETUP = ("hosts", "hostname", "resolv.conf", "passwd", "group")
_PATIENCE = 60.0
"""Seconds the engine may take to answer what is not a pull."""
_AGAIN = "{engine} pull {image} shows more; where you need to log in: {engine} login"


class ContainerEngine:
    """The client of a container engine: `docker` or `podman`."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._refused: dict[str, Fault] = {}
        self._lock = threading.RLock()
        self._pulling = threading.RLock()
        self._reaper: Reaper | None = None
        self._held: dict[str, str] = {}

    @property
    def program(self) -> str:
        """Its path, '' when it is not installed."""
        return shutil.which(self.name) or shutil.which(self.name, path=LAUNCH["PATH"]) or ""

    @property
    def env(self) -> dict[str, str]:
        """What the client needs to find its engine, and nothing that podman would hand on to a
        container."""
        known = ("HOME", "USER", "LOGNAME", "TMPDIR", "DBUS_SESSION_BUS_ADDRESS", "SSH_AUTH_SOCK")
        kinds = ("DOCKER_", "CONTAINER", "XDG_", "REGISTRY_", "STORAGE_", "PODMAN_")
        own = {k: v for k, v in os.environ.items() if k in known or k.startswith(kinds)}
        return {**own, **LAUNCH, "PATH": f"{os.environ.get('PATH', '')}:{LAUNCH['PATH']}"}

    def ask(
        self,
        *words: str,
        stdin: bytes = b"",
        seconds: float | None = _PATIENCE,
        proxies: bool = False,
    ) -> str:
        """What the client prints. Raises Fault with its complaint. proxies: it reaches the network
        by itself."""
        done = self.try_engine(*words, stdin=stdin, seconds=seconds, proxies=proxies)
        if done.returncode != 0:
            raise Fault(
                f"{self.name} {words[0]}: {_last(done.stderr)}", fix=self.start, code="engine"
            )
        return done.stdout.decode("utf-8", "replace").strip()

    def try_engine(
        self,
        *words: str,
        stdin: bytes = b"",
        seconds: float | None = _PATIENCE,
        proxies: bool = False,
    ) -> subprocess.CompletedProcess[bytes]:
        """The client, run to its end. Raises Fault when it does not start, or does not answer in
        time."""
        env = {**os.environ} if proxies else self.env
        try:
            return subprocess.run(
                [self.program or self.name, *words],
                input=stdin,
                capture_output=True,
                env=env,
                timeout=seconds,
                start_new_session=True,
                check=False,
            )
        except subprocess.TimeoutExpired:
            raise Fault(
                f"{self.name} {words[0]} does not answer", fix=self.start, code="engine"
            ) from None
        except OSError as e:
            raise Fault(
                f"{self.name} does not start: {e.strerror}", fix=self.start, code="engine"
            ) from e

    @property
    def start(self) -> str:
        """What to type when it does not answer."""
        if self.name == "podman":
            return (
                "`podman info` says what is wrong; install it: `apt-get install podman`, `dnf"
                " install podman`"
            )
        return (
            "start the engine: `systemctl start docker` (rootless: `systemctl --user start"
            " docker`); an ordinary user belongs to the group docker: `usermod -aG docker $USER`,"
            " then log in anew"
        )

    def has(self, image: str) -> bool:
        return self.try_engine("image", "inspect", image).returncode == 0

    def about(self, image: str) -> JsonDict:
        """What the engine knows of an image that is here."""
        found = json.loads(self.ask("image", "inspect", image))[0]
        return dict(found)

    def host_image(self) -> str:
        """An image of nothing but the places at which the host's own system is mounted, made
        once."""
        links, folders = rootfs.top()
        name = f"{_HOST}:{digest([links, folders], 12)}"
        with self._lock:
            if self.has(name):
                return name
            blob = io.BytesIO()
            with tarfile.open(fileobj=blob, mode="w") as tar:
                for there in (
                    *folders,
                    "/etc",
                    "/proc",
                    "/sys",
                    "/dev",
                    "/tmp",
                    "/run",
                    "/work",
                    rootfs.HOME,
                    "/var",
                ):
                    entry = tarfile.TarInfo(there.strip("/"))
                    entry.type = tarfile.DIRTYPE
                    entry.mode = 0o755
                    tar.addfile(entry)
                for link, target in (*links, ("/var/tmp", "../tmp")):
                    entry = tarfile.TarInfo(link.strip("/"))
                    entry.type = tarfile.SYMTYPE
                    entry.linkname = target
                    tar.addfile(entry)
            self.ask("import", "--change", f"LABEL {LABEL}=host", "-", name, stdin=blob.getvalue())
        return name

    def pull(self, image: str, say: Callable[[str], None]) -> None:
        """See that an image is here. One that could not be had is not asked for again in this
        process: raises Fault."""
        with self._pulling:
            if image in self._refused:
                raise self._refused[image]
            if self.has(image):
                return
            say(f"pulling {image}, once; `recreate clean` removes it")
            done = self.try_engine("pull", "--quiet", _address(image), seconds=None, proxies=True)
            if done.returncode == 0:
                self.ask("tag", image, second_name(image))
                return
            fault = Fault(
                f"the image {image} cannot be pulled: {_last(done.stderr)}",
                fix=_AGAIN.format(engine=self.name, image=image),
                code=IMAGE,
            )
            if self.try_engine("info").returncode == 0:  # else it is the engine that is gone
                self._refused[image] = fault
            raise fault

    def unpacked(self, where: str, target: Path, without: Collection[str]) -> str:
        """Unpack CONTAINER:FOLDER as it comes, but for what has one of these names: '' or what is
        wrong with it."""

        def take(tar: tarfile.TarFile, member: tarfile.TarInfo) -> None:
            names = {
                *member.name.split("/"),
                *(member.linkname.split("/") if member.islnk() else ()),
            }
            if names & {*without} or not (
                member.isreg() or member.isdir() or member.issym() or member.islnk()
            ):
                return
            for name in (member.name, *([member.linkname] if member.islnk() else ())):
                paths.member(target, name)
            ours = copy.copy(member)
            ours.uid = os.geteuid()
            ours.gid = os.getegid()
            ours.uname = ""
            ours.gname = ""
            ours.mode = member.mode & 0o755 | (0o700 if member.isdir() else 0o600)
            kind = "data_filter" if member.islnk() else "tar_filter"
            # there since Python 3.11.4
            tar.extraction_filter = getattr(tarfile, kind, lambda it, _: it)
            tar.extract(ours, target)

        argv = [self.program or self.name, "cp", where, "-"]
        wrong = ""
        with tempfile.TemporaryFile() as said:
            with subprocess.Popen(
                argv, stdout=subprocess.PIPE, stderr=said, env=self.env, start_new_session=True
            ) as it:
                try:
                    with tarfile.open(fileobj=it.stdout, mode="r|") as tar:
                        for member in tar:
                            take(tar, member)
                except (tarfile.TarError, KeyError, ValueError) as e:
                    wrong = f"it cannot be unpacked: {e}"
            said.seek(0)
            return _last(said.read()) if it.returncode > 0 else wrong

    def watched(self, session: Path) -> None:
        """See to it that containers of this session end with us, and that those of dead ones are
        gone."""
        with self._lock:
            if self._reaper is None or self._reaper.pid != os.getpid():
                self._reaper = Reaper(self, session)
                self._held = {}
                for name in self.abandoned():
                    self.try_engine("rm", "--force", name)

    def hold_container(self, image: str, sandbox: FolderSandbox) -> str:
        """The name of a container of an image that never starts: while it is there, so is the
        image."""
        with self._lock:
            held = self._held.get(image, "")
            # somebody may have pruned containers
            if not held or self.try_engine("container", "inspect", held).returncode:
                name = Container(self).name
                self.ask(
                    "create", "--name", name, *_labels(sandbox), "--network", "none", image, "true"
                )
                self._held[image] = name
            return self._held[image]

    def abandoned(self) -> list[str]:
        """The containers of sessions whose process has died."""
        form = (
            '{{.Names}} {{index .Labels "recreate.session"}}'
            if self.name == "podman"
            else ('{{.Names}} {{.Label "recreate.session"}}')
        )
        lines = self.ask("ps", "--all", "--filter", f"label={LABEL}", "--format", form).splitlines()
        found = (line.partition(" ")[::2] for line in lines)
        return [name for name, session in found if filesystem.abandoned(Path(session))]

    def images(self) -> dict[str, int]:
        """Every image that a recreate made or pulled: its name, and its size in bytes."""
        found: dict[str, int] = {}
        for line in self.ask("images", "--format", "{{.Repository}}:{{.Tag}}").splitlines():
            if line.startswith((PULLED, _HOST)):
                name = line if line.startswith(_HOST) else first_name(line)
                found[name] = int(self.about(line)["Size"])
        return found

    def forget(self, image: str, gone: Collection[str] = (), really: bool = True) -> bool:
        """Remove an image that a recreate made or pulled. False for one of which there is a
        container, `gone` aside.

        Its own name stays where a user gave it another one: then it is not ours alone."""
        ours = image if image.startswith(_HOST) else second_name(image)
        about = self.about(ours)
        form = ("--filter", f"ancestor={about['Id']}", "--format", "{{.Names}}")
        if set(self.ask("ps", "--all", *form).split()) - set(gone):
            return False
        if not really:
            return True
        tags = about.get("RepoTags") or []
        others = [
            tag for tag in tags if not tag.startswith((PULLED, _HOST)) and not _same(tag, image)
        ]
        for name in [ours] if others or ours == image else [ours, image]:
            if self.has(name):
                self.ask("rmi", name)
        return True


class Reaper:
    """A small process that waits for our end, and then removes the containers of our session. It
    stands apart from us, so that what kills us does not reach it."""

    def __init__(self, engine: ContainerEngine, session: Path) -> None:
        self.pid = os.getpid()
        # Three times when we were killed: one may have been on its way.
        script = (
            'waits="0 1 3"; read -r _ && waits=0\nfor wait in $waits; do sleep $wait\n"$1" ps --all'
            ' --quiet --filter "$2" | while read -r id; do "$1" rm --force "$id"; done; done'
        )
        argv = ["/bin/sh", "-c", script, "sh", engine.program, f"label={LABEL}.session={session}"]
        quiet: Any = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL, "cwd": "/"}
        with filesystem.ours("start what ends containers"):
            self._process = subprocess.Popen(
                argv, stdin=subprocess.PIPE, env=engine.env, start_new_session=True, **quiet
            )
        atexit.register(self.forget)

    def forget(self) -> None:
        """What there is to remove now is all there is."""
        if self.pid == os.getpid() and self._process.stdin and not self._process.stdin.closed:
            with contextlib.suppress(BrokenPipeError):
                self._process.communicate(b"done\n")


class Container:
    """What runs one command: its name is known before it is made."""

    def __init__(self, engine: ContainerEngine) -> None:
        self.engine = engine
        self.name = f"recreate-{os.getpid()}-{os.urandom(6).hex()}"

    def end(self) -> None:
        """Kill and remove it. Raises Fault when the engine does not say that it is gone."""
        done = self.engine.try_engine("rm", "--force", self.name)
        words = done.stderr.decode("utf-8", "replace").lower()
        if (
            done.returncode != 0
            and "no such container" not in words
            and "already in progress" not in words
        ):
            raise Fault(
                f"a container cannot be ended: {_last(done.stderr)}",
                fix="recreate clean",
                code="engine",
            )

    def pid(self) -> int | None:
        """The host's number of its first process, None where that is not told."""
        said = self.engine.try_engine(
            "inspect", "--format", "{{.State.Pid}}", self.name
        ).stdout.strip()
        return int(said) or None if said.isdigit() else None


class ContainerWatch(Watch):
    """Disk, watched by us; memory and processes are held by the engine."""

    def __init__(
        self,
        limits: Limits,
        folders: Sequence[Path],
        disk: DiskCount,
        container: Container,
        child: Child,
    ) -> None:
        super().__init__(limits, folders, None, walls=False, disk=disk)
        self._container = container
        self._child = child

    def inside(self, init: int | None) -> int | None:
        return self._container.pid()

    def last(self, output: Output) -> Output:
        output = super().last(output)
        starved = output.status and not output.limit and self._child.has_said(_STARVED)
        return output.model_copy(update={"limit": "memory"}) if starved else output


class ContainerSandbox(FolderSandbox):
    """A `recreate.api.ports.Sandbox` whose commands run in containers. Make one with a backend's
    `open`."""

    image = ""

    def __init__(
        self,
        backend: Containers,
        source: Path | None,
        mounts: Mapping[str, Path] | None,
        env: Mapping[str, str] | None,
        limits: Limits | None,
    ) -> None:
        self._backend = backend
        drop = os.geteuid() == 0
        super().__init__(
            backend,
            drop=drop,
            source=source,
            mounts=mounts,
            env=env,
            limits=limits,
            uid=_uid(backend.name),
        )

    def _shell(self, command: bytes) -> list[bytes]:
        if not self._backend.opens:
            return super()._shell(command)
        return [
            b"/bin/sh",
            b"-c",
            b'command -v bash >/dev/null && exec bash -c "$1"; exec sh -c "$1"',
            b"sh",
            command,
        ]

    def _grouped(self) -> Cgroup | None:
        return None  # the engine makes them

    _counts_processes = _counts_memory = True

    def bring(self, called: str, folder: str) -> None:
        """Make /work a copy of a folder of the image `called` so. What it takes comes on top of the
        limit of disk."""
        engine = self._backend.engine
        with filesystem.ours("copy a folder out of an image"):
            done = engine.try_engine(
                "cp",
                f"{engine.hold_container(self.image, self)}:{folder}/.",
                str(self.work),
                seconds=None,
            )
            if done.returncode != 0:
                raise Fault(f"{folder} of the image {called}: {_last(done.stderr)}", code=IMAGE)
            if self.owner is not None:
                for where, folders, names in os.walk(self.work):
                    for name in (".", *folders, *names):
                        os.chown(Path(where, name), self.owner, self.owner, follow_symlinks=False)
            more = (filesystem.usage([self.work], sys.maxsize) >> 20) + 1
        self.limits = self.limits.model_copy(update={"disk_mb": self.limits.disk_mb + more})

    def _started(
        self, inside: Sequence[bytes], stdin: bytes, kind: type[Child] = Child
    ) -> tuple[Child, Watch]:
        container = Container(self._backend.engine)
        argv = self._backend.command(self, container.name, inside)
        child = kind(
            self.backend,
            argv,
            stdin,
            self.limits.output_bytes,
            False,
            env=container.engine.env,
            end=container.end,
        )
        return child, ContainerWatch(self.limits, self._writable, self._disk, container, child)


class Containers:
    """A sandbox backend on a container engine. `name`: the engine's client; `opens`: the image that
    is opened, or ''.

    An image goes by its digest, so that it is the same one for as long as the backend lives."""

    name = ""
    own_namespaces = True
    opens = _called = _folder = ""
    _env: Mapping[str, str] = {}

    @property
    def engine(self) -> ContainerEngine:
        return _engine(self.name)

    @property
    def start(self) -> str:
        """See `recreate.api.ports.EngineBackend`."""
        return self.engine.start

    def sweep(self, really: bool) -> dict[str, list[JsonDict]]:
        """See `recreate.api.ports.EngineBackend`."""
        swept: dict[str, list[JsonDict]] = {"containers": [], "images": [], "in_use": []}
        if not self.engine.program:
            return swept
        try:
            gone = self.engine.abandoned()
            for name in gone:
                if really:
                    self.engine.ask("rm", "--force", name)
                swept["containers"].append({"engine": self.name, "name": name})
            for image, size in self.engine.images().items():
                row = {"engine": self.name, "name": image, "bytes": size}
                forgotten = self.engine.forget(image, gone, really=really)
                swept["images" if forgotten else "in_use"].append(row)
        except Fault as e:
            swept["faults"] = [{"engine": self.name, "message": e.message, "fix": e.fix}]
        return swept

    def probe(self) -> str:
        """'' when a container was really made, and holds what it should, else why not."""
        return _probed(self.name)

    def image(
        self, name: str, folder: str = "", say: Callable[[str], None] | None = None
    ) -> Containers:
        """See `recreate.api.ports.OpensImages`."""
        if not name.strip() or name.startswith("-") or any(c.isspace() for c in name):
            raise Fault(
                f"{name!r} is no name of an image", fix="name it as REPOSITORY:TAG", code=IMAGE
            )
        if why := self.probe():
            raise BadInput(
                f"the {self.name} sandbox does not work here: {why}",
                fix=self.engine.start,
                code="no-sandbox",
            )
        self.engine.pull(name, say or (lambda text: print(text, file=sys.stderr)))
        made = type(self)()
        about = self.engine.about(name)
        made.opens = about["Id"]
        made._called = name
        made._folder = folder.rstrip("/")
        made._env = dict(
            line.partition("=")[::2] for line in (about.get("Config") or {}).get("Env") or []
        )
        return made

    @property
    def digest(self) -> str:
        """See `recreate.api.ports.ImageBackend`."""
        return self.opens

    def copy(self, folder: str, target: Path, without: Collection[str] = ()) -> None:
        """See `recreate.api.ports.ImageBackend`."""
        with filesystem.ours("copy a folder out of an image"):
            target.mkdir(parents=True)
            with self._open_image(source=target) as sandbox:
                where = f"{self.engine.hold_container(self.opens, sandbox)}:{folder}/."
                if wrong := self.engine.unpacked(where, target, without):
                    raise Fault(f"{folder} of the image {self._called}: {wrong}", code=IMAGE)

    def open(
        self,
        *,
        source: Path | None = None,
        mounts: Mapping[str, Path] | None = None,
        env: Mapping[str, str] | None = None,
        limits: Limits | None = None,
    ) -> ContainerSandbox:
        """As the port says. Raises BadInput when the probe says no, Fault when the engine fails."""
        if why := self.probe():
            raise BadInput(
                f"the {self.name} sandbox does not work here: {why}",
                fix=self.engine.start,
                code="no-sandbox",
            )
        return self._open_image(source, mounts, env, limits)

    def _open_image(
        self,
        source: Path | None = None,
        mounts: Mapping[str, Path] | None = None,
        env: Mapping[str, str] | None = None,
        limits: Limits | None = None,
    ) -> ContainerSandbox:
        sandbox = ContainerSandbox(self, source, mounts, env, limits)
        try:
            self.engine.watched(sandbox.root.parent)
            sandbox.image = self.opens or self.engine.host_image()
            self.engine.hold_container(sandbox.image, sandbox)
            if source is None and self._folder:
                sandbox.bring(self._called, self._folder)
        except BaseException:
            sandbox.close()
            raise
        return sandbox

    def command(self, sandbox: ContainerSandbox, name: str, inside: Sequence[bytes]) -> list[bytes]:
        """The client's argv for a container that is called `name` and runs `inside`."""
        limits = sandbox.limits
        root = sandbox.root
        words = [
            self.engine.program,
            "run",
            "--name",
            name,
            *_labels(sandbox),
            "--interactive",
            "--pull",
            "never",
        ]
        words += [
            "--network",
            "none",
            "--read-only",
            "--ipc",
            "private",
            "--cgroupns",
            "private",
            "--hostname",
            "box",
        ]
        words += [
            "--cap-drop",
            "ALL",
            "--security-opt",
            "no-new-privileges",
            "--security-opt",
            "label=disable",
        ]
        words += [
            "--security-opt",
            f"seccomp={_filter(sandbox)}",
            "--log-driver",
            "none",
            "--stop-timeout",
            "0",
        ]
        words += [
            "--pids-limit",
            f"{limits.processes + 4}",
            "--user",
            f"{sandbox.uid}:{sandbox.uid if sandbox.owner else _group(self.name)}",
        ]
        words += ["--memory", f"{limits.memory_mb}m", "--memory-swap", f"{limits.memory_mb}m"]
        files = min(OPEN_FILES, _hard(resource.RLIMIT_NOFILE))
        words += ["--ulimit", f"nofile={files}:{files}"]
        processes = min(_ALL_OF_US, _hard(resource.RLIMIT_NPROC))
        words += ["--ulimit", f"nproc={processes}:{processes}"]
        words += ["--userns", "keep-id" if self.name == "podman" and os.geteuid() != 0 else "host"]
        words += ["--read-only-tmpfs=false", "--http-proxy=false"] if self.name == "podman" else []
        shown: dict[str, tuple[Path, bool]] = {}
        if not self.opens:
            for there in rootfs.top()[1]:
                shown[there] = Path(there), True
            shown["/etc"] = root / "etc", True
            for each in rootfs.etc():
                shown[f"/etc/{each}"] = Path("/etc", each), True
        for each in _SETUP:
            shown[f"/etc/{each}"] = root / "etc" / each, True
        for there, each in (
            ("/dev/shm", "shm"),
            ("/tmp", "tmp"),
            (rootfs.HOME, "home"),
            ("/work", "work"),
        ):
            shown[there] = root / each, False
        if self.opens:
            shown["/var/tmp"] = root / "tmp", False
        if self._folder:
            shown[self._folder] = root / "work", False
        for there, outside in sandbox.mounts.items():
            shown[there] = outside, True
        for there, (outside, fixed) in shown.items():
            words += ["--mount", _mount(there, outside, fixed)]
        words += ["--entrypoint", "/bin/sh", sandbox.image, "-c", _INIT, "sh"]
        return [os.fsencode(word) for word in words] + list(inside)

    def argv(self, sandbox: FolderSandbox, command: Sequence[bytes], given: int) -> list[bytes]:
        assert isinstance(sandbox, ContainerSandbox)
        return self.command(sandbox, Container(self.engine).name, command)

    def filter(self, sandbox: FolderSandbox) -> bytes:
        return b""

    def surroundings(self, sandbox: FolderSandbox) -> tuple[str, dict[str, str]]:
        """(the folder a command starts in, the environment that says where it may write; an image's
        own before it)."""
        return self._folder or "/work", {**self._env, "HOME": rootfs.HOME}


class Docker(Containers):
    """Containers made by docker."""

    name = "docker"


class Podman(Containers):
    """Containers made by podman."""

    name = "podman"


def second_name(image: str) -> str:
    return PULLED + base64.b32encode(image.encode()).decode().rstrip("=").lower() + ":latest"


def first_name(second: str) -> str:
    """What `second_name` was made of."""
    coded = second.removeprefix(PULLED).removesuffix(":latest").upper()
    return base64.b32decode(coded + "=" * (-len(coded) % 8)).decode()


@cache
def _engine(name: str) -> ContainerEngine:
    return ContainerEngine(name)


@cache
def _probed(name: str) -> str:
    backend = {"docker": Docker, "podman": Podman}[name]()
    engine = backend.engine
    if not engine.program:
        return f"the program {engine.name} is not installed"
    limits = Limits(seconds=60, memory_mb=256, processes=60)
    asked = (
        "cat /proc/self/status /proc/net/dev; cd /sys/fs/cgroup; cat memory.max pids.max"
        " memory/memory.limit_in_bytes"
    )
    try:
        with backend._open_image(limits=limits) as sandbox:
            output = sandbox.run(
                f"touch /work/a /tmp/a ~/a && {asked} pids/pids.max 2>/dev/null; true"
            )
    except Fault as e:
        return f"{e.message}; {engine.start}"
    closed = ("CapEff:\t0000000000000000", "NoNewPrivs:\t1", "Seccomp:\t2")
    if (
        output.status != 0
        or "eth0" in output.text
        or not all(words in output.text for words in closed)
    ):
        return f"a container was made but is not closed: {output.text[-200:]}"
    if not {str(256 << 20), "64"} <= set(output.text.split("\n")):
        return (
            "the engine holds neither memory nor processes of a container: it needs control groups"
            " (an ordinary user: version 2 of them, delegated by systemd)"
        )
    return ""


def _uid(engine: str) -> int:
    """Who a container's processes are when they get no identity of their own: us, by the number
    that is ours inside."""
    return 0 if engine == "docker" and os.geteuid() != 0 and _rootless() else os.geteuid()


def _group(engine: str) -> int:
    return os.getegid() if _uid(engine) else 0


@cache
def _rootless() -> bool:
    return "rootless" in _engine("docker").ask("info", "--format", "{{json .SecurityOptions}}")


def _labels(sandbox: FolderSandbox) -> list[str]:
    labels = {
        LABEL: "sandbox",
        f"{LABEL}.session": sandbox.root.parent,
        f"{LABEL}.workspace": paths.workspace(),
    }
    return [word for key, value in labels.items() for word in ("--label", f"{key}={value}")]


def _filter(sandbox: FolderSandbox) -> Path:
    """The system call filter of every backend, as engines read it."""
    file = sandbox.root / "filter.json"
    if not file.exists():
        with filesystem.ours("prepare a system call filter"):
            file.write_text(json.dumps(profile()))
    return file


def _mount(there: str, outside: Path, fixed: bool) -> str:
    if any(c in f"{there}{outside}" for c in ',"\n'):
        raise BadInput(
            f"{outside} cannot be mounted: a comma, a quote or a line break is in its path",
            code="bad-mount",
        )
    return f"type=bind,source={outside},destination={there}" + (",readonly" if fixed else "")


def _hard(which: int) -> int:
    hard = resource.getrlimit(which)[1]
    return sys.maxsize if hard == resource.RLIM_INFINITY else hard


def _address(image: str) -> str:
    """Where an image is pulled from: docker's hub, unless it names another registry. podman has no
    default."""
    registry, below, _ = image.partition("/")
    return (
        image
        if below and ("." in registry or ":" in registry or registry == "localhost")
        else f"docker.io/{image}"
    )


def _same(tag: str, image: str) -> bool:
    """Whether an engine's full name of an image is the one that was asked for."""
    wanted = image if ":" in image.rpartition("/")[2] else f"{image}:latest"
    return tag == wanted or tag.removeprefix("docker.io/").removeprefix("library/") == wanted


def _last(said: bytes) -> str:
    lines = said.decode("utf-8", "replace").strip().splitlines()
    return lines[-1][-500:] if lines else "it says nothing"
