"""What was held out stays invisible to an optimizer and to a working agent, whichever way it came
in."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from recreate.api.errors import BadInput
from recreate.memory import held_out
from recreate.memory.held_out import Held, HeldOut
from recreate.memory.store import ExperienceStore
from tests.memory.test_store import experience, task

SECRET = "the zebra crossing is repainted every leap year"


def seen(memory: ExperienceStore, reader: str = "optimizer") -> set[str]:
    """Every experience a reader can get at, by any door."""
    found = {h.experience for h in memory.recall(SECRET, 50, reader=reader)}
    assert found == {h.experience for h in memory.search("zebra", reader=reader)}
    assert found == {e.id for e in memory.experiences(reader=reader)}
    assert found == {row["id"] for row in memory.facts(reader=reader)}
    assert found == {id for id in ("open", "held") if memory.get(id, reader) is not None}
    return found


@pytest.fixture
def memory(tmp_path: Path) -> ExperienceStore:
    return ExperienceStore(tmp_path, "hashed")


@pytest.mark.parametrize("reader", ["optimizer", "agent"])
def test_validation_and_test_are_not_recalled(memory: ExperienceStore, reader: str) -> None:
    memory.add(
        [experience("open", prompt=SECRET), experience("held", prompt=SECRET, split="validation")]
    )
    assert seen(memory, "human") == {"open", "held"}
    assert seen(memory, reader) == {"open"}
    assert memory.recall(SECRET, 8, {"split": "validation"}, reader) == []


def test_a_group_held_out_before_is_not_recalled_though_recorded_as_train(
    memory: ExperienceStore,
) -> None:
    memory.hold_out(
        [
            task("toy:hand:v", "test", group="module-held"),
            task("toy:hand:t", "train", group="module-open"),
        ]
    )
    memory.add([experience("open", prompt=SECRET), experience("held", prompt=SECRET)])
    assert seen(memory) == {"open"}
    assert seen(memory, "human") == {"open", "held"}


def test_a_group_held_out_after_it_was_indexed_disappears_at_once(
    memory: ExperienceStore, tmp_path: Path
) -> None:
    memory.add([experience("open", prompt=SECRET), experience("held", prompt=SECRET)])
    assert seen(memory) == {"open", "held"}
    ExperienceStore(tmp_path).hold_out([task("x", "validation", group="module-held")])
    assert seen(memory) == {"open"}


def test_a_group_that_was_validation_in_another_run_or_domain_is_not_recalled(
    memory: ExperienceStore,
) -> None:
    memory.add([experience("open", prompt=SECRET), experience("held", prompt=SECRET, run="run-1")])
    memory.add(
        [experience("other", group="module-held", domain="import", split="test", run="run-2")]
    )
    assert seen(memory) == {"open"}


def test_a_group_stays_held_out_when_the_run_that_said_so_is_deleted(
    memory: ExperienceStore, tmp_path: Path
) -> None:
    memory.add([experience("open", prompt=SECRET), experience("held", prompt=SECRET)])
    memory.add([experience("v", group="module-held", split="validation", run="run-2")])
    (tmp_path / "memory" / "toy" / "experiences" / "run-2.jsonl").unlink()
    assert seen(memory) == {"open"}


def test_a_held_out_task_is_not_recalled_under_another_group(memory: ExperienceStore) -> None:
    memory.hold_out([task("toy:hand:held", "test", group="g")])
    memory.add(
        [experience("open", prompt=SECRET), experience("held", prompt=SECRET, group="renamed")]
    )
    assert seen(memory) == {"open"}


def test_files_copied_in_from_another_workspace_hold_their_groups_out(
    memory: ExperienceStore, tmp_path: Path
) -> None:
    other = ExperienceStore(tmp_path / "other", "hashed")
    other.add([experience("v", group="module-held", split="validation")])
    memory.add([experience("open", prompt=SECRET), experience("held", prompt=SECRET)])
    (copied,) = (tmp_path / "other").glob("memory/toy/experiences/*.jsonl")
    copied.rename(tmp_path / "memory" / "toy" / "experiences" / "copied.jsonl")
    assert seen(memory) == {"open"}


def test_many_held_out_neighbours_do_not_crowd_out_what_may_be_seen(
    memory: ExperienceStore,
) -> None:
    memory.add([experience(f"held{n}", prompt=SECRET) for n in range(60)])
    memory.add([experience("open", prompt="zebra painting")])
    assert memory.recall(SECRET, 1)[0].experience.startswith("held")
    memory.hold_out([task(f"toy:hand:held{n}", "test") for n in range(60)])
    assert {h.experience for h in memory.recall(SECRET, 5)} == {"open"}


def test_a_lesson_born_of_what_is_held_out_is_as_invisible(
    memory: ExperienceStore, tmp_path: Path
) -> None:
    memory.add([experience("open"), experience("held", split="validation")])
    folder = tmp_path / "memory" / "toy" / "lessons"
    folder.mkdir()
    (folder / "fair.md").write_text("# Zebra one\n\nzebra\n\nborn_of: open\n")
    (folder / "unfair.md").write_text("# Zebra two\n\nzebra\n\nborn_of: open, held\n")
    lesson = {"grain": "lesson"}
    assert {h.id for h in memory.recall("zebra", 9, lesson)} == {"lesson:toy/fair"}
    assert {h.id for h in memory.search("zebra", lesson, "agent")} == {"lesson:toy/fair"}
    assert len(memory.recall("zebra", 9, lesson, "human")) == 2


def test_nothing_held_out_is_embedded_for_an_optimizer(memory: ExperienceStore) -> None:
    memory.add([experience("open"), experience("held", split="test")])
    memory.recall("anything")
    assert memory.stats()["index"]["count"] == 3
    memory.recall("anything", reader="human")
    assert memory.stats()["index"]["count"] == 6


def test_an_unknown_reader_sees_nothing(memory: ExperienceStore) -> None:
    memory.add([experience("open")])
    with pytest.raises(BadInput, match="no reader"):
        memory.recall("x", reader="root")


def test_the_registry_counts_what_it_hides(memory: ExperienceStore) -> None:
    memory.add([experience("open"), experience("held")])
    memory.hold_out([task("toy:hand:held", "test", group="module-held")] * 3)
    assert memory.stats()["held_out"] == {"groups": 1, "tasks": 1, "hidden_train": 1}


def test_a_damaged_registry_stops_recall_and_a_torn_end_does_not(
    memory: ExperienceStore, tmp_path: Path
) -> None:
    memory.hold_out([task("toy:hand:a", "test"), task("toy:hand:b", "test")])
    registry = tmp_path / "memory" / "held_out.jsonl"
    whole = registry.read_bytes()
    registry.write_bytes(whole + whole[:30])
    memory.hold_out([task("toy:hand:c", "test")])
    assert memory.stats()["held_out"]["tasks"] == 3
    data = bytearray(registry.read_bytes())
    data[data.index(b"hand:b")] ^= 1
    registry.write_bytes(data)
    with pytest.raises(BadInput, match="damaged") as e:
        memory.recall("x")
    assert str(registry) in e.value.fix


def test_what_was_test_stays_test_and_what_was_validation_may_become_it(tmp_path: Path) -> None:
    registry = HeldOut(tmp_path)
    registry.add([Held("tested", "a", "test", "toy"), Held("checked", "b", "validation", "toy")])
    registry.add([Held("tested", "a", "validation", "toy"), Held("free", "c", "train", "toy")])
    for known in (registry, HeldOut(tmp_path)):
        assert known.read().groups == {"tested": "test", "checked": "validation"}
        assert known.read().tasks == {"a": "test", "b": "validation"}
    known_before = registry.path.read_bytes()
    registry.add(
        [Held("tested", "a", "validation", "toy"), Held("checked", "b", "validation", "toy")]
    )
    assert registry.path.read_bytes() == known_before
    registry.add([Held("checked", "b", "test", "toy")])
    written = registry.path.read_bytes()
    registry.add(
        [
            Held("checked", "b", "test", "toy"),
            Held("tested", "a", "test", "toy"),
            Held("", "", "test", "toy"),
        ]
    )
    registry.add([])
    assert registry.path.read_bytes() == written
    assert HeldOut(tmp_path).read().groups == {"tested": "test", "checked": "test"}


def test_a_task_belongs_to_the_strictest_split_that_anything_says_of_it(tmp_path: Path) -> None:
    registry = HeldOut(tmp_path)
    registry.add([Held("tested", "a", "test", "toy"), Held("checked", "b", "validation", "toy")])
    said = {
        (id, group, split): registry.split_of(task(id, split, group=group))
        for id, group in (
            ("a", "new"),
            ("x", "tested"),
            ("b", "new"),
            ("x", "checked"),
            ("b", "tested"),
            ("x", "new"),
        )
        for split in ("train", "validation", "test")
    }
    assert {what for what, split in said.items() if split == "train"} == {("x", "new", "train")}
    assert {what for what, split in said.items() if split == "validation"} == {
        *(
            (id, group, split)
            for id, group in (("b", "new"), ("x", "checked"))
            for split in ("train", "validation")
        ),
        ("x", "new", "validation"),
    }


def test_tasks_that_are_held_out_as_another_split_are_told_apart(tmp_path: Path) -> None:
    registry = HeldOut(tmp_path)
    registry.add([Held("checked", "b", "validation", "toy")])
    every = [
        task("a", "train", group="free"),
        task("b", "train", group="x"),
        task("c", "train", group="checked"),
    ]

    class Few:
        name = "few"

        def tasks(self, split: str) -> list[object]:
            return [t for t in every if t.split == split]

    usable, closed = registry.usable(Few(), "train")  # type: ignore[arg-type]
    assert [t.id for t in usable] == ["a"]
    assert [t.id for t in closed] == ["b", "c"]


def test_a_registry_takes_over_what_another_holds(tmp_path: Path) -> None:
    mine, other = HeldOut(tmp_path / "mine"), HeldOut(tmp_path / "other")
    other.add([Held("tested", "a", "test", "toy"), Held("", "b", "validation", "toy")])
    (tmp_path / "mine").mkdir(exist_ok=True)
    mine.take(other)
    assert (
        mine.read()[1:]
        == other.read()[1:]
        == ({"tested": "test"}, {"a": "test", "b": "validation"})
    )


def test_what_is_registered_already_waits_for_no_other_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    registry = HeldOut(tmp_path)
    registry.add([Held("tested", "a", "test", "toy")])

    def locked(folder: Path) -> None:
        raise AssertionError("the lock was asked for")

    monkeypatch.setattr(held_out, "locked", locked)
    registry.add([Held("tested", "a", "test", "toy"), Held("free", "c", "train", "toy")])
    with pytest.raises(AssertionError, match="asked for"):
        registry.add([Held("other", "b", "test", "toy")])


def test_a_registry_that_cannot_be_looked_at_is_said_and_is_not_an_empty_one(
    tmp_path: Path,
) -> None:
    (tmp_path / "memory").write_text("no folder")
    with pytest.raises(BadInput, match="is no folder"):
        HeldOut(tmp_path / "memory").read()
    assert HeldOut(tmp_path / "nothing").read() == ("", {}, {})


def test_a_domain_without_usable_tasks_says_whether_they_are_held_out(tmp_path: Path) -> None:
    class One:
        name = "one"

        def tasks(self, split: str) -> list[object]:
            return [task("a", "train", group="free")] if split == "train" else []

    registry = HeldOut(tmp_path)
    none = registry.refuse_empty(One(), "test")  # type: ignore[arg-type]
    assert (none.code, "has no test tasks" in none.message) == ("no-tasks", True)
    registry.add([Held("free", "z", "test", "toy")])
    closed = registry.refuse_empty(One(), "train")  # type: ignore[arg-type]
    assert (closed.code, "all 1 train tasks of one are held out" in closed.message) == (
        "held-out",
        True,
    )


def test_what_is_held_out_is_on_the_disk_when_it_is_registered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[int] = []
    monkeypatch.setattr(os, "fsync", synced.append)
    HeldOut(tmp_path).add([Held("tested", "a", "test", "toy")])
    assert len(synced) == 1
