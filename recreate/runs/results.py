"""What was measured, a record for each place of a table: as it ended, or read back from a run
folder."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from pydantic import Field

from recreate.api.errors import BadInput
from recreate.api.shapes import JsonDict, JsonMap
from recreate.api.types import Record, Usage, Verdict
from recreate.runs.attempts import Score
from recreate.runs.gate import interval, judge, pass_hat
from recreate.runs.reader import CellKey, Run
from recreate.runs.settings import Settings
from recreate.storage.log import Log

WHOSE = ("scaffold", "digest", "model", "domain", "split")
"""What a cell is named by in files and in `--json`."""


class BenchResult(Record):
    """One scaffold on one split. mean with its 90 % interval [lo, hi] over `n` tasks; None when
    nothing was graded.

    set_aside: attempts that an infrastructure failure excluded; scores: task, repeat, score,
    experience of each, how it ended and what it took. usd, tokens, calls: of the graded attempts,
    when they were made; latency: seconds a reply took, their mean. pass_1 with its interval: the
    share that passed; pass_hat: k (as a text) -> the chance that k attempts at a task all pass.
    endings: how many ended how, `passed` and `failed` those that handed in. test_openings: on the
    test split the number of this opening, else how many there were; opened_before: the openings
    that asked the same of the same agent; test_agents: how many agents the split was opened for by
    then, this one counted. date: the UTC day on which the run last measured; command: what measures
    it anew, '' where no command can.
    """

    scaffold: str
    digest: str
    model: str
    domain: str
    split: str
    n: int
    repeats: int
    mean: float | None
    lo: float | None
    hi: float | None
    usd: float
    tokens: int
    set_aside: int
    test_openings: int
    scores: tuple[JsonMap, ...]
    pass_1: float | None = None
    pass_1_lo: float | None = None
    pass_1_hi: float | None = None
    pass_hat: Mapping[str, float] = Field(default={})
    tokens_in: int = 0
    tokens_out: int = 0
    calls: int = 0
    latency: float | None = None
    endings: Mapping[str, int] = Field(default={})
    opened_before: tuple[int, ...] = ()
    test_agents: int = 0
    date: str = ""
    command: str = ""

    @property
    def key(self) -> CellKey:
        """Which place of a table it is."""
        return CellKey(self.model, self.digest, self.split, self.domain)

    @property
    def by_place(self) -> dict[tuple[str, int], float | None]:
        """(task, repeat) -> score, None for an attempt that was excluded."""
        return {(s["task"], s["repeat"]): s["score"] for s in self.scores}

    @property
    def by_task(self) -> dict[str, float]:
        """Mean score by task, of what was graded."""
        return average_by_task({k: v for k, v in self.by_place.items() if v is not None})

    def row(self) -> JsonDict:
        """Return the object that `--json` prints as a cell of the table."""
        return self.model_dump(mode="json", exclude={"schema_"})


class SplitOpening(NamedTuple):
    """One measuring on a domain's test split: its number, and before, agents: as opened_before and
    test_agents of BenchResult. Of another split: how many openings there were."""

    number: int
    before: tuple[int, ...] = ()
    agents: int = 0


@dataclass(frozen=True)
class Difference:
    """The gate's verdict on a cell beside another, over the tasks and repeats that both have."""

    before: BenchResult
    after: BenchResult
    verdict: Verdict

    def record(self) -> JsonDict:
        """Return the object that `--json` prints of a cell beside its baseline."""
        base = {key: getattr(self.before, key) for key in ("scaffold", "digest", "model")}
        old = self.before.by_place
        new = self.after.by_place
        pairs = [
            (a, b) for at, a in old.items() if a is not None and (b := new.get(at)) is not None
        ]
        return {
            **{key: getattr(self.after, key) for key in WHOSE},
            "baseline": base,
            **self.verdict.model_dump(mode="json", exclude={"schema_"}),
            "won": sum(b > a for a, b in pairs),
            "lost": sum(b < a for a, b in pairs),
        }


def average_by_task(scores: Mapping[tuple[str, int], float]) -> dict[str, float]:
    """Return the mean score of each task."""
    by_task: dict[str, list[float]] = {}
    for (task, _), score in scores.items():
        by_task.setdefault(task, []).append(score)
    return {task: sum(each) / len(each) for task, each in by_task.items()}


