"""The ports: what a part must offer to take a place in recreate. At most four methods; nobody must
inherit.

A part is opened by `recreate.api.registry.open(kind, name)`: built-in, an installed entry point
(`recreate.<kind>`), or `module:Class`, and compared with its port before anything is spent. Each
port has a page with an example in docs/ports/.

What a part may offer besides is a small Protocol of its own, listed under the port it adds to and
asked for by `isinstance`: OpensImages (a SandboxBackend); Talking (a Sandbox); Preparable,
ToolCalling, Overriding (a Model); Validatable, Auditable, AsksModel, Rated and `DomainExtras` (a
Domain). An attribute or method of that name suffices.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Protocol, runtime_checkable

from pydantic import BaseModel, Field

from recreate.api.shapes import JsonDict, JsonMap
from recreate.api.types import (
    Call,
    Change,
    Edit,
    Experience,
    Grade,
    Lesson,
    Message,
    Output,
    PassRate,
    Record,
    Reply,
    Split,
    Task,
    TaskSet,
    Trace,
)


class Price(Record):
    """US dollars per million tokens, each 0 or more; the default is free.

    cached, cache_written: of tokens in, those that the endpoint had read before, and puts by; None:
    as the others.
    """

    tokens_in: float = Field(default=0.0, ge=0, allow_inf_nan=False)
    tokens_out: float = Field(default=0.0, ge=0, allow_inf_nan=False)
    cached: float | None = Field(default=None, ge=0, allow_inf_nan=False)
    cache_written: float | None = Field(default=None, ge=0, allow_inf_nan=False)

    def usd(
        self, tokens_in: int, tokens_out: int, tokens_cached: int = 0, tokens_cache_written: int = 0
    ) -> float:
        """US dollars for so many tokens; the last two are among tokens_in."""
        own = self.tokens_in
        cached, written = (own if p is None else p for p in (self.cached, self.cache_written))
        fresh = tokens_in - tokens_cached - tokens_cache_written
        put_by = tokens_cached * cached + tokens_cache_written * written
        return (fresh * own + put_by + tokens_out * self.tokens_out) / 1e6

    def most(self, tokens_in: int, tokens_out: int) -> float:
        """Return the most that so many tokens may cost, whatever was cached."""
        dearest = max(self.tokens_in, self.cached or 0.0, self.cache_written or 0.0)
        return (tokens_in * dearest + tokens_out * self.tokens_out) / 1e6


@runtime_checkable
class Model(Protocol):
    """Something that answers chat messages. `reply` is called from several threads at once.

    `name` is the spelling that finds it again; `price` is per million tokens, or None when unknown.
    """

    name: str
    price: Price | None

    def reply(self, messages: Sequence[Message], call: Call, **params: Any) -> Reply:
        """Return one answer. params: temperature, top_p, max_tokens, seed, stop, timeout (s),
        json_schema (a dict), tools (a list of {"type": "function", "function": {"name",
        "description", "parameters"}}), tool_choice (auto | required | none, or {"type": "function",
        "function": {"name"}}). The same call.id is the same question again.

        A parameter that the endpoint does not know is left out, not an error; but for tools, whose
        lack is `Refused` with the code `no-tools`. Raises `Transient` for what may pass (the caller
        retries, this method does not), `Refused` for what will not, BadInput with the code
        `context-length` for a prompt that is too long, `Fault` otherwise.
        """
        ...

    def close(self) -> None:
        """Free connections and child processes. Safe to call twice."""
        ...


@runtime_checkable
class Preparable(Protocol):
    """A model that must be fetched or started: it is asked to, once, before its first call."""

    def prepare(
        self, progress: Callable[[int, int | None], None], say: Callable[[str], None]
    ) -> None:
        """Fetch and start what `reply` would. progress: (bytes done, bytes in all, None when
        nobody says); say: what takes a while, in words. Raises BadInput, Fault."""
        ...


@runtime_checkable
class ToolCalling(Protocol):
    """A model that says whether `tools` are worth handing to it; one that does not is asked for
    JSON."""

    native_tools: bool


@runtime_checkable
class Overriding(Protocol):
    """A model whose own parameters go before what a call asks for, `{}` for none: a recipe's
    temperature."""

    override: JsonMap


@runtime_checkable
class Telling(Protocol):
    """A model that finds out about its endpoint what a user is to hear, and tells it to this."""

    told: Callable[[str], None]


class TaskQuestion(NamedTuple):
    """What a task asks, and the group it belongs to."""

    text: str
    group: str = ""


class Limits(Record):
    """What one sandbox may use. Units in the names; `seconds` is the default limit of one command,
    by the clock. forgets: what it read of files does not stay in memory, where a control group
    tells what that was: it could be timed by the next."""

    seconds: float = 60.0
    cpu_seconds: int = 120
    memory_mb: int = 2048
    processes: int = 128
    disk_mb: int = 512
    output_bytes: int = 1_000_000
    forgets: bool = False


@runtime_checkable
class ModelCatalog(Protocol):
    """Models that a plug-in brings by name (kind `catalog`), one of them the default of all."""

    def default(self) -> str:
        """Return the spelling of the model that is used when nobody names one."""
        ...

    def spellings(self) -> Sequence[str]:
        """Return how its models are spelled, and what else its kind of model takes."""
        ...

    def weights(self, spec: str) -> tuple[str, int]:
        """Return whether a model's weights are here (ready, partial or absent), and their bytes.
        Raises BadInput for a model that it does not have."""
        ...


class Check(NamedTuple):
    """One line of `recreate doctor`. A plug-in's are yielded by its function of the kind `check`.
    fix: what to type where it is not ok; needed: nothing goes without."""

    name: str
    ok: bool
    detail: str
    fix: str = ""
    needed: bool = False


@runtime_checkable
class Sandbox(Protocol):
    """A private folder seen inside as /work, no network, no host environment.

    `run` is stateless between calls but for the files: cwd is /work, HOME is private, the
    environment is only what the sandbox was opened with. All paths of `read`/`write` are relative
    to /work; neither follows a link out. One thread at a time uses it; `backend` names what made
    it.
    """

    backend: str

    def run(
        self, command: str | Sequence[str], timeout: float | None = None, stdin: bytes | None = None
    ) -> Output:
        """Run a shell command (str, by bash -c) or an argv. timeout: seconds as `Limits` counts
        them, None for its own.

        Never raises for what the command does: that is in the Output. Raises Fault when the sandbox
        itself fails.
        """
        ...

    def write(self, path: str, data: bytes, mode: int = 0o644) -> None:
        """Write a file, its folders made. Raises BadInput when a link or `..` leads outside, Fault
        on a full disk."""
        ...

    def read(self, path: str) -> bytes:
        """Return the file's bytes. Raises FileNotFoundError when no file is there: a link, a folder
        or a pipe is none. Raises BadInput for a path that cannot be one, as with `..`."""
        ...

    def close(self) -> None:
        """Kill what runs and delete the folder. Safe to call twice."""
        ...


@runtime_checkable
class RunningProgram(Protocol):
    """A program that goes on in a sandbox while commands are run there. `send` and `take` raise
    Fault when the sandbox itself failed."""

    def send(self, line: bytes, seconds: float) -> bool:
        """Write a line to its standard input; False when it is gone, or did not take it for so
        long."""
        ...

    def take(self, seconds: float) -> bytes | None:
        """Return the next line of its standard output; None when none came for so long, or none
        will."""
        ...

    def close(self) -> None:
        """End it. Safe to call twice."""
        ...


@runtime_checkable
class Talking(Protocol):
    """A sandbox in which a program can go on while commands are run: what MCP servers need."""

    def start(self, command: str | Sequence[str], timeout: float) -> RunningProgram:
        """Start it; it is ended with the sandbox, and after `timeout` seconds, as `Limits` counts
        them, at the latest. It shares the sandbox's files and limits. Raises Fault when the sandbox
        itself fails, BadInput for what is no command."""
        ...


@runtime_checkable
class Copyable(Protocol):
    """A sandbox that can be copied: what looking ahead, observing and taking back need."""

    def copy(self) -> Sandbox:
        """Another sandbox with the same files, limits and mounts; no running program goes along.
        The caller closes it.

        Raises BadInput (`no-copy`) for files that cannot be read, Fault when the host fails."""
        ...


@runtime_checkable
class SandboxBackend(Protocol):
    """A way to make sandboxes: bwrap, unshare, docker ... `open` is called from several threads at
    once."""

    name: str

    def probe(self) -> str:
        """Return '' when it works here (really tried, not guessed), else why not."""
        ...

    def open(
        self,
        *,
        source: Path | None = None,
        mounts: Mapping[str, Path] | None = None,
        env: Mapping[str, str] | None = None,
        limits: Limits | None = None,
    ) -> Sandbox:
        """Return a fresh sandbox. `source` is a folder whose copy becomes /work (links copied as
        links); `mounts` maps paths inside to host paths, read-only; `env` is added to a minimal
        environment (PATH, HOME, LANG).

        Raises BadInput for a mount that cannot be, Fault when none can be made."""
        ...


@runtime_checkable
class EngineBackend(SandboxBackend, Protocol):
    """A backend on an engine of its own, which keeps things besides the folders of sandboxes.
    start: what to type when it does not answer."""

    start: str

    def sweep(self, really: bool) -> Mapping[str, list[JsonDict]]:
        """Remove what recreates that were killed left with the engine, unless not `really`. Return
        rows of `engine` and `name`: `containers`, `images` (with `bytes`), images `in_use`, and
        `faults` (with `message` and `fix`)."""
        ...


@runtime_checkable
class ImageBackend(SandboxBackend, Protocol):
    """A backend whose sandboxes are containers of one image. digest: of what is in it, whatever it
    is called."""

    digest: str

    def copy(self, folder: str, target: Path, without: Collection[str] = ()) -> None:
        """Copy the files, folders and links below a folder of the image to `target`, a new folder;
        but for what has one of these names, wherever it is. Raises Fault, with the code `image`,
        when there is no such folder.
        """
        ...


@runtime_checkable
class OpensImages(Protocol):
    """A backend whose sandboxes can be containers of a named image: docker, podman."""

    def image(
        self, name: str, folder: str = "", say: Callable[[str], None] | None = None
    ) -> ImageBackend:
        """Return the backend whose sandboxes are containers of the image `name`, pulled if it is
        not here; `say` is told.

        `folder`: the image's folder that is worked on, such as /testbed: without a `source`, /work
        is a copy of it as the image has it; commands start in it, and what is in /work is seen
        there too. Raises Fault, with the code `image`, for one that cannot be pulled or has no such
        folder: the task's doing, not an outage.
        """
        ...


@runtime_checkable
class Domain(Protocol):
    """A kind of task and how it is graded. `name` names folders: letters, digits, `.`, `_`, `-`.

    Its methods are called from several threads at once. What they raise but for Fault stops the
    run.
    """

    name: str

    def tasks(self, split: Split | None = None) -> Sequence[Task]:
        """Return the tasks of one split (or all), in a stable order: ids unique, no group in two
        splits."""
        ...

    def prepare(self, task: Task, backend: SandboxBackend) -> Sandbox:
        """Return a fresh sandbox in which the task can be worked on: nothing hidden is in it."""
        ...

    def collect(self, task: Task, sandbox: Sandbox) -> str:
        """Return what the agent hands in, as text, read from its sandbox ('' for nothing): for
        code, a diff."""
        ...

    def grade(self, task: Task, trace: Trace, backend: SandboxBackend) -> Grade:
        """Grade `trace.answer` in a fresh sandbox that the agent never touched: score 0..1, passed,
        the grader's words.

        A bad answer is a Grade, not an error. Raises Fault when it cannot be graded: the attempt is
        then excluded.
        """
        ...


@runtime_checkable
class Validatable(Protocol):
    """A domain that can show its tasks are sound: `tasks check` needs this."""

    def gold(self, task: Task) -> str:
        """Return a submission known to be right, in the form `collect` returns."""
        ...


class DomainExtras:
    """What a domain may offer besides, with what is taken of one that does not: `extras` has it of
    any. Nobody must inherit; who does may call the defaults.

    grader       the grader's version: scores are reused only under the same one
    description  what the domain is about: what `--scaffold create` is told
    tools_only   its tasks are done by calling its servers' tools and in no other way: an agent that
                 calls no tools is refused before anything is paid
    pass_fail    whether its scores are 0 and 1 only; None: nobody says
    shows_gold   whether an optimizer may be shown the right answers of train tasks
    """

    grader: str = ""
    description: str = ""
    tools_only: bool = False
    pass_fail: bool | None = None
    shows_gold: bool = False

    def hidden(self, task: Task) -> Sequence[str]:
        """Return what no agent is shown of a task (right answers, hidden tests), as text: no edit,
        tool or lesson may carry it. Asked once for every task of every split; what it raises leaves
        the task's answers out, and is said."""
        gold = getattr(self, "gold", None)
        return [] if gold is None else [gold(task)]

    def packages(self) -> Sequence[str]:
        """Return requirements that the Python of every task's sandbox meets, as pandas==1.5.3: an
        edit may say their public names whatever tasks say. None that tasks are about."""
        return []

    def servers(self, task: Task) -> Mapping[str, str | Sequence[str]]:
        """Return name -> the command that starts an MCP server in the sandbox that `prepare` made:
        agents with `action = "tools"` are offered its tools, as NAME__TOOL. It speaks MCP over its
        standard input and output, and what it says on stderr is shown when it does not start. A
        text is the address of a server elsewhere, which is asked over HTTP."""
        return {}

    def lacking(self, task: Task) -> str:
        """Return '' when the task can be attempted and graded on this machine, else what is not
        here and what to type to get it: a run leaves it out, and says so. Asked often and of every
        task: it looks, and prepares nothing."""
        return ""

    def image(self, task: Task) -> str:
        """Return what tells the task's container image from every other, whatever it is called; ''
        for a task of none. The image is pulled when it is not here. Raises Fault, with the code
        `image`, when it cannot be had."""
        return ""

    def kind(self, task: Task) -> str:
        """Return the task's kind in one word (real, injected): what `--kind` chooses from."""
        return ""

    def stratum(self, task: Task) -> str:
        """Return what the task is counted with in verdicts, in a word or two: a library, a level of
        difficulty."""
        return self.kind(task)

    def refused(self) -> Sequence[tuple[str, str]]:
        """Return (what it is called, why it is no task here) of what the domain was given and
        leaves out, in a stable order: `tasks check` lists it."""
        return []

    def bytes(self, task: Task) -> int | None:
        """Return the bytes that are kept on the disk for this task alone, made when they are not
        there yet: `tasks check` tells them."""
        return None

    def untouched(self, task: Task, backend: SandboxBackend) -> Grade | None:
        """Return what the grader says of the task before anything is mended: its score should be 0.
        None: what it says of an empty answer."""
        return None

    def compared(self, task: Task, backend: SandboxBackend) -> tuple[Grade | None, Sequence[str]]:
        """Return what `untouched` does, and the names of the tests that pass there and not with the
        gold: of a sound task none."""
        return self.untouched(task, backend), ()


