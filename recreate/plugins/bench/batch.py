"""Many agents, models and domains measured in one run: a table of cells.

All attempts are one queue, task by task over all cells, so that a suite that stops in the middle
has compared its cells on the same tasks. What any run of the workspace measured under the same key
is read back and not paid again.
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from recreate.agents.scaffold import Scaffold
from recreate.agents.trajectory import swebench_prediction
from recreate.api.config import Split
from recreate.api.errors import BadInput, OutOfBudget, RecreateError
from recreate.api.ports import Model, Price
from recreate.api.shapes import JsonDict
from recreate.api.types import Task
from recreate.builder.measure import Cell, begin, bring, count_openings
from recreate.builder.selection import matching
from recreate.plugins.bench.suite import NAME_ONCE, Suite
from recreate.runs.attempts import Place, Score, Work, key_of, read_experience, run_work
from recreate.runs.budget import Budget
from recreate.runs.opening import open_domain
from recreate.runs.reader import Run
from recreate.runs.results import WHOSE, BenchResult, judge_pairs
from recreate.runs.session import Session
from recreate.runs.settings import Settings
from recreate.storage import files


@dataclass(frozen=True)
class Batched:
    """What came of a batch. differences: each cell that could be paired with its baseline, the
    gate's verdict.

    stopped: why cells are not whole, in words; error: what to end with, once the table is shown.
    """

    run: Path
    cells: tuple[BenchResult, ...]
    differences: tuple[JsonDict, ...]
    openings: int
    stopped: tuple[str, ...] = ()
    error: RecreateError | None = None

    def record(self) -> JsonDict:
        """The object that `--json` prints."""
        found: JsonDict = {"run": str(self.run), "cells": [cell.row() for cell in self.cells]}
        found |= {"test_openings": self.openings, "differences": list(self.differences)}
        ended = _ending_of(self.error)
        found |= {"status": ended, "stopped": list(self.stopped)}
        return found | (
            self.error.record() if self.error is not None and ended == "stopped" else {}
        )


def _ending_of(error: RecreateError | None) -> str:
    if error is None:
        return "done"
    return "budget" if isinstance(error, OutOfBudget) else "stopped"


def measure_all(
    session: Session,
    suite: Suite,
    agent: Callable[[str, Session], Scaffold],
    *,
    fresh: bool = False,
) -> Batched:
    """Measure every cell of a batch in an opened session, or go on with it.

    agent: a scaffold by its name, for a session's domain and model. fresh: what runs/ holds already
    is attempted, and paid, again. Raises Interrupted, BadInput, Fault (a full disk among them);
    what else ends some cells only, or all at the budget, is `error` of what is returned.
    """
    with _sessions(session, suite) as opened:
        begun = [begin(*cell) for cell in _cells(opened, suite, agent)]
        cells = [cell.count_opening() for cell in begun]  # once none of them is refused
        work = [cell.work() for cell in cells]
        if not fresh:
            bring(session, [each for cell in work for each in cell])
        cap = Budget.parse(suite.cell_budget)
        for cell, own in zip(cells, work, strict=True) if cap.caps else ():
            keys = (
                key_of(w.session, w.scaffold, w.task, w.repeat, w.offers, image="") for w in own
            )
            session.ledger.cap(keys, cap, cell.name)
        against = _against(suite, cells)
        pairs = [
            {"cell": cell.key, "baseline": cells[at].key}
            for cell, at in zip(cells, against, strict=True)
            if at is not None
        ]
        session.journal.add("baselines", of=pairs)
        scores, error = _run_cells(session, suite, cells, work)
        results = [cell.result(scores) for cell in cells]
        domains = {own.domain.name: own for own in opened.values()}
        openings = sum(map(count_openings, domains.values()))
        session.journal.add("end", status=_ending_of(error))
    stopped = [
        f"{cell.name}: {len(result.scores) - result.set_aside} of {len(own)} attempts graded"
        + (f", {result.set_aside} excluded" if result.set_aside else "")
        for cell, own, result in zip(cells, work, results, strict=True)
        if len(result.scores) < len(own) or (error is not None and result.set_aside)
    ]
    stopped += [error.message] if error else []
    paired = [
        (results[at], cell) for at, cell in zip(against, results, strict=True) if at is not None
    ]
    kinds = Run(session.folder).kinds()
    judged = [each.record() for each in judge_pairs(paired, session.settings, kinds)]
    return Batched(session.folder, tuple(results), tuple(judged), openings, tuple(stopped), error)


def _run_cells(
    session: Session, suite: Suite, cells: Sequence[Cell], work: Sequence[Sequence[Work]]
) -> tuple[dict[Place, Score], RecreateError | None]:
    """Make the attempts of all cells, task by task; return their scores, and what ended them before
    all were made."""
    totals = {cell.name: len(own) for cell, own in zip(cells, work, strict=True)}
    first = {"scaffold": cells[0].scaffold.digest, "phase": suite.split}
    session.say("gather", {**first, "total": sum(totals.values()), "cells": totals})
    scores: dict[Place, Score] = {}
    try:
        run_work(session, _interleaved(work), scores)
    except RecreateError as e:
        if len(cells) == 1 and not isinstance(e, OutOfBudget):
            raise
        # nothing more can be written, the table's files neither
        if e.exit_code == 130 or files.of_disk(e):
            raise
        return scores, e
    return scores, None


def write(batched: Batched, formats: Collection[str]) -> list[Path]:
    """results.jsonl (a line an attempt), cells.csv (a row a cell), predictions/NAME.jsonl (an
    answer a line, of each cell its first attempt at each task), into the run folder. Raises Fault
    for a full disk."""
    made: dict[Path, str] = {}
    if "jsonl" in formats:
        rows = ({**_of(cell), **score} for cell in batched.cells for score in cell.scores)
        made[batched.run / "results.jsonl"] = "".join(
            json.dumps({"schema": 1, **row}) + "\n" for row in rows
        )
    if "csv" in formats:
        made[batched.run / "cells.csv"] = _csv(batched)
    if "predictions" in formats:
        for cell, name in zip(batched.cells, _names(batched.cells), strict=True):
            lines = (json.dumps(line) + "\n" for line in _predictions(batched.run, cell))
            made[batched.run / "predictions" / f"{name}.jsonl"] = "".join(lines)
    for file, text in made.items():
        file.parent.mkdir(exist_ok=True)
        files.write(
            file,
            text,
            fix="free some space, and give the same command again: nothing is paid twice",
        )
    return list(made)


# ------------------------------------------------------------------------------------------------
# its parts


@contextmanager
def _sessions(session: Session, suite: Suite) -> Iterator[dict[tuple[str, str], Session]]:
    """(model, domain) as the batch names them -> the session that measures it; further models
    closed in the end."""
    with ExitStack() as closing:
        models: dict[str, tuple[Model, Price]] = {suite.models[0]: (session.model, session.price)}
        for name in suite.models[1:]:
            models[name] = _open(session.settings, name)
            closing.callback(models[name][0].close)
        domains = _domains(session, suite)
        yield {
            (model, name): own.with_model(each, price=price) if each is not session.model else own
            for name, own in domains.items()
            for model, (each, price) in models.items()
        }


def _open(settings: Settings, name: str) -> tuple[Model, Price]:
    """A model and its price: its own where that is known, else the one that the settings give."""
    from recreate.models import open_model
    from recreate.models.pricing import known_price, parse_price

    options: JsonDict = {"jobs": settings.jobs, "threads": settings.models.threads}
    model = open_model(name, **settings.plugins, **options)
    try:
        return model, known_price(model)
    except BadInput:
        if not settings.price:
            model.close()
            raise
        return model, parse_price(settings.price)


def _domains(session: Session, suite: Suite) -> dict[str, Session]:
    """Each domain's session. A word of --tasks need be known to one of several domains only."""
    settings = session.settings
    if len(suite.domains) == 1:
        return {suite.domains[0]: session}
    tasks = {
        name: list(
            open_domain(
                settings.model_copy(update={"domain": name}), session.workspace, session.backend
            ).tasks()
        )
        for name in suite.domains
    }
    words = {
        name: tuple(w for w in settings.select.tasks if _is_of(each, w))
        for name, each in tasks.items()
    }
    for word in settings.select.tasks:
        if not any(word in known for known in words.values()):
            for where in ([task for each in tasks.values() for task in each], *tasks.values()):
                matching(where, word)
    found = {}
    for name in suite.domains:
        if settings.select.tasks and not words[name]:
            fix = "name some of its tasks too, or leave the domain out"
            raise BadInput(f"--tasks names no task of {name}", fix=fix, code="too-few-tasks")
        select = settings.select.model_copy(update={"tasks": words[name]})
        found[name] = session.with_domain(
            settings.model_copy(update={"domain": name, "select": select})
        )
    return found


