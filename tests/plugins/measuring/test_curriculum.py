"""Which train tasks a round attempts with `--choose learning`."""

from __future__ import annotations

import json
import random
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recreate.agents import scaffold as scaffolds
from recreate.api.paths import shipped
from recreate.builder.loop import BuildResult, build
from recreate.plugins.measuring.curriculum import (
    FLOOR,
    DrawnTask,
    Tried,
    chances,
    describe_task,
    draw,
)
from recreate.runs import settings
from recreate.runs.reader import Run
from recreate.runs.session import open_session
from recreate.viewer import markdown
from recreate.viewer.facts import RunFacts
from tests.toy import script

TASKS = [f"t{n}" for n in range(9)]
LINEAGE = ["old", "newer", "now"]
TRIED = st.builds(
    Tried,
    st.sampled_from(TASKS),
    st.sampled_from([*LINEAGE, "another"]),
    st.integers(0, 3),
    st.floats(0, 1),
)


@given(st.lists(TRIED, max_size=40), st.integers(1, 12), st.integers())
def test_a_batch_is_the_same_for_a_seed_and_takes_what_was_never_tried_first(
    history: list[Tried], size: int, seed: int
) -> None:
    batch = draw(TASKS, history, LINEAGE, size, seed)
    assert batch == draw(TASKS, history, LINEAGE, size, seed)
    taken = [d.task for d in batch]
    assert len(set(taken)) == len(taken) == min(size, len(TASKS))
    new = [t for t in TASKS if not any(h.task == t and h.agent in LINEAGE for h in history)]
    assert taken[: len(new)] == new[:size]
    assert [d.why for d in batch].count("never tried") == min(size, len(new))
    # an attempt that the agent made before is never the one that is made
    assert not {(d.task, d.repeat) for d in batch} & {
        (h.task, h.repeat) for h in history if h.agent == "now"
    }
    # what agents made that it did not come from is no matter
    assert batch == draw(TASKS, [h for h in history if h.agent != "another"], LINEAGE, size, seed)