EXTRAS = tuple(name for name in vars(DomainExtras) if not name.startswith("_"))
"""The names of what a domain may offer besides."""


def extras(domain: Domain) -> DomainExtras:
    """Return what a domain offers besides, defaults for the rest."""
    if isinstance(domain, DomainExtras):
        return domain
    offered = DomainExtras()
    vars(offered).update(
        {name: getattr(domain, name) for name in (*EXTRAS, "gold") if hasattr(domain, name)}
    )
    return offered


@runtime_checkable
class Auditable(Protocol):
    """A domain that attacks its own grader: `tasks audit` needs this."""

    def exploits(self, task: Task) -> Mapping[str, str]:
        """Return name -> an answer, in the form `collect` returns, that leaves the task unsolved
        and tries to be scored all the same. `recreate.domains.exploits` has a list for text, the
        plug-in audit one for Python.
        """
        ...


class AskJudge(Protocol):
    """A call of the judge's model, paid once and in the run's ledger under the role `judge`.
    attempt: what tells this judging from every other; step: counts the calls of one. Raises
    OutOfBudget, Refused, Fault, Interrupted.
    """

    def __call__(
        self, messages: Sequence[Message], *, attempt: str, task: str, step: int = 0, **params: Any
    ) -> Reply: ...


@runtime_checkable
class AsksModel(Protocol):
    """A domain that asks a model while it grades. `grade` stays as it is: the domain is handed what
    to ask with."""

    asks_model: bool

    def judged_by(self, model: str, ask: AskJudge) -> Domain:
        """Return the same domain with a model to ask, known by its name: scores of another one are
        not reused. It must show the model nothing of who made the answer: no scaffold, no model, no
        side of a comparison."""
        ...


