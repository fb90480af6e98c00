#!/usr/bin/env python3
"""Says whether answer.py gives what the task shows; exit status 0 when it does."""

import doctest
import json
import sys
from pathlib import Path

if "--help" in sys.argv:
    sys.exit(print(__doc__))
prompt = json.loads(Path(".recreate/attempt.json").read_text())["prompt"]
space, wrong = {}, ""
try:
    exec(Path("answer.py").read_text(), space)
except Exception as e:
    wrong = f"The file as it is fails with {type(e).__name__}."
for example in [] if wrong else doctest.DocTestParser().get_examples(prompt):
    try:
        value = repr(eval(example.source, space))
    except Exception as e:
        value = type(e).__name__
    if value != example.want.strip():
        wrong = f"{example.source.strip()} gives {value[:80]}, and {example.want.strip()} is wanted."
        break
print(wrong or "It gives what the task shows.")
sys.exit(bool(wrong))
