"""The house, counted: what lies where, who imports whom, and how large each room is.

    python -m tests.house            the rooms and their numbers
    python -m tests.house --write    writes down in tests/house.toml every number that fell

A room is a folder at the top of recreate/, or a plug-in. Imports are all there are, those inside
functions too, as grimp finds them without importing anything.
"""

from __future__ import annotations

import argparse
import ast
import json
import re
import subprocess
import sys
import tomllib
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
NUMBERS = Path(__file__).with_suffix(".toml")
SLACK = 0.02
"""By what share a number may fall before it has to be written down."""

Graph = Mapping[str, frozenset[str]]
"""A node -> the nodes that it imports."""

Rooms = dict[str, dict[str, float]]
"""A room -> its numbers, in the order of MEANS."""

MEANS = {
    "nodes": "syntax nodes without docstrings",
    "nodes_a_line": "syntax nodes a code line",
    "branches": "branches and loops",
    "long": "functions of more than 60 lines",
    "complex": "functions excused from a complexity of at most 15",
    "wide": "lines of more than 100 columns",
    "bare": "functions named by a bare participle",
    "outward": "imports of plug-ins from outside of recreate/plugins",
}
NO_THING = (ast.expr_context, ast.operator, ast.unaryop, ast.boolop, ast.cmpop)
FORKS = (
    ast.If,
    ast.IfExp,
    ast.For,
    ast.AsyncFor,
    ast.While,
    ast.Try,
    ast.ExceptHandler,
    ast.comprehension,
    ast.BoolOp,
    ast.match_case,
    ast.Assert,
)
BARE = re.compile(
    r"added|again|agrees|alone|apart|as_it_is|asked|attempted|begun|beside|born|called|changed|"
    r"closed|counted|done|drawn|ease|ended|far|found|fresh|given|held|judged|kept|known|"
    r"learned|learnt|left|let_go|lost|made|meant|mended|moved|named|near|offered|once|opened|"
    r"over|paid|past|proposed|put|ready|removed|rights|said|seen|settled|shown|sighted|spoken|"
    r"studied|taken|theirs|told|tried|under|used|whole|wins|won|written"
)
"""Names that say nothing alone."""


# --- files and names
# --------------------------------------------------------------------------------------


def python_files(root: Path) -> list[Path]:
    """Return the .py files below recreate/, in order."""
    return sorted(f for f in (root / "recreate").rglob("*.py") if "__pycache__" not in f.parts)


def folders(root: Path) -> list[str]:
    """Return the names of the folders at the top of recreate/ without what a wheel puts there."""
    top = (root / "recreate").iterdir()
    return sorted(p.name for p in top if p.is_dir() and p.name not in ("__pycache__", "_share"))


def strays(root: Path) -> list[str]:
    """Return the files at the top of recreate/ that no package needs there."""
    needed = ("__init__.py", "__main__.py", "py.typed")
    return sorted(
        p.name for p in (root / "recreate").iterdir() if p.is_file() and p.name not in needed
    )


def repeated_classes(root: Path) -> dict[str, list[str]]:
    """Return class name -> the files that define it, for those that are defined twice."""
    written = _places(root, lambda text: re.findall(r"^ *class (\w+)", text, re.MULTILINE))
    # a class may stand in a text: only where a name comes twice is the file parsed
    suspects = {file for files in written.values() for file in files}
    return _places(root, _classes, suspects) if suspects else {}


def _places(
    root: Path, names: Callable[[str], list[str]], among: Collection[str] | None = None
) -> dict[str, list[str]]:
    """Return name -> the files in which it comes, for those that come twice."""
    places: defaultdict[str, list[str]] = defaultdict(list)
    for file in python_files(root):
        path = file.relative_to(root).as_posix()
        if among is None or path in among:
            for name in names(file.read_text("utf-8")):
                places[name].append(path)
    return {name: files for name, files in sorted(places.items()) if len(files) > 1}


def _classes(text: str) -> list[str]:
    return [node.name for node in ast.walk(ast.parse(text)) if isinstance(node, ast.ClassDef)]