@runtime_checkable
class Rated(Protocol):
    """A domain that knows how hard its tasks were: what `--difficulty` chooses by. One without it
    is asked for in the workspace's benchmarks/NAME/pass_rates.jsonl and sets.toml."""

    def pass_rates(self, task: Task) -> Sequence[PassRate]:
        """Return what was measured of this task as it is now: a record for each agent and model."""
        ...

    def task_sets(self) -> Mapping[str, TaskSet]:
        """Tasks chosen once, by name."""
        ...


class Hit(Record):
    """One result of `recall`. grain: experience | step | lesson. score: higher is closer, within
    one query.

    text: what the reader is shown, about 1,500 characters; experience: its id, '' for a lesson;
    step counts from 0; facts: what filters may name (domain, task, passed, ...).
    """

    id: str
    grain: str
    score: float
    split: str
    text: str
    experience: str = ""
    step: int | None = None
    facts: Mapping[str, Any] = {}


@runtime_checkable
class Embedder(Protocol):
    """Texts to unit vectors of one length. `name` identifies the vectors it makes.

    kind: `passage` for what is stored, `query` for what is asked; an embedder may treat them alike.
    """

    name: str
    dimensions: int

    def embed(self, texts: Sequence[str], kind: str = "passage") -> list[list[float]]:
        """Return one vector per text, in their order: `dimensions` finite floats of length 1.
        Raises Missing, Fault."""
        ...


