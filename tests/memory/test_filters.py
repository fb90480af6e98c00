"""What a search may ask of facts is read strictly, and a hit passes only when it is what was asked
for."""

from __future__ import annotations

from typing import Any

import pytest

from recreate.api.errors import BadInput
from recreate.api.ports import Hit
from recreate.memory.filters import allows, matches, parse

WHEN = "2026-11-21T19:12:21Z"
SECOND = 1795288341.0


def hit(**facts: Any) -> Hit:
    return Hit(
        id="h", experience="e", grain="step", step=3, text="", split="train", score=0.0, facts=facts
    )


@pytest.mark.parametrize(
    ("asked", "read"),
    [
        (None, {}),
        ({"domain": "swe", "task": ["a", 2]}, {"domain": ["swe"], "task": ["a", "2"]}),
        ({"outcome": "passed"}, {"passed": [True]}),
        ({"outcome": ("failed", "passed")}, {"passed": [False, True]}),
        ({"passed": ["yes", "TRUE", "1", 1, True]}, {"passed": [True] * 5}),
        ({"passed": ["no", "False", "0", 0, False]}, {"passed": [False] * 5}),
        ({"step": ["3", 4]}, {"step": [3, 4]}),
        ({"since": WHEN}, {"since": [SECOND]}),
        ({"since": [SECOND, WHEN, SECOND + 5]}, {"since": [SECOND]}),
        ({"until": [SECOND, SECOND + 5, WHEN]}, {"until": [SECOND + 5]}),
        ({"grain": ["experience", "step", "lesson"]}, {"grain": ["experience", "step", "lesson"]}),
        ({"tool": "grep", "file": "a.py"}, {"tool": ["grep"], "file": ["a.py"]}),
    ],
)
def test_filters_are_read_as_the_values_that_each_may_have(
    asked: Any, read: dict[str, list[Any]]
) -> None:
    assert parse(asked) == read


@pytest.mark.parametrize(
    ("asked", "said", "fix"),
    [
        ({"colour": "red"}, "no filter 'colour'", "outcome, domain, "),
        ({"outcome": "perhaps"}, "not 'perhaps'", "passed=true"),
        ({"passed": None}, "not None", "passed=true"),
        ({"step": "third"}, "not 'third'", "step=3"),
        ({"step": None}, "not None", "step=3"),
        ({"since": "yesterday"}, "since is a moment", "since=2026"),
        ({"until": ["2026-11-21", None]}, "until is a moment", "until=2026"),
        ({"grain": ["step", "sand"]}, "no grain", "experience, step, lesson"),
        ({"task": []}, "'task' allows no value", "leave the filter out"),
        ({"since": ()}, "'since' allows no value", "leave the filter out"),
    ],
)
def test_a_filter_that_cannot_be_is_bad_input(asked: Any, said: str, fix: str) -> None:
    with pytest.raises(BadInput, match=said) as e:
        parse(asked)
    assert fix in e.value.fix


@pytest.mark.parametrize(
    ("asked", "found"),
    [
        ({}, True),
        ({"experience": ["d", "e"]}, True),
        ({"experience": "d"}, False),
        ({"grain": "step", "step": 3, "split": "train"}, True),
        ({"grain": "step", "step": 4}, False),
        ({"grain": "lesson"}, False),
        ({"split": "test"}, False),
        ({"task": "t"}, True),
        ({"task": "u"}, False),
        ({"passed": "no"}, True),
        ({"outcome": "passed"}, False),
        ({"run": "r"}, False),
        ({"tool": ["sed", "grep"]}, True),
        ({"tool": "gre"}, False),
        ({"file": "lexer.py"}, True),
        ({"file": ["parser.py", "src/lexer.py"]}, True),
        ({"file": "exer.py"}, False),
        ({"since": SECOND}, True),
        ({"since": SECOND + 1}, False),
        ({"until": SECOND + 1}, True),
        ({"until": SECOND}, False),
    ],
)
def test_a_hit_passes_when_it_is_all_that_was_asked_for(asked: Any, found: bool) -> None:
    facts = {
        "task": "t",
        "passed": False,
        "tool": ["grep", "cat"],
        "file": ["pkg/src/lexer.py"],
        "when": WHEN,
    }
    assert matches(parse(asked), hit(**facts)) is found


@pytest.mark.parametrize(
    "asked", [{"since": 0}, {"until": SECOND}, {"tool": "grep"}, {"file": "a.py"}]
)
def test_a_hit_without_the_fact_is_not_what_was_asked_for(asked: dict[str, Any]) -> None:
    assert not matches(parse(asked), hit())


def test_what_was_not_asked_for_may_be_anything() -> None:
    assert allows({}, "task", "a")
    assert allows({"task": ["a", "b"]}, "task", "b")
    assert not allows({"task": ["a"]}, "task", "b")
