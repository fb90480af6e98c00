"""Does a proposal name what belongs to one task? Such a rule cannot help another task, and may carry its answer.

Found are: ids of the tasks; their test ids, file paths, snake_case, CamelCase and dotted names; the names of their
packages, modules and functions; and eight words in a row from their prompts or from hidden text. Let pass are:
names of Python and its standard library, what the parent scaffold already says, what tasks of two packages or the
prompts of all tasks share,
and plain words of English, unless they are written as code (`word` or word(...)) and name a part of the task.
"""

from __future__ import annotations

import ast
import builtins
import re
import sys
import textwrap
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache, lru_cache
from importlib import import_module
from pathlib import Path, PurePosixPath
from typing import Any

from recreate.agents.scaffold import Scaffold
from recreate.api.types import Edit, Task

RUN = 8
"""Words in a row that make a quotation."""
MAX_REASONS = 10

_LONG = re.compile(r"[\w./:-]{400,}")
_TEST = re.compile(r"[\w./-]+\.py::[\w:]+")
_PATH = re.compile(r"(?:[\w.-]+/)*[\w-]+\.py\b|(?:[\w.-]+/)+[\w-]+\.\w{1,5}\b")
_DOTTED = re.compile(r"\b[A-Za-z_]\w+(?:\.[A-Za-z_]\w+)+")
_WORD = re.compile(r"\b[A-Za-z_]\w+")
_SNAKE = re.compile(r"_*[A-Za-z0-9]+_\w+")
_CAMEL = re.compile(r"_*[A-Za-z]*?[a-z0-9][A-Z]\w*|[A-Z]+[a-z0-9]+[A-Z]\w*")
_NAMING = ("package", "module", "function", "qualname", "class", "method", "name", "file", "path", "group")
_FILES = {"setup.py", "conftest.py", "__init__.py", "__main__.py", "main.py", "test.py", "tests.py", "utils.py"}


def leaks(edits: Sequence[Edit], parent: Scaffold, tasks: Sequence[Task], texts: Sequence[str] = ()) -> list[str]:
    """Why the edits cannot be used, one sentence each ([] when they can).

    texts: more that belongs to these tasks: gold patches, hidden tests, traces. Only what an edit adds is looked
    at: its path and `new`, never its reason.
    """
    parent_text = "\n".join(parent.files.values())
    parent_words = {word.casefold() for word in _WORD.findall(parent_text)}
    secrets, names, quotations = _known(tuple(task.model_dump_json() for task in tasks), tuple(texts))
    quotations = quotations - _runs(parent_text)
    reasons: list[str] = []
    for number, edit in enumerate(edits, 1):
        where = f"edit {number} ({edit.path})"
        added = _added(edit)
        own = _bound(edit.new) if edit.path.endswith(".py") else set()
        for found in _identifiers(added) - own:
            owner = secrets.get(found.casefold())
            if owner is not None and found.casefold() not in parent_words and found not in parent_text:
                reasons.append(f"{where} names {found!r}, which belongs to {owner}: say what holds for any task")
        for found in _plain(added, names) - own:
            if found.casefold() not in parent_words:
                reasons.append(f"{where} names {found!r}, a part of {names[found.casefold()]}: say it in general")
        for task in tasks:
            if any(_mentions(added, part) and part not in parent_text for part in _ids(task)):
                reasons.append(f"{where} names the task {task.id}: say what holds for any task")
        if copied := sorted(_runs(added) & quotations):
            reasons.append(f"{where} copies the text of a task: {copied[0]!r}: use words of your own")
    return list(dict.fromkeys(reasons))[:MAX_REASONS]


def _added(edit: Edit) -> str:
    name = PurePosixPath(edit.path).stem
    return f"{edit.new}\n{name.replace('-', ' ')}\n{name.replace('-', '_')}\n"


def _ids(task: Task) -> set[str]:
    """What stands for the task as a whole; a plain word does not."""
    parts = {task.id, task.group, task.id.rpartition(":")[2]}
    return {part for part in parts if len(part) > 4 and re.search(r"[^A-Za-z]", part)}


