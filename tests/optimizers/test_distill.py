"""Distilling: nothing is lost that was not turned down, and what is turned down has a reason."""

from __future__ import annotations

import re

import pytest

from recreate.agents import scaffold as scaffolds
from recreate.agents.lint import problems
from recreate.agents.scaffold import Scaffold
from recreate.api.paths import shipped
from recreate.api.types import Edit, Evidence, Study
from recreate.optimizers.investigator.distill import merged, tell_rejected
from recreate.optimizers.investigator.draft import union
from tests.optimizers.test_reflect import context
from tests.studied import ABOUT, DONE, SEED, Acts, Try, finds_the_mark, lesson, takes_all
from tests.toy import LESSON

pytestmark = pytest.mark.plugin("each")


@pytest.mark.slow
def test_two_lessons_learnt_in_parallel_both_survive_the_distilling(attempt: Try) -> None:
    """A promise: 8 memories are added in parallel there, 2 kept."""

    def study(first: str) -> Acts:
        yield "steps", {"first": 0}
        title = "One" if first.partition("experience ")[2][:16] == min(seen(first)) else "Other"
        yield lesson(f"{title} thing: {LESSON}", title)
        yield "finish", DONE

    tried = attempt(study, takes_all)
    assert sorted(
        x.title for x in tried.built.revisions[0].edits and tried.built.scaffold.lessons
    ) == ["One", "Other"]


def seen(first: str) -> set[str]:
    """The ids of the experiences that a study is told of."""
    return set(re.findall(r"experience ([0-9a-f]{16})", first))


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["tool", "lesson", "change"])
def test_a_tool_only_a_memory_only_and_a_change_to_a_tool_survive_the_distilling(
    attempt: Try, kind: str
) -> None:
    """A promise: proposals that only add a tool or a memory are thrown away there, and no tool is
    ever changed."""
    old = '"""Says hello."""\nprint("hello")\n'
    seed = SEED.model_copy(update={"files": {**SEED.files, "tools/hello.py": old}})
    new = old.replace('print("hello")', 'print("hello!")')

    def study(first: str) -> Acts:
        yield "steps", {"first": 0}
        if first.partition("experience ")[2][:16] != min(seen(first)):
            yield "edit", {"path": "system.md", "old": "", "new": "Be exact.", **ABOUT}
        elif kind == "lesson":
            yield lesson("Look twice.")
        else:
            yield (
                "write",
                {
                    "path": f"tools/{'hello' if kind == 'change' else 'bye'}.py",
                    "text": new,
                    **ABOUT,
                },
            )
        yield "finish", DONE

    tried = attempt(study, takes_all, seed=seed)
    wanted = {"tool": "tools/bye.py", "change": "tools/hello.py"}.get(
        kind, "memory/how-answers-end"
    )
    assert any(e.path.startswith(wanted) for e in tried.built.revisions[0].edits)
    assert any(e.path == "system.md" for e in tried.built.revisions[0].edits)


@pytest.mark.slow
def test_distilling_reads_merges_and_rejects_with_a_reason(attempt: Try) -> None:
    """A promise: synthesis sees diffs only there, and cannot reject; here it reads the evidence and
    decides."""

    def study(first: str) -> Acts:
        yield "steps", {"first": 0}
        yield lesson("Say it loudly.", "Loud")
        yield "edit", {"path": "workflow.md", "old": "", "new": "Hurry.", **ABOUT}
        yield "finish", DONE

    def distil(first: str) -> Acts:
        said = yield "idea", {"name": "1"}
        assert "Say it loudly." in said
        experience = said.partition("experience ")[2][:16]
        said = yield "steps", {"first": 0, "experience": experience}
        assert "the agent replied" in said
        said = yield "finish", {"summary": "early"}
        assert "nothing was decided on 1.1, 1.2, 2.1, 2.2" in said
        told = {
            "title": "The end",
            "text": LESSON,
            "reason": "both say it",
            "ideas": ["1.1", "2.1"],
        }
        said = yield "lesson", told
        assert "edit 1 is made" in said
        yield "reject", {"name": "1.2", "why": "haste helps nobody"}
        yield "reject", {"name": "2.2", "why": "the same"}
        yield "finish", {"summary": "One lesson for both."}

    tried = attempt(study, distil)
    edits = tried.built.revisions[0].edits
    assert [e.path.split("-")[0] for e in edits] == ["memory/the"]
    assert {e.experience for e in edits[0].evidence} == {s.experience for s in tried.studies}
    made = next(s for s in tried.all if s.kind == "distil")
    assert dict(made.rejected) == {"1.2": "haste helps nobody", "2.2": "the same"}
    assert tried.built.revisions[0].kept


