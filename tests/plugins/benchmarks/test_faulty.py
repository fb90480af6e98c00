"""Faulty functions for the domain `code`: one place differs from the right one, and rows have
HumanEvalFix's form."""

from __future__ import annotations

import difflib
import random

from recreate.plugins.benchmarks import recipes
from tests.faulty import examples, row_of

GOLD = """
def total(numbers, most):
    found = 0
    for number in numbers:
        if number < most and not number == 3:
            found += number
    return min(found, 100)
"""
SHOWN = [
    "assert total([1, 2, 9], 5) == 3",
    "assert total([3], 5)==0",
    "assert sorted([total([], 1)]) == [0]",
]
GIVEN = {
    "task_id": "mbppplus_7",
    "group": "mbpp-7",
    "instruction": "Write a function to add up what is below a bound.",
    "gold": {"solution": GOLD},
    "eval": {"test_list": SHOWN, "test": "assert total([1, 2], 9) == 3"},
}


def test_only_plain_examples_are_shown() -> None:
    assert examples(SHOWN, "total") == [("total([1, 2, 9], 5)", "3"), ("total([3], 5)", "0")]
    assert (
        row_of({**GIVEN, "eval": {**GIVEN["eval"], "test_list": SHOWN[1:]}}, random.Random(1))
        is None
    )


def test_a_row_is_one_of_humanevalfix() -> None:
    row = row_of(GIVEN, random.Random(1))
    assert row is not None
    recipe = recipes.find_recipe(row, "code")
    assert recipe is not None
    assert recipe.name == "humanevalfix"
    read = recipes.read(recipe, row)
    assert read["files"]["solution.py"] == row["buggy_solution"] != row["canonical_solution"]
    assert ">>> total([3], 5)\n    0" in read["prompt"]
    right, wrong = (row[side].splitlines() for side in ("canonical_solution", "buggy_solution"))
    opcodes = difflib.SequenceMatcher(None, right, wrong).get_opcodes()
    assert sum(change != "equal" for change, *_ in opcodes) == 1
    assert row == row_of(GIVEN, random.Random(1))
