"""What was attempted is kept, whole and once, and is found again by word and by fact. No optional
package is needed."""

from __future__ import annotations

import errno
import itertools
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from recreate.api import paths
from recreate.api.errors import BadInput, Fault
from recreate.api.types import Experience, Grade, Step, Task, Trace
from recreate.memory.store import ExperienceStore
from recreate.storage import log


def experience(id: str, **given: Any) -> Experience:
    """A finished attempt of two steps; keyword arguments replace its fields."""
    passed = given.pop("passed", False)
    steps = given.pop("steps", None) or (
        Step(
            step=0,
            observation="a failing test",
            action="grep -rn quote parser.py",
            output="parser.py:12",
            status=0,
        ),
        Step(
            step=1,
            action="edit parser.py",
            output="NameError: name 'qoute' is not defined",
            status=1,
        ),
    )
    fields: dict[str, Any] = {
        "domain": "toy",
        "task": f"toy:hand:{id}",
        "group": f"module-{id}",
        "split": "train",
        "prompt": f"Task {id}: the parser loses the closing quote",
        "digest": "5ca11ab1e",
        "run": "run-1",
        "trace": Trace(
            attempt=id, task=f"toy:hand:{id}", scaffold="5ca11ab1e", model="scripted:m", steps=steps
        ),
        "grade": Grade(
            score=float(passed), passed=passed, evidence="FAILED test_a.py - AssertionError: 1 != 2"
        ),
    }
    # as a file is read: with fields of a newer version
    return Experience.model_validate({"id": id, **fields, **given})


def task(id: str, split: str, group: str = "") -> Task:
    return Task(id=id, domain="toy", prompt="", split=split, group=group or id)  # type: ignore[arg-type]


def files(root: Path) -> list[Path]:
    return sorted(root.glob("memory/*/experiences/*.jsonl"))


def test_what_is_added_comes_back_the_same(tmp_path: Path) -> None:
    odd = experience(
        "odd", prompt='日本語 \0 "\n\r\n\u2028 \\n', odd_field={"kept": [1, 2.5, None]}
    )
    ExperienceStore(tmp_path).add([experience("a"), odd])
    again = ExperienceStore(tmp_path)
    assert again.get("a") == experience("a")
    assert again.get("odd") == odd
    assert again.get("unknown") is None


def test_adding_an_id_twice_keeps_the_first(tmp_path: Path) -> None:
    memory = ExperienceStore(tmp_path)
    memory.add([experience("a"), experience("a", prompt="another")])
    memory.add([experience("a", run="run-2")])
    ExperienceStore(tmp_path).add([experience("a")])
    assert [e.id for e in memory.experiences()] == ["a"]
    assert memory.get("a") == experience("a")


def test_experiences_are_filtered_by_domain_split_and_run_in_the_order_recorded(
    tmp_path: Path,
) -> None:
    memory = ExperienceStore(tmp_path)
    memory.add([experience("b"), experience("a"), experience("v", split="validation")])
    memory.add([experience("c", run="run-2"), experience("d", domain="other")])
    assert [e.id for e in memory.experiences(domain="toy", run="run-1")] == ["b", "a", "v"]
    assert [e.id for e in memory.experiences(split="validation")] == ["v"]
    assert [e.id for e in memory.experiences(domain="other")] == ["d"]


@pytest.mark.slow
def test_more_experiences_than_one_page_are_all_listed_once(tmp_path: Path) -> None:
    memory = ExperienceStore(tmp_path)
    memory.add([experience(f"e{n}", run=f"run-{n % 3}") for n in range(2100)])
    listed = [e["id"] for e in memory.facts()]
    assert sorted(listed) == sorted(f"e{n}" for n in range(2100))


def test_a_torn_last_line_is_passed_over_and_what_follows_is_kept(tmp_path: Path) -> None:
    memory = ExperienceStore(tmp_path)
    memory.add([experience("a"), experience("b")])
    (file,) = files(tmp_path)
    file.write_bytes(file.read_bytes()[:-40])
    assert [e.id for e in ExperienceStore(tmp_path).experiences()] == ["a"]
    ExperienceStore(tmp_path).add([experience("c")])
    assert [e.id for e in memory.experiences()] == ["a", "c"]
    memory.add([experience("b")])
    assert [e.id for e in ExperienceStore(tmp_path).experiences()] == ["a", "c", "b"]
    assert memory.stats()["damaged_lines"] == 0


