"""The house stands as it was decided: fourteen rooms, nine layers, no circles, no class name
twice."""

from __future__ import annotations

import ast
import re
import tomllib
from pathlib import Path
from typing import Any

from tests import house

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
    rooms = house.fold(house.imports(house.ROOT), house.room)
    assert [(a, b) for a in sorted(rooms) for b in sorted(rooms[a]) if depth[b] <= depth[a]] == []


def test_neither_modules_nor_plug_ins_import_each_other_in_a_circle() -> None:
    graph = house.imports(house.ROOT)
    assert house.find_circle(graph) == []
    assert house.find_circle(house.fold(graph, house.plugin)) == []


def test_a_class_name_stands_once() -> None:
    assert house.repeated_classes(house.ROOT) == {}


def test_no_room_grows() -> None:
    sentences = house.compare_numbers(house.read_numbers(), house.measure_rooms(house.ROOT))
    assert not sentences, "\n".join(sentences)


def test_what_grew_is_named_with_the_number_to_raise() -> None:
    allowed = {"api": {"nodes": 100.0, "bare": 2.0}, "plugins/gone": {"nodes": 9.0}}
    said = house.compare_numbers(allowed, {"api": {"nodes": 101, "bare": 2}})
    assert len(said) == 1
    assert 'raise `nodes` of "api" in tests/house.toml to 101 in a commit of its own' in said[0]
    assert house.compare_numbers(allowed, {"api": {"nodes": 99, "bare": 2}}) == []
    for numbers in ({"nodes": 90, "bare": 2}, {"nodes": 100, "bare": 1}):
        (sentence,) = house.compare_numbers(allowed, {"api": numbers})
        assert sentence.endswith("`python -m tests.house --write` writes it down")
    assert "is new" in house.compare_numbers(allowed, {"cli": {"nodes": 1}})[0]


def test_writing_lowers_numbers_and_raises_none(tmp_path: Path) -> None:
    allowed = {"api": {"nodes": 100.0, "bare": 2.0}, "plugins/gone": {"nodes": 9.0}}
    counted = {"api": {"nodes": 120.0, "bare": 1.0}, "plugins/new": {"nodes": 5.0}}
    lowered = house.lower_numbers(allowed, counted)
    assert lowered == {"api": {"nodes": 100.0, "bare": 1.0}, "plugins/new": {"nodes": 5.0}}
    house.write_numbers(lowered, tmp_path / "house.toml")
    assert house.read_numbers(tmp_path / "house.toml") == lowered


def test_the_counting_counts(tmp_path: Path) -> None:
    graph = {"a": frozenset("b"), "b": frozenset("c"), "c": frozenset("b")}
    assert sorted(set(house.find_circle(graph))) == ["b", "c"]
    assert house.find_circle({"a": frozenset("b"), "b": frozenset()}) == []
    modules = {"p.x.one": frozenset({"p.y.two", "p.x.three", "p"}), "p.y.two": frozenset({"p.y"})}
    assert house.fold(modules, house.room) == {"x": {"y"}, "y": frozenset()}
    folder = tmp_path / "recreate" / "api"
    folder.mkdir(parents=True)
    (folder / "one.py").write_text(
        '"""Docstring."""\n# a comment\n\ndef told(x):\n    import recreate.plugins.swe\n'
        '    return 1 if x else "recreate.plugins.rl.tune"\n'
    )
    numbers = house.measure_rooms(tmp_path)["api"]
    assert [numbers[key] for key in ("nodes", "branches", "bare", "outward")] == [11, 1, 1, 2]
    assert numbers["nodes_a_line"] == 3.7


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
