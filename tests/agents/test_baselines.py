"""The prompting baselines that ship: what each asks, in which order, and what it hands in."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Any

import pytest

from recreate.agents import scaffold as scaffolds
from recreate.agents.attempt import attempt
from recreate.api.paths import shipped
from recreate.api.ports import Sandbox, SandboxBackend
from recreate.api.types import Call, Message, Reply, Task, Trace
from recreate.sandboxes import choose
from tests.toy import Toy

BASELINES = ("cot", "step-back", "self-refine", "self-consistency")


class Asked(Toy):
    """A question whose answer goes into a file that its prompt names, beside files that are
    given."""

    def __init__(self, file: str = "answer.txt", given: dict[str, bytes] | None = None) -> None:
        super().__init__()
        self.file, self.given = file, given or {}
        prompt = f"How many?\n\nWrite the answer, and nothing else, to the file {file} in /work."
        self.task = Task(
            id="toy:train:1",
            domain="toy",
            prompt=prompt,
            split="train",
            group="g",
            facts={"word": "yes"},
        )

    def prepare(self, task: Task, backend: SandboxBackend) -> Sandbox:
        sandbox = super().prepare(task, backend)
        for name, data in self.given.items():
            sandbox.write(name, data)
        return sandbox

    def collect(self, task: Task, sandbox: Sandbox) -> str:
        try:
            return sandbox.read(self.file).decode()
        except FileNotFoundError:
            return ""


def go(
    name: str, replies: list[str], domain: Asked | None = None
) -> tuple[Trace, list[list[Message]]]:
    """(the attempt of a baseline whose model says these replies one after the other, what it was
    asked)."""
    domain, asked = domain or Asked(), []

    def ask(messages: list[Message], call: Call, **params: Any) -> Reply:
        asked.append(list(messages))
        return Reply(text=replies[len(asked) - 1])

    call = Call(run="r", attempt="a", step=0, task=domain.task.id)
    trace = attempt(
        scaffolds.load(shipped("scaffolds") / name), domain.task, domain, choose(), ask, call
    )
    return trace, asked


def block(answer: str) -> str:
    return f"First this, then that.\n```\n{answer}\n```"


@pytest.mark.parametrize(
    "reply", [block("18"), "It is \\boxed{18}.", "```python\n1\n```\nNo:\n```text\n18\n```"]
)
def test_a_chain_of_thought_hands_in_what_its_last_block_or_box_holds(reply: str) -> None:
    trace, asked = go("cot", [reply])
    assert (trace.answer, trace.ending) == ("18\n", "submitted")
    assert "think step by step" in str(asked[0][-1]["content"])


def test_a_chain_of_thought_without_an_answer_is_asked_for_one() -> None:
    trace, asked = go("cot", ["Hm.", block("18")])
    assert trace.answer == "18\n"
    assert "there is no answer" in str(asked[1][-1]["content"])


@pytest.mark.slow
def test_baselines_are_shown_what_lies_there_and_write_the_file_that_is_named(
    tmp_path: Path,
) -> None:
    with sqlite3.connect(tmp_path / "shop.sqlite") as made:
        made.execute("CREATE TABLE sales(item TEXT)")
        made.executemany("INSERT INTO sales VALUES (?)", [("a",), ("b",)])
    made.close()
    given = {"shop.sqlite": (tmp_path / "shop.sqlite").read_bytes(), "notes.txt": b"Read me."}
    domain = Asked("answer.sql", given)
    queries = [
        "SELECT 1",
        "SELECT count(*) FROM sales",
        "SELECT count(item) FROM sales",
        "SELECT nothing",
    ]
    trace, asked = go("self-consistency", [*map(block, queries), block("SELECT 3")], domain)
    assert "CREATE TABLE sales" in str(asked[0][-1]["content"])
    assert "Read me." in str(asked[0][-1]["content"])
    assert trace.answer == "SELECT count(*) FROM sales\n", (
        "two queries with the same rows are one vote for each other"
    )


def test_step_back_states_what_the_task_rests_on_before_it_answers() -> None:
    trace, asked = go("step-back", ["It rests on counting. ```\n7\n```", block("18")])
    assert trace.answer == "18\n"
    assert "take a step back" in str(asked[0][-1]["content"]).lower()
    assert "by what you have just stated" in str(asked[1][-1]["content"])


@pytest.mark.parametrize(
    "content", ["All right: nothing to improve.", "The answer is correct. It is \\boxed{18}."]
)
def test_self_refine_betters_its_answer_until_feedback_finds_nothing_to_improve(
    content: str,
) -> None:
    replies = [block("16"), "The answer is not right. ```\n99\n```", block("18"), content]
    trace, asked = go("self-refine", replies)
    assert (trace.answer, trace.ending, len(asked)) == ("18\n", "submitted", 4)
    assert "give feedback" in str(asked[1][-1]["content"])
    assert "by this feedback" in str(asked[2][-1]["content"])


def test_self_refine_ends_after_four_rounds_of_feedback() -> None:
    replies = [text for n in range(6) for text in (block(str(n)), "It is still wrong.")]
    trace, asked = go("self-refine", replies)
    assert (trace.answer, len(asked)) == ("4\n", 9)


@pytest.mark.slow
def test_self_consistency_hands_in_the_answer_that_most_chains_come_to_however_it_is_written() -> (
    None
):
    trace, asked = go(
        "self-consistency",
        [block("20"), block("$1,018.00"), block("7"), block("1018"), block("1018.0")],
    )
    assert (trace.answer, len(asked)) == ("$1,018.00\n", 5)