def _mentions(text: str, part: str) -> bool:
    return re.search(rf"(?<![\w.-]){re.escape(part)}(?![\w-])", text) is not None


# --------------------------------------------------------------------------------------- what is a secret


@lru_cache(maxsize=8)
def _known(tasks: tuple[str, ...], texts: tuple[str, ...]) -> tuple[dict[str, str], dict[str, str], frozenset[str]]:
    """`_secrets` and `_quotations` of tasks as JSON: an optimizer asks about many edits and the same tasks."""
    read = [Task.model_validate_json(task) for task in tasks]
    return (*_secrets(read, texts), _quotations(read, texts))


def _secrets(tasks: Sequence[Task], texts: Sequence[str]) -> tuple[dict[str, str], dict[str, str]]:
    """(identifiers, names of packages, modules and functions), each casefolded -> whose it is."""
    identifiers: dict[str, dict[str, str]] = {}
    names: dict[str, dict[str, str]] = {}
    for task in tasks:
        package = _package(task)
        strings = list(_strings(task.facts))
        for found in _identifiers("\n".join([task.prompt, task.group, *(text for _, text in strings)])):
            identifiers.setdefault(found.casefold(), {})[package] = task.id
        named = [package, task.group, *(text for key, text in strings if key in _NAMING)]
        for text in named:
            for found in _parts(text):
                names.setdefault(found.casefold(), {})[package] = task.id
    for text in texts:
        for found in _identifiers(text):
            identifiers.setdefault(found.casefold(), {"": "the tasks"})
    if len({task.group for task in tasks}) > 1:  # what every prompt says is the domain's own wording
        for found in set.intersection(*(_identifiers(task.prompt) for task in tasks)):
            identifiers.pop(found.casefold(), None)
    shared = 2  # what two packages share tells of neither
    return (
        {found: next(iter(by.values())) for found, by in identifiers.items() if len(by) < shared},
        {found: next(iter(by.values())) for found, by in names.items() if len(by) < shared},
    )


def _package(task: Task) -> str:
    """The source in domain:source:id, without a version: `sqlparse-0.4.3` is sqlparse."""
    parts = task.id.split(":")
    return re.sub(r"[-=@]+v?\d.*$", "", parts[1] if len(parts) > 2 else parts[0])


def _strings(value: Any, key: str = "") -> Iterator[tuple[str, str]]:
    """(the key it stands under, text) of all strings in a task's facts, but for digests."""
    if isinstance(value, str):
        if not re.fullmatch(r"[0-9a-f]{8,}", value):
            yield key, value
    elif isinstance(value, Mapping):
        for inner, part in value.items():
            yield from _strings(part, str(inner))
            if not str(inner).isidentifier():
                yield key, str(inner)
    elif isinstance(value, Iterable):
        for part in value:
            yield from _strings(part, key)


def _identifiers(text: str) -> set[str]:
    """All that reads as a name of something in code, but for Python's own."""
    text = _LONG.sub(_pieces, text)  # the patterns below look at a run as often as it is long
    found = set(_TEST.findall(text))
    for path in _PATH.findall(text):
        if PurePosixPath(path).name not in _FILES:
            found |= {path, PurePosixPath(path).name}
    for dotted in _DOTTED.findall(text):
        first = dotted.partition(".")[0]
        if first not in sys.stdlib_module_names and first not in ("self", "cls") and not dotted.endswith(".py"):
            found.add(dotted)
    for word in _WORD.findall(text):
        if (_SNAKE.fullmatch(word) or _CAMEL.fullmatch(word)) and not _pythons(word):
            found.add(word)
    return found


def _pieces(run: re.Match[str]) -> str:
    """A run without a space in overlapping pieces: a name of up to 200 characters is whole in one of them."""
    return " ".join(run[0][at : at + 400] for at in range(0, len(run[0]), 200))


