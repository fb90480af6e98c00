"""What is named is tried before anything is spent, and no key is asked for that nothing uses."""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest

from recreate.api import paths
from recreate.api.errors import BadInput, Missing, Refused
from recreate.cli import run as cli
from recreate.models import open_model
from recreate.runs.session import open_session
from recreate.runs.settings import load, load_run
from tests.toy import write_script

ENDPOINT = ("--model", "openai:http://127.0.0.1:9/v1#m", "--price", "0,0")
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
        ("litelm:openai/gpt-5", "litellm:openai/gpt-5"),
        ("litelm:gpt", "litellm:gpt"),
        ("opeani:http://127.0.0.1:9/v1#m", "openai:http://127.0.0.1:9/v1#m"),
        ("scriptd:a.jsonl", "scripted:a.jsonl"),
        ("LiteLLM:openai/gpt-5", "litellm:openai/gpt-5"),
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
    assert open_model("ollama/llama3:8b").name == "litellm:ollama/llama3:8b"


def test_a_missing_package_is_named_before_a_missing_key(
    workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(Refused, match="OPENAI_API_KEY"):
        open_model(HOSTED[1])
    monkeypatch.setitem(sys.modules, "litellm", None)
    with pytest.raises(Missing, match="litellm, which is not installed"):
        open_model(HOSTED[1])


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
        ('memory.policy = "playbok"', "playbook"),
        ('memory.embedder = "minilmm"', "minilm"),
        ('memory.recall = "nowhere:Memory"', "nowhere"),
        ('budget = ["5pounds"]', "5usd"),
        ('scaffold = "sede"', "seed"),
        ('models.optimizer = "litelm:openai/gpt-5"', "litellm:"),
        ('domain = "swee"', "swe"),
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


def test_a_strong_models_build_learns_lessons_unless_somebody_says_otherwise_and_the_plan_says_so(
    workspace: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def told(*flags: str) -> str:
        assert cli(["plan", *TOY, *flags]) == 0
        return next(
            line for line in capsys.readouterr().out.splitlines() if line.startswith("lessons ")
        )

    assert told(*ENDPOINT) == "lessons randomised: the default; --memory none learns no lessons"
    assert told(*ENDPOINT, "--memory", "none") == "lessons none"
    assert told(*ENDPOINT, "--memory", "recreate") == "lessons recreate"
    assert told(*ENDPOINT, "--optimizer", "reflect").startswith("lessons none: ")
    assert told("--model", write_script(workspace / "s.jsonl")).startswith(
        "lessons none: the default, since script"
    )
    quiet = Path(shutil.copytree(paths.shipped("scaffolds") / "seed", workspace / "quiet"))
    asking = (quiet / "agent.toml").read_text()
    (quiet / "agent.toml").write_text(asking[: asking.index("[memory]")])
    assert (
        planned(capsys, *ENDPOINT, "--scaffold", str(quiet))["calls"]
        < planned(capsys, *ENDPOINT)["calls"]
    )
    (workspace / "recreate.toml").write_text('memory.policy = "playbook"\n')
    assert told(*ENDPOINT) == "lessons playbook"


def test_lessons_by_default_are_for_builds_that_begin_and_are_not_recorded(workspace: Path) -> None:
    strong = {"models.optimizer": "openai:http://127.0.0.1:9/v1#m", "models.optimizer_price": "0,0"}
    flags = {
        "domain": "tests.toy:Toy",
        "model": write_script(workspace / "s.jsonl"),
        "memory.embedder": "hashed",
    }

    def begun(out: str, command: str, **more: str) -> str:
        settings = load(workspace, flags | strong | more)
        session = open_session(settings, workspace, workspace / out, command=command)
        session.close()
        assert (
            load_run(workspace / out).memory.policy
            == session.settings.memory.policy
            == session.policy_name
        )
        return session.policy_name

    assert begun("a", "build") == "randomised"
    assert begun("b", "bench") == begun("c", "") == "none"
    assert begun("d", "build", record=str(workspace / "tape")) == "none"
    assert begun("e", "build", **{"memory.policy": "none"}) == "none"
    with_none = load_run(workspace / "e")
    session = open_session(with_none, workspace, workspace / "e", resume=True, command="build")
    session.close()
    assert session.policy_name == "none", "a build goes on with what it was begun with"


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
    named = ["--optimizer", "best-of-n", "--models.optimizer", other]
    assert cli(["build", *flags, "--scaffold", "seed", "--out", "runs/b", *named]) == 0
    said = capsys.readouterr().err
    assert "optimizer best-of-n: nobody" not in said
    assert f", optimizer best-of-n with {other}, sandbox" in said


def test_an_optimizer_whose_package_is_missing_is_refused_before_anything_is_attempted(
    workspace: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
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
    monkeypatch.setitem(sys.modules, "gepa", None)
    for name, code, fix in (
        ("gepa", "missing", "[gepa]"),
        ("recreate.plugins.methods.gepa:Gepa", "missing", "[gepa]"),
        ("other:Other", "not-importable", "PYTHONPATH"),
        ("other:Wrong", "misfit", "docs/ports/optimizer.md"),
    ):
        for command in (["plan"], ["build", "--out", "runs/a"]):
            capsys.readouterr()
            assert cli([*command, *flags, "--optimizer", name, "--json"]) == 2
            error = json.loads(capsys.readouterr().out)["error"]
            assert (error["code"], fix in error["fix"]) == (code, True), error
            assert not (workspace / "runs").exists()
    measured = ["bench", *TOY, *flags[2:6], "--tasks", "1", "--out", "runs/b"]
    (workspace / "recreate.toml").write_text('optimizer = "gepa"\nmemory.embedder = "hashed"\n')
    assert cli(measured) == 0, "nobody proposes there"


def test_list_says_ready_only_of_what_can_start(
    workspace: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def states(kind: str = "model") -> dict[str, str]:
        assert cli(["list", kind, "--json"]) == 0
        return {
            r["name"]: r["state"] for r in map(json.loads, capsys.readouterr().out.splitlines())
        }

    for module in ("vllm", "torch", "xllamacpp"):
        monkeypatch.setitem(sys.modules, module, None)
    found = states()
    assert found["vllm"] == "needs vllm"
    assert (found["transformers"], found["local"]) == (
        "needs the extra rl",
        "needs the extra local",
    )
    assert found["litellm"] == "needs a provider's key"
    assert (found["scripted"], found["openai"]) == ("ready", "ready")
    monkeypatch.setitem(sys.modules, "gepa", None)
    found = states("optimizers")
    assert (found["gepa"], found["ace"]) == ("needs the extra gepa", "ready")
    monkeypatch.setenv("OPENAI_API_KEY", "sk-not-a-real-one")
    assert states()["litellm"] == "ready"
