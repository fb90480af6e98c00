"""Python is read by any number of threads at once, and in silence."""

from __future__ import annotations

import ast
import gc
import time
import warnings
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from recreate.api.syntax import literal, parse_expression, parse_python


@pytest.fixture
def interrupted() -> Iterator[None]:
    """Threads change in the middle of whatever makes objects, as they do where a finalizer runs."""

    def pause(*_: Any) -> None:
        time.sleep(0)

    threshold = gc.get_threshold()
    gc.callbacks.append(pause)
    gc.set_threshold(50)
    yield
    gc.set_threshold(*threshold)
    gc.callbacks.remove(pause)


@pytest.mark.usefixtures("interrupted")
def test_threads_parse_at_once() -> None:
    module = "\n".join(f"def f{n}(a, b=[{n}]):\n    return [a + {n}, (b, a)]" for n in range(20))
    value = [(n, [n, {"n": n}]) for n in range(60)]

    def read(depth: int) -> None:
        if depth:
            return read(depth - 1)
        for _ in range(10):
            assert len(parse_python(module).body) == 20
            assert literal(repr(value)) == value

    with ThreadPoolExecutor(8) as threads:
        list(threads.map(read, range(0, 40, 5)))


def test_what_a_stranger_wrote_warns_nobody() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert ast.unparse(parse_python(r"x = '\d'")) == r"x = '\\d'"
        assert literal(r"'\d'") == "\\d"


def test_what_is_no_python_is_named_by_its_file() -> None:
    with pytest.raises(SyntaxError) as raised:
        parse_python("x = 1\ny = (", "tools/a.py")
    assert (raised.value.filename, raised.value.lineno) == ("tools/a.py", 2)
    assert ast.unparse(parse_expression(" f(x=1)")) == "f(x=1)"
    with pytest.raises(ValueError, match="malformed"):
        literal("f()")
