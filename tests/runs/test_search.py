"""Search, then show: what is the current agent, and what is claimed of the last one."""

from __future__ import annotations

import random
from typing import Any

import pytest

from recreate.runs.search import (
    FEW,
    CurrentAgent,
    best_word,
    bet,
    conclude,
    find_top,
    is_given_up,
    judge_step,
    looks,
    make_terms,
    stretch_of,
    tell_standing,
)
from recreate.runs.settings import Gate
from recreate.runs.terms import Terms

Scores = dict[tuple[str, int], float | None]
GATE = Gate()


def make(tasks: int = 20, known: tuple[Terms, ...] = (), **changes: Any) -> Terms:
    given: dict[str, Any] = {
        "candidate": f"c{len(known)}",
        "parent": "seed",
        "round": 0,
        "of": 1,
        "rounds": 3,
        "repeats": 1,
        "tasks": [str(n) for n in range(tasks)],
        "draw": 0,
        "strata": {},
    }
    return make_terms(changes.pop("gate", GATE), known, **(given | changes))


def score(*values: float | None, repeat: int = 0) -> Scores:
    return {(str(n), repeat): value for n, value in enumerate(values)}


def twice(solved: int, of: int, repeats: int) -> Scores:
    """An agent that solves the first tasks each time."""
    return {(str(n), r): float(n < solved) for n in range(of) for r in range(repeats)}


def claim(seed: Scores, *agents: Scores, **changes: Any) -> tuple[str, str, int]:
    """(word, agent, repeats wanted)."""
    known: tuple[Terms, ...] = ()
    chain = list[CurrentAgent]()
    for scores in agents:
        terms = make(len({task for task, _ in seed}), known, **changes)
        known += (terms,)
        chain.append(CurrentAgent(terms, scores))
    ended = conclude(seed, chain, alpha=0.1, draw=0)
    assert ended.verdict is not None
    assert ended.verdict.claim is not None
    return ended.verdict.claim.word, ended.agent, ended.repeats


# --- the search


def test_a_candidate_is_looked_at_after_each_third_of_the_tasks() -> None:
    assert [stretch_of(tasks) for tasks in (5, 6, 20, 21)] == [2, 2, 7, 7]


def test_a_candidate_that_falls_behind_is_given_up_and_the_rest_not_attempted() -> None:
    terms = make()
    before = score(*[1.0] * 20)
    worse: Scores = {(task, 0): 0.0 for task in terms.order[:7]}
    assert is_given_up(terms, before, worse)
    assert not is_given_up(terms, before, dict(list(worse.items())[:6])), "no look in a stretch"
    even = {(task, 0): 1.0 for task in terms.order[:7]}
    assert not is_given_up(terms, before, even)
    verdict = judge_step(terms, before, worse, alpha=0.1, seed=0)
    assert (verdict.ahead, verdict.reason) == (False, "given up after 7 of 20 tasks")
    assert (verdict.tasks, verdict.dropped) == (7, 0)


def test_what_a_candidate_needs_is_said_while_it_is_attempted() -> None:
    terms = make(9)
    before: Scores = {(task, 0): 0.5 for task in terms.order}

    def stand(*after: float) -> str:
        scores = {(task, 0): s for task, s in zip(terms.order, after, strict=False)}
        return tell_standing(terms, before, scores)

    assert stand() == ""
    assert stand(0.5) == "level; given up after 3 of 9 tasks below 0"
    assert stand(0.7, 0.6) == "ahead by 0.3; given up after 3 of 9 tasks below -0.157"
    assert stand(0, 0, 0, 0.5) == "behind by 1.5; given up after 6 of 9 tasks below -0.26"
    assert stand(*[0.6] * 7) == "ahead by 0.7; has to end ahead"
    assert stand(*[0.6] * 9) == "ahead by 0.9"
    assert tell_standing(terms.model_copy(update={"rule": "each"}), before, before) == ""


