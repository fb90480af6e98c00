"""The grader's version: a digest of everything that decides a grade of swe."""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path
from typing import Any

from recreate.api.syntax import parse_python
from recreate.api.types import digest
from recreate.domains.python_env import PINS

_DECIDES = (
    "domain",
    "case",
    "copies",
    "copy_finder",
    "hunks",
    "exam",
    "withheld",
    "observer",
    "pytest_runner",
    "test_run",
    "sources",
    "patch",
    "mutation",
    "hard_mutation",
    "swebench",
    "test_log",
    "suite_runner",
)

_BESIDE = frozenset({"compared"})
"""Functions of theirs that no grade depends on."""


@cache
def version() -> str:
    """What the modules that decide do, and with which pytest: layout, comments and docstrings have
    no part in it."""
    here = Path(__file__).parent
    programs = {
        name: meaning((here / f"{name}.py").read_text(encoding="utf-8")) for name in _DECIDES
    }
    return f"swe-{digest([programs, PINS], 12)}"


def meaning(text: str) -> str:
    """A digest of what a module says to Python; the same in each version of Python that reads
    it."""
    return digest(_tree(parse_python(text)))


def _tree(node: Any) -> Any:
    if isinstance(node, list):
        return [_tree(n) for n in node if not (_docstring(n) or _is_helper(n))]
    if not isinstance(node, ast.AST):
        return repr(node)
    fields = (
        (name, value)
        for name, value in ast.iter_fields(node)
        if name not in ("ctx", "kind", "type_comment")
    )
    return [
        type(node).__name__,
        {name: _tree(value) for name, value in fields if value not in (None, [])},
    ]


def _docstring(node: object) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)


def _is_helper(node: object) -> bool:
    return isinstance(node, ast.FunctionDef) and node.name in _BESIDE
