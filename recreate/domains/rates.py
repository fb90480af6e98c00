"""Measured pass rates of tasks, in files beside the recipes: no part of a task, so a new figure
changes no digest.

pass_rates.jsonl   a `PassRate` a line
sets.toml          a table for each `TaskSet`: [capable] difficulty = "0.2..0.8", scaffold = ...,
                   model = ...
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from pathlib import Path

from pydantic import ValidationError

from recreate.api.config import read_json, read_toml
from recreate.api.errors import BadInput
from recreate.api.types import PassRate, Task, TaskSet
from recreate.storage import files

RATES = "pass_rates.jsonl"
SETS = "sets.toml"

Key = tuple[str, str, str, str, str]


class RateFiles:
    """The rates and sets of some folders, read once; what a later folder says of a set goes
    before."""

    def __init__(self, folders: Iterable[Path]) -> None:
        self._folders = list(dict.fromkeys(folder.resolve() for folder in folders))

    def pass_rates(self, task: Task) -> Sequence[PassRate]:
        """Return the rates of the task as it is: what was measured before it changed is left out.
        Raises BadInput for a broken file."""
        return [rate for rate in self._rates.get(task.id, ()) if rate.digest == task.digest]

    def task_sets(self) -> Mapping[str, TaskSet]:
        """Raises BadInput for a broken file."""
        return self._sets

    @cached_property
    def _rates(self) -> Mapping[str, Sequence[PassRate]]:
        found: dict[Key, PassRate] = {}
        for folder in self._folders:
            for rate in read(folder / RATES):
                found[_key(rate)] = join_rates(found.get(_key(rate)), rate)
        by_task: dict[str, list[PassRate]] = {}
        for rate in found.values():
            by_task.setdefault(rate.task, []).append(rate)
        return by_task

    @cached_property
    def _sets(self) -> Mapping[str, TaskSet]:
        found: dict[str, TaskSet] = {}
        for file in (folder / SETS for folder in self._folders):
            if not file.is_file():
                continue
            try:
                found |= {
                    name: TaskSet.model_validate(table)
                    for name, table in read_toml(file.read_text()).items()
                }
            except ValueError as e:
                raise _broken(file, str(e).splitlines()[0]) from None
        return found


def read(file: Path) -> list[PassRate]:
    """Return the lines of a file, [] when it is not there. Raises BadInput that names the line."""
    found = []
    lines = file.read_text("utf-8").split("\n") if file.is_file() else []
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            rate = PassRate.model_validate(read_json(line))
            if (
                not sum(rate.each.values()) <= rate.passed <= rate.attempts
                or len(rate.each) > rate.attempts
            ):
                raise ValueError("its counts contradict each other")
        except ValidationError as e:
            error = e.errors()[0]
            raise _broken(
                file, f"line {number}: {'.'.join(map(str, error['loc']))}: {error['msg']}"
            ) from None
        except ValueError as e:
            raise _broken(file, f"line {number}: {e}") from None
        found.append(rate)
    return found


def add(file: Path, rates: Iterable[PassRate]) -> tuple[int, int]:
    """Add what was measured, each attempt once: (tasks that have rates there now, attempts that
    were new)."""
    known = {_key(rate): rate for rate in read(file)}
    before = sum(rate.attempts for rate in known.values())
    for rate in rates:
        known[_key(rate)] = join_rates(known.get(_key(rate)), rate)
    lines = [known[key].model_dump_json(exclude={"schema_"}) for key in sorted(known)]
    file.parent.mkdir(parents=True, exist_ok=True)
    files.write(file, "".join(line + "\n" for line in lines))
    return (
        len({rate.task for rate in known.values()}),
        sum(rate.attempts for rate in known.values()) - before,
    )


def join_rates(known: PassRate | None, rate: PassRate) -> PassRate:
    """Return two records of one task, agent and model; an attempt that both name counts once."""
    if known is None:
        return rate
    each = {**rate.each, **known.each}
    # only as a number
    told = [(r.attempts - len(r.each), r.passed - sum(r.each.values())) for r in (known, rate)]
    attempts, passed = (
        sum(pair) for pair in zip(*told, (len(each), sum(each.values())), strict=True)
    )
    return known.model_copy(update={"attempts": attempts, "passed": passed, "each": each})


def _key(rate: PassRate) -> Key:
    return rate.task, rate.scaffold, rate.agent, rate.model, rate.digest


def _broken(file: Path, why: str) -> BadInput:
    return BadInput(
        f"{file}: {why}", fix=f"mend {file.name}, or take it away", code="bad-tasks-file"
    )
