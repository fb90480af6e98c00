"""Our own source as a module that imports nothing of recreate: what an exported agent runs is what
runs here.

A module is taken with all that it names, from whatever module of ours that comes; imports of others
stay. Records that would bring pydantic along are replaced by plain classes with the fields that are
used (STAND_INS).
"""

from __future__ import annotations

import ast
import importlib.util
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from recreate.api.syntax import parse_python

STAND_INS = {
    "BadInput": (
        '''class BadInput(Exception):
    """What is wrong; `code` says of which kind."""

    def __init__(self, message: str, *, fix: str = "", code: str = "") -> None:
        super().__init__(message)
        self.message, self.fix, self.code = message, fix, code
'''
    ),
    "Message": "Message = dict\n",
    "Output": (
        '''@dataclass(frozen=True)
class Output:
    """What a command printed, its status (124: it was stopped after its time) and how long it \
ran."""

    text: str
    status: int
    seconds: float = 0.0
    timed_out: bool = False
    cut: int = 0
'''
    ),
    "Reply": (
        '''@dataclass(frozen=True)
class Reply:
    """A model's answer; finish: stop, or length where it was cut off at its most tokens."""

    text: str
    finish: str = "stop"
    tokens_in: int = 0
    tokens_out: int = 0
    usd: float = 0.0
    tool_calls: tuple = ()
'''
    ),
}


def standalone_source(module: str) -> str:
    """The source of a module of ours and of all of ours that it names, as one module."""
    collected = _Collected()
    for node in _module(module).tree.body:
        for name in _defined(node):
            collected.need(module, name)
    head = ast.get_docstring(_module(module).tree, clean=False) or ""
    imports = "".join(
        f"{line}\n"
        for line in sorted(collected.imports, key=lambda line: (line.startswith("from"), line))
    )
    return f'"""{head}"""\n\nfrom __future__ import annotations\n\n{imports}\n\n' + "\n\n".join(
        collected.pieces.values()
    )


def source_of(module: str) -> str:
    """The text of a module of ours, which is not imported."""
    spec = importlib.util.find_spec(module)
    assert spec is not None, module
    assert spec.origin is not None, module
    return Path(spec.origin).read_text("utf-8")


class _SourceModule:
    """A module's source: what each name at its top is."""

    def __init__(self, name: str) -> None:
        self.text = source_of(name)
        self.tree = parse_python(self.text)
        self.defined = {name: node for node in self.tree.body for name in _defined(node)}
        self.imported: dict[str, tuple[str, str]] = {}  # name -> (module, the name there or '')
        for node in self.tree.body:
            for alias in node.names if isinstance(node, ast.Import | ast.ImportFrom) else ():
                at = (
                    (node.module or "", alias.name)
                    if isinstance(node, ast.ImportFrom)
                    else (alias.name, "")
                )
                self.imported[alias.asname or alias.name] = at

    def source(self, node: ast.stmt) -> str:
        """A definition as it stands there, decorators included."""
        lines = self.text.splitlines(keepends=True)
        first = min([node.lineno, *(d.lineno for d in getattr(node, "decorator_list", ()))])
        return "".join(lines[first - 1 : node.end_lineno]).rstrip("\n") + "\n"


_module = cache(_SourceModule)


class _Collected:
    """Definitions in an order in which each can be run, and imports."""

    def __init__(self) -> None:
        self.pieces: dict[str, str] = {}
        self.imports: set[str] = set()
        self._from: dict[str, str] = {}  # name -> the module that it is of

    def need(self, module: str, name: str) -> None:
        source = _module(module)
        if name in source.defined:
            if (other := self._from.setdefault(name, module)) != module:
                raise AssertionError(f"{name} is of {other} and of {module}")
            if name in self.pieces:
                return
            self.pieces[name] = ""  # what names itself
            node = source.defined[name]
            for used in _read_names(node):
                self.need(module, used)
            for used in _annotations(node):
                ours = source.imported.get(used, ("recreate",))[0].partition(".")[0] == "recreate"
                if not ours or (used in source.imported and used in STAND_INS):
                    self.need(module, used)
            del self.pieces[name]
            text = source.source(node)
            self.pieces[name] = "" if text in self.pieces.values() else text  # a, b = ...
        elif name in source.imported:
            where, there = source.imported[name]
            if where.partition(".")[0] != "recreate":
                line = f"from {where} import {there}" if there else f"import {where}"
                self.imports.add(line + (f" as {name}" if name != (there or where) else ""))
            elif name in STAND_INS:
                self.pieces.setdefault(name, STAND_INS[name])
                if "@dataclass" in STAND_INS[name]:
                    self.imports.add("from dataclasses import dataclass")
            else:
                assert there == name, f"{module} imports {there} as {name}"
                self.need(where, name)


def _defined(node: ast.stmt) -> list[str]:
    """The names that a statement at the top of a module makes."""
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        return [node.name]
    targets = (
        node.targets
        if isinstance(node, ast.Assign)
        else [node.target]
        if isinstance(node, ast.AnnAssign)
        else []
    )
    return [
        name.id for target in targets for name in ast.walk(target) if isinstance(name, ast.Name)
    ]


def _read_names(node: ast.AST) -> list[str]:
    """The names that a definition reads, annotations left out."""
    return list(dict.fromkeys(n.id for n in _walk(node) if isinstance(n, ast.Name)))


def _walk(node: ast.AST) -> Iterator[ast.AST]:
    yield node
    for field, value in ast.iter_fields(node):
        if field in ("annotation", "returns"):
            continue
        for child in value if isinstance(value, list) else [value]:
            if isinstance(child, ast.AST):
                yield from _walk(child)


def _annotations(node: ast.AST) -> list[str]:
    """The names in its annotations."""
    found = [getattr(n, field, None) for n in ast.walk(node) for field in ("annotation", "returns")]
    return list(
        dict.fromkeys(
            n.id for a in found if a is not None for n in ast.walk(a) if isinstance(n, ast.Name)
        )
    )