# --- the size of a room
# ------------------------------------------------------------------------------------


def measure_rooms(root: Path) -> Rooms:
    """Return the numbers of each room and plug-in below `root`."""
    counts: defaultdict[str, Counter[str]] = defaultdict(Counter)
    for file in python_files(root):
        counts[_room_of_file(file.relative_to(root / "recreate"))].update(_count(file, root))
    return {name: _numbers(counts[name]) for name in sorted(counts)}


def sum_rooms(rooms: Rooms, root: Path, *, core: bool) -> dict[str, float]:
    """Return the numbers of all rooms together, or of the core alone."""
    total: Counter[str] = Counter()
    for file in python_files(root):
        room = _room_of_file(file.relative_to(root / "recreate"))
        if room in rooms and not (core and room.startswith("plugins/")):
            total.update(_count(file, root))
    return _numbers(total)


def _numbers(count: Counter[str]) -> dict[str, float]:
    return {
        name: round(count["nodes"] / max(1, count["code"]), 1)
        if name == "nodes_a_line"
        else count[name]
        for name in MEANS
    }


def _room_of_file(path: Path) -> str:
    """`plugins/swe/case.py` -> `plugins/swe`; what lies at the top is the room `(top)`."""
    parts = path.parts[:-1]
    return "/".join(parts[: 2 if parts[0] == "plugins" else 1]) if parts else "(top)"


@cache
def _count(file: Path, root: Path) -> Counter[str]:
    text = file.read_text("utf-8")
    lines = text.splitlines()
    tree = ast.parse(text)
    every = list(ast.walk(tree))
    docs = list(_docstrings(every))
    in_docs = {n for doc in docs for n in range(doc.lineno, (doc.end_lineno or doc.lineno) + 1)}
    words = {id(node) for doc in docs for node in ast.walk(doc)}
    nodes = [n for n in every if id(n) not in words and not isinstance(n, NO_THING)]
    functions = [n for n in nodes if isinstance(n, ast.FunctionDef | ast.AsyncFunctionDef)]
    is_core = "plugins" not in file.relative_to(root).parts
    return Counter(
        nodes=len(nodes),
        code=sum(
            bool(line.strip()) and not line.lstrip().startswith("#") and n not in in_docs
            for n, line in enumerate(lines, 1)
        ),
        branches=sum(isinstance(n, FORKS) for n in nodes),
        long=sum((f.end_lineno or f.lineno) - f.lineno >= 60 for f in functions),
        complex=len(re.findall(r"# noqa:.*\bC901\b", text)),
        wide=sum(len(line) > 100 for line in lines),
        bare=sum(bool(BARE.fullmatch(f.name.strip("_"))) for f in functions),
        outward=sum(map(_asks_for_plugins, nodes)) if is_core else 0,
    )


def _docstrings(nodes: Sequence[ast.AST]) -> Iterator[ast.stmt]:
    """Yield the statements that are a text alone: docstrings, and those below an attribute."""
    for node in nodes:
        body = getattr(node, "body", None)
        for statement in body if isinstance(body, list) else ():
            match statement:
                case ast.Expr(value=ast.Constant(value=str())):
                    yield statement


def _asks_for_plugins(node: ast.AST) -> bool:
    """Say whether an import, or a text that names a module, reaches into recreate/plugins."""
    match node:
        case ast.Import(names=names):
            return any(f"{name.name}.".startswith("recreate.plugins.") for name in names)
        case ast.ImportFrom(module=str(module), names=names):
            modules = [module, *(f"{module}.{name.name}" for name in names)]
            return any(f"{name}.".startswith("recreate.plugins.") for name in modules)
        case ast.Constant(value=str(text)):
            return bool(re.search(r"\brecreate\.plugins\.\w", text))
    return False


# --- the numbers that may not grow
# -------------------------------------------------------------------------


def read_numbers(file: Path = NUMBERS) -> Rooms:
    """Return what tests/house.toml allows each room."""
    rooms: Rooms = tomllib.loads(file.read_text("utf-8"))
    return rooms


