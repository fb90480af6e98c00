"""A model on this machine: `local:NAME` of the catalogue, or `local:/FILE.gguf`.

One llama.cpp server per file is started at the first call, as a child process on a free loopback port, shared by
every `Local` of this process that wants the same, and stopped with the last of them, at exit, or by the kernel
when this process is killed. Requests go through the thin client of `recreate.models.openai`.
"""

from __future__ import annotations

import atexit
import contextlib
import json
import os
import re
import select
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from recreate.api.errors import BadInput, Fault, Transient
from recreate.api.ports import Price
from recreate.api.registry import need
from recreate.api.types import Call, Message, Reply
from recreate.models import catalog
from recreate.models.openai import OpenAI
from recreate.models.pricing import FREE
from recreate.storage.download import Progress

START_SECONDS = 180.0
"""How long loading may take: a file not in the page cache is read from the disk."""

TIMEOUT_SECONDS = 1800.0
"""A small machine is slow, and with more callers than slots a request first waits in the server."""

MOST_SLOTS = 4
"""Requests served at once, at most, by default. On 2 cores a warm request of the 1.5B model took 7.0, 6.1 and 4.9
CPU seconds with 1, 2 and 4 slots; each slot computes a new prefix once, and holds a context of its own."""

SPIN = {"GOMP_SPINCOUNT": "2000"}
"""Waiting threads spin for ever by default: fast alone, but on shared cores two threads then make 1 token a second
instead of 20. A short spin, then sleep, is as fast alone and bears neighbours."""

_SECRET = re.compile(r"(KEY|TOKEN|SECRET|PASSWORD|PASSWD|CREDENTIALS?)S?$", re.IGNORECASE)


class Local:
    """jobs: how many callers there will be; threads: 0 for all cores; context: tokens per request;
    parallel: requests served at once (default: as many as `jobs`, up to MOST_SLOTS)."""

    price: Price | None = FREE
    native_tools = False  # a server may offer them; what models of this size put into them is not relied on

    def __init__(
        self,
        what: str | Path,
        *,
        price: Price | None = None,
        jobs: int = 1,
        threads: int = 0,
        context: int | None = None,
        parallel: int | None = None,
        timeout: float = TIMEOUT_SECONDS,
    ) -> None:
        text = str(what)
        self.name = f"local:{text}"
        self.timeout = timeout
        self._entry: catalog.Entry | None = None
        if "/" in text or text.endswith(".gguf"):
            self._file = Path(text).expanduser().resolve()
            check_gguf(self._file)
            default = 8192
        else:
            self._entry = catalog.entry(text)
            self._file = self._entry.path
            default = self._entry.context
        self.threads = max(1, threads or cores())
        self.parallel = max(1, parallel or min(jobs, MOST_SLOTS))
        self.context = context or default
        self._lock = threading.Lock()
        self._server: _Server | None = None
        self._closed = False

    def describe(self) -> dict[str, Any]:
        """What runs: file, threads, parallel, context (tokens per request), url, pid (empty before the start)."""
        server = self._server
        return {
            "model": self.name,
            "file": str(self._file),
            "threads": self.threads,
            "parallel": self.parallel,
            "context": self.context,
            "url": server.url if server else "",
            "pid": server.pid if server else 0,
        }

    def prepare(self, progress: Progress | None = None, say: Callable[[str], None] | None = None) -> None:
        """Fetch the weights where needed and start the server: `reply` does it too, but shows no progress."""
        self._up(progress, say)

    def reply(self, messages: Sequence[Message], call: Call, **params: Any) -> Reply:
        """One answer; see `recreate.api.ports.Model`. A server that died is started anew by the next call."""
        server = self._up()
        params.setdefault("timeout", self.timeout)
        try:
            reply = server.client.reply(messages, call, **params)
        except Transient as e:
            if server.alive():
                raise
            with self._lock:
                if self._server is server:
                    self._server = None
                    _release(server)
            raise Transient(
                f"the llama.cpp server of {self.name} ended with status {server.status()}{server.last_words()}",
                fix="the next call starts it again; if it goes on, is there enough memory for the model?",
                code="server-died",
            ) from e
        return reply.model_copy(update={"model": self.name})

    def close(self) -> None:
        with self._lock:
            server, self._server = self._server, None
            self._closed = True
        if server is not None:
            _release(server)

    def _up(self, progress: Progress | None = None, say: Callable[[str], None] | None = None) -> _Server:
        with self._lock:
            if self._closed:
                raise Fault(f"{self.name} was closed", fix="open it again", code="closed")
            if self._server is None:
                if self._entry is not None:
                    self._file = catalog.fetch_model(self._entry.name, progress, say)
                self._server = _share(self._file, self.threads, self.parallel, self.context)
            return self._server


