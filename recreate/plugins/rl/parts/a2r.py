"""A2R: tasks whose outcome changes from epoch to epoch are trained on again, from stored rollouts.

A2R (ACL Findings 2026) is known here by its abstract only: a plug-and-play data module that
prioritises cross-epoch ambiguous samples and weighs replayed rollouts by policy divergence. That
much is certain. What is INFERRED, each with the other readings as options: ambiguity is the
population std over epochs of a task's mean reward (dataset cartography's variability); tasks are
drawn in proportion to it; what is replayed is the stored rollouts, with their frozen advantages and
the log-probs of the policy that made them as the ratio's denominator; the divergence is k3 and the
weight exp(-D / T). recreate/plugins/rl/README.md lists the readings.
"""

from __future__ import annotations

import math
import random
import statistics
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Literal, NamedTuple

from pydantic import Field, model_validator

from recreate.api.errors import BadInput
from recreate.api.shapes import JsonDict, JsonMap
from recreate.plugins.rl import lazy_torch as torch
from recreate.plugins.rl.recipe import Recipe, RecipePart

if TYPE_CHECKING:
    from torch import Tensor

Estimator = Literal["k1", "k2", "k3"]
WeightForm = Literal["exponential", "reciprocal", "truncated"]
Select = Literal["proportional", "band"]


class A2R(RecipePart):
    """What `AmbiguityReplay` says of each. Two are the trainer's to heed: rollouts, stored ones or
    the task alone with fresh ones; advantages, frozen with their group or taken again with stored
    and fresh in one group.
    """

    slots = ("replay", "importance weight")
    verl_note = (
        "replayed rows make more mini-batches of the same size, not the same number of larger ones"
    )
    share: float = Field(default=0.25, ge=0, le=1)
    alpha: float = Field(default=1.0, ge=0)
    temperature: float | Literal["median"] = 1.0
    min_epochs: int = Field(default=2, ge=2)
    max_age: int = Field(default=2, ge=1)
    metric: Literal["mean", "exact"] = "mean"
    right: float = 1.0
    window: int = Field(default=0, ge=0)
    select: Select = "proportional"
    form: WeightForm = "exponential"
    rollouts: Literal["stored", "fresh"] = "stored"
    advantages: Literal["frozen", "again"] = "frozen"

    @property
    def replayed(self) -> float:
        return self.share

    @model_validator(mode="after")
    def _warm(self) -> A2R:
        if self.temperature != "median" and self.temperature <= 0:
            raise ValueError("temperature must be above 0, or 'median'")
        return self

    def faults(self, recipe: Recipe) -> Iterator[tuple[str, str]]:
        loss = recipe.part("policy loss")
        if loss is not None and loss.in_pairs:
            yield "[simpo] has no ratio by which [a2r] could weigh stale rows", "leave [a2r] out"

    def refuse(self, recipe: Recipe, rollouts: str) -> None:
        advantage = recipe.part("advantage")
        if self.advantages == "again" and advantage is not None and advantage.rows_per_turn:
            raise BadInput(
                f"[{recipe.name_of('advantage')}] compares the steps of one moment, which [a2r]"
                ' advantages = "again" would mix with older ones',
                fix='set advantages = "frozen" under [a2r]',
                code="recipe-does-not-fit",
            )

    def on_verl(self, recipe: Recipe) -> Iterator[tuple[str, str]]:
        if self.rollouts != "stored":
            yield (
                '[a2r] rollouts = "fresh" would change which tasks verl generates',
                'set rollouts = "stored"',
            )
        if self.advantages != "frozen":
            yield (
                (
                    '[a2r] advantages = "again" compares stored with fresh attempts, which verl'
                    " keeps apart"
                ),
                'set advantages = "frozen", or take recreate tune on one machine',
            )

    def __call__(self, seed: int = 0) -> AmbiguityReplay:
        """The replay that a run begins with, empty."""
        return AmbiguityReplay(self, seed)


def ambiguity(per_epoch: Sequence[float], *, min_epochs: int = 2, window: int = 0) -> float:
    """Variability over the epochs (the last `window` of them, 0: all); 0 with fewer than min_epochs
    recorded.

    Differs from the spread within an epoch: always half right is 0, all right and all wrong in
    turns is 0.5.
    """
    seen = per_epoch[-window:] if window else per_epoch
    return (
        statistics.pstdev(seen) if len(per_epoch) >= max(2, min_epochs) and len(seen) > 1 else 0.0
    )


