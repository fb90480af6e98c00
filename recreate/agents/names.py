"""Names and words that are nobody's: Python's, its library's, and plain English. They are read from two files beside
this one, so that they are the same whatever Python looks, and however it was built.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path

HERE = Path(__file__).parent
_OF_TESTS = (
    "pytest test tests src python self cls cache capfd capfdbinary caplog capsys capsysbinary doctest_namespace"
    " importorskip monkeypatch parametrize pytestconfig record_property recwarn testdir pytester tmp_path"
    " tmp_path_factory tmpdir tmpdir_factory usefixtures xfail skipif"
)
EVERYWHERE = frozenset(_OF_TESTS.split())
"""What any project and its tests have: pytest's marks and fixtures too."""


@cache
def ordinary() -> frozenset[str]:
    """Words of English and of programming, and names that packages of any field have."""
    lines = (HERE / "plain_words.txt").read_text("utf-8").splitlines()
    return frozenset(word for line in lines if not line.startswith("#") for word in line.split())


@cache
def modules() -> frozenset[str]:
    """The library's top modules."""
    return _library()[0]


def a_class(name: str) -> bool:
    """A class of the library, as `timezone` in timezone.utc."""
    return name.casefold() in _library()[1]


def pythons(word: str) -> bool:
    """A name of Python or its library, or one that every test suite has."""
    dunder = word.startswith("__") and word.endswith("__")
    return dunder or (folded := word.casefold()) in _library()[2] or folded in EVERYWHERE


@cache
def _library() -> tuple[frozenset[str], ...]:
    """Modules, classes, all names."""
    _, *parts = (HERE / "python_names.txt").read_text("utf-8").split("\n\n")
    return tuple(frozenset(part.split()) for part in parts)
