"""Real bugs in number: hunks, the fewest that a test needs, releases and commits told apart, texts,
splits."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recreate.api import registry
from recreate.api.errors import BadInput, Fault, Interrupted
from recreate.api.types import Split
from recreate.domains.python_env import Environment
from recreate.domains.validate import validate
from recreate.plugins.swe import Swe, facts, hunks, sources
from recreate.plugins.swe.case import RealCase
from recreate.plugins.swe.facts import Bug, wrong_issue
from recreate.plugins.swe.test_run import TestResults as Results
from recreate.plugins.swe_tasks import change, commits, releases
from recreate.plugins.swe_tasks.change import Candidate, ChangeStudy
from recreate.plugins.swe_tasks.commands import make_tasks
from recreate.sandboxes import choose
from tests.plugins.swe.swe_project import Project, _environment, write

TEXTS = st.lists(st.sampled_from(["a\n", "b\n", "c\n", "d", ""]), max_size=12).map("".join)


# --- hunks
# ------------------------------------------------------------------------------------------------


@given(TEXTS, TEXTS)
def test_all_hunks_give_the_later_text_and_none_the_earlier(before: str, after: str) -> None:
    numbers = range(1, len(hunks.numbered(before, after)) + 1)
    assert hunks.applied(before, after, numbers) == after
    assert hunks.applied(before, after, ()) == before


@given(TEXTS, TEXTS, st.data())
def test_a_hunk_changes_its_own_lines_alone(before: str, after: str, data: st.DataObject) -> None:
    found = hunks.numbered(before, after)
    if not found:
        return
    number = data.draw(st.integers(1, len(found)))
    hunk, old = found[number - 1], hunks.lines(before)
    text = hunks.applied(before, after, [number])
    assert text == "".join([*old[: hunk.low], *hunk.new, *old[hunk.high :]])


def test_a_file_that_comes_or_goes_is_one_hunk() -> None:
    assert hunks.applied(None, "x\n", [1]) == "x\n"
    assert hunks.applied(None, "x\n", ()) is None
    assert hunks.applied("x\n", None, [1]) is None


@given(st.sets(st.integers(0, 30), min_size=1), st.integers(31, 60))
def test_what_a_test_needs_is_found_whatever_lies_around_it(needed: set[int], count: int) -> None:
    assert hunks.minimal(range(count), lambda some: needed <= set(some)) == sorted(needed)


@given(st.lists(st.sets(st.integers(0, 9), min_size=1), min_size=1, max_size=3))
def test_nothing_can_be_taken_away_from_what_is_found(ways: list[set[int]]) -> None:
    def passes(some: Sequence[int]) -> bool:
        return any(way <= set(some) for way in ways)

    found = hunks.minimal(range(10), passes)
    assert passes(found)
    assert not any(passes([n for n in found if n != gone]) for gone in found)


def test_what_may_be_asked_is_told_ahead() -> None:
    told: list[frozenset[int]] = []

    def passes(some: Sequence[int]) -> bool:
        assert frozenset(some) in told
        return {2, 5} <= set(some)

    assert hunks.minimal(range(8), passes, lambda sets: told.extend(map(frozenset, sets))) == [2, 5]


def test_tests_that_need_a_common_hunk_belong_together() -> None:
    needs = {"a": [1], "b": [2], "c": [3, 4], "d": [4, 1], "e": [2]}
    assert hunks.clusters(needs) == [(["a", "c", "d"], {1, 3, 4}), (["b", "e"], {2})]


def test_comments_blank_lines_and_docstrings_are_no_part_of_a_mend() -> None:
    before = 'def f():\n    """One."""\n    return 1\n\n\n# a\nx = 1\n'
    after = 'def f():\n    """Two."""\n    return 1\n\n\n# b\n\nx = 2\n'
    found = [hunks.silent(before, after, h) for h in hunks.numbered(before, after)]
    assert found == [True, True, False] or found == [True, False]


def test_the_fingerprint_tells_another_cut() -> None:
    change = {"a.py": ("x\ny\n", "x\nz\n")}
    assert hunks.fingerprint(change, {"a.py": [1]}) != hunks.fingerprint(
        {"a.py": ("x\ny\n", "w\nz\n")}, {"a.py": [1]}
    )
    with pytest.raises(KeyError):
        hunks.fingerprint(change, {"a.py": [2]})


# --- a release with two bugs and a feature
# ---------------------------------------------------------------

BEFORE = {
    "calm/__init__.py": "",
    "calm/words.py": (
        "def shout(text):\n    return text.upper()\n\n\ndef first(text):\n    return text[1]\n\n\n"
        "def last(text):\n    return text[-1]\n"
    ),
    "tests/test_words.py": (
        "from calm import words\n\n\ndef test_last():\n    assert words.last('ab') == 'b'\n\n\n"
        "def test_first():\n    assert words.first('aab') == 'a'\n"
    ),
}
AFTER = {
    "calm/__init__.py": "",
    "calm/words.py": (
        "MARK = '!'\n\n\ndef shout(text):\n    return text.upper() + MARK\n\n\n"
        "def first(text):\n    return text[0]\n\n\n"
        "def last(text):\n    return text[-1]\n\n\ndef whisper(text):\n    return text.lower()\n"
    ),
    "tests/test_words.py": (
        "from calm import words\n\n\ndef test_last():\n    assert words.last('ab') == 'b'\n\n\ndef"
        " test_first():\n    assert words.first('aab') == 'a'\n    assert words.first('xyz') =="
        " 'x'\n\n\ndef test_shout():\n    assert words.shout('a') == 'A!'\n\n\ndef"
        " test_whisper():\n    assert words.whisper('A') == 'a'\n"
    ),
}
ISSUE = (
    "I use the package to shorten names for a table of people. For a name like xyz the call"
    " first('xyz') gives the letter y where I would have expected the very first one, x. With names"
    " that begin with a double letter nobody sees it, which is why it went unnoticed here for such"
    " a long time."
)


def git(repo: Path, *arguments: str, date: str = "2026-01-01T00:00:00") -> None:
    env = {
        "GIT_AUTHOR_DATE": date,
        "GIT_COMMITTER_DATE": date,
        "PATH": "/usr/bin:/bin",
        "HOME": str(repo),
    }
    who = ["-c", "user.name=a", "-c", "user.email=a@b.c"]
    subprocess.run(["git", *who, *arguments], cwd=repo, env=env, check=True, capture_output=True)


@pytest.fixture(scope="session")
def _repo(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A repository: a commit, one that changes no tests, one that mends two bugs and brings a
    feature."""
    folder = tmp_path_factory.mktemp("history") / "calm"
    folder.mkdir()
    git(folder, "init", "-q")
    for day, text, files in (
        (1, "begin", BEFORE),
        (2, "words", {"README.md": "calm\n"}),
        (3, "mend", AFTER),
    ):
        write(folder, files)
        git(folder, "add", "-A")
        git(folder, "commit", "-qm", text, date=f"2026-01-0{day}T00:00:00")
    return folder


