"""Records: what code may make, and what survives of a file that a newer version wrote."""

from __future__ import annotations

import json

import pytest
from pydantic import ValidationError

from recreate.api.types import Edit, Experience, Grade, Revision, Step, Trace, Verdict


def test_code_that_makes_a_record_of_an_unknown_field_is_told_which() -> None:
    with pytest.raises(ValidationError, match="nwe\n  Extra inputs are not permitted"):
        Edit(path="a", nwe="b")  # type: ignore[call-arg]
    with pytest.raises(ValidationError, match=r"steps\.0\.relpy"):
        Trace(attempt="a", task="t", scaffold="s", model="m", steps=[{"step": 0, "relpy": "x"}])  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="Grade has no field 'sorce'"):
        Grade(score=1, passed=True).model_copy(update={"sorce": 0})


def test_what_a_newer_version_added_survives_reading_and_writing_at_any_depth() -> None:
    step = {"step": 0, "reply": "ls", "mood": "calm"}
    trace = {
        "attempt": "a",
        "task": "t",
        "scaffold": "s",
        "model": "m",
        "steps": [step],
        "replayed_from": "b",
    }
    record = {
        "id": "a",
        "domain": "toy",
        "task": "t",
        "group": "g",
        "split": "train",
        "prompt": "p",
        "digest": "s",
    }
    record |= {
        "trace": trace,
        "grade": {"score": 1.0, "passed": True, "rubric": {"style": [1, 2.5]}},
        "when": "now",
    }
    read = Experience.model_validate(record)
    copied = Experience.model_validate_json(read.model_copy(update={"run": "r"}).model_dump_json())
    for again in (
        read,
        copied,
        Experience(**{k: getattr(read, k) for k in Experience.model_fields if k != "schema_"}),
    ):
        written = json.loads(again.model_dump_json())
        assert written["trace"]["steps"][0]["mood"] == "calm"
        assert written["trace"]["replayed_from"] == "b"
        assert written["grade"]["rubric"] == {"style": [1, 2.5]}
    assert copied.model_dump()["when"] == "now"


def test_a_field_that_only_imports_have_is_written_only_where_it_is() -> None:
    assert "foreign" not in Step(step=0).model_dump(mode="json")
    assert Step(step=0, foreign={"asked": [1]}).model_dump(mode="json")["foreign"] == {"asked": [1]}


def test_records_within_a_record_are_read_as_the_file_has_them() -> None:
    verdict = Verdict(
        before=None,
        after=None,
        diff=None,
        lo=None,
        hi=None,
        p=None,
        tasks=0,
        repeats=1,
        verdict="better",
    )
    revision = Revision(
        id="a", parent="b", round=0, edits=(Edit(path="x", new="y"),), verdict=verdict, kept=True
    )
    stored = revision.model_dump(mode="json")
    stored["edits"][0]["confidence"] = 0.5
    assert Revision.model_validate(stored).model_dump(mode="json") == stored
