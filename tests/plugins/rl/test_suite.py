"""bench with arms: what a suite says, what is refused before anything is spent, and a table of
built arms."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from recreate.cli import run as cli
from recreate.memory.held_out import Held, HeldOut
from recreate.plugins.rl import comparison, recipe
from recreate.plugins.rl import suite as suites
from recreate.runs.budget import Budget
from recreate.storage.log import Log
from tests.toy import write_script

SUITE = """
domain = "tests.toy:Toy"
model = "scripted:s.jsonl"
scaffold = "seed"
budget = ["60attempts"]
optimizer = "reflect"
rounds = 1
train = 2
validation = 5

[arms.scaffold]
build = true

[arms.longer]
build = true
"""
Bench = Callable[..., tuple[int, dict[str, Any]]]


@pytest.fixture
def bench(workspace: Path, capsys: pytest.CaptureFixture[str]) -> Bench:
    """Run the command: (exit code, the JSON object)."""
    write_script(workspace / "s.jsonl")

    def call(*flags: str, text: str = "") -> tuple[int, dict[str, Any]]:
        if text:
            (workspace / "suite.toml").write_text(text)
            flags = ("suite.toml", *flags)
        capsys.readouterr()
        code = cli(["bench", *flags, "--json"])
        found: dict[str, Any] = json.loads(capsys.readouterr().out)
        return code, found

    return call


def attempts(folder: Path) -> int:
    return sum(
        '"kind":"attempt"' in line for line in (folder / "ledger.jsonl").read_text().splitlines()
    )


@pytest.mark.slow
@pytest.mark.usefixtures("each_step")
def test_built_arms_are_measured_beside_the_seed(bench: Bench, workspace: Path) -> None:
    code, made = bench("--split", "test", "--out", "run", text=SUITE)
    assert code == 0, made
    seed, scaffold, longer = made["cells"]
    assert [c["arm"] for c in made["cells"]] == ["seed", "scaffold", "longer"]
    assert (seed["mean"], scaffold["mean"], longer["mean"]) == (0.0, 1.0, 1.0)
    assert {
        "scaffold",
        "model",
        "domain",
        "n",
        "repeats",
        "mean",
        "lo",
        "hi",
        "usd",
    } <= scaffold.keys()
    assert seed["made"]["spent"]["attempts"] == 0
    assert seed["diff"] is None
    assert (scaffold["diff"]["diff"], scaffold["diff"]["verdict"], scaffold["diff"]["tasks"]) == (
        1.0,
        "better",
        6,
    )
    # 2 train tasks, and 5 validation tasks for the seed and for the candidate
    assert scaffold["made"]["spent"]["attempts"] == 12
    assert (scaffold["made"]["budget"], scaffold["made"]["over"], scaffold["made"]["stopped"]) == (
        {"attempts": 60.0},
        [],
        False,
    )
    assert scaffold["measured"]["attempts"] == 6
    # each pays for itself, from an empty memory, and the workspace's agents and memory know nothing
    # of it
    assert longer["made"]["spent"] | {"minutes": 0} == scaffold["made"]["spent"] | {"minutes": 0}
    assert not (workspace / "scaffolds").exists()
    rows = [json.loads(x) for x in (workspace / "run/journal.jsonl").read_text().splitlines()]
    assert {r["split"] for r in rows if r["kind"] == "experience"} == {"test"}
    assert sum(r["kind"] == "test-opened" for r in rows) == 2, (
        "the seed, and the agent that both builds made"
    )
    assert [c["test_openings"] for c in made["cells"]] == [1, 2, 2]
    for arm in ("scaffold", "longer"):
        told = (workspace / f"run/arms/{arm}/build/journal.jsonl").read_text()
        assert '"split":"test"' not in told
    report = (workspace / "run/report.md").read_text()
    assert "(opening 1) |" in report
    assert "(opening 2) |" in report
    assert "+1.000" in report


@pytest.mark.slow
def test_optimizers_are_put_side_by_side_from_one_seed_under_one_budget(
    bench: Bench, workspace: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    given = [
        "--domain",
        "tests.toy:Toy",
        "--model",
        "scripted:s.jsonl",
        "--scaffold",
        "seed",
        "--train",
        "2",
    ]
    given += [
        "--validation",
        "5",
        "--optimizers",
        "reflect,best-of-n",
        "--budget",
        "60attempts",
        "--out",
        "run",
    ]
    code, made = bench(*given)
    assert code == 0, made
    assert [c["arm"] for c in made["cells"]] == ["seed", "reflect", "best-of-n"]
    spent = {c["arm"]: c["made"]["spent"]["attempts"] for c in made["cells"]}
    assert 0 == spent["seed"] < spent["reflect"] < spent["best-of-n"], (
        "best-of-n tries its proposals on train tasks"
    )
    for name in ("reflect", "best-of-n"):
        assert (
            f'optimizer = "{name}"'
            in (workspace / f"run/arms/{name}/build/settings.toml").read_text()
        )
    assert made["cells"][1]["diff"]["verdict"] == "better"
    assert bench("--optimizers", "reflect", text=SUITE)[1]["error"]["code"] == "usage"
    assert cli(["show", "run"]) == 0
    assert (
        "budget 60attempts for making each arm, no cap for measuring\n" in capsys.readouterr().out
    )
    assert cli(["show", "run", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["budget"] == {"attempts": 60.0}


@pytest.mark.slow
def test_the_same_command_goes_on_and_pays_for_nothing_twice(bench: Bench, workspace: Path) -> None:
    flags = ("--arms", "seed", "--out", "run")
    assert bench("--arms", "scaffold", "--out", "run", text=SUITE)[0] == 0
    places = [workspace / "run", workspace / "run/arms/scaffold/build"]
    before = [attempts(place) for place in places]
    code, made = bench("run")  # the folder knows what it is
    assert code == 0, made
    assert [attempts(place) for place in places] == before
    code, made = bench("--out", "run", text=SUITE)  # one more arm
    assert [c["arm"] for c in made["cells"]] == ["seed", "scaffold", "longer"]
    assert attempts(places[1]) == before[1]
    code, said = bench("--repeats", "3", "--out", "run", text=SUITE)
    assert (code, said["error"]["code"]) == (2, "another-run")
    assert bench(*flags, text=SUITE)[1]["error"]["code"] == "no-arms"


@pytest.mark.slow
def test_an_arm_that_its_budget_stopped_says_so_and_goes_on_with_more(bench: Bench) -> None:
    text = SUITE.replace("[arms.longer]\nbuild = true\n", "").replace("60attempts", "13attempts")
    text = text.replace("rounds = 1\ntrain = 2", "rounds = 2\ntrain = 4")
    code, made = bench("--out", "run", text=text)
    assert code == 0, made
    stopped = made["cells"][1]
    assert (stopped["made"]["stopped"], stopped["made"]["build"]["status"]) == (True, "budget")
    assert stopped["made"]["spent"]["attempts"] == 13
    code, made = bench("--out", "run", "--budget", "80attempts", text=text)
    assert (code, made["cells"][1]["made"]["stopped"]) == (0, False)


@pytest.mark.slow
@pytest.mark.usefixtures("each_step")
def test_runs_made_before_are_rows_too(
    bench: Bench, workspace: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    flags = [
        "--domain",
        "tests.toy:Toy",
        "--model",
        "scripted:s.jsonl",
        "--scaffold",
        "seed",
        "--train",
        "2",
    ]
    flags += ["--validation", "5", "--rounds", "1"]
    assert cli(["build", *flags, "--out", "runs/mine"]) == 0
    text = SUITE.replace("build = true", 'run = "runs/mine"').replace("60attempts", "10attempts")
    code, made = bench(text=text)
    assert code == 0, made
    row = made["cells"][1]["made"]
    assert (row["before"], row["over"], row["spent"]["attempts"]) == (True, ["attempts"], 12)
    code, said = bench("--scaffold", "seed-swe-small", text=text)
    assert (code, said["error"]["code"]) == (2, "another-run")
    write_script(workspace / "other.jsonl")
    code, said = bench("--model", "scripted:other.jsonl", text=text)
    assert (code, said["error"]["code"]) == (2, "another-run")
    assert bench(text=text.replace("runs/mine", "runs/none"))[1]["error"]["code"] == "no-run"


@pytest.mark.parametrize(
    ("code", "old", "new"),
    [
        ("unknown-key", "build = true", "biuld = true"),
        ("unknown-key", 'optimizer = "reflect"', 'optimiser = "reflect"'),
        ("bad-suite", "[arms.longer]\nbuild = true", "[arms.longer]"),
        ("bad-suite", "[arms.longer]", "[arms.weights]\nrecipe = 'grpo'"),
        ("bad-suite", "[arms.longer]", "[arms.longer]\nsteps = 3"),
        ("bad-suite", "[arms.longer]", "[arms.longer]\nrun = 'x'"),
        ("bad-suite", "[arms.longer]", "[arms.seed]"),
        ("bad-suite", "[arms.longer]\nbuild = true", "[arms.longer]\nbuild = 'perhaps'"),
        ("no-recipe", "[arms.longer]\nbuild = true", "[arms.weights]"),
        ("no-recipe", "[arms.longer]", "[arms.both]"),
        ("unknown-recipe", "[arms.longer]\nbuild = true", "[arms.weights]\nrecipe = 'grop'"),
        ("not-trainable", "[arms.longer]\nbuild = true", "[arms.weights]\nrecipe = 'grpo'"),
        ("no-budget", 'budget = ["60attempts"]', ""),
        ("bad-budget", "60attempts", "60apples"),
        ("budget-too-small", "60attempts", "10attempts"),
        ("bad-split", "[arms.scaffold]", "[arms.scaffold]"),
        ("bad-suite", 'scaffold = "seed"', 'scaffold = "seed"\ntasks = -1'),
        ("not-in-arms", 'scaffold = "seed"', 'scaffold = "seed"\nfrom_experience = true'),
        ("no-scaffold", 'scaffold = "seed"', 'scaffold = "sede"'),
        ("bad-suite", "[arms.scaffold]", "[arms.scaffold"),
    ],
)
def test_a_wrong_suite_is_refused_before_anything_is_spent(
    bench: Bench, workspace: Path, code: str, old: str, new: str
) -> None:
    assert old in SUITE
    more = ("--split", "testing") if code == "bad-split" else ()
    exit_code, said = bench("--out", "run", *more, text=SUITE.replace(old, new))
    assert (exit_code, said["error"]["code"]) == (2, code), said
    assert said["error"]["fix"]
    assert not (workspace / "run").exists()


@pytest.mark.parametrize(
    ("code", "flags"),
    [
        ("no-arm", ["--arms", "seed,wieghts"]),
        ("no-recipe", ["--arms", "weights"]),
        ("not-trainable", ["--arms", "weights", "--recipe", "grpo"]),
        ("usage", ["--arms", "scaffold", "--scaffold", "seed-swe-small"]),
        ("usage", ["--recipe", "grpo"]),
        ("usage", ["--steps", "5"]),
        ("usage", ["--arms", "scaffold", "--recipe", "grpo"]),
        ("usage", ["--arms", "scaffold", "--steps", "5"]),
        ("usage", ["--arms", "scaffold", "--build-share", "0.3"]),
        ("usage", ["--rounds", "2"]),
        ("usage", ["--train", "2"]),
        ("usage", ["--optimizer", "reflect"]),
        ("usage", ["--batch", "2"]),
        ("no-budget", ["--arms", "scaffold"]),
        ("no-budget", ["--optimizers", "reflect"]),
        ("unknown-optimizer", ["--optimizers", "reflect,gepaa", "--budget", "60attempts"]),
    ],
)
def test_wrong_flags_are_refused_before_anything_is_spent(
    bench: Bench, workspace: Path, code: str, flags: list[str]
) -> None:
    given = [
        "--domain",
        "tests.toy:Toy",
        "--model",
        "scripted:s.jsonl",
        "--scaffold",
        "seed",
        *flags,
    ]
    exit_code, said = bench(*given, "--out", "run")
    assert (exit_code, said["error"]["code"]) == (2, code), said
    assert said["error"]["fix"]
    assert not (workspace / "run").exists()


@pytest.mark.parametrize(
    ("optimizer", "code", "fix"),
    [("gepa", "missing", "[gepa]"), ("gepaa", "unknown-optimizer", "did you mean 'gepa'?")],
)
def test_an_arm_whose_optimizer_cannot_work_is_refused_before_the_first_arm_is_made(
    bench: Bench,
    workspace: Path,
    monkeypatch: pytest.MonkeyPatch,
    optimizer: str,
    code: str,
    fix: str,
) -> None:
    monkeypatch.setitem(sys.modules, "gepa", None)
    text = SUITE.replace("60attempts", "200attempts") + f'optimizer = "{optimizer}"\n'
    exit_code, said = bench("--out", "run", text=text)
    assert (exit_code, said["error"]["code"]) == (2, code), said
    assert fix in said["error"]["fix"]
    given = [
        "--domain",
        "tests.toy:Toy",
        "--model",
        "scripted:s.jsonl",
        "--scaffold",
        "seed",
        "--train",
        "2",
    ]
    given += ["--validation", "5", "--budget", "200attempts", "--out", "run"]
    exit_code, said = bench(*given, "--optimizers", f"reflect,{optimizer}")
    assert (exit_code, said["error"]["code"]) == (2, code), said
    assert not (workspace / "run").exists()


def test_a_suite_is_written_as_it_is_read(workspace: Path) -> None:
    (workspace / "suite.toml").write_text(SUITE)
    suite = suites.read(workspace / "suite.toml", workspace, {"repeats": 2}, "test", 3)
    (workspace / "again.toml").write_text(suite.dump())
    assert suites.read(workspace / "again.toml", workspace, {}) == suite
    assert (suite.settings.repeats, suite.split, suite.tasks) == (2, "test", 3)


def test_a_budget_is_shared_and_what_is_left_is_known() -> None:
    budget = Budget.parse(["201attempts", "3usd", "10min", "2Mtokens"])
    assert Budget.parse(budget.texts()) == budget
    half = comparison._share(budget, 0.5)
    assert half == Budget(usd=1.5, minutes=5, attempts=100, tokens=1_000_000)
    spent = {"attempts": 90, "usd": 1.0, "minutes": 11.5, "tokens": 5}
    assert comparison._rest(budget, spent) == Budget(
        usd=2.0, minutes=0, attempts=111, tokens=1_999_995
    )


@pytest.mark.slow
def test_what_the_workspace_holds_out_by_now_every_call_holds_out_in_the_arms(
    bench: Bench, workspace: Path
) -> None:
    here = HeldOut(workspace / "memory")
    here.add([Held("train-0", "toy:train:0", "test", "toy")])
    assert bench("--out", "run", text=SUITE)[0] == 0
    here.add([Held("train-1", "toy:train:1", "validation", "toy")])
    assert bench("--out", "run", text=SUITE)[0] == 0
    for arm in ("scaffold", "longer"):
        _, groups, tasks = HeldOut(workspace / f"run/arms/{arm}/memory").read()
        assert {"train-0", "train-1"} <= groups.keys()
        assert {"toy:train:0", "toy:train:1"} <= tasks.keys()


@pytest.mark.parametrize("left", ["", "[[", "split = 1\n", 'tasks = 0\nsplit = "test"\n', None])
def test_a_table_whose_suite_was_cut_off_says_so(
    bench: Bench, workspace: Path, left: str | None
) -> None:
    (workspace / "suite.toml").write_text(SUITE)
    suites.write(suites.read(workspace / "suite.toml", workspace, {}), workspace / "run/bench.toml")
    whole = (workspace / "run/bench.toml").read_text()
    (workspace / "run/bench.toml").write_text(whole[: len(whole) // 2] if left is None else left)
    code, said = bench("--out", "run", text=SUITE)
    assert (code, said["error"]["code"]) == (2, "bad-suite"), said
    assert said["error"]["fix"]
    assert [p.name for p in (workspace / "run").iterdir()] == ["bench.toml"]


def test_a_run_written_as_text_into_the_suite_of_a_table_is_one_run(workspace: Path) -> None:
    (workspace / "suite.toml").write_text(SUITE.replace("build = true", 'run = ["runs/mine"]'))
    suites.write(suites.read(workspace / "suite.toml", workspace, {}), workspace / "run/bench.toml")
    text = (workspace / "run/bench.toml").read_text()
    (workspace / "run/bench.toml").write_text(text.replace('["runs/mine"]', '"runs/mine"'))
    assert [arm.run for arm in suites.read_begun(workspace / "run/bench.toml").arms] == [
        (),
        *[("runs/mine",)] * 2,
    ]


@pytest.mark.slow
def test_each_agent_of_a_table_that_is_measured_on_test_is_an_opening(
    bench: Bench, workspace: Path
) -> None:
    text = SUITE.partition("[arms.longer]")[0]
    assert bench("--split", "test", "--out", "run", text=text)[1]["test_openings"] == 2
    assert bench("--split", "test", "--out", "run", text=text)[1]["test_openings"] == 2
    # an agent of another making comes after the scores were seen
    told = (workspace / "s.jsonl").read_text()
    (workspace / "t.jsonl").write_text(told.replace("How answers end", "The end of answers"))
    flags = [
        "--domain",
        "tests.toy:Toy",
        "--model",
        "scripted:s.jsonl",
        "--scaffold",
        "seed",
        "--train",
        "2",
    ]
    flags += ["--validation", "5", "--models.optimizer", "scripted:t.jsonl", "--out", "runs/mine"]
    assert cli(["build", *flags]) == 0
    text += '[arms.later]\nrun = "runs/mine"\n'
    code, made = bench("--split", "test", "--out", "run", text=text)
    assert (code, made["test_openings"]) == (0, 3), made
    assert bench("--split", "test", "--out", "run", text=text)[1]["test_openings"] == 3


def test_a_tuning_that_has_not_ended_is_no_row(bench: Bench, workspace: Path) -> None:
    flags = (
        "--scaffold",
        "seed",
        "--domain",
        "tests.toy:Toy",
        "--model",
        "scripted:s.jsonl",
        "--out",
        "tuned",
    )
    digest = bench(*flags)[1]["cells"][0]["digest"]
    file = workspace / "tuned/journal.jsonl"
    lines = file.read_text().splitlines(keepends=True)
    file.write_text("".join(line for line in lines if '"kind":"end"' not in line))
    journal = Log(file)
    journal.append(
        {"kind": "tune", "name": "grpo", "recipe": "", "scaffold": digest, "base": "", "seed": 0}
    )
    journal.close()
    (workspace / "tuned/checkpoints/step-000002").mkdir(parents=True)
    (workspace / "tuned/checkpoints/step-000002/state.json").write_text("{}")
    text = SUITE.partition("[arms.longer]")[0].replace("build = true", 'run = "tuned"')
    code, said = bench("--out", "run", text=text)
    assert (code, said["error"]["code"]) == (2, "not-ended"), said
    assert "--out" in said["error"]["fix"]
    assert not (workspace / "run").exists()


RECIPE = 'about = "a"\nsource = "s"\n'


@pytest.mark.parametrize(
    ("code", "parts", "rollouts"),
    [
        ("recipe-does-not-fit", '[gigpo]\n[a2r]\nadvantages = "again"\n', "here"),
        ("not-yet", '[lepo]\nnoise = "soft"\n', "here"),
        ("no-mixtures", "[lepo]\n", "transformers"),
        ("no-adapter", "[train]\nlora_rank = 0\n", "transformers"),
        ("missing", "[train]\nlora_rank = 8\n", "vllm"),
    ],
)
def test_an_arm_that_could_not_be_tuned_is_refused_before_anything_is_spent(
    bench: Bench, workspace: Path, code: str, parts: str, rollouts: str
) -> None:
    (workspace / "mine.toml").write_text(RECIPE + parts)
    (workspace / "model").mkdir()
    (workspace / "model/config.json").write_text("{}")
    arm = f'[arms.mine]\nrecipe = "./mine.toml"\nrollouts = "{rollouts}"\n'
    text = SUITE.partition("[arms.scaffold]")[0].replace("scripted:s.jsonl", "./model") + arm
    exit_code, said = bench("--out", "run", "--vllm-python", "./none", text=text)
    assert (exit_code, said["error"]["code"]) == (2, code), said
    assert "arms.mine" in said["error"]["message"]
    assert said["error"]["fix"]
    assert not (workspace / "run").exists()


def test_every_shipped_recipe_can_be_tuned_here() -> None:
    for name in recipe.names():
        recipe.load(name).refuse("here")
