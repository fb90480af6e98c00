"""What settings are written in. It stands alone: every command reads it, and `--help` must not wait for the records."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict

SCHEMA = 1
"""The version of every stored format; docs/format.md says what changed between two."""

Split = Literal["train", "validation", "test"]


class Config(BaseModel):
    """Settings of one part: frozen, and a name that it does not know is an error."""

    model_config = ConfigDict(frozen=True, extra="forbid")
