"""Looks through a sandbox for other copies of a package than the one that is worked on.

It is the program of `python3 -I -B -c`, on Python 3.8 and what came after. The order of one JSON
line on stdin:
    modules   {path below its folder on sys.path: [what stands for each telling line]} of the
              package
    tops      names to import
    here      the folder that is worked on, which is passed over; mounted: folders in it that are
              looked through
The answer is a JSON object on the last line: `found`, [[file, the module it is a copy of]], where
the file may be an archive, and `imported`, {name: where it is imported from}.
"""

from __future__ import annotations

import importlib.util
import json
import os
import sys
import zipfile
import zlib
from collections.abc import Callable
from functools import partial
from pathlib import Path

LEAST, SHARE = 6, 0.25
"""A file is a copy when it is named like a module and has so many of its telling lines, and such a
share of them (of its own, when it has fewer)."""
ARCHIVES = (".whl", ".zip", ".egg", ".pyz")


def telling(text: bytes) -> set[int]:
    """Numbers for the lines that say something; comments, which licences are, do not."""
    lines = (line.strip() for line in text.split(b"\n"))
    return {
        zlib.crc32(line)
        for line in lines
        if len(line) > 11 and not line.startswith((b"#", b"import ", b"from "))
    }


class CopyFinder:
    """What is found of the modules of a package: [[file, the module it is a copy of]]."""

    def __init__(self, modules: dict[str, list[int]]) -> None:
        self.found: list[tuple[str, str]] = []
        self.modules: dict[str, list[tuple[str, set[int]]]] = {}
        for path, lines in modules.items():
            self.modules.setdefault(path.rpartition("/")[2], []).append((path, set(lines)))

    def look(self, place: str, inside: str, read: Callable[[], bytes]) -> None:
        """Note the file `inside` (its path, in an archive too) when it is a copy."""
        folder, _, name = inside.rpartition("/")
        for path, lines in self.modules.get(name, ()):
            above = path.rpartition("/")[0].rpartition("/")[2]
            if name == "__init__.py" and above != folder.rpartition("/")[2]:
                continue
            own = telling(read())
            common = len(own & lines)
            if common >= LEAST and common >= SHARE * min(len(own), len(lines)):
                self.found.append((place, path))
                if place == inside:  # what Python compiled of it says the same
                    compiled = Path(folder, "__pycache__").glob(f"{name[:-3]}.*.pyc")
                    self.found.extend((str(f), path) for f in compiled if f.stat().st_size)
                return

    def look_at(self, path: str, name: str) -> None:
        """Look at a file, or at what is in an archive."""
        if name in self.modules and not Path(path).is_symlink():
            self.look(path, path, Path(path).read_bytes)
        elif name.endswith(ARCHIVES) and Path(path).stat().st_size:
            with zipfile.ZipFile(path) as archive:
                for member in archive.namelist():
                    self.look(path, member, partial(archive.read, member))

    def search(self, top: str, passed: set[str]) -> None:
        """Look at all files below a folder, but for folders that are passed over."""
        for folder, folders, names in os.walk(top):
            start = folder.rstrip("/")
            folders[:] = [f for f in folders if f"{start}/{f}" not in passed]
            for name in names:
                try:
                    self.look_at(f"{start}/{name}", name)
                except (OSError, zipfile.BadZipFile, NotImplementedError, RuntimeError):
                    continue


def find_origin(name: str) -> str:
    """Return the file that a name is imported from, '' for none that holds anything."""
    try:
        spec = importlib.util.find_spec(name)
    except (ImportError, ValueError):
        return ""
    origin = (spec and spec.origin) or ""
    return origin if Path(origin).is_file() and Path(origin).stat().st_size else ""


def main() -> None:
    order = json.loads(sys.stdin.readline())
    finder = CopyFinder(order["modules"])
    for top in ["/", *order["mounted"]]:
        finder.search(top, {"/proc", "/sys", "/dev", order["here"]})
    origins = {name: find_origin(name) for name in order["tops"]}
    imported = {name: origin for name, origin in origins.items() if origin}
    print()
    print(json.dumps({"found": finder.found, "imported": imported}))


if __name__ == "__main__":
    main()
