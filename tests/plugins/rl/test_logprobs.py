"""The pass without whole logits gives what the plain pass gives, values and gradients."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from recreate.plugins.rl.logprobs import TokenPass, plain_pass, token_pass

pytestmark = pytest.mark.rl


def inputs(seed: int, dtype: torch.dtype, mixed: bool, biased: bool) -> dict[str, Any]:
    g = torch.Generator().manual_seed(seed)
    hidden = torch.randn(2, 5, 8, generator=g, dtype=dtype)
    ids = torch.randint(0, 23, (2, 5, 3) if mixed else (2, 5), generator=g)
    return {
        "hidden": hidden.requires_grad_(),
        "weight": torch.randn(23, 8, generator=g, dtype=dtype).requires_grad_(),
        "bias": torch.randn(23, generator=g, dtype=dtype).requires_grad_() if biased else None,
        "targets": ids,
        "mix": torch.rand(2, 5, 3, generator=g, dtype=dtype).softmax(-1) if mixed else None,
    }


def plain(i: dict[str, Any], temperature: float) -> TokenPass:
    logits = torch.nn.functional.linear(i["hidden"], i["weight"], i["bias"])
    return plain_pass(logits, i["targets"], mix=i["mix"], temperature=temperature)


@settings(max_examples=25, deadline=None)
@given(
    seed=st.integers(0, 99),
    chunk=st.sampled_from([0, 1, 3, 10, 99]),
    mixed=st.booleans(),
    biased=st.booleans(),
    temperature=st.sampled_from([1.0, 0.6]),
)
def test_values_and_gradients_are_the_plain_ones(
    seed: int, chunk: int, mixed: bool, biased: bool, temperature: float
) -> None:
    i = inputs(seed, torch.float64, mixed, biased)
    ours = token_pass(**i, temperature=temperature, chunk=chunk)
    theirs = plain(i, temperature)
    for a, b in zip(ours, theirs, strict=True):
        assert torch.allclose(a, b, rtol=1e-12, atol=1e-12)
    wanted = [v for v in (i["hidden"], i["weight"], i["bias"]) if v is not None]

    def loss(p: TokenPass) -> Tensor:
        return (p.log_prob.sin() + 0.3 * p.entropy.square()).sum()

    for a, b in zip(
        torch.autograd.grad(loss(ours), wanted),
        torch.autograd.grad(loss(theirs), wanted),
        strict=True,
    ):
        assert torch.allclose(a, b, rtol=1e-10, atol=1e-12)


def test_gradients_are_those_of_finite_differences() -> None:
    i = inputs(1, torch.float64, False, True)

    def value(h: Tensor, w: Tensor, b: Tensor) -> Tensor:
        p = token_pass(h, w, i["targets"], bias=b, chunk=4)
        return p.log_prob.sum() + p.entropy.sum()

    assert torch.autograd.gradcheck(value, (i["hidden"], i["weight"], i["bias"]), fast_mode=True)


def test_bfloat16_hidden_states_give_float32_log_probs() -> None:
    i = inputs(2, torch.bfloat16, False, False)
    ours = token_pass(i["hidden"], i["weight"], i["targets"], chunk=3)
    assert ours.log_prob.dtype == torch.float32
    theirs = plain(i, 1.0)
    assert torch.allclose(ours.log_prob, theirs.log_prob, atol=1e-5)
    (grad,) = torch.autograd.grad(ours.log_prob.sum(), i["hidden"])
    assert grad.dtype == torch.bfloat16


def test_whole_logits_are_never_made() -> None:
    """The greatest tensor that any operation makes has a chunk's rows, not the batch's."""
    from torch.utils._python_dispatch import TorchDispatchMode

    made: list[int] = []

    class Watch(TorchDispatchMode):
        def __torch_dispatch__(
            self, func: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            out = func(*args, **(kwargs or {}))
            made.extend(
                o.numel()
                for o in (out if isinstance(out, tuple | list) else [out])
                if isinstance(o, Tensor)
            )
            return out

    hidden = torch.randn(64, 4, requires_grad=True)
    weight = torch.randn(500, 4, requires_grad=True)
    with Watch():
        token_pass(
            hidden, weight, torch.zeros(64, dtype=torch.long), chunk=8
        ).log_prob.sum().backward()
    assert max(made) == 8 * 500  # beside 64 * 500 of the whole


def test_an_empty_batch_is_an_empty_batch() -> None:
    out = token_pass(torch.empty(0, 4), torch.randn(9, 4), torch.empty(0, dtype=torch.long))
    assert out.log_prob.shape == (0,)
