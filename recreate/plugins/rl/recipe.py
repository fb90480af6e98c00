"""What the RL stage trains with, as data: a TOML file of parts, one table each. No torch is needed
to read one.

Each part fills slots; two parts in one slot, an unknown part or an unknown key are BadInput. A slot
that no part fills does what plain GRPO does. A new method is one file with one class
(tests/examples/rl_method.py is one):

    class Median(RecipePart):
        slots = ("advantage",)
        scale: float = Field(default=1.0, gt=0)          # a knob: a key of the part's table

        def __call__(self, rows: Rows) -> Tensor: ...    # import torch in here, or take
        recreate.plugins.rl.lazy_torch

A recipe names it `["package.module:Median"]`, or by its entry point's name in the group
`recreate.recipe_part`.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, NamedTuple, TypeVar

from pydantic import BaseModel, ConfigDict, Field, SerializeAsAny, ValidationError

from recreate.api import plugins, registry
from recreate.api.config import read_toml, write_toml
from recreate.api.errors import BadInput
from recreate.api.shapes import JsonDict, JsonMap

if TYPE_CHECKING:
    from torch import Tensor

    from recreate.plugins.rl.parts.groups import Groups

KIND = "recipe-part"
"""What the registry calls a part."""
ONE_MACHINE = "leave --trainer verl out: one machine does that"
FOLDER = Path(__file__).parent / "recipes"
P = TypeVar("P", bound="RecipePart")

SLOTS: dict[str, str] = {
    "process": "what an attempt earns beside its grade",
    "reward": "what is done to rewards before they are compared",
    "truncation": "what becomes of attempts that were cut off",
    "filter": "which rows reach the update",
    "advantage": "how good a row is beside its group",
    "replay": "which stored rollouts are trained on again",
    "importance weight": "how much a row counts",
    "rollout": "how an answer is generated",
    "likelihood": "the likelihood of rows that are not tokens",
    "ratio": "the policy beside the one that acted",
    "policy loss": "the loss of a token, and where it is clipped",
    "token weight": "how much a token counts",
    "penalty": "what keeps the policy near its reference",
    "aggregate": "one number from all tokens",
}
"""In the order in which an update goes through them."""


class RecipePart(BaseModel):
    """One table of a recipe: its fields are the knobs. A call does what the first of its slots
    asks:

    process       (experience, a right answer or '') -> float, added to its grade before rewards are
                  shaped
    reward        (rewards (B,), lengths (B,) in tokens, cut (B,) bool: cut off) -> rewards (B,)
    truncation    (cut (B,) bool) -> (B,) bool, what reaches the update
    filter        (rows, scored (B,) bool: rows with a usable reward) -> (B,) bool, what reaches the
                  update
    advantage     (rows) -> (B,)
    replay        (seed) -> `AmbiguityReplay` of parts/a2r.py, which also gives the importance
                  weights
    rollout       (logits (1,V), step, sampling, embedding (V,d)) -> Drawn, the next token of a
                  reply
    ratio         (log_prob, old_log_prob, mask), (B,T) each -> (B,T)
    policy loss   (ratio, advantages, log_prob), (B,T) each -> PolicyLoss. ratio None: this part
                  fills its slot too
    token weight  (tokens, clipped: a call gives (B,T) bool, where the policy loss clips) -> (B,T)
    penalty       (log_prob, ref_log_prob), (B,T) each -> ((B,T) to add to the loss, (B,T) to watch
                  as `kl`)
    aggregate     (loss (B,T), mask, tokens=, rows=: counts of the whole batch or None,
                  max_response=) -> a scalar

    slots: what it fills. Of those after the first it needs nothing done, and nobody else fills
    them.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)
    slots: ClassVar[tuple[str, ...]] = ()

    rows_per_turn: ClassVar[bool] = False
    """Each turn of an attempt is a row. Of an advantage: it also wants `Rows.trajectories` and
    `Rows.anchors`."""
    in_pairs: ClassVar[bool] = False
    """Of a policy loss: it compares rows by `pairs`, and a call is (tokens) -> Loss, the whole
    loss."""
    verl_filter: ClassVar[bool] = False
    """Of a filter: verl's own does the same."""
    verl_note: ClassVar[str] = ""
    """What is otherwise with verl than on one machine."""
    short: ClassVar[Mapping[str, str]] = {}
    """Second names of its keys."""

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        raise NotImplementedError(f"{type(self).__name__} does nothing when it is called")

    @property
    def active(self) -> bool:
        """False where its knobs turn it off: the slot is then empty."""
        return True

    @property
    def scores_rows(self) -> bool:
        """Of an advantage: a NaN reward leaves out its row. Otherwise its whole group."""
        return False

    @property
    def latent_steps(self) -> int:
        """Of a rollout: how many steps at the start of a reply are no tokens."""
        return 0

    @property
    def centred(self) -> bool:
        """Of a rollout: advantages on its latent steps sum to 0 in a group."""
        return False

    @property
    def batches(self) -> int:
        """Of a filter: how many batches of tasks a step attempts at most; 0: without end."""
        return 1

    @property
    def replayed(self) -> float:
        """Of a replay: the rows that it adds to a step, as a part of the new ones."""
        return 0.0

    @property
    def wide(self) -> bool:
        """Of a token weight: it needs `extent` of every micro-batch of a mini-batch before its
        loss."""
        return False

    def faults(self, recipe: Recipe) -> Iterable[tuple[str, str]]:
        """(what does not go together with the rest of a recipe, what to do), when it is read."""
        return ()

    def refuse(self, recipe: Recipe, rollouts: str) -> None:
        """Raise BadInput for what cannot be had, before a run begins. rollouts: here, vllm or
        transformers."""

    def warnings(self, recipe: Recipe, pass_fail: bool) -> Iterable[str]:
        """What to know before anything is spent. pass_fail: the domain's rewards are 0 and 1
        only."""
        return ()

    def more(self, groups: Sequence[Sequence[float]], prompts: int, batches: int) -> bool:
        """Of a filter: whether more tasks should be attempted in this step. groups: their rewards;
        batches: so far."""
        return False

    def lay(self, own: Tensor, rows: Rows) -> Tensor:
        """Of a rollout: the advantages of rows, (B,), over their tokens: (B,T), 0 outside the
        mask."""
        from recreate.plugins.rl.parts.groups import spread

        return spread(own, rows.mask)

    def pairs(self, rewards: Tensor, groups: Groups) -> Tensor:
        """With `in_pairs`: (P,2), the rows that are compared."""
        raise NotImplementedError(f"{type(self).__name__} compares no pairs")

    def extent(self, tokens: Tokens, clipped: Callable[[], Tensor]) -> Any:
        """With `wide`: of one micro-batch. All of a mini-batch's, joined, are `Tokens.extent`."""
        return None

    def joined(self, extents: Sequence[Any]) -> Any:
        return None

    def on_verl(self, recipe: Recipe) -> Iterator[tuple[str, str]]:
        """(why verl cannot train with it, what to do)."""
        return iter(())

    def verl_actor(self, max_response: int) -> JsonDict:
        """Of a penalty or an aggregate: the keys of verl's `actor` that say the same. An aggregate
        has to name `loss_agg_mode`."""
        return {}


