"""One session in a folder: our own loop over an endpoint, with a shell and an edit of a file.

Whoever else works there (`FolderWorker`) gets the same sandbox, with the commands on PATH.
"""

from __future__ import annotations

import contextlib
import tempfile
import threading
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Protocol

from recreate.agents.scaffold import Scaffold
from recreate.agents.template import filled
from recreate.api.errors import BadInput, Fault, Interrupted
from recreate.api.ports import Limits, Sandbox, SandboxBackend
from recreate.api.shapes import JsonDict
from recreate.api.types import Experience, Message, Output, Study
from recreate.optimizers.context import OptimizerContext
from recreate.optimizers.investigator.conversation import Talk, Tool, Wrong, text
from recreate.optimizers.investigator.study import read_study, save_study
from recreate.plugins.workbench.desk import FolderDesk
from recreate.plugins.workbench.door import Door
from recreate.plugins.workbench.edits import stands_once
from recreate.plugins.workbench.folder import PROMPTS, list_files, write_folder
from recreate.storage.log import Log
from recreate.storage.redact import redact

INSIDE = "/desk"
SECONDS = 120.0
"""Of one shell command that calls none of the folder's commands."""
WAITING = 3600.0
"""Of one that does: attempts are made meanwhile."""
WAITS = ("inspect", "regrade", "rehearse", "check", "finish")
FIRST_CHARS = 60_000
"""Characters of the folder's files that the first message has."""
LIMITS = Limits(seconds=WAITING, cpu_seconds=600, memory_mb=2048, processes=256, disk_mb=512)


class FolderWorker(Protocol):
    """Who works in a folder until its desk has a result."""

    def __call__(self, room: Workroom, /) -> tuple[str, str]:
        """Return how it ended (finished, limit or prose) and by what. Raises what stops a run."""


class Workroom:
    """A folder with its desk, for one session.

    bin: where the commands lie inside, to be put on PATH; study: the session's record, as far as it
    is known; texts: the folder's files as they were given.
    """

    def __init__(
        self,
        context: OptimizerContext,
        desk: FolderDesk,
        door: Door,
        study: Study,
        texts: Mapping[str, str],
    ) -> None:
        assert context.backend is not None
        self.context = context
        self.backend: SandboxBackend = context.backend
        self.desk = desk
        self.door = door
        self.study = study
        self.texts = texts
        self.opened: list[Sandbox] = []

    @property
    def bin(self) -> str:
        return f"{INSIDE if self.backend.name != 'none' else self.door.folder}/bin"

    def open(self, mounts: Mapping[str, Path] | None = None) -> Sandbox:
        """Return a sandbox with the folder in it; it is closed with the session. mounts: what it
        sees besides, path inside -> path outside."""
        walls = self.backend.name != "none"
        every = {INSIDE: self.door.folder, **(mounts or {})} if walls else {}
        with tempfile.TemporaryDirectory(prefix="recreate-") as place:
            write_folder(Path(place), self.texts)
            self.opened.append(self.backend.open(source=Path(place), mounts=every, limits=LIMITS))
        return self.opened[-1]

    @cached_property
    def sandbox(self) -> Sandbox:
        """The one that `shell` and `edit` work in."""
        return self.open()

    def note(self, action: str, output: str, status: int) -> None:
        """Write down what somebody else's program did, beside the session's record."""
        if self.context.folder is not None:
            file = self.context.folder / self.study.id / "steps.jsonl"
            file.parent.mkdir(parents=True, exist_ok=True)
            with contextlib.closing(Log(file)) as log:
                log.append({"step": 0, "action": action, "output": output, "status": status})

    def run(self, sandbox: Sandbox, command: str | Sequence[str], seconds: float) -> Output:
        """Run a command that may take long. When the run is stopped meanwhile, what runs is ended,
        and Interrupted is raised."""
        stop = self.context.stop or threading.Event()
        over = threading.Event()

        def watch() -> None:
            while not over.wait(0.5):
                if stop.is_set():
                    sandbox.close()
                    return

        threading.Thread(target=watch, name="stopping", daemon=True).start()
        try:
            return sandbox.run(command, timeout=seconds)
        finally:
            over.set()
            if stop.is_set():
                raise Interrupted("stopped")

    def shell(self, command: str) -> str:
        """Run a command in the folder; return what it printed. Raises what stops the run."""
        waits = any(word in command for word in WAITS)
        line = f'export PATH="{self.bin}:$PATH"\n{command}'
        output = self.run(self.sandbox, line, WAITING if waits else SECONDS)
        if self.desk.failed is not None:
            raise self.desk.failed
        ended = (
            f"exit status {output.status}" if not output.timed_out else "stopped: it took too long"
        )
        limit = f", limit reached: {output.limit}" if output.limit and not output.timed_out else ""
        return f"{redact(output.text).rstrip()}\n[{ended}{limit}]".lstrip("\n")

    def edit(self, path: str, old: str, new: str) -> str:
        """Replace one place of a file of the folder; '' for old makes a file. Raises Wrong."""
        try:
            before = self.sandbox.read(path).decode("utf-8", "replace")
        except FileNotFoundError:
            if old:
                raise Wrong(f"there is no file {path}") from None
            before = ""
        except BadInput as e:
            raise Wrong(f"{e.message}; {e.fix}") from None
        if not old and before:
            raise Wrong(f"{path} is there: name the text that is replaced, in `old`")
        if old and not stands_once(old, before):
            many = "more than once" if old in before else "nowhere"
            raise Wrong(f"`old` stands {many} in {path}: it must stand there once, to the letter")
        try:
            data = (before.replace(old, new, 1) if old else new).encode("utf-8", "replace")
            self.sandbox.write(path, data, 0o755 if path.startswith("agent/tools/") else 0o644)
        except BadInput as e:
            raise Wrong(f"{e.message}; {e.fix}") from None
        return f"{path}: {'replaced' if before else 'made'}"


