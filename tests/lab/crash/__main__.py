"""python -m tests.lab.crash [--boundaries [N]] [--random N] [--disk [N]] [--tmpfs N] [--after N]
[--sequential] [--search] ..."""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

ALL = -1
SHOWN = 600
"""Characters of what is wrong with one build."""


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.lab.crash", description=__doc__)
    every = {"type": int, "nargs": "?", "const": ALL, "default": 0}
    parser.add_argument(
        "--boundaries", **every, help="killed at each boundary, or at N of them evenly spread"
    )  # type: ignore[arg-type]
    parser.add_argument(
        "--disk", **every, help="the disk full from each boundary on, or from N of them"
    )  # type: ignore[arg-type]
    parser.add_argument(
        "--tmpfs",
        type=int,
        default=0,
        help="N builds on a file system that is too small; needs root",
    )
    parser.add_argument(
        "--random",
        type=int,
        default=0,
        help="N builds killed at random moments, some again and again",
    )
    parser.add_argument("--after", type=int, default=0, help="only the boundaries after this one")
    parser.add_argument(
        "--sequential",
        action="store_true",
        help="builds by the rule `each`: trials that end early",
    )
    parser.add_argument(
        "--search", action="store_true", help="builds by the rule `search`: looks at the end"
    )
    parser.add_argument(
        "--bench", action="store_true", help="no build, but a bench of two agents, two repeats"
    )
    parser.add_argument(
        "--record", action="store_true", help="builds that are recorded, and then replayed"
    )
    parser.add_argument("--busy", action="store_true", help="beside two busy loops")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    if not (args.boundaries or args.disk or args.random or args.tmpfs):
        args.boundaries, args.random, args.disk = ALL, 500, ALL
    busy = [
        multiprocessing.Process(target=_spin, daemon=True) for _ in range(2 if args.busy else 0)
    ]
    for each in busy:
        each.start()
    wrong = 0
    with tempfile.TemporaryDirectory(prefix="recreate-crash-") as name:
        os.environ["RECREATE_HOME"] = str(Path(name) / "home")
        for kind, tried, faults, seconds in _kinds(Path(name), args):
            wrong += len(faults)
            row = {
                "schema": 1,
                "kind": kind,
                "tried": tried,
                "wrong": len(faults),
                "seconds": round(seconds, 1),
            }
            if args.json:
                print(json.dumps({**row, "faults": faults}), flush=True)
                continue
            print(f"{kind}: {tried} tried, {len(faults)} wrong, {seconds:.0f} s", flush=True)
            for where, what in faults:
                print(f"  {where}: {'; '.join(what)[:SHOWN]}", flush=True)
    for each in busy:
        each.terminate()
    return 4 if wrong else 0


def _kinds(root: Path, args: Any) -> Iterator[tuple[str, int, list[tuple[str, list[str]]], float]]:
    from tests.lab.crash import toy, trial

    here = root / "w"
    trial.asked_for = toy.SUITE if args.bench else toy.SEQUENTIAL if args.sequential else toy.PAIRED
    if args.search:
        trial.asked_for = toy.SEARCH
    trial.recording = args.record
    trial.warm(here)
    begun = time.monotonic()
    whole, long = trial.uninterrupted(here), time.monotonic() - begun
    for kind, number, full in (("kill", args.boundaries, False), ("full disk", args.disk, True)):
        if number:
            names = trial.boundaries(here, full=full)
            chosen = [at for at in _chosen(names, number) if at > args.after]
            stop = lambda at, full=full: trial.stopped_at(here, at, whole, full=full)  # noqa: E731
            yield kind, *_tried(chosen, stop, lambda at, names=names: f"{at} ({names[at - 1]})")
    if args.tmpfs:
        used = sum(file.stat().st_blocks for file in here.rglob("*")) // 2
        sizes = [100 + used * part // args.tmpfs for part in range(args.tmpfs)]
        yield (
            "tmpfs",
            *_tried(
                sizes, lambda kb: trial.stopped_on(root / "small", kb, whole), lambda kb: f"{kb} kB"
            ),
        )
    if args.random:
        moments = trial.moments(args.random, long, args.seed)
        both = trial.uninterrupted(here, jobs=2)
        yield "random", *_tried(moments, lambda m: trial.stopped_when(here, m, both), str)


def _tried(
    each: Sequence[Any], trial: Callable[[Any], list[str]], name: Callable[[Any], str]
) -> tuple[int, list[tuple[str, list[str]]], float]:
    begun = time.monotonic()
    faults = []
    for number, one in enumerate(each, 1):
        if wrong := trial(one):
            faults.append((name(one), wrong))
        if number % 25 == 0:
            print(f"{number}/{len(each)}, {len(faults)} wrong", file=sys.stderr, flush=True)
    return len(each), faults, time.monotonic() - begun


def _chosen(names: Sequence[str], number: int) -> list[int]:
    """Boundaries, counted from 1: ALL, or so many, half of them evenly from those of langgraph's
    checkpoints."""
    every = range(1, len(names) + 1)
    if number == ALL or number >= len(names):
        return list(every)
    checkpoints = [
        at for at in every if names[at - 1].startswith(("sqlite INSERT", "sqlite COMMIT"))
    ]
    begun = _spread(checkpoints, number // 2)
    return sorted([*begun, *_spread([at for at in every if at not in begun], number - len(begun))])


def _spread(among: Sequence[int], number: int) -> list[int]:
    """So many of them, from the middle of as many equal parts."""
    return (
        [among[(2 * part + 1) * len(among) // (2 * number)] for part in range(number)]
        if among
        else []
    )


def _spin() -> None:
    while True:
        pass


if __name__ == "__main__":
    sys.exit(main())