@pytest.fixture(scope="session")
def _found(_project: Project, _repo: Path) -> list[Candidate]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RECREATE_HOME", str(_project.home / "home"))
        study = ChangeStudy(bug(_repo), _project.env, choose(), lambda _: None)
        study.begin()
        return study.behaviours()


@pytest.fixture
def repo(_repo: Path, project: Project) -> Path:
    return _repo


@pytest.fixture
def found(project: Project, _found: list[Candidate]) -> list[Candidate]:
    """What the last commit mends, told apart as that of a release is."""
    return _found


def bug(repo: Path) -> Bug:
    last, *_ = sources.commits(repo)
    after, parent = last.id, last.parent
    return Bug(
        id="?",
        package="calm",
        path=str(repo),
        before=parent,
        after=after,
        before_sha256=sources.at(repo, parent)[1],
        after_sha256=sources.at(repo, after)[1],
        split="train",
        group="calm",
        tests=("tests",),
        fail_to_pass=("?",),
    )


@pytest.mark.slow
def test_a_release_is_told_apart_behaviour_by_behaviour_and_its_features_are_left_out(
    found: list[Candidate],
) -> None:
    bugs = {c.bug.fail_to_pass: c.bug.hunks for c in found if c.kind == "bug"}
    assert bugs == {
        ("tests/test_words.py::test_shout",): {"calm/words.py": (1, 2)},
        ("tests/test_words.py::test_first",): {"calm/words.py": (3,)},
    }
    features = {c.bug.fail_to_pass: c.why for c in found if c.kind == "feature"}
    assert features == {("tests/test_words.py::test_whisper",): "uses whisper"}


