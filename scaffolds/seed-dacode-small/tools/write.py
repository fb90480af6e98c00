#!/usr/bin/env python3
"""Takes a reply with a program in a ```python block on standard input, runs it, and writes the lines `@name[value]`
that it prints into answer.txt; says what went wrong where there are none."""

import re
import subprocess
import sys
from pathlib import Path

SECONDS = 45

if "--help" in sys.argv:
    print(__doc__)
    sys.exit(0)
blocks = re.findall(r"```(?:python|py)?[ \t]*\n(.*?)(?:\n```|\Z)", sys.stdin.read(), re.DOTALL | re.IGNORECASE)
if not blocks or not max(blocks, key=len).strip():
    print("there is no ```python block in the reply")
    sys.exit(2)
Path("program.py").write_text(max(blocks, key=len) + "\n", encoding="utf-8")
try:
    ran = subprocess.run(
        ["python3", "-W", "ignore", "program.py"],
        capture_output=True, text=True, errors="replace", timeout=SECONDS, stdin=subprocess.DEVNULL, check=False,
    )  # fmt: skip
except subprocess.TimeoutExpired:
    print(f"The program did not end within {SECONDS} seconds.")
    sys.exit(0)
lines = [line for line in ran.stdout.splitlines() if re.search(r"@\w+\[", line)]
if ran.returncode:
    said = ran.stderr.strip().splitlines()
    where = [n for n, line in enumerate(said) if 'program.py", line' in line]
    shown = [*(said[where[-1] : where[-1] + 2] if where else ()), *said[-1:]]
    print("The program failed:", *(line.strip()[:300] for line in shown), sep="\n")
elif not lines:
    print(f"The program printed no line `@name[value]`. It printed:\n{ran.stdout.strip()[:600] or 'nothing'}")
else:
    Path("answer.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")
    print("answer.txt is written")
