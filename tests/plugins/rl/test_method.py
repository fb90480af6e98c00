"""Recipes put together: each trains, and settings that change nothing change no bit."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch
from torch import Tensor

from recreate.api.errors import BadInput
from recreate.plugins.rl.method import Method
from recreate.plugins.rl.parts.groups import grouped
from recreate.plugins.rl.parts.steer import Extent
from recreate.plugins.rl.recipe import Loss, Rows, Tokens, load, names, read

pytestmark = pytest.mark.rl
PLAIN = "[clip]\nlow = 0.2\nhigh = 0.2\n"


def method(tables: str) -> Method:
    return Method(read(f'about = "a"\nsource = "b"\n{tables}', name="mine"))


def rows(seed: int = 0, rewards: Tensor | None = None) -> Rows:
    g = torch.Generator().manual_seed(seed)
    mask = torch.arange(5) < torch.randint(1, 6, (8, 1), generator=g)
    return Rows(
        rewards=torch.randint(0, 5, (8,), generator=g) / 4 if rewards is None else rewards,
        groups=grouped([0] * 4 + [1] * 4),
        mask=mask,
        trajectories=grouped([0, 0, 1, 1, 2, 2, 3, 3]),
        anchors=["start", "then"] * 4,
    )


def tokens(of: Rows, advantages: Tensor, seed: int = 0) -> Tokens:
    g = torch.Generator().manual_seed(seed)
    old = -2 * torch.rand(8, 5, generator=g) - 0.1
    return Tokens(
        log_prob=(old + 0.4 * torch.randn(8, 5, generator=g)).requires_grad_(),
        advantages=advantages,
        mask=of.mask,
        old_log_prob=old,
        ref_log_prob=old - 0.05,
        entropy=2 * torch.rand(8, 5, generator=g),
        pairs=torch.tensor([[0, 1]]),
    )


def trained(m: Method, seed: int = 0) -> tuple[Tensor, Tensor, Loss]:
    r = rows(seed)
    t = tokens(r, m.advantages(r), seed)
    loss = m.loss(t)
    (grad,) = torch.autograd.grad(loss.value, t.log_prob)
    return m.advantages(r), grad, loss


@pytest.mark.parametrize("name", names())
def test_every_recipe_has_a_finite_loss_with_a_gradient_where_the_mask_is_set(name: str) -> None:
    m = Method(load(name))
    _, grad, loss = trained(m)
    assert math.isfinite(float(loss.value.detach()))
    assert bool(grad.isfinite().all())
    assert bool((grad != 0).any())
    assert bool((grad[~rows().mask] == 0).all())
    assert all(math.isfinite(float(v)) and not v.requires_grad for v in loss.watch.values())
    assert m.keep(rows()).dtype == torch.bool


@pytest.mark.parametrize(
    "tables",
    [
        PLAIN,
        "[steer]\nleast = 1.0\n",
        "[a2r]\nshare = 0.0\n",
        "[lepo]\nsteps = 0\n",
        "[gapo]\nfraction = 1.0\ncenter = 'mean'\nscale = 'std'\n",
        "[kl]\nweight = 0.0\n",
        "[clip]\nlow = 0.2\nhigh = 0.2\ndual = 1e9\n",
        "[clip-reward]\nlow = 0.0\nhigh = 1.0\n[dynamic-sampling]\n",
        "[steer]\nleast = 1.0\n[a2r]\n[gapo]\nfraction = 1.0\ncenter = 'mean'\nscale = 'std'\n",
    ],
)
def test_settings_that_are_identities_are_plain_grpo_bit_for_bit(tables: str) -> None:
    plain, mine = Method(load("grpo")), method(tables)
    for seed in range(5):
        a, b = trained(plain, seed), trained(mine, seed)
        assert torch.equal(a[0], b[0])
        assert torch.equal(a[1], b[1])
        assert torch.equal(a[2].value, b[2].value)
        assert torch.equal(
            plain.shaped(rows(seed).rewards, torch.ones(8)),
            mine.shaped(rows(seed).rewards, torch.ones(8)),
        )


@pytest.mark.parametrize(
    "name", [n for n in names() if n not in ("sft-on-successes", "simpo-on-pairs")]
)
def test_equal_or_broken_rewards_move_nothing(name: str) -> None:
    m = Method(load(name))
    for value in (0.3, math.nan):
        r = rows(rewards=torch.full((8,), value))
        assert bool((m.advantages(r) == 0).all())
    broken = rows(rewards=torch.tensor([0.0, math.nan, 1.0, 1.0, 0.0, 1.0, 0.5, 0.25]))
    assert m.keep(broken)[:4].tolist() == [False] * 4
    assert bool((m.advantages(broken)[:4] == 0).all())


def test_an_advantage_does_not_hang_on_the_order_of_rows() -> None:
    order = torch.randperm(8, generator=torch.Generator().manual_seed(3))
    for name in ("grpo", "gapo", "rloo", "dr-grpo"):
        m, r = Method(load(name)), rows()
        mixed = Rows(r.rewards[order], r.groups.subset(order), r.mask[order])
        assert torch.allclose(m.advantages(r)[order], m.advantages(mixed), atol=1e-6)


def test_importance_weights_weigh_the_loss_and_are_constants() -> None:
    m, r = Method(load("gapo+steer+a2r")), rows(2)
    t = tokens(r, m.advantages(r))
    weight = torch.tensor([1.0, 0.5, 0.0, 1.0, 1.0, 0.25, 1.0, 1.0])
    (whole,) = torch.autograd.grad(m.loss(t).value, t.log_prob)
    (part,) = torch.autograd.grad(m.loss(replace(t, importance_weight=weight)).value, t.log_prob)
    assert torch.allclose(part, whole * weight.unsqueeze(1), atol=1e-8)


def test_token_weights_in_the_loss_are_token_weights_in_the_advantages() -> None:
    """What lets a trainer with a loss of its own (TRL) use STEER."""
    with_steer, without = method("[steer]\n[token-mean]\n"), method("[token-mean]\n")
    r = rows(4)
    t = tokens(r, with_steer.advantages(r))
    weight = with_steer.token_weight(t)
    assert weight is not None
    folded = replace(t, advantages=t.advantages * weight)
    assert torch.allclose(with_steer.loss(t).value, without.loss(folded).value)


def test_a_scope_wider_than_the_micro_batch_is_given_as_an_extent() -> None:
    m, r = method("[steer]\nscope = 'mini'\n[token-mean]\n"), rows(5)
    t = tokens(r, m.advantages(r))
    joint = Extent(*(10 * x for x in m.extent(t)))
    mild, own = m.token_weight(replace(t, extent=joint)), m.token_weight(t)
    assert mild is not None
    assert own is not None
    assert float(mild[r.mask].min()) > float(own[r.mask].min())


def test_latent_steps_ignore_ratio_clip_and_steer() -> None:
    m, r = method("[lepo]\nsteps = 2\n[steer]\n[token-mean]\n"), rows(6)
    t = tokens(r, m.advantages(r))
    lat = (torch.arange(5) < 2) & r.mask
    mixture = torch.full((8, 5), -1.5, requires_grad=True)
    loss = m.loss(replace(t, latent=lat, mixture=mixture))
    by_token, by_mixture = torch.autograd.grad(loss.value, (t.log_prob, mixture))
    assert bool((by_token[lat] == 0).all())
    assert torch.allclose(by_mixture, torch.where(lat, -t.advantages / r.mask.sum(), 0.0))


def test_lepo_centres_gapos_advantages_on_latent_steps_only() -> None:
    r = rows(1)
    plain = method("[gapo]\n").advantages(r)
    out = method("[gapo]\n[lepo]\nsteps = 1\ncentre = true\n").advantages(r)
    assert torch.equal(out[:, 1:], plain[:, 1:])
    assert torch.allclose(out[:4, 0].sum(), torch.zeros(()), atol=1e-6)
    assert abs(float(plain[:4, 0].sum())) > 0.1


def test_what_a_part_needs_and_does_not_get_is_said() -> None:
    r = rows()
    with pytest.raises(BadInput, match="whose step"):
        Method(load("gigpo")).advantages(replace(r, anchors=None))
    m = method("[steer]\n")
    with pytest.raises(BadInput, match="entropy"):
        m.loss(replace(tokens(r, m.advantages(r)), entropy=None))
    k = method("[kl]\n")
    with pytest.raises(BadInput, match="reference"):
        k.loss(replace(tokens(r, k.advantages(r)), ref_log_prob=None))
