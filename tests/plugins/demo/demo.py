"""The demo, many times on a busy machine: the same digest each time.

    python -m tests.plugins.demo.demo          50 times beside two busy loops; --times 3, --busy 0
    python -m tests.plugins.demo.demo --record DIR --model local:NAME --optimizer openai:URL#MODEL
    python -m tests.plugins.demo.demo --record DIR --again

Exits 1 when two replays ended otherwise. --record makes the recording anew: DIR then takes the
place of benchmarks/demo/tape. --again: with the replies and proposals that ship, each at the place
that it had: where ids or parameters changed and what is asked did not. It stops at a call that was
never made.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from recreate.api.errors import BadInput
from recreate.api.types import Call, Message, Reply
from recreate.builder.proposals import Proposals
from recreate.models.replies import ModelQuestion
from recreate.plugins.demo import demo
from recreate.runs.recording import read_raw_lines
from recreate.runs.replay import Replay
from recreate.storage.log import unseal


def once(folder: Path, jobs: int) -> dict[str, Any]:
    """What one replay ended with, its digest and verdict, and how long it took."""
    begun = time.monotonic()
    built = demo.replay(folder, jobs=jobs)
    ended = {"digest": built.scaffold.digest, "verdict": built.verdict.model_dump(mode="json")}
    return {"ended": ended, "seconds": round(time.monotonic() - begun, 2)}


class FromTape:
    """A model that says what it said to the same words, else at the same place: by role, task,
    repeat and step, and of several attempts there in their order."""

    def __init__(self, tape: Replay, role: str) -> None:
        who = tape.models[role]
        self.role, self.name, self.price = role, who.name, who.price
        self.native_tools, self.override = bool(who.native_tools), who.override
        self.lines = [
            line
            for known in tape._calls.values()
            for line in known.values()
            if line["role"] == role and "reply" in line
        ]
        self.attempts: dict[tuple[Any, ...], list[str]] = {}
        self.moved = 0

    def reply(self, messages: Sequence[Message], call: Call, **params: Any) -> Reply:
        words = ModelQuestion(self.name, messages, params, call).message_digests
        place = call.task, call.repeat, call.phase
        there = [line for line in self.lines if self._place(line) == place]
        began = self.attempts.setdefault(place, [])
        began += [call.attempt] * (call.attempt not in began)
        same = [line for line in there if line["messages"] == words]
        if not same:
            order = list(dict.fromkeys(line["call"].split("/")[1] for line in there))
            then = [f"/{id}/{call.step}" for id in order[began.index(call.attempt) :][:1]]
            same = [line for line in there if line["call"].endswith(tuple(then))]
            self.moved += 1
        if not same:
            raise BadInput(
                f"the recording has no reply at {place}, step {call.step}", code="differs"
            )
        return Reply.model_validate(same[0]["reply"])

    @staticmethod
    def _place(line: Mapping[str, Any]) -> tuple[str, int, str]:
        return line.get("task", ""), line.get("repeat", 0), line.get("phase", "train")

    def close(self) -> None: ...


def proposed(tape: Replay) -> Any:
    """What finds the proposal of the same round, with the ids that its attempts have now."""
    raw = [unseal(line) or {} for line in read_raw_lines(tape.folder)]
    train = [line for line in raw if line.get("phase") == "train" and line["kind"] == "experience"]
    ids = {(line["task"], line["repeat"]): line["attempt"] for line in train}
    lines = {line["recorded"]["given"]["round"]: line for line in tape.proposals.values()}

    def find(self: Proposals, given: Mapping[str, Any]) -> Any:
        text = json.dumps(lines[given["round"]])
        for e in self.batch.values():
            text = text.replace(ids[e.task, e.trace.repeat], e.id)
        return json.loads(text)

    return find


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--times", type=int, default=50)
    parser.add_argument("--busy", type=int, default=2, help="busy loops beside it")
    parser.add_argument("--record", type=Path)
    parser.add_argument("--again", action="store_true")
    parser.add_argument("--from-run", type=Path, help="with --again: in place of what ships")
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
            models: list[Any] = [asked.model, asked.optimizer]
            if asked.again:
                tape = Replay(asked.from_run or demo.tape())
                models = [FromTape(tape, role) for role in ("agent", "optimizer")]
                Proposals.find_recorded = proposed(tape)  # type: ignore[method-assign]
            built = demo.record(
                Path(place),
                asked.record.resolve(),
                *models,
                jobs=1 if asked.again else 2,
                say=lambda e, f: said(e, str(f)[:150]),
            )
            print(json.dumps(built.record, indent=1))
            if asked.again:
                said(f"{sum(model.moved for model in models)} calls asked other words than then")
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
