"""One vector of each experience and lesson, in Chroma: what answers by meaning.

Chroma runs in a process of its own (chroma_engine.py), one for each process that recalls. It is not
asked whether it is sound, because it does not know: a process that has its folder open answers from
stale memory after another has written, and a garbled HNSW file kills the process or is taken as it
is. So `state` records a checksum of each of its files after every write; the files are compared
before Chroma opens them, and a version number tells other processes to open them again. Vectors are
known to it by the numbers of their sources.
"""

from __future__ import annotations

import array
import atexit
import base64
import contextlib
import json
import os
import select
import shutil
import subprocess
import sys
import threading
import zlib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, TypedDict

from recreate.api import registry
from recreate.api.errors import BadInput, Fault, Missing
from recreate.api.registry import need
from recreate.storage.files import make

BATCH = 1024
"""Vectors given to Chroma at once."""

KEPT = 4
"""Folders that are open at once."""

PATIENCE = 120
"""Seconds after which an answer of Chroma is not waited for any longer."""


class ChromaState(TypedDict):
    """What is on record of Chroma's folder. upto: it holds the sources numbered below; files: size,
    ns, CRC-32."""

    folder: str
    version: int
    upto: int
    count: int
    writing: bool
    files: dict[str, tuple[int, int, int]]


class Broken(Exception):
    """Chroma, or what it stored, cannot be trusted."""


def require() -> None:
    """Raises Missing without Chroma's package."""
    if not registry.installed("chromadb"):
        raise registry.missing("chromadb") or Missing("this needs the package chromadb")


def library() -> Any:
    """chromadb, whatever the environment says.

    While it is imported it reads a `.env` of the current folder and variables as common as
    ALLOW_RESET, which may be another program's: where it cannot read them it is imported without.
    Not always without: a program that uses us may use Chroma too, by its own `.env`.
    """
    try:
        return need("chromadb")
    except Missing:
        raise
    except BadInput:
        settings: Any = need("pydantic_settings")
        theirs = settings.BaseSettings

    def init(self: Any, **given: Any) -> None:
        theirs.__init__(self, **{**given, "_env_file": None})

    def sources(_: Any, __: Any, /, *, init_settings: Any, **_others: Any) -> tuple[Any]:
        return (init_settings,)

    for name in [name for name in sys.modules if name.partition(".")[0] == "chromadb"]:
        del sys.modules[name]  # half imported, by the class of before
    told = {
        "__module__": __name__,
        "__init__": init,
        "settings_customise_sources": classmethod(sources),
    }
    settings.BaseSettings = type("BaseSettings", (theirs,), told)
    try:
        return need("chromadb")
    finally:
        settings.BaseSettings = theirs


class _Process:
    """Chroma's process, for this one. It is started when it is first asked, ends when nothing is
    open in it, and starts again after it died; a forked child leaves its parent's alone and has its
    own."""

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.running: subprocess.Popen[str] | None = None
        self.open: dict[Path, int] = {}  # folder -> the version that is open there
        os.register_at_fork(after_in_child=self._forked)

    def ask(self, do: str, folder: Path, **more: Any) -> Any:
        """The answer to one request. Raises Broken, Missing, and Fault when the disk is full."""
        with self.lock:
            try:
                reply = self._said({"do": do, "folder": str(folder), **more})
            except (OSError, ValueError) as e:
                self.end()
                raise Broken("its process died") from e
            except BaseException:
                self.end()  # an answer that nobody read would be taken for the next one's
                raise
            if "error" not in reply:
                return reply["answer"]
            self.open.pop(folder, None)
            if reply["missing"]:
                raise registry.missing("chromadb") or Missing(
                    f"chromadb cannot be used: {reply['error']}"
                )
            if "disk is full" in reply["error"]:
                raise Fault(
                    f"the disk that holds {folder} is full",
                    fix=f"free some space there: df -h {folder}",
                    code="disk-full",
                )
            raise Broken(reply["error"])

    def kept(self, folder: Path, version: int) -> None:
        """A folder is open in this version, now the last one used; of too many the first is let
        go."""
        with self.lock:
            self.open.pop(folder, None)
            self.open[folder] = version
            while len(self.open) > KEPT:
                self.close(next(iter(self.open)))

    def close(self, folder: Path) -> None:
        """Let go of a folder's files."""
        with self.lock:
            if self.open.pop(folder, None) is not None and self.running is not None:
                with contextlib.suppress(Broken, Missing, Fault):
                    if not self.ask("close", folder):
                        self.end()

    def end(self) -> None:
        with self.lock:
            running, self.running = self.running, None
            self.open.clear()
            if running is not None:
                running.kill()
                running.wait()
                for pipe in (running.stdin, running.stdout):
                    with contextlib.suppress(OSError):
                        pipe.close()  # type: ignore[union-attr]

    def _said(self, request: dict[str, Any]) -> Any:
        if self.running is None or self.running.poll() is not None:
            self.end()
            require()
            self.running = subprocess.Popen(
                [
                    sys.executable,
                    str(Path(__file__).with_name("chroma_engine.py")),
                    json.dumps(sys.path),
                ],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                text=True,
                encoding="utf-8",
                start_new_session=True,  # Ctrl-C is for us: it would leave half a write
            )
        assert self.running.stdin is not None
        assert self.running.stdout is not None
        self.running.stdin.write(json.dumps(request) + "\n")
        self.running.stdin.flush()
        waiting = select.poll()
        waiting.register(self.running.stdout, select.POLLIN)
        if not waiting.poll(PATIENCE * 1000):
            raise TimeoutError(PATIENCE)
        return json.loads(self.running.stdout.readline())

    def _forked(self) -> None:
        self.lock = threading.RLock()  # another thread may have held it
        running, self.running = self.running, None
        self.open.clear()
        if running is not None:
            for pipe in (running.stdin, running.stdout):
                assert pipe is not None
                os.close(pipe.fileno())
                _LEFT.append(pipe)
            running.returncode = 0  # not our child: nobody waits for it
            _LEFT.append(running)


