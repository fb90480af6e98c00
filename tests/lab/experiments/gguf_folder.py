"""A GGUF's weights as a folder that transformers reads and trains: dequantised to float32, with its
tokenizer."""

from __future__ import annotations

import tempfile
from pathlib import Path


def convert(gguf: Path, folder: Path) -> Path:
    """Write the folder, whole or not at all. Needs the packages gguf and accelerate.

    `save_pretrained` refuses a model that was read from a GGUF, so its weights go into a plain one
    first.
    """
    if (folder / "config.json").is_file():
        return folder
    from transformers import AutoModelForCausalLM, AutoTokenizer

    given = {"gguf_file": gguf.name, "local_files_only": True}
    read = AutoModelForCausalLM.from_pretrained(str(gguf.parent), **given)
    config = read.config
    if hasattr(config, "quantization_config"):
        del config.quantization_config
    plain = AutoModelForCausalLM.from_config(config)
    plain.load_state_dict(read.state_dict())
    tokenizer = AutoTokenizer.from_pretrained(str(gguf.parent), **given)
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent) as made:
        plain.save_pretrained(made)
        tokenizer.save_pretrained(made)
        Path(made).chmod(0o755)
        Path(made).rename(folder)
        Path(made).mkdir()  # the context manager removes it
    return folder
