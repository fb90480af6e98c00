"""recreate ci: a scaffold of the working tree beside that of a base commit, on the same tasks."""

from __future__ import annotations

import json
import re
import shlex
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from recreate.api.paths import shipped
from recreate.api.types import Verdict
from recreate.cli import run as cli
from recreate.plugins.measuring.baseline import Judged
from tests.pages import ROOT
from tests.test_docs import fault
from tests.toy import LESSON, write_script

SUITE = """
domain = "tests.toy:Toy"
model = {model}
scaffold = "toy"
budget = ["40attempts"]
"""
Lesson = Path("scaffolds/toy/memory/end.md")
TEXT = f"# How answers end\n\n{LESSON}\n"


def git(*words: str) -> str:
    who = ["-c", "user.name=n", "-c", "user.email=n@localhost"]
    return subprocess.run(["git", *who, *words], check=True, capture_output=True, text=True).stdout


@pytest.fixture
def repo(workspace: Path) -> Path:
    """A clone whose main has an agent that knows what every task needs."""
    shutil.copytree(shipped("scaffolds") / "seed", workspace / "scaffolds" / "toy")
    (workspace / Lesson).parent.mkdir()
    (workspace / Lesson).write_text(TEXT)
    model = write_script(workspace / "s.jsonl")
    (workspace / "suite.toml").write_text(SUITE.format(model=json.dumps(model)))
    (workspace / ".gitignore").write_text("/runs/\n/memory/\n")
    git("init", "-q", "-b", "main")
    git("add", "-A")
    git("commit", "-qm", "one")
    return workspace


def ci(capsys: pytest.CaptureFixture[str], *flags: str) -> tuple[int, dict[str, Any]]:
    code = cli(["ci", "suite.toml", "--json", *flags])
    return code, json.loads(capsys.readouterr().out)


def worse(repo: Path) -> None:
    (repo / Lesson).unlink()


