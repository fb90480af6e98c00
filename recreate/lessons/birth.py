"""What an experience may be learned from, and the lesson that is made of an answer."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from recreate.api.types import Experience, Lesson, digest


def learnable(experiences: Iterable[Experience]) -> list[Experience]:
    """The train experiences that say something of the agent, each once: a fault of ours does not."""
    once = {e.id: e for e in experiences if e.split == "train" and not e.trace.fault}
    return list(once.values())


def offered(experience: Experience) -> set[str]:
    """The ids of the lessons that the agent was offered at any step."""
    return {id for step in experience.trace.steps for id in step.offered}


def new_lesson(domain: str, title: str, body: str, born_of: Sequence[Experience]) -> Lesson:
    """A candidate; its id is the title in plain letters and eight digits of what it was made of."""
    title = " ".join(title.split())
    slug = re.sub(r"[^a-z0-9]+", "-", title.casefold()).strip("-")[:40].strip("-") or "lesson"
    ids = tuple(dict.fromkeys(e.id for e in born_of))
    return Lesson(
        id=f"{slug}-{digest([domain, title, body, ids], 8)}",
        title=title,
        body=body,
        born_of=ids,
        supports=ids,
        groups=tuple(dict.fromkeys(e.group for e in born_of)),
    )
