"""A workspace that an earlier version wrote opens, is searched, and goes on:
tests/old_workspace/README.md."""

from __future__ import annotations

import json
import shlex
import shutil
import sys
import tarfile
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from recreate.cli import run as cli
from tests.old_workspace.make import stable

# its domain imports a name that is found for one more release
pytestmark = pytest.mark.filterwarnings("ignore:recreate.Rung is called:DeprecationWarning")

DATA = Path(__file__).parent / "old_workspace"
SAID: dict[str, Any] = json.loads((DATA / "expected.json").read_text("utf-8"))
Type = Callable[[str], list[Any]]


def unpacked(folder: Path) -> Path:
    with tarfile.open(DATA / "old_workspace.tar.gz") as tar:
        tar.extractall(folder, filter="data")
    return folder


@pytest.fixture(scope="module")
def looked(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The old workspace, for what only looks."""
    return unpacked(tmp_path_factory.mktemp("old") / "workspace")


@pytest.fixture
def old(tmp_path: Path) -> Path:
    """The old workspace, for what changes it."""
    return unpacked(tmp_path / "workspace")


@pytest.fixture
def type_in(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Iterator[Callable[[Path], Type]]:
    """type_in(FOLDER)(COMMAND): what it prints with --json, without times, and the folder called
    WORKSPACE."""
    monkeypatch.setattr(sys, "path", [*sys.path])

    def type_in(folder: Path) -> Type:
        monkeypatch.chdir(folder)

        def type(words: str) -> list[Any]:
            capsys.readouterr()
            code = cli([*shlex.split(words), "--json"])
            out, err = capsys.readouterr()
            assert code == 0, f"{words}: {out}{err}"
            told = [json.loads(line) for line in out.replace(str(folder), "WORKSPACE").splitlines()]
            rows: list[Any] = stable(settled(told))
            return rows

        return type

    yield type_in
    sys.modules.pop("old_domain", None)


def settled(told: Any) -> Any:
    """What is told, without what a killed process had reserved: reports of the earlier code forgot
    it (the cap did not)."""
    if isinstance(told, list):
        return [settled(row) for row in told]
    if not isinstance(told, dict):
        return told
    lost = told.get("by_role", {}).get("lost in flight", {})
    kept = {
        key: round(value - lost[key], 6) if key in lost else settled(value)
        for key, value in told.items()
    }
    if lost:
        kept["by_role"] = {
            role: spent for role, spent in kept["by_role"].items() if role != "lost in flight"
        }
    return kept


def hold(found: Any, said: Any) -> Any:
    """As much of what is found as was said before: a later version may say more of a thing, not
    more things."""
    if isinstance(found, dict) and isinstance(said, dict):
        if (
            found.get("path") == said.get("path") == "README.md"
            and found.get("characters", 0) >= said["characters"]
        ):
            return said  # an agent's README.md says what stands beside its score since 2026-11-23
        if "files_digest" in said and found["index"]["count"] == 0:
            # replaced at the first question
            found = {**found, "index": said["index"], "digest": said["digest"]}
        if found.get("how") == "keywords":  # BM25 goes by what else the index holds by then
            scores = [hit["score"] for hit in said["hits"]]
            found = {
                **found,
                "hits": [{**hit, "score": s} for hit, s in zip(found["hits"], scores, strict=True)],
            }
        return {key: hold(found[key], said[key]) for key in said if key in found}
    if isinstance(found, list) and isinstance(said, list) and len(found) == len(said):
        return [hold(a, b) for a, b in zip(found, said, strict=True)]
    if (
        isinstance(found, float)
        and isinstance(said, float)
        and found == pytest.approx(said, abs=2e-6)
    ):
        return said
    return found


def records(file: Path, kind: str) -> list[dict[str, Any]]:
    """The lines of a journal or a ledger; a torn one is none."""
    rows = [
        json.loads(line)
        for line in file.read_text("utf-8").splitlines(keepends=True)
        if line.endswith("\n")
    ]
    return [row for row in rows if row["kind"] == kind]


@pytest.mark.parametrize("words", SAID["looks"])
def test_an_old_workspace_is_told_as_it_was(
    words: str, looked: Path, type_in: Callable[[Path], Type]
) -> None:
    assert hold(type_in(looked)(words), SAID["looks"][words]) == SAID["looks"][words]


def test_looking_at_an_old_workspace_leaves_its_runs_and_its_experience_alone(
    old: Path, type_in: Callable[[Path], Type]
) -> None:
    def state() -> dict[str, bytes]:
        kept = (
            p
            for name in ("runs", "memory", "scaffolds")
            for p in (old / name).rglob("*")
            if p.is_file()
        )
        return {
            str(p): p.read_bytes() for p in kept if not p.is_relative_to(old / "memory" / "index")
        }

    before, say = state(), type_in(old)
    for words in (
        "log runs/judging",
        "show runs/studying",
        "traces list",
        "memory recall word",
        "memory stats",
    ):
        say(words)
    assert state() == before


@pytest.mark.slow
@pytest.mark.parametrize("what", [what for what in SAID["does"] if not what.startswith("after")])
def test_an_old_workspace_is_worked_on_as_before(
    what: str, old: Path, type_in: Callable[[Path], Type]
) -> None:
    """Builds made again, a review, benches, imports, an index, agents and patterns; no run of
    before pays again."""
    say, ledgers = type_in(old), sorted(old.glob("runs/*/ledger.jsonl"))
    paid = {ledger: records(ledger, "reserve") for ledger in ledgers}
    for words, said in SAID["does"][what].items():
        assert hold(say(words), said) == said, words
    assert {ledger: records(ledger, "reserve") for ledger in ledgers} == paid


@pytest.mark.slow
def test_an_index_made_from_the_old_files_alone_finds_the_same(
    old: Path, type_in: Callable[[Path], Type]
) -> None:
    shutil.rmtree(old / "memory" / "index")
    say = type_in(old)
    say("memory rebuild")
    for words in (words for words in SAID["looks"] if words.startswith("memory ")):
        assert hold(say(words), SAID["looks"][words]) == SAID["looks"][words], words


@pytest.mark.slow
@pytest.mark.parametrize("run", SAID["resumed"])
def test_a_build_that_was_killed_under_an_earlier_version_ends_as_the_uninterrupted_one(
    run: str, old: Path, type_in: Callable[[Path], Type]
) -> None:
    """No call whose reply is in the journal is made again: nothing is reserved for it. But the
    study in which `studying` was killed is asked anew: the optimizer's tools have changed since, so
    that its questions are others. And the four questions of which lessons of `learning` are born
    are others since they ask for a step.
    """
    journal, ledger = (old / "runs" / run / f"{name}.jsonl" for name in ("journal", "ledger"))
    known = {record["call"] for record in records(journal, "reply")}
    reserved = Counter(record["call"] for record in records(ledger, "reserve"))
    settled = {record["call"] for record in records(ledger, "settle")}
    (killed,) = reserved.keys() - settled
    assert not journal.read_bytes().endswith(b"\n")
    assert not ledger.read_bytes().endswith(b"\n")
    say, said = type_in(old), SAID["resumed"][run]
    (ended,) = say(f"resume runs/{run}")
    again = Counter(record["call"] for record in records(ledger, "reserve"))
    anew = {call for call in known if again[call] != reserved[call]}
    study = {call for call in known if call.rpartition("/")[0] == killed.rpartition("/")[0]}
    assert anew == (study if run == "studying" else set())
    others = {record["call"] for record in records(journal, "reply")} - set(said["replies"])
    assert len(others) == (4 if run == "learning" else 0)
    outcome = {key for key in said["ended"] if key != "spend" or not (anew or others)}
    for wanted in (said["ended"], said["uninterrupted"]):
        assert {key: hold(ended, said["ended"])[key] for key in outcome} == {
            key: wanted[key] for key in outcome
        }
    replies = [record["call"] for record in records(journal, "reply")]
    assert sorted(set(replies) - others) == said["replies"]
    assert (
        sorted(record["attempt"] for record in records(journal, "experience")) == said["attempts"]
    )
    assert len(records(ledger, "settle")) - len(settled) == len(replies) - len(known)
    assert len(replies) - len(known) == said["calls"] + len(anew | others)
    for words, after in SAID["does"][f"after {run} was resumed"].items():
        assert hold(say(words), after) == after, words
