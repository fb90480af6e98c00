"""No policy: nothing is learned beside the agent, and nothing is offered."""

from __future__ import annotations

from collections.abc import Sequence

from recreate.types import Change, Experience, Lesson


class NoPolicy:
    """What memory on is compared with."""

    def observe(self, experiences: Sequence[Experience]) -> Sequence[Change]:
        return []

    def offer(self, situation: str, budget: int) -> Sequence[Lesson]:
        return []
