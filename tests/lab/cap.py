"""One cap over 4 processes of 16 threads each that share a ledger, killed again and again.

    python -m tests.lab.cap --kills 1000 --seed 0

Each process asks as a run does (`Calls.ask`, with a journal of its own), in turn answered rightly,
cut off, hung up on and turned away. At random moments all four are killed (SIGKILL) and started
again, until the cap is reached; then the next cap. The endpoint says what it worked on: never more
than the cap, and never more than the ledger says. Exits 1 when one of them is not so.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import sys
import tempfile
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

from recreate.api.errors import Fault, OutOfBudget
from recreate.api.ports import Price
from recreate.api.types import Call
from recreate.models.openai import OpenAI
from recreate.runs.budget import Budget, Ledger, Spend
from recreate.runs.calls import Calls
from recreate.runs.journal import Journal
from recreate.storage.log import Log
from tests.lab.faults import seen, served

PROCESSES, THREADS = 4, 16
TOKENS = 60_000
PRICE = Price(tokens_in=1.0, tokens_out=1.0)


def work(url: str, run: str, folder: Path, number: int) -> None:
    """One process: ask until the budget is used."""
    ledger = Ledger(Log(folder / "ledger.jsonl"), Budget(tokens=TOKENS))
    journal = Journal(folder / str(number))
    journal.open()
    model = OpenAI(f"{url}#m", price=PRICE, timeout=5)
    calls = Calls(run, journal, ledger, retries=2, backoff=0.001)

    def ask(thread: int) -> None:
        with suppress(OutOfBudget):
            for step in range(10**6):
                with suppress(Fault):
                    call = Call(run=run, attempt=f"{number}-{thread}", step=step)
                    calls.ask(
                        model, PRICE, [{"role": "user", "content": "x" * 100}], call, max_tokens=50
                    )

    threads = [threading.Thread(target=ask, args=(n,)) for n in range(THREADS)]
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]
    ledger.close()
    journal.close()


def start(url: str, run: str, folder: Path, number: int) -> int:
    """A process that works; its id."""
    if process := os.fork():
        return process
    try:
        work(url, run, folder, number)
        os._exit(0)
    finally:
        os._exit(1)


def under_one_cap(
    url: str, run: str, folder: Path, draw: random.Random, most: int
) -> dict[str, Any]:
    """Start, kill and start again until the cap is reached, or so many kills were dealt, and then
    let it end."""
    kills = failed = 0
    while True:
        processes = {start(url, run, folder, number) for number in range(PROCESSES)}
        ends = time.monotonic() + draw.uniform(0.005, 0.12) if kills < most else None
        while processes and (ends is None or time.monotonic() < ends):
            ended = {p: status for p in processes if (status := _ended(p)) is not None}
            failed += sum(status != 0 for status in ended.values())
            processes -= ended.keys()
            time.sleep(0.002)
        if not processes:
            break
        for process in processes:
            os.kill(process, signal.SIGKILL)
            os.waitpid(process, 0)
        kills += 1
    time.sleep(0.05)  # what was on its way when the last process ended arrives
    spend = Spend.of(Log(folder / "ledger.jsonl").read())
    return {
        "kills": kills,
        "failed": failed,
        "worked": seen(url)["worked"].get(run, 0),
        "charged": int(spend.tokens),
    }


def _ended(process: int) -> int | None:
    found, status = os.waitpid(process, os.WNOHANG)
    return os.waitstatus_to_exitcode(status) if found else None


def trial(kills: int, seed: int = 0) -> dict[str, Any]:
    """So many kills, under as many caps as it takes."""
    draw = random.Random(seed)
    total = {
        "caps": 0,
        "kills": 0,
        "over_cap": 0,
        "free_of_charge": 0,
        "failed": 0,
        "worked": 0,
        "charged": 0,
    }
    with (
        served(seed, 0.4, ("cut", "hung up", "busy")) as url,
        tempfile.TemporaryDirectory() as place,
    ):
        while total["kills"] < kills:
            run = f"run{total['caps']}"
            folder = Path(place) / run
            folder.mkdir()
            found = under_one_cap(url, run, folder, draw, kills - total["kills"])
            total["caps"] += 1
            total["over_cap"] += found["worked"] > TOKENS or found["charged"] > TOKENS
            total["free_of_charge"] += found["worked"] > found["charged"]
            for name in ("kills", "failed", "worked", "charged"):
                total[name] += found[name]
    return total


def fine(result: dict[str, Any]) -> bool:
    """Whether every cap held, and nothing was worked on for nothing."""
    return not (result["over_cap"] or result["free_of_charge"] or result["failed"])


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--kills", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    result = trial(args.kills, args.seed)
    print(json.dumps(result))
    return 0 if fine(result) else 1


if __name__ == "__main__":
    sys.exit(main())
