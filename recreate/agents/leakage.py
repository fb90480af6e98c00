"""Does a text that an agent is to carry name what belongs to one task? Such a rule cannot help another task, and may
carry its answer; of a held-out task it would spoil the measure.

What all tasks of a domain say is read once (`Scanner`): prompts, facts, and what only the grader knows (gold answers,
hidden tests), of every split. Found in a text are then: ids of the tasks; their test ids, file paths, snake_case,
CamelCase and dotted names; the names of their packages, modules and functions; eight words in a row, or the whole of a
shorter prompt or answer. Let pass are: names of Python and its standard library, what the parent scaffold says already,
names that two packages share, wording that train tasks of several groups have in common, and plain words of English,
unless they are written as code (`word` or word(...)) and name a part of a task.

What is said of a find quotes the text that was scanned, and names its task only when that is a train task: whoever
wrote the text learns that it names held-out material, and nothing else of that.
"""

from __future__ import annotations

import ast
import builtins
import re
import sys
import textwrap
import unicodedata
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
LEAST = 4
"""So many words of a shorter text are a quotation too, or fewer when one of them is telling."""
MAX_REASONS = 10
HELD = "a held-out task"
"""The owner that is told of what no train task says."""

_LONG = re.compile(r"[\w./:-]{400,}")
_TEST = re.compile(r"[\w./-]+\.py::[\w:]+")
_PATH = re.compile(r"(?:[\w.-]+/)*[\w-]+\.py\b|(?:[\w.-]+/)+[\w-]+\.\w{1,5}\b")
_DOTTED = re.compile(r"\b[A-Za-z_]\w+(?:\.[A-Za-z_]\w+)+")
_WORD = re.compile(r"\b[A-Za-z_]\w+")
_SNAKE = re.compile(r"_*[A-Za-z0-9]+_\w+")
_CAMEL = re.compile(r"_*[A-Za-z]*?[a-z0-9][A-Z]\w*|[A-Z]+[a-z0-9]+[A-Z]\w*")
_NAMING = ("package", "module", "function", "qualname", "class", "method", "name", "file", "path", "group")
_FILES = {"setup.py", "conftest.py", "__init__.py", "__main__.py", "main.py", "test.py", "tests.py", "utils.py"}