@pytest.mark.parametrize("tasks", [5, 8, 9, 14, 20])
def test_a_candidate_is_given_up_where_it_is_below_what_was_said(tasks: int) -> None:
    draw = random.Random(tasks)
    terms, seen = make(tasks, repeats=2), set[bool]()
    for _ in range(200):
        done = draw.choice([stretch_of(tasks), 2 * stretch_of(tasks)])
        if done >= tasks:
            continue
        before, after = (
            {(t, n): float(draw.random() < 0.5) for t in terms.order[:done] for n in range(2)}
            for _ in range(2)
        )
        said = tell_standing(terms, before, after)
        lead = 0.0 if said.startswith("level") else float(said.split(";")[0].split()[2])
        lead = -lead if said.startswith("behind") else lead
        gone = is_given_up(terms, before, after)
        assert gone == (lead < float(said.rpartition(" ")[2])), said
        seen.add(gone)
    assert seen == {True, False}


def test_a_candidate_ahead_on_all_tasks_is_kept_for_now_and_nothing_is_claimed() -> None:
    terms, before = make(), score(*[0.0] * 20)
    verdict = judge_step(terms, before, score(1.0, *[0.0] * 19), alpha=0.1, seed=0)
    assert (verdict.ahead, verdict.verdict, verdict.claim) == (True, "undecided", None)
    same = judge_step(terms, before, before, alpha=0.1, seed=0)
    assert not same.ahead


def test_graded_scores_that_rise_a_little_everywhere_are_ahead() -> None:
    terms = make()
    verdict = judge_step(terms, score(*[0.4] * 20), score(*[0.45] * 20), alpha=0.1, seed=0)
    assert verdict.ahead


def test_too_many_excluded_attempts_keep_nothing() -> None:
    terms, after = make(), score(*[1.0] * 15, *[None] * 5)
    assert not judge_step(terms, score(*[0.0] * 20), after, alpha=0.1, seed=0).ahead


# --- the shares


@pytest.mark.parametrize("rounds", [1, 3, 10])
def test_the_shares_of_a_build_stay_within_its_error_whatever_it_tries(rounds: int) -> None:
    known: tuple[Terms, ...] = ()
    for number in range(60):  # people's edits, more rounds than were planned, populations
        of = number % 3
        known += (make(known=known, rounds=rounds, of=of, round=number),)
    assert sum(terms.alpha for terms in known) <= GATE.false_keep + 1e-6


def test_a_build_that_goes_on_with_more_rounds_spends_no_more_than_it_may() -> None:
    first = make(rounds=1)
    later = make(known=(first,), rounds=5)
    rest = tuple(make(known=(first, later), rounds=5) for _ in range(1))
    assert first.alpha + later.alpha + sum(t.alpha for t in rest) <= GATE.false_keep


@pytest.mark.parametrize("confirm", [0, 1, 2, 5])
def test_the_looks_of_an_agent_share_its_error(confirm: int) -> None:
    for tasks in (5, FEW, FEW + 1, 100):
        assert sum(looks(tasks, confirm)) == pytest.approx(1.0)


# --- the claim


def test_a_sure_gain_is_shown_at_once() -> None:
    assert claim(twice(0, 20, 1), twice(15, 20, 1)) == ("shown", "c0", 0)


def test_a_gain_that_may_be_luck_is_asked_for_anew() -> None:
    assert claim(twice(0, 20, 1), twice(5, 20, 1))[2] == 2
    word, agent, more = claim(twice(0, 20, 2), twice(5, 20, 2))
    assert (word, agent, more) == ("likely", "c0", 3), "five tasks of 20 never show it"


def test_what_vanishes_in_the_attempts_that_chose_nothing_is_not_handed_over() -> None:
    lucky = twice(4, 20, 1) | {(str(n), 1): float(n >= 16) for n in range(20)}
    seed = twice(0, 20, 1) | {(str(n), 1): float(n >= 12) for n in range(20)}
    word, agent, more = claim(seed, lucky)
    assert (word, agent, more) == ("none", "", 0)


def test_sixteen_tasks_and_fewer_are_attempted_anew_before_anything_is_claimed() -> None:
    assert claim(twice(0, 16, 1), twice(16, 16, 1)) == ("none", "", 2)
    assert claim(twice(0, 16, 2), twice(16, 16, 2)) == ("shown", "c0", 0)