@pytest.mark.slow
def test_no_trial_sees_the_copy_that_the_environment_has(project: Project, tmp_path: Path) -> None:
    env = _environment(tmp_path / "env")
    [site] = env.glob("lib/python3*/site-packages")
    write(site, {"calm/__init__.py": "pass\n", "calm/words.py": AFTER["calm/words.py"]})
    asked = (
        "import os, sys, time\nfrom calm import words\n\n\ndef test_first():\n    copies = [path"
        " for path in sys.path if os.path.exists(path + '/calm/words.py') and 'packages' in path]\n"
        "    assert words.first('xyz') == 'x' or copies, time.time_ns()\n"
    )
    repo = tmp_path / "calm"
    for number, files in enumerate((BEFORE, {**AFTER, "tests/test_words.py": asked}), 1):
        write(repo, files)
        git(repo, "init", "-q")
        git(repo, "add", "-A")
        git(repo, "commit", "-qm", "words", date=f"2026-01-0{number}T00:00:00")
    study = ChangeStudy(bug(repo), env, choose(), lambda _: None)
    study.begin()
    [found] = study.behaviours()
    assert found.bug.hunks == {"calm/words.py": (3,)}
    assert found.bug.observed["tests/test_words.py::test_first"].startswith(
        "AssertionError: ... assert ("
    )


@pytest.mark.slow
def test_a_candidate_shows_what_an_author_needs(found: list[Candidate]) -> None:
    first = next(c for c in found if "first" in c.bug.fail_to_pass[0])
    assert "-    return text[1]\n+    return text[0]" in first.gold
    assert "MARK" not in first.gold
    assert "assert words.first('xyz') == 'x'" in first.tests["tests/test_words.py::test_first"]
    assert "'y' == 'x'" in first.failures["tests/test_words.py::test_first"]


def test_recipes_hold_numbers_and_no_code(found: list[Candidate], tmp_path: Path) -> None:
    file = tmp_path / "releases.toml"
    facts.add_bugs(file, [c.bug for c in found if c.kind == "bug"])
    text = file.read_text()
    assert '"calm/words.py" = [3]' in text
    assert "text[0]" not in text
    assert text.count("[[release]]") == 1
    assert [b.id for b in facts.bugs(file)] == sorted(b.id for b in facts.bugs(file))


@pytest.mark.slow
def test_tasks_of_one_release_hold_and_their_gold_mends_one_behaviour_alone(
    found: list[Candidate], project: Project, tmp_path: Path
) -> None:
    file = tmp_path / "releases.toml"
    issued = [
        c.bug.model_copy(update={"issue": ISSUE}) for c in found if "first" in c.bug.fail_to_pass[0]
    ]
    facts.add_bugs(
        file,
        [*issued, *(c.bug for c in found if c.kind == "bug" and "shout" in c.bug.fail_to_pass[0])],
    )
    swe = Swe(file, env=project.env, say=lambda _: None, patience=2.0)
    backend = choose()
    proofs = [validate(swe, task, backend) for task in swe.tasks()]
    assert [(p.ok, p.reason) for p in proofs] == [(True, ""), (True, "")]
    told = {task.facts["fail_to_pass"][0]: task for task in swe.tasks()}
    task = told["tests/test_words.py::test_first"]
    assert swe.gold(task).count("\n+") == 2  # the header, and the one line
    passed = swe.baseline(task, backend).passed
    assert "tests/test_words.py::test_last" in passed
    assert "tests/test_words.py::test_shout" not in passed


