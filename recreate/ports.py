"""The ports: what a part must offer to take a place in recreate. At most four methods; nobody must inherit.

A part is found by `recreate.plug.find(kind, name)`: built-in, an installed entry point (`recreate.<kind>`),
or `module:Class`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from recreate.types import Call, Edit, Experience, Grade, Message, Output, Record, Reply, Split, Task, Trace


class Price(Record):
    """US dollars per million tokens."""

    tokens_in: float = 0.0
    tokens_out: float = 0.0

    def usd(self, tokens_in: int, tokens_out: int) -> float:
        return (tokens_in * self.tokens_in + tokens_out * self.tokens_out) / 1e6


@runtime_checkable
class Model(Protocol):
    """Something that answers chat messages.

    `name` is the spelling that finds it again; `price` is per million tokens, or None when unknown.
    `native_tools`, a bool that may be absent and then means False, says whether `tools` are worth handing to it.
    """

    name: str
    price: Price | None

    def reply(self, messages: Sequence[Message], call: Call, **params: Any) -> Reply:
        """One answer. params: temperature, top_p, max_tokens, seed, stop, timeout (s), json_schema (a dict), tools
        (a list of {"type": "function", "function": {"name", "description", "parameters"}}), tool_choice (auto |
        required | none, or {"type": "function", "function": {"name"}}).

        A parameter that the endpoint does not know is left out, not an error; but for tools, whose lack is `Refused`
        with the code `no-tools`. Raises `Transient` for what may pass (the caller retries, this method does not),
        `Refused` for what will not, `Fault` otherwise.
        """
        ...

    def close(self) -> None:
        """Free connections and child processes. Safe to call twice."""
        ...


class Limits(Record):
    """What one sandbox may use. Units in the names; `seconds` is the default wall time of one command."""

    seconds: float = 60.0
    cpu_seconds: int = 120
    memory_mb: int = 2048
    processes: int = 128
    disk_mb: int = 512
    output_bytes: int = 1_000_000


class Sandbox(Protocol):
    """One box: a private folder seen inside as /work, no network, no host environment.

    `run` is stateless between calls but for the files: cwd is /work, HOME is private, the environment is only
    what the box was opened with. All paths of `read`/`write` are relative to /work; neither follows a link out.
    """

    rung: str

    def run(self, command: str | Sequence[str], timeout: float | None = None, stdin: bytes | None = None) -> Output:
        """Run a shell command (str, by bash -c) or an argv. Never raises for what the command does."""
        ...

    def write(self, path: str, data: bytes, mode: int = 0o644) -> None: ...

    def read(self, path: str) -> bytes:
        """The file's bytes. Raises FileNotFoundError, or BadInput when a link or `..` leads outside."""
        ...

    def close(self) -> None:
        """Kill what runs and delete the folder."""
        ...


class Rung(Protocol):
    """A way to make sandboxes: bwrap, unshare, none."""

    name: str

    def probe(self) -> str:
        """'' when it works here (really tried, not guessed), else why not."""
        ...

    def open(
        self,
        *,
        source: Path | None = None,
        mounts: Mapping[str, Path] | None = None,
        env: Mapping[str, str] | None = None,
        limits: Limits | None = None,
    ) -> Sandbox:
        """A fresh box. `source` is a folder whose copy becomes /work (links copied as links); `mounts` maps
        paths inside to host paths, read-only; `env` is added to a minimal environment (PATH, HOME, LANG)."""
        ...


class Domain(Protocol):
    """A kind of task and how it is graded. `name` is the domain's name."""

    name: str

    def tasks(self, split: Split | None = None) -> Sequence[Task]:
        """The tasks of one split (or all), in a stable order."""
        ...

    def prepare(self, task: Task, rung: Rung) -> Sandbox:
        """A fresh box in which the task can be worked on: nothing hidden is in it."""
        ...

    def collect(self, task: Task, box: Sandbox) -> str:
        """What the agent hands in, as text, read from its box ('' for nothing): for code, a diff."""
        ...

    def grade(self, task: Task, trace: Trace, rung: Rung) -> Grade:
        """Grade `trace.answer` in a fresh box the agent never touched. A bad answer is a Grade, not an error."""
        ...


@runtime_checkable
class Provable(Protocol):
    """A domain that can show its tasks are sound: `tasks check` needs this."""

    def gold(self, task: Task) -> str:
        """A submission known to be right, in the form `collect` returns."""
        ...


class Hit(Record):
    """One result of `recall`. grain: experience | step | lesson. score: higher is closer, within one query."""

    id: str
    grain: str
    score: float
    split: str
    text: str
    experience: str = ""
    step: int | None = None
    facts: Mapping[str, Any] = {}


class Embedder(Protocol):
    """Texts to unit vectors of one length. `name` identifies the vectors it makes.

    kind: `passage` for what is stored, `query` for what is asked; an embedder may treat them alike.
    """

    name: str
    dimensions: int

    def embed(self, texts: Sequence[str], kind: str = "passage") -> list[list[float]]: ...


class Memory(Protocol):
    """Everything lived through, searchable."""

    def add(self, experiences: Sequence[Experience]) -> None: ...

    def recall(
        self, query: str, k: int = 8, filters: Mapping[str, Any] | None = None, reader: str = "optimizer"
    ) -> list[Hit]:
        """The k nearest. reader `optimizer` and `agent` see the train split only; `human` sees all."""
        ...


class Optimizer(Protocol):
    """Something that reads experience and proposes edits."""

    def propose(self, scaffold: Any, experiences: Sequence[Experience]) -> Sequence[Edit]: ...