@given(
    st.integers(1, 5),
    st.lists(st.sampled_from([0.0, 0.5, 1.0]), min_size=9, max_size=9),
    st.integers(),
)
def test_no_task_starves(size: int, rates: list[float], seed: int) -> None:
    floor, history = -(-size * FLOOR // 1), list[Tried]()
    rounds = int(3 * -(-len(TASKS) // floor))
    for number in range(rounds):
        for task, repeat, _ in draw(TASKS, history, ["now"], size, (seed, number)):
            history.append(
                Tried(
                    task, "now", repeat, float((number + repeat) % 2 < 2 * rates[TASKS.index(task)])
                )
            )
    assert min(Counter(h.task for h in history)[t] for t in TASKS) >= 3


@given(st.lists(TRIED, max_size=40))
def test_chances_add_up_and_none_is_nought(history: list[Tried]) -> None:
    found = chances(TASKS, history, LINEAGE)
    assert abs(sum(found.values()) - 1) < 1e-9
    assert min(found.values()) > 0


def test_what_is_drawn_by_weight_is_mostly_what_is_solved_sometimes() -> None:
    pool = [f"t{n}" for n in range(20)]
    history = [
        Tried(task, "now", repeat, 1.0 if n > 3 else float(repeat % 2))
        for n, task in enumerate(pool)
        for repeat in range(4 if n > 17 else 12)  # the last two are the least tried
    ]
    sometimes, expected = set(pool[:4]), chances(pool, history, ["now"])
    share = sum(expected[task] for task in sometimes) / (1 - sum(expected[t] for t in pool[18:]))
    drawn = [task for lot in range(300) for task, _, _ in draw(pool, history, ["now"], 3, lot)[2:]]
    assert len(drawn) == 300
    assert set(drawn) & {"t18", "t19"} == set(), "half of a batch is the least tried"
    assert share > 2 * len(sometimes) / 18
    assert abs(sum(task in sometimes for task in drawn) / 300 - share) < 0.08


def test_tasks_that_are_solved_sometimes_or_flipped_are_likelier_than_those_that_never_change() -> (
    None
):
    outcomes = {
        "never": "0000",
        "always": "1111",
        "sometimes": "0101",
        "mended": "0011",
        "once": "0",
    }
    agents = ["newer", "newer", "now", "now"]
    history = [
        Tried(t, a, 0, float(s))
        for t, word in outcomes.items()
        for a, s in zip(agents, word, strict=False)
    ]
    found = chances([*outcomes, "new"], history, LINEAGE)
    assert found["mended"] > found["sometimes"] > found["new"] > found["always"]
    assert found["sometimes"] > 2 * found["never"]
    # what was solved by an older version alone says less than what this one does
    two = [
        Tried("x", "old", 0, 1.0),
        Tried("x", "now", 0, 0.0),
        Tried("y", "old", 0, 0.0),
        Tried("y", "now", 0, 0.0),
    ]
    assert chances(["x", "y"], two, LINEAGE)["x"] > chances(["x", "y"], two, LINEAGE)["y"]
    kinds = [
        describe_task({0: [0.0], 2: [1.0]}),
        describe_task({0: [0.0, 1.0]}),
        describe_task({1: [0.0]}),
        describe_task({}),
        describe_task({0: [1.0], 1: [1.0]}),
    ]
    assert kinds == ["flipped", "solved sometimes", "never solved", "never tried", "always solved"]
    assert describe_task({0: [0.0], 1: [1.0], 2: [1.0]}) == "solved sometimes", (
        "the last two versions both solve it"
    )


def built(workspace: Path, name: str, **flags: Any) -> tuple[BuildResult, Run]:
    """A build on the toy domain whose optimizer finds nothing, so that one agent goes on."""
    file, folder = workspace / "script.jsonl", workspace / "runs" / name
    file.write_text("".join(json.dumps(r) + "\n" for r in script(learns=False)))
    values = {
        "domain": "tests.toy:Toy",
        "model": f"scripted:{file}",
        "rounds": 3,
        "fresh": True,
        "batch": 4,
        "train": 4,
        **flags,
    }
    values |= {"models.retries": 0, "memory.embedder": "hashed"}
    resume = (folder / "settings.toml").exists()
    session = open_session(settings.load(workspace, values, {}), workspace, folder, resume=resume)
    try:
        return build(session, scaffolds.load(shipped("scaffolds") / "seed")), Run(folder)
    finally:
        session.close()


def train(run: Run) -> list[tuple[str, int]]:
    return [(r["task"], r["repeat"]) for r in run.records("experience") if r["phase"] == "train"]


@pytest.mark.slow
def test_rounds_go_on_to_new_tasks_then_attempt_old_ones_anew_and_the_next_build_knows(
    workspace: Path,
) -> None:
    result, run = built(workspace, "a", choose="learning")
    made = train(run)
    assert len(made) == len(set(made)) == 12
    assert len({task for task, _ in made[:8]}) == 8
    assert {repeat for _, repeat in made[8:]} == {1}
    assert "- round 1: 4 train tasks: 4 never tried\n" in markdown.report(RunFacts(run, result))
    assert "- round 3: 4 train tasks: 4 never solved\n" in markdown.report(RunFacts(run, result))
    # a build that goes on draws what it drew
    batches = list(run.records("batch"))
    for left in run.folder.glob("checkpoint.sqlite*"):
        left.unlink()
    _, run = built(workspace, "a", choose="learning", budget=("500attempts",))
    assert (list(run.records("batch")), train(run)) == (batches, made)
    _, later = built(workspace, "b", choose="learning", rounds=1, seed=7)
    assert [r["told"] for r in later.records("batch")] == ["4 train tasks: 4 never solved"]
    assert not set(train(later)) & set(made)


@pytest.mark.slow
def test_the_sample_of_the_gate_is_the_same_however_train_tasks_are_chosen(workspace: Path) -> None:
    made = [built(workspace, how, choose=how, jobs=1) for how in ("uniform", "learning")]
    runs = [run for _, run in made]
    # the order of a trial goes by the candidate's digest and the build's seed alone
    trials = [
        [
            {**r["terms"], "candidate": "", "order": sorted(r["terms"]["order"])}
            for r in run.records("trial")
        ]
        for run in runs
    ]
    assert trials[0] == trials[1] != []
    judged = [
        [
            (r["task"], r["repeat"])
            for r in run.records("experience")
            if r["split"] == "validation" and r["scaffold"] == result.seed.digest
        ]
        for result, run in made
    ]
    assert judged[0] == judged[1] != []
    for run in runs:
        for r in run.records("trial"):
            order = sorted(r["terms"]["order"], key=[t for t, _ in judged[0]].index)
            random.Random(f"0/{r['terms']['candidate']}").shuffle(order)
            assert tuple(order) == tuple(r["terms"]["order"])
    # and taken in turn, tasks are what they always were
    assert train(runs[0]) == [(task, 0) for task in dict.fromkeys(t for t, _ in train(runs[0]))]
    assert list(runs[0].records("batch")) == []


def test_a_drawn_task_says_what_was_known_of_it() -> None:
    history = [Tried("t0", "now", 0, 1.0), Tried("t0", "now", 1, 0.0)]
    assert draw(["t0"], history, ["now"], 3, 0) == [DrawnTask("t0", 2, "solved sometimes")]