def work(
    context: OptimizerContext,
    parent: Scaffold,
    attempts: Mapping[str, Experience],
    study: Study,
    worker: FolderWorker,
    more: Mapping[str, str] | None = None,
    *,
    cites: bool = True,
    **variables: object,
) -> Study:
    """Let a worker work in a folder, and return what it handed in, which is written down; one that
    ended in an earlier session of the run is read back. more: files that the folder has besides.

    A fault of the infrastructure is a record (`ending` fault), not an exception. Raises
    OutOfBudget, Refused, Interrupted.
    """
    if (known := read_study(context, study.id)) is not None:
        return known
    with FolderDesk(context, parent, attempts, cites=cites) as desk, Door(desk.answer) as door:
        told: JsonDict = {"commands": list(desk.commands), "domain": context.domain}
        told |= {"turns": context.limits.steps, "rehearsals": desk.left, "cites": cites}
        told["golds"] = context.limits.answers and any(map(context.gold, attempts.values()))
        texts = list_files(context, parent, attempts, {**told, **variables}) | {**(more or {})}
        room = Workroom(context, desk, door, study, texts)
        try:
            ending, why = worker(room)
            found: JsonDict = {"ending": ending, "why": why}
        except Fault as e:
            found = {"ending": "fault", "why": redact(e.message)}
        finally:
            for sandbox in room.opened:
                sandbox.close()
    if found["ending"] == "finished":
        found |= desk.result
    own = room.study
    found |= {"actions": {**desk.calls, **own.actions}, "kinds": own.kinds, "usage": own.usage}
    done = study.model_copy(update=found)
    save_study(context.folder, done)
    context.studied(done)
    return done


def run_loop(room: Workroom) -> tuple[str, str]:
    """Work in a folder by the optimizer's model, with two tools: a shell and an edit."""
    context = room.context

    def edit(path: str, new: str, old: str = "") -> str:
        return room.edit(path.removeprefix("/work/"), old, new)

    tools = [
        Tool(
            "shell",
            "inspect",
            "Run a command in the folder (bash, no network); the folder's commands are on PATH.",
            room.shell,
            {"command": text("for bash")},
        ),
        Tool(
            "edit",
            "edit",
            "Replace `old`, which must stand once in the file, by `new`; without `old` the file is"
            " made.",
            edit,
            {
                "path": text("of the file, as in the folder"),
                "old": text("the text that is replaced, to the letter"),
                "new": text("what stands there instead"),
            },
        ),
    ]

    def prompt(native: bool) -> list[Message]:
        listed = None if native else [tool.describe() for tool in tools]
        system = filled(PROMPTS, "system", {"tools": listed, "turns": context.limits.steps})
        shown = show_files(room.texts)
        return [{"role": "system", "content": system}, {"role": "user", "content": shown}]

    file = context.folder / room.study.id / "steps.jsonl" if context.folder else None
    talk = Talk(
        context.ask,
        room.study.id,
        prompt,
        tools,
        context.limits,
        context.native(),
        room.desk.result,
        file,
    )
    try:
        return talk.run()
    finally:
        update = {"usage": talk.usage, "actions": dict(talk.actions), "kinds": talk.kinds}
        room.study = room.study.model_copy(update=update)


def show_files(texts: Mapping[str, str]) -> str:
    """Return TASK.md and as much of the other files as fits, and the names of the rest."""
    order = ["TASK.md", "history.md"]
    order += [path for path in texts if path.startswith("agent/")]
    for name in ("grade.md", "task.md", "gold.md", "answer.txt", "transcript.md"):
        order += [path for path in texts if path.endswith(f"/{name}")]
    order += [path for path in texts if path not in order]
    room, parts, left = FIRST_CHARS, [], []
    for path in dict.fromkeys(order):
        part = f"===== {path}\n{texts[path].rstrip()}\n"
        if len(part) > room:
            left.append(f"{path} ({len(texts[path]):,} characters)")
            continue
        room -= len(part)
        parts.append(part)
    if left:
        parts.append("===== files that are not shown here\n" + "\n".join(left) + "\n")
    return "\n".join(parts)
