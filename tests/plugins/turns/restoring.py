"""The boxes of `tests.plugins.turns.lookahead` for an agent that observes before it acts, and one
whose mistakes are taken back.

    python -m tests.plugins.turns.restoring [TASKS]

Prints what acting at once, observing and restoring make of it, and their calls.

A box has three doors. Each opens ("It is open.", status 0), one leaves the letter whole, the other
two burn it. The model opens a door at random; where it is told that this was taken back, one of the
others. Where it may observe first, it opens each door in a copy and looks. Then it copies the
letter to answer.txt and submits. It costs nothing.
"""

from __future__ import annotations

import random
import re
import sys
from collections.abc import Sequence
from typing import Any

from recreate.api.types import Call, Message, Reply
from recreate.models.chat import content
from tests.plugins.turns import lookahead
from tests.plugins.turns.lookahead import DOORS

CHECK = '''#!/usr/bin/env python3
"""Fail when the letter is gone."""
import os, sys
sys.exit(not any(map(os.path.exists, ("box/letter", "letter"))))
'''
OBSERVE, RESTORE = f"[observe]\nsteps = {DOORS}\n", '[restore]\ncheck = "whole"\n'
TABLES = {
    "acting at once": "",
    "observing": OBSERVE,
    "restoring": RESTORE,
    "both": OBSERVE + RESTORE,
}


def policy(messages: Sequence[Message], call: Call, **params: Any) -> Reply:
    """A model that does not know the doors apart."""
    said = [(m["role"], content(m)) for m in messages]
    tried = re.findall(
        r"^sh door(\d)(.*)\n```",
        "\n".join(text for role, text in said if role == "assistant"),
        re.M,
    )
    answers = [text for role, text in said if role == "user"][1:]
    seen = dict(zip((door for door, _ in tried), answers, strict=False))
    last, turn = answers[-1] if answers else "", len(answers)
    if "You begin by observing" in said[0][1] and turn < DOORS:
        command = f"sh door{turn + 1}; ls"
    elif tried and not tried[-1][1] and "was taken back" not in last:
        command = "submit" if "cp letter" in said[-2][1] else "cp letter answer.txt"
    else:
        good = [door for door, text in seen.items() if re.search(r"^letter$", text, re.M)]
        left = [str(n) for n in range(1, DOORS + 1) if str(n) not in seen] or list(seen)
        command = f"sh door{(good or [random.Random(f'{call.task}/{turn}').choice(left)])[0]}"
    if said[-2][1].startswith("```bash\ncp letter"):
        command = "submit"
    size = sum(len(text) for _, text in said) // 4
    return Reply(text=f"```bash\n{command}\n```", tokens_in=size, tokens_out=len(command) // 4 + 1)


def play(toml: str, tasks: int, sandbox: str = "") -> tuple[float, float, float]:
    """(the share solved, calls a task, tokens a task)."""
    return lookahead.play(toml, tasks, sandbox, policy, {"tools/whole.py": CHECK})


def main() -> None:
    tasks = int(sys.argv[1]) if len(sys.argv) > 1 else 60
    for name, toml in TABLES.items():
        solved, calls, tokens = play(toml, tasks)
        print(f"{name:15} solved {solved:.2f}, {calls:.1f} calls and {tokens:.0f} tokens a task")


if __name__ == "__main__":
    main()
