"""python -m tests.perf [NAME] [--json]"""

from __future__ import annotations

import argparse
import importlib
import json
import sys

NAMES = {
    "step": "tests.perf.step",
    "throughput": "tests.perf.throughput",
    "help": "tests.perf.help",
    "toy-build": "tests.perf.toy_build",
    "memory": "tests.perf.growth",
    "study": "tests.perf.study",
    "streams": "tests.perf.streams",
    "retrieval": "tests.perf.retrieval",
    "recall": "tests.perf.recall",
    "rl": "tests.perf.rl",
}


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.perf", description="Example: python -m tests.perf step")
    parser.add_argument("name", nargs="?", choices=NAMES, help="what to measure; without it the names are listed")
    parser.add_argument("--json", action="store_true", help="one JSON object a line on stdout")
    parser.add_argument("--size", type=int, help="recall only: how many steps; 100,000 unless told")
    args = parser.parse_args()
    if args.name is None:
        for name, module in NAMES.items():
            said = (importlib.import_module(module).__doc__ or "").partition("\n")[0]
            print(json.dumps({"schema": 1, "name": name, "about": said}) if args.json else f"{name:12} {said}")
        return 0
    met = True
    for row in importlib.import_module(NAMES[args.name]).measure(**({"size": args.size} if args.size else {})):
        print(json.dumps({"schema": 1, **row.record()}) if args.json else row, flush=True)
        met = met and row.met
    return 0 if met else 4


if __name__ == "__main__":
    sys.exit(main())