@pytest.mark.slow
def test_a_gold_that_breaks_what_passed_untouched_is_refused_and_says_what_it_breaks(
    project: Project, tmp_path: Path
) -> None:
    repo, words, tests = tmp_path / "calm", "calm/words.py", "tests/test_words.py"
    wavers = (
        "\n\nimport pytest, time\n@pytest.mark.parametrize('x', [time.time_ns()])\ndef"
        " test_wavers(x): pass\n"
    )
    named = AFTER[words].replace("text[-1]", "text[LAST]").replace("MARK =", "LAST = -1\nMARK =")
    end = {
        "tests/test_end.py": (
            "from calm.words import last\n\nassert last('a') == 'a'\n\n\ndef test_end(): pass\n"
        )
    }
    for number, files in enumerate(
        (BEFORE, {**AFTER, **end, words: named, tests: AFTER[tests] + wavers}), 1
    ):
        write(repo, files)
        git(repo, "init", "-q")
        git(repo, "add", "-A")
        git(repo, "commit", "-qm", "words", date=f"2026-01-0{number}T00:00:00")
    change, chosen = told(bug(repo)).change(), {words: (3, 4)}  # without what defines LAST
    update = {
        "id": "first",
        "fail_to_pass": ("tests/test_words.py::test_first",),
        "issue": ISSUE,
        "hunks": chosen,
    }
    facts.add_bugs(
        tmp_path / "r.toml",
        [bug(repo).model_copy(update=update | {"hunks_digest": hunks.fingerprint(change, chosen)})],
    )
    swe = Swe(tmp_path / "r.toml", env=project.env, say=lambda _: None, patience=2.0)
    proof = validate(swe, swe.tasks()[0], choose())
    assert (proof.ok, proof.gold, proof.untouched) == (False, 1.0, 0.0)
    assert (
        proof.reason == "the gold breaks what passes untouched: tests/test_end.py::test_end,"
        " tests/test_words.py::test_last"
    )


# --- what an agent is told
# --------------------------------------------------------------------------------


def told(bug: Bug, shown: facts.Shown | None = None) -> RealCase:
    return RealCase(bug, lambda _: None, shown)


def test_an_issue_is_shown_unless_the_whole_is_asked_for(found: list[Candidate]) -> None:
    one = next(c.bug for c in found if c.kind == "bug")
    both = one.model_copy(
        update={"issue": ISSUE, "prompt": "All that is expected.", "reproduce": "def test(): ..."}
    )
    issue, spec = told(both).task(), told(both, "spec").task()
    title = told(both.model_copy(update={"title": "first() gives zero"}), "title").task()
    assert "\n\nfirst() gives zero\n\n" in title.prompt
    assert ISSUE not in title.prompt
    assert title.id == issue.id + ":title"
    assert told(both, "title").task().id == issue.id
    assert ISSUE in issue.prompt
    assert "reproduce" not in issue.prompt
    assert not (told(both).start_folder() / sources.REPRODUCE).exists()
    assert "All that is expected." in spec.prompt
    assert spec.id == issue.id + ":spec"
    assert spec.digest != issue.digest
    assert told(one.model_copy(update={"prompt": "All."}), "issue").task().prompt.count("All.") == 1


