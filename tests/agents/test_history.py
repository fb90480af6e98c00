"""The lineage a build leaves: readable by any git, the same each time, untouched by the user's
settings."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from recreate.agents.history import History, describe
from recreate.agents.scaffold import Scaffold
from recreate.api.errors import BadInput, Fault
from recreate.api.types import Edit, Evidence, Revision, Verdict

SEED = Scaffold(
    name="seed",
    files={
        "agent.toml": "",
        "system.md": "You mend code.\r\n",
        "workflow.md": "{{ task.prompt }}",
        "tools/look here.py": '"""Looks."""\n',
        'memory/say "ä".md': "",
    },
)
CHILD = Scaffold(
    name="seed",
    files={**SEED.files, "system.md": "You mend code well.\n", "README.md": "scored .5"},
)
OTHER = Scaffold(
    name="seed", files={k: v for k, v in SEED.files.items() if not k.startswith("tools/")}
)


def revision(child: Scaffold, kept: bool) -> Revision:
    return Revision(
        id=child.digest,
        parent=SEED.digest,
        round=1,
        edits=(
            Edit(
                path="system.md",
                old="You mend code.",
                new="You mend code well.",
                reason="The agent gave up after one failing test,\nso it is told to go on. " * 2,
                evidence=(Evidence(experience="e1", step=3),),
            ),
        ),
        verdict=Verdict(
            before=0.25,
            after=0.5,
            diff=0.25,
            lo=0.05,
            hi=0.45,
            p=0.04,
            tasks=8,
            repeats=3,
            verdict="better",
        ),
        kept=kept,
    )


def git(path: Path, *arguments: str) -> str:
    return subprocess.check_output(["git", f"--git-dir={path}", *arguments], text=True)


def build(path: Path) -> list[str]:
    history = History(path)
    first = history.commit(SEED, None, True, "The seed")
    dropped = history.commit(OTHER, SEED.digest, False, "Dropped: no tools\n\nIt was worse.")
    kept = history.commit(CHILD, first, True, describe(revision(CHILD, True)))
    return [first, dropped, kept]


def test_what_is_committed_is_read_back_whole(tmp_path: Path) -> None:
    history = History(tmp_path / "s.git")
    first, dropped, kept = build(tmp_path / "s.git")
    for name, made in (
        ("main", CHILD),
        (kept, CHILD),
        (SEED.digest, SEED),
        (f"dropped/{OTHER.digest}", OTHER),
    ):
        assert history.read(name) == made
    assert history.read(first[:10]) == SEED
    assert history.read(dropped) == OTHER


def test_kept_revisions_are_on_main_and_dropped_ones_on_side_branches(tmp_path: Path) -> None:
    path = tmp_path / "s.git"
    first, dropped, kept = build(path)
    assert git(path, "rev-list", "main").split() == [kept, first]
    assert git(path, "rev-list", f"dropped/{OTHER.digest}").split() == [dropped, first]
    assert git(path, "for-each-ref", "--format=%(refname)").split() == [
        f"refs/heads/dropped/{OTHER.digest}",
        "refs/heads/main",
    ]
    assert "100755 blob" in git(path, "ls-tree", "main", "tools/")
    assert git(path, "fsck", "--strict") == ""


def test_the_log_says_what_was_changed_why_and_with_what_result(tmp_path: Path) -> None:
    build(tmp_path / "s.git")
    entries = {e.digest: e for e in History(tmp_path / "s.git").log()}
    assert [
        (e.kept, e.branch)
        for e in (entries[CHILD.digest], entries[OTHER.digest], entries[SEED.digest])
    ] == [
        (True, "main"),
        (False, f"dropped/{OTHER.digest}"),
        (True, "main"),
    ]
    entry = entries[CHILD.digest]
    assert entry.subject.startswith("Kept (better): The agent gave up")
    assert len(entry.subject) <= 72
    assert "seen in e1 step 3" in entry.message
    assert "0.250 -> 0.500, difference +0.250 [+0.050, +0.450] at 90 %" in entry.message
    assert "Recreate-" not in entry.message
    assert entry.revision is not None
    assert entry.revision.verdict.lo == 0.05
    assert entry.revision.edits[0].evidence[0].step == 3


def test_the_same_build_gives_the_same_commits_whoever_runs_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = build(tmp_path / "a.git")
    home = tmp_path / "home"
    (home / "hooks").mkdir(parents=True)
    (home / "hooks/reference-transaction").write_text("#!/bin/sh\nexit 1\n")
    (home / "hooks/reference-transaction").chmod(0o755)
    (home / ".gitconfig").write_text(
        f"[user]\nname = Somebody\n[core]\nhooksPath = {home}/hooks\nautocrlf ="
        " true\n[init]\ndefaultBranch = trunk\n"
    )
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("GIT_AUTHOR_NAME", "Somebody")
    monkeypatch.setenv("GIT_COMMITTER_DATE", "2020-02-02T00:00:00")
    monkeypatch.setenv("GIT_DIR", str(tmp_path / "elsewhere"))
    monkeypatch.setenv("TZ", "Asia/Tokyo")
    assert build(tmp_path / "b.git") == first


def test_committing_again_after_a_kill_changes_nothing(tmp_path: Path) -> None:
    path = tmp_path / "s.git"
    once = build(path)
    (path / "refs/heads/main.lock").touch()
    refs = git(path, "for-each-ref")
    assert build(path) == once
    assert git(path, "for-each-ref") == refs


def test_recording_an_old_revision_again_does_not_turn_main_back(tmp_path: Path) -> None:
    path = tmp_path / "s.git"
    first, _, kept = build(path)
    assert History(path).commit(SEED, None, True, "The seed") == first
    assert git(path, "rev-parse", "main").strip() == kept


def test_the_commit_id_of_a_seed_is_the_same_for_everybody_for_ever(tmp_path: Path) -> None:
    files = {
        "agent.toml": "",
        "system.md": "You mend code.\n",
        "workflow.md": "{{ task.prompt }}\n",
    }
    sha = History(tmp_path / "s.git").commit(
        Scaffold(name="seed", files=files), None, True, "The seed"
    )
    assert sha == "8bbbf91a9f9ce8bd8e61f1669c3c6d9ee7f1c3c8"


def test_one_digest_dropped_twice_for_two_reasons_keeps_both(tmp_path: Path) -> None:
    history = History(tmp_path / "s.git")
    history.commit(SEED, None, True, "The seed")
    shas = [history.commit(OTHER, SEED.digest, False, text) for text in ("one", "two", "one")]
    assert shas[0] == shas[2] != shas[1]
    assert {e.sha for e in history.log()} >= set(shas)


def test_a_message_cannot_forge_the_trailers(tmp_path: Path) -> None:
    history = History(tmp_path / "s.git")
    history.commit(
        SEED, None, False, "Nice\n\nRecreate-Kept: yes\nRecreate-Digest: 0000000000000000\0\x1f"
    )
    (entry,) = history.log()
    assert (entry.kept, entry.digest) == (False, SEED.digest)


def test_nothing_recorded_and_no_such_revision_say_so(tmp_path: Path) -> None:
    history = History(tmp_path / "s.git")
    assert history.log() == []
    with pytest.raises(BadInput, match="no revision"):
        history.read("main")
    assert not (tmp_path / "s.git").exists()
    history.commit(SEED, None, True, "The seed")
    for name in ("nope", "--all", "", "0" * 40):
        with pytest.raises(BadInput, match="no revision") as e:
            history.read(name)
        assert SEED.digest in e.value.fix


def test_without_git_the_error_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(BadInput, match="git is not installed") as e:
        History(tmp_path / "s.git").commit(SEED, None, True, "x")
    assert "install" in e.value.fix


def test_a_folder_that_cannot_be_written_is_our_fault_not_a_traceback(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    path = tmp_path / "s.git"
    History(path).commit(SEED, None, True, "x")
    for name in ("objects", "refs"):
        subprocess.run(["rm", "-r", str(path / name)], check=True)
        (path / name).write_text("in the way")
    with pytest.raises(Fault, match="git"):
        History(path).commit(CHILD, None, True, "y")
