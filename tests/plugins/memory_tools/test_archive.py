"""A memory goes into one file and comes out the same; of what is no such file nothing comes in;
hidden stays hidden."""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from recreate.agents.lesson import headed
from recreate.api.errors import BadInput
from recreate.api.types import Grade, Lesson
from recreate.cli import run as cli
from recreate.memory.forget import lesson_files
from recreate.memory.held_out import Held
from recreate.memory.store import ExperienceStore
from recreate.plugins.memory_tools import archive
from recreate.plugins.memory_tools import forget as forgetting
from recreate.plugins.memory_tools.archive import pack, unpack
from recreate.plugins.traces.ungraded import Ungraded
from recreate.storage.log import seal
from tests.memory.test_codec import LONG
from tests.memory.test_store import experience

SECRET = "Zq8" + "vX2mKp7Lw4Rt9Yb3Nd6"
UNGRADED = Grade(score=0, passed=False, graded=False)


def put(root: Path, path: str, lesson: Lesson) -> None:
    file = root / "memory" / path
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(headed(lesson))


@pytest.fixture
def there(tmp_path: Path) -> ExperienceStore:
    """A memory of two domains, with all that one can have."""
    root = tmp_path / "there"
    made = ExperienceStore(root, "hashed")
    made.add(
        [
            experience("a", prompt=LONG),
            experience("b"),
            experience("exam", split="test", group="g-exam"),
        ]
    )
    made.add(
        [
            experience("c", domain="other", run="run-2"),
            experience("o", domain="other", split="validation"),
        ]
    )
    Ungraded(made).add([experience("w", grade=UNGRADED)])
    put(
        root,
        "toy/lessons/one.md",
        Lesson(id="one", title="One", body="First.", born_of=("a",), supports=("a", "b")),
    )
    put(root, "toy/playbook/two.md", Lesson(id="two", title="Two", body="Second.", born_of=("b",)))
    put(
        root,
        "other/patterns/three.md",
        Lesson(id="three", title="Three", body="Third.", scope="domain"),
    )
    general = Lesson(
        id="all",
        title="All",
        body="In all.",
        scope="general",
        domains=("toy", "other"),
        status="active",
    )
    put(root, "general/all.md", general)
    made.held_out.add(
        [Held("g-held", "toy:held", "test", "toy"), Held("g-alone", "other:alone", "test", "other")]
    )
    made.add([experience("gone")])
    forgetting.forget(made, ["gone"])
    return made


@pytest.fixture
def here(tmp_path: Path) -> ExperienceStore:
    return ExperienceStore(tmp_path / "here", "hashed")


@pytest.fixture
def file(there: ExperienceStore, tmp_path: Path) -> Path:
    pack(there, tmp_path / "memory.zip")
    return tmp_path / "memory.zip"


def content(memory: ExperienceStore) -> dict[str, Any]:
    """Everything but the order, the files' names and what is derived."""
    lessons = sorted(p for p in memory.folder.rglob("*.md"))
    return {
        "experiences": {e.id: (e, memory.metadata.when(e.id)) for e in memory.experiences()},
        "waiting": {e.id: e for e in Ungraded(memory).experiences()},
        "lessons": {p.relative_to(memory.folder).as_posix(): p.read_text() for p in lessons},
        "held_out": memory.held_out.read()[1:],
        "forgotten": memory.forgotten.read(),
        "blobs": {(domain, sha) for domain, sha, _ in memory.blobs.all()},
    }


@pytest.mark.slow
def test_a_memory_comes_back_whole_from_its_file_in_an_empty_workspace(
    there: ExperienceStore, here: ExperienceStore, file: Path
) -> None:
    found = unpack(here, file, own=True)
    assert (found.experiences, found.waiting, found.lessons, found.known, found.differ) == (
        5,
        1,
        4,
        0,
        [],
    )
    assert content(here) == content(there)
    assert content(here)["blobs"]
    assert not [e.id for e in here.experiences(reader="optimizer") if e.id in ("exam", "o")]
    assert here.held_out.read().split("toy:held", "") == "test"
    assert [h.id for h in here.recall("closing quote", 8)] == [
        h.id for h in there.recall("closing quote", 8)
    ]