@dataclass(frozen=True)
class Rows:
    """What is known of B rows before an update. rewards (B,), groups, mask (B,T): the tokens the
    policy chose.

    trajectories, anchors and step_rewards (B,) are for advantages with a row a turn: whose step a
    row is (rows in time order), the observation it answered, and what the step earned; without
    step_rewards the episode's reward falls on its last step. cut (B,) bool: its attempt was cut
    off; None: none was.
    """

    rewards: Tensor
    groups: Groups
    mask: Tensor
    trajectories: Groups | None = None
    anchors: Sequence[Any] | None = None
    step_rewards: Tensor | None = None
    cut: Tensor | None = None


@dataclass(frozen=True)
class Tokens:
    """One micro-batch, (B,T) each. log_prob carries the gradient; old_log_prob None: this is the
    policy that acted.

    entropy (of the old pass) and square (of the token pass) are for token weights, ref_log_prob for
    the penalty, importance_weight (B,) or (B,T) for replayed rows, mixture (B,T) for latent ones:
    sum_k z_k log pi_k where `latent` is set. extent: what token weights are relative to when that
    is wider than this call. tokens and rows: the counts to divide by when this is a part of a
    batch. pairs (P,2): rows of this micro-batch, for a loss on pairs.
    """

    log_prob: Tensor
    advantages: Tensor
    mask: Tensor
    old_log_prob: Tensor | None = None
    ref_log_prob: Tensor | None = None
    entropy: Tensor | None = None
    square: Tensor | None = None
    importance_weight: Tensor | None = None
    latent: Tensor | None = None
    mixture: Tensor | None = None
    extent: Any = None
    tokens: float | Tensor | None = None
    rows: float | Tensor | None = None
    pairs: Tensor | None = None

    @property
    def acted(self) -> Tensor:
        """The log-probs of the policy that acted."""
        return self.log_prob.detach() if self.old_log_prob is None else self.old_log_prob


