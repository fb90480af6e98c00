"""What the RL stage trains with, as data: a TOML file of parts, one table each. No torch is needed to read one.

Each part fills slots; two parts in one slot, an unknown part or an unknown key are BadInput. A slot that no part
fills does what plain GRPO does.
"""

from __future__ import annotations

import difflib
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, ClassVar, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, SerializeAsAny, ValidationError, model_validator

from recreate.api.errors import BadInput

FOLDER = Path(__file__).parent / "recipes"
P = TypeVar("P", bound="RecipePart")

SLOTS: dict[str, str] = {
    "reward": "what is done to rewards before they are compared",
    "filter": "which rows reach the update",
    "advantage": "how good a row is beside its group",
    "replay": "which stored rollouts are trained on again",
    "row weight": "how much a row counts",
    "rollout": "how an answer is generated",
    "likelihood": "the likelihood of rows that are not tokens",
    "ratio": "the policy beside the one that acted",
    "surrogate": "the loss of a token, and where it is clipped",
    "token weight": "how much a token counts",
    "penalty": "what keeps the policy near its reference",
    "aggregate": "one number from all tokens",
}
"""In the order in which an update goes through them."""


class RecipePart(BaseModel):
    """One table of a recipe. `slots` are what it fills."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)
    slots: ClassVar[tuple[str, ...]] = ()


class ClipReward(RecipePart):
    slots = ("reward",)
    low: float = -1.0
    high: float = 1.0


class Overlong(RecipePart):
    """max_length and buffer in tokens; factor is the penalty at max_length."""

    slots = ("reward",)
    max_length: int = Field(gt=0)
    buffer: int = Field(gt=0)
    factor: float = Field(default=1.0, ge=0)

    @model_validator(mode="after")
    def _leaves_room(self) -> Overlong:
        if self.buffer >= self.max_length:
            raise ValueError(f"buffer must be below max_length {self.max_length}, or every answer is penalised")
        return self


class DynamicSampling(RecipePart):
    """tolerance: the least range of rewards that counts as varied. max_batches: 0 generates without end."""

    slots = ("filter",)
    tolerance: float = Field(default=1e-6, ge=0)
    max_batches: int = Field(default=10, ge=0)


class Successes(RecipePart):
    slots = ("filter",)
    threshold: float = 1.0


class GRPO(RecipePart):
    slots = ("advantage",)
    scale: Literal["group", "batch", "none"] = "group"
    eps: float = Field(default=1e-6, gt=0)
    unscored: Literal["group", "row"] = "group"


class DrGRPO(RecipePart):
    slots = ("advantage",)
    unscored: Literal["group", "row"] = "group"


class RLOO(RecipePart):
    slots = ("advantage",)
    normalise: bool = False
    unscored: Literal["group", "row"] = "group"


class GAPO(RecipePart):
    slots = ("advantage",)
    fraction: float = Field(default=0.5, gt=0, le=1)
    center: Literal["median", "mean"] = "median"
    scale: Literal["deviation", "std", "none"] = "deviation"
    eps: float = Field(default=1e-6, gt=0)
    pair: Literal["interval", "grpo"] = "interval"
    unscored: Literal["group", "row"] = "group"


class GiGPO(RecipePart):
    slots = ("advantage",)
    gamma: float = Field(default=0.95, ge=0, le=1)
    weight: float = Field(default=1.0, ge=0)
    scale: Literal["group", "none"] = "group"
    across_steps: bool = False
    similarity: float = Field(default=0.0, ge=0, lt=1)
    eps: float = Field(default=1e-6, gt=0)
    unscored: Literal["group", "row"] = "group"


class Constant(RecipePart):
    slots = ("advantage",)
    value: float = 1.0


class A2R(RecipePart):
    """What recreate.rl.replay says of each. Two are the trainer's to heed: rollouts, stored ones or the task alone with
    fresh ones; advantages, frozen with their group or taken again with stored and fresh in one group."""

    slots = ("replay", "row weight")
    share: float = Field(default=0.25, ge=0, le=1)
    alpha: float = Field(default=1.0, ge=0)
    temperature: float | Literal["median"] = 1.0
    min_epochs: int = Field(default=2, ge=2)
    max_age: int = Field(default=2, ge=1)
    metric: Literal["mean", "exact"] = "mean"
    right: float = 1.0
    window: int = Field(default=0, ge=0)
    select: Literal["proportional", "band"] = "proportional"
    form: Literal["exponential", "reciprocal", "truncated"] = "exponential"
    rollouts: Literal["stored", "fresh"] = "stored"
    advantages: Literal["frozen", "again"] = "frozen"

    @model_validator(mode="after")
    def _warm(self) -> A2R:
        if self.temperature != "median" and self.temperature <= 0:
            raise ValueError("temperature must be above 0, or 'median'")
        return self


class LEPO(RecipePart):
    """steps: latent steps at the start of an answer. centre: advantages less their group's mean on those steps."""

    slots = ("rollout", "likelihood")
    steps: int = Field(default=64, ge=0)
    noise: Literal["gumbel", "gaussian", "dirichlet", "soft"] = "gumbel"
    strength: float = Field(default=0.3, gt=0)
    top_k: int = Field(default=30, ge=1)
    top_p: float = Field(default=0.95, gt=0, le=1)
    sample_ids: bool = False
    centre: bool = False


