"""What was held out stays invisible to an optimizer and to a working agent, whichever way it came
in."""

from __future__ import annotations

import base64
import codecs
import json
import os
import random
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from recreate.agents.guards.leaks import HELD, Scanner, asked_words, read_task
from recreate.api.errors import BadInput
from recreate.api.types import Experience, Task, Trace
from recreate.memory import held_out, store
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


def write_lessons(root: Path, texts: Sequence[str]) -> None:
    folder = root / "memory" / "toy" / "lessons"
    folder.mkdir(parents=True, exist_ok=True)
    for n, text in enumerate(texts):
        (folder / f"l{n}.md").write_text(f"+++\n+++\n# Lesson {n}\n\n{text}\n")


def lessons_for_agents(memory: ExperienceStore) -> set[str]:
    """The lessons that a working agent is told of."""
    hits = memory.recall("lesson", 99, {"grain": "lesson"}, "agent", "keywords")
    return {hit.id.rpartition("/")[2] for hit in hits}


def test_a_lesson_that_speaks_of_a_held_out_task_is_shown_to_no_working_agent(
    memory: ExperienceStore, tmp_path: Path
) -> None:
    memory.add([experience("a"), *(asking(f"h{n}", f"mend the zorp_{n} of it") for n in range(3))])
    write_lessons(tmp_path, ["Mind zorp_1.", "Mind the zorp 2", "Mind what you were asked."])
    assert lessons_for_agents(memory) == {"l2"}
    assert lessons_for_agents(ExperienceStore(tmp_path, "hashed")) == {"l2"}
    memory.add([asking("h9", "mind what you were asked and you will not be asked again")])
    write_lessons(tmp_path, ["Mind zorp_1.", "", "Mind what you were asked and you will not be."])
    assert lessons_for_agents(memory) == {"l1"}
    write_lessons(tmp_path, ["Mind them.", "toy:hand:h9", "Mind what is there."])
    assert lessons_for_agents(memory) == {"l0", "l2"}


def test_what_held_out_tasks_say_is_read_once_and_not_by_each_process(
    memory: ExperienceStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read = list[str]()

    def read_attempt(e: Experience, task: Task) -> held_out.Attempted:
        read.append(e.id)
        return held_out.read_attempt(e, task)

    monkeypatch.setattr(store, "read_attempt", read_attempt)
    memory.add([experience("a"), asking("h1", "mend the zorp_1 of it")])
    write_lessons(tmp_path, ["Mind zorp_1.", "Mind zorp_2."])
    assert lessons_for_agents(memory) == {"l1"}
    assert sorted(read) == ["a", "h1"]
    for more in ("Mind them.", "Mind it."):
        write_lessons(tmp_path, ["Mind zorp_1.", "Mind zorp_2.", more])
        assert lessons_for_agents(ExperienceStore(tmp_path, "hashed")) == {"l1", "l2"}
    memory.add([asking("h2", "mend the zorp_2 of it")])
    assert lessons_for_agents(memory) == {"l2"}
    assert sorted(read) == ["a", "h1", "h2"]
    monkeypatch.setattr(held_out, "edition", lambda: "of other rules")
    monkeypatch.setattr(store, "edition", lambda: "of other rules")
    assert lessons_for_agents(ExperienceStore(tmp_path, "hashed")) == {"l2"}
    assert sorted(read) == ["a", "a", "h1", "h1", "h2", "h2"]
    ExperienceStore(tmp_path, "hashed").rebuild()
    assert lessons_for_agents(ExperienceStore(tmp_path, "hashed")) == {"l2"}


def asking(id: str, prompt: str, split: str = "test", **given: Any) -> Experience:
    return experience(id, split=split, prompt=prompt, **given)


STRANGE = (
    "Straße naïve 日本 src/a_b/c.py t.py::test_one np.argsort 42000 3.14 don't (f) e-mail x1y2"
)


def random_world(r: random.Random) -> tuple[list[Experience], list[str]]:
    """Attempts at tasks that share words, names and answers, and lessons made of pieces of them."""
    parts = ["".join(r.choices(["ba", "lo", "mi", "zu"], k=r.randint(1, 3))) for _ in range(30)]

    def word() -> str:
        one, two = r.choices(parts, k=2)
        return r.choice([one, one, one, f"{one}_{two}", one + two.title(), *STRANGE.split()[:2]])

    def text(most: int) -> str:
        return " ".join(
            r.choice([word(), word(), r.choice(STRANGE.split())]) for _ in range(r.randint(1, most))
        )

    attempts = [
        asking(
            f"e{n}",
            text(25),
            r.choice(["train", "test"]),
            task=f"toy:{r.choice(['hand', word()])}:{word()}{n}",
            group=r.choice([f"g{n}", word()]),
            passed=r.random() < 0.6,
            trace=Trace(
                attempt=f"e{n}", task="", scaffold="5ca11ab1e", model="m", answer=text(12), steps=()
            ),
        )
        for n in range(r.choice([3, 12, 40]))
    ]
    said = [t for e in attempts for t in (e.prompt, e.trace.answer, e.task, e.group)]
    ways: list[Callable[[str], str]] = [
        str,
        str.upper,
        "`{}`".format,
        lambda t: t.replace("_", " "),
        lambda t: codecs.encode(t, "rot13"),
        lambda t: t[::-1],
        lambda t: base64.b64encode(t.encode()).decode(),
    ]

    def piece() -> str:
        words = r.choice(said).split()
        at = r.randrange(len(words))
        return r.choice(ways)(" ".join(words[at : at + r.choice([1, 2, 9])]))

    return attempts, [f"{piece()} {text(6)} {piece()}" for _ in range(8)]


@pytest.mark.parametrize("seed", range(12))
def test_of_any_texts_the_notes_find_what_the_tasks_themselves_do(
    tmp_path: Path, seed: int
) -> None:
    attempts, texts = random_world(random.Random(seed))
    memory = ExperienceStore(tmp_path, "hashed")
    memory.add(attempts)
    held = {e.task for e in attempts if e.split == "test"}
    tasks = [
        Task(
            id=e.task,
            domain="toy",
            prompt=e.prompt,
            split="test" if e.task in held else "train",
            group=e.group,
        )
        for e in attempts
    ]
    known = [
        held_out.Attempted(task, json.dumps(read_task(task, [answer]), default=list), "")
        for task, e in zip(tasks, attempts, strict=True)
        for answer in [e.trace.answer if e.grade.passed else ""]
    ]
    hidden = {e.task: [e.trace.answer] for e in attempts if e.grade.passed}
    whole = Scanner(tasks, hidden)
    noted = Scanner(tasks, says={a.task.id: a.says for a in known}, asked=asked_words(texts))
    assert [noted.says(text) for text in texts] == [whole.says(text) for text in texts]
    found = held_out.Spoken([], known).find({text: (text, "toy") for text in texts})
    says_so = {text for text in texts if any(HELD in why for why in whole.says(text))}
    assert says_so <= {text for text, speaks in found.items() if speaks}
