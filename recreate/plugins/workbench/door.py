"""The way from the commands inside a folder's sandbox to the desk outside: a Unix socket that is
mounted there, with the commands beside it."""

from __future__ import annotations

import contextlib
import json
import shutil
import socketserver
import tempfile
import threading
from collections.abc import Callable, Mapping
from importlib.resources import files
from pathlib import Path
from typing import Any, NamedTuple

from recreate.api.errors import Fault
from recreate.api.shapes import JsonDict

COMMANDS = ("recall", "inspect", "regrade", "rehearse", "check", "finish")
MOST_BYTES = 16 * 2**20
"""Of one question: the agent's files go along."""


class CommandCall(NamedTuple):
    """A command that was called inside. agent: the agent's files as they stand; odd: files of it
    that are none of an agent's, and why; causes: causes.md."""

    command: str
    arguments: tuple[str, ...]
    agent: Mapping[str, str]
    odd: Mapping[str, str]
    causes: str


class CommandAnswer(NamedTuple):
    """What the command prints, its exit status, and files that it writes into the folder."""

    text: str
    status: int = 0
    files: Mapping[str, str] = {}


class Door:
    """Use as a context manager; `folder` is to be mounted at one place in the sandbox. Questions
    are answered one after the other."""

    def __init__(self, answer: Callable[[CommandCall], CommandAnswer]) -> None:
        self.answer = answer
        self.line = threading.Lock()

    def __enter__(self) -> Door:
        try:
            self._private = Path(tempfile.mkdtemp(prefix="recreate-"))
            if len(str(self._private)) > 80:  # the kernel's bound on the name of a socket
                self._private.rmdir()
                self._private = Path(tempfile.mkdtemp(prefix="recreate-", dir="/tmp"))
            self.folder = self._private / "desk"
            (self.folder / "bin").mkdir(parents=True)
            program = (files("recreate.plugins.workbench") / "client.py").read_bytes()
            for name in COMMANDS:
                path = self.folder / "bin" / name
                path.write_bytes(program)
                path.chmod(0o755)
            self._server = _DoorServer(str(self.folder / "desk.sock"), self._handler())
            (self.folder / "desk.sock").chmod(0o666)  # who is inside has another number
            for folder in (self.folder, self.folder / "bin"):
                folder.chmod(0o755)
        except OSError as e:
            fix = "make room in the folder for temporary files"
            raise Fault(f"the folder's commands cannot be made: {e}", fix=fix) from e
        threading.Thread(
            target=self._server.serve_forever, args=(0.05,), name="desk", daemon=True
        ).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        shutil.rmtree(self._private, ignore_errors=True)

    def _handler(self) -> type[socketserver.StreamRequestHandler]:
        door = self

        class DoorHandler(socketserver.StreamRequestHandler):
            def handle(self) -> None:
                with contextlib.suppress(OSError):
                    line = self.rfile.readline(MOST_BYTES + 1)
                    self.wfile.write(json.dumps(door.reply(line)).encode("utf-8", "replace"))

        return DoorHandler

    def reply(self, line: bytes) -> JsonDict:
        """Return the answer to a line, whatever stands in it."""
        if len(line) > MOST_BYTES:
            answer = CommandAnswer("agent/ is too large: make its files smaller", 1)
        elif (asked := read_asked(line)) is None:
            answer = CommandAnswer("this is no question of the folder's commands", 1)
        else:
            with self.line:
                answer = self.answer(asked)
        return {"text": answer.text, "status": answer.status, "files": dict(answer.files)}


class _DoorServer(socketserver.ThreadingMixIn, socketserver.UnixStreamServer):
    daemon_threads = True
    request_queue_size = 64

    def handle_error(self, *_: Any) -> None:
        """Leave a broken connection to who broke it."""


def read_asked(line: bytes) -> CommandCall | None:
    """Return the question in a line; None where it is none. Whoever is inside writes what they
    like."""
    try:
        found = json.loads(line)
        agent, odd = ({str(k): str(v) for k, v in found[key].items()} for key in ("agent", "odd"))
        command, causes = str(found["command"]), str(found["causes"])
        return CommandCall(command, tuple(map(str, found["arguments"])), agent, odd, causes)
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        return None
