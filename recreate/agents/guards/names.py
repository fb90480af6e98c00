"""What is a name or a quotation, and what is nobody's.

Three lists of names lie beside this file, so that they are the same whatever Python looks, however
it was built, and whether or not packages are installed.
"""

from __future__ import annotations

import ast
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache, lru_cache
from hashlib import blake2b
from itertools import accumulate, chain, pairwise
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple

from packaging.utils import canonicalize_name

from recreate.agents.guards.readings import as_seen, parse_code
from recreate.api.types import Task

RUN = 8
"""Words in a row that make a quotation."""
LEAST = 4
"""So many words of a shorter text are a quotation too, or fewer when one of them is telling."""
MANYWORDS = 1 << 16
"""Of which it is remembered what they are."""
SHORTEST = 20
"""Characters without spaces of a line of code that is nobody's own when it is shorter."""
WORDS = re.compile(r"\w+")
_STRETCH = re.compile(rb"\x01{%d,}" % RUN)
WORD = re.compile(r"\b[A-Za-z_]\w+")
TOKEN = re.compile(r"[A-Za-z_][\w-]+")
_LONG = re.compile(r"[\w./:-]{400,}")
_TEST = re.compile(r"[\w./-]+\.py::[\w:]+", re.I)
_PATH = re.compile(r"(?:[\w.-]+/)*[\w-]+\.py\b|(?:[\w.-]+/)+[\w-]+\.\w{1,5}\b", re.I)
_FILE = re.compile(r"^\S{1,400}\.\w{1,5}$")
_PART = re.compile(r"[A-Za-z]\w+")
_PYTHON = re.compile(r"\.py\b")
_SOURCE = re.compile(r"[-=@]+v?\d.*$")
_PARTS = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+")
_BETWEEN = re.compile(r"[\W_]+")
_QUOTED = re.compile(r"\n[ \t>]*")
_DOTTED = re.compile(r"\b[A-Za-z_]\w+(?:\.[A-Za-z_]\w+)+")
_SNAKE = re.compile(r"_*[A-Za-z0-9]+_\w+")
_CAMEL = re.compile(r"_*[A-Za-z]*?[a-z0-9][A-Z]\w*|[A-Z]+[a-z0-9]+[A-Z]\w*")
_FILES = "setup.py conftest.py __init__.py __main__.py main.py test.py tests.py utils.py"
_ALIASES = "np pd plt mpl sns sp sm smf tsa"
"""What modules of packages are called where they are used."""
_ENDINGS = "csv tsv txt json yaml png jpg pdf svg html xml xlsx npy dat zip"
"""Of files, though classes of packages hold some such names too."""
_OF_TESTS = (
    "pytest test tests src python self cls cache capfd capfdbinary caplog capsys capsysbinary"
    " doctest_namespace importorskip monkeypatch parametrize pytestconfig record_property recwarn"
    " testdir pytester tmp_path tmp_path_factory tmpdir tmpdir_factory usefixtures xfail skipif"
)
_EVERYWHERE = frozenset(_OF_TESTS.split())
"""What any project and its tests have: pytest's marks and fixtures too."""


def files_of(tasks: Iterable[Task]) -> set[str]:
    """Return the names of files that the facts of tasks mention."""
    texts = [text for task in tasks for _, text in texts_in(task.facts)]
    paths = (path for text in texts for path in (*_PATH.findall(text), *_FILE.findall(text)))
    return {PurePosixPath(path).name for path in paths}


def package_of(task: Task) -> str:
    """Return the source in domain:source:id, without a version: `sqlparse-0.4.3` is sqlparse."""
    parts = task.id.split(":")
    return _SOURCE.sub("", parts[1] if len(parts) > 2 else parts[0])


def texts_in(value: Any, key: str = "") -> Iterator[tuple[str, str]]:
    """Yield (the key it stands under, text) of all strings in a task's facts, but for digests and
    what its tests require."""
    if isinstance(value, str):
        if not re.fullmatch(r"[0-9a-f]{8,}", value):
            yield key, value
    elif isinstance(value, Mapping):
        for inner, part in value.items():
            if inner != "requires":
                yield from texts_in(part, str(inner))
            if not str(inner).isidentifier():
                yield key, str(inner)
    elif isinstance(value, Iterable):
        for part in value:
            yield from texts_in(part, key)


