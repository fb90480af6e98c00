#!/usr/bin/env python3
"""Takes a reply on standard input. The first one says on what the task rests, and is noted; of a later one the last ```
block, or what its last \\boxed{} holds, is written into the file that the task names."""

import json
import re
import sys
from pathlib import Path

if "--help" in sys.argv:
    print(__doc__)
    sys.exit(0)


def boxed(reply: str) -> str:
    start = reply.rfind("\\boxed{")
    depth = 0
    for at in range(start + 6, len(reply)) if start >= 0 else ():
        depth += {"{": 1, "}": -1}.get(reply[at], 0)
        if not depth:
            return reply[start + 7 : at]
    return ""


reply = sys.stdin.read()
noted = Path(".recreate/noted")
if not noted.exists():
    noted.write_text(reply, encoding="utf-8")
    print("noted")
    sys.exit(0)
blocks = re.findall(r"```[^\n`]*\n(.*?)(?:\n```|\Z)", reply, re.DOTALL)
answer = (blocks[-1] if blocks else boxed(reply)).strip("\n")
if not answer.strip():
    print("there is no answer in a ``` block or in \\boxed{} in the reply")
    sys.exit(2)
task = json.loads(Path(".recreate/attempt.json").read_text(encoding="utf-8"))["prompt"]
named = re.findall(r"the file ([\w.-]+) in /work", task)
programs = [path.name for path in Path.cwd().glob("*.py") if path.name != "node.py"]
file = named[-1] if named else programs[0] if len(programs) == 1 else "solution.py"
Path(file).write_text(answer + "\n", encoding="utf-8")
Path(".recreate/answered").write_text(file, encoding="utf-8")
print(f"{file} is written")
