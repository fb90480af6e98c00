#!/usr/bin/env python3
"""Takes a reply on standard input and writes it, or the ``` block that it is, into the file that the task names."""

import json
import re
import sys
from pathlib import Path

if "--help" in sys.argv:
    print(__doc__)
    sys.exit(0)
reply = sys.stdin.read().strip()
block = re.fullmatch(r"```[^\n`]*\n(.*?)\n?```", reply, re.DOTALL)
answer = (block[1] if block else reply).removeprefix("Reply:").removeprefix("Answer:").strip()
if not answer:
    print("the reply is empty")
    sys.exit(2)
task = json.loads(Path(".recreate/attempt.json").read_text(encoding="utf-8"))["prompt"]
named = re.findall(r"the file ([\w.-]+) in /work", task)
file = named[-1] if named else "answer.txt"
Path(file).write_text(answer + "\n", encoding="utf-8")
Path(".recreate/answered").write_text(file, encoding="utf-8")
print(f"{file} is written")
