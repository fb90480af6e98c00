"""Sort letters, graded with partial credit by a grader that is now and then wrong; and a tiny model
that half can.

A task is six letters of ten; the answer is the same letters in order. The true score is GAPO's
reward (arXiv 2510.21830, Equation 2): half for the exact answer, half for 1 - edit distance /
length. With the chance `flaky` the grader gives a number drawn evenly from 0..1 in its place, which
the methods are trained on; curves show the true score.
"""

from __future__ import annotations

import logging
import random
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from recreate.api.ports import Sandbox, SandboxBackend
from recreate.api.types import Grade, Split, Task, Trace
from recreate.plugins.rl.parts.lepo import LEPO, LatentStep, latent_step, warp

LETTERS = "abcdefghij"
LENGTH = 6
LONGEST = 8
"""Tokens of an answer, its end among them."""


class Sorting:
    """64 train and 64 validation tasks, which the seed draws; none is in both."""

    name = "sorting"

    def __init__(self, seed: int = 0) -> None:
        self.seed = seed

    def tasks(self, split: Split | None = None) -> Sequence[Task]:
        rng = random.Random(f"sorting/{self.seed}")
        words = dict.fromkeys("".join(rng.choices(LETTERS, k=LENGTH)) for _ in range(200))
        found = []
        for n, word in enumerate(list(words)[:128]):
            where: Split = "train" if n < 64 else "validation"
            if split in (None, where):
                name = f"{self.seed}-{word}"
                found.append(
                    Task(
                        id=f"sorting:{name}", domain=self.name, prompt=word, split=where, group=name
                    )
                )
        return found

    def prepare(self, task: Task, backend: SandboxBackend) -> Sandbox:
        return backend.open()

    def collect(self, task: Task, sandbox: Sandbox) -> str:
        return ""

    def grade(self, task: Task, trace: Trace, backend: SandboxBackend) -> Grade:
        value = score(task.prompt, trace.answer)
        return Grade(score=value, passed=value == 1.0)


def score(asked: str, answer: str) -> float:
    """(exact + 1 - edit distance / the longer's length) / 2, in 0..1."""
    right = "".join(sorted(asked))
    longest = max(len(answer), len(right))
    return (float(answer == right) + 1 - distance(answer, right) / longest) / 2


def distance(a: str, b: str) -> int:
    """Levenshtein's, over characters."""
    row = list(range(len(b) + 1))
    for i, x in enumerate(a, 1):
        before, row[0] = row[0], i
        for j, y in enumerate(b, 1):
            before, row[j] = row[j], min(row[j] + 1, row[j - 1] + 1, before + (x != y))
    return row[-1]


def tokenizer() -> Any:
    """A token a letter; the prompt is the letters and `=`."""
    from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    words = Tokenizer(
        models.WordLevel({t: n for n, t in enumerate(["<pad>", "<end>", "=", *LETTERS])}, "<pad>")
    )
    words.pre_tokenizer = pre_tokenizers.Split(Regex("."), "isolated")
    words.decoder = decoders.Fuse()
    made = PreTrainedTokenizerFast(tokenizer_object=words, eos_token="<end>", pad_token="<pad>")
    made.chat_template = "{% for m in messages %}{{ m.content }}{% endfor %}="
    return made


def pretrained(folder: Path, seed: int, *, until: float = 0.5) -> float:
    """Train a Qwen2 of 2 layers, width 64, on right answers to random words until sampled answers
    score `until` on the mean, and save it. The true mean score that it has."""
    from transformers import Qwen2Config, Qwen2ForCausalLM

    logging.getLogger("transformers").setLevel(logging.ERROR)
    words = tokenizer()
    torch.manual_seed(seed)
    config = Qwen2Config(
        vocab_size=len(words),
        hidden_size=64,
        intermediate_size=128,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=4,
        max_position_embeddings=64,
        eos_token_id=words.eos_token_id,
        pad_token_id=words.pad_token_id,
        tie_word_embeddings=True,
    )
    module = Qwen2ForCausalLM(config)
    optimizer = torch.optim.AdamW(module.parameters(), lr=2e-3, weight_decay=0.0)
    rng = random.Random(f"pretrain/{seed}")
    generator = torch.Generator().manual_seed(seed)
    reached = 0.0
    for step in range(3000):
        asked = ["".join(rng.choices(LETTERS, k=LENGTH)) for _ in range(64)]
        ids = torch.tensor(
            [[*words.encode(f"{a}={''.join(sorted(a))}"), words.eos_token_id] for a in asked]
        )
        labels = ids.clone()
        labels[:, : LENGTH + 1] = -100
        loss = module(input_ids=ids, labels=labels).loss
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(module.parameters(), 1.0)
        optimizer.step()
        if step % 20 == 19:
            asked = ["".join(rng.choices(LETTERS, k=LENGTH)) for _ in range(256)]
            said = answers(module, words, asked, generator)
            reached = sum(score(a, s.text) for a, s in zip(asked, said, strict=True)) / len(asked)
            if reached >= until:
                break
    module.save_pretrained(folder)
    words.save_pretrained(folder)
    return reached


@dataclass(frozen=True)
class Said:
    """An answer: its text, tokens (the end among them) and their log-probs; cut: it had no end.
    mix_ids and mix: its latent steps."""

    text: str
    tokens: list[int]
    log_probs: list[float]
    cut: bool
    mix_ids: list[list[int]]
    mix: list[list[float]]


@torch.no_grad()
def answers(
    module: Any,
    words: Any,
    asked: Sequence[str],
    generator: torch.Generator,
    latent: LEPO | None = None,
) -> list[Said]:
    """One answer to each, all at once, at temperature 1: every prompt has the same length. latent:
    its first steps are mixtures as that part draws them."""
    module.eval()
    table = module.get_input_embeddings().weight
    given: dict[str, Tensor] = {"input_ids": torch.tensor([words.encode(f"{a}=") for a in asked])}
    cache, taken, told, mixed = None, list[Tensor](), list[Tensor](), list[LatentStep]()
    for step in range(LONGEST):
        out = module(**given, past_key_values=cache, use_cache=True)
        cache, logits = out.past_key_values, out.logits[:, -1].float()
        if latent is not None and step < latent.steps:
            how = {
                "noise": latent.noise,
                "strength": latent.strength,
                "kept": latent.top_k,
                "generator": generator,
            }
            mixed.append(
                latent_step(warp(logits, top_k=latent.top_k, top_p=latent.top_p), table, **how)
            )
            ids, given = (
                mixed[-1].token_ids.unsqueeze(1),
                {"inputs_embeds": mixed[-1].embeds.unsqueeze(1)},
            )
        else:
            ids = torch.multinomial(logits.softmax(-1), 1, generator=generator)
            given = {"input_ids": ids}
        taken.append(ids[:, 0])
        told.append(logits.log_softmax(-1).gather(-1, ids)[:, 0])
    found = []
    for row, (tokens, log_probs) in enumerate(
        zip(torch.stack(taken, 1).tolist(), torch.stack(told, 1).tolist(), strict=True)
    ):
        ended = words.eos_token_id in tokens
        n = tokens.index(words.eos_token_id) + 1 if ended else LONGEST
        text = "".join(
            words.convert_ids_to_tokens([t for t in tokens[:n] if t != words.eos_token_id])
        )
        mix = [(m.mix_ids[row].tolist(), m.mix[row].tolist()) for m in mixed[:n]]
        found.append(
            Said(
                text, tokens[:n], log_probs[:n], not ended, [i for i, _ in mix], [z for _, z in mix]
            )
        )
    return found
