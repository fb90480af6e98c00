"""A tiny random model with a tokenizer of its own, a domain it can score in, and an agent of
several turns.

`python -m tests.plugins.rl.tiny FOLDER` makes a workspace of them and prints the commands that
train there: a run of tune, and a table of arms.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping, Sequence
from pathlib import Path

from recreate.api.errors import Fault
from recreate.api.ports import Sandbox, SandboxBackend
from recreate.api.types import Grade, Split, Task, Trace

TEMPLATE = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


class Letters:
    """Write small letters: the score is their share in what was written."""

    name = "letters"
    sizes: Mapping[Split, int] = {"train": 3, "validation": 3}

    def tasks(self, split: Split | None = None) -> Sequence[Task]:
        return [
            Task(
                id=f"{self.name}:{s}:{n}",
                domain=self.name,
                prompt=f"{n}: {s[0]}",
                split=s,
                group=f"{s}-{n}",
            )
            for s, size in self.sizes.items()
            if split in (None, s)
            for n in range(size)
        ]

    def prepare(self, task: Task, backend: SandboxBackend) -> Sandbox:
        return backend.open()

    def collect(self, task: Task, sandbox: Sandbox) -> str:
        try:
            return sandbox.read("answer.txt").decode("utf-8", "replace")
        except FileNotFoundError:
            return ""

    def grade(self, task: Task, trace: Trace, backend: SandboxBackend) -> Grade:
        score = sum(c.islower() for c in trace.answer) / max(1, len(trace.answer))
        return Grade(score=score, passed=score > 0.5, evidence=f"{score:.2f}")


class Sheet(Letters):
    """Enough tasks for the gate, and a test split."""

    name = "sheet"
    sizes: Mapping[Split, int] = {"train": 3, "validation": 6, "test": 8}


class NoNumber(Letters):
    """The same, with a grader that returns NaN."""

    def grade(self, task: Task, trace: Trace, backend: SandboxBackend) -> Grade:
        return Grade(score=float("nan"), passed=False)


class Lossy(Letters):
    """The same, but that grading one attempt of each task always fails for a reason that is
    ours."""

    def grade(self, task: Task, trace: Trace, backend: SandboxBackend) -> Grade:
        if trace.repeat == 1:
            raise Fault("the grader's box is gone", code="gone")
        return super().grade(task, trace, backend)


class PassFail(Letters):
    """The same, all or nothing."""

    pass_fail = True

    def grade(self, task: Task, trace: Trace, backend: SandboxBackend) -> Grade:
        good = super().grade(task, trace, backend).score > 0.3
        return Grade(score=float(good), passed=good)


class Flat(Letters):
    """The same, with one score for everybody."""

    def grade(self, task: Task, trace: Trace, backend: SandboxBackend) -> Grade:
        return Grade(score=0.0, passed=False)


def model(folder: Path, *, template: bool = True, seed: int = 0, width: int = 32) -> Path:
    """A Qwen2 of 2 layers and 4 heads, and a tokenizer whose tokens are characters. vLLM wants a
    width of 128."""
    import torch
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast, Qwen2Config, Qwen2ForCausalLM

    logging.getLogger("transformers").setLevel(logging.ERROR)
    special = ["<|end|>", "<|im_start|>", "<|im_end|>"]
    # no token stands for a part of a character, so that what is written is read back as the same
    # tokens
    letters = sorted(
        {c for c in pre_tokenizers.ByteLevel.alphabet() if "!" <= c <= "~"} | {"Ġ", "Ċ"}
    )
    bpe = Tokenizer(models.BPE({t: n for n, t in enumerate(special + letters)}, []))
    bpe.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    bpe.decoder = decoders.ByteLevel()
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=bpe, eos_token="<|im_end|>", pad_token="<|end|>"
    )
    tokenizer.add_special_tokens({"additional_special_tokens": ["<|im_start|>"]})
    if template:
        tokenizer.chat_template = TEMPLATE
    torch.manual_seed(seed)
    config = Qwen2Config(
        vocab_size=len(tokenizer),
        hidden_size=width,
        intermediate_size=2 * width,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=1024,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
    )
    Qwen2ForCausalLM(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def agent(folder: Path, *, steps: int = 2) -> Path:
    """Its whole reply is added to answer.txt by a tool; it has `steps` turns."""
    (folder / "tools").mkdir(parents=True)
    (folder / "agent.toml").write_text(
        'description = "Writes."\naction = "tool:put"\n[limits]\nsteps ='
        f" {steps}\nobservation_chars = 100\n[model]\nmax_tokens = 8\n"
    )
    (folder / "system.md").write_text("Go.")
    (folder / "workflow.md").write_text("{{ task.prompt }}")
    (folder / "observation.md").write_text("{{ output.text }}")
    (folder / "format.md").write_text("{{ error }}")
    (folder / "tools" / "put.py").write_text(
        "#!/usr/bin/env python3\n"
        '"""Add standard input to answer.txt."""\n'
        "import sys\n"
        "text = sys.stdin.buffer.read().decode('utf-8', 'replace')\n"
        "open('/work/answer.txt', 'a', encoding='utf-8').write(text)\n"
        "print('ok')\n"
    )
    return folder


def optimizer(file: Path, how: str = ".lower()") -> str:
    """A scripted optimizer that lets the tool write small letters, whatever is wrong; the model's
    name."""
    edit = {
        "file": "tools/put.py",
        "line": 4,
        "title": "",
        "text": f"text = sys.stdin.buffer.read().decode('utf-8', 'replace'){how}",
        "reason": "The grader counts small letters.",
        "experience": "$1",
        "step": 0,
    }
    study = json.dumps({"why": "capitals and signs", "cause": "tool", "edits": [edit]})
    line = {"role": "optimizer", "find": r"experience ([0-9a-f]{16}): FAILED", "text": study}
    file.write_text(json.dumps(line) + "\n")
    return f"scripted:{file}"


SMALL = {
    "group_size": 3,
    "prompts": 2,
    "max_response": 6,
    "max_prompt": 512,
    "mini_batches": 2,
    "warmup_steps": 0,
}


def small(name: str, folder: Path, **more: object) -> Path:
    """A shipped recipe with sizes for a test, as a file."""
    import tomllib

    from recreate.plugins.rl.recipe import FOLDER

    table = tomllib.loads((FOLDER / f"{name}.toml").read_text("utf-8"))
    table["train"] = {
        **table.get("train", {}),
        **SMALL,
        "learning_rate": 1e-3,
        "lora_rank": 4,
        **more,
    }
    for part, values in {
        "lepo": {"steps": 3, "top_k": 5},
        "overlong": {"max_length": 6, "buffer": 2},
        "a2r": {"share": 0.5},
    }.items():
        if part in table:
            table[part] |= values
    if "successes" in table:
        table["successes"]["threshold"] = 0.1
    lines = [f"{k} = {v!r}" for k, v in table.items() if isinstance(v, str)]
    for part, values in table.items():
        if isinstance(values, dict):
            lines.append(f"[{part}]")
            lines += [f"{k} = {_toml(v)}" for k, v in values.items()]
    file = folder / f"{name}-small.toml"
    file.write_text("\n".join(lines) + "\n")
    return file


def _toml(value: object) -> str:
    return (
        str(value).lower()
        if isinstance(value, bool)
        else f'"{value}"'
        if isinstance(value, str)
        else repr(value)
    )


if __name__ == "__main__":
    import sys

    where = Path(sys.argv[1])
    where.mkdir(parents=True)
    (where / "recreate.toml").write_text("")
    model(where / "model")
    agent(where / "agent")
    small("grpo", where, prompts=3, group_size=8, learning_rate=1e-2, mini_batches=1, lora_rank=0)
    optimizer(where / "optimizer.jsonl")
    there = f"cd {where} && PYTHONPATH={Path.cwd()} recreate"
    parts = "--scaffold ./agent --model ./model"
    print(
        f"{there} tune --recipe ./grpo-small.toml --steps 25 --out run --domain"
        f" tests.plugins.rl.tiny:Letters {parts}"
    )
    print(
        f"{there} bench --arms seed,scaffold,weights,both --recipe ./grpo-small.toml --steps 25"
        " --budget 200attempts --train 3 --validation 6 --repeats 3 --split test"
        " --models.optimizer scripted:optimizer.jsonl"
        f" --domain tests.plugins.rl.tiny:Sheet {parts} --out table"
    )