class PolicyLoss(NamedTuple):
    """loss (B,T), to be minimised, and where it was clipped: at the range's high or low end, or by
    the dual clip."""

    loss: Tensor
    clipped: Tensor
    dual: Tensor


class Loss(NamedTuple):
    """value: a scalar to minimise. watch: detached scalars by name (means over tokens unless the
    name says other)."""

    value: Tensor
    watch: dict[str, Tensor]


class Rates(BaseModel):
    """A learning rate for each way to train: of all weights, and of a LoRA adapter."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)
    full: float = Field(gt=0)
    lora: float = Field(gt=0)


class Train(RecipePart):
    """What is not the method's: sizes of a step, sampling, the optimiser. Lengths in tokens.

    updates: passes over a batch of rollouts; mini_batches: optimiser steps in each. learning_rate:
    one, or one for each way to train, {full = 1e-6, lora = 1e-4}, of which lora_rank takes its own
    (0: all weights).
    """

    short = {"lr": "learning_rate"}

    group_size: int = Field(default=8, ge=1)
    prompts: int = Field(default=8, ge=1)
    max_prompt: int = Field(default=2048, ge=1)
    max_response: int = Field(default=1024, ge=1)
    temperature: float = Field(default=1.0, gt=0)
    top_p: float = Field(default=1.0, gt=0, le=1)
    top_k: int = Field(default=0, ge=0)
    updates: int = Field(default=1, ge=1)
    mini_batches: int = Field(default=1, ge=1)
    learning_rate: Annotated[float, Field(gt=0)] | Rates = Rates(full=1e-6, lora=1e-4)
    weight_decay: float = Field(default=0.0, ge=0)
    warmup_steps: int = Field(default=0, ge=0)
    max_grad_norm: float = Field(default=1.0, gt=0)
    lora_rank: int = Field(default=16, ge=0)
    lora_alpha: int = Field(default=32, ge=1)

    @property
    def rate(self) -> float:
        """The optimiser's learning rate."""
        if isinstance(self.learning_rate, Rates):
            return self.learning_rate.lora if self.lora_rank else self.learning_rate.full
        return self.learning_rate


class Recipe(BaseModel):
    """A named set of parts, and how to train with them. source: the paper and code that the values
    come from."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    name: str
    about: str
    source: str
    train: Train = Train()
    parts: dict[str, SerializeAsAny[RecipePart]] = {}

    def part(self, slot: str) -> RecipePart | None:
        """What fills the slot: a part of the recipe, else plain GRPO's, else None (the
        identity)."""
        if slot not in SLOTS:
            raise KeyError(slot)
        found = next((p for p in self.parts.values() if slot in p.slots), None)
        return found or (_plain(PLAIN[slot]) if slot in PLAIN else None)

    def does(self, slot: str) -> RecipePart | None:
        """The part whose call does what the slot asks; None where nothing is to be done, or another
        slot's part does it in passing."""
        part = self.part(slot)
        return part if part is not None and part.slots[0] == slot and part.active else None

    def name_of(self, slot: str) -> str:
        """The name of what fills the slot; '' for nothing."""
        return next(
            (name for name, p in self.parts.items() if slot in p.slots), PLAIN.get(slot, "")
        )

    @property
    def rows_per_turn(self) -> bool:
        """Whether each turn of an attempt has to be a row of its own."""
        return any(part.rows_per_turn for part in self.parts.values())

    @property
    def slots(self) -> dict[str, str]:
        """Each slot that something is done in, and the name of the part that fills it."""
        return {slot: name for slot in SLOTS if (name := self.name_of(slot))}

    def attempts(self, tasks: int | None = None) -> int:
        """How many a training step makes: of so many tasks, or where there are enough."""
        prompts = self.train.prompts if tasks is None else min(tasks, self.train.prompts)
        return prompts * self.train.group_size

    @property
    def cost(self) -> JsonDict:
        """What a training step takes, where there are tasks enough and every attempt is one row."""
        train = self.train
        filters = self.does("filter")
        replay = self.part("replay")
        again = 1 + (replay.replayed if replay is not None else 0.0)
        batches = filters.batches if filters is not None else 1
        most = {"attempts_at_most": self.attempts() * batches} if batches > 1 else {}
        return {
            "attempts": self.attempts(),
            **most,
            "optimizer_steps": train.updates * train.mini_batches,
            "rows_of_an_optimizer_step": round(again * self.attempts() / train.mini_batches),
            "tokens_of_a_reply": train.max_response,
            "trains": (
                f"LoRA of rank {train.lora_rank}" if train.lora_rank else "all weights, in float32"
            ),
            "learning_rate": train.rate,
        }

    def warnings(self, pass_fail: bool) -> list[str]:
        """What to know before anything is spent. pass_fail: the domain's rewards are 0 and 1
        only."""
        return [text for part in self.parts.values() for text in part.warnings(self, pass_fail)]

    def refuse(self, rollouts: str) -> None:
        """Raise BadInput for what cannot be had, before anything is spent: `recipe-does-not-fit`,
        `not-yet`, `no-mixtures` or `no-adapter`. rollouts: here, vllm or transformers."""
        for part in self.parts.values():
            part.refuse(self, rollouts)
        if rollouts != "here" and self.train.lora_rank == 0:
            raise BadInput(
                "a server takes adapters only, and this recipe trains all weights",
                fix="set [train] lora_rank above 0, or take --rollouts here",
                code="no-adapter",
            )


