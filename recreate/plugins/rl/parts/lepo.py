"""LEPO: the first steps of an answer are mixtures of tokens, not tokens. arXiv 2604.17892;
YuyanZhou/lepo@0ca191f.

For models run by transformers: a server cannot hand out the mixture. Gradient ascent on A sum_k z_k
log pi_k at a latent step has the shape of that on A log pi(token): one estimator for both
("unified").
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Literal, NamedTuple

from pydantic import Field

from recreate.api.errors import BadInput
from recreate.plugins.local_models.transformers import Drawn, Sampling, token
from recreate.plugins.rl import lazy_torch as torch
from recreate.plugins.rl.parts.groups import spread
from recreate.plugins.rl.recipe import ONE_MACHINE, Recipe, RecipePart, Rows

if TYPE_CHECKING:
    from torch import Tensor

Noise = Literal["gumbel", "gaussian", "dirichlet", "soft"]


class LEPO(RecipePart):
    """steps: latent steps at the start of an answer. centre: advantages less their group's mean on
    those steps."""

    slots = ("rollout", "likelihood")
    rows_per_turn = True
    steps: int = Field(default=64, ge=0)
    noise: Noise = "gumbel"
    strength: float = Field(default=0.3, gt=0)
    top_k: int = Field(default=30, ge=1)
    top_p: float = Field(default=0.95, gt=0, le=1)
    sample_ids: bool = False
    centre: bool = False

    @property
    def active(self) -> bool:
        return self.steps > 0

    @property
    def latent_steps(self) -> int:
        return self.steps

    @property
    def centred(self) -> bool:
        return self.centre

    def refuse(self, recipe: Recipe, rollouts: str) -> None:
        if self.steps and self.noise == "soft":
            raise BadInput(
                '[lepo] noise = "soft" puts noise on the embeddings, which are not kept for'
                " training",
                fix='take noise = "gumbel", "gaussian" or "dirichlet"',
                code="not-yet",
            )
        if rollouts != "here":
            raise BadInput(
                f"{recipe.name} draws mixtures of tokens, which no server hands out",
                fix="take --rollouts here",
                code="no-mixtures",
            )

    def on_verl(self, recipe: Recipe) -> Iterator[tuple[str, str]]:
        yield (
            (
                "[lepo] draws mixtures of tokens, which the servers that verl samples from do not"
                " hand out"
            ),
            ONE_MACHINE,
        )

    def lay(self, own: Tensor, rows: Rows) -> Tensor:
        """With `centre`, latent steps have their group's mean taken off."""
        out = spread(own, rows.mask)
        if not self.centre:
            return out
        groups = rows.groups
        mean = groups.spread(groups.total(own) / groups.count.clamp(min=1)).to(own.dtype)
        return torch.where(
            latent_mask(rows.mask, self.steps), centred(own, mean).unsqueeze(-1), out
        )

    def __call__(self, logits: Tensor, step: int, sampling: Sampling, embedding: Tensor) -> Drawn:
        """The first steps of each reply are mixtures, the rest are tokens."""
        if step >= self.steps:
            return token(logits, step, sampling, embedding)
        made = latent_step(
            warp(logits, temperature=sampling.temperature, top_k=self.top_k, top_p=self.top_p),
            embedding,
            strength=self.strength,
            noise=self.noise,
            kept=self.top_k,
            sample_ids=self.sample_ids,
            generator=sampling.generator,
        )
        logp = (logits[0].float() / max(sampling.temperature, 1e-6)).log_softmax(-1)
        taken = int(made.token_ids[0])
        return Drawn(
            taken,
            float(logp[taken]),
            made.embeds,
            tuple(made.mix_ids[0].tolist()),
            tuple(made.mix[0].tolist()),
        )


class LatentStep(NamedTuple):
    """One step of B rows. token_ids (B,), what EOS, text and reward go by; mix_ids and mix (B,K),
    the step's soft label, float32; embeds (B,d), the next input, a constant in the loss."""

    token_ids: Tensor
    mix_ids: Tensor
    mix: Tensor
    embeds: Tensor


