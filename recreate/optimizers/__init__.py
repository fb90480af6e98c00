"""Who proposes edits. Here only what settings say of it, which `COMMAND --help` reads: nothing
heavy is imported."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from recreate.api.config import Config


class StudySettings(Config):
    """What one study of the optimizer `recreate` may use, and how it calls its tools: auto, native
    or json.

    rehearsals: attempts at train tasks that one study may make with its edits. Of a session of the
    optimizer `workbench`: scope: what it is about, sessions: how many candidates are made, answers:
    whether it is shown the right answers of train tasks, where the domain has some to show.
    """

    steps: int = Field(default=40, ge=2, le=100_000)
    tokens: int = Field(default=1_000_000, ge=1, le=10**12)
    usd: float = Field(default=2.0, gt=0, le=1e6)
    rehearsals: int = Field(default=2, ge=0, le=100_000)
    tools: Literal["auto", "native", "json"] = "auto"
    scope: Literal["batch", "cause", "attempt"] = "batch"
    sessions: int = Field(default=1, ge=1, le=20)
    answers: bool = True
