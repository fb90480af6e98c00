"""Which tools of a scaffold are in use, and which are carried for nothing."""

from __future__ import annotations

import pytest

from recreate.agents.callers import uncalled
from recreate.agents.scaffold import Scaffold, load
from recreate.api.paths import shipped

TOOL = '#!/usr/bin/env python3\n"""Does a thing."""\n'
OTHER = "tools/other.py"
FILES = {
    "agent.toml": 'action = "tool:write"\ndone = "parses"\n',
    "system.md": "Answer in one block.\n",
    "workflow.md": "{{ task.prompt }}\n",
    "tools/write.py": TOOL,
    "tools/parses.py": TOOL,
    OTHER: TOOL,
}


def idle(**changed: str) -> list[str]:
    files = {path.replace("__", "/").replace("_md", ".md"): text for path, text in changed.items()}
    return uncalled(Scaffold(name="a", files={**FILES, **files}))


def test_a_tool_that_nothing_names_is_not_in_use() -> None:
    assert idle() == [OTHER]


@pytest.mark.parametrize(
    "changed",
    [
        {"system_md": "Run `other` first.\n"},
        {"system_md": "{% for tool in tools %}{{ tool.name }}{% endfor %}\n"},
        {"format_md": "{{ error }}: `other` shows how.\n"},
        {"memory__first_md": "# First\n\nCall other.\n\nborn_of: e1\n"},
        {
            "tools/write.py": (
                TOOL + "import subprocess\nsubprocess.run(['/work/.recreate/bin/other'])\n"
            )
        },
        {"tools/write.py": TOOL + "from other import thing\n"},
        {
            "tools/write.py": (
                TOOL
                + "import os\nfor name in os.listdir(os.path.dirname(__file__)):\n    print(name)\n"
            )
        },
        {"system_md": "Your programs are in /work/.recreate/bin.\n"},
        {"agent.toml": 'action = "tool:write"\ndone = "parses"\nbefore = ["other"]\n'},
        {"agent.toml": 'action = "tools"\n'},
    ],
)
def test_a_tool_is_in_use_where_the_model_is_told_of_it_or_another_part_calls_it(
    changed: dict[str, str],
) -> None:
    assert idle(**changed) == []


def test_what_only_an_unused_tool_calls_is_unused_with_it() -> None:
    assert idle(**{OTHER: TOOL + "import third\n", "tools/third.py": TOOL + "import other\n"}) == [
        OTHER,
        "tools/third.py",
    ]


def test_a_longer_name_does_not_call_the_shorter_one() -> None:
    assert idle(system_md="Say another_other_thing and other-wise.\n") == [OTHER]


def test_the_two_tools_that_a_build_left_over_are_found_and_no_other_of_what_ships() -> None:
    folders = [f.parent for f in shipped("scaffolds").glob("*/agent.toml")]
    found = {f.name: unused for f in folders if (unused := uncalled(load(f)))}
    assert found == {"built-codefix-small": ["tools/parses_2.py", "tools/write_2.py"]}