class TokenRatio(RecipePart):
    slots = ("ratio",)
    limit: float = Field(default=20.0, gt=0)


class SequenceRatio(RecipePart):
    slots = ("ratio",)
    limit: float = Field(default=10.0, gt=0)


class Clip(RecipePart):
    """dual 0: no dual clip."""

    slots = ("surrogate",)
    low: float = Field(default=0.2, ge=0, le=1)
    high: float = Field(default=0.2, ge=0)
    dual: float = Field(default=0.0, ge=0)

    @model_validator(mode="after")
    def _above_one(self) -> Clip:
        if 0 < self.dual <= 1:
            raise ValueError("dual must be above 1, or 0 for none")
        return self


class CISPO(RecipePart):
    slots = ("surrogate",)
    lowest: float = Field(default=0.0, ge=0)
    highest: float = Field(default=1.28, gt=0)


class LogLikelihood(RecipePart):
    slots = ("ratio", "surrogate")


class SimPO(RecipePart):
    slots = ("advantage", "ratio", "surrogate", "token weight", "aggregate")
    beta: float = Field(default=2.0, gt=0)
    margin: float = 1.0
    apart: float = Field(default=0.0, ge=0)


class STEER(RecipePart):
    slots = ("token weight",)
    form: Literal["released", "theorem", "full"] = "released"
    mapping: Literal["exponential", "linear"] = "exponential"
    least: float = Field(default=0.7, gt=0, le=1)
    most: float = Field(default=1.0, gt=0)
    signed: bool = False
    floor: float = Field(default=0.02, ge=0)
    scope: Literal["micro", "mini", "global"] = "micro"

    @model_validator(mode="after")
    def _ordered(self) -> STEER:
        if self.most < self.least:
            raise ValueError(f"most {self.most:g} must not be below least {self.least:g}")
        return self


class KL(RecipePart):
    slots = ("penalty",)
    weight: float = Field(default=0.04, ge=0)
    kind: Literal["k1", "k2", "k3", "abs"] = "k3"
    straight: bool = False


class TokenMean(RecipePart):
    slots = ("aggregate",)


class TokenSum(RecipePart):
    slots = ("aggregate",)


class SequenceMean(RecipePart):
    slots = ("aggregate",)


class SequenceSum(RecipePart):
    slots = ("aggregate",)


class ConstantLength(RecipePart):
    """length in tokens: the same at every step; 0 is the trainer's max_response."""

    slots = ("aggregate",)
    length: int = Field(default=0, ge=0)


PARTS: dict[str, type[RecipePart]] = {
    "clip-reward": ClipReward,
    "overlong": Overlong,
    "dynamic-sampling": DynamicSampling,
    "successes": Successes,
    "grpo": GRPO,
    "dr-grpo": DrGRPO,
    "rloo": RLOO,
    "gapo": GAPO,
    "gigpo": GiGPO,
    "constant": Constant,
    "a2r": A2R,
    "lepo": LEPO,
    "token-ratio": TokenRatio,
    "sequence-ratio": SequenceRatio,
    "clip": Clip,
    "cispo": CISPO,
    "log-likelihood": LogLikelihood,
    "simpo": SimPO,
    "steer": STEER,
    "kl": KL,
    "token-mean": TokenMean,
    "token-sum": TokenSum,
    "sequence-mean": SequenceMean,
    "sequence-sum": SequenceSum,
    "constant-length": ConstantLength,
}