def _is_of(tasks: Sequence[Task], word: str) -> bool:
    try:
        return bool(matching(tasks, word))
    except BadInput:
        return False


def _cells(
    opened: Mapping[tuple[str, str], Session],
    suite: Suite,
    agent: Callable[[str, Session], Scaffold],
) -> Iterator[tuple[Session, Scaffold, Split, int, str]]:
    """What `begin` takes, in the order of domains, models, scaffolds; a cell's name is as short as
    tells it."""
    agents = {
        (m, d): [agent(name, own) for name in suite.scaffolds] for (m, d), own in opened.items()
    }
    for each in agents.values():
        _refuse_twice(
            "scaffold", {name: a.digest for name, a in zip(suite.scaffolds, each, strict=True)}
        )
    _refuse_twice("model", {m: own.model_name for (m, _), own in opened.items()})
    _refuse_twice("domain", {d: own.domain.name for (_, d), own in opened.items()})
    every = {a.digest: a.name for each in agents.values() for a in each}
    for domain in suite.domains:
        for model in suite.models:
            own = opened[model, domain]
            for scaffold in agents[model, domain]:
                twice = list(every.values()).count(scaffold.name) > 1
                parts = [f"{scaffold.name} {scaffold.digest[:6]}" if twice else scaffold.name]
                parts += [own.model_name.rpartition("/")[2].rpartition("#")[2]] * (
                    len(suite.models) > 1
                )
                parts += [own.domain.name] * (len(suite.domains) > 1)
                yield own, scaffold, suite.split, suite.tasks, ", ".join(parts)


