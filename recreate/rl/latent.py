"""LEPO: the first steps of an answer are mixtures of tokens, not tokens. arXiv 2604.17892; YuyanZhou/lepo@0ca191f.

For models run by transformers: a server cannot hand out the mixture. Gradient ascent on A sum_k z_k log pi_k at a
latent step has the shape of that on A log pi(token): one estimator for both ("unified").
"""

from __future__ import annotations

from typing import Literal, NamedTuple

import torch
from torch import Tensor

from recreate.api.errors import BadInput

Noise = Literal["gumbel", "gaussian", "dirichlet", "soft"]


class LatentStep(NamedTuple):
    """One step of B rows. token_ids (B,), what EOS, text and reward go by; mix_ids and mix (B,K), the step's soft
    label, float32; embeds (B,d), the next input, a constant in the loss."""

    token_ids: Tensor
    mix_ids: Tensor
    mix: Tensor
    embeds: Tensor


def warp(logits: Tensor, *, temperature: float = 1.0, top_k: int = 30, top_p: float = 0.95) -> Tensor:
    """Logits (B,V) over the temperature, -inf outside the top_k and then outside the nucleus of top_p."""
    out = logits.float() / temperature
    if 0 < top_k < out.shape[-1]:
        least = torch.topk(out, top_k, dim=-1).values[..., -1:]
        out = out.masked_fill(out < least, -torch.inf)
    if top_p < 1:
        ordered, places = torch.sort(out, dim=-1)
        tail = ordered.softmax(-1).cumsum(-1) <= 1 - top_p
        tail[..., -1] = False
        out = out.masked_fill(tail.scatter(-1, places, tail), -torch.inf)
    return out


def latent_step(
    warped: Tensor,
    embedding: Tensor,
    *,
    strength: float = 0.3,
    noise: Noise = "gumbel",
    kept: int = 30,
    sample_ids: bool = False,
    generator: torch.Generator | None = None,
) -> LatentStep:
    """A step that is a mixture: warped logits (B,V) and the embedding matrix (V,d).

    gumbel     z = softmax((logits + Gumbel) / strength); strength 0.3 (3B) or 0.5 (7B) in the released configs
    gaussian   softmax of logits with noise of strength x their root mean square
    dirichlet  a draw from Dirichlet(strength x probabilities)
    soft       the probabilities, with noise on the embedding instead
    The token id is the argmax of the clean logits (of the noisy ones for gaussian, as released), or with sample_ids a
    draw from z; it need not be the argmax of z. The `kept` greatest z are kept, exact when top_k was at most that.
    """
    scores = warped.float()
    ids = scores.argmax(-1)
    if noise == "gumbel":
        tiny = torch.finfo(scores.dtype).tiny
        gumbel = -torch.empty_like(scores).exponential_(generator=generator).clamp_(min=tiny).log()
        z = ((scores + gumbel) / strength).softmax(-1)
    elif noise == "gaussian":
        finite = scores.isfinite()
        size = (torch.where(finite, scores, 0.0).square().sum(-1, keepdim=True) / finite.sum(-1, keepdim=True)).sqrt()
        normal = torch.randn(scores.shape, generator=generator, device=scores.device, dtype=scores.dtype)
        noisy = scores + strength * size * normal
        ids, z = noisy.argmax(-1), noisy.softmax(-1)
    elif noise == "dirichlet":
        z = torch._sample_dirichlet(scores.softmax(-1) * strength + 1e-6, generator)
    elif noise == "soft":
        z = scores.softmax(-1)
    else:
        raise BadInput(f"lepo: no noise is called {noise!r}", fix="gumbel, gaussian, dirichlet or soft")
    mix, mix_ids = z.topk(min(kept, z.shape[-1]), dim=-1)
    embeds = (mix.to(embedding.dtype).unsqueeze(-1) * embedding[mix_ids]).sum(-2)
    if noise == "soft":
        normal = torch.randn(embeds.shape, generator=generator, device=embeds.device, dtype=embeds.dtype)
        embeds = embeds + strength * embeds.square().mean(-1, keepdim=True).sqrt() * normal
    if sample_ids:
        ids = torch.multinomial(z, 1, generator=generator).squeeze(-1)
    return LatentStep(ids, mix_ids, mix, embeds)


def discrete_step(
    warped: Tensor, embedding: Tensor, *, kept: int = 30, generator: torch.Generator | None = None
) -> LatentStep:
    """An ordinary sampled token of (B,V), in the same form: all the mixture on one id."""
    ids = torch.multinomial(warped.float().softmax(-1), 1, generator=generator)
    k = min(kept, warped.shape[-1])
    mix_ids, mix = torch.zeros_like(ids).repeat(1, k), torch.zeros(len(ids), k, device=ids.device)
    mix_ids[:, :1], mix[:, 0] = ids, 1.0
    return LatentStep(ids.squeeze(-1), mix_ids, mix, embedding[ids.squeeze(-1)])


def latent_mask(mask: Tensor, latent_length: int) -> Tensor:
    """(B,T) bool: the response's first latent_length positions. A row that ended within them is cut by the mask."""
    positions = torch.arange(mask.shape[-1], device=mask.device)
    return (positions < latent_length) & mask.bool()


def mixture_log_prob(log_probs: Tensor, mix_ids: Tensor, mix: Tensor) -> Tensor:
    """sum_k z_k log pi_k: log-softmax (B,T,V) of the raw logits, mixtures (B,T,K) -> (B,T).

    Raw: without the sampling temperature, as released. The token pass gives the same without (B,T,V).
    """
    return (mix * log_probs.gather(-1, mix_ids)).sum(-1)


def latent_loss(mixture: Tensor, advantages: Tensor) -> Tensor:
    """-A sum_k z_k log pi_k: (B,T) -> (B,T). No ratio, no clip; z and the input embeddings are constants."""
    return -advantages * mixture


def centred(advantages: Tensor, rows_mean: Tensor) -> Tensor:
    """Advantages less their group's mean: E[z] is flatter than pi, so a constant A > 0 would flatten the policy.

    Inferred, not released: what makes an advantage that is not centred (GAPO) safe on latent steps.
    """
    return advantages - rows_mean
