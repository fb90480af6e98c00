"""What a table of arms compares, as data: SUITE.toml, or flags. Reading one needs no torch and
spends nothing.

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
from recreate.api.config import Config, Split, read_toml
from recreate.api.errors import BadInput
from recreate.plugins.local_models.transformers import trainable
from recreate.plugins.rl import recipe as recipes
from recreate.runs import settings as settings_
from recreate.runs.budget import Budget
from recreate.runs.settings import Settings, addresses, toml
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
    def made(self) -> bool:
        """Whether making it spends of the budget."""
        return self.build or bool(self.recipe)


class Suite(Config):
    """All that a table is made from. `settings.repeats` is that of measuring and of the builds'
    gate."""

    settings: Settings
    split: Split
    tasks: int = Field(default=0, ge=0)
    arms: tuple[Arm, ...]

    @property
    def budget(self) -> Budget:
        """The cap of making each arm."""
        return Budget.parse(self.settings.budget)

    def dump(self) -> str:
        """As SUITE.toml."""
        own = f"split = {toml(self.split)}\ntasks = {self.tasks}\n"
        tables = "".join(
            f"\n[arms.{toml(arm.name)}]\n"
            + "".join(
                f"{k} = {toml(v)}\n"
                for k, v in arm.model_dump(exclude_defaults=True, exclude={"name"}).items()
            )
            for arm in self.arms
        )
        return own + settings_.dump(self.settings) + tables


def read(
    file: Path, where: Path, given: Mapping[str, Any], split: str = "", tasks: int | None = None
) -> Suite:
    """A suite of a file. given: flags by address, which win over it, as `split` and `tasks` do.
    Raises BadInput."""
    table, own, arms = _parsed(file)
    loaded = settings_.load(where, {**settings_.flat(table), **given})
    return of(
        loaded,
        split or own["split"] or "validation",
        own["tasks"] if tasks is None else tasks,
        arms,
    )


def measuring(
    file: Path, where: Path, given: Mapping[str, Any], split: str = "", tasks: int | None = None
) -> tuple[Settings, str, int]:
    """(settings, split, tasks at most) of a suite whose arms are not made. Raises BadInput."""
    table, own, _ = _parsed(file)
    loaded = settings_.load(where, {**settings_.flat(table), **given})
    return (
        loaded,
        split or own["split"] or "validation",
        (own["tasks"] or 0) if tasks is None else tasks,
    )


def write(suite: Suite, file: Path) -> None:
    """SUITE.toml, whole or not at all."""
    files.write(file, suite.dump())


def written(file: Path) -> Suite:
    """The suite that `write` wrote, as it was then: neither recreate.toml nor flags are asked.
    Raises BadInput."""
    table, own, arms = _parsed(file)
    if not arms or None in own.values():
        raise BadInput(
            f"{file} does not say what this table compares: it is empty, or cut off",
            fix=(
                "write there the suite that the table was begun with, or give another folder with"
                " --out"
            ),
            code="bad-suite",
        )
    try:
        return Suite(settings=Settings.model_validate(table), arms=tuple(arms), **own)
    except ValidationError as e:
        raise _wrong(str(file), e) from None


def of_names(names: Sequence[str], how: Mapping[str, Any]) -> list[Arm]:
    """The standard arms of these names. how: `recipe`, `steps` and `build_share`, for those that
    they concern.

    Raises BadInput for another name, for weights without a recipe, and (`usage`) for what concerns
    none of them.
    """
    found, used = [], set[str]()
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


def of(settings: Settings, split: str, tasks: Any, arms: Iterable[Arm]) -> Suite:
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
                fix=f"set {address} = {toml(off)}",
                code="not-in-arms",
            )
    for arm in chosen:
        if arm.recipe:
            recipes.load(arm.recipe)
    here = bool(settings.model) and Path(settings.model).expanduser().is_dir()
    if here or any(arm.recipe for arm in chosen):
        settings = settings.model_copy(update={"model": trainable(settings.model)})
    if not settings.budget and any(arm.made for arm in chosen):
        raise BadInput(
            "no budget is stated, so the arms cannot be compared",
            fix="--budget 4000attempts",
            code="no-budget",
        )
    Budget.parse(settings.budget)
    try:
        about: dict[str, Any] = {"split": split, "tasks": tasks or 0}
        return Suite(settings=settings, arms=tuple(chosen), **about)
    except ValidationError as e:
        raise _wrong("the suite", e) from None


def chosen(suite: Suite, names: Sequence[str]) -> Suite:
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
    fix = f"{recipes.near(name, known)}there are: {', '.join(known)}; a suite may name others"
    return BadInput(f"there is no arm {name!r}", fix=fix, code="no-arm")


def joined(earlier: Suite, now: Suite) -> Suite:
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


def _parsed(file: Path) -> tuple[dict[str, Any], dict[str, Any], list[Arm]]:
    """(settings as they stand there, `split` and `tasks`, the arms). Raises BadInput."""
    try:
        table = read_toml(file.read_text("utf-8"))
    except OSError as e:
        raise BadInput(
            f"{file}: {e.strerror}",
            fix="name a suite: recreate/plugins/rl/arms.md has one",
            code="no-suite",
        ) from None
    except ValueError as e:
        raise BadInput(
            f"{file} cannot be read: {e}", fix="mend the line that it names", code="bad-suite"
        ) from None
    arms, own = table.pop("arms", {}), {k: table.pop(k, None) for k in ("split", "tasks")}
    known = addresses()
    for key in settings_.flat(table):
        if key not in known:
            raise _unknown(file.name, key, [*known, "split", "tasks", "arms"])
    if not isinstance(arms, dict) or not all(isinstance(v, dict) for v in arms.values()):
        raise BadInput(
            f"{file.name}: arms are tables", fix="write [arms.weights]", code="bad-suite"
        )
    return (
        table,
        own,
        [_arm(f"{file.name} [arms.{name}]", name, keys) for name, keys in arms.items()],
    )


def _arm(at: str, name: str, keys: Mapping[str, Any]) -> Arm:
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
    if name != SEED and not arm.made and not arm.run:
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
    fix = recipes.near(key, known).strip() or f"there are: {', '.join(known)}"
    return BadInput(f"{at}: there is no key {key!r}", fix=fix, code="unknown-key")


def _wrong(at: str, error: ValidationError) -> BadInput:
    first = error.errors()[0]
    key = ".".join(str(p) for p in first["loc"])
    return BadInput(
        f"{at}: {key}: {first['msg'].lower()}, got {first['input']!r}",
        fix="recreate/plugins/rl/arms.md has an example",
        code="bad-suite",
    )