def test_the_same_memory_makes_the_same_file_and_taking_it_in_twice_changes_nothing(
    there: ExperienceStore, here: ExperienceStore, file: Path, tmp_path: Path
) -> None:
    unpack(here, file, own=True)
    before = {
        p: p.read_bytes() for p in here.folder.rglob("*") if p.is_file() and "index" not in p.parts
    }
    again = unpack(here, file, own=True)
    assert (again.experiences, again.waiting, again.lessons, again.known, again.differ) == (
        0,
        0,
        0,
        10,
        [],
    )
    assert before == {
        p: p.read_bytes() for p in here.folder.rglob("*") if p.is_file() and "index" not in p.parts
    }
    pack(there, tmp_path / "again.zip")
    assert (tmp_path / "again.zip").read_bytes() == file.read_bytes()


def test_one_domain_goes_alone_with_its_general_lessons_and_what_it_holds_out(
    there: ExperienceStore, here: ExperienceStore, tmp_path: Path
) -> None:
    path = tmp_path / "toy.zip"
    there.held_out.add([Held("module-b", "", "validation", "other")])
    there.add([experience("b2", group="", task="other:closed", domain="other", split="test")])
    there.add([experience("a2", group="")])
    found = pack(there, path, "toy")
    assert (found.experiences, found.hidden, found.waiting, found.lessons) == (4, 1, 1, 3)
    with zipfile.ZipFile(path) as packed:
        assert not [name for name in packed.namelist() if name.startswith("other/")]
        assert b"other:" not in packed.read("held_out.jsonl")
    unpack(here, path, own=True)
    assert {e.id for e in here.experiences()} == {"a", "a2", "b", "exam"}
    assert {p.name for p in here.folder.rglob("*.md")} == {"one.md", "two.md", "all.md"}
    seen = [e.id for e in here.experiences(reader="optimizer")]
    assert seen == ["a", "a2"], "b's group is held out by another domain"


def test_one_domain_of_a_whole_file_is_taken_in_alone(here: ExperienceStore, file: Path) -> None:
    found = unpack(here, file, "other", own=True)
    assert (found.experiences, found.waiting) == (2, 0)
    assert {p.name for p in here.folder.rglob("*.md")} == {"three.md"}
    assert here.held_out.read().split("toy:held", "") == "test", (
        "what is held out is, whatever was asked for"
    )
    with pytest.raises(BadInput, match="holds nothing of nope"):
        unpack(here, file, "nope", own=True)


def test_a_general_lesson_born_of_a_test_attempt_does_not_leave_without_it(
    there: ExperienceStore, tmp_path: Path
) -> None:
    put(
        tmp_path / "there",
        "general/leak.md",
        Lesson(
            id="leak",
            title="L",
            body="The answer is 7.",
            scope="general",
            domains=("toy",),
            born_of=("o",),
        ),
    )
    found = pack(there, tmp_path / "toy.zip", "toy")
    assert found.left_out == ["general/leak.md"]


def test_what_is_here_stays_and_is_named_where_it_differs(
    here: ExperienceStore, file: Path, tmp_path: Path
) -> None:
    mine = experience("a", prompt="mine")
    here.add([mine])
    put(
        tmp_path / "here",
        "toy/patterns/one.md",
        Lesson(id="one", title="One", body="Mine.", status="vetoed"),
    )
    found = unpack(here, file, own=True)
    assert found.differ == ["a", "toy/patterns/one.md"]
    assert here.get("a") == mine
    assert not (here.folder / "toy" / "lessons" / "one.md").exists()


