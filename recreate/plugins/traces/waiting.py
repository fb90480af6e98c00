"""Memory together with the attempts that wait for a grade beside it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing

from recreate.api.errors import BadInput
from recreate.api.ports import Hit
from recreate.api.shapes import JsonMap
from recreate.api.types import Experience
from recreate.memory.store import ExperienceStore
from recreate.plugins.traces.ungraded import Ungraded

_ABOUT = ("domain", "task", "group", "split", "digest", "model", "run", "since", "until")
"""Filters that say what an attempt is of, and not how it went."""


def open_waiting(memory: ExperienceStore) -> Iterator[Ungraded]:
    """Yield what waits beside a memory, where anything does; closed when the next is asked for."""
    with closing(Ungraded(memory)) as found:
        if found.has_any():
            yield found


def recall(
    memory: ExperienceStore,
    query: str,
    k: int = 8,
    filters: JsonMap | None = None,
    reader: str = "optimizer",
    how: str = "hybrid",
    *,
    ungraded: bool = False,
) -> list[Hit]:
    """Return what `memory.recall` finds, and among it attempts that wait and have a provisional
    grade; each of these has the fact `grade`, which says so. The k best of both by their scores,
    graded ones first where these are equal.

    `passed` and `outcome` filter by the provisional grade too. ungraded: also what no judge has
    seen, whose fact `grade` is `ungraded`. Raises BadInput for an empty question, and as
    `ExperienceStore.recall` does.
    """
    if not query.strip():
        fix = (
            "say in a few words what to look for; recreate traces list, recreate patterns list show"
            " what there is"
        )
        raise BadInput("there is nothing to look for: the question is empty", fix=fix, code="usage")
    hits = memory.recall(query, k, filters, reader, how)
    wanted = dict(filters or {})
    if not ungraded and not {"passed", "outcome"} & wanted.keys():
        wanted["passed"] = [True, False]
    for waiting in open_waiting(memory):
        hits += waiting.recall(query, k, wanted, reader, how)
    return sorted(hits, key=lambda hit: -hit.score)[:k]


def find_experience(memory: ExperienceStore, id: str, reader: str = "human") -> Experience | None:
    """Return the experience with this id, of memory or of what waits for a grade; None as
    `ExperienceStore.get` has it."""
    if (found := memory.get(id, reader)) is not None:
        return found
    return next((e for kept in open_waiting(memory) if (e := kept.get(id, reader))), None)


def count_hidden(
    memory: ExperienceStore, filters: JsonMap | None = None, reader: str = "optimizer"
) -> int:
    """Return how many attempts, of those that the reader may see, recall passes over since no judge
    has seen them either."""
    about = {name: value for name, value in (filters or {}).items() if name in _ABOUT}
    return sum(waiting.count_unjudged(about, reader) for waiting in open_waiting(memory))


def waiting_experiences(memory: ExperienceStore, domain: str = "") -> Iterator[Experience]:
    """Return all that still wait for a grade, of one domain or of all."""
    for waiting in open_waiting(memory):
        yield from waiting.waiting(domain)
