"""How much of real traces is masked: `python -m tests.lab.masked FOLDER [--show N] [--json]`.

FOLDER holds a trace a file: JSON, whose texts are read, or a terminal's own words. Said is how many
lines are masked of how many, and how many traces have one; --show prints N of them with what is
masked between brackets, the shortest context first. What is a key among them a person decides.
"""

from __future__ import annotations

import argparse
import difflib
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from recreate.storage.redact import redact

AROUND = 60
"""Characters that are shown on each side."""


def texts(value: Any) -> Iterator[str]:
    """Yield the texts of JSON-like data."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict | list):
        for each in value.values() if isinstance(value, dict) else value:
            yield from texts(each)


def read_texts(file: Path) -> list[str]:
    """Return the texts of a trace."""
    text = file.read_text("utf-8", "replace")
    try:
        return list(texts(json.loads(text)))
    except ValueError:
        return [text]


def find_masked(text: str) -> Iterator[tuple[str, str]]:
    """Yield (what was masked, with what stands around it) of each line in which something was."""
    masked = redact(text)
    if masked == text:
        return
    before, after = text.split("\n"), masked.split("\n")
    rows = difflib.SequenceMatcher(None, before, after, autojunk=False)
    if len(before) == len(after):
        pairs = [(a, b) for a, b in zip(before, after, strict=True) if a != b]
    else:
        found = [(i, j) for tag, i, j, _, _ in rows.get_opcodes() if tag != "equal"]
        pairs = [(line, "") for i, j in found for line in before[i:j]]
    for line, new in pairs:
        at = next((n for n, (a, b) in enumerate(zip(line, new, strict=False)) if a != b), 0)
        rest = new.partition("[redacted")[2].partition("]")[2][:8] if new else ""
        end = line.find(rest, at) if rest else len(line)
        end = end if end > at else min(len(line), at + AROUND)
        yield line[at:end], f"{line[max(0, at - AROUND) : at]}[[{line[at:end]}]]"


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        prog="python -m tests.lab.masked",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("folder", type=Path)
    parser.add_argument("--show", type=int, default=0)
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args(arguments)
    files = sorted(file for file in given.folder.rglob("*") if file.is_file())
    lines, touched, masked = 0, 0, list[str]()
    for file in files:
        of_file = [text for text in read_texts(file) if text]
        lines += sum(text.count("\n") + 1 for text in of_file)
        found = [shown for text in of_file for _, shown in find_masked(text)]
        touched += bool(found)
        masked += found
    row = {
        "traces": len(files),
        "lines": lines,
        "masked": len(masked),
        "share": round(len(masked) / max(1, lines), 6),
        "traces_touched": touched,
    }
    print(json.dumps(row) if given.json else "  ".join(f"{k} {v}" for k, v in row.items()))
    for shown in sorted(dict.fromkeys(masked), key=len)[: given.show]:
        print(f"  {shown!r}")


if __name__ == "__main__":
    main()
