"""What an attempt earns beside its grade: ReEx-SQL's rewards for form, near queries and looks at
the tables."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recreate.agents import scaffold as scaffolds
from recreate.api.errors import BadInput
from recreate.api.paths import shipped
from recreate.api.types import Experience, Grade, Step, Trace
from recreate.plugins.rl import recipe
from recreate.plugins.rl.parts.reex import FAILED, ReExSQL, alike, entities, explored, form, normal
from recreate.plugins.rl.verl.translate import refuse

GOLD = "SELECT count(*) FROM clients WHERE country = 'Deutschland'"
LOOK = "<think>How is it spelled?</think><intermediate_sql>SELECT DISTINCT country FROM clients"
FINAL = f"<think>As Deutschland.</think>\n<final_sql>{GOLD}</final_sql>"
SQL = st.one_of(
    st.text(max_size=80),
    st.lists(
        st.sampled_from(
            ["SELECT", "clients", "'Deutschland'", "country", "AS", "x", "=", "1", '"a b"', "``"]
        )
    ).map(" ".join),
)


def step(
    number: int, reply: str, output: str = "<result>\ncountry\n</result>", **more: Any
) -> Step:
    return Step(step=number, reply=reply, output=output, status=0, **more)


def attempt(
    *replies: str, answer: str = GOLD, score: float = 1.0, outputs: tuple[str, ...] = ()
) -> Experience:
    steps = tuple(
        step(n, reply, *(outputs[n : n + 1] or ["<result>\ncountry\n</result>"]))
        for n, reply in enumerate(replies)
    )
    trace = Trace(attempt="a", task="sql:q:0", scaffold="s", model="m", steps=steps, answer=answer)
    return Experience(
        id="a",
        domain="sql",
        task="sql:q:0",
        group="g",
        split="train",
        prompt="",
        digest="",
        trace=trace,
        grade=Grade(score=score, passed=score == 1.0),
    )


def test_who_looks_reasons_in_form_and_answers_as_the_right_query_does_earns_all() -> None:
    assert ReExSQL()(attempt(LOOK, FINAL), GOLD) == pytest.approx((2 + 1 + 1 + 2) / 3)
    assert ReExSQL(form=0, exact=0, entities=0, exploration=0)(attempt(LOOK, FINAL), GOLD) == 0.0
    assert ReExSQL()(attempt("I do not know.", answer=""), GOLD) == 0.0


@pytest.mark.parametrize(
    ("replies", "worth"),
    [
        ([LOOK, FINAL], 1.0),
        ([f"{LOOK}</intermediate_sql>", FINAL], 1.0),
        ([FINAL], 1.0),
        ([LOOK], 0.0),  # nothing was handed in
        ([f"```sql\n{GOLD}\n```"], 0.0),
        ([LOOK.replace("<think>", ""), FINAL], 0.0),
        ([f"{FINAL} That is it."], 0.0),
        ([f"{FINAL}<final_sql>SELECT 1</final_sql>"], 0.0),
        ([], 0.0),
    ],
)
def test_form_is_reasoning_and_one_query_in_each_reply_and_a_final_one_at_the_end(
    replies: list[str], worth: float
) -> None:
    assert form([step(n, reply) for n, reply in enumerate(replies)]) == worth


def test_a_look_counts_that_ran_is_new_and_is_about_what_was_asked() -> None:
    idle = "<think>.</think><intermediate_sql>SELECT 1"
    failed = step(
        3, LOOK.replace("DISTINCT", "max"), "<result>\nSQLite says: no such column\n</result>"
    )
    assert explored([step(0, LOOK), step(1, FINAL)], GOLD) == 1.0
    assert explored([step(0, FINAL)], GOLD) == 0.0
    assert explored([step(0, idle), step(1, FINAL)], GOLD) == 0.0
    again = step(1, LOOK.replace("country", "COUNTRY  "))
    assert explored([step(0, LOOK), again, failed, step(4, idle), step(5, FINAL)], GOLD) == 0.25


def test_queries_that_differ_in_case_space_and_a_semicolon_alone_are_the_same() -> None:
    assert normal(GOLD) == normal(
        f"```sql\n{GOLD.lower().replace('deutschland', 'Deutschland')} ;\n```"
    )
    assert normal(GOLD) != normal(GOLD.replace("Deutschland", "deutschland"))
    assert entities(GOLD) == {"clients", "country", "'Deutschland'"}
    assert entities('SELECT T1.name FROM "clients" AS T1') == {"name", "clients"}
    assert alike(GOLD, GOLD.replace("Deutschland", "Italien")) == 0.5


@given(st.lists(SQL, max_size=4), SQL, SQL, st.floats(0, 9), st.floats(0, 9), st.floats(0.5, 9))
def test_what_is_earned_is_bounded_by_its_weights_whatever_is_written(
    replies: list[str], answer: str, gold: str, one: float, other: float, grade: float
) -> None:
    part = ReExSQL(form=one, exact=other, entities=one, exploration=other, execution=grade)
    e = attempt(
        *replies, *(f"<think></think><intermediate_sql>{reply}" for reply in replies), answer=answer
    )
    earned = part(e, gold)
    assert 0 <= earned <= (2 * one + 2 * other) / grade + 1e-9
    assert earned == part(e, gold)


@given(SQL, SQL)
def test_entities_are_shared_both_ways_and_wholly_with_oneself(one: str, other: str) -> None:
    assert alike(one, other) == alike(other, one)
    assert 0 <= alike(one, other) <= 1
    assert alike(one, one) == float(bool(entities(one)))
    assert normal(normal(one)) == normal(one) or "```" in one


def test_what_the_scaffold_says_of_a_query_that_did_not_run_is_what_is_looked_for() -> None:
    files = scaffolds.load(shipped("scaffolds") / "reex-sql").files
    assert FAILED in files["tools/execute.py"]
    assert all(
        f"<{tag}>" in files["system.md"] for tag in ("think", "intermediate_sql", "final_sql")
    )


HEAD = 'about = "a"\nsource = "b"\n[reex-sql]\n[token-mean]\n'


def test_a_recipe_takes_it_with_other_weights_and_not_where_grades_alone_are_kept() -> None:
    made = recipe.read(HEAD, name="mine", changes=["reex-sql.exploration=0"])
    assert made.slots["process"] == "reex-sql"
    part = made.does("process")
    assert isinstance(part, ReExSQL)
    assert part.exploration == 0
    for other in ("[a2r]\n", "[simpo]\n"):
        with pytest.raises(BadInput, match="reex-sql"):
            recipe.read(HEAD.replace("[token-mean]\n", "") + other, name="mine")
    with pytest.raises(BadInput, match="verl is told their grades"):
        refuse(made)
