"""Which train tasks a round attempts: in turn, by a strategy found by name, or none at all where
memory holds what is studied."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Sequence
from typing import get_args

from recreate.agents.guards.untrusted import mark_untrusted
from recreate.agents.scaffold import Scaffold
from recreate.api.errors import BadInput
from recreate.api.registry import find
from recreate.api.shapes import JsonMap
from recreate.api.types import Experience, Split, Task
from recreate.memory.overlap import Overlap
from recreate.runs.attempts import copy_in
from recreate.runs.session import Session

Curriculum = Callable[[Session, Scaffold, Sequence[str], Sequence[str], int, str], JsonMap]
"""What `--choose NAME` finds (kind `curriculum`): from the session, the seed, the pool of task ids,
the revisions kept so far, how many tasks and the random seed to `tasks`, their `repeats` and what
is said of the choice (`told`); all of it goes into the journal."""


def draw_batch(
    session: Session, train: Sequence[Task], seed: Scaffold, kept: Sequence[str], round: int
) -> list[tuple[Task, int]]:
    """Return a round's train tasks, each with its attempt's number as a repeat; what a strategy
    chose stands in the journal and is read back."""
    settings = session.settings
    size = min(settings.batch_size, len(train))
    if settings.choose == "uniform":
        return [(train[(round * size + i) % len(train)], 0) for i in range(size)]
    drawn: JsonMap | None = next(
        (r for r in session.journal.records("batch") if r["round"] == round), None
    )
    if drawn is None:
        choose: Curriculum = find("curriculum", settings.choose)
        lot = f"{settings.seed}/batch/{round}"
        chosen = choose(session, seed, [task.id for task in train], kept, size, lot)
        drawn = {"round": round, "scaffold": [seed.digest, *kept][-1], "seed": lot, **chosen}
        session.journal.add("batch", **drawn)
    session.say("note", {"text": drawn["told"]})
    there = {task.id: task for task in train}
    pairs = zip(drawn["tasks"], drawn["repeats"], strict=True)
    return [(there[id], repeat) for id, repeat in pairs if id in there]


def recall_batch(session: Session, round: int) -> list[str]:
    """Copy a batch out of memory into the run folder and return its ids. Of each group one comes
    before a second of any, and failures before what passed. Raises BadInput when memory holds
    nothing that may be learned from."""
    settings = session.settings
    wanted = {"domain": session.domain.name, "split": "train"}
    rows = list(session.memory.facts(wanted, "optimizer"))
    random.Random(f"{settings.seed}/experience").shuffle(rows)
    nth = Counter[str]()
    ranks: dict[str, tuple[int, bool]] = {}
    for row in rows:
        nth[row["group"]] += 1
        ranks[row["id"]] = nth[row["group"]], row["passed"]
    tasks = [task for split in get_args(Split) for task in session.domain.tasks(split)]
    overlap = Overlap(tasks, session.memory.held_out)
    fit = list[Experience]()
    for id in sorted(ranks, key=lambda id: ranks[id]):
        e = session.memory.get(id, "optimizer", plain=True)
        # a task that was added since may be one of these under another name
        if e is not None and e.trace.steps and not e.trace.fault and overlap.split_of(e) == "train":
            fit.append(mark_untrusted(e))
        if len(fit) == settings.batch_size * (round + 1):
            break
    if not fit:
        raise BadInput(
            f"memory holds no graded train experience of {session.domain.name} to start from",
            fix=f"recreate traces import PATH --domain {settings.domain}, and recreate traces grade"
            " for what has no outcome",
            code="no-experience",
        )
    chosen = fit[settings.batch_size * round :] or fit[-settings.batch_size :]
    for e in chosen:
        copy_in(session, e)
    text = f"{len(chosen)} experiences of memory are studied; no attempt was made for them"
    session.say("note", {"text": text})
    return [e.id for e in chosen]
