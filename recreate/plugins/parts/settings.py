"""How long tools are run without the model at the end of a build."""

from __future__ import annotations

from typing import ClassVar

from pydantic import Field

from recreate.api.config import PluginSettings


class PartsSettings(PluginSettings):
    """seconds: for running a build's tools without the model at its end; 0: never."""

    taken_by: ClassVar = frozenset({"build"})
    panel: ClassVar = "Gate"
    free: ClassVar = frozenset({"seconds"})

    seconds: float = Field(
        default=120.0,
        ge=0,
        le=86_400,
        description=(
            "Seconds at the end of a build for running its new tools without the model, on the"
            " tasks' words alone; 0: never."
        ),
    )
