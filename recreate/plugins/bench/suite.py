"""SUITE.toml: what is measured in one run, and which of it is made first.

    scaffold = ["seed", "scaffolds/swe"]
    model = ["litellm:openai/gpt-5-mini", "openai:http://127.0.0.1:8000/v1#qwen"]
    domain = ["swe", "sql"]
    split = "test"
    repeats = 3
    baseline = "seed"
    budget = ["20usd"]
    cell_budget = ["2usd"]

    [arms.gepa]
    build = true
    optimizer = "gepa"

Every setting of recreate.toml may stand there too. A table [arms.NAME] is a cell that is made
before it is measured, by the plug-in that knows its keys; all begin with the suite's one agent.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple, get_args

from pydantic import Field, ValidationError

from recreate.api.config import Config, Split, read_toml, write_toml
from recreate.api.errors import BadInput
from recreate.api.shapes import JsonDict, JsonMap
from recreate.runs import settings as settings_
from recreate.runs.budget import Budget
from recreate.runs.settings import Settings, addresses

FILE = "bench.toml"
"""What a suite is called in the run folder that was made of it."""
AXES = ("scaffold", "model", "domain")
"""What may be several: the settings that a cell is named by."""
Format = Literal["jsonl", "csv", "predictions"]
OWN = ("split", "tasks", "baseline", "cell_budget", "format")
"""Keys of a suite that are no settings."""
NAME_ONCE = "name one of them; --repeats N attempts every task N times"


class Suite(Config):
    """What is measured: every scaffold with every model on every domain. settings: of the first of
    each.

    tasks: of each domain at most so many, 0 for all. baseline: the scaffold or the model that the
    others are compared with, '' for the first of several. cell_budget: the cap of each cell,
    besides that of all. format: which files are written. arms: cells that are made first, each with
    its `name`.
    """

    settings: Settings
    split: Split = "validation"
    tasks: int = Field(default=0, ge=0)
    scaffolds: tuple[str, ...]
    models: tuple[str, ...] = ("",)
    domains: tuple[str, ...]
    baseline: str = ""
    cell_budget: tuple[str, ...] = ()
    format: tuple[Format, ...] = ("jsonl", "csv")
    arms: tuple[Any, ...] = ()

    @property
    def against(self) -> tuple[str, str]:
        """(`scaffold` or `model`, its name) that the others are compared with; ('', '') where there
        is one of each."""
        several: dict[str, tuple[str, ...]] = {"scaffold": self.scaffolds, "model": self.models}
        for axis, names in several.items():
            if len(names) > 1 and self.baseline in ("", *names):
                return axis, self.baseline or names[0]
        return "", ""

    def dump(self) -> str:
        """Return SUITE.toml, which `read_suite` takes again."""
        several = {"scaffold": self.scaffolds, "model": self.models, "domain": self.domains}
        own = {key: getattr(self, key) for key in OWN}
        table = settings_.dump(self.settings)
        table = {key: value for key, value in table.items() if key not in (*AXES, "out")}
        table |= {k: v for k, v in {**several, **own}.items() if v not in ("", (), ("",))}
        keys: JsonDict = {"exclude_defaults": True, "exclude": {"name"}}
        arms = {arm.name: arm.model_dump(**keys) for arm in self.arms}
        return write_toml({**table, **({"arms": arms} if arms else {})})


class SuiteTable(NamedTuple):
    """A suite's file, read: settings, `OWN` and `AXES` as they stand there, the tables of arms."""

    settings: JsonDict
    own: JsonDict
    axes: dict[str, tuple[str, ...]]
    arms: dict[str, JsonDict]

    def load(self, where: Path, given: JsonMap) -> Settings:
        """Return the settings of the first of each axis. given: by address; wins over the file."""
        firsts = {axis: names[0] for axis, names in self.axes.items() if names}
        return settings_.load(where, {**settings_.flat(self.settings), **firsts, **given})


def read_table(file: Path) -> SuiteTable:
    """Return what a suite's file says. Raises BadInput that names a key it does not know, and the
    one meant."""
    try:
        table = read_toml(file.read_text("utf-8"))
    except OSError as e:
        raise BadInput(
            f"{file}: {e.strerror}",
            fix="name a suite, or a run folder to go on with; recreate bench --help has an example",
            code="no-suite",
        ) from None
    except ValueError as e:
        raise BadInput(
            f"{file} cannot be read: {e}", fix="mend the line that it names", code="bad-suite"
        ) from None
    arms = table.pop("arms", {})
    if not isinstance(arms, dict) or not all(isinstance(v, dict) for v in arms.values()):
        raise BadInput(
            f"{file.name}: arms are tables", fix="write [arms.weights]", code="bad-suite"
        )
    own = {key: table.pop(key) for key in OWN if key in table}
    axes = {axis: _read_names(file, axis, table.pop(axis)) for axis in AXES if axis in table}
    known = addresses()
    for key in settings_.flat(table):
        if key not in known and not key.startswith(settings_.OWN + "."):
            fix = 'write each as an arm: [arms.gepa] build = true, optimizer = "gepa"'
            if key != "optimizers":
                fix = suggest(key, [*OWN, *AXES, "arms", *known])
            raise BadInput(f"{file.name}: there is no key {key!r}", fix=fix, code="unknown-key")
    return SuiteTable(table, own, axes, arms)