_LEFT: list[object] = []
"""What a forked child has of its parent's and must not close again."""

PROCESS = _Process()
atexit.register(PROCESS.end)


class Chroma:
    """One collection under `folder` (memory/index). The caller holds the lock; `save` puts the
    state on record."""

    def __init__(self, folder: Path, save: Callable[[ChromaState | None], None]) -> None:
        self.folder = folder
        self.save = save

    def sound(self, state: ChromaState, *, thorough: bool) -> bool:
        """Whether Chroma's files are what was written last; by size and time, and by checksum where
        those differ."""
        if state["writing"]:
            return False
        try:
            found = dict(_files(self.folder / state["folder"]))
            if set(found) != set(state["files"]):
                return False
            for name, (size, mtime, sum_) in state["files"].items():
                if found[name].st_size != size:
                    return False
                path = self.folder / state["folder"] / name
                if (thorough or found[name].st_mtime_ns != mtime) and checksum(path) != sum_:
                    return False
        except (KeyError, TypeError, ValueError, OSError):
            return False
        return True

    def nearest(
        self,
        state: ChromaState,
        vector: Sequence[float],
        n: int,
        among: Sequence[int] | None = None,
    ) -> list[tuple[int, float]]:
        """(number, cosine) of the n nearest, nearest first; `among` these numbers, where given.
        Raises Broken."""
        state = self._open(state)
        ids = None if among is None else [str(number) for number in among]
        path = self.folder / state["folder"]
        found, distances = PROCESS.ask("query", path, vector=_packed(vector), n=n, ids=ids)
        return [(int(id), 1 - distance) for id, distance in zip(found, distances, strict=True)]

    def put(
        self,
        state: ChromaState | None,
        upto: int,
        numbers: Sequence[int],
        vectors: Sequence[Sequence[float]],
    ) -> ChromaState:
        """Take vectors in. Raises Broken, Fault when the disk is full."""
        state = self._new() if state is None else self._open(state)
        self.save({**state, "writing": True, "files": {}})
        path = self.folder / state["folder"]
        for start in range(0, len(numbers), BATCH):
            part = slice(start, start + BATCH)
            ids = [str(number) for number in numbers[part]]
            PROCESS.ask("put", path, ids=ids, vectors=[_packed(vector) for vector in vectors[part]])
        count = state["count"] + len(numbers)
        return self._mark({**state, "upto": upto, "count": count, "version": state["version"] + 1})

    def discard(self) -> None:
        """Forget Chroma's files."""
        self.close()
        self.save(None)
        for old in self.folder.glob("chroma-*"):
            shutil.rmtree(old, ignore_errors=True)

    def close(self) -> None:
        for folder in [folder for folder in PROCESS.open if folder.parent == self.folder]:
            PROCESS.close(folder)

    def _open(self, state: ChromaState) -> ChromaState:
        path = self.folder / state["folder"]
        known = PROCESS.open.get(path) == state["version"]
        if not self.sound(state, thorough=not known):
            raise Broken("its files are not what was written last")
        if known:
            return state
        if PROCESS.ask("open", path) != state["count"]:
            raise Broken("it holds another number of vectors than were written")
        return self._mark(state)  # opening touches Chroma's files

    def _new(self) -> ChromaState:
        self.discard()
        name = f"chroma-{os.urandom(4).hex()}"  # never a path this process had open
        make(self.folder / name)
        PROCESS.ask("open", self.folder / name)
        return {"folder": name, "version": 0, "upto": 0, "count": 0, "writing": True, "files": {}}

    def _mark(self, state: ChromaState) -> ChromaState:
        """Put on record what Chroma's files are now."""
        folder = self.folder / state["folder"]
        found = sorted(_files(folder), key=lambda each: each[0])
        files = {
            name: (stat.st_size, stat.st_mtime_ns, checksum(folder / name)) for name, stat in found
        }
        state = {**state, "writing": False, "files": files}
        PROCESS.kept(folder, state["version"])
        self.save(state)
        return state


def checksum(path: Path) -> int:
    """The CRC-32 of a file."""
    sum_ = 0
    with path.open("rb") as file:
        while block := file.read(1 << 22):
            sum_ = zlib.crc32(block, sum_)
    return sum_


def _packed(vector: Sequence[float]) -> str:
    return base64.b64encode(array.array("f", vector).tobytes()).decode()


def _files(folder: Path, prefix: str = "") -> Iterator[tuple[str, os.stat_result]]:
    """The files in a folder and below, by their path in it."""
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.is_dir():
                yield from _files(folder / entry.name, f"{prefix}{entry.name}/")
            else:
                yield prefix + entry.name, entry.stat()