def test_an_unchanged_scaffold_costs_nothing_and_needs_no_model(
    repo: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (repo / "scaffolds" / "toy" / "README.md").write_text("For people.")
    code, told = ci(capsys, "--model", "litellm:openai/none")  # which has no key
    assert (code, told["cells"], told["unchanged"]) == (0, [], ["scaffolds/toy"])
    assert not (repo / "runs").exists()
    assert cli(["ci", "suite.toml"]) == 0
    out = capsys.readouterr()
    assert "| scaffolds/toy | | | | unchanged, not measured |" in out.out
    assert "nothing was spent" in out.err


def test_a_scaffold_that_became_worse_is_a_regression(
    repo: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    worse(repo)
    code, told = ci(capsys)
    assert code == 4
    cells = [(cell["side"], cell["mean"], cell["n"], cell["repeats"]) for cell in told["cells"]]
    assert cells == [("base", 1.0, 8, 1), ("head", 0.0, 8, 1)]
    (found,) = told["regressions"]
    assert (found["scaffold"], found["verdict"], found["diff"]) == (
        "scaffolds/toy",
        "not-better",
        -1.0,
    )
    assert found["hi"] < 0
    assert told["base"] == {"ref": "main", "commit": git("rev-parse", "main").strip()}
    # it leaves nothing behind
    assert git("status", "--porcelain").split() == ["D", "scaffolds/toy/memory/end.md"]


def test_one_that_became_better_is_none(repo: Path, capsys: pytest.CaptureFixture[str]) -> None:
    worse(repo)
    git("commit", "-qam", "two")
    (repo / Lesson).parent.mkdir(exist_ok=True)
    (repo / Lesson).write_text(TEXT)
    code, told = ci(capsys)
    assert (code, told["regressions"], told["differences"][0]["verdict"]) == (0, [], "better")
    assert ci(capsys, "--base", "HEAD~1")[1]["unchanged"] == ["scaffolds/toy"]


def test_another_text_that_changes_no_score_is_none(
    repo: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with (repo / "scaffolds" / "toy" / "workflow.md").open("a") as file:
        file.write("\nTake care.\n")
    code, told = ci(capsys)
    assert (code, told["differences"][0]["reason"]) == (0, "no task scored differently")


def test_the_table_is_markdown(repo: Path, capsys: pytest.CaptureFixture[str]) -> None:
    worse(repo)
    assert cli(["ci", "suite.toml"]) == 4
    head, rule, row, *_ = capsys.readouterr().out.splitlines()
    assert re.fullmatch(r"\| scaffold \| main \([0-9a-f]{7}\) \| here \| difference \| \|", head)
    assert rule == "|---|---|---|---|---|"
    assert (
        row
        == "| scaffolds/toy | 1.000 [0.747, 1.000] | 0.000 [0.000, 0.253] | -1.000 [-1.000, -0.500]"
        " | **worse** |"
    )


@pytest.mark.slow
def test_scores_that_runs_hold_are_not_paid_again(
    repo: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Only runs/ is kept between two calls, as a cache would: a budget of one attempt is enough for
    the second."""
    worse(repo)
    first = ci(capsys)[1]
    shutil.rmtree(repo / "memory")
    code, second = ci(capsys, "--budget", "1attempts")
    assert code == 4
    assert second["run"] != first["run"]
    assert [cell["scores"] for cell in second["cells"]] == [
        cell["scores"] for cell in first["cells"]
    ]
    with (repo / "scaffolds" / "toy" / "workflow.md").open("a") as file:
        file.write("\nTake care.\n")
    # main's are there; the branch's are paid
    assert cli(["ci", "suite.toml", "--budget", "8attempts", "--json"]) == 4


def test_a_budget_stops_it_and_what_was_paid_is_kept(
    repo: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    worse(repo)
    code, told = ci(capsys, "--budget", "10attempts")
    assert (code, told["error"]["code"]) == (3, "out-of-budget")
    assert ci(capsys, "--budget", "6attempts")[0] == 4


def test_flags_win_over_the_suite(repo: Path, capsys: pytest.CaptureFixture[str]) -> None:
    worse(repo)
    code, told = ci(capsys, "--tasks", "3", "--split", "train", "--repeats", "2")
    assert [(c["n"], c["repeats"], c["split"]) for c in told["cells"]] == [(3, 2, "train")] * 2
    assert code == 0  # three tasks cannot be judged
    assert told["differences"][0]["reason"].startswith("refused: 3 paired tasks")


def test_a_scaffold_that_the_base_has_not_is_said_to_be_new(
    repo: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.copytree(shipped("scaffolds") / "seed", repo / "scaffolds" / "other")
    code, told = ci(capsys, "--scaffold", "scaffolds/other", "--scaffold", "toy")
    assert (code, told["new"], told["unchanged"]) == (0, ["scaffolds/other"], ["scaffolds/toy"])


def test_a_branch_of_origin_is_a_base_too(repo: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """As in a workflow, whose checkout has the pull request alone."""
    git("update-ref", "refs/remotes/origin/main", "main")
    git("checkout", "-q", "--detach")
    git("branch", "-D", "main")
    assert ci(capsys)[1]["unchanged"] == ["scaffolds/toy"]


@pytest.mark.parametrize(
    ("flags", "code"),
    [
        (["--base", "nowhere"], "no-base"),
        (["--base", "--all"], "no-base"),
        (["--scaffold", "nobody"], "no-scaffold"),
        (["--split", "exam"], "bad-split"),
    ],
)
def test_what_cannot_be_compared_is_refused(
    flags: list[str], code: str, repo: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    status, told = ci(capsys, *flags)
    assert (status, told["error"]["code"]) == (2, code)
    assert told["error"]["fix"]
    assert not (repo / "runs").exists()


def test_outside_a_repository_it_says_so(
    workspace: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.copytree(shipped("scaffolds") / "seed", workspace / "scaffolds" / "toy")
    assert cli(["ci", "--scaffold", "toy", "--json"]) == 2
    assert json.loads(capsys.readouterr().out)["error"]["code"] == "no-git"


def test_a_link_in_the_base_is_refused(repo: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (repo / "scaffolds" / "toy" / "memory" / "out.md").symlink_to("/etc/passwd")
    git("add", "-A")
    git("commit", "-qm", "a link")
    (repo / "scaffolds" / "toy" / "memory" / "out.md").unlink()
    code, told = ci(capsys)
    assert (code, told["error"]["code"]) == (2, "bad-scaffold")


def test_only_an_interval_below_zero_is_a_regression() -> None:
    def of(**fields: Any) -> bool:
        known: dict[str, Any] = {
            "before": 1,
            "after": 0,
            "diff": -0.1,
            "p": 0.5,
            "tasks": 9,
            "repeats": 1,
            "dropped": 0,
        }
        verdict = Verdict(**{**known, "lo": -0.2, "hi": -0.01, "verdict": "not-better", **fields})
        return Judged.model_construct(verdict=verdict).regression

    assert of()
    assert not of(hi=0.0, lo=0.0, diff=0.0)  # no task differs
    assert not of(verdict="undecided")  # too few tasks, or too many pairs dropped
    assert not of(verdict="undecided", hi=0.1)


def test_the_workflow_of_the_page_is_yaml_and_types_what_exists() -> None:
    (text,) = re.findall(
        r"^```yaml\n(.*?)^```$",
        (ROOT / "recreate/plugins/measuring/ci.md").read_text(),
        re.MULTILINE | re.DOTALL,
    )
    steps = yaml.safe_load(text)["jobs"]["measure"]["steps"]
    (command,) = re.findall(r"recreate ci .*", "\n".join(step.get("run", "") for step in steps))
    words = command.partition(" > ")[0]
    assert fault(words) == ""
    assert "SUITE" not in words
    assert shlex.split(words)[2].endswith(".toml")
