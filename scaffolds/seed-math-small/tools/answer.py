#!/usr/bin/env python3
"""Takes a reply on standard input and writes what its last \\boxed{} holds into answer.txt."""

import sys
from pathlib import Path

if "--help" in sys.argv:
    print(__doc__)
    sys.exit(0)
reply = sys.stdin.read()
start = reply.rfind("\\boxed{")
depth, end = 0, -1
for at in range(start + 6, len(reply)) if start >= 0 else ():
    depth += {"{": 1, "}": -1}.get(reply[at], 0)
    if not depth:
        end = at
        break
if end < 0:
    print("there is no \\boxed{answer} in the reply")
    sys.exit(2)
Path("answer.txt").write_text(reply[start + 7 : end].strip() + "\n", encoding="utf-8")
print("answer.txt is written")