@runtime_checkable
class Memory(Protocol):
    """Experience, searchable. Both methods are called from several threads at once."""

    def add(self, experiences: Sequence[Experience]) -> None:
        """Take experiences in; one whose id is known already is the same one. Raises Fault when it
        cannot."""
        ...

    def recall(
        self,
        query: str,
        k: int = 8,
        filters: JsonMap | None = None,
        reader: str = "optimizer",
    ) -> list[Hit]:
        """Return at most k hits, best first. reader `optimizer` and `agent` see the train split
        only; `human` sees all.

        filters: a fact's name -> a value, or a list of them. Raises BadInput for a filter or reader
        it does not know.
        """
        ...


class Ask(Protocol):
    """A call of the optimizer's model, paid once: `thread` and `step` make its address, so that a
    resumed build finds the reply again. Raises OutOfBudget, Refused, Fault, Interrupted."""

    def __call__(
        self, messages: Sequence[Message], *, step: int, thread: str = "", **params: Any
    ) -> Reply: ...


@runtime_checkable
class Desk(Protocol):
    """What an agent of the user's own is handed for one attempt at one task.

    prompt     the task's words          texts     the files that it declares, as they stand now:
               path -> text
    sandbox    where the task is; what is run there stands in the trace
    base_url   of an endpoint on this machine, for libraries that want one: OpenAI's, with `/v1`;
               api_key: its key, for this attempt alone; model: a name to give it
    """

    prompt: str
    texts: Mapping[str, str]
    sandbox: Sandbox
    model: str

    @property
    def base_url(self) -> str: ...

    @property
    def api_key(self) -> str: ...

    def ask(self, messages: Sequence[Message | JsonMap], **params: Any) -> Reply:
        """Return the model's reply to chat messages; params: temperature, max_tokens, tools,
        tool_choice, stop, ...

        Raises when the attempt is over, at a limit: let it through. BadInput for messages that are
        none.
        """
        ...