class Scanner:
    """What the tasks of a domain say. hidden: a task's id -> texts of it that no agent is shown."""

    def __init__(self, tasks: Sequence[Task], hidden: Mapping[str, Sequence[str]] | None = None) -> None:
        hidden = hidden or {}
        self.ids: dict[str, str] = {}
        names, identifiers, runs, short = _Shared(), _Shared(), _Shared(), _Shared()
        told: dict[str, set[str]] = {}
        for task in sorted(tasks, key=lambda t: t.split != "train"):  # what a train task says is that task's
            package, strings = _package(task), list(_strings(task.facts))
            facts, secret = [text for _, text in strings], list(hidden.get(task.id, ()))
            for part in sorted(_ids(task)):
                self.ids.setdefault(part.casefold(), _owner(task))
            prompted = _identifiers(task.prompt)
            unseen = {found for found in _identifiers("\n".join(secret)) if not _usual(found)}
            for found in prompted | unseen | _identifiers("\n".join([task.group, *facts])):
                identifiers.add(found.casefold(), package, task)
            for found in prompted:
                told.setdefault(found.casefold(), set()).add(task.group)
            for text in [package, task.group, *(text for key, text in strings if key in _NAMING)]:
                for found in _parts(text):
                    names.add(found.casefold(), package, task)
            for text in (task.prompt, *facts, *secret):
                for run in _runs(text):
                    runs.add(run, task.group, task)
                for whole in _whole(text):
                    short.add(whole, task.group, task)
        groups = {task.group for task in tasks}
        # what most prompts say is the domain's own wording
        most = len(groups) if len(groups) < 10 else len(groups) // 2
        wording = {found for found, by in told.items() if len(by) >= max(2, most)}
        self.known = wording | identifiers.many
        self.identifiers = {k: v for k, v in identifiers.owners.items() if k not in self.known}
        self.names = {k: v for k, v in names.owners.items() if k not in names.many}
        said = {word for task in tasks if task.split == "train" for word in _words(task.prompt)}
        self.common = runs.many & runs.train | short.many | {_key([word]) for word in said}
        self.quotations = {k: v for k, v in (runs.owners | short.owners).items() if k not in self.common}

    def leaks(self, edits: Sequence[Edit], parent: Scaffold, texts: Sequence[str] = ()) -> list[str]:
        """Why edits of `parent` cannot be used, one sentence each ([] when they can).

        texts: more that belongs to train tasks: what was handed in. Looked at is what the edits make of the parent's
        files, and the paths; never their reasons.
        """
        files, reasons = dict(parent.files), list[str]()
        known = _said("\n".join(parent.files.values()))
        for number, edit in enumerate(edits, 1):
            name = PurePosixPath(edit.path).stem
            path = "" if edit.path in files else f"{name.replace('-', ' ')}\n{name.replace('-', '_')}\n"
            files[edit.path] = _after(files.get(edit.path, ""), edit)
            own = _bound(files[edit.path]) if edit.path.endswith(".py") else set()
            found = self._found(f"{files[edit.path]}\n{path}", known, own, tuple(texts))
            reasons += [f"edit {number} ({edit.path}) {why}" for why in found]
        return list(dict.fromkeys(reasons))[:MAX_REASONS]

    def says(self, text: str) -> list[str]:
        """What is wrong with a text by itself, as `names ...` or `copies ...`; [] for nothing."""
        return list(self._found(text, _said(""), set(), ()))[:MAX_REASONS]

    def _found(self, text: str, parent: _Parent, own: set[str], texts: tuple[str, ...]) -> Iterator[str]:
        text = _visible(text)
        handed_in, copied = _of_texts(texts)
        for found in sorted(_identifiers(text) - own):
            if found.partition(".")[0] in own:
                continue
            folded = found.casefold()
            owner = self.identifiers.get(folded)
            if owner is None and folded in handed_in and folded not in self.known:
                owner = "the tasks"
            if owner is not None and folded not in parent.words and found not in parent.text:
                yield f"names {found!r}, which belongs to {owner}: say what holds for any task"
        for found in sorted(_plain(text, self.names) - own):
            if found.casefold() not in parent.words:
                yield f"names {found!r}, a part of {self.names[found.casefold()]}: say it in general"
        folded_text = text.casefold()
        for part, owner in self.ids.items():
            if part in folded_text and part not in parent.folded and _mentions(folded_text, part):
                whose = f"the task {owner}" if owner != HELD else f"{part!r}, {HELD}"
                yield f"names {whose}: say what holds for any task"
        words = _words(text)
        for length in range(1, RUN + 1):
            for at in range(len(words) - length + 1):
                key = _key(words[at : at + length])
                if key in parent.runs or key in self.common:
                    continue
                if key in self.quotations or key in copied:
                    quoted = " ".join(words[at : at + length])
                    owner = self.quotations.get(key, "")
                    whose = HELD if owner == HELD else "a task"
                    yield f"copies the text of {whose}: {quoted!r}: use words of your own"
                    return


class _Shared:
    """Things that tasks have: whose each is, which several have (`many`), and which some train task has."""

    def __init__(self) -> None:
        self.owners: dict[Any, str] = {}
        self.many: set[Any] = set()
        self.train: set[Any] = set()
        self._first: dict[Any, str] = {}

    def add(self, thing: Any, by: str, task: Task) -> None:
        self.owners.setdefault(thing, _owner(task))
        if self._first.setdefault(thing, by) != by:
            self.many.add(thing)
        if task.split == "train":
            self.train.add(thing)


