#!/usr/bin/env python3
"""Takes a reply with a ```python block, or with \\boxed{answer}, on standard input; runs the program, notes what it
prints beside earlier answers, and writes the one that most of them gave into answer.txt."""

import re
import subprocess
import sys
from collections import Counter
from pathlib import Path

if "--help" in sys.argv:
    print(__doc__)
    sys.exit(0)
reply = sys.stdin.read()
programs = re.findall(r"```(?:python|py)?[ \t]*\n(.*?)(?:\n```|\Z)", reply, re.DOTALL)
boxed = re.findall(r"\\boxed\{([^{}]*)\}", reply)
if programs:
    try:
        ran = subprocess.run(
            [sys.executable, "-c", programs[-1]], capture_output=True, text=True, timeout=8, check=False
        )
    except subprocess.TimeoutExpired:
        print("The program did not end. Write it anew, without loops, in one ```python block.")
        sys.exit(0)
    said = (ran.stdout if ran.returncode == 0 else "").strip().splitlines()
    if not said:
        why = ran.stderr.strip().splitlines()[-1:] or ["it printed nothing"]
        print(f"The program failed: {why[0]}. Write the whole program again, mended, in one ```python block.")
        sys.exit(0)
    text = said[-1]
elif boxed:
    text = boxed[-1]
else:
    print("there is neither a ```python block nor \\boxed{answer} in the reply")
    sys.exit(2)
numbers = re.findall(r"-?\d+(?:\.\d+)?", text.replace(",", ""))
answer = f"{round(float(numbers[-1]), 6):g}" if numbers and abs(float(numbers[-1])) < 1e6 else text.strip()
if numbers and abs(float(numbers[-1])) >= 1e6:
    answer = numbers[-1].removesuffix(".0")
votes = Path("votes.txt")
given = [*(votes.read_text(encoding="utf-8").splitlines() if votes.is_file() else []), answer]
votes.write_text("\n".join(given) + "\n", encoding="utf-8")
Path("answer.txt").write_text(Counter(given).most_common(1)[0][0] + "\n", encoding="utf-8")
if len(given) == 1:
    print("Now check it without a program: read the problem again, reason in a few short lines from the beginning,")
    print("and put the number that is asked for in \\boxed{}.")
elif len(set(given)) > 1:
    print(f"The tries disagree: {' and '.join(given)}. Read the problem again, say what exactly is asked, and write a")
    print("new Python program that prints it, in one ```python block.")