PLAIN = {
    "advantage": "grpo",
    "ratio": "token-ratio",
    "policy loss": "clip",
    "aggregate": "sequence-mean",
}
"""What a slot does that no part fills; a slot that is not here does nothing."""


@cache
def _plain(name: str) -> RecipePart:
    return _kind(name)()


@cache
def _kind(name: str) -> type[RecipePart]:
    """Raises BadInput: there is none of that name, or it is no part of a recipe."""
    found = registry.find(KIND, name)
    if not (
        isinstance(found, type)
        and issubclass(found, RecipePart)
        and set(found.slots) <= SLOTS.keys()
        and found.slots
    ):
        raise BadInput(
            f"{name} is no part of a recipe",
            fix=(
                "it is a class that extends recreate.plugins.rl.recipe.RecipePart,"
                f" its slots some of: {', '.join(SLOTS)}"
            ),
            code="misfit",
        )
    return found


def parts_for(slot: str) -> list[str]:
    """The names of the installed parts whose call does what a slot asks, but for those that compare
    pairs."""
    kinds = {name: _kind(name) for name in plugins.names(KIND)}
    return [name for name, kind in kinds.items() if kind.slots[0] == slot and not kind.in_pairs]


def installed() -> None:
    """Raises Missing unless all is there that training needs."""
    for module in ("torch", "accelerate", "peft", "safetensors"):
        registry.need(module)


def names() -> list[str]:
    """The recipes that come with recreate."""
    return sorted(file.stem for file in FOLDER.glob("*.toml"))


def load(name_or_path: str | Path, changes: Sequence[str] = ()) -> Recipe:
    """A shipped recipe by its name, or a file (its name ends in .toml, or holds a /). Raises
    BadInput.

    changes: `PART.KEY=VALUE` each, the value as TOML writes it, in place of what stands there.
    """
    file = file_of(name_or_path)
    try:
        return read(file.read_text("utf-8"), name=file.stem, where=file.name, changes=changes)
    except (OSError, UnicodeDecodeError) as e:
        raise BadInput(
            f"{file} cannot be read: {e}", fix="give a TOML file in UTF-8", code="bad-recipe"
        ) from None


def file_of(name_or_path: str | Path) -> Path:
    """Where that recipe stands. Raises BadInput."""
    text = str(name_or_path)
    if isinstance(name_or_path, Path) or text.endswith(".toml") or "/" in text:
        file = Path(name_or_path)
        if not file.is_file():
            raise BadInput(
                f"there is no recipe file {text}", fix="check the path", code="unknown-recipe"
            )
        return file
    known = names()
    if text not in known:
        raise BadInput(
            f"no recipe is called {text!r}",
            fix=f"{suggest(text, known)}there are: {', '.join(known)}; or give a TOML file's path",
            code="unknown-recipe",
        )
    return FOLDER / f"{text}.toml"