class _Parent:
    """What the agent says already."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.folded = text.casefold()
        self.words = {word.casefold() for word in _WORD.findall(text)}
        words = _words(text)
        self.runs = {_key(words[at : at + n]) for n in range(1, RUN + 1) for at in range(len(words) - n + 1)}


@lru_cache(maxsize=4)
def _said(text: str) -> _Parent:
    return _Parent(text)


def _owner(task: Task) -> str:
    return task.id if task.split == "train" else HELD


def _after(text: str, edit: Edit) -> str:
    """What an edit makes of a file, whether or not it may be made."""
    return text.replace(edit.old, edit.new, 1) if edit.old in text and edit.old else text + edit.new


def _ids(task: Task) -> set[str]:
    """What stands for the task as a whole; a plain word does not."""
    parts = {task.id, task.group, task.id.rpartition(":")[2]}
    return {part for part in parts if len(part) > 4 and re.search(r"[^A-Za-z]", part)}


def _mentions(text: str, part: str) -> bool:
    return re.search(rf"(?<![\w.-]){re.escape(part)}(?![\w-])", text) is not None


@lru_cache(maxsize=8)
def _of_texts(texts: tuple[str, ...]) -> tuple[frozenset[str], frozenset[int]]:
    """(identifiers, quotations) of more texts: an optimizer asks about many edits and the same attempts."""
    identifiers = {found.casefold() for text in texts for found in _identifiers(text)}
    return frozenset(identifiers), frozenset(run for text in texts for run in _runs(text))


# --------------------------------------------------------------------------------------- what is a secret


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
        first, second = dotted.split(".")[:2]
        if first in sys.stdlib_module_names or first in ("self", "cls") or dotted.endswith(".py"):
            continue
        if not hasattr(getattr(builtins, first, None), second):  # dict.fromkeys is Python's, dict.of_this_task is not
            found.add(dotted)
    for word in _WORD.findall(text):
        if (_SNAKE.fullmatch(word) or _CAMEL.fullmatch(word)) and not _pythons(word):
            found.add(word)
    return found


def _pieces(run: re.Match[str]) -> str:
    """A run without a space in overlapping pieces: a name of up to 200 characters is whole in one of them."""
    return " ".join(run[0][at : at + 400] for at in range(0, len(run[0]), 200))


def _usual(name: str) -> bool:
    """A name that any code may have, like error_message: it is in many answers and gives none away."""
    parts = name.split("_")
    return len(parts) <= 2 and all(part in _ordinary() for part in parts)


def _parts(text: str) -> set[str]:
    """The single words in the name of a package, module or function: pkg/engine/lexer.py -> pkg, engine, lexer."""
    words = set(re.findall(r"[A-Za-z]\w+", re.sub(r"\.py\b", "", text)))
    return {word for word in words if len(word) > 2 and not _SNAKE.fullmatch(word) and word not in _built_in()}


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


@cache
def _built_in() -> frozenset[str]:
    names = {name for part in _BUILT_IN for name in dir(part)}
    return frozenset(names | sys.stdlib_module_names | {"test", "tests", "src", "self"})


_MODULES = (
    "argparse", "ast", "builtins", "collections", "contextlib", "copy", "csv", "dataclasses", "datetime", "difflib",
    "enum", "functools", "hashlib", "inspect", "io", "itertools", "json", "logging", "math", "operator", "os",
    "os.path", "pathlib", "random", "re", "shlex", "shutil", "string", "subprocess", "sys", "tempfile", "textwrap",
    "time", "tokenize", "traceback", "types", "typing", "unittest",
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


def _visible(text: str) -> str:
    """As a reader sees it: what looks the same is the same, and what nobody sees is not there."""
    if text.isascii():
        return text
    return "".join(c for c in unicodedata.normalize("NFKC", text) if unicodedata.category(c) != "Cf")


def _words(text: str) -> list[str]:
    return [word for found in re.findall(r"[\w']+", text.casefold()) if (word := found.strip("_'"))]


def _key(words: Sequence[str]) -> int:
    """A run of words in eight bytes: a domain has a million of them."""
    return hash(tuple(words))


def _runs(text: str) -> set[int]:
    words = _words(_visible(text))
    return {_key(words[at : at + RUN]) for at in range(len(words) - RUN + 1)}


def _whole(text: str) -> list[int]:
    """A text that is shorter than a run, when it tells anything."""
    words = _words(_visible(text)) if len(text) < 50 * RUN else []
    told = len(words) >= LEAST or any(map(_telling, words))
    return [_key(words)] if words and len(words) < RUN and told else []


def _telling(word: str) -> bool:
    """Whether a word alone gives an answer away: no plain one, no name of Python's, no small number."""
    if word.isdigit():
        return len(word) >= 4
    return len(word) >= 5 and word not in _ordinary() and not _pythons(word) and not _SNAKE.fullmatch(word)
