"""The house stands as it was decided: fourteen rooms, nine layers, no circles, no class name
twice."""

from __future__ import annotations

import ast
import re
import tomllib
from typing import Any

from tests.lab.perf import house

ROOMS = [
    "agents",
    "api",
    "builder",
    "cli",
    "domains",
    "lessons",
    "memory",
    "models",
    "optimizers",
    "plugins",
    "runs",
]
ROOMS += ["sandboxes", "storage", "viewer"]


def _contracts() -> list[dict[str, Any]]:
    project = tomllib.loads((house.ROOT / "pyproject.toml").read_text("utf-8"))
    found: list[dict[str, Any]] = project["tool"]["importlinter"]["contracts"]
    return found


def test_fourteen_folders_lie_at_the_top_and_no_modules() -> None:
    assert house.folders(house.ROOT) == ROOMS
    assert house.strays(house.ROOT) == []


def test_every_room_is_in_one_of_nine_layers_and_no_import_is_excused() -> None:
    layers = next(c["layers"] for c in _contracts() if c["type"] == "layers")
    assert len(layers) == 9
    rows = [[name.strip().removeprefix("recreate.") for name in row.split("|")] for row in layers]
    assert sorted(name for row in rows for name in row) == ROOMS
    assert not any("ignore" in key for contract in _contracts() for key in contract)


def test_each_layer_knows_only_those_below_it() -> None:
    layers = next(c["layers"] for c in _contracts() if c["type"] == "layers")
    depth = {
        name.strip().removeprefix("recreate."): n
        for n, row in enumerate(layers)
        for name in row.split("|")
    }
    rooms = house.between_rooms(house.imports(house.ROOT))
    assert [
        f"{a} -> {b}" for a in sorted(rooms) for b in sorted(rooms[a]) if depth[b] <= depth[a]
    ] == []
    assert house.levels(rooms) <= 9


def test_no_two_modules_import_each_other_not_even_by_way_of_others() -> None:
    assert house.circles(house.imports(house.ROOT)) == []


def test_a_class_name_stands_once() -> None:
    assert house.repeated_classes(house.ROOT) == {}


def test_the_counting_counts() -> None:
    graph = {
        "a": frozenset("bc"),
        "b": frozenset("c"),
        "c": frozenset("d"),
        "d": frozenset("b"),
        "e": frozenset("a"),
    }
    assert house.circles(graph) == [["b", "c", "d"]]
    assert house.levels(graph) == 3  # e, a and the circle
    assert house.circles({"a": frozenset("b"), "b": frozenset()}) == []
    modules = {
        "p.x.one": frozenset({"p.y.two", "p.x.three", "p"}),
        "p.x.three": frozenset(),
        "p.y.two": frozenset(),
    }
    assert house.between_rooms(modules) == {"x": {"y"}, "y": frozenset()}


def test_python_is_parsed_in_one_place() -> None:
    """Two threads that make a syntax tree at once can fail before Python 3.11.8:
    recreate.api.syntax says how."""
    found = [
        f"{file.relative_to(house.ROOT)}:{line}"
        for file in house.python_files(house.ROOT)
        if file != house.ROOT / "recreate/api/syntax.py"
        for line in _makes_a_tree(file.read_text("utf-8"))
    ]
    assert found == []


def test_a_tree_is_found_however_it_is_made() -> None:
    makes = [
        "ast.parse('')",
        "a.b(ast.literal_eval)",
        "from ast import parse",
        "import ast as a",
        "compile('', '', 'exec', PyCF_ONLY_AST)",
    ]
    assert [len(_makes_a_tree(text)) for text in makes] == [1] * 5
    assert (
        _makes_a_tree(
            "import ast\nast.unparse(ast.walk(x))\njson.parse('')\nparse('')\ncompile('', '',"
            " 'exec')"
        )
        == []
    )


def _makes_a_tree(source: str) -> list[int]:
    """The lines that name what makes a syntax tree of a text. A sandbox's programs that are strings
    are none."""
    found = []
    for node in ast.walk(ast.parse(source)) if re.search(r"\bast\b|PyCF_ONLY_AST", source) else ():
        match node:
            case (
                ast.Attribute(value=ast.Name(id="ast"), attr="parse" | "literal_eval")
                | ast.ImportFrom(module="ast")
            ):
                found.append(node.lineno)
            case ast.Name(id="PyCF_ONLY_AST") | ast.Attribute(attr="PyCF_ONLY_AST"):
                found.append(node.lineno)
            case ast.Import(names=names) if any(
                name.name == "ast" and name.asname for name in names
            ):
                found.append(node.lineno)
    return found