PLAIN: dict[str, RecipePart] = {
    "advantage": GRPO(),
    "ratio": TokenRatio(),
    "surrogate": Clip(),
    "aggregate": SequenceMean(),
}
"""What a slot does that no part fills; a slot that is not here does nothing."""


class Train(RecipePart):
    """What is not the method's: sizes of a step, sampling, the optimiser. Lengths in tokens.

    updates: passes over a batch of rollouts; mini_batches: optimiser steps in each.
    """

    group_size: int = Field(default=8, ge=1)
    prompts: int = Field(default=8, ge=1)
    max_prompt: int = Field(default=2048, ge=1)
    max_response: int = Field(default=1024, ge=1)
    temperature: float = Field(default=1.0, gt=0)
    top_p: float = Field(default=1.0, gt=0, le=1)
    top_k: int = Field(default=0, ge=0)
    updates: int = Field(default=1, ge=1)
    mini_batches: int = Field(default=1, ge=1)
    learning_rate: float = Field(default=1e-6, gt=0)
    weight_decay: float = Field(default=0.0, ge=0)
    warmup_steps: int = Field(default=0, ge=0)
    max_grad_norm: float = Field(default=1.0, gt=0)
    lora_rank: int = Field(default=16, ge=0)
    lora_alpha: int = Field(default=32, ge=1)


class Recipe(BaseModel):
    """A named set of parts, and how to train with them. source: the paper and code that the values come from."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    name: str
    about: str
    source: str
    train: Train = Train()
    parts: dict[str, SerializeAsAny[RecipePart]] = {}

    def part(self, slot: str) -> RecipePart | None:
        """What fills the slot: a part of the recipe, else plain GRPO's, else None (the identity)."""
        if slot not in SLOTS:
            raise KeyError(slot)
        found = next((p for p in self.parts.values() if slot in p.slots), None)
        return found or PLAIN.get(slot)

    def name_of(self, slot: str) -> str:
        """The name of what fills the slot; '' for nothing."""
        part = self.part(slot)
        return next((name for name, kind in PARTS.items() if type(part) is kind), "")


def names() -> list[str]:
    """The recipes that come with recreate."""
    return sorted(file.stem for file in FOLDER.glob("*.toml"))


def load(name_or_path: str | Path) -> Recipe:
    """A shipped recipe by its name, or a file (its name ends in .toml, or holds a /). Raises BadInput."""
    return _open(file_of(name_or_path))


def file_of(name_or_path: str | Path) -> Path:
    """Where that recipe stands. Raises BadInput."""
    text = str(name_or_path)
    if isinstance(name_or_path, Path) or text.endswith(".toml") or "/" in text:
        file = Path(name_or_path)
        if not file.is_file():
            raise BadInput(f"there is no recipe file {text}", fix="check the path", code="unknown-recipe")
        return file
    known = names()
    if text not in known:
        near = difflib.get_close_matches(text, known, 1)
        hint = f"did you mean {near[0]!r}? " if near else ""
        raise BadInput(
            f"no recipe is called {text!r}",
            fix=f"{hint}there are: {', '.join(known)}; or give a TOML file's path",
            code="unknown-recipe",
        )
    return FOLDER / f"{text}.toml"


def _open(file: Path) -> Recipe:
    try:
        return read(file.read_text("utf-8"), name=file.stem, where=file.name)
    except (OSError, UnicodeDecodeError) as e:
        raise BadInput(f"{file} cannot be read: {e}", fix="give a TOML file in UTF-8", code="bad-recipe") from None