def test_without_a_text_half_of_the_tests_are_shown_and_the_others_are_not_there(
    found: list[Candidate],
) -> None:
    shout, first = (c.bug for c in found if c.kind == "bug")
    both = {
        "fail_to_pass": (*first.fail_to_pass, *shout.fail_to_pass),
        "hunks": {},
        "hunks_digest": "",
    }
    assert first.public == ("tests/test_words.py::test_first",)
    case = told(first.model_copy(update=both))
    prompt = case.task().prompt
    assert "tests/test_words.py::test_first\n  AssertionError: assert 'y' == 'x'" in prompt.replace(
        "assert ", "assert "
    )
    assert "test_shout" not in prompt
    shown = (case.start_folder() / "tests/test_words.py").read_text()
    assert "xyz" in shown
    assert "test_shout" not in shown
    assert "whisper" not in shown


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (ISSUE, ""),
        ("Too short.", "has 2 words"),
        (ISSUE * 3, "words; 40 to 120"),
        (ISSUE + " See test_first for it.", "names the hidden test test_first"),
        (ISSUE + " It needs return text.upper() + MARK there.", "holds a line of what mends it"),
    ],
)
def test_an_issue_gives_nothing_away(text: str, why: str) -> None:
    said = wrong_issue(
        text, ["t.py::test_first[a]"], "-    return text.upper()\n    return text.upper() + MARK"
    )
    assert why in said
    assert bool(said) == bool(why)


def test_an_issue_that_names_a_test_stops_the_file(found: list[Candidate], tmp_path: Path) -> None:
    one = next(c.bug for c in found if "first" in c.bug.fail_to_pass[0])
    facts.add_bugs(
        tmp_path / "releases.toml", [one.model_copy(update={"issue": ISSUE + " test_first"})]
    )
    with pytest.raises(BadInput, match=r"release.bug.* number 1: its issue names the hidden test"):
        facts.bugs(tmp_path / "releases.toml")


def test_the_prompt_names_tests_that_the_earlier_sources_have(
    found: list[Candidate], tmp_path: Path
) -> None:
    write(tmp_path / "old", {"test_a.py": "def test(): ...", "a.py": ""})
    write(tmp_path / "new", {"tests/test_a.py": "def test(): ...", "a.py": ""})
    layout = change.layout(tmp_path / "old", tmp_path / "new", (), (), "a")
    assert (layout["tests"], layout["given"]) == (("tests",), ("test_a.py",))
    assert "given" not in change.layout(tmp_path / "new", tmp_path / "new", (), (), "a")
    bug = found[0].bug.model_copy(update={"issue": ISSUE, "given": ("test_a.py",)})
    assert "`python3 -m pytest test_a.py`" in told(bug).task().prompt


@pytest.mark.parametrize(
    ("title", "why"),
    [
        ("It fails", "has 2 words"),
        ("one two three\nfour", "one line"),
        ("w " * 15, "has 15 words"),
        ("test_first fails always", "names the hidden test test_first"),
    ],
)
def test_a_title_is_one_line_and_names_no_test(
    found: list[Candidate], tmp_path: Path, title: str, why: str
) -> None:
    one = next(c.bug for c in found if "first" in c.bug.fail_to_pass[0])
    facts.add_bugs(
        tmp_path / "releases.toml", [one.model_copy(update={"issue": ISSUE, "title": title})]
    )
    with pytest.raises(BadInput, match=f"its title .*{why}"):
        facts.bugs(tmp_path / "releases.toml")


def test_hunks_of_another_difflib_are_refused(found: list[Candidate]) -> None:
    one = next(c.bug for c in found if c.kind == "bug")
    for update in ({"hunks_digest": "0" * 16}, {"hunks": {"calm/words.py": (99,)}}):
        with pytest.raises(BadInput, match="not those that it was made with") as refused:
            told(one.model_copy(update=update)).gold()
        assert refused.value.code == "stale-recipe"


def test_how_bugs_are_told_is_a_flag_of_the_domain(found: list[Candidate], tmp_path: Path) -> None:
    one = next(c.bug for c in found if "first" in c.bug.fail_to_pass[0])
    file = tmp_path / "releases.toml"
    facts.add_bugs(
        file, [one.model_copy(update={"issue": ISSUE, "prompt": "All that is expected."})]
    )
    opened = {
        p: registry.open_domain("swe", tmp_path, str(file), prompt=p).tasks()[0].prompt
        for p in ("", "spec")
    }
    assert ISSUE in opened[""]
    assert "All that is expected." in opened["spec"]
    with pytest.raises(BadInput, match="no way to tell a bug"):
        registry.open_domain("swe", tmp_path, str(file), prompt="riddle")


