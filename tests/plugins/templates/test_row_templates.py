"""Examples of a domain: each is sound and builds with the scripted model; and rows in Python."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from recreate.cli import run as cli
from tests.cli.test_bad_input import refused

ROWS = [{"question": f"What is {n} + {n}?", "answer": str(2 * n)} for n in range(30)]


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["files", "qa", "tools"])
def test_an_example_holds_and_builds_by_what_is_told_to_type(
    workspace: Path, capsys: pytest.CaptureFixture[str], kind: str
) -> None:
    assert cli(["init", "--domain", "mine", "--template", kind, "--json"]) == 0
    made = json.loads(capsys.readouterr().out)
    check, build, _ = made["next"]
    assert cli([*check.split()[1:], "--shuffled", "3", "--json"]) == 0, capsys.readouterr().out
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [row["gold"] for row in rows] == [1.0] * 20
    flags = ["--memory.embedder", "hashed", "--train", "3", "--validation", "6", "--json"]
    flags += ["--rounds", "1"]
    assert cli([*build.split()[1:], *flags]) == 0
    built = json.loads(capsys.readouterr().out)
    assert (built["validation"]["verdict"], built["validation"]["after"]) == ("better", 1.0)


def test_an_example_makes_a_workspace_where_there_is_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert cli(["init", "fresh", "--domain", "shop", "--template", "files"]) == 0
    said = capsys.readouterr().out
    assert "cd " in said
    assert "recreate tasks check shop" in said
    assert (tmp_path / "fresh" / "recreate.toml").is_file()
    assert (tmp_path / "fresh" / "benchmarks" / "shop" / "data.jsonl").is_file()
    monkeypatch.chdir(tmp_path / "fresh")
    # a workspace takes another
    assert cli(["init", "--domain", "tools", "--template", "tools"]) == 0
    assert (
        'score = "score.py:score"'
        in (tmp_path / "fresh" / "benchmarks" / "tools" / "domain.toml").read_text()
    )


def test_an_example_goes_beside_what_data_left_in_a_plain_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    # as `tasks check --data sums.jsonl` makes it
    (tmp_path / "benchmarks" / "sums").mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
    assert cli(["init", "--domain", "mine", "--template", "qa"]) == 0, capsys.readouterr().err
    assert (tmp_path / "benchmarks" / "mine" / "domain.toml").is_file()
    assert cli(["tasks", "list", "mine"]) == 0


def test_an_example_overwrites_nothing_and_needs_a_name_and_a_kind(
    workspace: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (workspace / "benchmarks" / "qa").mkdir(parents=True)
    assert refused(capsys, "init", "--domain", "qa", "--template", "qa")["code"] == "exists"
    assert refused(capsys, "init", "--domain", "x", "--template", "haiku")["fix"].endswith(
        "tools, files"
    )
    assert refused(capsys, "init", "--domain", "x")["message"] == "which kind of example?"
    assert (
        refused(capsys, "init", "--domain", "rows", "--template", "qa")["message"]
        == "'rows' is a domain already"
    )
    assert refused(capsys, "init", "--domain", "../x", "--template", "qa")["code"] == "bad-name"
    assert list((workspace / "benchmarks").iterdir()) == [workspace / "benchmarks" / "qa"]
