"""What an agent has of its own starts under every backend, also where there is no sandbox and no
/work."""

from __future__ import annotations

from typing import Any

import pytest

from recreate.agents.attempt import attempt
from recreate.agents.scaffold import Scaffold
from recreate.api.types import Call, Message, Reply, Task, Trace
from recreate.models.scripted import Scripted
from recreate.sandboxes import choose
from tests.toy import Toy

TASK = Task(
    id="toy:train:1",
    domain="toy",
    prompt="Write it.",
    split="train",
    group="g",
    facts={"word": "yes"},
)
TOOL = (
    '#!/usr/bin/env python3\n"""Writes yes."""\nfrom pathlib import'
    ' Path\n\nPath("answer.txt").write_text("yes")\n'
)
SEEN = '#!/usr/bin/env python3\n"""Says what is there."""\nprint("it looked")\n'


def go(toml: str, *replies: str) -> Trace:
    files = {"agent.toml": toml, "system.md": "Work.\n", "workflow.md": "{{ task.prompt }}\n"}
    scaffold = Scaffold(name="t", files={**files, "tools/put.py": TOOL, "tools/look.py": SEEN})
    model = Scripted.of([{"step": n, "text": text} for n, text in enumerate(replies)])

    def ask(messages: list[Message], call: Call, **params: Any) -> Reply:
        return model.reply(messages, call, **params)

    return attempt(
        scaffold, TASK, Toy(), choose("none"), ask, Call(run="r", attempt="a", step=0, task=TASK.id)
    )


@pytest.mark.parametrize("command", ["put", "cd /tmp && cd - && put", ".recreate/bin/put"])
def test_without_a_sandbox_a_tool_is_a_command_of_the_shell(command: str) -> None:
    trace = go('action = "bash"\n', f"```bash\n{command}\n```", "```bash\nsubmit\n```")
    assert (trace.answer, trace.steps[0].status) == ("yes", 0)


def test_without_a_sandbox_a_tool_takes_a_whole_reply_and_another_hands_it_in() -> None:
    trace = go('action = "tool:put"\ndone = "look"\n', "anything")
    assert (trace.answer, trace.ending) == ("yes", "submitted")


def test_without_a_sandbox_a_tool_runs_before_the_first_turn() -> None:
    trace = go(
        'action = "bash"\nbefore = ["look"]\n',
        "unused",
        "```bash\nput\n```",
        "```bash\nsubmit\n```",
    )
    assert trace.steps[0].output == "it looked\n"


def test_without_a_sandbox_a_tool_is_called_as_a_function() -> None:
    trace = go(
        'action = "tools"\n',
        '{"thought": "", "tool": "put", "arguments": {"args": []}}',
        '{"thought": "", "tool": "submit", "arguments": {}}',
    )
    assert trace.answer == "yes"