def _parts(text: str) -> set[str]:
    """The single words in the name of a package, module or function: pkg/engine/lexer.py -> pkg, engine, lexer."""
    words = set(re.findall(r"[A-Za-z]\w+", re.sub(r"\.py\b", "", text)))
    built_in = {name for part in _BUILT_IN for name in dir(part)} | {"test", "tests", "src", "self"}
    return {word for word in words if len(word) > 2 and not _SNAKE.fullmatch(word) and word not in built_in}


def _plain(text: str, names: Mapping[str, str]) -> set[str]:
    """Names of parts of a task in `text`: ordinary words only where they are written as code."""
    code = set()
    for span in re.findall(r"`([^`\n]+)`", text):
        code |= set(re.findall(r"(?<![\w.])[A-Za-z]\w*", span))
    code |= set(re.findall(r"(?<![\w.])([A-Za-z]\w*)\(", text))
    code |= set(re.findall(r"\b(?:import|from)\s+([A-Za-z]\w*)", text))
    return {
        word
        for word in _WORD.findall(text)
        if word.casefold() in names and (word in code if word.casefold() in _ordinary() else len(word) > 3)
    }


def _bound(code: str) -> set[str]:
    """Names that a piece of Python defines for itself."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            tree = ast.parse(textwrap.dedent(code))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return set(re.findall(r"\b(?:def|class|for|as)\s+(\w+)", code)) | set(re.findall(r"(\w+)\s*=(?!=)", code))
    found: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            found.add(node.name)
        elif isinstance(node, ast.arg):
            found.add(node.arg)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            found.add(node.id)
    return found


# --------------------------------------------------------------------------------------- what is common


@cache
def _ordinary() -> frozenset[str]:
    """Words of English and of programming: the same on every machine (plain_words.txt says where they are from)."""
    lines = (Path(__file__).parent / "plain_words.txt").read_text("utf-8").splitlines()
    return frozenset(word for line in lines if not line.startswith("#") for word in line.split())


_BUILT_IN = (builtins, str, bytes, list, dict, set, int, float)


_MODULES = (
    "argparse", "ast", "builtins", "collections", "datetime", "functools", "inspect", "itertools", "json", "os",
    "os.path", "pathlib", "re", "shutil", "string", "subprocess", "sys", "tempfile", "textwrap", "traceback", "typing",
)  # fmt: skip
_CLASSES = ("argparse:ArgumentParser", "unittest:TestCase", "pathlib:Path", "builtins:BaseException", "ast:FunctionDef")


@cache
def _library() -> frozenset[str]:
    """Names of the standard library's modules, and of what the common ones of them hold."""
    parts: list[Any] = [*map(import_module, _MODULES), *_BUILT_IN]
    parts += [vars(import_module(module))[name] for module, name in (each.split(":") for each in _CLASSES)]
    names = {name for part in parts for name in dir(part)}
    return frozenset(name.casefold() for name in names | set(sys.stdlib_module_names))


def _pythons(word: str) -> bool:
    """A name of Python or its library, or one that every test suite has."""
    dunder = word.startswith("__") and word.endswith("__")
    return dunder or word.casefold() in _library() or word.casefold() in ("pytest", "test", "tests", "src", "python")


# ------------------------------------------------------------------------------------------- quotations


def _runs(text: str) -> set[str]:
    words = re.findall(r"[\w']+", text.casefold())
    return {" ".join(words[at : at + RUN]) for at in range(len(words) - RUN + 1)}


def _quotations(tasks: Sequence[Task], texts: Sequence[str]) -> frozenset[str]:
    """Runs of words of one task; what the prompts of several groups share is the domain's own wording."""
    groups: dict[str, set[str]] = {}
    for task in tasks:
        for run in _runs(task.prompt):
            groups.setdefault(run, set()).add(task.group)
    found = {run for run, by in groups.items() if len(by) == 1}
    for task in tasks:
        for _, text in _strings(task.facts):
            found |= _runs(text)
    for text in texts:
        found |= _runs(text)
    return frozenset(found)