def warp(
    logits: Tensor, *, temperature: float = 1.0, top_k: int = 30, top_p: float = 0.95
) -> Tensor:
    """Logits (B,V) over the temperature, -inf outside the top_k and then outside the nucleus of
    top_p."""
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

    gumbel     z = softmax((logits + Gumbel) / strength); strength 0.3 (3B) or 0.5 (7B) in the
               released configs
    gaussian   softmax of logits with noise of strength x their root mean square
    dirichlet  a draw from Dirichlet(strength x probabilities)
    soft       the probabilities, with noise on the embedding instead
    The token id is the argmax of the clean logits (of the noisy ones for gaussian, as released), or
    with sample_ids a draw from z; it need not be the argmax of z. The `kept` greatest z are kept,
    exact when top_k was at most that.
    """
    scores = warped.float()
    ids = scores.argmax(-1)
    if noise == "gumbel":
        tiny = torch.finfo(scores.dtype).tiny
        gumbel = -torch.empty_like(scores).exponential_(generator=generator).clamp_(min=tiny).log()
        z = ((scores + gumbel) / strength).softmax(-1)
    elif noise == "gaussian":
        finite = scores.isfinite()
        size = (
            torch.where(finite, scores, 0.0).square().sum(-1, keepdim=True)
            / finite.sum(-1, keepdim=True)
        ).sqrt()
        normal = torch.randn(
            scores.shape, generator=generator, device=scores.device, dtype=scores.dtype
        )
        noisy = scores + strength * size * normal
        ids = noisy.argmax(-1)
        z = noisy.softmax(-1)
    elif noise == "dirichlet":
        z = torch._sample_dirichlet(scores.softmax(-1) * strength + 1e-6, generator)
    elif noise == "soft":
        z = scores.softmax(-1)
    else:
        raise BadInput(
            f"lepo: no noise is called {noise!r}", fix="gumbel, gaussian, dirichlet or soft"
        )
    mix, mix_ids = z.topk(min(kept, z.shape[-1]), dim=-1)
    embeds = (mix.to(embedding.dtype).unsqueeze(-1) * embedding[mix_ids]).sum(-2)
    if noise == "soft":
        normal = torch.randn(
            embeds.shape, generator=generator, device=embeds.device, dtype=embeds.dtype
        )
        embeds = embeds + strength * embeds.square().mean(-1, keepdim=True).sqrt() * normal
    if sample_ids:
        ids = torch.multinomial(z, 1, generator=generator).squeeze(-1)
    return LatentStep(ids, mix_ids, mix, embeds)


def latent_mask(mask: Tensor, latent_length: int) -> Tensor:
    """(B,T) bool: the response's first latent_length positions. A row that ended within them is cut
    by the mask."""
    positions = torch.arange(mask.shape[-1], device=mask.device)
    return (positions < latent_length) & mask.bool()


def latent_loss(mixture: Tensor, advantages: Tensor) -> Tensor:
    """-A sum_k z_k log pi_k: (B,T) -> (B,T). No ratio, no clip; z and the input embeddings are
    constants."""
    return -advantages * mixture


def centred(advantages: Tensor, rows_mean: Tensor) -> Tensor:
    """Advantages less their group's mean: E[z] is flatter than pi, so a constant A > 0 would
    flatten the policy.

    Inferred, not released: what makes an advantage that is not centred (GAPO) safe on latent steps.
    """
    return advantages - rows_mean


def mixture_embeds(embedding: Tensor, mix_ids: Tensor, mix: Tensor) -> Tensor:
    """What the model read after latent steps: (n,K), (n,K) -> (n,d), as in the rollout; a
    constant."""
    with torch.no_grad():
        return (mix.to(embedding.dtype).unsqueeze(-1) * embedding[mix_ids]).sum(-2)
