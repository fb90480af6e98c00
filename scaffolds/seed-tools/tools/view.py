"""Shows lines of a text file with their numbers: 200 from `first` on, or up to `last`."""

import json
import sys
from pathlib import Path


def main() -> None:
    given = json.load(sys.stdin)
    lines = Path(given["path"]).read_text("utf-8", errors="replace").split("\n")
    first = max(1, given.get("first", 1))
    last = min(len(lines), given.get("last", first + 199))
    for number in range(first, last + 1):
        print(f"{number:5} {lines[number - 1]}")
    if last < len(lines):
        print(f"[{len(lines) - last} more lines]")


if "--help" in sys.argv:
    print(__doc__)
else:
    try:
        main()
    except OSError as e:
        sys.exit(f"{e.filename}: {e.strerror}")
