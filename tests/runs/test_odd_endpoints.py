"""Whole runs at endpoints that behave oddly for one task: the others go on, and no cap is
crossed."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

import recreate
from recreate.agents import scaffold as scaffolds
from recreate.agents.scaffold import Scaffold
from recreate.api.errors import Fault, OutOfBudget, Refused
from recreate.api.paths import shipped
from recreate.optimizers.investigator.read_tools import tell_whole
from recreate.runs.reader import Run
from tests.stub import Body, Stub, calling, completion
from tests.toy import Toy

ODD = "number 3"


def works(body: Body) -> Body:
    """Write the word that is asked for, then hand in."""
    asked = json.dumps(body["messages"])
    if any(m["role"] == "assistant" for m in body["messages"]):
        return completion("```bash\nsubmit\n```")
    word = re.search(r"word number (\d+)", asked)
    assert word is not None
    return completion(f"```bash\nprintf %s 'w{word[1]}!' > answer.txt\n```")


def refusing(words: str, status: int = 400, *, later: bool = False) -> Stub:
    """Refuses what is asked of the odd task, its first request or the one after."""

    def fault(body: Body) -> Any:
        odd = ODD in str(body["messages"][:2]) and (len(body["messages"]) > 2) == later
        return (status, json.dumps({"error": {"message": words}})) if odd else None

    return Stub(works, fault=fault)


def bench(stub: Stub, **settings: Any) -> dict[str, dict[str, Any]]:
    how = {"price": "1,1", "models.retries": 1, "memory.embedder": "hashed", **settings}
    model = f"openai:{stub.url}#stub"
    (result,) = recreate.bench("seed", Toy(), split="train", model=model, out="runs/b", **how)
    return {s["task"]: s for s in result.scores}


@pytest.mark.parametrize("jobs", [1, 3])
@pytest.mark.parametrize("later", [False, True])
@pytest.mark.parametrize(
    ("words", "how"),
    [
        ("The input token count (1200000) exceeds the maximum number of tokens", "limit context"),
        ("flagged: content_filter", "error filter"),
        ("blue is no colour of ours", "excluded"),
    ],
)
def test_one_task_that_an_endpoint_refuses_ends_its_own_attempt_alone(
    workspace: Path, words: str, how: str, later: bool, jobs: int
) -> None:
    with refusing(words, later=later) as stub:
        scores = bench(stub, jobs=jobs, repeats=3)
    run = Run(workspace / "runs" / "b")
    ended = [r for r in run.records("experience") if r["task"] == "toy:train:3"]
    if how == "excluded" and not later:
        assert len(run.excluded()) == 3
        assert all("blue is no colour" in r["fault"] for r in run.excluded())
    else:
        # what it had done until then is graded
        how = how.replace("excluded", "error request")
        assert [f"{r['ending']} {run.experience(r['attempt']).trace.limit}" for r in ended] == [
            how
        ] * 3
        assert [r["score"] for r in ended] == [float(later)] * 3
        last = run.experience(ended[0]["attempt"]).trace.steps[-1]
        assert words[:20] in last.output
    others = [r["score"] for r in run.records("experience") if r["task"] != "toy:train:3"]
    assert others == [1.0] * 21
    assert scores


def test_where_each_first_request_is_refused_nothing_is_spent(workspace: Path) -> None:
    with Stub(fault=lambda body: (400, "blue is no colour of ours")) as stub:
        with pytest.raises(Refused, match="blue is no colour"):
            bench(stub, jobs=2)
        assert stub.count <= 2


REFUSAL = completion("x")
REFUSAL["choices"][0]["message"] = {"role": "assistant", "content": None, "refusal": "I will not."}
THOUGHT = completion("```bash\nsubmit\n```")
THOUGHT["choices"][0]["message"]["reasoning_content"] = "It is done, I think."
FILTERED = completion("")
FILTERED["choices"][0]["finish_reason"] = "content_filter"


@pytest.mark.parametrize(
    ("answer", "score", "said"),
    [
        (REFUSAL, 0.0, "I will not."),
        (FILTERED, 0.0, "its provider's filter withheld it"),
        (THOUGHT, 0.0, "It is done, I think."),
        (calling(("submit", {})), 0.0, "submit"),
    ],
)
def test_what_a_model_says_in_any_way_is_in_the_trace(
    workspace: Path, answer: Body, score: float, said: str
) -> None:
    with Stub(lambda body: answer if ODD in str(body["messages"][:2]) else works(body)) as stub:
        scores = bench(stub, **{"limits.steps": 3})
    assert scores["toy:train:3"]["score"] == score
    assert sum(s["score"] for s in scores.values()) == 7 + score
    made = Run(workspace / "runs" / "b").experience(scores["toy:train:3"]["experience"])
    assert said in made.trace.steps[0].model_dump_json()
    assert said in tell_whole(made.trace.steps[0], 1000), "and its optimizer reads it"


OUTAGE = completion("half of it")
OUTAGE["choices"][0]["finish_reason"] = "error"


def test_an_outage_with_status_200_is_no_score(workspace: Path) -> None:
    odd = OUTAGE | {"usage": {"prompt_tokens": 20, "completion_tokens": 7}}
    with Stub(lambda body: odd if ODD in str(body["messages"][:2]) else works(body)) as stub:
        scores = bench(stub, **{"models.retries": 0})
    run = Run(workspace / "runs" / "b")
    assert [r["task"] for r in run.excluded()] == ["toy:train:3"]
    assert [s["score"] for t, s in scores.items() if t != "toy:train:3"] == [1.0] * 7


USAGES: dict[str, Any] = {
    "thinking in the total alone": {
        "prompt_tokens": 50,
        "completion_tokens": 9,
        "total_tokens": 5059,
    },
    "thinking apart": {
        "prompt_tokens": 50,
        "completion_tokens": 9,
        "completion_tokens_details": {"reasoning_tokens": 5000},
        "total_tokens": 5059,
    },
    "other names": {"input_tokens": 4000, "output_tokens": 1059},
    "a sum that cannot be": {"prompt_tokens": 50, "completion_tokens": 5009, "total_tokens": 60},
    "thinking that cannot be": {
        "prompt_tokens": 50,
        "completion_tokens": 9,
        "completion_tokens_details": {"reasoning_tokens": 5009},
        "total_tokens": 59,
    },
}


@pytest.mark.parametrize("shape", USAGES)
def test_a_cap_holds_over_all_that_is_billed(workspace: Path, shape: str) -> None:
    billed = 0

    def reply(body: Body) -> Body:
        nonlocal billed
        billed += 5059
        return works(body) | {"usage": USAGES[shape]}

    with Stub(reply) as stub, pytest.raises(OutOfBudget):
        bench(stub, budget=("0.06usd",), repeats=4, jobs=1)
    spent = Run(workspace / "runs" / "b").spend().usd
    assert billed / 1e6 <= spent <= 0.06


@pytest.mark.parametrize("shape", ["thinking in the total alone", "thinking apart", "other names"])
def test_thinking_that_max_tokens_does_not_bound_crosses_a_cap_by_no_second_call(
    workspace: Path, shape: str
) -> None:
    billed: list[int] = []

    def reply(body: Body) -> Body:
        billed.append(5059)
        return works(body) | {"usage": USAGES[shape]}

    seed = scaffolds.load(shipped("scaffolds") / "seed")
    toml = re.sub(r"max_tokens = \d+", "max_tokens = 300", seed.files["agent.toml"])
    short = Scaffold(name="short", files={**seed.files, "agent.toml": toml})
    how: dict[str, Any] = {"price": "1,1", "memory.embedder": "hashed", "jobs": 1, "repeats": 9}
    how |= {"split": "train", "out": "runs/b", "budget": ("0.1usd",)}
    with Stub(reply) as stub, pytest.raises(OutOfBudget):
        recreate.bench(short, Toy(), model=f"openai:{stub.url}#stub", **how)
    spent = Run(workspace / "runs" / "b").spend().usd
    assert sum(billed[1:]) / 1e6 <= spent <= 0.1
    assert len(billed) > 10


def test_a_wait_of_hours_ends_the_run_which_can_be_resumed(workspace: Path) -> None:
    words, headers = "Rate limit reached. Please try again in 7h12m.", {"Retry-After": "25920"}
    waits = [True]

    def fault(body: Body) -> Any:
        return (429, words, headers) if waits[0] and ODD in str(body["messages"][:2]) else None

    with Stub(works, fault=fault) as stub:
        with pytest.raises(Fault, match="asks to wait 7 h 12 min"):
            bench(stub, jobs=1)
        before = stub.count
        waits[0] = False
        assert [s["score"] for s in bench(stub, jobs=1).values()] == [1.0] * 8
        assert stub.count == 17, "one refused, two for each task"
        assert before == 7
