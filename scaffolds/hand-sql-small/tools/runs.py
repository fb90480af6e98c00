#!/usr/bin/env python3
"""Exit 0 when the query in answer.sql runs; else says what SQLite says."""

import sys

if "--help" in sys.argv:
    print(__doc__)
    sys.exit(0)
from importlib.machinery import SourceFileLoader
from pathlib import Path

sys.dont_write_bytecode = True
write = SourceFileLoader("write", str(Path(__file__).with_name("write"))).load_module()
answer = Path("answer.sql")
if not answer.is_file():
    sys.exit(1)
_, wrong = write.tried(write.opened(), answer.read_text(encoding="utf-8"))
if wrong:
    print(f"SQLite says: {wrong}")
    sys.exit(1)
