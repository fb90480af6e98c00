"""One command, from start to the last of its processes.

How a command is started, in every backend:

    launcher  sh: joins the cgroup, keeps a spare of stderr for bwrap's report, execs the backend's
              own program
    backend   bwrap, unshare, or an engine's client: makes the sandbox and runs the shim inside;
              complains on stderr
    shim      sh, in the sandbox: sets the limits, prints READY on stderr, waits for a line on
              stdin, execs the command

The line is written once READY is seen, so: without READY the sandbox failed, not the command; a
recreate that dies before the line leaves a shim that reads end of file and exits; one that dies
later takes the sandbox with it, by the pdeathsig that the backend has set by then (a container by
`docker.Reaper`). Stdin carries the command's input after the line, and stderr joins stdout before
the command starts: no descriptor of ours is left open in the sandbox.
"""

from __future__ import annotations

import contextlib
import os
import queue
import re
import select
import shlex
import signal
import subprocess
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import IO, Any

from recreate.api.errors import Fault
from recreate.api.types import Output
from recreate.sandboxes import seccomp

READY = b"\x01ready\x01"
LAUNCH = {
    "PATH": "/usr/local/bin:/usr/bin:/bin:/usr/local/sbin:/usr/sbin:/sbin",
    "LANG": "C.UTF-8",
    "TERM": "dumb",
}
PATIENCE = 30.0
"""Seconds a backend may take to make its sandbox."""
_PATIENT_BYTES = 1 << 26

Check = Callable[[int | None], tuple[str, float]]
"""Given the pid of the sandbox's init (None: it is not known): the name of the limit that is
exceeded, or '', and when to look again, at the latest, in seconds. First asked when the command is
about to start."""


def shim(
    command: Sequence[bytes], env: Mapping[str, str], limits: Sequence[str], folder: str
) -> list[bytes]:
    """Return the argv that runs `command` inside a sandbox: see the module's picture."""
    exports = "".join(f"export {name}={shlex.quote(value)}\n" for name, value in env.items())
    script = (
        "".join(f"ulimit {limit} || exit 125\n" for limit in limits)
        + f"cd {shlex.quote(folder)} || exit 125\nunset OLDPWD\n"
        + "printf '\\001ready\\001' >&2\nread -r _ || exit 125\nexec 2>&1\n"
        + exports
        + 'exec "$@"\n'
    )
    return [b"/bin/sh", b"-c", os.fsencode(script), b"sh", *command]


def launcher(argv: Sequence[bytes], joins: Sequence[Path]) -> list[bytes]:
    """Return the argv that starts a backend: in the cgroups whose `joins` files are given, with
    descriptor 3 a copy of 2."""
    script = (
        "".join(f"echo 0 >{shlex.quote(str(file))} || exit 125\n" for file in joins)
        + 'exec "$@" 3>&2\n'
    )
    return [b"/bin/sh", b"-c", os.fsencode(script), b"sh", *argv]


class Tail:
    """The first and the last bytes of a stream, `keep` of them at most."""

    def __init__(self, keep: int) -> None:
        self.head = bytearray()
        self.room = keep - keep // 2
        self.last: deque[bytes] = deque()
        self.most = keep // 2
        self.held = 0
        self.cut = 0

    def add(self, data: bytes) -> None:
        if len(self.head) < self.room:
            taken = data[: self.room - len(self.head)]
            self.head += taken
            data = data[len(taken) :]
        if data:
            self.last.append(data)
            self.held += len(data)
            while self.held - len(self.last[0]) >= self.most and len(self.last) > 1:
                gone = self.last.popleft()
                self.held -= len(gone)
                self.cut += len(gone)

    def text(self) -> tuple[str, int]:
        """Return what is kept, with a line in the middle that says what is not, and the number of
        bytes cut."""
        last = b"".join(self.last)
        over = max(0, len(last) - self.most)
        cut = self.cut + over
        middle = f"\n[... {cut} bytes cut ...]\n".encode() if cut else b""
        return (bytes(self.head) + middle + last[over:]).decode("utf-8", "replace"), cut


