"""best-of-n: of several proposals the one that does best on its own train tasks."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from recreate.agents.scaffold import Scaffold
from recreate.api.types import Experience
from recreate.plugins.methods.best_of_n import BestOfN, BestOfNSettings
from tests.optimizers.test_reflect import context, experience
from tests.optimizers.test_reflect import study as proposal
from tests.studied import SEED


def test_best_of_n_takes_the_proposal_that_is_best_on_its_own_train_tasks(workspace: Path) -> None:
    answers = [
        proposal({"file": "new lesson", "text": text}) for text in ("First.", "Second.", "Third.")
    ]
    given = context(answers)
    given.settings, given.key = BestOfNSettings(n=3), "k"
    given.tasks = ("t1",)
    given.evaluate = lambda child, tasks: [
        experience(1, passed="Second." in child.lessons[0].body) for _ in tasks
    ]
    assert "Second." in BestOfN(given).propose(SEED, [experience(1)])[0].new


def test_a_proposal_with_one_attempt_that_counts_is_not_taken_for_the_best(workspace: Path) -> None:
    answers = [proposal({"file": "new lesson", "text": text}) for text in ("First.", "Second.")]
    given = context(answers)
    given.settings, given.key, given.tasks = BestOfNSettings(n=2), "k", ("t1", "t2", "t3")

    def evaluate(child: Scaffold, tasks: Sequence[str]) -> list[Experience]:
        # solves one task; its other attempts were excluded
        second = "Second." in child.lessons[0].body
        solved = {"t1": True} if second else {"t1": True, "t2": True, "t3": False}
        made = ((task, experience(1, passed=solved[task])) for task in tasks if task in solved)
        return [e.model_copy(update={"task": task}) for task, e in made]

    given.evaluate = evaluate
    before = [experience(n).model_copy(update={"task": f"t{n}"}) for n in (1, 2, 3)]
    assert "First." in BestOfN(given).propose(SEED, before)[0].new