def test_a_flipped_bit_costs_that_line_only(tmp_path: Path) -> None:
    memory = ExperienceStore(tmp_path)
    memory.add([experience("a"), experience("b"), experience("c")])
    (file,) = files(tmp_path)
    data = bytearray(file.read_bytes())
    data[data.index(b"Task b")] ^= 1
    file.write_bytes(data)
    assert [e.id for e in memory.experiences()] == ["a", "c"]
    assert memory.get("b") is None
    assert memory.stats()["damaged_lines"] == 1


def test_a_flipped_bit_is_noticed_even_when_size_and_time_stay(tmp_path: Path) -> None:
    memory = ExperienceStore(tmp_path)
    memory.add([experience("a"), experience("b")])
    assert memory.get("a") is not None
    (file,) = files(tmp_path)
    stat = file.stat()
    data = bytearray(file.read_bytes())
    data[data.index(b"Task a")] ^= 1
    file.write_bytes(data)
    os.utime(file, ns=(stat.st_atime_ns, stat.st_mtime_ns))
    assert memory.get("a") is None
    assert memory.get("b") == experience("b")


def test_files_that_come_and_go_are_followed(tmp_path: Path) -> None:
    memory = ExperienceStore(tmp_path)
    memory.add([experience("a"), experience("b", run="run-2")])
    one, two = files(tmp_path)
    two.rename(tmp_path / "kept")
    assert [e.id for e in memory.experiences()] == ["a"]
    (tmp_path / "kept").rename(one)
    assert [e.id for e in memory.experiences()] == ["b"]


