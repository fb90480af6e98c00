"""Forecasts: said before a candidate is judged, scored after, and told to who made them."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recreate.api.types import Edit, Forecast, Revision, Stratum, Verdict
from recreate.optimizers.investigator.conversation import Wrong
from recreate.optimizers.investigator.forecast import Forecaster, tell_forecast
from recreate.runs.forecasts import scored, tally, told, train_scores
from recreate.runs.settings import Settings, as_begun, dump
from recreate.viewer.markdown import report, revision_record
from tests.studied import ABOUT, DONE, Acts, Try, lesson

VERDICT = Verdict(
    before=0.4,
    after=0.5,
    diff=0.1,
    lo=None,
    hi=None,
    p=None,
    tasks=10,
    repeats=1,
    verdict="undecided",
)


def revision(*edits: Edit, kept: bool = False, **verdict: object) -> Revision:
    said = VERDICT.model_copy(update=verdict)
    return Revision(id="child", parent="parent", round=0, edits=edits, verdict=said, kept=kept)


def edit(gain: float, mends: tuple[str, ...] = (), breaks: tuple[str, ...] = ()) -> Edit:
    return Edit(path="system.md", new="x", forecast=Forecast(gain=gain, mends=mends, breaks=breaks))


@pytest.mark.slow
def test_a_forecast_is_journalled_before_the_trial_and_shown_beside_what_came(
    attempt: Try,
) -> None:
    heard: list[str] = []

    def study(first: str) -> Acts:
        heard.append(first)
        yield "steps", {"first": 0}
        yield lesson()
        said = yield "finish", {**DONE, "gain": 2}
        assert "`gain` is from 0 to 1" in said
        yield "finish", {**DONE, "gain": 0.25, "mends": ["toy:toy:t0", "of nobody"], "breaks": []}

    tried = attempt(study, train=1, rounds=2)
    made = tried.built.revisions[0]
    assert [e.forecast.gain for e in made.edits if e.forecast] == [0.25]
    kinds = [r["kind"] for r in tried.run.records()]
    assert kinds.index("proposal") < kinds.index("trial")
    assert "gain of 0.25 expected" in report(tried.run, tried.built)
    found = next(r for r in tried.run.records("proposal"))
    assert found["edits"][0]["forecast"]["gain"] == 0.25
    assert "Forecasts so far" not in heard[0]
    assert "In this build: 1 candidate: a gain of 0.25 was expected" in heard[-1]
    assert "a gain of 0.25 expected, +" in heard[-1]


def test_names_are_true_when_a_kind_or_a_train_task_rose_or_fell_and_else_unknown() -> None:
    strata = (
        Stratum(name="sql", tasks=4, before=0.2, after=0.6),
        Stratum(name="web", tasks=6, before=0.5, after=0.5),
    )
    scores = {("parent", "a"): 1.0, ("child", "a"): 0.0, ("child", "b"): 1.0}
    found = scored(revision(edit(0.3, ("sql", "web", "b"), ("a",)), strata=strata), scores)
    assert found is not None
    assert found.mended == {"sql": True, "web": False, "b": None}
    assert found.broken == {"a": True}
    assert found.error == pytest.approx(0.04)
    assert "mends sql (it did)" in found.text()
    together = tally([found])
    assert (together.mended, together.broken) == ((1, 2), (1, 1))
    assert "0.20 too much" in together.text()
    assert revision_record(revision(), found)["forecast"]["error"] == pytest.approx(0.04)


@pytest.mark.parametrize("said", ["code:q:1", "19ee72", "task 19ee72", "c42b1e6ef2dd3dfa"])
def test_a_train_task_is_named_as_the_study_was_told_of_it(
    said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "recreate.optimizers.investigator.forecast.short", {"code:q:1": "19ee72"}.get
    )
    context = SimpleNamespace(
        tasks=["code:q:1"], kinds={}, limits=SimpleNamespace(forecast="asked")
    )
    batch = [SimpleNamespace(id="c42b1e6ef2dd3dfa", task="code:q:1")]
    (made,) = Forecaster(cast(Any, context), cast(Any, batch)).of(
        [edit(0.1)], {"gain": 0.1, "mends": [said]}
    )
    assert made.forecast == Forecast(gain=0.1, mends=("code:q:1",))


@pytest.mark.parametrize(
    ("kinds", "there"),
    [
        ({}, "experiences of this batch, by id, or nothing"),
        ({"q": "easy"}, "or kinds of task: easy, or nothing"),
    ],
)
def test_a_forecast_that_names_nothing_there_is_told_what_there_is(
    kinds: dict[str, str], there: str
) -> None:
    context = SimpleNamespace(tasks=["q"], kinds=kinds, limits=SimpleNamespace(forecast="asked"))
    forecaster = Forecaster(cast(Any, context), [])
    with pytest.raises(Wrong, match=there):
        forecaster.of([edit(0.1)], {"gain": 0.1, "mends": ["whatever reads tables"]})
    assert there.removesuffix(", or nothing") in forecaster.asked["mends"]["description"]


def test_an_idea_names_the_tasks_of_its_forecast_by_their_marks() -> None:
    said = tell_forecast(edit(0.1, ("easy", "math:gsm8k:17"), ("code:q:1",)), {"easy"})
    assert "mends easy, task " in said
    assert "math:gsm8k:17" not in said
    assert "code:q:1" not in said


def test_of_several_edits_the_largest_gain_counts_and_an_optimizer_may_forecast_nothing() -> None:
    found = scored(revision(edit(0.1, ("a",)), edit(0.4, ("b",)), Edit(path="x")), {})
    assert found is not None
    assert (found.gain, list(found.mended)) == (0.4, ["a", "b"])
    assert scored(revision(Edit(path="x", new="y")), {}) is None
    assert told([revision(Edit(path="x", new="y"))], {}) == []
    assert told([revision(edit(0.4), diff=None)], {}, "3 candidates.") == [
        "In earlier builds here: 3 candidates."
    ]


def test_what_an_optimizer_saw_before_it_spoke_is_no_outcome() -> None:
    row = {"split": "train", "scaffold": "child", "task": "a", "score": 1.0}
    assert train_scores([{**row, "phase": "rehearse"}, {**row, "phase": "select"}]) == {}
    assert train_scores([row]) == {("child", "a"): 1.0}  # a journal of before phases were written
    seen = train_scores([{**row, "phase": "train"}, {**row, "phase": "train", "score": 0.0}])
    assert seen == {("child", "a"): 0.5}


@given(st.lists(st.tuples(st.floats(0, 1), st.floats(-1, 1)), min_size=1, max_size=20))
@pytest.mark.slow
def test_the_error_is_least_for_who_says_what_comes(pairs: list[tuple[float, float]]) -> None:
    found = [scored(revision(edit(gain), diff=diff), {}) for gain, diff in pairs]
    together = tally([each for each in found if each is not None])
    assert 0 <= together.error <= 4
    # never below the square of the bias
    assert together.error >= (together.gain - together.seen) ** 2 - 1e-9


def test_a_run_from_before_goes_on_without_forecasts_and_asks_what_it_asked() -> None:
    old = {"domain": "toy", "study": {"steps": 9}}
    assert as_begun(old).study.forecast == "none"
    assert Settings.model_validate(old).study.forecast == "asked"
    assert "forecast" not in as_begun(old).model_dump()["study"]
    assert 'forecast = "none"' in dump(as_begun(old))


@pytest.mark.slow
def test_without_the_setting_nobody_is_asked(attempt: Try) -> None:
    def study(first: str) -> Acts:
        yield "steps", {"first": 0}
        yield lesson(**ABOUT)
        yield "finish", DONE

    tried = attempt(study, train=1, **{"study.forecast": "none"})
    assert all("`gain`" not in json.dumps(prompt) for prompt in tried.model.prompts)
    assert all(e.forecast is None for e in tried.built.revisions[0].edits)


@pytest.mark.slow
def test_the_next_build_of_a_workspace_is_told_of_the_one_before(
    attempt: Try, workspace: Path
) -> None:
    def study(first: str) -> Acts:
        heard.append(first)
        yield "steps", {"first": 0}
        yield lesson()
        yield "finish", {**DONE, "gain": 0.3}

    heard: list[str] = []
    attempt(study, train=1)
    assert "In earlier builds here" not in heard[-1]
    (workspace / "runs" / "a").rename(workspace / "runs" / "before")
    attempt(study, train=1)
    assert "In earlier builds here: 1 candidate: a gain of 0.30 was expected" in heard[-1]
