"""LEPO's steps and their likelihood."""

from __future__ import annotations

import pytest
import torch

from recreate.plugins.rl.parts import lepo
from tests.plugins.rl.published import mixture_log_prob

pytestmark = pytest.mark.rl
PI = torch.tensor([0.6, 0.3, 0.1])


def step(n: int, seed: int = 0, **knobs: object) -> lepo.LatentStep:
    generator = torch.Generator().manual_seed(seed)
    return lepo.latent_step(PI.log().expand(n, -1), torch.eye(3), generator=generator, **knobs)  # type: ignore[arg-type]


def test_a_mixture_sums_to_1_within_the_warped_support() -> None:
    logits = torch.randn(5, 40, generator=torch.Generator().manual_seed(0))
    warped = lepo.warp(logits, top_k=6, top_p=0.9)
    assert bool((warped.isfinite().sum(-1) <= 6).all())
    assert bool((warped.isfinite().sum(-1) >= 1).all())
    for noise in ("gumbel", "gaussian", "dirichlet", "soft"):
        made = lepo.latent_step(warped, torch.randn(40, 4), kept=6, noise=noise, strength=0.5)  # type: ignore[arg-type]
        assert torch.allclose(made.mix.sum(-1), torch.ones(5), atol=1e-4)


def test_the_next_input_is_the_mixture_of_embeddings() -> None:
    embedding = torch.randn(3, 7)
    made = lepo.latent_step(PI.log().expand(4, -1), embedding, kept=3)
    z = torch.zeros(4, 3).scatter_(1, made.mix_ids, made.mix)
    assert torch.allclose(made.embeds, z @ embedding, atol=1e-6)


def test_a_seed_fixes_the_mixture_and_another_changes_it() -> None:
    assert torch.equal(step(4, 1).mix, step(4, 1).mix)
    assert not torch.equal(step(4, 1).mix, step(4, 2).mix)


def test_little_strength_is_one_hot_and_much_is_flat() -> None:
    assert float(step(1000, strength=1e-3).mix[:, 0].mean()) > 0.99
    assert float(step(1000, strength=100.0).mix[:, 0].mean()) < 0.36


def test_the_gradient_of_a_latent_step_is_that_of_a_token_with_the_mixture_in_its_place() -> None:
    logits = PI.log().double().view(1, 1, 3).requires_grad_()
    z = torch.tensor([[[0.7, 0.2, 0.1]]], dtype=torch.float64)
    ids = torch.arange(3).view(1, 1, 3)
    mixture = mixture_log_prob(logits.log_softmax(-1), ids, z)
    (grad,) = torch.autograd.grad(lepo.latent_loss(mixture, torch.tensor([[2.0]])).sum(), logits)
    assert torch.allclose(grad, 2 * (PI.double() - z), atol=1e-6)
    assert abs(float(grad.sum())) < 1e-7


def test_latent_positions_are_the_first_and_end_with_the_answer() -> None:
    mask = torch.tensor([[1, 1, 1, 1], [1, 0, 0, 0]])
    assert lepo.latent_mask(mask, 2).tolist() == [
        [True, True, False, False],
        [True, False, False, False],
    ]
