"""Lessons in their files, by the commands."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from recreate.api.errors import BadInput
from recreate.cli import run as cli
from recreate.lessons.store import LessonStore
from recreate.memory.store import ExperienceStore
from tests.lessons import test_store
from tests.lessons.test_store import lesson

store = test_store.store


def test_a_link_a_folder_or_a_pipe_among_lessons_is_named_and_never_read(
    store: LessonStore, tmp_path: Path
) -> None:
    from recreate.plugins.memory_tools.archive import pack

    store.write({}, {"a": lesson("a")})
    folder, memory = (
        store.folder / "swe" / "lessons",
        ExperienceStore(store.folder.parent, "hashed"),
    )
    (tmp_path / "private.md").write_text("# Mine\n\nmy diary\n")
    (folder / "link.md").symlink_to(tmp_path / "private.md")
    (folder / "gone.md").symlink_to(tmp_path / "nowhere")
    (folder / "folder.md").mkdir()
    os.mkfifo(folder / "pipe.md")
    (folder / "bytes.md").write_bytes(b"# \xff\n")
    assert list(store.read()) == ["a"]
    assert {path.stem: why for path, why in store.broken.items()} == {
        "link": "it is a link, which is not followed",
        "gone": "it is a link, which is not followed",
        "folder": "it is no file",
        "pipe": "it is no file",
        "bytes": "it is not UTF-8",
    }
    assert list(memory.lessons()) == ["lesson:swe/a"]
    assert [hit.id for hit in memory.recall("my diary", 5, reader="human")] == ["lesson:swe/a"]
    packed = pack(memory, tmp_path / "memory.zip")
    assert (packed.lessons, len(packed.left_out)) == (1, 5)
    assert b"diary" not in (tmp_path / "memory.zip").read_bytes()
    with pytest.raises(BadInput, match="not UTF-8"):
        store.veto("bytes")


@pytest.mark.parametrize("second", ["swe/lessons", "general"])
def test_of_two_files_with_one_id_one_counts_everywhere_and_the_other_is_named(
    store: LessonStore, second: str
) -> None:
    from recreate.plugins.memory_tools.forget import forget

    store.write({}, {"a": lesson("a", scope="domain", status="active")})
    pattern, twin = store.find("a"), store.folder / second / "a.md"
    twin.parent.mkdir(exist_ok=True)
    twin.write_text(pattern.read_text().replace("Read the test.", "Read it twice."))
    used, other = (twin, pattern) if second == "general" else (pattern, twin)
    memory = ExperienceStore(store.folder.parent, "hashed")
    assert store.read()["a"].body == ("Read it twice." if used == twin else "Read the test.")
    assert store.broken == {
        other: (
            f"{used.relative_to(store.folder)} has the same id and counts in its place; "
            "take one of the two away"
        )
    }
    assert [x.body for _, x in memory.lessons().values()] == [store.read()["a"].body]
    store.veto("a")
    assert memory.lessons() == {}, "what a person vetoed is not recalled from its other file"
    forget(memory, [], [store.find("a")])
    assert not pattern.exists()
    assert not twin.exists()


@pytest.mark.plugin("policies")
def test_a_policy_that_is_not_there_is_refused_with_the_near_one(
    workspace: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    LessonStore(workspace / "memory", "toy", "mine").add("Read it", "First.")
    for command in (["list"], ["show", "read"]):
        assert cli(["patterns", *command, "--policy", "playbok"]) == 2
        assert "did you mean 'playbook'?" in capsys.readouterr().err
    for known in ("mine", "playbook", "module:Class"):
        assert cli(["patterns", "list", "--policy", known]) == 0
        assert ("Read it" in capsys.readouterr().out) == (known == "mine")
