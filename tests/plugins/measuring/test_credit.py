"""`credit` and `rebase`: what parts of an agent are worth, paid once, on validation tasks, and
their removal judged."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from recreate.api.paths import shipped
from recreate.cli import run as cli
from recreate.plugins.measuring.knockouts import Cost, Credit, break_even
from recreate.runs.reader import Run
from tests.toy import LESSON, SIZES, script, write_script

HARM = "Write in capitals."
FIELDS = ["path", "worth", "lo", "hi", "attempts", "advice"]


def rows() -> list[dict[str, Any]]:
    """It does as the lesson says, unless it is told to write in capitals; of the last three tasks
    all the same."""
    made = []
    for split, size in SIZES.items():
        for n in range(size):
            told = [(HARM, f"W{n}")] * (n < 5) + [(LESSON, f"w{n}!"), ("", f"w{n}")]
            for text, word in told:
                reply = f"```bash\nprintf %s '{word}' > answer.txt\n```"
                row = {"role": "agent", "task": f"toy:{split}:{n}", "step": 0, "text": reply}
                made.append(row | ({"contains": text} if text else {}))
    return [*made, {"role": "agent", "text": "```bash\nsubmit\n```"}]


@pytest.fixture
def flags(workspace: Path) -> list[str]:
    """An agent `mine` with three parts that a person wrote, and the model that goes by them."""
    (workspace / "s.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows()))
    mine = workspace / "scaffolds" / "mine"
    shutil.copytree(shipped("scaffolds") / "seed", mine)
    (mine / "memory").mkdir()
    (mine / "memory" / "mark.md").write_text(f"# Ends\n\n{LESSON}\n")
    system = mine / "system.md"
    system.write_text(system.read_text("utf-8") + f"\n- Think twice.\n- {HARM}\n", "utf-8")
    return [
        "--domain",
        "tests.toy:Toy",
        "--model",
        f"scripted:{workspace / 's.jsonl'}",
        "--sandbox",
        "none",
    ]


def asked(capsys: pytest.CaptureFixture[str], *words: str) -> dict[str, Any]:
    capsys.readouterr()
    assert cli([*words, "--json"]) == 0
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


@pytest.mark.slow
@pytest.mark.usefixtures("each_step")
def test_an_agent_that_a_build_made_is_measured_on_that_builds_tasks_where_no_flag_says_which(
    workspace: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    flags = ["--domain", "tests.toy:Toy", "--model", write_script(workspace / "s"), "--train", "4"]
    flags += ["--validation", "6", "--rounds", "1", "--sandbox", "none", "--out", "runs/b"]
    python = ["--vllm-python", str(workspace)]
    assert cli(["build", *flags, *python]) == 0
    for what in ("last", "runs/b"):
        plan = asked(capsys, "ablate", what, "--plan")
        assert (plan["parts"], plan["known"]) == (1, 12)


@pytest.mark.slow
def test_parts_get_their_worth_and_the_harmful_one_goes_through_the_gate(
    workspace: Path, flags: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["ablate", "mine", *flags, "--out", "runs/c"]
    plan = asked(capsys, *command, "--plan")
    assert (plan["parts"], plan["attempts"], plan["known"]) == (3, 32, 0)
    assert not (workspace / "runs" / "c").exists()
    found = asked(capsys, *command)
    assert found["schema"] == 1
    assert all(field in part for part in found["parts"] for field in FIELDS)
    by = {part["says"]: part for part in found["parts"]}
    good, bad = by[f"Ends {LESSON}"], by[HARM]
    assert (good["path"], good["kind"], good["advice"]) == ("memory/mark.md", "lesson", "keep")
    assert bad["kind"] == "rule"
    assert "drop" in bad["advice"]
    assert bad["hi"] < 0 < good["lo"]
    assert by["Think twice."]["advice"] in ("undecided", "dead weight: drop")
    assert found["attempts"] == found["paid"] >= 32

    # on validation tasks alone; nothing is paid twice, in this folder or in another
    run = Run(workspace / "runs" / "c")
    assert {record["split"] for record in run.records("experience")} == {"validation"}
    again = asked(capsys, *command)
    assert (again["parts"], again["paid"]) == (found["parts"], found["paid"])
    elsewhere = asked(capsys, *command[:-1], "runs/d")
    assert (elsewhere["parts"], elsewhere["paid"]) == (found["parts"], 0)

    pruned = asked(capsys, *command, "--prune")["pruned"]
    assert (pruned["kept"], pruned["verdict"]["verdict"]) == (True, "better")
    assert HARM not in (workspace / "scaffolds/mine/system.md").read_text("utf-8")
    (revision,) = Run(workspace / "runs" / "c-prune").revisions()
    assert {edit.origin for edit in revision.edits} == {"prune"}
    assert (
        cli(["show", "runs/c"])
        == cli(["show", "runs/c-prune", "--html"])
        == cli(["log", "runs/c-prune"])
        == 0
    )
    assert cli(["resume", "runs/c-prune"]) == 2  # it is no build that could go on to its rounds
    assert cli([*command, "--json"]) == 2  # the agent is another one now
    assert "--out" in json.loads(capsys.readouterr().out.splitlines()[-1])["error"]["fix"]


@pytest.mark.slow
def test_a_build_s_lesson_is_credited_with_its_edit_and_rebased_on_another_model(
    workspace: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (workspace / "s.jsonl").write_text("".join(json.dumps(row) + "\n" for row in script()))
    flags = [
        "--domain",
        "tests.toy:Toy",
        "--model",
        f"scripted:{workspace / 's.jsonl'}",
        "--sandbox",
        "none",
    ]
    assert cli(["build", *flags, "--scaffold", "seed", "--rounds", "1", "--out", "runs/a"]) == 0
    # tasks and model are the build's
    found = asked(capsys, "ablate", "last", "--repeats", "1", "--out", "runs/c")
    (part,) = found["parts"]
    (revision,) = Run(workspace / "runs" / "a").revisions()
    assert (part["advice"], part["worth"]) == ("keep", 1.0)
    assert [(edit["origin"], edit["revision"]) for edit in part["edits"]] == [("edit", revision.id)]
    assert found["paid"] < found["attempts"]  # the build's scores are read back

    (workspace / "wise.jsonl").write_text(
        (workspace / "s.jsonl").read_text().replace(LESSON, "Linux shell")
    )
    (workspace / "dull.jsonl").write_text(
        (workspace / "s.jsonl").read_text().replace(LESSON, "nothing like it")
    )
    other = ["--price", "1,2", "--repeats", "1", "--tasks", "8"]
    wise = asked(
        capsys,
        "transfer",
        "toy",
        "--model",
        f"scripted:{workspace / 'wise.jsonl'}",
        *other,
        "--repeats",
        "3",
    )
    assert (wise["bare"], wise["parts"][0]["worth"]) == (1.0, 0.0)
    assert wise["break_even"]["tasks"] is None
    assert "never" in wise["break_even"]["says"]
    dull = asked(
        capsys, "transfer", "toy", "--model", f"scripted:{workspace / 'dull.jsonl'}", *other
    )
    assert dull["parts"][0]["advice"] == "undecided"
    assert "every attempt scored 0" in dull["note"]
    assert "--worth USD" in dull["break_even"]["says"]
    assert cli(["transfer", "toy", "--json"]) == 2


def test_a_budget_that_ends_before_suspected_pairs_are_looked_at_still_gives_the_table(
    workspace: Path, flags: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["ablate", "mine", *flags, "--out", "runs/c", "--json"]
    assert cli([*command, "--budget", "32attempts"]) == 3
    found = json.loads(capsys.readouterr().out)
    assert (found["status"], found["paid"]) == ("budget", 32)
    assert "the budget ended before suspected pairs" in found["note"]
    assert {part["attempts"] for part in found["parts"]} == {32}
    assert 0 <= found["bare"] <= found["full"] <= 1


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["ablate", "nothing"], "there is no scaffold or run"),
        (["ablate", "seed"], "has no parts"),
        (["ablate", "last"], "there is no run here yet"),
        (["ablate", "mine", "--budget", "20attempts"], "does not pay for the 32 attempts"),
        (["ablate", "mine", "--tasks", "3", "--repeats", "1"], "takes 4 pairs of attempts"),
        (["ablate", "mine", "--base", "mine"], "has no parts"),
    ],
)
def test_what_cannot_be_told_is_refused_before_anything_is_paid(
    words: list[str],
    told: str,
    workspace: Path,
    flags: list[str],
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert cli([*words, *flags, "--out", "runs/c", "--json"]) == 2
    error = json.loads(capsys.readouterr().out)["error"]
    assert told in error["message"]
    assert error["fix"]
    assert not list((workspace / "runs").glob("*/attempts/*"))


CREDIT = Credit(
    domain="toy",
    scaffold="a",
    agent="1",
    base="0",
    model="m",
    tasks=20,
    repeats=2,
    attempts=80,
    paid=80,
    excluded=0,
    usd=1.0,
    full=0.8,
    bare=0.4,
    gain=0.4,
    gain_lo=0.2,
    gain_hi=0.6,
    level="90%",
    parts=(),
)


def test_a_build_is_repaid_by_what_solved_tasks_are_worth_less_what_attempts_cost_more() -> None:
    cost = Cost("usd", full=0.03, bare=0.02)
    # a solved task is worth 0.02 / 0.4 = 0.05
    own = break_even(CREDIT, cost, {"usd": 10.0, "tokens": 0.0})
    assert (own.saved, own.tasks, own.best, own.worst) == (pytest.approx(0.01), 1000, 500, None)
    given = break_even(CREDIT, cost, {"usd": 10.0, "tokens": 0.0}, worth=1.0)
    assert (given.saved, given.tasks, given.best, given.worst) == (pytest.approx(0.39), 26, 17, 53)
    assert "repaid after 26 tasks (17 to 53" in given.says
    worse = break_even(CREDIT.model_copy(update={"gain": -0.1}), cost, {"usd": 10.0, "tokens": 0.0})
    assert worse.tasks is None
    assert "never" in worse.says
    tokens = break_even(
        CREDIT, Cost("tokens", 900, 1000), {"usd": 0.0, "tokens": 5000.0}, worth=1.0
    )
    assert "--price" in tokens.says
