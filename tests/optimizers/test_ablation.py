"""What `--without` takes from an optimizer is gone, and the report says so."""

from __future__ import annotations

import pytest

from recreate.viewer.facts import RunFacts
from recreate.viewer.markdown import report
from tests.studied import DONE, NOTHING, Acts, Try, finds_the_mark, takes_all
from tests.toy import LESSON

pytestmark = pytest.mark.plugin("each")


@pytest.mark.parametrize(
    ("switch", "gone"),
    [
        ("trajectory", {"index", "steps", "search", "contrast"}),
        ("environment", {"run"}),
        ("evidence", {"evidence"}),
    ],
)
def test_what_is_switched_off_is_not_offered_and_the_report_says_so(
    attempt: Try, switch: str, gone: set[str]
) -> None:
    def study(first: str) -> Acts:
        for name in sorted(gone):
            said = yield name, {}
            assert "there is no tool" in said
        yield "finish", NOTHING

    tried = attempt(study, without=[switch])
    assert [s.ending for s in tried.studies] == ["finished", "finished"]
    system = tried.model.prompts[0][0]["content"]
    assert not any(f"\n- {name}:" in system for name in gone)
    assert "AssertionError" not in tried.said() or switch != "evidence"
    assert f"worked without: {switch}" in report(RunFacts(tried.run, tried.built))


def test_without_guidance_nobody_is_told_where_an_edit_belongs(attempt: Try) -> None:
    def study(first: str) -> Acts:
        yield "finish", {"summary": "nothing"}

    tried = attempt(study, without=["guidance"])
    assert "Knowledge gap" not in tried.model.prompts[0][0]["content"]


@pytest.mark.slow
def test_without_distilling_all_ideas_are_merged_by_the_machine(attempt: Try) -> None:
    tried = attempt(finds_the_mark, without=["distilling"])
    assert tried.built.revisions[0].kept
    assert not [s for s in tried.all if s.kind == "distil"]


@pytest.mark.slow
def test_without_trajectory_an_edit_cites_the_end_of_the_attempt(attempt: Try) -> None:
    def study(first: str) -> Acts:
        yield "evidence", {}
        yield "lesson", {"title": "T", "text": LESSON, "reason": "r"}
        yield "finish", DONE

    tried = attempt(study, takes_all, without=["trajectory"])
    assert {e.step for e in tried.built.revisions[0].edits[0].evidence} == {1}
