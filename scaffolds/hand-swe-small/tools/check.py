#!/usr/bin/env python3
"""Exit 0 when the failing tests pass and no other broke; the last line is how far that is so, 1 is best."""

import sys

if "--help" in sys.argv:
    print(__doc__)
    sys.exit(0)
import shutil
import tempfile
from importlib.machinery import SourceFileLoader
from pathlib import Path

sys.dont_write_bytecode = True
edit = SourceFileLoader("edit", str(Path(__file__).with_name("edit"))).load_module()
BAD = ("FAILED", "ERROR")


def rank(shown: dict, text: str) -> float:
    """What the public tests say of the sources as they stand."""
    if text == shown["given"]:
        return -1
    public = edit.public()
    if public["fail"]:
        outcomes = edit.tests(public["fail"], Path.cwd())
        fixed = sum(outcomes.get(name) == "PASSED" for name in public["fail"])
        if fixed < len(public["fail"]):
            return fixed / (2 * len(public["fail"]))
    whole = edit.tests(public["suite"], Path.cwd())
    broken = [name for name, outcome in whole.items() if outcome in BAD]
    if broken:  # those that fail in the sources as they were given nobody broke
        with tempfile.TemporaryDirectory() as folder:
            copy = Path(folder) / "given"
            shutil.copytree(Path.cwd(), copy, symlinks=True, ignore=shutil.ignore_patterns(".git", ".recreate"))
            (copy / shown["file"]).write_text(shown["given"], encoding="utf-8")
            before = edit.tests(broken, copy)
        broken = [name for name in broken if before.get(name) not in BAD]
    return 1 if whole and not broken else 0.5


shown = edit.read("shown.json", {})
if not shown:
    print("no code was found that could have the bug\n-1")
    sys.exit(1)
found = rank(shown, Path(shown["file"]).read_text(encoding="utf-8"))
print(found)
sys.exit(0 if found == 1 else 1)
