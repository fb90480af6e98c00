"""The package as a house: folders, files, lines, levels, import arrows, circles, names used twice,
against the goals.

A room is what lies at the top of recreate/: a folder, or (as it once was) a module. Imports are all
there are, those inside functions too, as grimp finds them without importing anything. `--root DIR`
counts another checkout.
"""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from pathlib import Path

from tests.lab.perf.table import Row

ROOT = Path(__file__).resolve().parents[3]
FOLDERS, FILES, LINES = 14, 185, 33_000

Graph = Mapping[str, frozenset[str]]
"""A node -> the nodes that it imports."""


def measure(root: Path = ROOT) -> Iterator[Row]:
    """The counts of the checkout at `root`, one row each."""
    files = python_files(root)
    graph = imports(root)
    rooms = between_rooms(graph)
    yield _row("folders at the top of recreate/", len(folders(root)), f"=={FOLDERS}")
    yield _row("modules beside them", len(strays(root)), "==0")
    yield _row(".py files", len(files), f"<={FILES}")
    yield _row("lines of them", sum(len(f.read_bytes().splitlines()) for f in files), f"<={LINES}")
    yield _row("import levels: rooms in the longest chain", levels(rooms), "<=9")
    yield _row("import arrows between modules", sum(map(len, graph.values())))
    yield _row(
        "import arrows that leave a room", sum(_leaves(a, b) for a in graph for b in graph[a])
    )
    yield _row("pairs of rooms with an arrow", sum(map(len, rooms.values())))
    yield _row("circles of modules", len(circles(graph)), "==0")
    yield _row("circles of rooms", len(circles(rooms)), "==0")
    yield _row("class names defined twice", len(repeated_classes(root)), "==0")
    yield _row("file names used twice", len(repeated_files(root)))


def _row(case: str, count: int, goal: str = "") -> Row:
    return Row("house", case, "", count, None, None, None, None, goal, "ours")


# --- files and names
# --------------------------------------------------------------------------------------


def python_files(root: Path) -> list[Path]:
    """The .py files below recreate/, in order."""
    return sorted(f for f in (root / "recreate").rglob("*.py") if "__pycache__" not in f.parts)


def folders(root: Path) -> list[str]:
    """The names of the folders at the top of recreate/; `_share` is what a wheel puts there."""
    top = (root / "recreate").iterdir()
    return sorted(p.name for p in top if p.is_dir() and p.name not in ("__pycache__", "_share"))


def strays(root: Path) -> list[str]:
    """The files at the top of recreate/ that no package needs there."""
    needed = ("__init__.py", "__main__.py", "py.typed")
    return sorted(
        p.name for p in (root / "recreate").iterdir() if p.is_file() and p.name not in needed
    )


def repeated_classes(root: Path) -> dict[str, list[str]]:
    """Class name -> the files that define it, for those defined twice; classes in classes and
    functions too."""
    found: defaultdict[str, list[str]] = defaultdict(list)
    for file in python_files(root):
        for node in ast.walk(ast.parse(file.read_bytes())):
            if isinstance(node, ast.ClassDef):
                found[node.name].append(file.relative_to(root).as_posix())
    return {name: places for name, places in sorted(found.items()) if len(places) > 1}


def repeated_files(root: Path) -> list[str]:
    """The file names that several folders use; `__init__.py` is none."""
    names = Counter(f.name for f in python_files(root) if f.name != "__init__.py")
    return sorted(name for name, n in names.items() if n > 1)


# --- imports
# ----------------------------------------------------------------------------------------------

_GRIMP = """
import grimp, json
graph = grimp.build_graph("recreate", cache_dir=None)
print(json.dumps({m: sorted(graph.find_modules_directly_imported_by(m)) for m in \
sorted(graph.modules)}))
"""


@cache
def imports(root: Path) -> Graph:
    """Module -> the modules of the package that it imports. In a process of its own: this one may
    know another `recreate`."""
    command = [sys.executable, "-B", "-c", _GRIMP]
    done = subprocess.run(command, cwd=root, check=True, capture_output=True, text=True)
    return {module: frozenset(found) for module, found in json.loads(done.stdout).items()}


def room(module: str) -> str:
    """`recreate.memory.index.chroma` -> `memory`; '' for recreate itself and its __main__."""
    return module.partition(".")[2].partition(".")[0].removeprefix("__main__")


def between_rooms(graph: Graph) -> Graph:
    """Room -> the rooms that one of its modules imports."""
    rooms: dict[str, set[str]] = {room(m): set() for m in graph if room(m)}
    for module, found in graph.items():
        if room(module):
            rooms[room(module)] |= {room(f) for f in found if room(f) not in ("", room(module))}
    return {name: frozenset(found) for name, found in rooms.items()}


def _leaves(a: str, b: str) -> bool:
    return bool(room(a) and room(b)) and room(a) != room(b)


def circles(graph: Graph) -> list[list[str]]:
    """The sets of two nodes or more each of which leads to each of the others (Tarjan's
    algorithm)."""
    index: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    found: list[list[str]] = []

    def visit(node: str) -> None:
        index[node] = low[node] = len(index)
        stack.append(node)
        for other in graph[node]:
            if other not in index:
                visit(other)
            if other in stack:
                low[node] = min(low[node], low[other])
        if low[node] == index[node]:
            at = stack.index(node)
            if len(stack) - at > 1:
                found.append(sorted(stack[at:]))
            del stack[at:]

    for node in graph:
        if node not in index:
            visit(node)
    return sorted(found)


def levels(graph: Graph) -> int:
    """How many nodes the longest chain of imports has; a circle stands in it as one."""
    name = {node: circle[0] for circle in circles(graph) for node in circle}
    straight: defaultdict[str, set[str]] = defaultdict(set)
    for node, found in graph.items():
        straight[name.get(node, node)] |= {name.get(f, f) for f in found} - {name.get(node, node)}
    known: dict[str, int] = {}

    def depth(node: str) -> int:
        if node not in known:
            known[node] = 1 + _longest(depth(f) for f in straight[node])
        return known[node]

    return _longest(depth(node) for node in list(straight))


def _longest(numbers: Iterable[int]) -> int:
    return max(numbers, default=0)
