"""Values that nobody means: exit 2 with a message and a fix, at once, and before a run folder or a
cent is spent."""

from __future__ import annotations

import json
import os
import signal
import time
from pathlib import Path
from typing import Any

import pytest

from recreate.api.errors import Fault
from recreate.api.ports import Price
from recreate.cli import run as cli
from recreate.runs.settings import Settings, addresses
from tests.cli.test_bad_input import TOY, refused
from tests.toy import write_script

NUMBERS = [a for a, default in addresses().items() if type(default) in (int, float)]
NOT_A_NUMBER = ["nan", "inf", "1e999", "1" + "0" * 30, "9" * 5000]
OUTS = {
    "a line end": "runs/a\nb",
    "an escape": "runs/\x1b[2J",
    "another order": "runs/\u202ex",
    "nul": "runs/a\0b",
    "half a character": "runs/\udc80",
    "nothing": " ",
    "256 characters": "runs/" + "x" * 256,
    "5,000 characters": "runs/" + "/".join(["y" * 200] * 25),
    "a file": "s.jsonl",
    "below a file": "s.jsonl/x",
    "a device": "/dev/null",
    "below no disk": "/proc/x",
    "the workspace": ".",
    "above the workspace": "..",
}


def test_every_number_of_the_settings_is_tried_here() -> None:
    assert len(NUMBERS) >= 16
    assert {"rounds", "study.usd", "models.timeout", "gate.alpha"} <= {*NUMBERS}


