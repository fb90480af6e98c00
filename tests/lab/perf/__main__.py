"""python -m tests.perf [NAME] [--json] [--size N] [--root DIR]"""

from __future__ import annotations

import argparse
import importlib
import json
import sys
from pathlib import Path

NAMES = {
    "step": "tests.lab.perf.step",
    "throughput": "tests.lab.perf.throughput",
    "help": "tests.lab.perf.help",
    "toy-build": "tests.lab.perf.toy_build",
    "memory": "tests.lab.perf.growth",
    "study": "tests.lab.perf.study",
    "streams": "tests.lab.perf.streams",
    "oracle": "tests.lab.perf.oracle",
    "retrieval": "tests.lab.perf.retrieval",
    "recall": "tests.lab.perf.recall",
    "rl": "tests.lab.perf.rl",
    "house": "tests.lab.perf.house",
    "grading": "tests.lab.perf.grading",
    "view": "tests.lab.perf.view",
    "local": "tests.lab.perf.local",
    "batch": "tests.lab.perf.batch",
    "near": "tests.lab.perf.near",
    "pace": "tests.lab.perf.pace",
    "tiny": "tests.lab.perf.tiny",
    "keys": "tests.lab.perf.keys",
}


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.perf", description="Example: python -m tests.perf step"
    )
    parser.add_argument(
        "name", nargs="?", choices=NAMES, help="what to measure; without it the names are listed"
    )
    parser.add_argument("--json", action="store_true", help="one JSON object a line on stdout")
    parser.add_argument(
        "--size",
        type=int,
        help=(
            "how many: recall, view steps; tiny experiences; grading tasks; local functions; batch"
            " attempts; near questions"
        ),
    )
    parser.add_argument("--root", type=Path, help="house only: another checkout")
    args = parser.parse_args()
    if args.name is None:
        for name, module in NAMES.items():
            said = (importlib.import_module(module).__doc__ or "").partition("\n")[0]
            print(
                json.dumps({"schema": 1, "name": name, "about": said})
                if args.json
                else f"{name:12} {said}"
            )
        return 0
    met = True
    options = {"size": args.size, "root": args.root and args.root.resolve()}
    measure = importlib.import_module(NAMES[args.name]).measure
    for row in measure(**{name: value for name, value in options.items() if value}):
        print(json.dumps({"schema": 1, **row.record()}) if args.json else row, flush=True)
        met = met and row.met
    return 0 if met else 4


if __name__ == "__main__":
    sys.exit(main())
