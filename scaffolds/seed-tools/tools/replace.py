"""Replaces a text in a file by another. `old` must stand there exactly once; an empty `old` writes a new file."""

import json
import sys
from pathlib import Path


def main() -> None:
    given = json.load(sys.stdin)
    path, old, new = Path(given["path"]), given["old"], given["new"]
    if not old:
        if path.exists():
            sys.exit(f"{path} is there already: give the text to replace as old")
        path.parent.mkdir(parents=True, exist_ok=True)
        text = new
    else:
        text = path.read_bytes().decode("utf-8")
        if text.count(old) != 1:
            sys.exit(f"old stands {text.count(old)} times in {path}; it must be there exactly once, spaces and all")
        text = text.replace(old, new)
    path.write_bytes(text.encode("utf-8"))
    print(f"{path} is written")


if "--help" in sys.argv:
    print(__doc__)
else:
    try:
        main()
    except (OSError, UnicodeDecodeError) as e:
        sys.exit(str(e))