def identifiers(text: str) -> set[str]:
    """Return all that reads as a name of something in code, but for Python's own."""
    if not text:
        return set()
    if len(text) >= 400:
        text = _LONG.sub(_pieces, text)  # the patterns below look at a run as often as it is long
    found = set(_TEST.findall(text)) if "::" in text else set()
    for path in _PATH.findall(text) if "/" in text or ".py" in text.lower() else ():
        if PurePosixPath(path).name not in _FILES.split():
            found |= {path, PurePosixPath(path).name}
    for dotted in _DOTTED.findall(text) if "." in text else ():
        first, second = dotted.split(".")[:2]
        if first in _library_modules() or first in _EVERYWHERE or dotted.endswith(".py"):
            continue
        # dict.fromkeys is Python's, dict.of_this_task is not
        if not (_is_library_class(first) and _is_pythons(second)):
            found.add(dotted)
    return found.union(filter(_is_name, WORD.findall(text)))


@lru_cache(maxsize=MANYWORDS)
def _is_name(word: str) -> bool:
    """Whether a word is written as names in code are, and is nobody's."""
    return (
        (_SNAKE.fullmatch(word) or _CAMEL.fullmatch(word)) is not None
        and not _is_pythons(word)
        and word.casefold() not in _ordinary_words()
    )


def _pieces(run: re.Match[str]) -> str:
    """Return a run without a space in overlapping pieces: a name of up to 200 characters is whole
    in one of them."""
    return " ".join(run[0][at : at + 400] for at in range(0, len(run[0]), 200))


def is_usual(name: str) -> bool:
    """Whether it is a name that any code may have, like error_message: it is in many answers and
    gives none away."""
    parts = name.split("_")
    return len(parts) <= 2 and all(part in _ordinary_words() for part in parts)


def letters(name: str) -> str:
    """Return what a name is in each way of writing it: bump_prerelease, bumpPrerelease,
    bump-prerelease."""
    return (name if name.isalnum() else _BETWEEN.sub("", name)).casefold()


def word_parts(name: str) -> list[str]:
    """Return the words of a name: bump_prerelease and bumpPrerelease -> bump, prerelease."""
    return [part.casefold() for part in _PARTS.findall(name)]


def _is_strange(word: str) -> bool:
    return len(word) >= 4 and word not in _ordinary_words() and not _is_pythons(word)


def forms_of(name: str) -> list[str]:
    """Return the letters of a name, and what it may begin with where it can be told from plain
    words when it is written as words."""
    return [letters(name), *accumulate(_spoken_words(name))]


def _spoken_words(name: str) -> list[str]:
    """Return the words of a name that can be told from plain words when it is written as words; []
    of another."""
    if not (_SNAKE.fullmatch(name) or _CAMEL.fullmatch(name)):
        return []
    parts = word_parts(name)
    strange = any(map(_is_strange, parts)) or len(parts) >= (4 if parts[0] == "test" else 5)
    return parts if len(parts) >= 2 and strange else []


def is_telling(token: str) -> bool:
    """Return whether a word, or words with hyphens, are none that anybody may write."""
    parts = token.casefold().split("-")
    return len(letters(token)) >= 6 and not (
        len(parts) < 4
        and all(part in _ordinary_words() or _is_pythons(part) or len(part) < 3 for part in parts)
    )


def part_names(text: str, package: str) -> set[str]:
    """Return the single words in the name of a package, module or function: pkg/engine/lexer.py ->
    pkg, engine, lexer."""
    return {
        word
        for word in _PART.findall(_PYTHON.sub("", text) if ".py" in text else text)
        if len(word) > 2
        and not _SNAKE.fullmatch(word)
        and (
            not _is_pythons(word)
            or (word == package and word.casefold() not in _library_modules() | _EVERYWHERE)
        )
    }


