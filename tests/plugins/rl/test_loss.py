"""Losses: their gradients, what a mask hides, and which settings are no settings at all."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from recreate.plugins.rl.parts import losses, steer
from recreate.plugins.rl.parts.groups import grouped
from recreate.plugins.rl.parts.losses import aggregate
from recreate.plugins.rl.parts.rewards import Successes, dynamic_sampling, overlong
from recreate.plugins.rl.recipe import Rows
from tests.plugins.rl import published
from tests.plugins.rl.published import edit_similarity, sapo

pytestmark = pytest.mark.rl


def batch(
    seed: int = 0, rows: int = 4, length: int = 6, dtype: torch.dtype = torch.float64
) -> dict[str, Tensor]:
    g = torch.Generator().manual_seed(seed)
    old = -3 * torch.rand(rows, length, generator=g, dtype=dtype) - 0.05
    mask = (torch.arange(length) < torch.randint(1, length + 1, (rows, 1), generator=g)).to(dtype)
    return {
        "log_prob": (
            (old + 0.3 * torch.randn(rows, length, generator=g, dtype=dtype)).clamp(max=-0.01)
        ),
        "old_log_prob": old,
        "mask": mask,
        "advantages": torch.randn(rows, 1, generator=g, dtype=dtype).expand(rows, length) * mask,
        "entropy": 3 * torch.rand(rows, length, generator=g, dtype=dtype),
    }


LOSSES: dict[str, Any] = {
    "clip": lambda lp, b: (
        losses.clip(losses.token_ratio(lp, b["old_log_prob"], b["mask"]), b["advantages"]).loss
    ),
    "dual": lambda lp, b: (
        losses.clip(
            losses.token_ratio(lp, b["old_log_prob"], b["mask"]),
            b["advantages"],
            low=0.2,
            high=0.28,
            dual=1.05,
        ).loss
    ),
    "gspo": lambda lp, b: (
        losses.clip(
            losses.sequence_ratio(lp, b["old_log_prob"], b["mask"], straight=False),
            b["advantages"],
            low=0.1,
            high=0.1,
        ).loss
    ),
    "sapo": lambda lp, b: (
        sapo(losses.token_ratio(lp, b["old_log_prob"], b["mask"]), b["advantages"]).loss
    ),
    "reinforce": lambda lp, b: losses.log_likelihood(b["advantages"], lp).loss,
    "k2": lambda lp, b: losses.kl(lp, b["old_log_prob"], "k2"),
    "k3": lambda lp, b: losses.kl(lp, b["old_log_prob"], "k3"),
}


@pytest.mark.parametrize("loss", LOSSES.values(), ids=LOSSES.keys())
@pytest.mark.parametrize(
    "mode", ["token-mean", "token-sum", "sequence-mean", "sequence-sum", "constant"]
)
def test_gradients_are_those_of_finite_differences(loss: Any, mode: Any) -> None:
    b = batch(3)

    def value(lp: Tensor) -> Tensor:
        return aggregate(loss(lp, b), b["mask"], mode)

    assert torch.autograd.gradcheck(value, (b["log_prob"].requires_grad_(),))


def test_cispo_and_gspo_have_the_gradient_their_papers_write() -> None:
    b = batch(5)
    lp = b["log_prob"].requires_grad_()
    rho = losses.token_ratio(lp, b["old_log_prob"], b["mask"])
    (grad,) = torch.autograd.grad(
        losses.cispo(rho, b["advantages"], lp, highest=1.1).loss.sum(), lp
    )
    assert torch.allclose(grad, -rho.detach().clamp(0, 1.1) * b["advantages"])
    straight, mean = (
        losses.clip(
            losses.sequence_ratio(lp, b["old_log_prob"], b["mask"], straight=s),
            b["advantages"],
            low=9,
            high=9,
        )
        for s in (True, False)
    )
    both = [
        torch.autograd.grad(aggregate(s.loss, b["mask"], "sequence-mean"), lp)[0]
        for s in (straight, mean)
    ]
    assert torch.allclose(both[0], both[1])


@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 999), weight=st.floats(0.01, 10))
def test_a_weight_on_the_loss_is_a_weight_on_the_advantage(seed: int, weight: float) -> None:
    b = batch(seed)
    scaled = {**b, "advantages": b["advantages"] * weight}
    for name, loss in LOSSES.items():
        if not name.startswith("k"):
            assert torch.allclose(
                loss(b["log_prob"], b) * weight, loss(b["log_prob"], scaled), atol=1e-12
            )


@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 999))
def test_float32_losses_are_near_those_of_float64(seed: int) -> None:
    b = batch(seed)
    single = {k: v.float() for k, v in b.items()}
    for loss in LOSSES.values():
        wide = aggregate(loss(b["log_prob"], b), b["mask"])
        narrow = aggregate(loss(single["log_prob"], single), single["mask"])
        assert float(narrow) == pytest.approx(float(wide), rel=1e-4, abs=1e-5)


@pytest.mark.parametrize(
    "mode", ["token-mean", "token-sum", "sequence-mean", "sequence-sum", "constant"]
)
def test_what_stands_under_the_mask_reaches_neither_loss_nor_gradient(mode: Any) -> None:
    b = batch(7)
    hidden = b["mask"] == 0
    results = []
    for filler in (0.0, math.nan, math.inf):
        lp = torch.where(hidden, filler, b["log_prob"]).requires_grad_()
        old = torch.where(hidden, filler, b["old_log_prob"])
        rho = losses.token_ratio(lp, old, b["mask"])
        loss = aggregate(losses.clip(rho, b["advantages"]).loss, b["mask"], mode)
        results.append((loss.detach(), *torch.autograd.grad(loss, lp)))
    for loss, grad in results[1:]:
        assert torch.equal(loss, results[0][0])
        assert torch.equal(grad, results[0][1])


@pytest.mark.parametrize(
    "mode", ["token-mean", "token-sum", "sequence-mean", "sequence-sum", "constant"]
)
def test_nothing_unmasked_is_a_loss_of_zero_with_a_gradient_of_zero(mode: Any) -> None:
    x = torch.randn(3, 4, requires_grad=True)
    loss = aggregate(x * 2, torch.zeros(3, 4), mode)
    (grad,) = torch.autograd.grad(loss, x)
    assert float(loss.detach()) == 0
    assert bool((grad == 0).all())


@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 999), cut=st.integers(1, 3))
def test_a_batch_in_pieces_has_the_loss_of_the_whole(seed: int, cut: int) -> None:
    b = batch(seed)
    loss, mask = b["log_prob"], b["mask"]
    tokens, rows = mask.sum(), float((mask.sum(-1) > 0).sum())
    for mode in ("token-mean", "sequence-mean", "sequence-sum", "constant"):
        parts = [
            aggregate(loss[s], mask[s], mode, tokens=tokens, rows=rows)
            for s in (slice(cut), slice(cut, None))
        ]
        assert torch.allclose(parts[0] + parts[1], aggregate(loss, mask, mode))


def weights(b: dict[str, Tensor], form: Any = "released", **knobs: Any) -> Tensor:
    square = 0.1 * b["entropy"]
    omega = steer.entropy_change(
        b["advantages"], b["entropy"], b["log_prob"], b["old_log_prob"], form=form, square=square
    )
    return steer.steer(omega, b["mask"], **knobs)


@settings(max_examples=40, deadline=None)
@given(
    seed=st.integers(0, 999),
    form=st.sampled_from(["released", "theorem", "full"]),
    mapping=st.sampled_from(["exponential", "linear"]),
    signed=st.booleans(),
)
def test_steer_weights_stay_in_their_range_and_vanish_under_the_mask(
    seed: int, form: Any, mapping: Any, signed: bool
) -> None:
    b = batch(seed)
    w = weights(b, form, mapping=mapping, signed=signed, least=0.7, most=1.0)
    valid = b["mask"].bool()
    assert bool((w[~valid] == 0).all())
    assert float(w[valid].min()) >= 0.7 - 1e-9
    assert float(w[valid].max()) <= 1.0 + 1e-9
    assert not w.requires_grad


def test_steer_without_weight_or_without_advantage_weighs_nothing() -> None:
    b = batch(1)
    valid = b["mask"].bool()
    assert bool((weights(b, least=1.0)[valid] == 1).all())
    assert bool((weights({**b, "advantages": 0 * b["advantages"]})[valid] == 1).all())
    assert weights({**b, "mask": 0 * b["mask"]}).sum() == 0


def test_steer_over_micro_batches_with_a_joint_extent_is_steer_over_the_whole() -> None:
    b = batch(2, rows=6)
    omega = steer.entropy_change(b["advantages"], b["entropy"], b["log_prob"], b["old_log_prob"])
    cuts = [slice(0, 2), slice(2, 3), slice(3, 6)]
    for knobs in (
        {"mapping": "exponential"},
        {"mapping": "linear"},
        {"mapping": "linear", "signed": True},
    ):
        signed = bool(knobs.get("signed"))
        joint = steer.Extent.join(
            [steer.extent(omega[c], b["mask"][c], signed=signed) for c in cuts]
        )
        parts = torch.cat(
            [steer.steer(omega[c], b["mask"][c], within=joint, **knobs) for c in cuts]
        )
        assert torch.equal(parts, steer.steer(omega, b["mask"], **knobs))
        alone = torch.cat([steer.steer(omega[c], b["mask"][c], **knobs) for c in cuts])
        assert not torch.equal(alone, parts)


def test_the_full_form_of_steer_is_the_first_order_change_of_the_entropy() -> None:
    """Against finite differences of a tabular softmax whose logits take one policy-gradient
    step."""
    g = torch.Generator().manual_seed(4)
    logits = torch.randn(7, generator=g, dtype=torch.float64)
    logp = logits.log_softmax(-1)
    h = -(logp.exp() * logp).sum()
    square = (logp.exp().square() * (logp + h)).sum()
    for token in range(7):
        one = torch.nn.functional.one_hot(torch.tensor(token), 7).double()
        step = 1e-6
        moved = (logits + step * 2.0 * (one - logp.exp())).log_softmax(-1)  # A = 2, ratio 1
        change = (-(moved.exp() * moved).sum() - h) / step
        omega = steer.entropy_change(
            torch.full((1, 1), 2.0, dtype=torch.float64),
            h.view(1, 1),
            logp[token].view(1, 1),
            logp[token].view(1, 1),
            form="full",
            square=square.view(1, 1),
        )
        assert float(omega) == pytest.approx(float(change), rel=1e-4, abs=1e-8)


def test_dynamic_sampling_keeps_groups_that_vary() -> None:
    metric = torch.tensor([1.0, 0.0, 0.5, 0.5, 0.7, math.nan, 1.0])
    groups = grouped(list("aabbcnn"))
    assert dynamic_sampling(metric, groups).tolist() == [
        True,
        True,
        False,
        False,
        True,
        False,
        False,
    ]
    noise = torch.tensor([0.1 + 0.2, 0.3], dtype=torch.float64)
    assert not bool(dynamic_sampling(noise, grouped([0, 0])).any())
    assert bool(published.dynamic_sampling(noise, grouped([0, 0])).all())
    rows = Rows(torch.tensor([1.0, 0.5, math.nan]), grouped([0, 0, 0]), torch.ones(3, 1))
    assert Successes()(rows, torch.zeros(3, dtype=torch.bool)).tolist() == [True, False, False]


def test_overlong_answers_lose_up_to_the_factor() -> None:
    out = overlong(torch.ones(4), torch.tensor([1, 16, 18, 20]), max_length=20, buffer=4)
    assert out.tolist() == [1.0, 1.0, 0.5, 0.0]


@pytest.mark.parametrize(
    ("a", "b", "wanted"),
    [("", " ", (True, 1.0)), ("", "ab", (False, 0.0)), ("kitten", "sitting", (False, 1 - 3 / 7))],
)
def test_edit_similarity_counts_characters(a: str, b: str, wanted: tuple[bool, float]) -> None:
    assert edit_similarity(a, b) == pytest.approx(wanted)


def test_simpo_prefers_the_best_of_each_group_to_its_worst() -> None:
    pairs = losses.pairs(
        torch.tensor([0.0, 1.0, 0.5, 0.3, 0.3, math.nan, 1.0]), grouped(list("aaabbcc"))
    )
    assert pairs.tolist() == [[1, 0]]
    lp, mask = -torch.rand(3, 4, dtype=torch.float64), torch.ones(3, 4, dtype=torch.float64)
    chosen, rejected = torch.tensor([1]), torch.tensor([0])

    def value(x: Tensor) -> Tensor:
        return losses.simpo(x, mask, chosen, rejected)

    assert torch.autograd.gradcheck(value, (lp.requires_grad_(),))
    (grad,) = torch.autograd.grad(value(lp), lp)
    assert bool((grad[1] < 0).all())
    assert bool((grad[0] > 0).all())
    assert float(losses.simpo(lp, mask, chosen[:0], rejected[:0]).detach()) == 0
