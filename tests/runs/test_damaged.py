"""A run whose files are not as they were written: put right from the others, or refused with what
to type."""

from __future__ import annotations

import json
import shutil
import sqlite3
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from recreate.cli import run as cli
from recreate.runs.journal import FIELDS
from recreate.storage.log import Log, seal
from tests.lab.crash import trial
from tests.lab.crash.toy import PAID
from tests.lab.crash.trial import RUN

pytestmark = pytest.mark.plugin("each")
Type = Callable[..., tuple[int, Any]]
READ = (
    "log {}",
    "show {}",
    "show {} --html",
    "traces list {}",
    "diff seed {}",
    "studies list {}",
    "patterns diff {}",
)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A workspace with a build that has ended, and what it said."""
    folder = trial.fresh(tmp_path_factory.mktemp("whole") / "w")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.setenv("RECREATE_HOME", str(folder / "home"))
        assert cli(trial.asked(folder)) == 0
    return folder


@pytest.fixture
def here(whole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of it, and the current folder."""
    folder = tmp_path / "w"
    shutil.copytree(whole, folder)
    monkeypatch.chdir(folder)
    return folder


@pytest.fixture
def type_in(capsys: pytest.CaptureFixture[str]) -> Type:
    """(exit code, what it printed with --json: the last object)."""

    def type_in(*words: str) -> tuple[int, Any]:
        capsys.readouterr()
        code = cli([*words, "--json"])
        out = capsys.readouterr().out.splitlines()
        return code, json.loads(out[-1]) if out else {}

    return type_in


def paid(folder: Path) -> int:
    return len((folder / PAID).read_text().splitlines())


def ends_the_same(folder: Path, type_in: Type, calls: int = 0) -> None:
    """Resumed, it is the build that it was, and so many calls were paid for."""
    before, digest = paid(folder), Log(folder / RUN / "journal.jsonl")
    kept = [r["revision"]["id"] for r in digest.read(FIELDS) if r["kind"] == "revision"]
    code, told = type_in("resume", RUN)
    assert (code, told["status"]) == (0, "done")
    assert [r["id"] for r in told["revisions"]][: len(kept)] == kept
    assert (len(told["revisions"]), told["validation"]["after"]) == (3, 1.0)
    assert paid(folder) - before == calls


def attempts(folder: Path, **wanted: Any) -> Iterator[Path]:
    for record in Log(folder / RUN / "journal.jsonl").read():
        if record["kind"] == "experience" and wanted.items() <= record.items():
            yield folder / RUN / "attempts" / record["attempt"]


def flip(file: Path, at: int = -40) -> None:
    data = bytearray(file.read_bytes())
    data[at] ^= 1
    file.write_bytes(data)


def change(
    folder: Path,
    make: Callable[[dict[str, Any]], dict[str, Any] | None],
    name: str = "journal.jsonl",
) -> int:
    """Rewrite the records of a file, each with a right checksum; None leaves one out. How many were
    changed."""
    file = folder / RUN / name
    records = list(Log(file).read())
    made = [make(dict(r)) for r in records]
    file.write_bytes(b"".join(seal(r) for r in made if r is not None))
    return sum(a != b for a, b in zip(records, made, strict=True))


# -------------------------------------------------------------------------------------------------
# the checkpoint


def cut(file: Path) -> None:
    file.write_bytes(file.read_bytes()[:5000])


def rounds_are_over(file: Path) -> None:
    """Bytes that are a checkpoint all the same, of a build whose rounds are over."""
    with sqlite3.connect(file) as db:
        rows = db.execute(
            "select rowid, checkpoint from checkpoints order by checkpoint_id"
        ).fetchall()
        for row, data in rows[3:]:
            (
                db.execute("delete from checkpoints where rowid = ?", (row,))
                if row != rows[3][0]
                else None
            )
            db.execute(
                "update checkpoints set checkpoint = ? where rowid = ?",
                (data.replace(b"\xa5round\x00", b"\xa5round\x03"), row),
            )


@pytest.mark.slow
@pytest.mark.parametrize(
    "damage", [Path.unlink, cut, lambda f: f.write_bytes(b"no database"), rounds_are_over]
)
def test_a_damaged_checkpoint_is_made_again_from_the_journal(
    here: Path, type_in: Type, damage: Callable[[Path], object]
) -> None:
    damage(here / RUN / "checkpoint.sqlite")
    ends_the_same(here, type_in)


@pytest.mark.slow
def test_a_checkpoint_that_is_ahead_of_the_journal_does_not_end_the_build(
    here: Path, type_in: Type
) -> None:
    """The last round is in the checkpoint and nowhere else: it is done again, from replies that
    were paid for."""
    last = [
        r["revision"]["id"]
        for r in Log(here / RUN / "journal.jsonl").read()
        if r["kind"] == "revision"
    ][-1]
    change(here, lambda r: None if r["kind"] == "proposal" and r["round"] == 2 else r)
    change(here, lambda r: None if r["kind"] == "revision" and r["revision"]["id"] == last else r)
    ends_the_same(here, type_in)