def write_numbers(rooms: Rooms, file: Path = NUMBERS) -> None:
    """Write the rooms down, one line each."""
    head = (
        "# How large each room may be: tests/house.py says what is counted. Numbers that fell are\n"
        "# written by `python -m tests.house --write`. A number is raised by hand, in a commit of\n"
        "# its own that says why.\n\n"
    )
    rows = (
        f"{json.dumps(name)} = {{ {', '.join(f'{k} = {v}' for k, v in numbers.items())} }}\n"
        for name, numbers in sorted(rooms.items())
    )
    file.write_text(head + "".join(rows), encoding="utf-8")


def lower_numbers(allowed: Rooms, counted: Rooms) -> Rooms:
    """Return the lesser of each number; a room that is gone goes, a new one comes as it is."""
    return {
        name: {
            key: min(value, allowed.get(name, {}).get(key, value)) for key, value in numbers.items()
        }
        for name, numbers in counted.items()
    }


def compare_numbers(allowed: Rooms, counted: Rooms) -> list[str]:
    """Return a sentence for each number that grew, and for each that fell by more than SLACK."""
    sentences = []
    for name, numbers in counted.items():
        if name not in allowed:
            sentences.append(
                f"{name} is new: `python -m tests.house --write` writes its numbers down"
            )
            continue
        for key, value in numbers.items():
            most = allowed[name].get(key, 0)
            if value > most:
                sentences.append(
                    f"{name} has {value:g} {MEANS[key]}, allowed are {most:g}: make it smaller, or"
                    f" raise `{key}` of {json.dumps(name)} in tests/house.toml to {value:g} in a"
                    " commit of its own that says why"
                )
            elif value < most * (1 - SLACK):
                sentences.append(
                    f"{name} has {value:g} {MEANS[key]} and not {most:g} any more:"
                    " `python -m tests.house --write` writes it down"
                )
    return sentences


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
    """Return module -> the modules of the package that it imports.

    In a process of its own: this one may know another `recreate`.
    """
    command = [sys.executable, "-B", "-c", _GRIMP]
    done = subprocess.run(command, cwd=root, check=True, capture_output=True, text=True)
    return {module: frozenset(others) for module, others in json.loads(done.stdout).items()}


def room(module: str) -> str:
    """Return the room of a module: `recreate.memory.index.chroma` -> `memory`; '' for recreate."""
    return module.partition(".")[2].partition(".")[0].removeprefix("__main__")


def plugin(module: str) -> str:
    """Return the plug-in of a module: `recreate.plugins.swe.case` -> `swe`; '' for others."""
    parts = module.split(".")
    return parts[2] if parts[:2] == ["recreate", "plugins"] and len(parts) > 2 else ""


def fold(graph: Graph, name_of: Callable[[str], str]) -> Graph:
    """Return the graph of groups of modules; those whose group has no name are left out."""
    groups: defaultdict[str, set[str]] = defaultdict(set)
    for module, others in graph.items():
        if name := name_of(module):
            groups[name] |= {name_of(other) for other in others} - {"", name}
    return {name: frozenset(others) for name, others in groups.items()}


def find_circle(graph: Graph) -> list[str]:
    """Return nodes each of which imports the next, the last the first; [] where there are none."""
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as e:
        circle: list[str] = e.args[1]
        return circle
    return []


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.house")
    parser.add_argument("--write", action="store_true", help="write down every number that fell")
    parser.add_argument("--root", type=Path, default=ROOT, help="count another checkout")
    args = parser.parse_args()
    rooms = measure_rooms(args.root.resolve())
    if args.write:
        write_numbers(lower_numbers(read_numbers() if NUMBERS.exists() else {}, rooms))
        return 0
    total = {
        "the core": sum_rooms(rooms, args.root.resolve(), core=True),
        "all": sum_rooms(rooms, args.root.resolve(), core=False),
    }
    print(f"{'':22}" + "".join(f"{key:>13}" for key in MEANS))
    for name, numbers in [*rooms.items(), *total.items()]:
        print(f"{name:22}" + "".join(f"{value:13,}" for value in numbers.values()))
    return 0


if __name__ == "__main__":
    sys.exit(main())