@pytest.mark.parametrize("damage", ["garbage", "middle", "cut", "gone", "folder gone", "no place"])
def test_a_broken_catalogue_is_made_again(tmp_path: Path, damage: str) -> None:
    memory = ExperienceStore(tmp_path)
    memory.add([experience(f"e{n}") for n in range(50)])
    assert len(list(memory.experiences())) == 50
    broken = memory.metadata.database.path
    data = broken.read_bytes()
    if damage == "garbage":
        broken.write_bytes(b"no database " * 1000)
    elif damage == "middle":
        broken.write_bytes(data[:4096] + os.urandom(len(data) - 8192) + data[-4096:])
    elif damage == "cut":
        broken.write_bytes(data[: len(data) // 2])
    elif damage == "gone":
        broken.unlink()
    elif damage == "no place":
        broken.unlink()
        broken.mkdir()
    else:
        for file in broken.parent.iterdir():
            file.unlink()
        broken.parent.rmdir()
    for reader in (memory, ExperienceStore(tmp_path)):
        assert len(list(reader.experiences())) == 50
        assert reader.get("e7") == experience("e7")
    memory.add([experience("more")])
    assert len(list(ExperienceStore(tmp_path).experiences())) == 51


WRITER = """
import sys
from pathlib import Path
sys.path.insert(0, sys.argv[3])
from tests.memory.test_store import experience
from recreate.memory.store import ExperienceStore
memory = ExperienceStore(Path(sys.argv[1]))
print("ready", flush=True)
sys.stdin.readline()
for n in range(60):
    long = "x" * (n * 997)
    memory.add([experience(f"both-{n}", prompt=long)])
    memory.add([experience(f"{sys.argv[2]}-{n}", prompt=long)])
"""


@pytest.mark.slow
def test_two_processes_add_at_once_and_nothing_is_lost_or_doubled(tmp_path: Path) -> None:
    here = str(Path(__file__).parents[2])
    running = [
        subprocess.Popen(
            [sys.executable, "-c", WRITER, str(tmp_path), name, here],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for name in ("left", "right")
    ]
    for process in running:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
    for process in running:
        assert process.stdin is not None
        process.stdin.write("go\n")
        process.stdin.flush()
    for process in running:
        process.communicate()
    assert [p.returncode for p in running] == [0, 0]
    expected = {f"{name}-{n}" for name in ("left", "right", "both") for n in range(60)}
    (file,) = files(tmp_path)
    ids = [json.loads(line)["experience"]["id"] for line in file.read_bytes().splitlines()]
    assert sorted(ids) == sorted(expected)
    assert {e.id for e in ExperienceStore(tmp_path).experiences()} == expected


def test_an_experience_of_a_newer_recreate_is_refused_with_the_remedy(tmp_path: Path) -> None:
    memory = ExperienceStore(tmp_path)
    memory.add([experience("a")])
    (file,) = files(tmp_path)
    newer = experience("b").model_dump(mode="json") | {"schema": 99}
    log.Log(file).append({"experience": newer})
    with pytest.raises(BadInput, match="schema 99") as e:
        list(memory.experiences())
    assert e.value.fix == paths.upgrade()
    assert str(file) in e.value.message


def test_a_full_disk_is_a_fault_that_names_the_folder_and_leaves_no_half_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    memory = ExperienceStore(tmp_path)
    memory.add([experience("a")])
    (file,) = files(tmp_path)
    before = file.read_bytes()
    write = os.write

    def full(handle: int, data: Any) -> int:
        if len(data) < 500:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return write(handle, data[:500])

    with monkeypatch.context() as patch:
        patch.setattr(os, "write", full)
        with pytest.raises(Fault) as e:
            memory.add([experience("b")])
    assert str(file.parent) in e.value.message
    assert e.value.code == "disk-full"
    assert file.read_bytes() == before
    memory.add([experience("b")])
    assert [e.id for e in memory.experiences()] == ["a", "b"]


def test_a_file_in_a_folders_place_is_said(tmp_path: Path) -> None:
    (tmp_path / "memory" / "toy").mkdir(parents=True)
    (tmp_path / "memory" / "toy" / "experiences").write_text("a file is in the way")
    with pytest.raises(BadInput, match="experiences is no folder"):
        ExperienceStore(tmp_path).add([experience("a")])


@pytest.mark.parametrize("domain", ["", "..", "a/b", "index", ".hidden"])
def test_a_domain_that_is_no_folder_name_is_refused(tmp_path: Path, domain: str) -> None:
    with pytest.raises(BadInput, match="cannot be a domain"):
        ExperienceStore(tmp_path).add([experience("a", domain=domain)])


def test_any_run_id_is_a_file_inside_the_folder(tmp_path: Path) -> None:
    memory = ExperienceStore(tmp_path)
    memory.add([experience("a", run="../../../out"), experience("b", run="")])
    assert {p.parent for p in tmp_path.rglob("*.jsonl")} == {
        tmp_path / "memory" / "toy" / "experiences"
    }
    assert {e.id for e in memory.experiences()} == {"a", "b"}


def test_reading_an_empty_workspace_writes_nothing(tmp_path: Path) -> None:
    memory = ExperienceStore(tmp_path)
    assert list(memory.experiences()) == []
    assert memory.get("a") is None
    assert memory.search("anything") == []
    assert memory.stats()["experiences"] == 0
    assert list(tmp_path.iterdir()) == []


def test_git_shows_nothing_of_what_was_attempted(tmp_path: Path) -> None:
    subprocess.run(["git", "init", "-q", tmp_path], check=True)
    memory = ExperienceStore(tmp_path)
    memory.add([experience("a"), experience("b", run="run-2")])
    list(memory.experiences())
    status = subprocess.run(
        ["git", "status", "--short"], cwd=tmp_path, check=True, capture_output=True, text=True
    )
    assert status.stdout == ""


def test_keys_of_the_environment_never_reach_the_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    key = 'k"ey-\\0123456789'
    monkeypatch.setenv("SOME_PROVIDER_API_KEY", key)
    leaking = Step(
        step=0, action="env", output=f"SOME_PROVIDER_API_KEY={key}\nsk-abcdefghijklmnopqrstuvwx"
    )
    ExperienceStore(tmp_path).add(
        [experience("a", prompt=f"use {key}", steps=(leaking,), extra_field={"deep": [key]})]
    )
    data = "".join(file.read_text() for file in files(tmp_path))
    assert key not in data
    assert json.dumps(key)[1:-1] not in data
    assert "sk-abcdef" not in data
    kept = ExperienceStore(tmp_path).get("a")
    assert kept is not None
    assert (
        kept.trace.steps[0].output
        == "SOME_PROVIDER_API_KEY=[redacted:SOME_PROVIDER_API_KEY]\n[redacted]"
    )


def test_a_key_that_is_an_ordinary_word_does_not_break_a_record(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in {
        "A_KEY": "validation",
        "B_KEY": "scripted",
        "C_TOKEN": "experience",
        "D_KEY": "submitted",
    }.items():
        monkeypatch.setenv(name, value)
    memory = ExperienceStore(tmp_path)
    memory.add([experience("a", split="validation", prompt="say validation")])
    kept = memory.get("a")
    assert kept is not None
    assert (kept.split, kept.trace.model, kept.prompt) == (
        "validation",
        "scripted:m",
        "say validation",
    )


def test_an_optimizer_is_told_the_attempts_of_a_run_in_one_order_however_they_ended(
    tmp_path: Path,
) -> None:
    """Attempts at once end in any order; a replay that asks otherwise stops."""
    told = []
    for order in ("bca", "acb"):
        store = ExperienceStore(tmp_path / order)
        store.add([experience("z", run="run-0")])
        for id in order:
            store.add([experience(id)])
        told.append(
            [
                hit.id
                for hit in store.search("closing quote", {"grain": "experience"}, "optimizer", 3)
            ]
        )
        assert [hit.id for hit in store.search("closing quote", {"grain": "experience"})] == [
            "z",
            *order,
        ]
    assert told == [["z", "a", "b"], ["z", "a", "b"]]


def test_search_finds_every_word_in_any_case_and_script_however_long_the_text(
    tmp_path: Path,
) -> None:
    memory = ExperienceStore(tmp_path)
    long = Step(
        step=4, action="run", output="." * 200_000 + "Ungewöhnlich 失敗した Needle" + "." * 200_000
    )
    memory.add(
        [
            experience("a"),
            experience("b", steps=(long,)),
            experience("v", split="validation", steps=(long,)),
        ]
    )
    assert [(h.id, h.step) for h in memory.search("needle UNGEWÖHNLICH")] == [
        ("b/0", 4),
        ("v/0", 4),
    ]
    (hit,) = memory.search("失敗", {"split": "train"})
    assert hit.experience == "b"
    assert "失敗した Needle" in hit.text
    assert len(hit.text) <= 500
    assert [h.experience for h in memory.search("失敗", reader="optimizer")] == ["b"]
    assert [h.id for h in memory.search("qoute nameerror")] == ["a/1"]
    assert [h.id for h in memory.search("closing qoute")] == ["a"]  # in the prompt and in a step
    assert memory.search("needle nowhere") == []


def test_facts_are_filtered_by_what_happened(tmp_path: Path) -> None:
    memory = ExperienceStore(tmp_path)
    memory.add(
        [
            experience("good", passed=True),
            experience("bad", grade=Grade(score=0, passed=False, evidence="KeyError: 1")),
        ]
    )

    def ids(**filters: Any) -> list[str]:
        return [row["id"] for row in memory.facts(filters)]

    assert ids(outcome="passed") == ids(passed=True) == ids(passed="true") == ["good"]
    assert ids(error="KeyError") == ["bad"]
    assert ids(group=["module-good", "module-x"]) == ["good"]
    with pytest.raises(BadInput, match="no filter 'colour'") as e:
        ids(colour="red")
    assert "outcome" in e.value.fix
    with pytest.raises(BadInput, match="true or false"):
        ids(passed="perhaps")


def test_a_lesson_file_is_read_from_every_domain(tmp_path: Path) -> None:
    folder = tmp_path / "memory" / "toy" / "lessons"
    folder.mkdir(parents=True)
    (folder / "read-first.md").write_text(
        "# Read the test first\n\nIt says what is wanted.\n\nborn_of: a, b\n"
    )
    ((key, (_, lesson)),) = ExperienceStore(tmp_path).lessons().items()
    assert (key, lesson.title, lesson.born_of) == (
        "lesson:toy/read-first",
        "Read the test first",
        ("a", "b"),
    )
    assert [h.grain for h in ExperienceStore(tmp_path).search("wanted")] == ["lesson"]


@pytest.mark.parametrize("when", ["9999-12-31T00:00:00Z", -9e10, 1e300, "soon", [], "2126-01-01"])
def test_an_attempt_of_an_impossible_moment_is_found_all_the_same(
    tmp_path: Path, when: Any
) -> None:
    memory = ExperienceStore(tmp_path, "hashed")
    memory.add([experience("odd", when=when), experience("plain")])
    assert {h.experience for h in memory.recall("closing quote", 9, {"grain": "experience"})} == {
        "odd",
        "plain",
    }
    assert {row["id"] for row in memory.facts()} == {"odd", "plain"}


def many(memory: ExperienceStore, count: int) -> None:
    """The catalogue as it is with so many attempts in one file, whose lines nobody reads."""
    memory.add([experience("e0")])
    memory.get("e0")
    db = memory.metadata.database._connect()
    columns = [row[1] for row in db.execute("pragma table_info(sources)")]
    (row,) = db.execute("select * from sources where id = 'e0'").fetchall()
    at = columns.index("at")
    rows = (
        [None, f"m{n}", *row[2:at], n * 1000 + 10_000, *row[at + 1 :]] for n in range(count - 1)
    )
    db.execute("begin")
    db.executemany(f"insert into sources values ({','.join('?' * len(columns))})", rows)
    db.execute("commit")


def test_a_list_of_twice_as_many_attempts_takes_twice_as_long(tmp_path: Path) -> None:
    took = []
    for count in (10_000, 20_000):
        memory = ExperienceStore(tmp_path / str(count), "hashed")
        many(memory, count)
        steps = itertools.count()
        memory.metadata.database._connect().set_progress_handler(
            lambda s=steps: next(s) and 0, 1000
        )  # type: ignore[misc]
        assert sum(1 for _ in memory.facts()) == count
        took.append(next(steps))
    assert took[1] / took[0] < 2.2