# ------------------------------------------------------------------------------------------------
# the attempts


@pytest.mark.slow
def test_an_attempt_that_was_killed_before_its_line_comes_into_memory_and_journal_once(
    here: Path, type_in: Type
) -> None:
    (id,) = [p.name for p in attempts(here, split="train")][:1]
    (memory,) = here.glob("memory/marks/experiences/*.jsonl")
    change(here, lambda r: None if r.get("attempt") == id and r["kind"] == "experience" else r)
    memory.write_bytes(b"".join(seal(r) for r in Log(memory).read() if r["experience"]["id"] != id))
    (here / RUN / "checkpoint.sqlite").unlink()
    for _ in range(2):
        ends_the_same(here, type_in)
        assert [p.name for p in attempts(here, attempt=id)] == [id]
        assert [r["experience"]["id"] for r in Log(memory).read()].count(id) == 1


def half(file: Path) -> None:
    file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])


def test_a_damaged_attempt_that_memory_does_not_have_is_refused_with_what_to_type(
    here: Path, type_in: Type
) -> None:
    folder = next(p for p in attempts(here, split="validation"))
    half(folder / "experience.json")
    shutil.rmtree(here / "memory")
    code, told = type_in("resume", RUN)
    assert (code, told["error"]["code"]) == (2, "damaged")
    assert f"rm -r {RUN}/attempts/{folder.name}" in told["error"]["fix"]
    shutil.rmtree(folder)
    ends_the_same(here, type_in, calls=2)


# -------------------------------------------------------------------------------------------
# settings and the seed


@pytest.mark.slow
@pytest.mark.parametrize(
    "text", ["rounds = \n", "format = 2\nrounds = 'many'\n", "\udcff", "a = " + "[" * 5000]
)
def test_broken_settings_are_refused_and_the_same_command_makes_them_again(
    here: Path, type_in: Type, text: str
) -> None:
    file = here / RUN / "settings.toml"
    file.write_bytes(text.encode("utf-8", "surrogateescape"))
    for words in (["resume", RUN], ["log", RUN], ["show", RUN]):
        code, told = type_in(*words)
        assert (code, told["error"]["code"]) == (2, "damaged")
        assert f"--out {RUN}" in told["error"]["fix"]
    file.unlink()
    before = paid(here)
    code, told = type_in(*[word for word in trial.asked(here) if word != "--json"])
    assert (code, told["status"], paid(here)) == (0, "done", before)


def test_settings_that_were_changed_do_not_pay_for_the_build_again(
    here: Path, type_in: Type
) -> None:
    file = here / RUN / "settings.toml"
    file.write_text(file.read_text().replace("rounds = 3", "rounds = 4"))
    before = paid(here)
    code, told = type_in("resume", RUN)
    assert (code, told["error"]["code"], paid(here)) == (2, "another-run", before)


@pytest.mark.slow
@pytest.mark.parametrize("damage", [lambda f: f.write_text("Be brief."), Path.unlink, half])
def test_a_seed_that_was_changed_is_put_back(
    here: Path, type_in: Type, damage: Callable[[Path], object]
) -> None:
    file = here / RUN / "seed" / "system.md"
    before = file.read_text()
    damage(file)
    ends_the_same(here, type_in)
    assert file.read_text() == before


# ------------------------------------------------------------------------------------------------
# the journal


def test_an_emptied_journal_is_not_taken_for_a_beginning(here: Path, type_in: Type) -> None:
    for damage in (lambda f: f.write_bytes(b""), Path.unlink):
        damage(here / RUN / "journal.jsonl")  # type: ignore[no-untyped-call]
        before = paid(here)
        code, told = type_in("resume", RUN)
        assert (code, told["error"]["code"], paid(here)) == (2, "damaged", before)
        assert "--out" in told["error"]["fix"]


KINDS = (
    "start",
    "seed",
    "experience",
    "proposal",
    "memory",
    "revision",
    "snapshot",
    "end",
    "reply",
)


def spoiled(kind: str) -> Callable[[dict[str, Any]], dict[str, Any]]:
    """A record of a kind with none of the fields that it is read for, or with others in their
    place."""

    def spoil(record: dict[str, Any]) -> dict[str, Any]:
        fields: Mapping[str, Any] = FIELDS[kind] if record["kind"] == kind else {}
        return {k: ["?"] if k in fields else v for k, v in record.items()}

    return spoil


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_lines_with_other_fields_are_passed_over_by_whoever_reads(
    here: Path, type_in: Type, kind: str
) -> None:
    assert change(here, spoiled(kind))
    for words in READ:
        code, told = type_in(*words.format(RUN).split())
        assert code in (0, 2), (words, told)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["seed", "experience", "proposal", "memory", "revision", "end"])
