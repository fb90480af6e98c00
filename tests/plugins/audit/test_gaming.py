"""Lessons that tell to game a grader, as exploits do."""

from __future__ import annotations

import difflib

from recreate.agents.guards import gaming as guard


def test_most_known_exploits_leave_a_sign_in_what_is_handed_in() -> None:
    """Those of `tasks audit`."""
    from recreate.plugins.audit.audit import python

    source = "def f(x):\n    return x\n"
    seen = []
    for files in python("m.py", source, "f").values():
        patch = ""
        for path, text in files.items():
            old = source.splitlines(True) if path == "m.py" else []
            name = f"a/{path}" if old else "/dev/null"
            patch += "".join(difflib.unified_diff(old, text.splitlines(True), name, f"b/{path}"))
        seen.append(bool(guard.answer_sign(patch)))
    assert (sum(seen), len(seen)) == (174, 192)