def sum_up(
    run: Run, key: CellKey, name: str, made: Sequence[Score], *, repeats: int, opening: SplitOpening
) -> BenchResult:
    """Return the result of a cell from its attempts' scores."""
    held = {(s.task, s.repeat): s for s in made if s.score is not None}
    passes = {place: s.passed for place, s in held.items()}

    def over_tasks(scores: Mapping[tuple[str, int], Any]) -> tuple[float | None, ...]:
        return interval(scores, alpha=run.settings.gate.alpha) if scores else (None, None, None)

    mean, lo, hi = over_tasks({place: s.score for place, s in held.items()})
    pass_1, pass_lo, pass_hi = over_tasks({place: float(value) for place, value in passes.items()})
    usage = sum((s.usage for s in held.values()), Usage())
    return BenchResult(
        scaffold=name,
        digest=key.agent,
        model=key.model,
        domain=key.domain,
        split=key.split,
        n=len({task for task, _ in held}),
        repeats=repeats,
        mean=mean,
        lo=lo,
        hi=hi,
        usd=round(usage.usd, 6),
        tokens=usage.tokens_in + usage.tokens_out,
        tokens_in=usage.tokens_in,
        tokens_out=usage.tokens_out,
        calls=usage.calls,
        latency=round(usage.seconds / usage.calls, 3) if usage.calls else None,
        set_aside=len(made) - len(held),
        pass_1=pass_1,
        pass_1_lo=pass_lo,
        pass_1_hi=pass_hi,
        pass_hat={str(k): value for k, value in pass_hat(passes).items()},
        endings=dict(sorted(Counter(s.how for s in made).items())),
        test_openings=opening.number,
        opened_before=opening.before,
        test_agents=opening.agents,
        date=run.date,
        command=run.command,
        scores=tuple(map(_score_row, made)),
    )


def _score_row(s: Score) -> JsonDict:
    return {
        "task": s.task,
        "repeat": s.repeat,
        "score": s.score,
        "experience": s.attempt,
        "passed": s.passed,
        "ending": s.how,
        "usd": round(s.usage.usd, 6),
        "tokens": s.usage.tokens_in + s.usage.tokens_out,
        "calls": s.usage.calls,
        "seconds": round(s.usage.seconds, 3),
        **({"fault": s.fault} if s.fault else {}),
    }


def read_results(run: Run, workspace: Path, *, every: bool = False) -> list[BenchResult]:
    """Return what a run measured: of a build its result on validation, else each agent on each
    split. every: of a build too each agent on each split. Raises BadInput when there is nothing."""
    seed = run.seed()
    measured = run.cells() if every else run.results()
    if not measured:
        raise BadInput(
            f"{run.folder} measured nothing",
            fix="name a run of bench or of build",
            code="no-scores",
        )
    names = {r["scaffold"]: r["name"] for r in run.records("agent")}
    names |= {seed.digest: seed.name} if seed else {}
    alone = seed is None and len(measured) == 1
    arms = run.arms()
    opened = Counter(r.get("domain") for r in openings_log(workspace).read())
    results = []
    for key, rows in measured.items():
        places = _excluded_of(run, key, alone=alone) | rows
        results.append(
            sum_up(
                run,
                key,
                arms.get((key.model, key.agent)) or names.get(key.agent, key.agent),
                [run.read_score(row) for _, row in sorted(places.items())],
                repeats=len({repeat for _, repeat in rows}),
                opening=_last_opening(run, key, opened[key.domain]),
            )
        )
    return results


def _excluded_of(run: Run, key: CellKey, *, alone: bool) -> dict[tuple[str, int], JsonDict]:
    """Return (task, repeat) -> the record of an attempt of this cell that was excluded. alone: the
    run has no other cell, and those whose cell is not known are its own."""
    whose = {"scaffold": key.agent, "model": key.model, "domain": key.domain}
    return {
        (row["task"], row["repeat"]): row
        for row in run.excluded()
        if row["phase"] == key.split
        and (whose.items() <= row.items() or (alone and "scaffold" not in row))
    }


def _last_opening(run: Run, key: CellKey, many: int) -> SplitOpening:
    """Return the last opening of a cell; for none of its own, how many there were."""
    own = {"scaffold": key.agent, "model": key.model}
    opened = [
        SplitOpening(r["number"], tuple(r["before"]), r["agents"])
        for r in run.records("test-opened")
        if key.split == "test" and own.items() <= r.items()
    ]
    return opened[-1] if opened else SplitOpening(many)


def judge_pairs(
    pairs: Sequence[tuple[BenchResult, BenchResult]],
    settings: Settings,
    kinds: Mapping[str, str],
) -> Iterator[Difference]:
    """Yield the gate's verdict on each pair (before, after); no correction is made for how many
    there are. kinds: task -> its kind."""
    alpha = settings.gate.alpha
    seed = settings.seed
    for before, after in pairs:
        verdict = judge(before.by_place, after.by_place, alpha=alpha, seed=seed, kinds=kinds)
        yield Difference(before, after, verdict)


def pair_cells(run: Run, cells: Sequence[BenchResult]) -> list[tuple[BenchResult, BenchResult]]:
    """Return each cell that has a baseline after it, as the bench named them; where none did, all
    beside the first."""
    bases = run.baselines()
    if bases is None:
        return [(cells[0], cell) for cell in cells[1:]]
    by_key = {cell.key: cell for cell in cells}
    named = [(bases.get(cell.key), cell) for cell in cells]
    return [(by_key[base], cell) for base, cell in named if base in by_key]


def openings_log(workspace: Path) -> Log:
    """Return a workspace's list of test openings."""
    return Log(workspace / "runs" / "test_openings.jsonl", durable=True)