def test_a_build_ends_the_same_whatever_kind_of_line_it_lost(
    here: Path, type_in: Type, kind: str
) -> None:
    change(here, spoiled(kind))
    code, told = type_in("resume", RUN)
    assert (code, told["validation"]["after"]) == (0, 1.0)
    assert len(told["revisions"]) == 3


def test_how_many_lines_were_passed_over_is_said(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    flip(here / RUN / "journal.jsonl")
    for words in (["log", RUN], ["show", RUN], ["resume", RUN]):
        assert cli(words) == 0
        assert "1 damaged line" in capsys.readouterr().err


# ------------------------------------------------------------------------------------------------
# the ledger


def some(file: Path) -> None:
    """Every second line is damaged."""
    lines = file.read_bytes().splitlines(keepends=True)
    file.write_bytes(
        b"".join(
            line.replace(b'"call"', b'"cell"') if n % 2 else line for n, line in enumerate(lines)
        )
    )


def other_fields(file: Path) -> None:
    """A right checksum on lines that say nothing."""
    kinds = [r["kind"] for r in Log(file).read()]
    file.write_bytes(
        b"".join(seal({"kind": kind, "seconds": "long", "usage": 3}) for kind in kinds)
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    "damage", [Path.unlink, lambda f: f.write_bytes(b""), half, some, other_fields]
)
def test_a_damaged_ledger_forgets_no_call_and_no_attempt(
    here: Path, type_in: Type, capsys: pytest.CaptureFixture[str], damage: Callable[[Path], object]
) -> None:
    before = type_in("show", RUN)[1]["spend"]
    damage(here / RUN / "ledger.jsonl")
    seen = type_in("show", RUN)[1]["spend"]
    for figure in ("calls", "usd", "tokens_in", "by_role"):
        assert seen[figure] == before[figure]
    code = cli(["resume", RUN, "--json"])
    out, err = capsys.readouterr()
    spent = json.loads(out.splitlines()[-1])["spend"]
    assert (code, spent["calls"], spent["by_role"]) == (0, before["calls"], before["by_role"])
    assert "counted again from the journal" in err
    attempts_of = [
        r["attempt"]
        for r in Log(here / RUN / "ledger.jsonl").read()
        if r["kind"] == "attempt" and "attempt" in r
    ]
    assert len(attempts_of) == len(set(attempts_of)) == 23


def test_a_call_whose_reply_was_kept_and_not_settled_is_charged_what_it_took(
    here: Path, type_in: Type
) -> None:
    """What a kill between the two lines leaves: the reservation is not lost in flight, for the
    reply is there."""
    before = type_in("show", RUN)[1]["spend"]
    last = [r["call"] for r in Log(here / RUN / "ledger.jsonl").read() if r["kind"] == "settle"][-1]
    change(
        here, lambda r: None if r["kind"] == "settle" and r["call"] == last else r, "ledger.jsonl"
    )
    assert type_in("resume", RUN)[1]["spend"]["by_role"] == before["by_role"]


# -------------------------------------------------------------------------------------------------
# something else in a file's place


def _folder(place: Path) -> None:
    place.mkdir()
    (place / "x").touch()


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", ["lock", "checkpoint.sqlite", "journal.jsonl", "ledger.jsonl", "report.md"]
)
@pytest.mark.parametrize(
    "put", [_folder, lambda p: p.symlink_to("nowhere/at/all"), lambda p: p.symlink_to(p.name)]
)
@pytest.mark.usefixtures("each_step")
def test_what_stands_in_the_place_of_a_runs_file_is_named_and_is_no_crash(
    here: Path, type_in: Type, name: str, put: Callable[[Path], object]
) -> None:
    place = here / RUN / name
    place.unlink()
    put(place)
    link = place.is_symlink()
    code, told = type_in("resume", RUN)
    if name == "report.md" and link:  # a report is written anew, and nowhere else
        assert (code, place.is_symlink()) == (0, False)
        return
    assert code == 2
    assert name in told["error"]["message"] or "journal" in told["error"]["message"]
    assert "rm " not in told["error"]["fix"]
    assert not [*(here / "home").glob("crash-*")]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "put"),
    [
        ("report.html", _folder),
        ("scaffold.git", Path.touch),
        ("scaffold.git", lambda p: p.symlink_to("nowhere")),
        ("seed/format.md", lambda p: p.symlink_to(p.name)),
        ("experience.json", _folder),
        ("experience.json", lambda p: p.symlink_to(p.name)),
    ],
)
def test_so_it_is_where_a_folder_or_another_file_stood(
    here: Path, type_in: Type, name: str, put: Callable[[Path], object]
) -> None:
    place = here / RUN / name
    if name == "experience.json":
        place = next(attempts(here)) / name
    shutil.rmtree(place, ignore_errors=True)
    place.unlink(missing_ok=True)
    put(place)
    code, told = type_in("resume", RUN)
    assert code == 2
    assert place.name in told["error"]["message"]
    assert not [*(here / "home").glob("crash-*")]