def test_ideas_that_are_rejected_for_one_reason_are_told_in_one_line() -> None:
    rejected = [
        ("1", "a.md", "long"),
        ("2", "b.md", "wrong"),
        ("3", "b.md", "long"),
        ("4", "a.md", "long"),
    ]
    assert tell_rejected(rejected) == [
        "rejected: 1, 4 (a.md); 3 (b.md): long",
        "rejected: 2 (b.md): wrong",
    ]


@pytest.mark.slow
def test_an_idea_whose_edit_is_undone_is_open_again_and_not_lost(attempt: Try) -> None:
    def distil(first: str) -> Acts:
        yield "take", {"name": "1"}
        said = yield "undo", {"edit": 1}
        assert "open ideas: 1.1" in said
        yield "take", {"name": "1"}
        said = yield "undo", {"edit": 2}
        assert "open ideas: 1.1" in said
        yield "finish", {"summary": "x"}
        yield "finish", {"summary": "x"}

    tried = attempt(finds_the_mark, distil)
    assert tried.built.revisions[0].kept


@pytest.mark.slow
def test_distilling_that_does_not_finish_counts_as_none_and_loses_nothing(attempt: Try) -> None:
    def distil(first: str) -> Acts:
        yield "reject", {"name": "1", "why": "no"}
        while True:
            yield "prose"

    tried = attempt(finds_the_mark, distil)
    assert tried.built.revisions[0].kept


def test_edits_of_the_same_lines_keep_the_lines_of_both() -> None:
    base = "one\ntwo\nthree\n"
    assert union(base, "one\nTWO a\nthree\n", "one\nTWO b\nthree\n") == "one\nTWO a\nTWO b\nthree\n"


def two_versions(parent: Scaffold, path: str) -> tuple[dict[str, str], list[str]]:
    """(the files, what was noted) after two studies that each rewrote one tool in lines that cannot
    be joined."""
    old, notes = parent.files[path], list[str]()

    def version(name: str) -> str:
        return old.replace("import sys\n", f"import sys\n\nNAMES = [\n    '{name}',\n]  # {name}\n")

    studies = [
        Study(
            id=name,
            kind="study",
            scaffold=parent.digest,
            edits=(
                Edit(
                    path=path,
                    old=old,
                    new=version(name),
                    evidence=(Evidence(experience="e", step=0),),
                ),
            ),
        )
        for name in ("first", "second")
    ]
    asked = context([])
    asked.note = notes.append
    asked.validate = lambda scaffold, edits: problems(scaffolds.apply(scaffold, edits))
    files = dict(parent.files)
    files |= scaffolds.apply(parent, merged(asked, parent, studies)).files
    return files, notes


def test_of_two_versions_of_a_tool_that_agent_toml_names_only_the_used_is_carried() -> None:
    """In a real build `write_2.py` and `parses_2.py` came along, 1,200 lines that nothing
    called."""
    files, notes = two_versions(
        scaffolds.load(shipped("scaffolds") / "seed-code-small"), "tools/parses.py"
    )
    assert sorted(path for path in files if path.startswith("tools/")) == [
        "tools/parses.py",
        "tools/write.py",
    ]
    assert "# first" in files["tools/parses.py"]
    assert "second" not in files["tools/parses.py"]
    (note,) = notes
    assert (
        "idea 2.1 could not be kept beside the others: tools/parses.py: another edit rewrote it"
        in note
    )


def test_of_two_versions_of_a_tool_that_the_model_is_told_of_both_are_there_to_call() -> None:
    tool = (
        '"""Looks."""\n\nimport os\nimport sys\nfrom pathlib import Path\n\nprint(os, sys, Path)\n'
    )
    seed = Scaffold(name="a", files={**SEED.files, "tools/look.py": tool})
    files, notes = two_versions(seed, "tools/look.py")
    assert ("# first" in files["tools/look.py"], "# second" in files["tools/look_2.py"]) == (
        True,
        True,
    )
    assert notes == []
