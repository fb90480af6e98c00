"""Pruning lists what can go, and deletes nothing that cannot be made again unless a flag names
it."""

from __future__ import annotations

import json
import os
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from recreate.cli import run as cli
from recreate.memory.store import ExperienceStore
from recreate.plugins.memory_tools.prune import oldest, prune
from recreate.storage import log
from tests.memory.test_codec import LONG, blobs, long
from tests.memory.test_recall import Counting, fill
from tests.memory.test_store import experience, files, task


def pruned(capsys: pytest.CaptureFixture[str], *flags: str) -> dict[str, Any]:
    """What the command says, by kind."""
    capsys.readouterr()
    assert cli(["memory", "prune", *flags, "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert said["dry_run"] is ("--dry-run" in flags)
    said["by_kind"] = {item["kind"]: item for item in said["items"]}
    return dict(said)


def everything(root: Path) -> dict[str, bytes]:
    return {
        str(p): p.read_bytes() for p in root.rglob("*") if p.is_file() and "index" not in p.parts
    }


def test_vectors_of_an_embedder_out_of_use_go_and_the_ones_in_use_stay(
    workspace: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    one, two = Counting("one"), Counting("two", 128)
    fill(ExperienceStore(workspace, one))
    ExperienceStore(workspace, one).recall("leap days")
    ExperienceStore(workspace, two).recall("leap days")
    said = pruned(capsys, "--dry-run")
    assert [(i["what"], i["count"], i["bytes"]) for i in said["items"]] == [("one", 4, 4 * 64 * 4)]
    assert said["bytes"] == 4 * 64 * 4
    assert pruned(capsys)["bytes"] == said["bytes"]
    assert pruned(capsys)["items"] == []
    ExperienceStore(workspace, two).rebuild()
    assert two.passages == 4
    ExperienceStore(workspace, one).recall("leap days")
    assert one.passages == 8


def test_without_a_flag_no_experience_and_no_large_text_goes(
    workspace: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    memory = ExperienceStore(workspace, "hashed")
    memory.add([long("a"), long("b", LONG + "moved", run="run-2")])
    files(workspace)[1].rename(workspace / "elsewhere")
    (workspace / "memory" / "toy" / "blobs" / "ab").mkdir()
    (workspace / "memory" / "toy" / "blobs" / "ab" / "cdef.77.draft").write_text("half a te")
    before = everything(workspace)
    said = pruned(capsys, "--dry-run")
    assert everything(workspace) == before
    assert said["by_kind"]["blobs"] | {"bytes": 0} == {
        "kind": "blobs",
        "what": "that no line names",
        "count": 1,
        "bytes": 0,
        "needs": "--blobs",
        "going": False,
        "damaged": 0,
    }
    assert (said["by_kind"]["drafts"]["count"], said["bytes"]) == (1, 9)
    pruned(capsys)
    assert {name for name in before if not name.endswith(".draft")} == set(everything(workspace))
    (workspace / "elsewhere").rename(workspace / "memory" / "toy" / "experiences" / "run-2.jsonl")
    assert memory.get("b") == long("b", LONG + "moved", run="run-2")


def test_a_large_text_that_a_damaged_or_torn_line_names_is_kept(
    workspace: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    ExperienceStore(workspace).add([long("a"), long("b", LONG + "torn")])
    (file,) = files(workspace)
    whole = file.read_bytes()
    file.write_bytes(whole.replace(b"Task a", b"Task X", 1)[:-5])
    assert ExperienceStore(workspace).stats()["experiences"] == 0
    pruned(capsys, "--blobs")
    file.write_bytes(whole)  # mended by hand
    assert ExperienceStore(workspace).get("a") == long("a")
    assert ExperienceStore(workspace).get("b") == long("b", LONG + "torn")


def test_a_run_goes_with_the_texts_that_only_it_names_and_nothing_else(
    workspace: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    memory = ExperienceStore(workspace, "hashed")
    memory.add(
        [
            long("a"),
            long("b", LONG + "only in b"),
            experience("v", split="validation", group="kept-out"),
        ]
    )
    memory.add([long("c", run="run-2")])
    one, two = files(workspace)
    # merged by hand
    two.write_bytes(one.read_bytes().splitlines(keepends=True)[1] + two.read_bytes() + b'{"torn": ')
    lesson = workspace / "memory" / "toy" / "lessons" / "first.md"
    lesson.parent.mkdir()
    lesson.write_text("# First\n\nBody.\n\nborn_of: a\n")
    before = everything(workspace)
    said = pruned(capsys, "--run", "run-1", "--dry-run")
    assert everything(workspace) == before
    assert said["cited_by"] == ["lesson:toy/first"]
    assert [(i["kind"], i["what"], i["count"]) for i in said["items"]] == [
        ("blobs", "of the experiences below", 1),
        ("experiences", "toy/experiences/run-1.jsonl", 3),
        ("experiences", "toy/experiences/run-2.jsonl", 1),
    ]
    assert pruned(capsys, "--run", "run-1")["bytes"] == said["bytes"]
    assert not one.exists()
    assert two.read_bytes().endswith(b'{"torn": ')
    again = ExperienceStore(workspace, "hashed")
    assert [e for e in again.experiences()] == [long("c", run="run-2")]
    assert [e.id for e in memory.experiences()] == ["c"]
    assert len(blobs(workspace)) == 1
    again.add([experience("late", group="kept-out")])
    assert again.get("late", "optimizer") is None
    assert pruned(capsys, "--run", "no-such-run")["items"] == []


def test_groups_of_a_file_that_was_copied_in_stay_held_out_when_it_is_pruned(
    workspace: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    ExperienceStore(tmp_path / "other").add(
        [experience("v", split="test", group="secret", run="foreign")]
    )
    folder = workspace / "memory" / "toy" / "experiences"
    folder.mkdir(parents=True)
    (folder / "foreign.jsonl").write_bytes(files(tmp_path / "other")[0].read_bytes())
    pruned(capsys, "--run", "foreign")
    memory = ExperienceStore(workspace)
    memory.add([experience("late", group="secret")])
    assert memory.get("late") is not None
    assert memory.get("late", "agent") is None


def test_before_a_day_takes_what_was_recorded_before_it(
    workspace: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    memory = ExperienceStore(workspace)
    with monkeypatch.context() as patch:
        patch.setattr("recreate.memory.codec.now", lambda: "2023-11-14T22:13:20Z")
        memory.add([experience("old"), experience("older", run="run-2")])
    memory.add([experience("new", run="run-2")])
    memory.hold_out([task("t", "test")])
    old = files(workspace)[0]
    timeless = log.seal({"experience": experience("timeless").model_dump(mode="json")})
    old.write_bytes(old.read_bytes() + timeless + b"damaged\n")
    os.utime(old, (1_700_000_000, 1_700_000_000))  # 14 November 2023, 22:13:20
    assert pruned(capsys, "--before", "2023-11-14", "--dry-run")["items"] == []
    assert pruned(capsys, "--before", "2023-11-10", "--dry-run")["items"] == []
    said = pruned(capsys, "--before", "2023-11-20")
    assert [(i["count"], i["damaged"]) for i in said["items"]] == [(2, 1), (1, 0)]
    assert not old.exists()
    assert [e.id for e in memory.experiences()] == ["new"]


def test_prune_says_what_it_would_do_in_words(
    workspace: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli(["memory", "prune"]) == 0
    assert capsys.readouterr().out == "there is nothing to prune\n"
    assert list(workspace.iterdir()) == [workspace / "recreate.toml"]
    ExperienceStore(workspace).add([experience("a")])
    (size,) = (p.stat().st_size for p in files(workspace))
    assert cli(["memory", "prune", "--run", "run-1", "--dry-run"]) == 0
    assert (
        capsys.readouterr().out
        == f"would be deleted: 1 experiences toy/experiences/run-1.jsonl, {size:,} bytes\n{size:,}"
        " bytes would be freed\n"
    )
    assert cli(["memory", "prune", "--run", "run-1"]) == 0
    assert (
        f"deleted: 1 experiences toy/experiences/run-1.jsonl, {size:,} bytes\n"
        in capsys.readouterr().out
    )


def test_a_memory_is_kept_to_a_size_by_its_oldest_attempts_but_those_that_a_lesson_cites(
    workspace: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    memory = ExperienceStore(workspace)
    for day, id in enumerate(("oldest", "cited", "shared", "newest"), 1):
        monkeypatch.setattr(
            "recreate.memory.codec.now", lambda day=day: f"2026-11-{day:02}T00:00:00Z"
        )
        text = LONG if id in ("oldest", "shared") else LONG + id
        memory.add([long(id, text, run=f"run-{day}")])
    lesson = workspace / "memory" / "toy" / "lessons" / "a.md"
    lesson.parent.mkdir()
    lesson.write_text("# Read it\n\nFirst.\n\nborn_of: cited\n")
    total = sum(p.stat().st_size for p in [*files(workspace), *blobs(workspace)])
    assert pruned(capsys, "--max-size", str(total))["items"] == []
    said = pruned(capsys, "--max-size", str(total - 1), "--dry-run")
    assert said["by_kind"]["experiences"]["what"] == "toy/experiences/run-1.jsonl", (
        "its text is shared"
    )
    assert said["cited_by"] == []
    pruned(capsys, "--max-size", f"{(total - len(LONG)) / 1e3}kB", "--yes")
    assert [e.id for e in memory.experiences()] == [
        "cited",
        "newest",
    ], "two had to go for the text that they shared"
    assert sum(p.stat().st_size for p in [*files(workspace), *blobs(workspace)]) <= total - len(
        LONG
    )
    pruned(capsys, "--max-size", "0", "--yes")
    assert [e.id for e in memory.experiences()] == ["cited"]
    assert cli(["memory", "prune", "--max-size", "much"]) == 2


def test_what_is_older_than_so_many_days_goes(
    workspace: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    memory = ExperienceStore(workspace)
    today = datetime.now(UTC)
    for age in (0, 29, 31, 400):
        when = (today - timedelta(days=age)).strftime("%Y-%m-%dT%H:%M:%SZ")
        monkeypatch.setattr("recreate.memory.codec.now", lambda when=when: when)
        memory.add([experience(f"days{age}", run=f"r{age}")])
    pruned(capsys, "--older-than", "1y", "--yes")
    assert [e.id for e in memory.experiences()] == ["days0", "days29", "days31"]
    pruned(capsys, "--older-than", "30d", "--yes")
    assert [e.id for e in memory.experiences()] == ["days0", "days29"]
    assert cli(["memory", "prune", "--older-than", "soon"]) == 2


def test_an_attempt_recorded_while_the_clock_was_ahead_is_as_old_as_its_file(
    workspace: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    memory = ExperienceStore(workspace)
    with monkeypatch.context() as patch:
        patch.setattr("recreate.memory.codec.now", lambda: "2126-11-01T00:00:00Z")
        memory.add([experience("ahead", run="r1"), experience("ahead-lately", run="r2")])
    memory.add([experience("lately", run="r3")])
    before = (datetime.now(UTC) - timedelta(days=100)).timestamp()
    os.utime(workspace / "memory" / "toy" / "experiences" / "r1.jsonl", (before, before))
    pruned(capsys, "--older-than", "99999y", "--yes")
    assert len(list(memory.experiences())) == 3
    pruned(capsys, "--older-than", "90d", "--yes")
    assert [e.id for e in memory.experiences()] == ["ahead-lately", "lately"]


def test_a_clock_that_is_behind_lets_no_attempt_go_that_was_recorded_after_the_day(
    workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    memory = ExperienceStore(workspace)
    memory.add([experience("lately")])
    monkeypatch.setattr("time.time", lambda: 86_400.0)
    assert prune(memory, before=datetime(2026, 1, 1, tzinfo=UTC).date()) == []
    assert prune(memory, ids=oldest(memory, 10**9)[0]) == []
    assert [e.id for e in memory.experiences()] == ["lately"]


def test_a_size_that_cannot_be_reached_since_lessons_cite_the_rest_is_said_with_what_is_left(
    workspace: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    memory = ExperienceStore(workspace)
    memory.add([experience("cited"), experience("other", run="run-2")])
    lesson = workspace / "memory" / "toy" / "lessons" / "a.md"
    lesson.parent.mkdir()
    lesson.write_text("# Read it\n\nFirst.\n\nborn_of: cited\n")
    size = next(p for p in files(workspace) if "run-1" in p.name).stat().st_size
    assert cli(["memory", "prune", "--max-size", str(size - 1), "--yes", "--dry-run"]) == 0
    assert f"{size:,} bytes would be left, more than {size - 1:,}" in capsys.readouterr().err
    assert cli(["memory", "prune", "--max-size", str(size - 1), "--run", "run-2", "--yes"]) == 0
    assert (
        f"{size:,} bytes are left, more than {size - 1:,}: lessons cite the rest"
        in capsys.readouterr().err
    )
    assert cli(["memory", "prune", "--max-size", str(size), "--yes"]) == 0
    assert "left" not in capsys.readouterr().err
    assert pruned(capsys, "--max-size", "0", "--yes")["left"] == size
