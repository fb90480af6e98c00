"""The commands of tasks on swe's own."""

from __future__ import annotations

import pytest

from tests.cli import test_tasks
from tests.cli.test_tasks import TOY, Ask

ask = test_tasks.ask


def test_an_unknown_task_split_or_domain_names_the_near_ones(ask: Ask) -> None:
    for words in (
        ["tasks", "check", TOY, "--task", "toy:tran:4"],
        ["grade", TOY, "toy:tran:4", "--answer", "x"],
    ):
        code, (error,) = ask(*words)
        assert (code, error["error"]["code"]) == (2, "unknown-task")
        assert "toy:train:4" in error["error"]["fix"]
    code, (error,) = ask("tasks", "list", "row")
    assert (code, error["error"]["code"]) == (2, "unknown-domain")
    assert "rows" in error["error"]["fix"]
    assert ask("tasks", "list", TOY, "--split", "dev")[1][0]["error"]["code"] == "bad-split"


@pytest.mark.plugin("swe", "local_models")
def test_a_scaffold_or_task_that_is_not_there_is_said_before_a_model_is_fetched(
    ask: Ask, monkeypatch: pytest.MonkeyPatch
) -> None:
    from recreate.cli import runner

    monkeypatch.setattr(
        runner, "prepare_model", lambda model: pytest.fail("the model was fetched first")
    )
    for words in (
        ["run", "nosuch", "toy:x", "--domain", "tests.toy:Toy"],
        ["run", "seed", "nosuch", "--domain", "tests.toy:Toy"],
        ["build", "--domain", "tests.toy:Toy", "--scaffold", "nosuch"],
    ):
        assert ask(*words)[0] == 2
