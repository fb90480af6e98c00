"""What is named is tried before anything is spent, and no key is asked for that nothing uses."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from recreate.api.errors import BadInput, Missing, Refused
from recreate.cli import run as cli
from recreate.models import open_model
from tests.toy import write_script

ENDPOINT = ("--model", "openai:http://127.0.0.1:9/v1#m", "--price", "0,0")
WITH_HOSTED = pytest.mark.plugin("hosted")
HOSTED = ("--model", "litellm:openai/gpt-5-mini")
TOY = ("--domain", "tests.toy:Toy")


def planned(capsys: pytest.CaptureFixture[str], *flags: str, code: int = 0) -> dict[str, Any]:
    capsys.readouterr()
    assert cli(["plan", *TOY, *flags, "--json"]) == code
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found.get("error", found)  # type: ignore[no-any-return]


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        pytest.param("litelm:openai/gpt-5", "litellm:openai/gpt-5", marks=WITH_HOSTED),
        pytest.param("litelm:gpt", "litellm:gpt", marks=WITH_HOSTED),
        ("opeani:http://127.0.0.1:9/v1#m", "openai:http://127.0.0.1:9/v1#m"),
        ("scriptd:a.jsonl", "scripted:a.jsonl"),
        pytest.param("LiteLLM:openai/gpt-5", "litellm:openai/gpt-5", marks=WITH_HOSTED),
    ],
)
def test_a_misspelt_kind_of_model_is_said_to_be_one(
    workspace: Path, typed: str, meant: str
) -> None:
    with pytest.raises(BadInput, match="is no kind of model") as told:
        open_model(typed)
    assert told.value.fix == f"did you mean {meant}?"
    assert told.value.code == "unknown-model"


def test_what_only_looks_like_one_is_left_alone(workspace: Path) -> None:
    (workspace / "locals_.py").write_text("class Mine:\n    name = 'mine'\n")
    with pytest.raises(BadInput, match="does not fit the port Model"):
        open_model("locals_:Mine")


@pytest.mark.plugin("hosted")
def test_a_path_of_a_provider_is_no_misspelt_kind(workspace: Path) -> None:
    assert open_model("ollama/llama3:8b").name == "litellm:ollama/llama3:8b"


@pytest.mark.plugin("hosted")
def test_a_missing_package_is_named_before_a_missing_key(
    workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(Refused, match="OPENAI_API_KEY"):
        open_model(HOSTED[1])
    monkeypatch.setitem(sys.modules, "litellm", None)
    with pytest.raises(Missing, match="litellm, which is not installed"):
        open_model(HOSTED[1])


@pytest.mark.plugin("hosted")
def test_a_plan_needs_no_key_since_it_asks_nothing(
    workspace: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found = planned(capsys, *HOSTED)
    assert (found["model"], found["optimizer"]) == ("litellm:openai/gpt-5-mini", "recreate")
    found = planned(capsys, *HOSTED, "--models.optimizer", "litellm:anthropic/claude-sonnet-4-5")
    assert found["models"]["optimizer"] == "litellm:anthropic/claude-sonnet-4-5"


@pytest.mark.parametrize(
    ("line", "near"),
    [
        ('optimizer = "refect"', "reflect"),
        ('memory.policy = "recreat"', "recreate"),
        ('memory.embedder = "hashd"', "hashed"),
        ('memory.recall = "nowhere:Memory"', "nowhere"),
        ('budget = ["5pounds"]', "5usd"),
        ('scaffold = "sede"', "seed"),
        pytest.param('models.optimizer = "litelm:openai/gpt-5"', "litellm:", marks=WITH_HOSTED),
        ('domain = "row"', "rows"),
    ],
)
def test_doctor_and_plan_try_what_recreate_toml_names(
    workspace: Path, capsys: pytest.CaptureFixture[str], line: str, near: str
) -> None:
    (workspace / "recreate.toml").write_text(line + "\n")
    assert cli(["doctor", "--json"]) == 4
    (bad,) = [
        c for c in json.loads(capsys.readouterr().out)["checks"] if c["needed"] and not c["ok"]
    ]
    assert bad["name"] == line.partition(" =")[0]
    assert near in bad["detail"] + bad["fix"]
    domain = () if line.startswith("domain") else TOY
    model = ("--model", write_script(workspace / "s.jsonl"))
    assert cli(["plan", *domain, *model, "--json"]) == 2
    error = json.loads(capsys.readouterr().out)["error"]
    assert near in error["message"] + error["fix"]


@pytest.mark.plugin("hosted")
def test_doctor_asks_for_the_key_of_the_model_that_is_named_and_for_no_other(
    workspace: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-not-a-real-one")
    (workspace / "recreate.toml").write_text('model = "litellm:anthropic/claude-sonnet-4-5"\n')
    assert cli(["doctor"]) == 4
    out = capsys.readouterr().out
    assert "ANTHROPIC_API_KEY" in out
    assert "models fetch" not in out, "the default model is not used"
    (workspace / "recreate.toml").write_text('model = "litellm:openai/gpt-5-mini"\n')
    assert cli(["doctor"]) == 0
    assert "ANTHROPIC" not in capsys.readouterr().out


def test_an_endpoint_gets_the_optimizer_for_strong_models_and_the_plan_says_why(
    workspace: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert planned(capsys, *ENDPOINT)["optimizer"] == "recreate"
    assert planned(capsys, *ENDPOINT, "--optimizer", "reflect")["optimizer"] == "reflect"
    model = write_script(workspace / "s.jsonl")
    assert planned(capsys, "--model", model)["optimizer"] == "reflect"
    assert cli(["plan", *TOY, *ENDPOINT]) == 0
    assert capsys.readouterr().out.startswith(
        "optimizer recreate: the default, since openai:http://127.0.0.1:9/v1#m"
    )
    assert cli(["plan", *TOY, *ENDPOINT, "--optimizer", "reflect"]) == 0
    assert capsys.readouterr().out.splitlines()[0] == "optimizer reflect"


def test_a_runs_first_lines_name_the_optimizer_and_why_it_was_taken(
    workspace: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model, other = write_script(workspace / "s.jsonl"), write_script(workspace / "t.jsonl")
    flags = [
        *TOY,
        "--model",
        model,
        "--rounds",
        "0",
        "--validation",
        "5",
        "--memory.embedder",
        "hashed",
    ]
    assert cli(["build", *flags, "--scaffold", "seed", "--out", "runs/a"]) == 0
    said = capsys.readouterr().err
    assert (
        f"optimizer reflect: the default, since {model} may be a small model; --optimizer recreate"
        in said
    )
    assert ", optimizer reflect, sandbox" in said
    named = ["--optimizer", "recreate", "--models.optimizer", other]
    assert cli(["build", *flags, "--scaffold", "seed", "--out", "runs/b", *named]) == 0
    said = capsys.readouterr().err
    assert "optimizer recreate: nobody" not in said
    assert f", optimizer recreate with {other}, sandbox" in said


def test_an_optimizer_whose_package_is_missing_is_refused_before_anything_is_attempted(
    workspace: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    flags = [
        *TOY,
        "--model",
        write_script(workspace / "s.jsonl"),
        "--scaffold",
        "seed",
        "--train",
        "2",
    ]
    flags += ["--validation", "5", "--memory.embedder", "hashed"]
    (workspace / "other.py").write_text(
        "class Other:\n    needs = ['not_here']\n    def propose(self, scaffold, experiences):\n   "
        "     return []\nclass Wrong(Other):\n    needs = 'json'\n"
    )
    for name, code, fix in (
        ("other:Other", "not-importable", "PYTHONPATH"),
        ("other:Wrong", "misfit", "docs/ports/optimizer.md"),
    ):
        for command in (["plan"], ["build", "--out", "runs/a"]):
            capsys.readouterr()
            assert cli([*command, *flags, "--optimizer", name, "--json"]) == 2
            error = json.loads(capsys.readouterr().out)["error"]
            assert (error["code"], fix in error["fix"]) == (code, True), error
            assert not (workspace / "runs").exists()
    attempted = ["run", "seed", "toy:train:1", *TOY, *flags[2:4], "--out", "runs/b"]
    (workspace / "recreate.toml").write_text(
        'optimizer = "other:Other"\nmemory.embedder = "hashed"\n'
    )
    assert cli(attempted) == 0, "nobody proposes there"


def states(capsys: pytest.CaptureFixture[str], kind: str = "model") -> dict[str, str]:
    capsys.readouterr()
    assert cli(["list", kind, "--json"]) == 0
    return {r["name"]: r["state"] for r in map(json.loads, capsys.readouterr().out.splitlines())}


def test_list_says_ready_only_of_what_can_start(
    workspace: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found = states(capsys)
    assert (found["scripted"], found["openai"]) == ("ready", "ready")
    assert states(capsys, "optimizers")["reflect"] == "ready"


@pytest.mark.plugin("hosted")
def test_a_hosted_model_is_ready_once_a_key_is_there(
    workspace: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert states(capsys)["litellm"] == "needs a provider's key"
    monkeypatch.setenv("OPENAI_API_KEY", "sk-not-a-real-one")
    assert states(capsys)["litellm"] == "ready"
