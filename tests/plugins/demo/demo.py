"""The demo, many times on a busy machine: the same digest each time.

    python -m tests.plugins.demo.demo          50 times beside two busy loops; --times 3, --busy 0
    python -m tests.plugins.demo.demo --record DIR --model local:NAME --optimizer openai:URL#MODEL

Exits 1 when two replays ended otherwise. --record makes the cassette anew: DIR is then
benchmarks/demo/tape.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

from recreate.plugins.demo import demo


def once(folder: Path, jobs: int) -> dict[str, Any]:
    """What one replay ended with, its digest and verdict, and how long it took."""
    begun = time.monotonic()
    built = demo.replay(folder, jobs=jobs)
    ended = {"digest": built.scaffold.digest, "verdict": built.verdict.model_dump(mode="json")}
    return {"ended": ended, "seconds": round(time.monotonic() - begun, 2)}


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--times", type=int, default=50)
    parser.add_argument("--busy", type=int, default=2, help="busy loops beside it")
    parser.add_argument("--record", type=Path)
    parser.add_argument("--model", default="")
    parser.add_argument("--optimizer", default="")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="recreate-demo-") as place:
        if asked.record:
            said = (
                print
                if sys.stderr.isatty()
                else lambda *words: print(*words, file=sys.stderr, flush=True)
            )
            built = demo.record(
                Path(place),
                asked.record.resolve(),
                asked.model,
                asked.optimizer,
                say=lambda e, f: said(e, str(f)[:150]),
            )
            print(json.dumps(built.record, indent=1))
            return 0
        busy = [
            subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(asked.busy)
        ]
        try:
            found = [once(Path(place) / str(n), 1 + n % 4) for n in range(asked.times)]
        finally:
            for loop in busy:
                loop.kill()
                loop.wait()
    ends = Counter(json.dumps(one["ended"], sort_keys=True) for one in found)
    seconds = sorted(one["seconds"] for one in found)
    digests = sorted({one["ended"]["digest"] for one in found})
    record = {"times": asked.times, "busy": asked.busy, "ends": len(ends), "digests": digests}
    print(
        json.dumps(
            {**record, "seconds": {"median": seconds[len(seconds) // 2], "most": seconds[-1]}}
        )
    )
    return 0 if len(ends) == 1 else 1


if __name__ == "__main__":
    sys.exit(main())
