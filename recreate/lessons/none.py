"""`none`: nothing is learned, nothing is offered: what the other policies are compared with."""

from __future__ import annotations

from collections.abc import Sequence

from recreate.api.types import Change, Experience, Lesson
from recreate.lessons.context import PolicyContext


class Nothing:
    """The policy without a memory."""

    def __init__(self, context: PolicyContext | None = None) -> None:
        pass

    def observe(self, experiences: Sequence[Experience]) -> Sequence[Change]:
        return []

    def offer(self, query: str, budget: int) -> Sequence[Lesson]:
        return []