@pytest.mark.parametrize(
    ("more", "alike"),
    [
        (
            (
                "def grown(): ...\n\nclass TestB:\n    def setUp(self): ...\n    def test_b(self):"
                " ...\n"
            ),
            True,
        ),
        ("import os\n", True),
        ("def test_c(): ...\n", True),
        ("def helper(): ...\n", False),  # which the old text names
        ("def setUpModule(): ...\n", False),
        ("@fixture\ndef grown(): ...\n", False),
        ("LIMIT = 4\n", False),
    ],
)
def test_tests_that_did_not_change_are_left_out_where_nothing_that_they_read_did(
    more: str, alike: bool
) -> None:
    old = (
        "LIMIT = 3\n\nclass TestA(Base):\n    def setUp(self): helper()\n    def test_a(self):"
        " ...\n"
    )
    assert sources.reads_alike(old, old + more) is alike
    assert not sources.reads_alike(old, old.replace("helper()", "pass"))
    assert not sources.reads_alike(old, old.replace("(Base)", ""))
    assert not sources.reads_alike(old, old.replace("LIMIT = 3\n", ""))
    assert not sources.reads_alike(old, old + "(")


# --- making them
# ------------------------------------------------------------------------------------------


def branch(repo: Path) -> None:
    """Merge a branch that mends `last` in one commit, beside something that no test tells, and
    tests it in another."""
    git(repo, "checkout", "-qb", "last")
    mended = (
        AFTER["calm/words.py"]
        .replace("text[-1]", "text[-1:]")
        .replace("text.lower()", "str(text).lower()")
    )
    write(repo, {"calm/words.py": mended})
    git(repo, "commit", "-qam", "mend", date="2026-01-04T00:00:00")
    tests = "def test_last():\n    assert words.last('') == ''\n"
    write(repo, {"tests/test_words.py": AFTER["tests/test_words.py"] + "\n\n" + tests})
    git(repo, "commit", "-qam", "test", date="2026-01-05T00:00:00")
    git(repo, "checkout", "-q", "-")
    git(repo, "merge", "-q", "--no-ff", "-m", "merged", "last", date="2026-01-06T00:00:00")