class Child:
    """A started command. `finish` sees it through; `kill` may be called from another thread."""

    def __init__(
        self,
        backend: str,
        argv: Sequence[bytes],
        stdin: bytes,
        keep: int,
        ours: bool,
        give: int = -1,
        under: bytes = b"",
        env: Mapping[str, str] = LAUNCH,
        end: Callable[[], None] = lambda: None,
    ) -> None:
        """`ours`: the command has no pid namespace of its own, so it is ended by its process group.

        `give`: a descriptor that the backend reads, or -1. `under`: the system call filter to start
        it under, if any. `env`: the environment of the backend's own program. `end`: ends what is
        not below our child, a container.
        """
        self.backend = backend
        self.end = end
        self.stdin = memoryview(b"\n" + stdin)
        self.tail = Tail(keep)
        self.ours = ours
        self.init: int | None = None
        self._init_handle = -1
        self._said = bytearray()
        self._guard = threading.RLock()
        self._killed = False
        self._ready = False

        def start() -> subprocess.Popen[bytes]:
            return subprocess.Popen(
                argv,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                bufsize=0,
                cwd="/",
                env=env,
                start_new_session=True,
                pass_fds=[give] if give >= 0 else [],
            )

        try:
            self.process = seccomp.started(start, under) if under else start()
            self._handle = os.pidfd_open(self.process.pid)
        except OSError as e:
            raise Fault(f"cannot start the {backend} sandbox: {e}", code="sandbox-failed") from e

    def kill(self) -> None:
        """End every process of the command now. Safe at any time, also after `finish` has
        returned."""
        with self._guard:
            self._killed = True
            self._signal(self._init_handle)
            self._signal_group()
            self._signal(self._handle)
        self.end()

    def has_said(self, word: bytes) -> bool:
        """Whether the backend, or what it runs before and after the command, has put this on its
        own stderr."""
        return word in self._said

    def _signal(self, handle: int) -> None:
        if handle >= 0:
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(handle, signal.SIGKILL)

    def _signal_group(self) -> None:
        if self.ours and self.process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.process.pid, signal.SIGKILL)

    def finish(self, seconds: float, check: Check) -> Output:
        """Feed, read, watch and time the command until all of it is gone. Raises Fault when the
        sandbox failed.
        """
        try:
            try:
                return self._pump(seconds, check)
            finally:
                self.kill()
                self._gone()
        finally:
            for stream in self._streams():
                with contextlib.suppress(OSError):
                    stream.close()
            with self._guard:
                handles = (self._handle, self._init_handle)
                self._handle = -1
                self._init_handle = -1
                for handle in handles:
                    if handle >= 0:
                        os.close(handle)

    def _pump(self, seconds: float, check: Check) -> Output:
        """Feed, read and watch the command until it ends or reaches a limit."""
        feed, out, said = (stream.fileno() for stream in self._streams())
        poll = select.poll()
        for handle in (feed, out, said):
            os.set_blocking(handle, False)
        for handle in (out, said, self._handle):
            poll.register(handle, select.POLLIN)
        still_open: dict[int, Callable[[], bool]] = {
            out: lambda: self._read(out) != 0,
            said: lambda: self._listen(said) != 0,
            feed: self._feed,
        }
        began = time.monotonic()
        deadline = tick = began + PATIENCE
        limit = ""
        running = True
        while running:
            now = time.monotonic()
            if now >= deadline:
                limit = "seconds"
            elif self._ready and now >= tick:
                limit, pause = check(self.init)
                tick = now + pause
            if limit:
                break
            for handle, _ in poll.poll(max(1, (min(tick, deadline) - now) * 1000)):
                if handle == self._handle:
                    running = False
                elif not still_open[handle]():
                    poll.unregister(handle)
            if not self._ready and READY in self._said:
                self._ready = True
                self._find_init()
                _, pause = check(self.init)
                began = time.monotonic()
                deadline = began + seconds
                tick = began + pause
                if self._feed():
                    poll.register(feed, select.POLLOUT)
        self._end_rest(limit, out, said)
        return self._output(limit, time.monotonic() - began)

    def _end_rest(self, limit: str, out: int, said: int) -> None:
        """End what the command left behind, or all of it, and read what is left. Raises Fault when
        the sandbox never stood."""
        with self._guard:
            self._signal(self._init_handle)
            self._signal_group()
            if limit:
                self._signal(self._handle)
        self._gone()
        while self._read(out) > 0:
            pass
        while self._listen(said) > 0:
            pass
        if not self._ready and READY not in self._said:
            self._fail(bool(limit))

    def _output(self, limit: str, took: float) -> Output:
        text, cut = self.tail.text()
        if limit == "seconds":
            return Output(text=text, status=124, seconds=took, timed_out=True, cut=cut, limit=limit)
        code = self.process.wait()
        # unshare may end with 1 when the command in it is killed from another thread
        status = 137 if limit or self._killed else 128 - code if code < 0 else code
        return Output(text=text, status=status, seconds=took, cut=cut, limit=limit)

    def _gone(self) -> None:
        """Wait until the kernel has ended everything: an init is gone only after all of its
        namespace is."""
        for handle in (self._init_handle, self._handle):
            if handle >= 0:
                waiting = select.poll()
                waiting.register(handle, select.POLLIN)
                # a fork bomb on a busy machine ends slowly
                if not waiting.poll(4 * PATIENCE * 1000):
                    raise Fault(
                        f"processes of the {self.backend} sandbox cannot be killed",
                        code="sandbox-failed",
                    )
        with self._guard:
            self.process.wait()

    def _find_init(self) -> None:
        found = re.search(rb'"child-pid":\s*(\d+)', self._said)
        if found:
            # Still alive, and so the right one: the shim that is its child waits for our line.
            self.init = int(found[1])
            with contextlib.suppress(ProcessLookupError):
                self._init_handle = os.pidfd_open(self.init)
        if self._killed:
            self.kill()

    def _read(self, out: int) -> int:
        """Take what the command printed: the number of bytes, 0 at the end, -1 when there is
        nothing now."""
        try:
            data = os.read(out, 1 << 16)
        except BlockingIOError:
            return -1
        self.tail.add(data)
        if self.tail.cut > _PATIENT_BYTES:
            # nobody will read it: let the pipe hold the command back, not our processor
            time.sleep(0.001)
        return len(data)

    def _listen(self, said: int) -> int:
        try:
            data = os.read(said, 1 << 14)
        except BlockingIOError:
            return -1
        if len(self._said) < 1 << 16:
            self._said += data
        return len(data)

    def _feed(self) -> bool:
        """Write what fits; close after the last byte. Whether there is more to write."""
        stream = self._streams()[0]
        try:
            sent = os.write(stream.fileno(), self.stdin[: 1 << 16])
        except BlockingIOError:
            return True
        except BrokenPipeError:
            sent = len(self.stdin)
        self.stdin = self.stdin[sent:]
        if not self.stdin:
            stream.close()
        return bool(self.stdin)

    def _streams(self) -> tuple[IO[bytes], ...]:
        """Return stdin, stdout, stderr: all three are pipes."""
        return tuple(
            s
            for s in (self.process.stdin, self.process.stdout, self.process.stderr)
            if s is not None
        )

    def _fail(self, slow: bool) -> None:
        words = bytes(self._said).decode("utf-8", "replace").strip()[-500:]
        why = words or (
            f"not ready after {PATIENCE:.0f} s" if slow else f"exit code {self.process.returncode}"
        )
        raise Fault(
            f"the {self.backend} sandbox did not start: {why}",
            fix="recreate doctor shows what works here",
            code="sandbox-failed",
        )


