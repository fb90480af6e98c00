"""Rollouts are our attempts: the scaffold works on tasks in sandboxes, and the domain's grader gives the reward."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from recreate.agents.scaffold import Scaffold
from recreate.api.errors import BadInput
from recreate.api.ports import Model
from recreate.api.types import Experience, Task
from recreate.models.transformers import Drawn, Sampling, Transformers, token
from recreate.rl import latent, recipe
from recreate.rl.recipe import Recipe
from recreate.rl.rows import Row, rows_of
from recreate.runs.attempts import read_experience, run_attempts
from recreate.runs.session import Session


@dataclass(frozen=True)
class Rollout:
    """One graded attempt and its rows. reward 0..1 as the grader gave it. past: it was lived before this step, and
    the log-probs that it was sampled by are all that is known of the policy that made it."""

    experience: Experience
    rows: tuple[Row, ...]
    past: bool = False

    @property
    def task(self) -> str:
        return self.experience.task

    @property
    def reward(self) -> float:
        return self.experience.grade.score

    @property
    def tokens(self) -> int:
        """How many tokens the policy chose in it."""
        return sum(row.tokens for row in self.rows)


def roll_out(
    session: Session, scaffold: Scaffold, tasks: Sequence[Task], repeats: int, *, tokenizer: str, each_turn: bool
) -> list[list[Rollout]]:
    """Each task's attempts, in the tasks' order; those set aside for a fault of ours are missing from their group.

    Every attempt goes through `run_attempts`: graded, remembered (train split only), read back when it ended earlier in this
    run. Raises BadInput (`no-tokens`) when the model tells no tokens.
    """
    scores = run_attempts(session, scaffold, tasks, repeats=repeats, phase="train")
    groups: dict[str, list[Rollout]] = {task.id: [] for task in tasks}
    for score in scores:
        found = read_experience(session.folder / "attempts" / score.attempt) if score.score is not None else None
        if found is None:
            continue
        rows = rows_of(found, tokenizer=tokenizer, each_turn=each_turn)
        if not rows and any(step.kind != "before" for step in found.trace.steps):
            raise BadInput(
                f"{session.model_name} tells no token ids, so nothing can be trained on what it did",
                fix="a model's reply needs token_ids, logprobs and prompt_ids: transformers:FOLDER gives them",
                code="no-tokens",
            )
        groups[score.task].append(Rollout(found, tuple(rows)))
    return list(groups.values())


def recalled(session: Session, tokenizer: str, *, each_turn: bool, most: int) -> dict[str, list[Rollout]]:
    """What memory holds of the train tasks in this tokenizer's tokens, by task: at most `most` of each, the newest."""
    found: dict[str, list[Rollout]] = {}
    for e in session.memory.experiences(domain=session.domain.name, split="train", reader="optimizer"):
        told = [s.tokens for s in e.trace.steps if s.tokens is not None]
        if e.run == session.run or e.trace.fault or not told or any(t.tokenizer != tokenizer for t in told):
            continue
        rows = rows_of(e, each_turn=each_turn)
        if rows and not any(row.mix for row in rows):
            found[e.task] = [*found.get(e.task, ()), Rollout(e, tuple(rows), past=True)][-most:]
    return found


def sample_as(model: Model, how: Recipe) -> None:
    """Let a transformers model draw as the recipe says, whatever the scaffold asks for.

    temperature, top_p, top_k and the most tokens of a reply are the recipe's; with [lepo], its latent steps too.
    """
    if not isinstance(model, Transformers):
        return
    train = how.train
    model.override = {
        "temperature": train.temperature,
        "top_p": train.top_p,
        "top_k": train.top_k,
        "max_tokens": train.max_response,
    }
    model.context = min(model.context, train.max_prompt + train.max_response)
    part = how.part("rollout")
    model.draw = _Latent(part) if isinstance(part, recipe.LEPO) and part.steps else token


class _Latent:
    """LEPO's rollout: the first steps of each reply are mixtures, the rest are tokens."""

    def __init__(self, part: recipe.LEPO) -> None:
        if part.noise == "soft":
            raise BadInput(
                '[lepo] noise = "soft" puts noise on the embeddings, which are not kept for training',
                fix='take noise = "gumbel", "gaussian" or "dirichlet"',
                code="not-yet",
            )
        self.part = part

    def __call__(self, logits: Tensor, step: int, sampling: Sampling, embedding: Tensor) -> Drawn:
        part = self.part
        if step >= part.steps:
            return token(logits, step, sampling, embedding)
        made = latent.latent_step(
            latent.warp(logits, temperature=sampling.temperature, top_k=part.top_k, top_p=part.top_p),
            embedding,
            strength=part.strength,
            noise=part.noise,
            kept=part.top_k,
            sample_ids=part.sample_ids,
            generator=sampling.generator,
        )
        logp = (logits[0].float() / max(sampling.temperature, 1e-6)).log_softmax(-1)
        taken = int(made.token_ids[0])
        return Drawn(
            taken, float(logp[taken]), made.embeds, tuple(made.mix_ids[0].tolist()), tuple(made.mix[0].tolist())
        )


def mixture_embeds(embedding: Tensor, mix_ids: Tensor, mix: Tensor) -> Tensor:
    """What the model read after latent steps: (n,K), (n,K) -> (n,d), as in the rollout; a constant."""
    with torch.no_grad():
        return (mix.to(embedding.dtype).unsqueeze(-1) * embedding[mix_ids]).sum(-2)