@pytest.mark.slow
def test_commits_become_tasks_newest_first_and_the_same_command_goes_on(
    repo: Path, project: Project, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    repo = Path(shutil.copytree(repo, tmp_path / "calm"))
    branch(repo)
    merged = (repo / "calm/words.py").read_text()
    write(
        repo,
        {"calm/words.py": merged.replace("-1:", "-2:"), "tests/test_words.py": "def test(): ...\n"},
    )
    git(repo, "commit", "-qam", "no test tells", date="2026-01-07T00:00:00")
    (repo / "calm" / "words.py").write_bytes(b"# caf\xe9\n")
    write(repo, {"tests/test_words.py": "x = 2\n"})
    git(repo, "commit", "-qam", "not UTF-8", date="2026-01-08T00:00:00")
    file, said = tmp_path / "benchmarks" / "swe" / "releases.toml", list[str]()

    def make(n: int) -> releases.MadeTasks:
        said.clear()
        how: dict[str, Any] = {
            "history": True,
            "file": file,
            "env": project.env,
            "backend": choose(),
            "on_progress": said.append,
        }
        return make_tasks(repo=repo, n=n, **how)

    main = sources.commits(repo)
    whole = make(1)
    assert [t.facts["after"] for t in whole.tasks] == [main[2].id]
    assert not whole.tasks[0].facts.get("hunks")  # all that was merged, what no test tells too
    assert whole.tried == 3
    assert any("1 commits  no test turns from failing to passing" in text for text in said)
    assert any("1 commits  it changes a source that is not UTF-8" in text for text in said)
    with monkeypatch.context() as patched:
        patched.setattr(commits, "prepare_change", pytest.fail)
        assert make(1).tasks == whole.tasks
    assert any("3 of 3 commits had been tried before" in text for text in said)
    more = make(5)
    assert (more.tried, len(more.tasks)) == (4, 3)  # the commit with two bugs is two tasks
    assert {t.facts["fail_to_pass"] for t in more.tasks if t.facts["after"] == main[3].id} == {
        ("tests/test_words.py::test_first",),
        ("tests/test_words.py::test_shout",),
    }
    assert len(facts.bugs(file)) == 3
    kept = releases.read(project.home / "home" / "swe" / "candidates" / "calm-history.jsonl")
    assert {c.bug.task for c in kept} == {t.id for t in more.tasks}
    with pytest.raises(BadInput, match="no bug that tests tell"):
        releases.make(repo=repo, since="2026-01-07", file=file, env=project.env, backend=choose())


def test_a_branch_that_was_merged_is_one_change(repo: Path, tmp_path: Path) -> None:
    repo = Path(shutil.copytree(repo, tmp_path / "calm"))
    branch(repo)
    merged, *earlier = sources.commits(repo)
    assert sorted(merged.files) == ["calm/words.py", "tests/test_words.py"]
    assert merged.parent == earlier[0].id
    assert len(earlier) == 2


def test_a_history_in_which_no_commit_changes_sources_and_tests_is_said(repo: Path) -> None:
    with pytest.raises(BadInput) as refused:
        releases.make(repo=repo, since="2026-02-01", backend=choose())
    assert refused.value.code == "no-commits"


def test_old_commits_run_in_what_there_was_in_their_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        commits, "interpreter", lambda python: object() if python != "3.9" else None
    )
    monkeypatch.setattr(commits.sys, "version_info", (3, 12))
    assert commits.of_the_time("2020-12-31") == {
        "index_before": "2021-01-01",
        "python": "",
        "pytest": "",
    }
    assert commits.of_the_time("2016-02-29") == {
        "index_before": "2016-03-01",
        "python": "3.8",
        "pytest": "6.2.5",
    }
    assert commits.of_the_time("2022-11-01")["python"] == "3.11"
    assert commits.of_the_time("2025-01-01")["python"] == ""