def read(text: str, *, name: str, where: str = "", changes: Sequence[str] = ()) -> Recipe:
    """The recipe that a TOML text is, with `changes` as `load` takes them. Raises BadInput that
    says where, with the nearest known name."""
    where = where or name
    try:
        table = read_toml(text)
    except ValueError as e:
        raise BadInput(
            f"{where}: {e}", fix="mend the line that it names", code="bad-recipe"
        ) from None
    facts = {key: value for key, value in table.items() if not isinstance(value, Mapping)}
    _refuse_unknown(where, facts, ("about", "source"), "there is no key")
    for key in ("about", "source"):
        if not isinstance(facts.get(key), str) or not facts[key]:
            raise BadInput(
                f"{where}: {key!r} is missing",
                fix=f'begin the file with {key} = "..."',
                code="bad-recipe",
            )
    tables = {key: value for key, value in table.items() if isinstance(value, Mapping)}
    _refuse_unknown(
        where,
        [key for key in tables if ":" not in key],
        ("train", *plugins.names(KIND)),
        "there is no part",
    )
    for change in changes:
        _set(tables, change)
    parts = {
        key: _part(where, key, _kind(key), values)
        for key, values in tables.items()
        if key != "train"
    }
    _one_a_slot(where, parts)
    recipe = Recipe(
        name=name,
        about=facts["about"],
        source=facts["source"],
        train=_part(where, "train", Train, tables.get("train", {})),
        parts=parts,
    )
    for part in parts.values():
        for fault, fix in part.faults(recipe):
            raise BadInput(f"{where}: {fault}", fix=fix, code="recipe-does-not-fit")
    return recipe


def text_of(how: Recipe) -> str:
    """Return the recipe as TOML, which `read` takes."""
    parts = {name: part.model_dump() for name, part in {"train": how.train, **how.parts}.items()}
    return write_toml({"about": how.about, "source": how.source, **parts})


def _set(tables: JsonDict, change: str) -> None:
    """Put `PART.KEY=VALUE` into the tables of a recipe."""
    address, equals, text = change.partition("=")
    name, dot, key = address.strip().rpartition(".")
    if not (equals and dot and name and key and text.strip()):
        raise BadInput(
            f"--set {change!r} is not PART.KEY=VALUE",
            fix="for example --set train.lr=1e-4; recreate recipes show NAME has the keys",
            code="bad-recipe",
        )
    if ":" not in name:
        _refuse_unknown("--set", [name], ("train", *plugins.names(KIND)), "there is no part")
    kind = Train if name == "train" else _kind(name)
    key = kind.short.get(key, key)
    _refuse_unknown(f"--set: [{name}]", [key], (*kind.model_fields, *kind.short), "there is no key")
    try:
        value = read_toml(f"value = {text}")["value"]
    except ValueError:
        value = text.strip()  # a word without quotes, as one types it
    tables[name] = {
        k: v for k, v in tables.get(name, {}).items() if kind.short.get(k, k) != key
    } | {key: value}


def suggest(key: str, known: Iterable[str]) -> str:
    found = difflib.get_close_matches(key, list(known), 1, 0.5)
    return f"did you mean {found[0]!r}? " if found else ""


def _refuse_unknown(where: str, keys: Iterable[str], known: tuple[str, ...], what: str) -> None:
    for key in keys:
        if key not in known:
            fix = f"{suggest(key, known)}there are: {', '.join(known)}"
            raise BadInput(f"{where}: {what} {key!r}", fix=fix, code="unknown-in-recipe")


def _part(where: str, key: str, kind: type[P], values: JsonMap) -> P:
    _refuse_unknown(
        f"{where}: [{key}]", values, (*kind.model_fields, *kind.short), "there is no key"
    )
    full = {kind.short.get(k, k): v for k, v in values.items()}
    if len(full) < len(values):
        twice = next(k for k in values if kind.short.get(k, k) in values and k in kind.short)
        raise BadInput(
            f"{where}: [{key}] has both {twice!r} and {kind.short[twice]!r}, which are one key",
            fix=f"leave {twice!r} out",
            code="bad-recipe",
        )
    try:
        return kind.model_validate(full, strict=True)  # TOML has types: "8" is no number
    except ValidationError as e:
        first = e.errors()[0]
        at = ".".join(str(p) for p in first["loc"] if isinstance(p, str)).partition(".")[0]
        reason = first["msg"].removeprefix("Value error, ")
        field = kind.model_fields.get(at)
        raise BadInput(
            f"{where}: [{key}] {at}{': ' if at else ''}{reason[:1].lower()}{reason[1:]}"
            + (f", got {first['input']!r}" if at and first["type"] != "missing" else ""),
            fix=(
                f"the default is {field.default!r}"
                if field and not field.is_required()
                else f"set it under [{key}]"
            ),
            code="bad-recipe",
        ) from None


def _one_a_slot(where: str, parts: Mapping[str, RecipePart]) -> None:
    filled: dict[str, str] = {}
    for name, part in parts.items():
        for slot in part.slots:
            if slot in filled:
                raise BadInput(
                    f"{where}: [{filled[slot]}] and [{name}] both fill the slot {slot!r}"
                    f" ({SLOTS[slot]})",
                    fix=f"keep one of [{filled[slot]}] and [{name}]",
                    code="slot-taken",
                )
        filled |= dict.fromkeys(part.slots, name)
