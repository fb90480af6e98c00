"""`--cache-near`: how near another question must be whose reply is taken."""

from __future__ import annotations

from typing import Any, ClassVar

from pydantic import Field

from recreate.api.config import PluginSettings
from recreate.api.errors import BadInput


class NearSettings(PluginSettings):
    """near: the cosine from which a train attempt is answered with the reply to another task's
    question, 0 for never (docs/cassettes.md)."""

    short: ClassVar = {"cache-near": "near"}
    taken_by: ClassVar = frozenset({"tape"})
    panel: ClassVar = "Where"

    near: float = Field(
        default=0.0,
        ge=0,
        le=1,
        description=(
            "With --cache: answer a train attempt with the reply to another task's question whose"
            " vector is at least so near, such as 0.95 (a cosine); 0: never."
        ),
    )

    def check(self, settings: Any) -> None:
        """Raise BadInput where near questions are to be answered and there is no cache."""
        if self.near and not settings.cache and not settings.replay:
            raise BadInput(
                f"--cache-near {self.near:g} says how near a question must be, and there is no"
                " cache",
                fix=f"--cache --cache-near {self.near:g}",
                code="usage",
            )
