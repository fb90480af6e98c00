"""Which commands run a tool, which open it, what of a text a model may have been shown, and which
commands a prompt tells."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from recreate.agents.history import History
from recreate.agents.scaffold import Scaffold
from recreate.api.types import Output, Step
from recreate.plugins.parts.account import calls, count_parts, opens
from recreate.plugins.parts.alone import HOLE, Reading, read_printed, told_commands
from recreate.plugins.parts.changed import cut_pieces, list_changed

AGENT = Scaffold(
    name="a",
    files={
        "agent.toml": 'description = "An agent."\n',
        "system.md": "You work in a shell.\n",
        "workflow.md": "{{ task.prompt }}\n",
    },
)


def changed(files: Mapping[str, str | None], base: Scaffold = AGENT) -> list[tuple[str, ...]]:
    merged = {**base.files, **files}
    after = Scaffold(name="b", files={p: t for p, t in merged.items() if t is not None})
    return [(p.kind, p.name, p.change, p.role) for p in list_changed(base, after)]


@pytest.mark.parametrize(
    "command",
    [
        "calc",
        "calc 1 2 > answer.txt",
        "cat task | calc",
        "./.recreate/bin/calc 3",
        "python3 .recreate/bin/calc 3",
        'echo "$(calc 3)"',
        "cd x && calc",
        '{"name": "calc", "arguments": {}}',
    ],
)
def test_a_command_that_runs_a_tool_is_a_call_of_it(command: str) -> None:
    step = Step(step=0, action=command)
    assert calls("calc", step)
    assert not opens("calc", step)


@pytest.mark.parametrize(
    "command",
    ["calculate", "echo calc", "calc-all 3", "cat <<'X'\ncalc\nX", "recalc", "python3 calc_all.py"],
)
def test_a_command_that_only_names_something_like_a_tool_is_no_call_of_it(command: str) -> None:
    assert not calls("calc", Step(step=0, action=command))


def test_a_function_that_was_called_in_the_endpoints_own_way_is_a_call_of_the_tool() -> None:
    called = {"tool_calls": [{"id": "1", "name": "calc", "arguments": "{}"}]}
    assert calls("calc", Step(step=0, action="calc {}", foreign=called))


@pytest.mark.parametrize("command", ["cat .recreate/bin/calc", "sed -n 1,5p .recreate/bin/calc"])
def test_a_command_that_shows_a_tools_file_reads_it(command: str) -> None:
    step = Step(step=0, action=command)
    assert opens("calc", step)
    assert not calls("calc", step)


def test_only_new_literal_words_of_a_template_are_looked_for() -> None:
    old = "Work with care.\n"
    new = (
        old + "{% if tools %}Use  the\ttools first.{% endif %}\nYou have {{ limits.steps }} steps\n"
    )
    assert cut_pieces(new, old) == ("Use the tools first.", "You have")
    assert cut_pieces("{{ task.prompt }}\n") == ()


def test_each_thing_that_a_revision_changed_is_a_part() -> None:
    base = changed({"system.md": "You work in a shell, with care.\n"})
    assert base == [("text", "system", "changed", "")]
    assert changed({"memory/units.md": "# Units\n\nMetres.\n"}) == [("lesson", "units", "new", "")]
    assert changed({"examples/one.md": "# One\n\n1 + 1: 2\n"}) == [("example", "one", "new", "")]
    assert changed({"README.md": "For people.\n"}) == []
    hooked = {"agent.toml": 'before = ["calc"]\n', "tools/calc.py": '"""Adds."""\n'}
    assert changed({**hooked, "tools/calc.json": '{"type": "object"}'}) == [
        ("hook", "calc", "new", "before"),
        ("tool", "calc", "new", "before"),
    ]
    again = Scaffold(name="c", files={**AGENT.files, **hooked})
    gone = {"agent.toml": AGENT.files["agent.toml"], "tools/calc.py": None}
    assert changed(gone, again) == [
        ("hook", "calc", "gone", "before"),
        ("tool", "calc", "gone", ""),
    ]
    limits = {"agent.toml": "[limits]\nsteps = 3\n"}
    assert changed(limits) == [("settings", "agent", "changed", "")]
    assert changed({"agent.toml": 'description = "Another."\n'}) == []


def test_a_revision_whose_files_cannot_be_read_here_has_no_parts(tmp_path: Path) -> None:
    history = History(tmp_path / "scaffold.git")
    strange = Scaffold(name="s", files={**AGENT.files, "agent.toml": "no_such_key = 1\n"})
    history.commit(AGENT, None, True, "the seed")
    history.commit(strange, AGENT.digest, True, "of a plug-in that is gone")
    assert count_parts(tmp_path, AGENT.digest, strange.digest, ()) == ()
    assert count_parts(tmp_path, AGENT.digest, "0" * 16, ()) == ()


@pytest.mark.parametrize(
    ("text", "commands"),
    [
        ("Run `calc TASK`.", [f"calc {HOLE}"]),
        ("Run `calc '<the question>' > answer.txt`.", [f"calc {HOLE} > answer.txt"]),
        ('Run `echo "..." | calc`.', [f"echo {HOLE} | calc"]),
        ("```bash\ncd /work\ncalc -q\n```", ["calc -q"]),
        ("Run `calc`.", []),
        ("Run `calculate TASK`.", []),
        ("Run `calc {{ task.prompt }}`.", []),
    ],
)
def test_the_commands_that_a_prompt_tells_have_a_hole_for_the_tasks_words(
    text: str, commands: list[str]
) -> None:
    files = {**AGENT.files, "system.md": text, "tools/calc.py": '"""Adds."""\n'}
    assert told_commands(Scaffold(name="t", files=files), "calc") == commands


@pytest.mark.parametrize(
    ("printed", "status", "reading", "answer"),
    [
        ("the sum is\n42\n", 0, "last line", "42"),
        ("42\n", 0, "whole", "42"),
        ("42\n", 0, "last line", ""),
        ("42\n", 1, "whole", ""),
        (" \n", 0, "whole", ""),
    ],
)
def test_what_a_tool_printed_is_its_answer_unless_it_failed(
    printed: str, status: int, reading: Reading, answer: str
) -> None:
    assert read_printed(Output(text=printed, status=status), reading) == answer
