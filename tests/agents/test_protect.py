"""What agent.toml protects stays as it is, whatever an optimizer tries."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar

import pytest

from recreate.agents.lint import check
from recreate.agents.scaffold import BadEdit, Scaffold, apply, load
from recreate.api.paths import shipped
from recreate.api.types import Edit, Evidence, Experience
from recreate.builder.loop import build
from recreate.optimizers.context import OptimizerContext
from recreate.optimizers.reflect import Reflect, editable, places, study_schema
from recreate.runs import settings
from recreate.runs.reader import Run
from recreate.runs.session import open_session
from tests.toy import LESSON, write_script

SEED = load(shipped("scaffolds") / "seed")
TOOL = '"""Looks."""\n'


def guarded(*patterns: str, **files: str) -> Scaffold:
    toml = f"protect = {json.dumps(patterns)}\n" + SEED.files["agent.toml"]
    return Scaffold(
        name="seed", files={**SEED.files, "tools/look.py": TOOL, "agent.toml": toml, **files}
    )


def cited(path: str, old: str = "", new: str = "") -> Edit:
    return Edit(path=path, old=old, new=new, evidence=(Evidence(experience="e", step=0),))


@pytest.mark.parametrize(
    ("pattern", "path"),
    [
        ("system.md", "system.md"),
        ("./system.md", "system.md"),
        ("/system.md", "system.md"),
        ("**/system.md", "system.md"),
        ("*.md", "workflow.md"),
        ("*.md", "memory/new.md"),
        ("tools/*", "tools/look.py"),
        ("tools/*", "tools/new.py"),
        ("tools/", "tools/new.py"),
        ("tools", "tools/look.py"),
        ("tools/**", "tools/look.py"),
        ("tools/l*.py", "tools/look.py"),
        ("observation.md", "observation.md"),
        ("*", "memory/new.md"),
    ],
)
def test_an_edit_of_a_protected_file_is_refused_however_the_pattern_is_spelled(
    pattern: str, path: str
) -> None:
    agent = guarded(pattern)
    with pytest.raises(BadEdit, match=r"edit 1 \(.*\): is protected by agent.toml"):
        apply(agent, [cited(path, new="\nmore")])
    if path in agent.files:
        with pytest.raises(BadEdit, match="is protected"):
            apply(agent, [cited(path, old=agent.files[path])])


def test_what_no_pattern_names_can_be_edited() -> None:
    agent = guarded("system.md", "tools/look.py", "")
    for path in ("workflow.md", "tools/other.py", "memory/new.md"):
        assert apply(agent, [cited(path, new="\nmore")]).files[path].endswith("more")


@pytest.mark.parametrize(
    "path",
    ["./system.md", "tools/../system.md", "SYSTEM.md", "system.md/", "/system.md", "system.md "],
)
def test_a_protected_file_has_no_second_name(path: str) -> None:
    with pytest.raises(BadEdit):
        apply(guarded("system.md"), [cited(path, new="x")])


def test_protection_cannot_be_taken_away_nor_a_protected_tool_hidden_behind_another() -> None:
    agent = guarded("tools/look.py", "system.md")
    toml = agent.files["agent.toml"]
    for edit in (
        cited("agent.toml", '"system.md"', '"format.md"'),
        cited("agent.toml", 'protect = ["tools/look.py", "system.md"]\n', ""),
        cited("agent.toml", toml, "samples = 2\n"),
    ):
        with pytest.raises(BadEdit, match="takes protection away"):
            apply(agent, [edit, cited("system.md", new="x")])
    # more is welcome
    apply(agent, [cited("agent.toml", "protect = [", 'protect = ["format.md", ')])
    appended = apply(agent, [cited("agent.toml", new="\n[x]\nprotect = []\n")])
    assert check(appended)
    with pytest.raises(BadEdit, match="is protected"):
        apply(
            agent, [cited("agent.toml", "protect", "protect protect"), cited("system.md", new="x")]
        )
    # `tools/look` would come before `tools/look.py`: check refuses both of one name
    assert [
        f.message for f in check(apply(agent, [cited("tools/look", new="#!/bin/sh\n# Looks.\n")]))
    ] == ["has the same name as tools/look"]


def test_the_optimizer_is_not_offered_what_is_protected() -> None:
    agent = guarded("system.md", "tools/")
    assert "system.md" not in editable(agent)
    assert "tools/look.py" not in editable(agent)
    offered = study_schema(agent, ["e"])["properties"]["edits"]["items"]["properties"]["file"][
        "enum"
    ]
    assert offered == places(agent)
    assert "new lesson" in offered
    assert "new tool" not in offered


def test_where_everything_is_protected_no_model_is_asked() -> None:
    notes: list[str] = []

    def ask(*_: Any, **__: Any) -> Any:
        raise AssertionError("asked")

    context = OptimizerContext(
        ask=ask, recall=lambda *_: [], get=lambda _: None, validate=lambda *_: [], note=notes.append
    )
    assert Reflect(context).propose(guarded("*"), []) == []
    assert "protects every file" in notes[0]


class Stubborn:
    """An optimizer that wants one thing, in every way it can think of: a protected file changed."""

    told: ClassVar[list[str]] = []

    def __init__(self, context: OptimizerContext) -> None:
        self.context = context

    def propose(self, scaffold: Scaffold, experiences: Sequence[Experience]) -> Sequence[Edit]:
        seen = (Evidence(experience=experiences[0].id, step=0),)
        wanted = [
            Edit(path="system.md", new=LESSON, evidence=seen),
            Edit(path="system.md", new=LESSON, origin="human"),
            Edit(path="./system.md", new=LESSON, evidence=seen),
            Edit(path="agent.toml", old='protect = ["system.md"]\n', evidence=seen),
        ]
        Stubborn.told = [self.context.validate(scaffold, [edit])[0] for edit in wanted]
        return wanted


def test_a_build_goes_on_with_the_parent_intact_when_an_optimizer_insists(workspace: Path) -> None:
    model = write_script(workspace / "script.jsonl")
    values = {
        "domain": "tests.toy:Toy",
        "model": model,
        "optimizer": "tests.agents.test_protect:Stubborn",
        "rounds": 2,
    }
    values |= {"train": 4, "validation": 6, "sandbox": "none", "memory.embedder": "hashed"}
    session = open_session(settings.load(workspace, values, {}), workspace, workspace / "runs/a")
    toml = 'protect = ["system.md"]\n' + SEED.files["agent.toml"]
    seed = Scaffold(name="seed", files={**SEED.files, "agent.toml": toml})
    try:
        built = build(session, seed)
    finally:
        session.close()
    assert (built.status, built.revisions) == ("done", ())
    assert built.scaffold.files == seed.files
    assert [t.split(": ")[-1].partition("; ")[0] for t in Stubborn.told] == [
        "is protected by agent.toml",
        "cites nothing",
        "is not a file that a scaffold has",
        "takes protection away from files",
    ]
    nothing = list(Run(workspace / "runs/a").records("nothing"))
    assert len(nothing) == 2
    assert "edit 1 (system.md): is protected by agent.toml" in nothing[0]["reason"]
