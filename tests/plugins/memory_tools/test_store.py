"""What the commands say of the memory's files."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from recreate.memory.store import ExperienceStore
from tests.memory.test_store import experience, files, task


def test_what_is_no_file_among_experiences_hides_none_of_the_others(tmp_path: Path) -> None:
    from recreate.plugins.memory_tools.forget import forget

    memory = ExperienceStore(tmp_path, "hashed")
    memory.add([experience("a"), experience("b", split="validation", group="held")])
    folder = files(tmp_path)[0].parent
    (folder / "0-link.jsonl").symlink_to(tmp_path / "nowhere")
    (folder / "1-folder.jsonl").mkdir()
    os.mkfifo(folder / "2-pipe.jsonl")
    for reader in (memory, ExperienceStore(tmp_path, "hashed")):
        assert [e.id for e in reader.experiences()] == ["a", "b"]
        assert reader.is_closed(experience("c", group="held"))
    assert forget(memory, ["a"]).experiences == ["a"]
    assert [e.id for e in memory.experiences()] == ["b"]


def test_a_clock_that_goes_back_and_forth_changes_nothing_that_memory_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither what is found, nor what a reader that looked before sees, nor who holds a lock."""
    from recreate.plugins.memory_tools.forget import forget

    memory, reader = ExperienceStore(tmp_path, "hashed"), ExperienceStore(tmp_path, "hashed")
    lesson = tmp_path / "memory" / "toy" / "lessons" / "a.md"
    lesson.parent.mkdir(parents=True)
    year, ids = 365 * 86_400, list[str]()
    for n, clock in enumerate((1.8e9, 86_400.0, 1.8e9 + 90 * year, 1.7e9)):
        monkeypatch.setattr("time.time", lambda clock=clock: clock)
        memory.add(
            [experience(f"e{n}", prompt=f"Mend part {n}", run="run-1" if n % 2 else f"run-{n}")]
        )
        memory.hold_out([task(f"exam-{n}", "test")])
        lesson.write_text(f"# Part {n}\n\nLook at its end.\n")
        for path in (
            *files(tmp_path),
            lesson,
            *(tmp_path / "memory").glob("*.jsonl"),
            *tmp_path.rglob("*lock*"),
        ):
            os.utime(path, (clock, clock))
        ids.append(f"e{n}")
        assert sorted(e.id for e in reader.experiences()) == ids
        assert (
            reader.recall(f"part {n}", 1, {"grain": "experience"}, how="keywords")[0].experience
            == f"e{n}"
        )
        assert (
            reader.recall(f"part {n}", 1, {"grain": "lesson"}, how="keywords")[0].id
            == "lesson:toy/a"
        )
        assert reader.held_out.split_of(task("another", "train", f"exam-{n}")) == "test"
    forget(memory, ["e1"])
    monkeypatch.setattr("time.time", lambda: 86_400.0)
    memory.add([experience("e1")])
    assert reader.get("e1") is None
    assert sorted(e.id for e in reader.experiences()) == ["e0", "e2", "e3"]
