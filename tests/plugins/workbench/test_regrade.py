"""`regrade`: the stored replies of attempts through changed files of the agent."""

from __future__ import annotations

import re

import pytest

from recreate.agents.scaffold import Scaffold
from tests.plugins.workbench.test_session import Go, answers, go, write_causes
from tests.studied import SEED
from tests.toy import SIZES

__all__ = ["go"]

pytestmark = [pytest.mark.plugin("each"), pytest.mark.slow]

TOOL = """'''Write the reply to answer.txt.'''

import sys

open("answer.txt", "w").write(sys.stdin.read().strip(){})
"""
AGENT = 'action = "tool:answer"\ndone = "ready"\n'
READY = '#!/bin/sh\n# Whether there is an answer.\n[ "$1" = --help ] || test -s answer.txt\n'
ROWS = [
    {"role": "agent", "task": f"toy:{split}:{n}", "text": f"w{n}"}
    for split, size in SIZES.items()
    for n in range(size)
]
CAUSES = '## No mark\n- 01 step 0: "Reply with the word"\nChanged: tools/answer.py\n'


def by_tool(**files: str) -> Scaffold:
    """Return an agent whose replies a tool carries out."""
    own = {
        "agent.toml": AGENT,
        "tools/answer.py": TOOL.format(""),
        "tools/ready.sh": READY,
        "workflow.md": "{{ task.prompt }}\n\nReply with the word.\n",
        "system.md": "You write words.\n",
    }
    return Scaffold(name="by-tool", files={**SEED.files, **own, **files})


def write(addition: str) -> str:
    return f"cat > agent/tools/answer.py <<'X'\n{TOOL.format(addition)}X\n"


def test_a_changed_tool_is_graded_by_the_replies_that_were_paid_for(go: Go) -> None:
    tried = go(
        write(' + "!"') + "regrade",
        write_causes(CAUSES) + "finish",
        seed=by_tool(),
        rows=ROWS,
    )
    said = answers(tried)[0]
    assert "2 of 2 graded: mean 0.000 -> 1.000" in said
    assert [r.kept for r in tried.built.revisions] == [True]
    calls = [r for r in tried.run.records("call") if r.get("phase") == "propose"]
    assert all(r.get("role") == "optimizer" for r in calls)


def test_a_changed_prompt_stops_it_at_the_step_whose_prompt_is_another(go: Go) -> None:
    tried = go(
        "echo 'In capitals.' >> agent/workflow.md; regrade",
        "git -C agent checkout -q .; finish",
        seed=by_tool(),
        rows=ROWS,
    )
    said = answers(tried)[0]
    assert "01, 02: not graded: the stored replies end at step 0" in said
    assert "+In capitals." in said


def test_an_attempt_that_goes_on_where_the_stored_one_ended_is_not_graded(go: Go) -> None:
    tried = go(
        "printf '#!/bin/sh\\n# Never.\\n[ \"$1\" = --help ]\\n' > agent/tools/ready.sh; regrade 02",
        "git -C agent checkout -q .; finish",
        seed=by_tool(),
        rows=ROWS,
    )
    assert "02: not graded" in answers(tried)[0]
    assert "it goes on where the stored attempt had ended" in answers(tried)[0]


def test_it_agrees_with_a_paid_attempt_on_fifty_edits_of_a_tool(go: Go) -> None:
    """The model answers alike each time, as at temperature 0."""
    endings = ["!", "?", "", "!!", ".", "!\\n", " !", "\\t!", "0", "! "]
    changes = [f' + "{end}"' for end in endings]
    changes += [f'.replace("w", "{end}w") + "!"' for end in endings]
    changes += [f'.replace("{n}", "{n}!")' for n in range(8)]
    changes += ['.upper() + "!"', '.lower() + "!"', '[:2] + "!"', '[:1] + "!"', '[-1:] + "!"']
    changes += [f' * {n} + "!"' for n in range(1, 6)]
    changes += [f'.center({n}) + "!"' for n in range(1, 7)]
    changes += [
        '.strip("w") + "!"',
        ' + "!" * len(sys.argv)',
        " + chr(33)",
        ' + "x" * 0 + "!"',
        '[::-1] + "!"',
        ' + "!" if True else ""',
    ]
    changes = changes[:50]
    assert len(set(changes)) == 50
    script = "".join(f"{write(change)}regrade 01; rehearse 01; echo ===\n" for change in changes)
    tried = go(
        script.replace("X\n", "END\n").replace("'X'", "'END'"),
        "git -C agent checkout -q .; finish",
        seed=by_tool(),
        rows=ROWS,
        **{"study.rehearsals": 100},
    )
    parts = answers(tried)[0].split("===\n")[:50]
    agreed = 0
    for part in parts:
        told = re.findall(r"^(0\d): 0 -> ([\d.]+)", part, re.MULTILINE)
        half = len(told) // 2
        assert half == 1, part
        agreed += told[:half] == told[half:]
    assert agreed == 50