def _refuse_twice(what: str, names: Mapping[str, str]) -> None:
    """names: what was named -> what it is. Two of a kind would be the same attempts, made at the
    same time."""
    known: dict[str, str] = {}
    for name, found in names.items():
        if found in known:
            message = f"{known[found]} and {name} are the same {what} ({found})"
            raise BadInput(message, fix=NAME_ONCE, code="named-twice")
        known[found] = name


def _against(suite: Suite, cells: Sequence[Cell]) -> list[int | None]:
    """The place of each cell's baseline: what differs from it in the scaffold, or in the model,
    alone."""
    axis, name = suite.against
    order = [(d, m, s) for d in suite.domains for m in suite.models for s in suite.scaffolds]
    assert len(order) == len(cells)
    if not axis:
        return [None] * len(order)
    bases = [(d, m, name) if axis == "scaffold" else (d, name, s) for d, m, s in order]
    return [
        order.index(base) if base != own else None for base, own in zip(bases, order, strict=True)
    ]


def _interleaved(work: Sequence[Sequence[Any]]) -> list[Any]:
    """The first of each, then the second of each, and so on."""
    longest = max(map(len, work), default=0)
    return [each[place] for place in range(longest) for each in work if place < len(each)]


def _of(cell: BenchResult) -> JsonDict:
    return {key: getattr(cell, key) for key in WHOSE}


def _csv(batched: Batched) -> str:
    most = max((int(k) for cell in batched.cells for k in cell.pass_hat), default=1)
    plain = (
        "n",
        "repeats",
        "mean",
        "lo",
        "hi",
        "usd",
        "tokens_in",
        "tokens_out",
        "calls",
        "latency",
        "set_aside",
    )
    judged = {(d["digest"], d["model"], d["domain"]): d for d in batched.differences}
    out = io.StringIO()
    rows = csv.writer(out, lineterminator="\n")
    rows.writerow(
        [
            *WHOSE,
            *plain,
            *(f"pass^{k}" for k in range(1, most + 1)),
            *("diff", "diff_lo", "diff_hi", "p", "verdict"),
            "endings",
            "baseline",
            "baseline_model",
        ]
    )
    for cell in batched.cells:
        diff = judged.get((cell.digest, cell.model, cell.domain), {})
        hats = [cell.pass_hat.get(str(k), "") for k in range(1, most + 1)]
        judgement = [diff.get(key, "") for key in ("diff", "lo", "hi", "p", "verdict")]
        endings = "; ".join(f"{name} {count}" for name, count in cell.endings.items())
        base = [diff["baseline"][key] for key in ("scaffold", "model")] if diff else ["", ""]
        rows.writerow(
            [
                *_of(cell).values(),
                *(getattr(cell, key) for key in plain),
                *hats,
                *judgement,
                endings,
                *base,
            ]
        )
    return out.getvalue()


def _names(cells: Sequence[BenchResult]) -> list[str]:
    """A file's name for each cell."""
    found = []
    for n, cell in enumerate(cells):
        model = "".join(
            c if c.isalnum() or c in ".-_" else "-" for c in cell.model.rpartition("/")[2]
        )[-40:]
        name = "-".join((cell.scaffold, model, cell.domain.rpartition(":")[2]))
        found.append(f"{name}-{n}" if name in found else name)
    return found


def _predictions(run: Path, cell: BenchResult) -> Iterator[JsonDict]:
    """A line for each task: `task`, `answer` and what SWE-bench's harness asks for."""
    seen = set[str]()
    for score in cell.scores:
        if score["score"] is None or score["task"] in seen:
            continue
        known = read_experience(run / "attempts" / score["experience"], steps=False)
        if known is not None:
            seen.add(score["task"])
            yield {"task": known.task, "answer": known.trace.answer, **swebench_prediction(known)}