def _read_names(file: Path, key: str, value: Any) -> tuple[str, ...]:
    several = [value] if isinstance(value, str) else value
    if isinstance(several, list) and several and all(isinstance(each, str) for each in several):
        return tuple(several)
    raise BadInput(
        f"{file.name}: {key} is {value!r}", fix=f'{key} = ["NAME", "NAME"]', code="bad-suite"
    )


def suggest(name: str, known: Iterable[str]) -> str:
    """Return the name that was probably meant, or all there are."""
    near = difflib.get_close_matches(name, known := [*known], 1, 0.5)
    return f"did you mean {near[0]!r}?" if near else f"there are: {', '.join(filter(None, known))}"


def read_suite(
    file: Path,
    where: Path,
    given: JsonMap,
    several: Mapping[str, Sequence[str]],
    **own: Any,
) -> Suite:
    """Return the suite of a file whose cells are there already. given: flags by address, several:
    those of AXES that were typed, own: typed keys of OWN; all of them win over the file. Raises
    BadInput."""
    table = read_table(file)
    if isinstance(table.own.get("tasks"), list | str):
        select = {**table.settings.get("select", {}), "tasks": table.own.pop("tasks")}
        table.settings["select"] = select
    table.axes.update({axis: tuple(names) for axis, names in several.items() if names})
    typed = {k: v for k, v in own.items() if v not in ("", (), None)}
    return make_suite(table.load(where, given), table.axes, **{**table.own, **typed})


def make_suite(settings: Settings, several: Mapping[str, Sequence[str]], **own: Any) -> Suite:
    """Return a suite whose parts go together. several: names by AXES, one each from the settings
    where there is none.

    Raises BadInput for what can be seen without opening a part.
    """
    lists = {axis: tuple(several.get(axis) or ()) for axis in AXES}
    for axis, named in lists.items():
        if twice := [name for at, name in enumerate(named) if name in named[:at]]:
            raise BadInput(
                f"the {axis} {twice[0]} is named twice", fix=NAME_ONCE, code="named-twice"
            )
    lists = {axis: names or (getattr(settings, axis),) for axis, names in lists.items()}
    if lists["scaffold"] == ("",) and settings.agent_table is None:
        raise BadInput(
            "nothing to measure is named",
            fix="--scaffold NAME, --agent COMMAND, --arms or a SUITE.toml",
            code="usage",
        )
    if own.get("split", "validation") not in get_args(Split):
        fix = "--split train, validation or test"
        raise BadInput(f"there is no split {own['split']!r}", fix=fix, code="bad-split")
    if len(lists["domain"]) > 1 and settings.data:
        fix = (
            "one bench a data set; or name each domain's rows as data in its"
            " benchmarks/NAME/domain.toml"
        )
        raise BadInput("--data is of one domain, and several are named", fix=fix, code="usage")
    for key in ("format", "cell_budget"):
        if isinstance(own.get(key), str):
            own[key] = tuple(own[key].replace(",", " ").split())
    for budget in (settings.budget, tuple(own.get("cell_budget", ()))):
        Budget.parse(budget)
    if Budget.parse(tuple(own.get("cell_budget", ()))).minutes is not None:
        fix = "give minutes with --budget, and the cells usd, tokens or attempts"
        raise BadInput(
            "cells are measured at once, so no cell has minutes of its own",
            fix=fix,
            code="bad-budget",
        )
    baseline, names = own.get("baseline", ""), [*lists["scaffold"], *lists["model"]]
    if baseline and baseline not in names:
        fix = suggest(baseline, names)
        raise BadInput(
            f"the baseline {baseline!r} is not measured here", fix=fix, code="no-baseline"
        )
    parts = {"scaffolds": lists["scaffold"], "models": lists["model"], "domains": lists["domain"]}
    first = {"model": lists["model"][0], "domain": lists["domain"][0]}
    try:
        return Suite.model_validate({"settings": settings.model_copy(update=first), **parts, **own})
    except ValidationError as e:
        key = ".".join(map(str, e.errors()[0]["loc"]))
        wrong = f"{key}: {e.errors()[0]['msg'].lower()}, got {e.errors()[0]['input']!r}"
        raise BadInput(
            wrong,
            fix="mend that line; recreate bench --help says what each key is",
            code="bad-suite",
        ) from None