def plain_names(text: str, names: Mapping[str, str], *, spans: bool) -> set[str]:
    """Names of parts of a task in `text`: ordinary words only where they are written as code.
    spans: whether it can be told what is written as code."""
    code = set()
    for span in re.findall(r"`([^`\n]+)`", text) if spans else ():
        code |= set(re.findall(r"(?<![\w.])[A-Za-z]\w*", span))
    code |= set(re.findall(r"(?<![\w.])([A-Za-z]\w*)\(", text))
    code |= set(re.findall(r"\b(?:import|from)\s+([A-Za-z]\w*)", text))
    return {
        word
        for word in WORD.findall(text)
        if word.casefold() in names
        and (word in code if word.casefold() in _ordinary_words() else len(word) > 3)
    }


def bound_names(code: str) -> set[str]:
    """Names that a piece of Python defines for itself."""
    if (tree := parse_code(code)) is None:
        return set(re.findall(r"\b(?:def|class|for|as)\s+(\w+)", code)) | set(
            re.findall(r"(\w+)\s*=(?!=)", code)
        )
    found: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            found.add(node.name)
        elif isinstance(node, ast.arg):
            found.add(node.arg)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            found.add(node.id)
    return found


def split_words(text: str) -> list[str]:
    return [word for found in re.findall(r"[\w']+", text.casefold()) if (word := found.strip("_'"))]


def key_of(words: Sequence[str]) -> int:
    """Return a run of words in eight bytes, the same in each process of one Python: a domain has a
    million of them."""
    return hash(tuple(map(_number, words)))


@lru_cache(maxsize=MANYWORDS)
def _number(word: str) -> int:
    # Python's own hash of a text is another one in each process
    return int.from_bytes(blake2b(word.encode("utf-8", "surrogatepass"), digest_size=8).digest())


def run_keys(words: Sequence[str]) -> set[int]:
    numbers = [*map(_number, words)]
    return {
        hash(tuple(numbers[at : at + RUN]))
        for at in range(len(words) - RUN + 1)
        if not (_is_small_number(words[at]) and _is_counting(words[at : at + RUN]))
    }


def stretches(words: Sequence[str], asked: set[str] | None) -> list[Sequence[str]]:
    """Return the words in which runs are; asked: only such runs as are made of these."""
    if asked is None or len(words) < RUN:
        return [words]
    mask = bytes(map(asked.__contains__, words))
    return [words[found.start() : found.end()] for found in _STRETCH.finditer(mask)]


def is_short(text: str, words: Sequence[str]) -> bool:
    """Whether a text of these words is shorter than a run, and tells anything."""
    told = len(words) >= LEAST or any(map(_is_telling, words))
    told = told and not all(map(_is_small_number, words))
    return 0 < len(words) < RUN and told and len(text) < 50 * RUN


class Whole:
    """Finds which of many casefolded names stand in a text, not as a part of a longer one."""

    def __init__(self, names: Iterable[str]) -> None:
        words = {name: WORDS.findall(name) for name in names}
        common = Counter(chain.from_iterable(words.values()))
        self._names = defaultdict[str, list[tuple[int, str]]](list)
        for at, (name, parts) in enumerate(words.items()):
            self._names[min(parts, key=common.__getitem__, default="")].append((at, name))

    def find(self, text: str, after: str = r"\w-") -> Iterator[str]:
        """Yield those that stand in a casefolded text, in their own order. after: what does not
        follow one."""
        words = {"", *WORDS.findall(text)} & self._names.keys()
        for _, name in sorted(chain.from_iterable(map(self._names.__getitem__, words))):
            if name in text and re.search(rf"(?<![\w.-]){re.escape(name)}(?![{after}])", text):
                yield name


def _is_small_number(word: str) -> bool:
    return word.isdecimal() and len(word) < 3


def _is_counting(run: Sequence[str]) -> bool:
    """Whether they are numbers that follow each other, as 1 2 3 4."""
    return all(map(str.isdecimal, run)) and len({int(b) - int(a) for a, b in pairwise(run)}) == 1


def squeeze(text: str) -> str:
    return "".join(_QUOTED.sub("\n", text).split()).casefold().replace('"', "'")


