"""Python that somebody wrote, read and not run: nothing here says whether it is good, or warns of
it."""

from __future__ import annotations

import ast
import threading
import warnings
from typing import Any

_ONE = threading.Lock()
"""Before Python 3.11.8 and 3.12.2 two threads that make a syntax tree at once can end in a
SystemError or a RecursionError (gh-106905). Compiling to code, `ast.dump` and `ast.unparse` make
none. Nobody's threads may silence warnings side by side either."""


def parse_python(text: str | bytes, file: str = "<unknown>") -> ast.Module:
    """Return a module's tree. Raises SyntaxError, ValueError, RecursionError or MemoryError for
    what is none."""
    with _ONE, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return ast.parse(text, file)


def parse_expression(text: str) -> ast.expr:
    """Return an expression's tree; raises as parse_python does."""
    with _ONE, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return ast.parse(text.lstrip(" \t"), mode="eval").body


def literal(written: str | ast.expr) -> Any:
    """Return the value of a literal; raises as parse_python does, and ValueError for another
    expression."""
    return ast.literal_eval(parse_expression(written) if isinstance(written, str) else written)
