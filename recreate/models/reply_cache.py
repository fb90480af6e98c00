"""Replies across runs: what was asked of the same model in the very same words is not paid again.

    FOLDER/ab/abcdef....json   one sealed reply, under the digest of what was asked
    FOLDER/near/               replies to near questions (near_cache.py)

The key is the model, the messages, all parameters (the seed among them, which is derived from
attempt and step), and the numbers of repeat and sample: a repeat is never served another's reply.
Failed calls are never kept.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from recreate.api import paths
from recreate.api.errors import BadInput, Fault
from recreate.api.types import Call, Message, Reply, digest
from recreate.models.cassette import Request
from recreate.storage import files
from recreate.storage.log import seal, unseal

ON = "on"
"""What `--cache` without a folder means."""


def folder_of(setting: str) -> Path:
    """The folder that the setting `cache` names: below RECREATE_HOME for `on`."""
    return paths.home() / "replies" if setting == ON else Path(setting).expanduser()


class ReplyCache:
    """Replies by what was asked. Any number of threads and processes may share a folder."""

    def __init__(self, folder: Path) -> None:
        """Raises BadInput for what is no folder."""
        if folder.exists() and not folder.is_dir():
            raise BadInput(
                f"{paths.short(folder)} is a file",
                fix="name a folder with --cache",
                code="bad-cache",
            )
        self.folder = folder

    def get(
        self, model: str, messages: Sequence[Message], params: Mapping[str, Any], call: Call
    ) -> Reply | None:
        """The reply with `from_cache` set; None when it was never asked, or what is kept is
        damaged."""
        file = self._file(model, messages, params, call)
        try:
            record = unseal(file.read_bytes())
            return (
                None
                if record is None
                else Reply.model_validate({**record["reply"], "from_cache": True})
            )
        except (OSError, ValueError, KeyError, TypeError, ValidationError, BadInput):
            return None

    def put(
        self,
        model: str,
        messages: Sequence[Message],
        params: Mapping[str, Any],
        call: Call,
        reply: Reply,
    ) -> None:
        """Keep a reply, but one whose endpoint told what cannot be. A disk that does not take it
        stops nobody."""
        if not reply.doubtful:
            file = self._file(model, messages, params, call)
            record = {
                "kind": "cached",
                "model": model,
                "reply": reply.model_dump(mode="json", exclude_defaults=True),
            }
            with contextlib.suppress(Fault):
                files.write(file, seal(record))

    def _file(
        self, model: str, messages: Sequence[Message], params: Mapping[str, Any], call: Call
    ) -> Path:
        request = Request.of(model, messages, params)
        key = digest([request.digest, weights(model), call.repeat, call.sample], 32)
        return self.folder / key[:2] / f"{key}.json"

    def size(self) -> tuple[int, int]:
        """(how many replies are kept, their bytes)."""
        found = [file.stat().st_size for file in self.folder.glob("??/*.json")]
        near = [file.read_bytes() for file in self.folder.glob("near/*.jsonl")]
        return len(found) + sum(each.count(b"\n") for each in near), sum(found) + sum(
            map(len, near)
        )

    def clear(self) -> None:
        """Forget all replies, and nothing else that lies there."""
        for file in (*self.folder.glob("??/*.json"), *self.folder.glob("near/*.jsonl")):
            file.unlink(missing_ok=True)
        for folder in (*self.folder.glob("??"), self.folder / "near"):
            with contextlib.suppress(OSError):
                folder.rmdir()


def weights(model: str) -> Any:
    """What tells a file or folder of weights, or a script, from what stood under the same name
    before."""
    name = model.partition(":")[2]
    place = Path(name).expanduser()
    with contextlib.suppress(OSError, ValueError):
        if name and place.exists():
            stats = [p.stat() for p in ([place] if place.is_file() else sorted(place.glob("*")))]
            return [[s.st_size, s.st_mtime_ns] for s in stats]
    return None
