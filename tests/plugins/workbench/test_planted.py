"""Planted conventions: what the folder shows suffices to find each kind, and only the matching
source shows it."""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable
from pathlib import Path

import pytest

from recreate.runs.reader import BuildResult
from tests.investigator import LOOKS, Acts, Investigator, rules
from tests.lab import planted
from tests.lab.planted import KINDS, SEED, Source

pytestmark = pytest.mark.slow

END = "echo =-=-="


def shell(*commands: str) -> tuple[str, dict[str, str]]:
    return "shell", {"command": f"\n{END}\n".join(commands)}


def looks(first: str) -> Acts:
    """Look at all that there is, and make a lesson of each sentence that states a rule. It knows
    nothing of where one may hide."""
    said = yield shell("cat attempts/*/*")
    said += yield shell(
        *(f"recall {word} --by words" for word in ("must", "required", "instead", "expected"))
    )
    for attempt in ("01", "02"):
        for flag in ("", "--start"):
            for command in LOOKS:
                said += yield shell(f"inspect {attempt} {flag} -- {shlex.quote(command)}")
    found = list(dict.fromkeys(rules(said)))
    if not found:
        yield shell("finish")
        return
    for number, rule in enumerate(found):
        text = f"# What holds here\n\n{rule}\n"
        yield "edit", {"path": f"agent/memory/rule-{number}.md", "new": text}
    changed = ", ".join(f"memory/rule-{number}.md" for number in range(len(found)))
    for step in range(40):
        causes = f'## It does not know\n- 01 step {step}: "answer.txt"\nChanged: {changed}\n'
        said = yield shell(f"cat > causes.md <<'X'\n{causes}X\nfinish")
        if said.startswith("handed in"):
            return


class Tried:
    """What a build left, and what each command answered."""

    def __init__(self, built: BuildResult, folder: Path) -> None:
        self.built = built
        self.answers: list[tuple[str, str]] = []
        for file in sorted((folder / "studies").glob("*/steps.jsonl")):
            for line in file.read_text().splitlines():
                step = json.loads(line)
                self.answers.append((step["action"], step.get("output", "")))

    @property
    def kept(self) -> bool:
        return any(revision.kept for revision in self.built.revisions)

    def shows(self, rule: str) -> bool:
        """Whether the rule stands in an answer before it was made a lesson."""
        looked = (said for action, said in self.answers if "causes.md" not in action)
        return any(rule in said for said in looked)


Try = Callable[..., Tried]


@pytest.fixture
def grow(workspace: Path) -> Try:
    def go(name: str, without: tuple[Source, ...] = ()) -> Tried:
        model = Investigator([], looks)
        flags = {"memory.embedder": "hashed", "optimizer": "workbench", "study.steps": 100}
        built = planted.grow(name, workspace, model, without, **flags)
        return Tried(built, workspace / "runs" / name)

    return go


@pytest.mark.parametrize("name", KINDS)
def test_a_planted_convention_is_found_and_kept(grow: Try, name: str) -> None:
    tried = grow(name)
    assert tried.shows(KINDS[name].rule)
    assert tried.kept
    assert (tried.built.verdict.before, tried.built.verdict.after) == (0.0, 1.0)
    assert any(KINDS[name].rule in lesson.body for lesson in tried.built.scaffold.lessons)


@pytest.mark.parametrize("name", KINDS)
def test_with_its_source_switched_off_a_convention_is_nowhere_to_be_seen(
    grow: Try, name: str
) -> None:
    tried = grow(name, without=(KINDS[name].source,))
    assert not tried.shows(KINDS[name].rule)
    assert tried.built.scaffold.digest == SEED.digest
