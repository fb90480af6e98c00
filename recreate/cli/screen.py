"""What a long command shows while it works: a line per event, and on a terminal one live line below them."""

from __future__ import annotations

import time
from typing import Any

from recreate.api.paths import short
from recreate.api.types import Usage
from recreate.cli.fold import CONTROL
from recreate.cli.terminal import say
from recreate.runs.budget import Ledger
from recreate.viewer.markdown import say_verdict, tell_study


class Screen:
    """Turns a workshop's events into words on stderr. `ledger` may be set later: it tells what is left."""

    def __init__(self) -> None:
        from rich.console import Console

        self.console = Console(stderr=True, highlight=False, emoji=False, markup=False, soft_wrap=True)
        self.ledger: Ledger | None = None
        self.phase, self.done, self.total, self.passed, self.steps = "", 0, 0, 0, 0
        self.started = time.monotonic()
        self.live: Any = None
        if self.console.is_terminal:
            self.live = self.console.status("starting")

    def __enter__(self) -> Screen:
        if self.live:
            self.live.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self.live:
            self.live.stop()

    def line(self, text: str) -> None:
        text = CONTROL.sub(lambda m: repr(m[0])[1:-1], text)
        if self.live:
            self.console.print(text, soft_wrap=True)
        else:
            say(text)

    def left(self) -> str:
        """What was spent, and of what cap."""
        spent = self.ledger.spent if self.ledger else Usage()
        text = f"{spent.calls} calls, {spent.tokens_in + spent.tokens_out:,} tokens, ${spent.usd:.3f}"
        minutes = self.ledger.minutes if self.ledger else (time.monotonic() - self.started) / 60
        cap = f" of {self.ledger.budget}" if self.ledger and str(self.ledger.budget) != "no cap" else ""
        return f"{text}, {minutes:.1f} min{cap}"

    def refresh(self) -> None:
        if self.live:
            self.live.update(
                f"{self.phase} {self.done}/{self.total}, {self.passed} passed, {self.steps} steps | {self.left()}"
            )

    def __call__(self, event: str, facts: dict[str, Any]) -> None:
        match event:
            case "gather":
                self.phase, self.total, self.done, self.passed = facts["phase"], facts["total"], 0, 0
            case "step":
                self.steps += 1
            case "score":
                score = facts["score"]
                self.done += 1
                self.passed += score.passed
                if score.score is not None and not score.reused:
                    mark = "passed" if score.passed else "failed"
                    self.line(
                        f"  {self.phase} {self.done}/{self.total}  {mark}  {score.task} "
                        f"({score.ending}, {score.usage.calls} calls)   {self.left()}"
                    )
            case "aside":
                self.line(f"  set aside: {facts['task']}: {facts['fault']}")
            case "seed":
                session = facts["shop"]
                self.line(
                    f"run folder {short(session.folder)}; seed {facts['scaffold'].digest}, model {session.model.name}, "
                    f"sandbox {session.backend.name}"
                )
            case "indexing":
                done, total = facts["done"], facts["total"]
                if total >= 20 and (done == total or done % max(1, total // 4) == 0):
                    self.line(f"indexing memory for search: {done} of {total}")
            case "study":
                self.line("  " + tell_study(facts["study"]))
            case "build":
                self.line(f"{facts['train']} train tasks, {facts['validation']} validation tasks")
            case "round":
                self.line(f"round {facts['round']} of {facts['rounds']}: attempting train tasks")
            case "observe":
                self.line(f"the policy {facts['policy']} learns from {facts['experiences']} experiences")
            case "rerun":
                told = f"with {', '.join(facts['lessons'])}" if facts["lessons"] else "without"
                score = "set aside" if facts["score"] is None else f"{facts['score']:g}"
                self.line(f"  re-run of {facts['task']} {told}: {score}   {self.left()}")
            case "learned":
                change = facts["change"]
                self.line(f"  {change.lesson} {change.kind}{': ' * bool(change.why)}{change.why}")
            case "propose":
                self.line(
                    f"the optimizer studies {facts['experiences']} experiences ({facts['failures']} of them failed)"
                )
            case "candidate":
                self.line("a candidate is judged on validation:")
                for edit in facts["edits"]:
                    self.line(f"  {edit.path}: {edit.reason or repr(edit.new[:80])}")
            case "revision":
                revision = facts["revision"]
                self.line(f"{'KEPT' if revision.kept else 'dropped'}: {say_verdict(revision.verdict)}")
                if revision.review:
                    self.line(f"  a person {revision.review}")
            case "update":
                keys = ("reward", "kl", "entropy", "clip", "length")
                told = ", ".join(f"{key} {facts[key]:.4g}" for key in keys)
                self.line(f"step {facts['step']}: {told}   {self.left()}")
            case "nothing":
                self.line(f"nothing to judge this round: {facts['reason']}")
            case "review" | "reviewed":
                if self.live:  # a line that moves would be in the way of whoever types
                    (self.live.stop if event == "review" else self.live.start)()
                return
            case _:
                self.line(str(facts.get("text", event)))
        self.refresh()
