"""What domains have in common whose tasks are done by calling tools, and in no other way."""

from __future__ import annotations

import sys
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Literal

from pydantic import Field

from recreate.api import paths
from recreate.api.config import Config, Split
from recreate.api.ports import Sandbox
from recreate.api.types import Task


class ToolWorldDefinition(Config):
    """Its domain.toml. left_out: a task's id without the domain's name -> why it is none."""

    schema_: Literal[1] = Field(default=1, alias="schema")
    about: str = ""
    left_out: Mapping[str, str] = {}


class ToolWorld(ABC):
    """A domain of which what counts are the calls in the trace."""

    name: str
    pass_fail = True
    tools_only = True

    def __init__(self, workspace: Path | None, say: Callable[[str], None] | None) -> None:
        self._where = workspace or paths.workspace()
        self._say = say or (lambda text: print(text, file=sys.stderr))
        self._lock = threading.Lock()

    @cached_property
    @abstractmethod
    def _definition(self) -> ToolWorldDefinition: ...

    @abstractmethod
    def _read_tasks(self) -> Iterable[Task]:
        """Yield all tasks that there are. Raises BadInput where there is none."""

    @cached_property
    def _tasks(self) -> tuple[list[Task], list[tuple[str, str]]]:
        kept: dict[str, Task] = {}
        out: list[tuple[str, str]] = []
        for task in self._read_tasks():
            why = self._definition.left_out.get(task.id.removeprefix(f"{self.name}:"))
            if why is None:
                kept[task.id] = task
            else:
                out.append((task.id, why))
        return list(kept.values()), out

    def tasks(self, split: Split | None = None) -> Sequence[Task]:
        """Return the tasks, each set in its own order. Raises BadInput for what is not here, with
        what fetches it."""
        with self._lock:
            return [task for task in self._tasks[0] if split in (None, task.split)]

    def refused(self) -> Sequence[tuple[str, str]]:
        """Return the tasks that domain.toml leaves out, of those that were read."""
        self.tasks()
        return self._tasks[1]

    def collect(self, task: Task, sandbox: Sandbox) -> str:
        """Return nothing: what counts is in the trace."""
        return ""

    @property
    def description(self) -> str:
        """What `--scaffold create` reads."""
        return self._definition.about