class _Server:
    """The child process, and a client for it."""

    def __init__(self, file: Path, threads: int, parallel: int, context: int) -> None:
        self.file = file
        self.users = 0
        self.url = ""
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115  closed in stop()
        self._ended = threading.Event()
        self._process: subprocess.Popen[bytes]
        command = [sys.executable, "-m", "recreate.models.llama_server", "--model", str(file), "--alias", file.stem]
        command += ["--threads", str(threads), "--parallel", str(parallel), "--context", str(context)]
        begun = threading.Event()
        failed: list[OSError] = []

        def keep() -> None:
            # The kernel ends the child with the thread that started it, so that thread has to live as long.
            try:
                self._process = subprocess.Popen(
                    command,
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=self._errors,
                    env=_environment(),
                    start_new_session=True,
                )
            except OSError as e:
                failed.append(e)
                begun.set()
                return
            begun.set()
            self._process.wait()
            self._ended.set()

        threading.Thread(target=keep, name=f"llama.cpp {file.name}", daemon=True).start()
        begun.wait()
        if failed:
            raise Fault(
                f"the llama.cpp server cannot be started: {failed[0]}", fix="is memory left?", code="server-died"
            )
        self.pid = self._process.pid
        try:
            self.url = self._await_url()
            self.client = OpenAI(f"{self.url}#{file.stem}", price=FREE, key_env="")
        except BaseException:
            self.stop()
            raise

    def alive(self) -> bool:
        # A process that was killed closes its connections a moment before it can be waited for.
        return not self._ended.wait(0.5)

    def status(self) -> int | None:
        return self._process.returncode

    def last_words(self) -> str:
        """The last lines of the child's stderr, to be appended to a message."""
        try:
            self._errors.seek(0, os.SEEK_END)
            self._errors.seek(max(0, self._errors.tell() - 4000))
            lines = self._errors.read().decode("utf-8", "replace").strip().splitlines()
        except (OSError, ValueError):
            return ""
        return "; its last words: " + " | ".join(line.strip() for line in lines[-8:]) if lines else ""

    def stop(self) -> None:
        """Closing its stdin ends it at once; what is left of its process group after 3 s is killed."""
        if self.url:
            self.client.close()
        with contextlib.suppress(OSError):
            if self._process.stdin:
                self._process.stdin.close()
        if not self._ended.wait(3.0):
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.pid, signal.SIGKILL)
            self._ended.wait(10.0)
        if self._process.stdout:
            self._process.stdout.close()
        self._errors.close()

    def _await_url(self) -> str:
        assert self._process.stdout is not None
        out, line, end = self._process.stdout.fileno(), b"", time.monotonic() + START_SECONDS
        ready = select.poll()  # select.select stops at 1024 open files
        ready.register(out, select.POLLIN)
        while not line.endswith(b"\n"):
            left = end - time.monotonic()
            if left <= 0:
                raise Fault(
                    f"llama.cpp did not load {self.file.name} within {START_SECONDS:g} s{self.last_words()}",
                    fix="is the machine busy, or its memory full?",
                    code="server-slow",
                )
            if not ready.poll(1000 * min(left, 1.0)):
                continue
            piece = os.read(out, 4096)
            if not piece:
                self._ended.wait(5.0)
                raise Fault(
                    f"llama.cpp could not serve {self.file} (status {self.status()}){self.last_words()}",
                    fix="is it a model that llama.cpp reads, and is there memory for it?",
                    code="server-died",
                )
            line += piece
        return str(json.loads(line)["url"])


_servers: dict[tuple[Path, int, int, int], _Server] = {}
_lock = threading.Lock()


def _share(file: Path, threads: int, parallel: int, context: int) -> _Server:
    key = (file, threads, parallel, context)
    with _lock:
        server = _servers.get(key)
        if server is None or server.status() is not None:
            need("xllamacpp")  # imported here only to name the extra when it is missing
            server = _servers[key] = _Server(file, threads, parallel, context)
        server.users += 1
        return server


def _release(server: _Server) -> None:
    with _lock:
        server.users -= 1
        if server.users > 0:
            return
        for key in [k for k, s in _servers.items() if s is server]:
            del _servers[key]
    server.stop()


@atexit.register
def _stop_all() -> None:
    with _lock:
        left = list(_servers.values())
        _servers.clear()
    for server in left:
        server.stop()


def cores() -> int:
    """How many this process may use."""
    return len(os.sched_getaffinity(0))


def _environment() -> dict[str, str]:
    """Ours without keys, and with the place this package is imported from."""
    env = {**SPIN, **{k: v for k, v in os.environ.items() if not _SECRET.search(k)}}
    here = str(Path(__file__).resolve().parents[2])
    env["PYTHONPATH"] = os.pathsep.join(p for p in (here, env.get("PYTHONPATH", "")) if p)
    return env


def check_gguf(file: Path) -> None:
    """Raises BadInput for what is no .gguf file (`unknown-model`, `bad-model-file`)."""
    try:
        with file.open("rb") as f:
            magic = f.read(4)
    except OSError as e:
        raise BadInput(
            f"the model file {file} cannot be read: {e.strerror}",
            fix=f"name a .gguf file, or a model of the catalogue: {', '.join(catalog.catalog())}",
            code="unknown-model",
        ) from None
    if magic != b"GGUF":
        raise BadInput(f"{file} is not a GGUF file", fix="convert it with llama.cpp's tools", code="bad-model-file")