def probabilities(
    histories: Mapping[str, Sequence[float]],
    *,
    alpha: float = 1.0,
    select: Select = "proportional",
    min_epochs: int = 2,
    window: int = 0,
) -> dict[str, float]:
    """How likely each task is to be drawn first; of tasks without ambiguity: 0.

    proportional: to ambiguity^alpha (alpha 0: all ambiguous ones alike). band: the most ambiguous
    third alike.
    """
    sigma = {
        task: ambiguity(h, min_epochs=min_epochs, window=window) for task, h in histories.items()
    }
    some = [task for task, s in sigma.items() if s > 1e-12]
    if select == "band":
        most = sorted(some, key=lambda task: (-sigma[task], task))
        band = set(most[: max(1, round(len(histories) / 3))])
        weight = {task: float(task in band) for task in some}
    else:
        weight = {task: sigma[task] ** alpha for task in some}
    total = math.fsum(weight.values())
    return {task: weight.get(task, 0.0) / total if total else 0.0 for task in histories}


def divergence(now: Tensor, behaviour: Tensor, mask: Tensor, kind: Estimator = "k3") -> Tensor:
    """Mean over each row's tokens of an estimate of KL(behaviour || now): (B,T) x 3 -> (B,),
    without gradient.

    d = now - behaviour; k1 = -d, k2 = d^2 / 2, k3 = e^d - 1 - d (never negative). A row without
    tokens: 0.
    """
    with torch.no_grad():
        d = torch.where(mask.bool(), now - behaviour, 0.0)
        token = -d if kind == "k1" else 0.5 * d.square() if kind == "k2" else torch.expm1(d) - d
        return token.sum(-1) / mask.to(d.dtype).sum(-1).clamp(min=1)


def staleness_weight(
    away: Tensor, *, temperature: float = 1.0, form: WeightForm = "exponential"
) -> Tensor:
    """(B,) divergence -> (B,) weight in (0, 1], 1 only where nothing diverged; without gradient.

    exponential exp(-D / T), reciprocal 1 / (1 + D / T).
    """
    with torch.no_grad():
        if form == "reciprocal":
            return 1 / (1 + away / temperature)
        return (-away / temperature).exp()


def truncated_weight(now: Tensor, behaviour: Tensor, mask: Tensor, *, at: float = 1.0) -> Tensor:
    """min(1, at / rho) of the row's whole ratio: (B,T) x 3 -> (B,), without gradient."""
    with torch.no_grad():
        log_rho = torch.where(mask.bool(), now - behaviour, 0.0).sum(-1)
        return (at * (-log_rho).exp()).clamp(max=1.0)


class Rollouts(NamedTuple):
    """A task's group of one epoch, as it was trained on when fresh; G rows of T tokens.

    behaviour: log-probs recorded by the trainer at the fresh step (not the server's, whose
    precision differs), the ratio's denominator when replayed. advantages: (G,T), frozen. extra:
    what a rollout policy needs back (LEPO).
    """

    task: str
    epoch: int
    prompt_ids: Tensor
    response_ids: Tensor
    mask: Tensor
    rewards: Tensor
    behaviour: Tensor
    advantages: Tensor
    extra: Mapping[str, Tensor] = {}

    @property
    def group(self) -> str:
        """The group's id in a batch: never that of the task's fresh rollouts."""
        return f"{self.task}@{self.epoch}"


_TENSORS = ("prompt_ids", "response_ids", "mask", "rewards", "behaviour", "advantages")


