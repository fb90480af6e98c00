"""The arms of a suite, as data: cells that are built or tuned before they are measured, of
SUITE.toml or of flags. Reading them needs no torch and spends nothing.

    domain = "swe"
    model = "./SmolLM2-135M-Instruct"
    split = "test"
    repeats = 2
    budget = ["4000attempts"]

    [models]
    optimizer = "litellm:openai/gpt-5-mini"

    [arms.scaffold]
    build = true

    [arms.weights]
    recipe = "grpo"
    steps = 25

    [arms.both]
    build = true
    recipe = "grpo"
    steps = 25

Every setting of recreate.toml may stand at the top, and `split` and `tasks` (at most so many; 0:
all). The arm `seed` is always there. `budget` is the cap of making each arm; measuring is not in
it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, get_args

from pydantic import Field, ValidationError

from recreate.api import registry
from recreate.api.config import Config, toml_value
from recreate.api.errors import BadInput
from recreate.api.shapes import JsonDict, JsonMap
from recreate.api.types import Split
from recreate.plugins.bench.suite import Suite, SuiteTable, read_table, suggest
from recreate.plugins.local_models.transformers import trainable
from recreate.plugins.rl import recipe as recipes
from recreate.runs import settings as settings_
from recreate.runs.budget import Budget
from recreate.runs.settings import Settings
from recreate.storage import files

SEED = "seed"
STANDARD: Mapping[str, tuple[bool, bool]] = {
    SEED: (False, False),
    "scaffold": (True, False),
    "weights": (False, True),
    "both": (True, True),
}
"""The arms that flags can ask for: whether each is built, and whether it is tuned."""

_OF_TUNE = ("steps", "micro_batch", "rollouts")


class Arm(Config):
    """One row: how its agent and its model are made.

    build        the scaffold is built
    optimizer    of an arm that is built: who proposes, in place of the suite's
    recipe       the model is tuned, by this recipe, for at most `steps` training steps
    build_share  of an arm that is both: which part of the budget its build may use; tuning has what
                 is left
    run          in place of making: a run of build, one of tune, or a run of each, made before
    """

    name: str
    build: bool = False
    optimizer: str = ""
    recipe: str = ""
    steps: int = Field(default=50, ge=1)
    micro_batch: int = Field(default=4, ge=1)
    rollouts: Literal["here", "vllm", "transformers"] = "here"
    build_share: float = Field(default=0.5, gt=0, lt=1)
    run: tuple[str, ...] = ()

    @property
    def is_made(self) -> bool:
        """Whether making it spends of the budget."""
        return self.build or bool(self.recipe)


class ArmSuite(Suite):
    """A suite whose cells are made first, the seed among them. `settings.repeats` is that of
    measuring and of the builds' gate."""

    arms: tuple[Arm, ...]

    @property
    def budget(self) -> Budget:
        """The cap of making each arm."""
        return Budget.parse(self.settings.budget)


def read(
    file: Path, where: Path, given: JsonMap, split: str = "", tasks: int | None = None
) -> ArmSuite:
    """Return the arms of a suite's file. given: flags by address, which win over it, as `split` and
    `tasks` do. Raises BadInput."""
    table = read_table(file)
    named = split or table.own.get("split") or "validation"
    most = table.own.get("tasks") if tasks is None else tasks
    return of(table.load(where, given), named, most, _arms_of(file.name, table))


def write(suite: ArmSuite, file: Path) -> None:
    """Write SUITE.toml, whole or not at all."""
    files.write(file, suite.dump())


def read_begun(file: Path) -> ArmSuite:
    """Return the suite that `write` wrote, as it was then: neither recreate.toml nor flags are
    asked. Raises BadInput."""
    table = read_table(file)
    if not table.arms or not {"split", "tasks"} <= table.own.keys():
        raise BadInput(
            f"{file} does not say what this table compares: it is empty, or cut off",
            fix=(
                "write there the suite that the table was begun with, or give another folder with"
                " --out"
            ),
            code="bad-suite",
        )
    try:
        firsts = {axis: names[0] for axis, names in table.axes.items()}
        settings = Settings.model_validate({**table.settings, **firsts})
        own = {"split": table.own["split"], "tasks": table.own["tasks"]}
        return _join_axes(settings, _arms_of(file.name, table), own)
    except ValidationError as e:
        raise _wrong(str(file), e) from None