def read(text: str, *, name: str, where: str = "") -> Recipe:
    """The recipe that a TOML text is. Raises BadInput that says where, with the nearest known name."""
    where = where or name
    try:
        table = tomllib.loads(text)
    except tomllib.TOMLDecodeError as e:
        raise BadInput(f"{where}: {e}", fix="mend the line that it names", code="bad-recipe") from None
    facts = {key: value for key, value in table.items() if not isinstance(value, Mapping)}
    _known(where, facts, ("about", "source"), "there is no key")
    for key in ("about", "source"):
        if not isinstance(facts.get(key), str) or not facts[key]:
            raise BadInput(f"{where}: {key!r} is missing", fix=f'begin the file with {key} = "..."', code="bad-recipe")
    tables = {key: value for key, value in table.items() if isinstance(value, Mapping)}
    _known(where, tables, ("train", *PARTS), "there is no part")
    parts = {key: _part(where, key, PARTS[key], values) for key, values in tables.items() if key != "train"}
    _one_a_slot(where, parts)
    recipe = Recipe(
        name=name,
        about=facts["about"],
        source=facts["source"],
        train=_part(where, "train", Train, tables.get("train", {})),
        parts=parts,
    )
    _fit(where, recipe)
    return recipe


def _known(where: str, given: Mapping[str, Any], known: tuple[str, ...], what: str) -> None:
    for key in given:
        if key not in known:
            near = difflib.get_close_matches(key, known, 1)
            hint = f"did you mean {near[0]!r}? " if near else ""
            raise BadInput(
                f"{where}: {what} {key!r}", fix=f"{hint}there are: {', '.join(known)}", code="unknown-in-recipe"
            )


def _part(where: str, key: str, kind: type[P], values: Mapping[str, Any]) -> P:
    _known(f"{where}: [{key}]", values, tuple(kind.model_fields), "there is no key")
    try:
        return kind.model_validate(values, strict=True)  # TOML has types: "8" is no number
    except ValidationError as e:
        first = e.errors()[0]
        at = ".".join(str(p) for p in first["loc"] if isinstance(p, str)).partition(".")[0]
        said = first["msg"].removeprefix("Value error, ")
        field = kind.model_fields.get(at)
        raise BadInput(
            f"{where}: [{key}] {at}{': ' if at else ''}{said[:1].lower()}{said[1:]}"
            + (f", got {first['input']!r}" if at and first["type"] != "missing" else ""),
            fix=f"the default is {field.default!r}" if field and not field.is_required() else f"set it under [{key}]",
            code="bad-recipe",
        ) from None


def _one_a_slot(where: str, parts: Mapping[str, RecipePart]) -> None:
    filled: dict[str, str] = {}
    for name, part in parts.items():
        for slot in part.slots:
            if slot in filled:
                raise BadInput(
                    f"{where}: [{filled[slot]}] and [{name}] both fill the slot {slot!r} ({SLOTS[slot]})",
                    fix=f"keep one of [{filled[slot]}] and [{name}]",
                    code="slot-taken",
                )
        filled |= dict.fromkeys(part.slots, name)


def _fit(where: str, recipe: Recipe) -> None:
    """What no slot shows: parts that do not go together."""
    for fault, fix in _faults(recipe):
        raise BadInput(f"{where}: {fault}", fix=fix, code="recipe-does-not-fit")


def _faults(recipe: Recipe) -> Iterator[tuple[str, str]]:
    parts = recipe.parts
    lepo, steer, gapo, overlong = (parts.get(n) for n in ("lepo", "steer", "gapo", "overlong"))
    if isinstance(lepo, LEPO) and gapo is not None and lepo.steps and not lepo.centre:
        yield (
            "[gapo]'s advantages do not sum to 0 in a group, which on [lepo]'s latent steps flattens the policy",
            "set centre = true under [lepo], or take [grpo]",
        )
    if steer is not None and "log-likelihood" in parts:
        yield "[steer] weighs by the ratio, which [log-likelihood] has not", "leave one of the two out"
    if isinstance(overlong, Overlong) and overlong.max_length > recipe.train.max_response:
        yield (
            f"[overlong] max_length {overlong.max_length} is above [train] max_response {recipe.train.max_response}",
            "no answer can be that long: set both to the same",
        )
    if "simpo" in parts and "a2r" in parts:
        yield "[simpo] has no ratio by which [a2r] could weigh stale rows", "leave [a2r] out"