def test_what_was_forgotten_here_does_not_come_back_and_takes_along_what_it_alone_taught(
    here: ExperienceStore, file: Path
) -> None:
    unpack(here, file, own=True)
    forgetting.forget(here, ["a", "w"], [here.folder / "toy" / "playbook" / "two.md"])
    forgetting.forget(here, ["b"])
    found = unpack(here, file, own=True)
    assert (found.experiences, found.waiting, found.lessons, found.forgotten) == (0, 0, 0, 5)
    assert {e.id for e in here.experiences()} == {"exam", "c", "o"}
    assert {p.name for p in here.folder.rglob("*.md")} == {"three.md", "all.md"}


def test_what_was_forgotten_there_is_kept_where_it_is_and_not_let_in_elsewhere(
    here: ExperienceStore, file: Path
) -> None:
    here.add([experience("gone")])
    assert unpack(here, file, own=True).kept == ["gone"]
    assert here.get("gone") is not None
    other = ExperienceStore(here.folder.parent.parent / "third", "hashed")
    unpack(other, file, own=True)
    other.add([experience("gone")])
    assert other.get("gone") is None


def test_a_key_that_became_known_later_leaves_in_no_line_and_enters_by_none(
    there: ExperienceStore, here: ExperienceStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    there.add([experience("k", prompt=f"use {SECRET}", answer=LONG + SECRET)])
    Ungraded(there).add([experience("kw", prompt=f"use {SECRET}", grade=UNGRADED)])
    put(
        tmp_path / "there", "toy/lessons/k.md", Lesson(id="k", title="Key", body=f"It is {SECRET}.")
    )
    pack(there, tmp_path / "plain.zip")
    monkeypatch.setenv("TEAM_API_KEY", SECRET)
    pack(there, tmp_path / "masked.zip")
    with zipfile.ZipFile(tmp_path / "masked.zip") as packed:
        assert not [name for name in packed.namelist() if SECRET.encode() in packed.read(name)]
    unpack(here, tmp_path / "plain.zip")
    assert not [
        p for p in here.folder.rglob("*") if p.is_file() and SECRET.encode() in p.read_bytes()
    ]


# ------------------------------------------------------------------------------------------- what
# is no such file


def members(path: Path) -> dict[str, bytes]:
    with zipfile.ZipFile(path) as packed:
        return {name: packed.read(name) for name in packed.namelist() if name != "manifest.json"}


def written(path: Path, files: dict[str, bytes], **manifest: Any) -> Path:
    """A file whose manifest is right, but for what is given."""
    told = {n: {"bytes": len(d), "sha256": hashlib.sha256(d).hexdigest()} for n, d in files.items()}
    about = {
        "format": "recreate-memory",
        "version": 1,
        "schema": 1,
        "domain": "",
        "members": told,
        **manifest,
    }
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as packed:
        for name, data in files.items():
            packed.writestr(name, data)
        packed.writestr("manifest.json", json.dumps(about))
    return path


def line(**given: Any) -> bytes:
    return seal({"experience": {**experience("x").model_dump(mode="json"), **given}})


DEEP: Any = {"x": 1}
for _ in range(300):
    DEEP = {"x": DEEP}

ODD: dict[str, tuple[dict[str, bytes], str]] = {
    "a name that climbs out": ({"../toy/experiences.jsonl": b""}, "nothing that a memory has"),
    "an absolute name": ({"/tmp/experiences.jsonl": b""}, "nothing that a memory has"),
    "a lesson that climbs out": ({"toy/lessons/../../x.md": b"# x"}, "nothing that a memory has"),
    "a lesson in the index": ({"index/lessons/x.md": b"# x"}, "nothing that a memory has"),
    "a backslash": ({"toy\\experiences.jsonl": b""}, "nothing that a memory has"),
    "a pickle": ({"toy/experiences.pkl": b"\x80\x04."}, "nothing that a memory has"),
    "a damaged line": (
        {"toy/experiences.jsonl": line().replace(b"closing", b"opening")},
        "line 1 is damaged",
    ),
    "a torn line": ({"toy/experiences.jsonl": line()[:-1]}, "line 1 is damaged"),
    "an attempt twice": ({"toy/experiences.jsonl": line() + line(prompt="other")}, "twice"),
    "another domain's": ({"other/experiences.jsonl": line()}, "does not belong"),
    "an id that is a path": ({"toy/experiences.jsonl": line(id="../../x")}, "does not belong"),
    "a graded one that waits": ({"toy/waiting.jsonl": line()}, "does not belong"),
    "no experience": (
        {"toy/experiences.jsonl": seal({"experience": {"id": "x"}})},
        "is no experience",
    ),
    "no object": ({"toy/experiences.jsonl": seal({"experience": [1]})}, "is no experience"),
    "one that is deep": ({"toy/experiences.jsonl": line(foreign=DEEP)}, "too deeply"),
    "a large text of another name": (
        {f"toy/blobs/{'0' * 64}": b"text"},
        "not the text that its name says",
    ),
    "a broken lesson": ({"toy/lessons/x.md": b"+++\nscope = 3\n+++\n# x\n"}, "x.md"),
    "a lesson that is no text": ({"toy/lessons/x.md": b"\xff\xfe"}, "not UTF-8"),
    "a registry of another kind": (
        {"held_out.jsonl": seal({"group": "g", "split": "train"})},
        "neither",
    ),
    "an odd forgotten id": ({"forgotten.jsonl": seal({"id": "*/../*"})}, "no id"),
    "a lesson of 5 MB": (
        {"toy/lessons/x.md": b"# x\n" + b"y" * (5 << 20)},
        "not as large as it may be",
    ),
}


@pytest.mark.parametrize("name", ODD)
@pytest.mark.slow
def test_what_is_no_memory_is_refused_and_nothing_of_it_comes_in(
    name: str, here: ExperienceStore, file: Path, tmp_path: Path
) -> None:
    files, why = ODD[name]
    whole = members(file) | files
    with pytest.raises(BadInput, match=why) as refused:
        unpack(here, written(tmp_path / "odd.zip", whole))
    assert refused.value.code == "bad-archive"
    assert not here.folder.exists()


def relabelled(path: Path, change: Callable[[zipfile.ZipInfo], None]) -> Path:
    """The same file, with one member's entry changed."""
    files = members(path)
    told = {n: {"bytes": len(d), "sha256": hashlib.sha256(d).hexdigest()} for n, d in files.items()}
    out = path.with_name("relabelled.zip")
    with zipfile.ZipFile(out, "w") as packed:
        for name, data in files.items():
            info = zipfile.ZipInfo(name)
            if name == "held_out.jsonl":
                change(info)
            packed.writestr(info, data)
        packed.writestr(
            "manifest.json",
            json.dumps({"format": "recreate-memory", "version": 1, "members": told}),
        )
    return out


def test_links_and_other_packings_are_refused(here: ExperienceStore, file: Path) -> None:
    def link(info: zipfile.ZipInfo) -> None:
        info.external_attr = 0o120777 << 16

    def other(info: zipfile.ZipInfo) -> None:
        info.compress_type = zipfile.ZIP_LZMA

    for change, why in ((link, "link or a device"), (other, "packed in another way")):
        with pytest.raises(BadInput, match=why):
            unpack(here, relabelled(file, change))
    assert not here.folder.exists()


def test_another_sum_size_version_or_schema_is_refused(
    here: ExperienceStore, file: Path, tmp_path: Path
) -> None:
    files = members(file)
    right = {
        n: {"bytes": len(d), "sha256": hashlib.sha256(d).hexdigest()} for n, d in files.items()
    }
    wrong_sum = right | {"forgotten.jsonl": {**right["forgotten.jsonl"], "sha256": "0" * 64}}
    wrong_size = right | {"forgotten.jsonl": {**right["forgotten.jsonl"], "bytes": 3}}
    missing = {n: m for n, m in right.items() if n != "forgotten.jsonl"}
    for about, code, why in (
        ({"members": wrong_sum}, "bad-archive", "another SHA-256"),
        ({"members": wrong_size}, "bad-archive", "not as large"),
        ({"members": missing}, "bad-archive", "not in both"),
        (
            {"members": right | {"toy/waiting2.jsonl": right["forgotten.jsonl"]}},
            "bad-archive",
            "not in both",
        ),
        ({"version": 2}, "bad-archive", "version"),
        ({"format": "zip"}, "bad-archive", "format"),
        ({"schema": 99}, "newer-schema", "schema 99"),
    ):
        with pytest.raises(BadInput, match=why) as refused:
            unpack(here, written(tmp_path / "odd.zip", files, **about))  # type: ignore[arg-type]
        assert refused.value.code == code
    newer = {**files, "toy/experiences.jsonl": line(schema=99)}
    with pytest.raises(BadInput, match="schema 99") as refused:
        unpack(here, written(tmp_path / "odd.zip", newer))
    assert refused.value.code == "newer-schema"
    assert not here.folder.exists()


def test_two_members_of_one_name_are_refused(here: ExperienceStore, file: Path) -> None:
    with pytest.warns(UserWarning, match="Duplicate"), zipfile.ZipFile(file, "a") as packed:
        packed.writestr("held_out.jsonl", b"")
    with pytest.raises(BadInput, match="two members of one name"):
        unpack(here, file, own=True)


def test_a_bomb_is_refused_before_it_is_unpacked(
    here: ExperienceStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(archive, "SMALL", 1 << 20)
    data = b" " * (4 << 20)
    bomb = written(tmp_path / "bomb.zip", {f"toy/blobs/{hashlib.sha256(data).hexdigest()}": data})
    with pytest.raises(BadInput, match="unpack to"):
        unpack(here, bomb)
    lying = bytearray(bomb.read_bytes())
    at = lying.index(b"PK\x01\x02")  # its directory says that the member is small
    lying[at + 24 : at + 28] = (100).to_bytes(4, "little")
    bomb.write_bytes(lying)
    with pytest.raises(BadInput):
        unpack(here, bomb)


@pytest.mark.parametrize("cut", [0, 3, 200, -1, -40])
def test_half_a_file_and_what_is_no_zip_are_refused(
    cut: int, here: ExperienceStore, file: Path
) -> None:
    file.write_bytes(file.read_bytes()[:cut])
    with pytest.raises(BadInput, match="it is no zip") as refused:
        unpack(here, file, own=True)
    assert refused.value.code == "bad-archive"
    assert not here.folder.exists()


def test_each_byte_that_is_turned_over_is_noticed_or_makes_no_difference(
    there: ExperienceStore, file: Path, tmp_path: Path
) -> None:
    data, expected = file.read_bytes(), content(there)
    for at in range(7, len(data), len(data) // 25):
        file.write_bytes(data[:at] + bytes([data[at] ^ 0x41]) + data[at + 1 :])
        here = ExperienceStore(tmp_path / f"at-{at}", "hashed")
        try:
            unpack(here, file, own=True)
        except BadInput:
            assert not here.folder.exists()
        else:
            assert content(here) == expected


# -------------------------------------------------------------------------------------------
# killed, and by hand


@pytest.mark.parametrize("at", ["_take", "_take_waiting", "_take_lesson"])
def test_killed_in_the_middle_nothing_hidden_is_shown_and_the_same_again_completes_it(
    at: str,
    there: ExperienceStore,
    here: ExperienceStore,
    file: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def killed(*_: Any, **__: Any) -> Any:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(archive, at, killed)
        with pytest.raises(KeyboardInterrupt):
            unpack(here, file, own=True)
    again = ExperienceStore(here.folder.parent, "hashed")
    assert again.held_out.read().split("toy:held", "g-exam") == "test"
    assert {e.id for e in again.experiences(reader="optimizer")} <= {"a", "b", "c"}
    again.recall("closing quote", 3)
    unpack(again, file, own=True)
    assert content(again) == content(there)


KILLED = """
import os, signal, sys
from pathlib import Path
from recreate.plugins.memory_tools import archive
from recreate.memory.store import ExperienceStore
from recreate.storage import files, log
archive.BATCH, left = 10, int(sys.argv[2])
def counted(real):
    def write(*given):
        global left
        left -= 1
        if left < 0:
            os.kill(os.getpid(), signal.SIGKILL)
        return real(*given)
    return write
os.write, Path.replace = counted(os.write), counted(Path.replace)
archive.unpack(ExperienceStore(Path("."), "hashed"), Path(sys.argv[1]), own=True)
print("done")
"""


@pytest.mark.slow
def test_killed_for_good_at_any_time_the_next_command_works(
    there: ExperienceStore, tmp_path: Path
) -> None:
    there.add([experience(f"e{n}") for n in range(60)])
    file = tmp_path / "large.zip"
    pack(there, file)
    for writes in (0, 3, 8, 13):
        root = tmp_path / f"killed-{writes}"
        root.mkdir()
        code = subprocess.run(
            [sys.executable, "-c", KILLED, str(file), str(writes)], cwd=root
        ).returncode
        assert code == -9
        again = ExperienceStore(root, "hashed")
        assert {e.id for e in again.experiences(reader="optimizer")} < {
            e.id for e in there.experiences()
        }
        unpack(again, file, own=True)
        assert content(again) == content(there)


def test_the_commands_say_what_left_and_what_came(
    workspace: Path, there: ExperienceStore, file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli(["memory", "export", "mine.zip"]) != 0
    assert "nothing is remembered here" in capsys.readouterr().err
    assert not (workspace / "mine.zip").exists()
    assert cli(["memory", "import", str(file), "--dry-run"]) == 0
    said = capsys.readouterr()
    assert (
        "would take in 5 attempts and 1 that wait for a grade, 4 lessons; 0 were here already"
        in said.out
    )
    assert not (workspace / "memory").exists()
    assert cli(["memory", "import", str(file), "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["experiences"], told["lessons"], told["differ"]) == (5, 4, [])
    assert cli(["memory", "export", "mine.zip"]) == 0
    said = capsys.readouterr()
    assert "5 attempts and 1 that wait for a grade, 4 lessons written to mine.zip" in said.out
    assert "2 are validation and test attempts" in said.err
    assert cli(["memory", "export", "mine.zip"]) != 0
    assert "is there already" in capsys.readouterr().err
    assert cli(["memory", "import", "nowhere.zip"]) != 0
    assert "nowhere.zip cannot be read" in capsys.readouterr().err
    assert cli(["memory", "export", "no/such/folder.zip"]) != 0
    assert "cannot be written" in capsys.readouterr().err


def names(path: Path) -> Iterator[str]:
    with zipfile.ZipFile(path) as packed:
        yield from packed.namelist()


def test_nothing_derived_leaves(there: ExperienceStore, tmp_path: Path) -> None:
    there.recall("closing quote", 3, reader="human")
    pack(there, tmp_path / "memory.zip")
    assert not [
        name for name in names(tmp_path / "memory.zip") if "index" in name or "sqlite" in name
    ]


def test_what_comes_out_of_another_memory_is_foreign_and_none_of_its_lessons_is_in_use(
    there: ExperienceStore, file: Path, tmp_path: Path
) -> None:
    here = ExperienceStore(tmp_path / "stranger", "hashed")
    unpack(here, file)
    assert {e.trust for e in here.experiences()} == {"foreign"}
    assert all(e.claims for e in here.experiences())
    lessons = [x for _, x in lesson_files(here.folder)]
    assert {x.trust for x in lessons} == {"foreign"}
    assert "active" in {x.status for _, x in lesson_files(there.folder)}
    assert "active" not in {x.status for x in lessons}
    again = unpack(here, file)
    assert (again.experiences, again.differ) == (0, [])
    assert unpack(there, file).differ == [], "where it is from nothing is other than it is there"