def test_under_five_tasks_nothing_is_claimed() -> None:
    assert claim(twice(0, 4, 3), twice(4, 4, 3)) == ("none", "", 0)
    assert best_word(GATE, 1, [1.0] * 4) == "none"


def test_an_earlier_agent_that_is_shown_is_handed_over_where_the_last_is_not() -> None:
    seed, first = twice(0, 20, 1), twice(14, 20, 1)
    last = {**twice(0, 20, 1), **{(str(n), 0): 1.0 for n in (1, 3)}}
    last |= {("5", 0): 0.0}
    word, agent, more = claim(seed | {("0", 0): 1.0, ("2", 0): 1.0}, first, last)
    assert (word, agent, more) == ("shown", "c0", 0)


def test_what_was_shown_stays_shown_when_the_build_went_on_and_found_nothing_better() -> None:
    seed, first = twice(0, 20, 3), twice(8, 20, 3)
    assert claim(seed, first) == ("shown", "c0", 0)
    later: Scores = {(str(n), 0): 0.0 for n in range(20)}
    assert claim(seed, first, later)[:2] == ("shown", "c0")


def test_a_graded_agent_that_was_looked_at_and_not_shown_has_no_second_look() -> None:
    seed = {(str(n), r): 0.3 for n in range(20) for r in range(3)}
    first = {(str(n), r): 1.0 if r == 0 else 0.0 for n in range(20) for r in range(3)}
    assert claim(seed, first)[0] == "none"
    later: Scores = {(str(n), 0): 0.3 for n in range(20)}
    assert claim(seed, first, later)[:2] == ("none", "")
    alone: Scores = {place: s for place, s in first.items() if place[1] == 0}
    assert claim(seed, alone, later)[:2] == ("shown", "c0")


def test_graded_scores_are_bet_on_and_not_ruled_out() -> None:
    seed = {(str(n), r): 0.3 for n in range(20) for r in range(3)}
    agent = {place: 0.5 for place in seed}
    assert claim(seed, agent)[:2] == ("likely", "c0")
    wider = {(str(n), r): 0.3 for n in range(40) for r in range(3)}
    assert claim(wider, {place: 0.5 for place in wider})[:2] == ("shown", "c0")


def test_a_rise_everywhere_that_one_rare_loss_outweighs_is_not_shown() -> None:
    differences = [0.05] * 19 + [-0.95]
    assert bet(differences, 0.0133) > 0.1
    assert bet([0.05] * 20, 0.0133) > 0.0133, "the loss may just not have been drawn"


def test_looks_beyond_those_of_the_terms_change_nothing() -> None:
    seed, agent = twice(0, 20, 9), twice(5, 20, 9)
    assert claim(seed, agent) == claim(twice(0, 20, 3), twice(5, 20, 3))


def test_without_further_attempts_one_look_has_the_whole_share() -> None:
    gate = Gate(confirm=0)
    assert claim(twice(0, 20, 1), twice(7, 20, 1), gate=gate) == ("shown", "c0", 0)


def test_a_score_outside_of_0_and_1_is_no_reason_to_fail() -> None:
    seed = {(str(n), 0): 1.2 for n in range(20)}
    assert claim(seed, {place: 1.2 for place in seed})[0] == "none"


def test_equal_scores_claim_nothing_and_ask_for_no_attempt() -> None:
    assert claim(twice(3, 20, 1), twice(3, 20, 1)) == ("none", "", 0)


# --- the top


def test_a_build_ends_where_no_candidate_could_be_told_from_the_seed() -> None:
    assert find_top(GATE, 3, twice(10, 20, 1), twice(10, 20, 1)) == ""
    text = find_top(GATE, 3, twice(18, 20, 1), twice(18, 20, 1))
    assert "2 of 20 tasks leave room" in text
    assert "every task is solved" in find_top(GATE, 3, twice(5, 20, 1), twice(20, 20, 1))


def test_room_in_graded_scores_is_counted_in_score() -> None:
    assert find_top(GATE, 3, score(*[0.5] * 20), score(*[0.5] * 20)) == ""
    assert find_top(GATE, 3, score(*[0.95] * 20), score(*[0.95] * 20))
