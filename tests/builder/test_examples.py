"""An edit may add a worked example of one of our own attempts at a train task, and of nothing
else."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

import recreate
from recreate.agents.scaffold import Scaffold
from recreate.api.types import Edit, Evidence, Experience
from recreate.memory.store import ExperienceStore
from recreate.optimizers.context import OptimizerContext
from tests.toy import Toy, write_script

FLAGS: dict[str, Any] = {
    "rounds": 1,
    "sandbox": "none",
    "memory__embedder": "hashed",
    "memory__policy": "none",
    "models__retries": 0,
}
Wanted = Callable[[Sequence[Experience]], Mapping[str, Edit]]


def example(of: Experience, text: str, born_of: str = "", path: str = "one") -> Edit:
    cited = Evidence(experience=of.id, step=0)
    new = f"# One\n\n{text}\n\n{born_of or f'born_of: {of.id}'}\n"
    return Edit(path=f"examples/{path}.md", new=new, evidence=(cited,))


def validated(workspace: Path, wanted: Wanted, **flags: Any) -> tuple[dict[str, list[str]], Any]:
    """Return what is said of each of these edits, and the build in which all of them were
    proposed."""
    said = dict[str, list[str]]()

    class Wants:
        def __init__(self, context: OptimizerContext) -> None:
            self.context = context

        def propose(self, scaffold: Scaffold, batch: Sequence[Experience]) -> list[Edit]:
            edits = wanted(sorted(batch, key=lambda e: e.task))
            said.update({name: self.context.validate(scaffold, [e]) for name, e in edits.items()})
            return list(edits.values())

    model = write_script(workspace / "script.jsonl")
    made = recreate.build(Toy(), model=model, optimizer=Wants, **{**FLAGS, **flags})
    return said, made


def test_an_example_names_its_own_train_task_and_no_other(workspace: Path) -> None:
    def wanted(batch: Sequence[Experience]) -> dict[str, Edit]:
        first, second = batch[:2]
        ours = f"Task: {first.prompt} ({first.task}, {first.group})\n\nAnswer: w0!"
        return {
            "own": example(first, ours),
            "of another": example(second, ours, path="two"),
            "with another": example(first, f"{ours}\n{second.task}", path="three"),
            "of a held-out one": example(first, f"{ours}\nSee toy:validation:3.", path="four"),
            "a lesson": example(first, ours).model_copy(update={"path": "memory/one.md"}),
        }

    said, made = validated(workspace, wanted, train=2, batch=2)
    assert said.pop("own") == []
    assert all(said.values()), said
    (revision,) = made.revisions
    assert [edit.path for edit in revision.edits] == ["examples/one.md"]


def test_an_example_ends_with_the_one_attempt_of_ours_that_it_is_of(workspace: Path) -> None:
    def wanted(batch: Sequence[Experience]) -> dict[str, Edit]:
        first, second = batch[:2]
        marks = {
            "none": "It is good.",
            "nobody's": "born_of: 0123456789abcdef",
            "two": f"born_of: {first.id}, {second.id}",
            "empty": "born_of:",
        }
        return {name: example(first, "Task: a word", mark) for name, mark in marks.items()}

    said, made = validated(workspace, wanted, train=2, batch=2)
    for faults in said.values():
        assert faults == [
            "examples/one.md: a worked example ends with `born_of: EXPERIENCE`, an attempt of ours"
            " at a train task, and this one does not"
        ]
    assert made.revisions == ()


@pytest.mark.parametrize(
    "change",
    [
        {"trust": "imported"},
        {"trust": "foreign"},
        {"task": "toy:validation:1", "group": "validation-1"},  # of a time when it was for training
        {"task": "toy:test:1", "group": "test-1"},
        {"task": "toy:train:99", "group": "train-99"},
        {"group": "validation-1"},
    ],
)
def test_no_example_is_of_what_was_imported_or_is_held_out_by_now(
    workspace: Path, change: dict[str, Any]
) -> None:
    lent: list[Experience] = []

    def keep(batch: Sequence[Experience]) -> dict[str, Edit]:
        old = {**change, "id": "feedfacefeedface", "split": "train"}
        lent.append(batch[0].model_copy(update=old))
        ExperienceStore(workspace).add(lent)
        return {"it": example(batch[0], "Task: a word", f"born_of: {lent[0].id}")}

    said, made = validated(workspace, keep, train=2, batch=2)
    assert said["it"]
    assert made.revisions == ()
