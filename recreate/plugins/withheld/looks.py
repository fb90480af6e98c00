"""What the text of a test says: at which arguments it looks for what a call made of them, and which
names it binds."""

from __future__ import annotations

import ast
import symtable
from collections.abc import Iterator, Mapping
from typing import Any

from recreate.api.syntax import parse_python

ANY = "*"
"""In place of an argument's place or name: all of them."""
_SAME = ("len", "list", "tuple", "dict", "set", "str", "repr", "sum", "bytes")
"""Calls of these look at their argument and at nothing else."""


def find_names(text: str) -> list[str]:
    """Return the names that a file binds at its top; none of a text that is no Python."""
    try:
        found = symtable.symtable(text, "test", "exec").get_symbols()
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return []
    return sorted(each.get_name() for each in found if each.is_assigned() or each.is_imported())


def find_looks(text: str) -> dict[int, list[Any]]:
    """Return line -> the arguments (places, names, ANY) of its calls that a test looks at for what
    became of them; none of a text that is no Python.

    A call whose value nobody takes is made for its arguments' sake. One whose value counts may
    change an argument that is compared later on, by itself and with what comes of neither the
    argument nor the value: `k = f(x); assert x[:k] == [1, 2]`, and not `assert f(x) == sorted(x)`,
    which would hold of nothing, were it emptied.
    """
    found: dict[int, set[Any]] = {}
    try:
        tree = parse_python(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return {}
    for scope in ast.walk(tree):
        if not isinstance(scope, ast.FunctionDef | ast.Module):
            continue
        nodes = list(_walk_scope(scope))
        made_for = {
            id(n.value) for n in nodes if isinstance(n, ast.Expr) and _is_lone_call(n.value)
        }
        for node in nodes:
            if isinstance(node, ast.Call):
                places = [ANY] if id(node) in made_for else _find_places(nodes, node)
                for line in range(node.lineno, (node.end_lineno or node.lineno) + 1):
                    found.setdefault(line, set()).update(places)
    return {line: sorted(places, key=str) for line, places in found.items() if places}


def _walk_scope(scope: ast.AST) -> Iterator[ast.AST]:
    """Yield the nodes of a scope, those of functions in it left out."""
    for node in ast.iter_child_nodes(scope):
        if not isinstance(node, ast.FunctionDef):
            yield node
            yield from _walk_scope(node)


def _is_lone_call(node: ast.AST) -> bool:
    """Whether a value is a call, and no argument of it is made by another."""
    return isinstance(node, ast.Call) and not any(
        isinstance(inner, ast.Call)
        for each in _pair_arguments(node).values()
        for inner in ast.walk(each)
    )


def _pair_arguments(node: ast.Call) -> Mapping[Any, ast.expr]:
    """Return place or name -> what is given there."""
    return {**dict(enumerate(node.args)), **{each.arg: each.value for each in node.keywords}}


def _find_places(nodes: list[ast.AST], call: ast.Call) -> list[Any]:
    """Return where a call is given what is compared later on."""
    given = {place: _spell(each) for place, each in _pair_arguments(call).items()}
    return [place for place, key in given.items() if key and _is_compared(nodes, key, call)]


def _is_compared(nodes: list[ast.AST], key: str, call: ast.Call) -> bool:
    """Whether an argument is compared after a call with what comes of neither."""
    end = call.end_lineno or 0
    of_call = {key}
    bindings = [node for node in nodes if isinstance(node, ast.Assign)]
    for node in sorted(bindings, key=lambda n: (n.lineno, n.col_offset)):
        later = node.lineno > end and _find_sources(node.value) & of_call
        if later or any(inner is call for inner in ast.walk(node.value)):
            of_call |= {name for each in node.targets for name in _find_sources(each)}
    return any(
        _spell_root(side) == key and not _find_sources(other) & of_call
        for node in nodes
        if getattr(node, "lineno", 0) > end
        for side, other in _pair_sides(node)
    )


def _pair_sides(node: ast.AST) -> list[tuple[ast.AST, ast.AST]]:
    """Return what a comparison or an assertion of unittest's puts side by side, either way
    round."""
    pair: list[ast.AST] = []
    if isinstance(node, ast.Compare):
        pair = [node.left, *node.comparators]
    elif isinstance(node, ast.Call) and getattr(node.func, "attr", "").startswith("assert"):
        pair = list(node.args[:2])
    return [(pair[0], pair[1]), (pair[1], pair[0])] if len(pair) == 2 else []


def _spell(node: ast.AST) -> str:
    """Return `x` or `self.x` as text, '' for what is neither."""
    inner = node
    while isinstance(inner, ast.Attribute):
        inner = inner.value
    return ast.unparse(node) if isinstance(inner, ast.Name) else ""


def _spell_root(node: ast.AST) -> str:
    """Return what is looked at: `x` of x, x[0], x[:k], len(x)."""
    while not (spelled := _spell(node)):
        if isinstance(node, ast.Subscript):
            node = node.value
        elif isinstance(node, ast.Call) and len(node.args) == 1 and _spell(node.func) in _SAME:
            node = node.args[0]
        else:
            break
    return spelled


def _find_sources(node: ast.AST) -> set[str]:
    """Return the names that a value is made of, those of its indices left out."""
    inner = [node.value] if isinstance(node, ast.Subscript) else ast.iter_child_nodes(node)
    found = {name for each in inner for name in _find_sources(each)}
    return found | {_spell(node)} - {""}