@pytest.mark.parametrize("address", NUMBERS)
def test_a_number_that_cannot_be_is_refused(
    address: str, workspace: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    below = {"seed": [], "memory.reruns": ["-2"]}.get(address, ["-1"])
    for value in [*NOT_A_NUMBER, *below]:
        begun = time.process_time()
        error = refused(
            capsys,
            "plan",
            *TOY,
            "--model",
            write_script(workspace / "s.jsonl"),
            f"--{address}",
            value,
        )
        assert len(error["message"]) < 1100
        assert time.process_time() - begun < 5
    assert not (workspace / "runs").exists()


@pytest.mark.parametrize(
    "value", ["nanusd", "infusd", "-1usd", "0usd", "1e999usd", "9" * 5000 + "attempts", "usd"]
)
def test_a_budget_that_cannot_be_is_refused(
    value: str, workspace: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    refused(capsys, "plan", *TOY, "--model", write_script(workspace / "s.jsonl"), "--budget", value)


@pytest.mark.parametrize("value", ["nan,1", "inf,1", "-1,1", "1", "1,2,3", "9" * 400 + ",1"])
def test_a_price_that_cannot_be_is_refused(
    value: str, workspace: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    refused(capsys, "plan", *TOY, "--model", write_script(workspace / "s.jsonl"), "--price", value)


@pytest.mark.parametrize("out", OUTS.values(), ids=OUTS)
@pytest.mark.parametrize(
    "command", ["build", "run seed toy:train:1", "bench --scaffold seed --split validation"]
)
def test_a_run_folder_that_cannot_be_is_refused_before_anything_is_spent(
    command: str, out: str, workspace: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model = write_script(workspace / "s.jsonl")
    before = sorted(workspace.rglob("*"))
    refused(capsys, *command.split(), *TOY, "--model", model, "--out", out)
    assert sorted(workspace.rglob("*")) == before


@pytest.mark.parametrize(
    "text",
    [
        "seed = " + "[" * 5000 + "]" * 5000,
        "x = " + "{a = " * 3000 + "1" + "}" * 3000,
        "seed = " + "9" * 5000,
        ".".join(["a"] * 5000) + " = 1",
        "rounds = nan",
        "rounds = inf",
        "\0",
        "a = 1\na = 2",
    ],
)
def test_a_settings_file_that_cannot_be_read_is_refused(
    text: str, workspace: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (workspace / "recreate.toml").write_text(text)
    refused(capsys, "plan", *TOY, "--model", write_script(workspace / "s.jsonl"))


@pytest.mark.parametrize(
    "text",
    [
        "[" * 100_000,
        "9" * 5000,
        '{"task": "a", "repeat": 0, "score": ' + "9" * 5000 + "}",
        '{"a": ' * 50_000,
    ],
)
def test_json_that_cannot_be_read_is_refused(
    text: str, workspace: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("x.jsonl").write_text(text)
    refused(capsys, "plan", *TOY, "--model", "scripted:x.jsonl")
    refused(capsys, "traces", "grade", "--domain", "tests.toy:Toy", "--outcomes", "x.jsonl")
    assert cli(["traces", "import", "x.jsonl", "--domain", "toy"]) in (0, 2)


CLASS = "  name = 'd'\n" + "".join(
    f"  def {m}: ...\n" for m in ("prepare(self, task, backend)", "collect(self, task, sandbox)")
)
CLASS += "  def grade(self, task, trace, backend): ...\n"
PLUGINS = {
    "exits": "import sys\nsys.exit(3)\n",
    "raises": "class B(BaseException): pass\nraise B('x')\n",
    "never_ends": "def f(): f()\nf()\n",
    "made_by_exit": (
        f"import sys\nclass D:\n  def __init__(self): sys.exit(5)\n  tasks = None\n{CLASS}"
    ),
    "tasks_by_exit": f"import sys\nclass D:\n  def tasks(self, split=None): sys.exit(5)\n{CLASS}",
}


@pytest.mark.parametrize("name", PLUGINS)
def test_a_domain_that_ends_the_process_is_refused(
    name: str, workspace: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (workspace / f"{name}_plugin.py").write_text(PLUGINS[name])
    model = write_script(workspace / "s.jsonl")
    for command in ("plan", "build"):
        refused(capsys, command, "--domain", f"{name}_plugin:D", "--model", model)
    assert not list(workspace.glob("runs/*/settings.toml"))


@pytest.mark.slow
@pytest.mark.parametrize(
    "words",
    [
        "memory recall x -k 0",
        f"memory recall x -k {10**30}",
        f"traces search x -k {10**30}",
        "memory recall x --where [",
        "judge a b --alpha nan",
        "judge a b --alpha 2",
        "traces import s.jsonl --domain toy --pass-at nan",
        "traces grade x --score nan --domain toy",
        f"show {'a' * 5000}",
        f"resume {'a' * 5000}",
        f"diff {'a' * 300} seed",
        f"scaffold check {'a' * 5000}",
        f"keep {'a' * 300}",
        "bench --scaffold seed --tasks -1",
        "tune --steps 0",
        "tune --max-kl nan --recipe grpo",
        "serve x --port 70000",
    ],
)
def test_other_values_that_nobody_means_are_refused(
    words: str, workspace: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_script(workspace / "s.jsonl")
    refused(capsys, *words.split())


class Fetched:
    """A model that has to be fetched first, which fails."""

    name = "tests:Fetched"
    price = Price(tokens_in=0, tokens_out=0)

    def prepare(self, progress: Any, say: Any) -> None:
        raise Fault("it was to be fetched", fix="none", code="fetched")

    def reply(self, messages: Any, call: Any, **params: Any) -> Any:
        raise AssertionError

    def close(self) -> None: ...


BUILD = "build --optimizer reflect"
BENCH = "bench --scaffold seed"


@pytest.fixture
def fetched(workspace: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A workspace whose default model is that one."""
    monkeypatch.setenv("RECREATE_MODEL", "tests.cli.test_bad_values:Fetched")
    (workspace / "recreate.toml").write_text("domain = 'tests.toy:Toy'\n")
    write_script(workspace / "s.jsonl")
    foreign = workspace / "mine" / "foreign"
    foreign.mkdir(parents=True)
    (foreign / "agent.toml").write_text('action = "command"\ncommand = "no-such-program"\n')
    return workspace


@pytest.mark.parametrize(
    "words",
    [
        f"{BUILD} --validation 2",
        f"{BUILD} --tasks nix",
        f"{BUILD} --tasks 5:5",
        f"{BUILD} --kind nix",
        f"{BUILD} --difficulty 0.9..0.2",
        f"{BUILD} --budget 1attempts",
        f"{BUILD} --scaffold create --budget 1attempts",
        f"{BUILD} --agent nix",
        f"{BUILD} --texts a",
        f"{BUILD} --models.optimizer-price x",
        f"{BUILD} --memory.embedder nix",
        f"{BUILD} --models.judge nix",
        f"{BUILD} --record s.jsonl",
        f"{BENCH} --tasks -1",
        f"{BENCH} --tasks nix",
        f"{BENCH} --split test --kind nix",
        f"{BENCH} --scaffold mine/foreign --split test",
        "run seed nix",
        "run mine/foreign toy:train:1",
    ],
)
def test_what_no_model_is_asked_about_is_refused_before_one_is_fetched_and_leaves_no_folder(
    words: str, fetched: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = sorted(fetched.rglob("*"))
    refused(capsys, *words.split())
    assert sorted(fetched.rglob("*")) == before


@pytest.mark.parametrize(
    "words",
    [
        BUILD,
        pytest.param(BENCH, marks=pytest.mark.plugin("bench")),
        pytest.param(f"{BENCH} --split test", marks=pytest.mark.plugin("bench")),
        "run seed toy:test:1",
        f"{BUILD} --scaffold create",
    ],
)
def test_a_model_that_cannot_be_fetched_stops_before_the_test_split_is_opened(
    words: str, fetched: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert refused(capsys, *words.split(), code=1)["code"] == "fetched"
    assert not (fetched / "runs" / "test_openings.jsonl").exists()


class Stopped(Fetched):
    """One whose fetching is ended by Ctrl-C."""

    def prepare(self, progress: Any, say: Any) -> None:
        signal.raise_signal(signal.SIGINT)
        raise AssertionError


def test_ctrl_c_while_a_model_is_fetched_stops_at_once_and_says_how_to_go_on(
    fetched: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RECREATE_MODEL", "tests.cli.test_bad_values:Stopped")
    assert (
        refused(capsys, *BUILD.split(), "--out", "runs/a", code=130)["fix"]
        == "recreate resume runs/a"
    )
    assert (fetched / "runs" / "a" / "settings.toml").is_file()


def test_attempts_at_once_are_at_least_one_when_a_build_goes_on(
    workspace: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for jobs in ("0", "-1"):
        assert "--jobs" in refused(capsys, "resume", "last", "--jobs", jobs)["message"]


@pytest.mark.parametrize("value", ["nan", "inf", "-1", "0", "1e999"])
def test_a_timeout_that_never_comes_is_refused(
    value: str, workspace: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli(["sandbox", "exec", "--timeout", value, "--json", "--", "true"]) == 2
    assert json.loads(capsys.readouterr().out)["error"]["fix"]


def test_what_is_usual_is_taken() -> None:
    Settings(rounds=50, train=1000, validation=500, repeats=10, jobs=64, seed=-7)
    assert os.environ.get("RECREATE_HOME")


@pytest.mark.plugin("each")
def test_a_plan_speaks_of_a_budget_only_where_there_is_one(
    workspace: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    few = [
        "--train",
        "2",
        "--validation",
        "2",
        "--gate.false_keep",
        "0",
        "--model",
        write_script(workspace / "s.jsonl"),
    ]
    assert cli(["plan", *TOY, *few]) == 0
    told = capsys.readouterr().out
    assert "paid for by the budget" not in told
    assert "3 proposals: no --budget caps what they take" in told
    assert cli(["plan", *TOY, *few, "--rounds", "1", "--budget", "400attempts"]) == 0
    assert "1 of 1 proposals are paid for by the budget" in capsys.readouterr().out
