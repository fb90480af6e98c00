"""demo: a recorded build, replayed and graded here, told in a few lines."""

from __future__ import annotations

import time
import webbrowser
from pathlib import Path
from typing import Annotated

import typer

from recreate.api.errors import Interrupted
from recreate.api.shapes import JsonDict
from recreate.cli.options import Json
from recreate.cli.terminal import answer, say

YOURS = (
    "recreate tasks make swe --repo PATH             # tasks made of your own repository",
    (
        "recreate build --domain swe --budget 30min      # an agent for them, on this machine,"
        " without a key"
    ),
)


def demo(
    browser: Annotated[
        bool, typer.Option("--browser/--no-browser", help="Open the page at the end.")
    ] = True,
    jobs: Annotated[int, typer.Option("--jobs", help="Attempts at once.", min=1, max=256)] = 2,
    as_json: Json = False,
) -> None:
    """Watch an agent being created from experience, in under a minute: no key, no network, nothing
    to pay.

    A build that was recorded with real models is played back; its commands, grades and verdict are
    made here.

    Example: recreate demo
    """
    from recreate.plugins.demo import demo as recorded
    from recreate.viewer import facts, html

    begun = time.monotonic()
    tell = _Teller()
    made = recorded.read_tape()
    agent = made.models["agent"].name.removeprefix("local:")
    say(
        f"A build that was recorded with {agent} as the agent, and a stronger model as the"
        " optimizer."
    )
    say(
        "What the models said is played back; commands, grades and the verdict are made now, on"
        " this machine.\n"
    )
    try:
        built = recorded.replay(jobs=jobs, say=tell)
    except Interrupted as e:
        e.fix = "recreate demo begins anew: nothing was paid for"
        raise
    seconds = round(time.monotonic() - begun, 1)
    page = built.run / html.FILE
    record = {
        "run": str(built.run),
        "scaffold": {"path": str(built.path), "digest": built.scaffold.digest},
        "validation": built.record["validation"],
        "seconds": seconds,
        "calls": built.record["spend"]["calls"],
        "network": False,
    }
    answer(
        as_json,
        record,
        f"\n{facts.verdict_text(built.verdict)}",
        f"{built.record['provenance']}; again: recreate demo",
        f"{seconds:g} seconds, {record['calls']} calls replayed, $0 paid. The agent: {built.path}",
        f"What happened, attempt by attempt: {page}",
        "\nWith your own:",
        *(f"  {line}" for line in YOURS),
    )
    if browser and not as_json and not _open_page(page):
        say(f"no browser opened; look at {page}")


def _open_page(page: Path) -> bool:
    try:
        return webbrowser.open(page.as_uri())
    except webbrowser.Error:
        return False


class _Teller:
    """A few lines on what happens, and why."""

    def __init__(self) -> None:
        self.scores: list[float] = []
        self.total = 0
        self.begun = False
        self.round = 0

    def __call__(self, event: str, facts: JsonDict) -> None:
        match event:
            case "gather":
                self.scores = []
                self.total = facts["total"]
            case "score" if facts["score"].score is not None and not facts["score"].reused:
                self.scores.append(facts["score"].score)
                if len(self.scores) == self.total:
                    self.gathered(facts["phase"], sum(self.scores) / self.total)
            case "propose":
                self.round += 1
                many = f"{facts['experiences']} attempts and what the grader said of them."
                if self.round == 1:
                    say(f"3. The optimizer reads these {many}")
                else:
                    say(
                        f"\nRound {self.round}. The optimizer reads {many[:-1]}, of the agent as it"
                        " is now."
                    )
            case "candidate":
                self.step(4, "It proposes:")
                for edit in facts["edits"]:
                    cited = len({e.experience for e in edit.evidence})
                    say(
                        f"     {edit.path}, from {cited} attempt{'s' * (cited != 1)}:"
                        f" {_first(edit.new)}"
                    )
            case "revision":
                kept = "kept" if facts["revision"].kept else "dropped"
                verdict = facts["revision"].verdict
                clear = f"in an order that is drawn; after {verdict.tasks} it is clear"
                scores = f"Score {verdict.after:.2f}, and {verdict.before:.2f} before"
                self.step(5, f"It attempts the same tasks, {clear}. {scores}.")
                self.step(6, f"The gate compares the same tasks before and after: {kept}.")

    def gathered(self, phase: str, mean: float) -> None:
        if phase == "train":
            if not self.round:
                say(f"2. It attempts {self.total} train tasks, to learn from. Score {mean:.2f}.")
        elif not self.begun:
            self.begun = True
            say(
                f"1. The seed agent attempts {self.total} tasks that nothing is learned from. Score"
                f" {mean:.2f}."
            )

    def step(self, number: int, text: str) -> None:
        """What happens in each round; its steps are numbered in the first."""
        say(f"{number}. {text}" if self.round == 1 else f"   {text}")


def _first(text: str) -> str:
    """The advice of a lesson, or the beginning of a text, in one line."""
    lines = [
        line for line in text.splitlines() if line.strip() and not line.startswith(("#", "born_of"))
    ]
    text = " ".join(" ".join(lines).split())
    return text if len(text) <= 240 else text[:240].rpartition(" ")[0] + " ..."