@runtime_checkable
class Agent(Protocol):
    """Something that attempts tasks: `recreate.wrap` makes a scaffold of it. Called from several
    threads at once."""

    def attempt(self, desk: Desk) -> str | None:
        """Work on the task. Returns what is handed in, in the form that the domain's `collect`
        returns; None: what lies in the sandbox. What it raises ends the attempt as an `error`, and
        what is in the sandbox is graded.
        """
        ...


@runtime_checkable
class AgentKind(Protocol):
    """Agents that recreate's own turns do not carry out: programs of somebody else's. Found by the
    name that their `action` begins with (`recreate.agent`)."""

    def refusal(self, agent: Any) -> str:
        """Return what is wrong with an agent.toml (an AgentConfig) of this kind, '' for nothing."""
        ...

    def check(self, scaffold: Any, backend: SandboxBackend | None) -> Iterable[Any]:
        """Return the faults (`lint.Problem`) of an agent's folder. With a backend, it is tried
        whether a sandbox has what the agent needs."""
        ...

    def attempt(
        self,
        scaffold: Any,
        task: Task,
        domain: Domain,
        backend: SandboxBackend,
        ask: Any,
        call: Call,
        **how: Any,
    ) -> Trace:
        """Attempt a task, as `recreate.agents.attempt.attempt` does. how: what that takes, and
        `stop`, an event that is set when the run is being stopped."""
        ...

    def failure(self, trace: Trace) -> tuple[str, str]:
        """Return what is the same for each attempt that broke by one cause, or never asked its
        model, and words for a person, with file and line; two '' of one that did its work."""
        ...

    def make(self, agent: Any, folder: Path, **how: Any) -> Any:
        """Return the scaffold of an agent that exists already: `recreate.wrap` and `--agent`."""
        ...