def code_lines(text: str) -> set[tuple[str, int, str]]:
    """Return (first word, key of its first words, the line without spaces) of lines that say enough
    to be somebody's."""
    found = set()
    for line in as_seen(text).splitlines():
        words = split_words(line)
        squeezed = squeeze(re.sub(r"^[+-]\s", "", line))
        # `except AttributeError:` is anybody's
        telling = len(words) >= 3 or any(map(_is_strange, words))
        if telling and len(squeezed) >= SHORTEST and not re.match(r"\s*(?:import|from)\s", line):
            found.add((words[0], key_of(words[:RUN]), squeezed))
    return found


def uncommon_words(text: str) -> set[str]:
    """Words that say what a text is about, and numbers of two digits or more."""
    words = {word.removesuffix("'s") for word in split_words(text)}
    return {
        word
        for word in words
        if (word.isdecimal() and len(word) > 1)
        or (
            len(word) >= 4
            and word.isalpha()
            and not any(each in _ordinary_words() or _is_pythons(each) for each in word_forms(word))
        )
    }


def word_forms(word: str) -> set[str]:
    """Return a word and what it may be the plural of."""
    return {word, word.removesuffix("s"), word.removesuffix("es")}


def _is_telling(word: str) -> bool:
    """Whether a word alone gives an answer away: no plain one, no name of Python's, no small
    number."""
    if word.isdigit():
        return len(word) >= 4
    return (
        len(word) >= 5
        and word not in _ordinary_words()
        and not _is_pythons(word)
        and not _SNAKE.fullmatch(word)
    )


@cache
def _ordinary_words() -> frozenset[str]:
    """Words of English and of programming, and names that packages of any field have."""
    lines = "\n\n".join(_sections("plain_words.txt")).splitlines()
    return frozenset(word for line in lines if not line.startswith("#") for word in line.split())


@cache
def _library_modules() -> frozenset[str]:
    """Return the library's top modules."""
    return _library()[0]


def _is_library_class(name: str) -> bool:
    """Whether it is a class of the library, as `timezone` in timezone.utc."""
    return name.casefold() in _library()[1]


def _is_pythons(word: str) -> bool:
    """Whether it is a name of Python or its library, or one that every test suite has."""
    dunder = word.startswith("__") and word.endswith("__")
    return dunder or (folded := word.casefold()) in _library()[2] or folded in _EVERYWHERE


@cache
def _library() -> tuple[frozenset[str], ...]:
    """Modules, classes, all names."""
    _, *parts = _sections("python_names.txt")
    return tuple(frozenset(part.split()) for part in parts)


class PackageNames(NamedTuple):
    """Public names of packages. top: modules that are imported by themselves; modules: all parts of
    their paths; held: what their classes hold; names: all of these and functions, classes and
    parameters."""

    top: frozenset[str] = frozenset()
    modules: frozenset[str] = frozenset()
    held: frozenset[str] = frozenset()
    names: frozenset[str] = frozenset()

    def have(self, found: str) -> bool:
        """Whether an identifier is theirs, as it is spelled: pivot_table, np.argsort, df.groupby;
        not df.fare_usd."""
        first, *rest = found.split(".")
        if not rest:
            return first in self.names
        if rest[-1] in _ENDINGS.split():
            return False
        if first in self.modules or first in _ALIASES.split():
            return self.names.issuperset(rest)
        anybodys = len(first) <= 3 or first in self.names or first.casefold() in _ordinary_words()
        return anybodys and self.held.issuperset(rest)


def public_names(requirements: Sequence[str]) -> PackageNames:
    """Return the public names of packages. Of those that package_names.txt does not know nothing is
    nobody's."""
    names = (re.split(r"[^\w.-]", each)[0] for each in requirements)
    return _read_packages(frozenset(map(canonicalize_name, names)))


@cache
def _read_packages(packages: frozenset[str]) -> PackageNames:
    _, *parts = _sections("package_names.txt")
    found = PackageNames()
    for at in range(0, len(parts), 4):
        head, *some = parts[at : at + 4]
        if head.partition("==")[0] in packages:
            modules, held, others = (frozenset(part.split()) for part in some)
            more = PackageNames(frozenset(head.split()[1:]), modules, held, modules | held | others)
            found = PackageNames(*(known | new for known, new in zip(found, more, strict=True)))
    return found


def _sections(file: str) -> list[str]:
    return (Path(__file__).parent / file).read_text("utf-8").split("\n\n")