def _join_axes(settings: Settings, arms: Iterable[Arm], own: JsonMap) -> ArmSuite:
    axes: JsonDict = {"scaffolds": (settings.scaffold,), "models": (settings.model,)}
    axes["domains"] = (settings.domain,)
    return ArmSuite(settings=settings, arms=tuple(arms), **axes, **own)


def _arms_of(name: str, table: SuiteTable) -> list[Arm]:
    return [_arm(f"{name} [arms.{arm}]", arm, keys) for arm, keys in table.arms.items()]


def of_names(names: Sequence[str], how: JsonMap) -> list[Arm]:
    """The standard arms of these names. how: `recipe`, `steps` and `build_share`, for those that
    they concern.

    Raises BadInput for another name, for weights without a recipe, and (`usage`) for what concerns
    none of them.
    """
    found = []
    used = set[str]()
    for name in dict.fromkeys(names):
        if name not in STANDARD:
            raise unknown_arm(name, STANDARD)
        builds, tunes = STANDARD[name]
        own = {"recipe": tunes, "steps": tunes, "build_share": builds and tunes}
        keys = {**({"build": True} if builds else {}), **{k: v for k, v in how.items() if own[k]}}
        used |= keys.keys()
        found.append(_arm(f"--arms {name}", name, keys))
    for key in how:
        if key not in used:
            of_whom = "both" if key == "build_share" else "weights or both"
            raise BadInput(
                f"--{key.replace('_', '-')} says nothing of --arms {','.join(names)}",
                fix=f"leave it out, or add {of_whom}",
                code="usage",
            )
    return found


def of_optimizers(names: Sequence[str]) -> list[Arm]:
    """A built arm for each optimizer, called as it is. Raises BadInput for one that is not
    there."""
    found = []
    for name in dict.fromkeys(names):
        registry.find("optimizer", name)
        called = re.sub(r"[^a-z0-9+_.-]+", "-", name.lower()).strip("-+_.")
        found.append(_arm(f"--optimizers {name}", called, {"build": True, "optimizer": name}))
    return found


def of(settings: Settings, split: str, tasks: Any, arms: Iterable[Arm]) -> ArmSuite:
    """A suite whose parts go together, the seed first. Raises BadInput for what can be seen without
    opening a part."""
    chosen = [Arm(name=SEED), *(arm for arm in arms if arm.name != SEED)]
    if split not in get_args(Split):
        raise BadInput(
            f"there is no split {split!r}",
            fix="--split train, validation or test",
            code="bad-split",
        )
    if len(chosen) == 1:
        raise BadInput(
            "there is no arm to compare with the seed",
            fix=f"--arms {','.join(STANDARD)}, or a table [arms.NAME] in the suite",
            code="no-arms",
        )
    for address, off in (("review", False), ("from_experience", False), ("memory.policy", "none")):
        at: Any = settings
        for name in address.split("."):
            at = getattr(at, name)
        if at != off:
            raise BadInput(
                f"{address} = {at!r} cannot be in a table of arms: each arm learns from what its"
                " own budget paid for",
                fix=f"set {address} = {toml_value(off)}",
                code="not-in-arms",
            )
    for arm in chosen:
        if arm.recipe:
            recipes.load(arm.recipe)
    here = bool(settings.model) and Path(settings.model).expanduser().is_dir()
    if here or any(arm.recipe for arm in chosen):
        settings = settings.model_copy(update={"model": trainable(settings.model)})
    if not settings.budget and any(arm.is_made for arm in chosen):
        raise BadInput(
            "no budget is stated, so the arms cannot be compared",
            fix="--budget 4000attempts",
            code="no-budget",
        )
    Budget.parse(settings.budget)
    try:
        return _join_axes(settings, chosen, {"split": split, "tasks": tasks or 0})
    except ValidationError as e:
        raise _wrong("the suite", e) from None


