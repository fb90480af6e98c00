"""What is held out, by the commands."""

from __future__ import annotations

from pathlib import Path

import pytest

from recreate.api.types import Experience, Step
from recreate.memory.store import ExperienceStore
from tests.memory import test_held_out
from tests.memory.test_held_out import SECRET, seen
from tests.memory.test_store import experience, task

memory = test_held_out.memory


def test_a_lesson_stays_closed_when_the_held_out_attempt_that_it_cites_is_deleted(
    memory: ExperienceStore, tmp_path: Path
) -> None:
    from recreate.plugins.memory_tools.prune import prune

    memory.add([experience("open"), experience("held", run="run-2")])
    folder = tmp_path / "memory" / "toy" / "lessons"
    folder.mkdir()
    head = (
        '+++\nborn_of = ["held"]\nsupports = ["held", "open"]\ngroups = ["module-held",'
        ' "module-open"]\n+++\n'
    )
    (folder / "unfair.md").write_text(f"{head}# Zebra\n\nzebra\n")
    assert {h.id for h in memory.search("zebra", None, "agent")} == {"lesson:toy/unfair"}
    memory.hold_out([task("x", "validation", group="module-held")])
    prune(memory, runs=["run-2"])
    assert memory.get("held") is None
    assert (
        memory.search("zebra", None, "agent")
        == memory.recall("zebra", 9, {"grain": "lesson"})
        == []
    )


@pytest.mark.parametrize("groups", ["", 'groups = ["module-held", "module-open"]\n'])
def test_forgetting_a_held_out_attempt_opens_no_lesson_that_cites_it(
    memory: ExperienceStore, tmp_path: Path, groups: str
) -> None:
    from recreate.plugins.memory_tools.forget import forget

    memory.add([experience("open"), experience("held")])
    memory.hold_out([task("x", "validation", group="module-held")])
    folder = tmp_path / "memory" / "toy" / "lessons"
    folder.mkdir()
    head = f'+++\nborn_of = ["held"]\nsupports = ["held", "open"]\n{groups}+++\n'
    (folder / "unfair.md").write_text(f"{head}# Zebra\n\nzebra\n")
    forget(memory, ["held"])
    assert (folder / "unfair.md").is_file()
    assert (
        memory.search("zebra", None, "agent")
        == memory.recall("zebra", 9, {"grain": "lesson"})
        == []
    )
    assert len(memory.search("zebra")) == 1


def test_an_attempt_that_was_told_of_what_is_held_out_by_now_is_closed_too(
    memory: ExperienceStore, tmp_path: Path
) -> None:
    from recreate.plugins.memory_tools.archive import pack, unpack
    from recreate.plugins.memory_tools.forget import forget

    def told(id: str, *others: str) -> Experience:
        steps = (
            Step(step=0, observation=SECRET, action="recall zebra", output=SECRET, recalled=others),
        )
        return experience(id, prompt=SECRET, steps=steps)

    memory.add([experience("held", prompt=SECRET), told("first", "held"), told("second", "first")])
    memory.add([told("open", "lesson:toy/first")])
    assert {e.id for e in memory.experiences(reader="agent")} == {"held", "first", "second", "open"}
    memory.hold_out([task("x", "validation", group="module-held")])
    assert seen(memory) == {"open"}
    assert seen(memory, "agent") == {"open"}
    assert memory.stats()["held_out"]["hidden_train"] == 3
    assert {e.id for e in memory.experiences() if memory.is_closed(e)} == {
        "held",
        "first",
        "second",
    }
    forget(memory, ["held"])
    assert {e.id for e in memory.experiences(reader="agent")} == {"open"}
    pack(memory, tmp_path / "toy.zip", "toy")
    other = ExperienceStore(tmp_path / "other", "hashed")
    unpack(other, tmp_path / "toy.zip")
    assert {e.id for e in other.experiences(reader="agent")} == {"open"}
    assert {e.id for e in other.experiences()} == {"first", "second", "open"}
