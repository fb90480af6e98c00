"""plan and run: what they print and what they may touch."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from recreate.api.ports import Price
from recreate.api.types import PassRate, Study, Usage
from recreate.builder import estimate as planning
from recreate.cli import run as cli
from recreate.domains import rates
from recreate.memory.store import ExperienceStore
from recreate.models.pricing import FREE
from recreate.optimizers import StudySettings
from recreate.optimizers.reflect import MOST_CALLS
from recreate.runs.reader import find_agent
from recreate.runs.settings import Settings
from tests.toy import Toy, write_script

TOY = ["--domain", "tests.toy:Toy"]


@pytest.fixture
def model(workspace: Path) -> list[str]:
    return ["--model", write_script(workspace / "s.jsonl")]


def printed(capsys: pytest.CaptureFixture[str], *arguments: str, code: int = 0) -> dict[str, Any]:
    capsys.readouterr()
    assert cli([*arguments, "--json"]) == code
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


def test_a_plan_says_what_a_build_takes_and_spends_nothing(
    workspace: Path, model: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    plan = printed(capsys, "plan", *TOY, *model, "--rounds", "2", "--budget", "25attempts")
    # 8 validation tasks for the seed and for each of two candidates, two batches of four, and two
    # more attempts at each validation task by the seed and by the agent
    assert plan["attempts"] == 8 * 3 + 4 * 2 + 2 * 2 * 8
    assert [chance["gain"] for chance in plan["chances"]] == [0.1, 0.2, 0.3]
    words = [chance["shown"] + chance["likely"] for chance in plan["chances"]]
    assert 0 < words[0] < words[1] < words[2] <= 1
    assert plan["proposals"] == 1
    assert 0 < plan["detectable_gain"] <= 1
    assert {"calls", "usd", "minutes", "tokens"} <= plan.keys()
    assert not (workspace / "runs").exists()


def test_a_plan_with_a_budget_that_a_build_refuses_says_so_and_what_it_takes(
    workspace: Path, model: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    few = [*TOY, *model, "--rounds", "2", "--budget", "10attempts"]
    refused = printed(capsys, "plan", *few)["refused"]
    assert "a budget of 10 attempts does not pay for one proposal" in refused
    assert printed(capsys, "build", *few, code=2)["error"]["fix"] in refused
    assert cli(["plan", *few]) == 0
    assert refused in capsys.readouterr().out.splitlines()
    assert not printed(capsys, "plan", *TOY, *model, "--rounds", "2", "--budget", "25attempts")[
        "refused"
    ]


def speedup(capsys: pytest.CaptureFixture[str], model: str) -> float:
    """How much faster a plan reckons four attempts at once to be."""
    flags = [*TOY, "--model", model, "--price", "0,0", "--optimizer", "reflect", "--rounds", "0"]
    one, four = (printed(capsys, "plan", *flags, "--jobs", n)["minutes"] for n in ("1", "4"))
    return float(one / four)


def test_jobs_make_an_endpoint_faster(workspace: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert speedup(capsys, "openai:http://127.0.0.1:9/v1#m") == pytest.approx(3.0, rel=0.5)


def test_a_plan_learns_from_attempts_made_here(
    workspace: Path, model: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert "guess" in printed(capsys, "plan", *TOY, *model)["source"]
    assert cli(["build", *TOY, *model, "--rounds", "0", "--scaffold", "seed"]) == 0
    plan = printed(capsys, "plan", "--scaffold", "seed", *TOY, *model, "--rounds", "1")
    assert "mean of 8 attempts" in plan["source"]
    assert plan["calls"] == plan["attempts"] * 2 + MOST_CALLS


def test_a_plan_of_the_investigator_holds_what_builds_cost_that_were_measured(
    workspace: Path,
) -> None:
    """docs/tour.md: eight studies and a distilling of attempts with long prompts, which at $5 and
    $25 a million tokens are $18; docs/results.md: the same of short ones, at $1.25 and $10, $1.89;
    a batch of one there is some $0.40."""
    seed = find_agent("seed", workspace)
    one = Settings(optimizer="recreate", rounds=1, train=8, study=StudySettings(usd=100.0))
    long, short = (
        planning.Past([Usage(calls=4, tokens_in=4 * n, tokens_out=400)]) for n in (7000, 400)
    )
    strong, medium = Price(tokens_in=5, tokens_out=25), Price(tokens_in=1.25, tokens_out=10)
    for price, past, batch, usd in ((strong, long, 8, 18), (medium, short, 8, 1.89)):
        settings = one.model_copy(update={"batch": batch})
        plan = planning.plan(settings, seed, FREE, price, past, finds=False)
        assert plan.low.usd < usd < plan.high.usd < 4 * usd
    few = planning.plan(one.model_copy(update={"train": 1}), seed, FREE, medium, short, finds=False)
    assert few.low.usd < 0.4 < few.high.usd < 2


def test_a_plan_gives_a_range_that_the_cache_and_the_turns_of_a_study_make(
    workspace: Path, model: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    other = write_script(workspace / "other.jsonl")
    flags = [*TOY, *model, "--optimizer", "recreate", "--models.optimizer", other, "--rounds", "1"]
    flags += ["--models.optimizer_price", "5,25", "--study.usd", "100", "--price", "0,0"]
    plan = printed(capsys, "plan", *flags)
    (read,) = (
        int(found[1].replace(",", ""))
        for text in plan["assumes"]
        if (found := re.search(r"5 to 16 calls of ([\d,]+) tokens", text))
    )
    # nine studies and distillings
    low, high = 9 * 5 * (read * 5 + 1_000 * 25) / 1e6, 9 * 16 * (read * 5 + 2_800 * 25) / 1e6
    assert (plan["low"]["usd"], plan["high"]["usd"]) == (round(low, 4), round(high, 4))
    assert [plan[key] for key in ("usd", "calls", "tokens")] == [
        plan["high"][key] for key in ("usd", "calls", "tokens")
    ]
    assert printed(capsys, "plan", *flags, "--study.steps", "7")["usd"] < high
    assert printed(capsys, "plan", *flags, "--study.usd", "1")["usd"] == 9
    cached = Price(tokens_in=5, tokens_out=25, cached=0.5, cache_written=6.25)
    settings = Settings(optimizer="recreate", rounds=1, train=8, study=StudySettings(usd=100.0))
    past = planning.Past([Usage(calls=1, tokens_in=500)])
    found = planning.plan(settings, find_agent("seed", workspace), FREE, cached, past)
    # of 1 + 2 + ... + 5 parts of the prompts 5 are new: written to the cache, the rest read from it
    each = 5 * 18_000
    new = each * 2 / 6
    assert found.low.usd == pytest.approx(
        9 * (new * 6.25 + (each - new) * 0.5 + 5 * 1_000 * 25) / 1e6, abs=0.01
    )
    assert any("read from the cache" in text for text in found.assumes)


def test_a_plan_reckons_with_how_long_the_tasks_are(
    workspace: Path, model: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    seed = find_agent("seed-math-small", workspace)
    short, long = (
        planning.plan(
            Settings(rounds=1, optimizer="reflect"), seed, FREE, FREE, planning.Past(prompt=n)
        )
        for n in (200, 20_000)
    )
    assert short.low.tokens * 5 < long.low.tokens
    # a question of 200 tokens, its instructions, a reply: not the thousands of a repository
    assert short.low.tokens < short.low.calls * 2_000
    assert "the tasks' length" in printed(capsys, "plan", *TOY, *model)["source"]


def test_a_plan_counts_the_calls_of_a_judge(workspace: Path) -> None:
    seed = find_agent("seed", workspace)
    past = planning.Past([Usage(calls=2, tokens_in=500)], prompt=500)
    plain, judged = (
        planning.plan(Settings(rounds=1, optimizer="reflect"), seed, FREE, FREE, known, finds=False)
        for known in (past, replace(past, judge=Price(tokens_in=1, tokens_out=4)))
    )
    assert judged.calls == plain.calls + plain.attempts
    assert judged.usd == pytest.approx(plain.attempts * (2000 + 4 * 250) / 1e6)
    assert "grading: a call to the judge for each attempt" in judged.assumes


def test_a_build_says_first_what_it_takes_and_says_it_better_after_its_first_attempts(
    workspace: Path, model: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli(["build", *TOY, *model, "--out", "runs/a"]) == 0
    said = capsys.readouterr().err.splitlines()
    guess, better = (line for line in said if "at most 73 attempts" in line)
    first = next(at for at, line in enumerate(said) if "validation 1/8" in line)
    assert said.index(guess) < first < said.index(better)
    assert guess.startswith("this build takes: at most 73 attempts, ")
    assert better.startswith("by the 8 attempts so far it takes: at most 73 attempts, ")
    most = [int(re.findall(r"([\d,]+) tokens", s)[0].replace(",", "")) for s in (guess, better)]
    assert most[1] * 4 < most[0]
    # what is known here already is not guessed
    assert cli(["build", *TOY, *model, "--scaffold", "runs/a/seed", "--out", "runs/b"]) == 0
    assert sum("at most 73 attempts" in s for s in capsys.readouterr().err.splitlines()) == 1


def test_a_plan_takes_studies_and_the_seeds_score_from_what_was_measured_here(
    workspace: Path, model: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    flags = [*TOY, *model, "--scaffold", "seed", "--optimizer", "recreate", "--rounds", "1"]
    before = printed(capsys, "plan", *flags)
    assert before["base_rate"] == 0.3
    assert "the seed's score: 0.3, assumed" in before["assumes"]
    assert cli(["build", *flags, "--rounds", "0", "--out", "runs/a"]) == 0
    for number, calls in enumerate((10, 20, 30)):
        usage = Usage(calls=calls, tokens_in=1000 * calls, tokens_out=100 * calls)
        folder = workspace / "runs/a/studies" / str(number)
        folder.mkdir(parents=True)
        (folder / "study.json").write_text(Study(id=str(number), usage=usage).model_dump_json())
    plan = printed(capsys, "plan", *flags, "--fresh")
    assert "studies: the middle half of 3 studies made here before" in plan["assumes"]
    # the high end has rehearsals besides, a candidate's attempts at all eight tasks, and further
    # attempts by both at the end
    attempts = plan["attempts"] - 2 * 9 - 3 - 2 * 2 * 8
    assert (plan["low"]["calls"], plan["high"]["calls"]) == (
        2 * attempts + 9 * 15,
        2 * plan["attempts"] + 9 * 25,
    )
    assert plan["base_rate"] == 0.0
    assert "the seed's score: 0.00 on 8 validation tasks attempted here" in plan["assumes"]
    # another optimizer's studies say nothing of this one's
    other = printed(
        capsys, "plan", *flags, "--models.optimizer", write_script(workspace / "other.jsonl")
    )
    assert any("no studies were made here before" in text for text in other["assumes"])


def test_a_plan_counts_the_reruns_that_a_memory_policy_may_make(
    workspace: Path, model: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    flags = [*TOY, *model, "--scaffold", "seed", "--rounds", "2"]
    plain, learning, capped = (
        printed(capsys, "plan", *flags, *more)
        for more in (
            [],
            ["--memory", "recreate"],
            ["--memory", "recreate", "--memory.reruns", "10"],
        )
    )
    assert [p["attempts"] - plain["attempts"] for p in (learning, capped)] == [2 * 192, 20]
    assert (learning["low"], capped["proposals"]) == (plain["low"], plain["proposals"])
    assert any("tested by 10 re-runs a round" in text for text in capped["assumes"])


def test_a_plan_says_where_the_gate_can_see_no_gain(
    workspace: Path, model: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    tasks = [t for t in Toy().tasks("validation")]
    spec = model[1]
    rates.add(
        workspace / "benchmarks/toy/pass_rates.jsonl",
        [
            PassRate(task=t.id, digest=t.digest, scaffold="seed", model=spec, attempts=3, passed=3)
            for t in tasks
        ],
    )
    plan = printed(capsys, "plan", *TOY, *model, "--scaffold", "seed")
    assert (plan["base_rate"], plan["detectable_gain"]) == (1.0, 1.0)
    assert (
        "the seed's score: 1.00 by the measured pass rates of 8 validation tasks" in plan["assumes"]
    )
    assert cli(["plan", *TOY, *model, "--scaffold", "seed"]) == 0
    assert "keeps no gain" in capsys.readouterr().out


def test_one_agent_attempts_one_task(
    workspace: Path, model: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    found = printed(capsys, "run", "seed", "toy:train:1", *TOY, *model)
    assert (found["ending"], found["score"], found["passed"], found["steps"]) == (
        "submitted",
        0.0,
        False,
        2,
    )
    assert found["usage"]["calls"] == 2
    kept = ExperienceStore(workspace).get(found["experience"])
    assert kept is not None
    assert kept.task == "toy:train:1"