LONGEST_LINE = 4 << 20
"""Bytes of one line that a program may print, and of all lines that nobody has taken yet: more ends
it."""


class Dialogue(Child):
    """A started program that goes on while lines are sent to it and taken from it. `go` sees it
    through."""

    def __init__(self, *args: Any, **more: Any) -> None:
        super().__init__(*args, **more)
        self.lines: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        self.ended: Output | Fault | None = None
        self._line = bytearray()
        self._waiting = 0
        self._sending = threading.Lock()
        self._fed = threading.Event()
        self._thread: threading.Thread | None = None

    def go(self, seconds: float, check: Check, over: Callable[[], None]) -> None:
        """See it through on a thread of its own; `over` is called when all of it is gone."""

        def through() -> None:
            try:
                self.ended = self.finish(seconds, check)
            except Fault as e:
                self.ended = e
            finally:
                over()
                self._fed.set()
                self.lines.put(None)

        self._thread = threading.Thread(target=through, name="talk", daemon=True)
        self._thread.start()

    def send(self, line: bytes, seconds: float) -> bool:
        """Write a line; False when the program is gone, or took none of it for so long. Raises
        Fault when the sandbox failed."""
        data = memoryview(line + b"\n")
        ends = time.monotonic() + seconds
        with self._sending:
            self._fed.wait(seconds)  # the first line is the shim's
            while data:
                if isinstance(self.ended, Fault):
                    raise self.ended
                stream = self.process.stdin
                if (
                    not self._fed.is_set()
                    or stream is None
                    or stream.closed
                    or self.ended is not None
                    or time.monotonic() >= ends
                ):
                    return False
                try:
                    data = data[os.write(stream.fileno(), data[: 1 << 16]) :]
                except BlockingIOError:
                    time.sleep(0.005)
                except (OSError, ValueError):
                    return False
        return True

    def take(self, seconds: float) -> bytes | None:
        """Return the next line, None when none came for so long or none will."""
        try:
            line = self.lines.get(timeout=max(0.0, seconds))
        except queue.Empty:
            return None
        if line is None:
            self.lines.put(None)
            if isinstance(self.ended, Fault):
                raise self.ended
            return None
        with self._guard:
            self._waiting -= len(line)
        return line

    def close(self) -> None:
        """End it, and wait until it is gone. Safe to call twice."""
        self.kill()
        if self._thread is not None:
            self._thread.join()

    def _feed(self) -> bool:
        """Write the line that starts the command, and keep its input open."""
        stream = self._streams()[0]
        try:
            self.stdin = self.stdin[os.write(stream.fileno(), self.stdin) :]
        except BlockingIOError:
            return True
        except BrokenPipeError:
            return False
        if not self.stdin:
            self._fed.set()
        return bool(self.stdin)

    def _read(self, out: int) -> int:
        try:
            data = os.read(out, 1 << 16)
        except BlockingIOError:
            return -1
        *whole, rest = (bytes(self._line) + data).split(b"\n")
        self._line = bytearray(rest)
        with self._guard:
            self._waiting += sum(map(len, whole))
            flood = max(self._waiting, len(rest)) > LONGEST_LINE
        for line in whole if not flood else ():
            self.lines.put(line)
        if flood:
            self._line.clear()
            self.kill()
        return len(data)
