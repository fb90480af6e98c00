"""Which policy a build has that names none, and what a plan says of it."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from recreate.api import paths
from recreate.cli import run as cli
from recreate.runs.session import open_session
from recreate.runs.settings import load, load_run
from tests.cli.test_named_parts import ENDPOINT, planned
from tests.cli.test_spending import TOY, printed
from tests.cli.test_spending import model as model
from tests.toy import write_script


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


@pytest.mark.parametrize(
    ("more", "attempts", "says"),
    [
        ([], 0, "not tested by re-runs without a --budget"),
        (["--budget", "100attempts"], 48, "tested by 24 re-runs a round"),
        (["--memory.reruns", "4"], 8, "tested by 4 re-runs a round"),
    ],
)
def test_a_plan_says_what_lessons_by_draw_may_take(
    workspace: Path,
    model: list[str],
    capsys: pytest.CaptureFixture[str],
    more: list[str],
    attempts: int,
    says: str,
) -> None:
    flags = [*TOY, *model, "--scaffold", "seed", "--rounds", "2"]
    plain = printed(capsys, "plan", *flags, "--memory", "none")
    found = printed(capsys, "plan", *flags, "--memory", "randomised", *more)
    assert found["attempts"] - plain["attempts"] == attempts
    assert found["low"] == plain["low"]
    assert found["calls"] - plain["calls"] >= 24
    assert any(says in text for text in found["assumes"])
    assert any(
        "at most 12 questions to the optimizer's model a round" in text for text in found["assumes"]
    )
