"""Planted conventions: the optimizer's tools suffice to find each kind, and only the matching
source shows it.

One policy looks with whatever tools it is offered and knows no kind (tests/investigator.py,
`looks`); what it finds goes the whole way: a lesson, the checks, the gate on held-out tasks, a kept
revision.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from recreate.runs.reader import BuildResult
from tests.investigator import Investigator, looks, takes_all
from tests.lab import planted
from tests.lab.planted import KINDS, SEED, SOURCES, Source, of

SHOWS: dict[str, set[str]] = {
    "trajectory": {"index", "steps", "search", "contrast"},
    "environment": {"run"},
    "evidence": {"evidence", "search"},
}
"""The tools that may show what a source holds; what `search` shows of the grader's words,
`evidence` switches off."""


class Tried:
    """What a build left: its result, what the optimizer was told at first, and what each tool
    answered."""

    def __init__(self, built: BuildResult, folder: Path, model: Investigator) -> None:
        self.built = built
        self.prompts = [
            p[1]["content"] for p in model.prompts if "Make the update." not in p[1]["content"]
        ]
        self.params = model.params
        self.answers: list[tuple[str, str]] = []
        for file in sorted((folder / "studies").glob("*/steps.jsonl")):
            for line in file.read_text().splitlines():
                step = json.loads(line)
                self.answers.append((step["action"], step.get("output", "")))

    @property
    def kept(self) -> bool:
        return any(revision.kept for revision in self.built.revisions)

    def shown_by(self, rule: str) -> set[str]:
        """The tools in whose answers the rule stands, before it was made a lesson; '' is the first
        message."""
        looked = [(a, o) for a, o in self.answers if not a.startswith(("lesson", "finish", "idea"))]
        found = {action.split(" ")[0] for action, output in looked if rule in output}
        return found | ({""} if any(rule in p for p in self.prompts) else set())


Try = Callable[..., Tried]


@pytest.fixture
def grow(workspace: Path) -> Try:
    """A build on the domain of a kind, its optimizer looking with whatever it has."""

    def go(name: str, *, without: tuple[Source, ...] = (), native: bool = False) -> Tried:
        model = Investigator([], looks, takes_all, native=native, aware=True)
        built = planted.grow(name, workspace, model, without, **{"memory.embedder": "hashed"})
        return Tried(built, workspace / "runs" / name, model)

    return go


@pytest.mark.slow
@pytest.mark.parametrize("name", KINDS)
def test_a_planted_convention_is_found_and_kept(grow: Try, name: str) -> None:
    tried = grow(name)
    assert tried.kept
    assert (tried.built.verdict.before, tried.built.verdict.after) == (0.0, 1.0)
    assert any(KINDS[name].rule in lesson.body for lesson in tried.built.scaffold.lessons)
    shown = tried.shown_by(KINDS[name].rule)
    assert shown, "no tool showed it"
    assert shown <= SHOWS[KINDS[name].source]


@pytest.mark.slow
@pytest.mark.parametrize("name", KINDS)
def test_with_its_source_switched_off_a_convention_is_nowhere_to_be_seen(
    grow: Try, name: str
) -> None:
    tried = grow(name, without=(KINDS[name].source,))
    assert tried.shown_by(KINDS[name].rule) == set()
    assert tried.built.revisions == ()
    assert tried.built.scaffold.digest == SEED.digest


@pytest.mark.slow
@pytest.mark.parametrize(
    ("off", "name"),
    [
        (off, of(source)[at])
        for at, off in enumerate(SOURCES)
        for source in SOURCES
        if source != off
    ],
)
def test_with_another_source_switched_off_it_is_still_found(
    grow: Try, off: Source, name: str
) -> None:
    assert grow(name, without=(off,)).kept


@pytest.mark.slow
def test_native_tool_calls_find_it_too(grow: Try) -> None:
    tried = grow("left-behind", native=True)
    assert tried.kept
    assert "tools" in tried.params[0]
    seen = [action for action, output in tried.answers if KINDS["left-behind"].rule in output]
    assert not any('"where": "start"' in action for action in seen), (
        "it was there before the agent came"
    )
