"""Any sentence-transformers model: a local folder or the name of one on a model hub."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from recreate.api.errors import BadInput
from recreate.api.registry import need

DEFAULT = "sentence-transformers/all-MiniLM-L6-v2"


class Sentence:
    """`sentence:FOLDER_OR_NAME`. A folder is read where it lies and nothing is fetched.

    The name of the vectors holds a digest of the model's configuration and weights' sizes, so a
    folder whose model was exchanged is noticed. Models that declare prompts named `query` and
    `passage` or `document` get them. Raises Missing without sentence-transformers, BadInput when
    the model cannot be loaded.
    """

    def __init__(self, model: str = DEFAULT) -> None:
        module: Any = need("sentence_transformers")
        folder = Path(model).expanduser()
        local = folder.is_dir()
        try:
            self._model: Any = module.SentenceTransformer(
                str(folder) if local else model, device="cpu", local_files_only=local
            )
        except (OSError, ValueError, ImportError) as e:
            said = str(e).splitlines()[0] if str(e) else type(e).__name__
            raise BadInput(
                f"sentence-transformers cannot load {model!r}: {said}",
                fix=(
                    "name a folder with a sentence-transformers model in it, or a model of the hub"
                    " you can reach"
                ),
                code="embedder",
            ) from e
        size = (
            getattr(self._model, "get_embedding_dimension", None)
            or self._model.get_sentence_embedding_dimension
        )
        self.dimensions = int(size())
        self.name = f"sentence-{folder.name}-{_mark(folder)}" if local else f"sentence-{model}"
        self._prompts: dict[str, str] = {
            k: v for k, v in (getattr(self._model, "prompts", None) or {}).items() if v
        }

    def embed(self, texts: Sequence[str], kind: str = "passage") -> list[list[float]]:
        prompt = self._prompts.get(kind) or (
            self._prompts.get("document") if kind == "passage" else None
        )
        vectors: list[list[float]] = self._model.encode(
            [t.encode("utf-8", "replace").decode() for t in texts],
            prompt=prompt,
            normalize_embeddings=True,
            show_progress_bar=False,
        ).tolist()
        return vectors


def _mark(folder: Path) -> str:
    """Eight hex digits that change when the model in the folder does."""
    sha = hashlib.sha256()
    for path in sorted(p for p in folder.rglob("*") if p.is_file()):
        sha.update(f"{path.relative_to(folder)} {path.stat().st_size}\n".encode())
        if path.suffix == ".json" and path.stat().st_size < 100_000:
            sha.update(path.read_bytes())
    return sha.hexdigest()[:8]