class AmbiguityReplay:
    """The history of every task and its newest rollouts. share 0, or no ambiguous task: nothing is
    ever replayed.

    share: of a step's tasks, how many more are replayed. max_age in epochs. metric: the mean
    reward, or the share of rewards that reach `right`. temperature "median": the running median of
    D, so that a typical stale row weighs 1/e. All tensors are kept on the CPU: about 9 bytes a
    token.
    """

    def __init__(self, knobs: A2R, seed: int = 0) -> None:
        self.knobs = knobs
        self.seed = seed
        self.histories: dict[str, dict[int, float]] = {}
        self.stored: dict[str, Rollouts] = {}
        self._divergences: list[float] = []

    def record(self, task: str, rewards: Sequence[float], epoch: int) -> None:
        """What a task's group scored; call before any group filter. A group with a NaN is not
        recorded."""
        values = [float(r) for r in rewards]
        if not values or not all(map(math.isfinite, values)):
            return
        right = (
            [float(v >= self.knobs.right) for v in values]
            if self.knobs.metric == "exact"
            else values
        )
        self.histories.setdefault(task, {})[epoch] = statistics.fmean(right)

    def store(self, rollouts: Rollouts) -> None:
        """Keep a group in place of the task's earlier one, unless it holds what is not finite."""
        rows = rollouts
        for name in ("rewards", "behaviour", "advantages"):
            if not bool(getattr(rows, name).isfinite().all()):
                return
        kept = {name: getattr(rows, name).detach().to("cpu") for name in _TENSORS}
        extra = {name: value.detach().to("cpu") for name, value in rows.extra.items()}
        self.stored[rows.task] = rows._replace(**kept, extra=extra)

    def draw(self, fresh: int, epoch: int, step: int) -> list[Rollouts]:
        """floor(share * fresh) stored groups, by ambiguity and without replacement; the same for a
        seed and a step.

        Groups older than max_age epochs are dropped for good.
        """
        self.stored = {
            t: r for t, r in self.stored.items() if epoch - r.epoch <= self.knobs.max_age
        }
        chances = self._chances(t for t in sorted(self.stored) if self.stored[t].epoch < epoch)
        # exponential keys (Efraimidis and Spirakis): a draw without replacement in which each
        # task's number is its own
        keys = {
            task: -math.log(1.0 - random.Random(f"a2r/{self.seed}/{step}/{task}").random()) / p
            for task, p in chances.items()
            if p > 0
        }
        return [
            self.stored[task]
            for task in sorted(keys, key=keys.__getitem__)[: math.floor(self.knobs.share * fresh)]
        ]

    def weight(self, now: Tensor, behaviour: Tensor, mask: Tensor) -> Tensor:
        """(B,) weights of replayed rows; now: a pass of the current policy without gradient, at the
        step's start."""
        if self.knobs.form == "truncated":
            return truncated_weight(now, behaviour, mask)
        away = divergence(now, behaviour, mask)
        if self.knobs.temperature != "median":
            return staleness_weight(away, temperature=self.knobs.temperature, form=self.knobs.form)
        self._divergences = (self._divergences + away.tolist())[-1024:]
        typical = max(statistics.median(self._divergences), 1e-6) if self._divergences else 1.0
        return staleness_weight(away, temperature=typical, form=self.knobs.form)

    def chances(self) -> dict[str, float]:
        """The ambiguity map: of every task with a history, how likely it is to be drawn."""
        return self._chances(sorted(self.histories))

    def _chances(self, tasks: Iterable[str]) -> dict[str, float]:
        histories = {
            t: [value for _, value in sorted(self.histories.get(t, {}).items())] for t in tasks
        }
        return probabilities(
            histories, **self.knobs.model_dump(include={"alpha", "select", "min_epochs", "window"})
        )

    def state(self) -> tuple[JsonDict, dict[str, Tensor]]:
        """What a checkpoint keeps: a JSON object, and tensors by name (for safetensors)."""
        tensors: dict[str, Tensor] = {}
        for n, (_, rows) in enumerate(sorted(self.stored.items())):
            tensors |= {f"{n}.{name}": getattr(rows, name).contiguous() for name in _TENSORS}
            tensors |= {
                f"{n}.extra.{name}": value.contiguous() for name, value in rows.extra.items()
            }
        order = [[task, rows.epoch] for task, rows in sorted(self.stored.items())]
        histories = {t: sorted(h.items()) for t, h in sorted(self.histories.items())}
        return {
            "schema": 1,
            "stored": order,
            "histories": histories,
            "seen": self._divergences,
        }, tensors

    def restore(self, state: JsonMap, tensors: Mapping[str, Tensor]) -> None:
        """Go on from `state()`. Raises BadInput when the two do not belong together."""
        try:
            self.histories = {
                t: {int(e): float(v) for e, v in h} for t, h in state["histories"].items()
            }
            self._divergences = [float(v) for v in state["seen"]]
            self.stored = {}
            for n, (task, epoch) in enumerate(state["stored"]):
                extra = {
                    k.removeprefix(f"{n}.extra."): v
                    for k, v in tensors.items()
                    if k.startswith(f"{n}.extra.")
                }
                kept = {name: tensors[f"{n}.{name}"] for name in _TENSORS}
                self.stored[task] = Rollouts(task=task, epoch=int(epoch), **kept, extra=extra)
        except (KeyError, TypeError, ValueError) as e:
            raise BadInput(
                f"the replay's checkpoint cannot be read: {e!r} is missing or wrong",
                fix="resume from another checkpoint, or without it: replay then begins anew",
                code="bad-checkpoint",
            ) from None