def chosen(suite: ArmSuite, names: Sequence[str]) -> ArmSuite:
    """The suite with these arms only. Raises BadInput for one that it does not have."""
    known = {arm.name: arm for arm in suite.arms}
    for name in names:
        if name not in known:
            raise unknown_arm(name, known)
    return of(
        suite.settings, suite.split, suite.tasks, [known[name] for name in dict.fromkeys(names)]
    )


def unknown_arm(name: str, known: Iterable[str]) -> BadInput:
    """The error for an arm that is not there."""
    known = list(known)
    fix = f"{recipes.suggest(name, known)}there are: {', '.join(known)}; a suite may name others"
    return BadInput(f"there is no arm {name!r}", fix=fix, code="no-arm")


def joined(earlier: ArmSuite, now: ArmSuite) -> ArmSuite:
    """`now` with the arms that the folder has besides. Raises BadInput (`another-run`) where they
    contradict."""
    other = [*settings_.differing(earlier.settings, now.settings)]
    other += [name for name in ("split", "tasks") if getattr(earlier, name) != getattr(now, name)]
    old = {arm.name: arm for arm in earlier.arms}
    other += [f"arms.{arm.name}" for arm in now.arms if old.get(arm.name, arm) != arm]
    if other:
        raise BadInput(
            f"this table was begun with another {other[0]}",
            fix="give what it was begun with, or another folder with --out",
            code="another-run",
        )
    return now.model_copy(
        update={"arms": tuple({**old, **{arm.name: arm for arm in now.arms}}.values())}
    )


def _arm(at: str, name: str, keys: JsonMap) -> Arm:
    known = [key for key in Arm.model_fields if key != "name"]
    for key in keys:
        if key not in known:
            raise _unknown(at, key, known)
    if not re.fullmatch(r"[a-z0-9][a-z0-9+_.-]*", name):
        raise BadInput(
            f"{at}: an arm's name is of small letters, digits, + - _ and .",
            fix="[arms.weights]",
            code="bad-suite",
        )
    if name == SEED and keys:
        raise BadInput(
            f"{at}: nothing is made for the seed", fix="leave its table empty", code="bad-suite"
        )
    run = keys.get("run")
    try:
        arm = Arm.model_validate(
            {**keys, "name": name, **({"run": (run,)} if isinstance(run, str) else {})}
        )
    except ValidationError as e:
        raise _wrong(at, e) from None
    builds, tunes = STANDARD.get(name, (arm.build, bool(arm.recipe)))
    if tunes and not arm.recipe and not arm.run:
        raise BadInput(
            f"{at}: no recipe says how its weights are trained",
            fix=(
                '--recipe grpo, or recipe = "grpo" in the suite; there are:'
                f" {', '.join(recipes.names())}"
            ),
            code="no-recipe",
        )
    if name != SEED and not arm.is_made and not arm.run:
        raise BadInput(
            f"{at}: nothing is made for it",
            fix="build = true, a recipe, or a run",
            code="bad-suite",
        )
    if arm.run and len(keys) > 1:
        raise BadInput(
            f"{at}: a run made before is not made", fix="leave out all but run", code="bad-suite"
        )
    idle = [key for key in _OF_TUNE if key in keys and not arm.recipe]
    idle += ["build_share"] if "build_share" in keys and not (arm.build and arm.recipe) else []
    idle += ["optimizer"] if arm.optimizer and not arm.build else []
    if idle or (
        name in STANDARD and not arm.run and (arm.build, bool(arm.recipe)) != (builds, tunes)
    ):
        what = f"{idle[0]} says nothing here" if idle else f"this is not what {name!r} means"
        raise BadInput(
            f"{at}: {what}", fix="leave it out, or give the arm another name", code="bad-suite"
        )
    return arm


def _unknown(at: str, key: str, known: Sequence[str]) -> BadInput:
    return BadInput(f"{at}: there is no key {key!r}", fix=suggest(key, known), code="unknown-key")


def _wrong(at: str, error: ValidationError) -> BadInput:
    first = error.errors()[0]
    key = ".".join(str(p) for p in first["loc"])
    return BadInput(
        f"{at}: {key}: {first['msg'].lower()}, got {first['input']!r}",
        fix="an arm is [arms.NAME] with build = true, recipe = NAME, or both",
        code="bad-suite",
    )