def test_real_bugs_are_written_as_they_are_found_and_ctrl_c_says_how_many(
    project: Project, found: list[Candidate], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bugs, file = [c for c in found if c.kind == "bug"], tmp_path / "releases.toml"
    monkeypatch.setattr(releases, "release", lambda *_, **__: found)

    def ask(text: str) -> str:
        if file.exists():
            assert [b.id for b in facts.bugs(file)] == [bugs[0].bug.id]
            raise KeyboardInterrupt
        return f"ISSUE:\n{ISSUE}\nSPEC:\nAll of it."

    with pytest.raises(Interrupted, match="1 task is written to"):
        releases.make(releases=["calm==1..2"], file=file, backend=choose(), ask=ask)
    kept = releases.read(project.home / "home" / "swe" / "candidates" / "calm-2.jsonl")
    assert [c.bug.id for c in kept] == [c.bug.id for c in found]
    made = releases.make(releases=["calm==1..2"], file=file, backend=choose())
    assert [b.task for b in facts.bugs(file)] == sorted(t.id for t in made.tasks)
    assert len(made.tasks) == 2


def test_a_folder_without_history_is_said(tmp_path: Path) -> None:
    with pytest.raises(BadInput) as refused:
        releases.make(repo=tmp_path, backend=choose())
    assert refused.value.code == "no-history"


def test_texts_written_by_hand_come_in_and_bad_ones_stay_out(
    found: list[Candidate], tmp_path: Path
) -> None:
    good, bad = (c for c in found if c.kind == "bug")
    written = [
        good.model_copy(
            update={"bug": good.bug.model_copy(update={"issue": ISSUE, "prompt": "All."})}
        ),
        bad.model_copy(update={"bug": bad.bug.model_copy(update={"issue": "Short."})}),
    ]
    work, file, said = tmp_path / "work.jsonl", tmp_path / "releases.toml", list[str]()
    work.write_text("".join(c.model_dump_json() + "\n" for c in written))
    made = releases.make(
        releases=[str(work)], file=file, split="test", backend=choose(), on_progress=said.append
    )
    assert [(t.split, ISSUE in t.prompt) for t in made.tasks] == [("test", True)]
    assert any("has 1 words" in line for line in said)


def test_a_model_writes_both_texts_and_is_told_what_is_wrong(found: list[Candidate]) -> None:
    one = next(c for c in found if "first" in c.bug.fail_to_pass[0])
    asked: list[str] = []

    def ask(text: str) -> str:
        asked.append(text)
        return (
            "ISSUE:\nToo short.\nSPEC:\nAll."
            if len(asked) == 1
            else f"ISSUE:\n{ISSUE}\nSPEC:\nAll of it."
        )

    bug = releases._write_words(one, ask, lambda _: None).bug
    assert (bug.issue, bug.prompt) == (ISSUE, "All of it.")
    assert "refused: it has 2 words" in asked[1]
    assert not releases._write_words(one, lambda _: "nothing", lambda _: None).bug.issue


def test_of_several_environments_the_refusal_is_that_of_the_nearest(
    found: list[Candidate], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Study:
        def __init__(self, bug: Bug, *_: object) -> None:
            self.bug, self.after = bug, Results(outcomes={"a": "passed", "b": "failed"})
            self.case = RealCase(bug, lambda _: None)

        def begin(self) -> None:
            if self.bug.index_before == "2020-01-01":
                raise Fault("no module called py", code="runner")
            said = f"{len(self.bug.requires)} required"
            if not self.bug.requires:
                self.after = Results(messages={"t": "No module named 'yaml'"})
            raise BadInput(said, code="failing-suite")

    monkeypatch.setattr(change, "ChangeStudy", Study)
    monkeypatch.setattr(change, "environment", lambda *_: tmp_path)
    told: list[str] = []
    places = [Environment(), Environment(), Environment(index_before="2020-01-01")]
    with pytest.raises(BadInput, match="1 required"):
        change.prepare_change(found[0].bug, tmp_path, places, None, choose(), told.append)
    assert told == ["the tests lack PyYAML"]


def test_packages_are_dealt_whole_and_known_ones_stay() -> None:
    names = [*"aaabbbbcdd"]
    bugs = [Bug.model_construct(package=name, split="train") for name in names]
    known: dict[str, Split] = {"c": "test"}
    found = releases.dealt(bugs, None, known)
    splits = {b.package: b.split for b in found}
    assert splits["c"] == "test"
    assert [splits[b.package] for b in found] == [b.split for b in found]
    assert set(splits.values()) == {"train", "validation", "test"}
    assert {b.split for b in releases.dealt(bugs, "validation", known)} == {"validation"}


def test_the_modules_of_a_repository_are_dealt_to_train_and_validation() -> None:
    bugs = [
        Bug.model_construct(package="a", path="a", group=f"a/{m}", split="train")
        for m in "xxxxxyyyz"
    ]
    assert {b.group: b.split for b in releases.dealt(bugs, None, {})} == {
        "a/x": "validation",
        "a/y": "train",
        "a/z": "train",
    }
    assert {b.group: b.split for b in releases.dealt(bugs, None, {"a/y": "validation"})}[
        "a/y"
    ] == "validation"
    assert {b.split for b in releases.dealt(bugs, None, {"a/y": "test"})} == {"test"}


@pytest.mark.parametrize("text", ["click", "click==8", "click==8.0..", "==1..2"])
def test_a_pair_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(BadInput, match=r"NAME==A\.\.B"):
        releases.pair(text)


def test_a_broken_work_file_is_named_by_its_line(tmp_path: Path) -> None:
    (tmp_path / "w.jsonl").write_text("\n" + json.dumps({"bug": {}}) + "\n")
    with pytest.raises(BadInput, match="line 2"):
        releases.read(tmp_path / "w.jsonl")
