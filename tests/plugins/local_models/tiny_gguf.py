"""A random llama of 2 layers and width 32 as a .gguf file, with a tokenizer of single bytes: for
llama.cpp's server."""

from __future__ import annotations

from pathlib import Path

TEMPLATE = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


def model(file: Path, *, context: int = 512) -> Path:
    """Write it. 300 kB."""
    import gguf
    import numpy as np

    width, hidden, heads, layers = 32, 64, 4, 2
    special = ["<|end|>", "<|im_start|>", "<|im_end|>"]
    tokens = special + _byte_letters() + ["ab"]
    w = gguf.GGUFWriter(file, "llama")
    w.add_context_length(context)
    w.add_embedding_length(width)
    w.add_block_count(layers)
    w.add_feed_forward_length(hidden)
    w.add_head_count(heads)
    w.add_head_count_kv(heads)
    w.add_rope_dimension_count(width // heads)
    w.add_layer_norm_rms_eps(1e-5)
    w.add_vocab_size(len(tokens))
    w.add_tokenizer_model("gpt2")
    w.add_tokenizer_pre("default")
    w.add_token_list(tokens)
    w.add_token_types(
        [gguf.TokenType.CONTROL] * len(special)
        + [gguf.TokenType.NORMAL] * (len(tokens) - len(special))
    )
    w.add_token_merges(["a b"])
    w.add_bos_token_id(0)
    w.add_eos_token_id(2)
    w.add_add_bos_token(False)
    w.add_chat_template(TEMPLATE)
    draw = np.random.default_rng(0).standard_normal

    def put(name: str, *shape: int) -> None:
        w.add_tensor(name, (np.ones(shape) if len(shape) == 1 else draw(shape)).astype(np.float32))

    put("token_embd.weight", len(tokens), width)
    put("output_norm.weight", width)
    put("output.weight", len(tokens), width)
    for n in range(layers):
        put(f"blk.{n}.attn_norm.weight", width)
        put(f"blk.{n}.ffn_norm.weight", width)
        for part in ("attn_q", "attn_k", "attn_v", "attn_output"):
            put(f"blk.{n}.{part}.weight", width, width)
        put(f"blk.{n}.ffn_gate.weight", hidden, width)
        put(f"blk.{n}.ffn_up.weight", hidden, width)
        put(f"blk.{n}.ffn_down.weight", width, hidden)
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_tensors_to_file()
    w.close()
    return file


def _byte_letters() -> list[str]:
    """The letter that stands for each byte in a byte-level vocabulary: itself where printed, else
    one from 256 on."""
    printed = {*range(33, 127), *range(161, 173), *range(174, 256)}
    rest = iter(range(256, 512))
    return [chr(b if b in printed else next(rest)) for b in range(256)]