class OfferedTool(NamedTuple):
    """One tool of a server. parameters: the JSON schema of its arguments."""

    name: str
    description: str
    parameters: JsonMap


@runtime_checkable
class ToolServer(Protocol):
    """A server that runs, whose tools an agent may call. One is opened for each attempt
    (`recreate.tool_server`)."""

    tools: Sequence[OfferedTool]

    def call(self, tool: str, arguments: JsonMap) -> Output:
        """Return what a tool answers; what goes wrong is said in it."""
        ...


@runtime_checkable
class MemoryPolicy(Protocol):
    """Decides which lessons there are and which an agent is offered. Its class is made with a
    PolicyContext.

    `observe` is called by one thread between batches; `offer` by several at once, and never while
    `observe` runs.
    """

    def observe(self, experiences: Sequence[Experience]) -> Sequence[Change]:
        """Learn from graded train experiences: change `context.lessons`, and say what was changed
        and why.

        What is observed twice counts once. Lets OutOfBudget, Refused, Fault and Interrupted of its
        calls through.
        """
        ...

    def offer(self, query: str, budget: int) -> Sequence[Lesson]:
        """Return the lessons to show for a query, best first, of at most `budget` tokens together;
        [] for none.

        The same lessons and query give the same offer. query: the task's prompt, or what the agent
        just saw.
        """
        ...


@runtime_checkable
class Randomising(Protocol):
    """A policy that draws which lessons a train attempt is shown, so that attempts say what lessons
    do. Each draw is recorded with its probability in the step (`Step.propensities`)."""

    def eligible(self, query: str, budget: int) -> Sequence[Lesson]:
        """Return, in place of `offer` and for train attempts, what a query calls for, on trial or
        proven."""
        ...

    def propensities(self) -> Mapping[str, float]:
        """Lesson -> the probability (above 0, below 1) with which an attempt that calls for it is
        shown it; one that is not named is shown always."""
        ...


@runtime_checkable
class Optimizer(Protocol):
    """Something that reads experience and proposes edits. Its class is made with OptimizerContext,
    or with nothing."""

    def propose(self, scaffold: Any, experiences: Sequence[Experience]) -> Sequence[Edit]:
        """Edits of `scaffold` (a Scaffold) that a batch of train experiences supports, [] for none.

        Each cites experience and step. Lets OutOfBudget, Refused, Fault and Interrupted of its
        calls through.
        """
        ...


@runtime_checkable
class Population(Protocol):
    """An optimizer that proposes several candidates a round; `propose` is then its first alone, and
    is not called."""

    def candidates(
        self, scaffold: Any, experiences: Sequence[Experience]
    ) -> Sequence[Sequence[Edit]]:
        """Return each candidate as its edits of `scaffold`, the most promising first; [] for none.

        The gate judges them in turn, each against `scaffold`, until one is kept: what comes after
        it is left.
        """
        ...


@runtime_checkable
class Configurable(Protocol):
    """An optimizer with settings of its own. `Config`, a pydantic model on its class, checks
    `[optimizer_settings]` before anything is spent; `context.settings` is an object of it."""

    Config: type[BaseModel]


@runtime_checkable
class Needing(Protocol):
    """An optimizer that works with packages that may not be here. `needs`, names of modules on its
    class: each is imported before anything is spent, and a missing one is refused with the command
    that installs it.
    """

    needs: Sequence[str]


@runtime_checkable
class Estimated(Protocol):
    """An optimizer that says what a proposal of it takes, which `plan` and the first lines of a
    build tell. One that does not is taken for an agent that studies every experience, the
    dearest."""

    @staticmethod
    def takes(settings: Any, batch: int) -> tuple[int, int]:
        """Return (calls of the optimizer's model, attempts at train tasks) at most. settings: an
        object of its `Config`, None without one; batch: experiences in a round."""
        ...
