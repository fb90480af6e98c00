"""Does a text that an agent is to carry name what belongs to one task? Such a rule cannot help
another task, and may carry its answer; of a held-out task it would spoil the measure.

What all tasks of a domain say is read once (`Scanner`): prompts, facts, and what only the grader
knows (gold answers, hidden tests), of every split. Found in a text are then: ids of the tasks;
their test ids, file paths, snake_case, CamelCase and dotted names, also written in the other way;
the names of their packages, modules and functions; eight words in a row, or the whole of a shorter
prompt, answer or line of an answer's code; and canaries. The text is read in every way that
`readings` knows: decoded, backwards, put together. Let pass are: names of Python and its standard
library, public names of packages that the domain has in its sandboxes, what the parent scaffold
says already, names that two packages share, or where there is but one a twentieth of the groups,
wording that train tasks of several groups have in common, and plain words of English, unless they
are written as code (`word` or word(...)) and name a part of a task.

A lesson is for the domain, and one that is about the things of the task it comes from (its hot
dogs, its 448) is none: `particular` finds those of its uncommon words that stand in a task it was
born of and together in no other train task.

What is said of a find quotes the text that was scanned, and names its task only when that is a
train task: whoever wrote the text learns that it names held-out material, and nothing else of that.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from functools import cache, cached_property, lru_cache
from itertools import islice, pairwise
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple

from packaging.utils import canonicalize_name

from recreate.agents.readings import Reading, parsed, readings, unreadable, visible
from recreate.agents.scaffold import Scaffold
from recreate.api.types import Edit, Task, canaries

RUN = 8
"""Words in a row that make a quotation."""
MANY = 20
"""In a domain of one package with so many groups, names that prompts of a twentieth of them have
are nobody's own."""
LEAST = 4
"""So many words of a shorter text are a quotation too, or fewer when one of them is telling."""
SHORTEST = 20
"""Characters without spaces of a line of code that is nobody's own when it is shorter."""
MAX_REASONS = 10
HELD = "a held-out task"
"""The owner that is told of what no train task says."""
_SEAM, _APART = 100, "\nthisisanotherplace\n"
"""Characters of a file's end that are read together with another's beginning, and what stands
between two such places.
"""

_LONG = re.compile(r"[\w./:-]{400,}")
_TEST = re.compile(r"[\w./-]+\.py::[\w:]+", re.I)
_PATH = re.compile(r"(?:[\w.-]+/)*[\w-]+\.py\b|(?:[\w.-]+/)+[\w-]+\.\w{1,5}\b", re.I)
_FILE = re.compile(r"^\S{1,400}\.\w{1,5}$")
_TOKEN = re.compile(r"[A-Za-z_][\w-]+")
_BETWEEN = re.compile(r"[\W_]+")
_QUOTED = re.compile(r"\n[ \t>]*")
_DOTTED = re.compile(r"\b[A-Za-z_]\w+(?:\.[A-Za-z_]\w+)+")
_WORD = re.compile(r"\b[A-Za-z_]\w+")
_SNAKE = re.compile(r"_*[A-Za-z0-9]+_\w+")
_CAMEL = re.compile(r"_*[A-Za-z]*?[a-z0-9][A-Z]\w*|[A-Z]+[a-z0-9]+[A-Z]\w*")
_NAMING = (
    "package",
    "module",
    "function",
    "qualname",
    "class",
    "method",
    "name",
    "file",
    "path",
    "group",
)
_FILES = {
    "setup.py",
    "conftest.py",
    "__init__.py",
    "__main__.py",
    "main.py",
    "test.py",
    "tests.py",
    "utils.py",
}
_ALIASES = {"np", "pd", "plt", "mpl", "sns", "sp", "sm", "smf", "tsa"}
"""What modules of packages are called where they are used."""
_ENDINGS = {
    "csv",
    "tsv",
    "txt",
    "json",
    "yaml",
    "png",
    "jpg",
    "pdf",
    "svg",
    "html",
    "xml",
    "xlsx",
    "npy",
    "dat",
    "zip",
}
"""Of files, though classes of packages hold some such names too."""
_HERE = Path(__file__).parent
"""Three files of names are beside this one, so that they are the same whatever Python looks,
however it was built, and whether or not packages are installed."""
_OF_TESTS = (
    "pytest test tests src python self cls cache capfd capfdbinary caplog capsys capsysbinary"
    " doctest_namespace importorskip monkeypatch parametrize pytestconfig record_property recwarn"
    " testdir pytester tmp_path tmp_path_factory tmpdir tmpdir_factory usefixtures xfail skipif"
)
_EVERYWHERE = frozenset(_OF_TESTS.split())
"""What any project and its tests have: pytest's marks and fixtures too."""


class Scanner:
    """What the tasks of a domain say. hidden: a task's id -> texts of it that no agent is shown.
    packages: requirements that every sandbox of the domain has, whose public names are nobody's."""

    def __init__(  # noqa: C901
        self,
        tasks: Sequence[Task],
        hidden: Mapping[str, Sequence[str]] | None = None,
        packages: Sequence[str] = (),
    ) -> None:
        hidden = hidden or {}
        self.packages = _names_of(
            frozenset(canonicalize_name(re.split(r"[^\w.-]", each)[0]) for each in packages)
        )
        self.ids: dict[str, str] = {}
        names, identifiers, runs, short, lines = (_Shared() for _ in range(5))
        told: dict[str, set[str]] = {}
        spoken: dict[str, list[str]] = {}
        made_here = set[str]()
        self.starts = set[str]()
        """Words that something shorter than a run begins with."""
        texts = [text for task in tasks for _, text in _strings(task.facts)]
        paths = [path for text in texts for path in (*_PATH.findall(text), *_FILE.findall(text))]
        self.files = {PurePosixPath(path).name for path in paths}
        """Files of tasks: `tree.score` is one, though packages have a `score` too."""
        groups, sources = {task.group for task in tasks}, {_package(task) for task in tasks}
        self.prompts = [(task.group, task.prompt) for task in tasks if task.split == "train"]
        # what a train task says is that task's
        for task in sorted(tasks, key=lambda t: t.split != "train"):
            package, strings = _package(task), list(_strings(task.facts))
            facts, secret = [text for _, text in strings], list(hidden.get(task.id, ()))
            for part in sorted(_ids(task)):
                self.ids.setdefault(part.casefold(), _owner(task))
            prompted = _identifiers(task.prompt)
            unseen = {found for found in _identifiers("\n".join(secret)) if not _usual(found)}
            for found in prompted | unseen | _identifiers("\n".join([task.group, *facts])):
                identifiers.add(_letters(found), package, task)
                if self._is_of_packages(found):
                    continue
                made_here.add(_letters(found))
                if _is_spoken(found):
                    spoken[_letters(found)] = _parts_of(found)
            for found in prompted:
                told.setdefault(_letters(found), set()).add(task.group)
            for text in [package, task.group, *(text for key, text in strings if key in _NAMING)]:
                for found in _parts(text, package):
                    if found.casefold() not in self.packages.top:
                        names.add(found.casefold(), package, task)
            for text in (task.prompt, *facts, *secret):
                for run in _runs(text):
                    runs.add(run, task.group, task)
                for first, whole in _whole(text):
                    short.add(whole, task.group, task)
                    self.starts.add(first)
            for text in (*(text for text in facts if "\n" in text), *secret):
                for line in _lines(text):
                    lines.add(line, task.group, task)
        # what most prompts say is the domain's own wording; of many rows, which are of one package,
        # what some say: `DataFrame` and `random_state` are no task's
        some = (
            max(3, len(groups) // 20)
            if len(sources) == 1 and len(groups) >= MANY
            else len(groups) // 2
        )
        most = len(groups) if len(groups) < 10 else some
        wording = {found for found, by in told.items() if len(by) >= max(2, most)}
        self.known = wording | identifiers.many
        self.identifiers = {
            k: v for k, v in identifiers.owners.items() if k in made_here and k not in self.known
        }
        self.spoken = spoken.keys() - self.known
        self.beginnings = {
            "".join(spoken[k][: n + 1]) for k in self.spoken for n in range(len(spoken[k]))
        }
        everyones = (
            {source.casefold() for source in sources}
            if len(sources) == 1 < len(groups)
            else set[str]()
        )
        self.names = {k: v for k, v in names.owners.items() if k not in names.many | everyones}
        said = {word for task in tasks if task.split == "train" for word in _words(task.prompt)}
        self.common = runs.many & runs.train | short.many | {_key([word]) for word in said}
        self.quotations = {
            k: v for k, v in (runs.owners | short.owners).items() if k not in self.common
        }
        self.openings: dict[int, dict[str, str]] = {}
        for (first, key, line), owner in lines.owners.items():
            if (first, key, line) not in lines.many:
                self.openings.setdefault(key, {})[line] = owner
                self.starts.add(first)

    def _is_of_packages(self, found: str) -> bool:
        return found not in self.files and self.packages.have(found)

    def leaks(
        self, edits: Sequence[Edit], parent: Scaffold, texts: Sequence[str] = ()
    ) -> list[str]:
        """Why edits of `parent` cannot be used, one sentence each ([] when they can).

        texts: more that belongs to train tasks: what was handed in. Looked at is what the edits
        make of the parent's files, and the paths, and where the end of one file meets the beginning
        of another; never their reasons.
        """
        files, reasons, defined = dict(parent.files), list[str](), set[str]()
        known = _said("\n".join(parent.files.values()))
        for number, edit in enumerate(edits, 1):
            name = PurePosixPath(edit.path).stem
            path = (
                ""
                if edit.path in files
                else f"{name.replace('-', ' ')}\n{name.replace('-', '_')}\n"
            )
            files[edit.path] = _after(files.get(edit.path, ""), edit)
            own = _bound(files[edit.path]) if edit.path.endswith(".py") else set()
            defined |= own
            found = self._read(
                f"{files[edit.path]}\n{path}", known, own, tuple(texts), edit.path.endswith(".py")
            )
            reasons += [f"edit {number} ({edit.path}) {why}" for why in found]
        for path in dict.fromkeys(edit.path for edit in edits):
            if not reasons:
                found = self._found(
                    Reading(visible(_seams(files, path)), whole=True), known, defined, ()
                )
                reasons += [f"{path}, read on into or after another file, {why}" for why in found]
        return list(dict.fromkeys(reasons))[:MAX_REASONS]

    def says(self, text: str) -> list[str]:
        """What is wrong with a text by itself, as `names ...` or `copies ...`; [] for nothing."""
        return list(self._read(text, _said(""), set(), ()))[:MAX_REASONS]

    def particular(self, text: str, groups: Iterable[str]) -> list[str]:
        """What is wrong with a lesson that was born of train tasks of these groups, as `says ...`;
        [] for nothing.

        Counted are words that are no plain English and no name of Python's, in singular and plural
        alike, and numbers of two digits or more. Those that more than a twentieth of the train
        groups say are the domain's own. The others are refused where one group that the lesson was
        born of says them, and no other group says all of them. Of fewer than MANY groups none is
        said to be alone with a word: that would often be chance.
        """
        spoken, count = self._uncommon
        if count < MANY:
            return []
        said = {
            word: set[str]().union(*(spoken.get(form, ()) for form in _forms(word)))
            for word in _uncommon(text)
        }
        reasons = []
        for group in dict.fromkeys(groups):
            own = {
                word: by
                for word, by in said.items()
                if group in by and len(by) <= max(1, count // MANY)
            }
            if own and set.intersection(*own.values()) == {group}:
                quoted = ", ".join(
                    map(repr, sorted(own, key=lambda word: (len(own[word]), word))[:3])
                )
                reasons.append(
                    f"says {quoted}, as {group} does and no other train task: say what holds for"
                    " any task"
                )
        return reasons

    @cached_property
    def _uncommon(self) -> tuple[Mapping[str, set[str]], int]:
        """(word in each of its forms -> the train groups whose prompts say it, how many train
        groups there are)."""
        spoken: dict[str, set[str]] = {}
        for group, prompt in self.prompts:
            for word in _uncommon(prompt):
                for form in _forms(word):
                    spoken.setdefault(form, set()).add(group)
        return spoken, len({group for group, _ in self.prompts})

    def _read(
        self, text: str, parent: _Parent, own: set[str], texts: tuple[str, ...], code: bool = False
    ) -> Iterator[str]:
        """What is found in the text; only when it is nothing, in what else it can be read as."""
        any_found = False
        for reading in readings(text, code=code):
            for why in self._found(reading, parent, own, texts):
                any_found = True
                yield why
            if any_found:
                return
        for run in unreadable(text):
            if run not in parent.text:
                yield (
                    f"holds {len(run)} characters of encoded data ({run[:24]}...): say in words"
                    " what it is for"
                )

    def _found(
        self, reading: Reading, parent: _Parent, own: set[str], texts: tuple[str, ...]
    ) -> Iterator[str]:
        handed_in, copied = _of_texts(texts)
        for found in dict.fromkeys(canaries(reading.text)):
            yield (
                f"holds {found!r}{reading.how}, the canary of {HELD}: it was made from what nobody"
                " may learn from"
            )
        named, text = dict[str, str](), reading.text.casefold()
        for found, why in islice(self._named(reading, parent, own, handed_in), 4 * MAX_REASONS):
            named.setdefault(found, why)
        by_length = sorted((found.casefold() for found in named), key=len, reverse=True)
        # of a name and its parts only the name, where the parts stand nowhere else
        for found, why in named.items():
            rest, part = text, found.casefold()
            for longer in by_length:
                rest = rest.replace(longer, " ") if part in longer and part != longer else rest
            if rest == text or part in rest:
                yield why
        yield from self._copies(reading, parent, copied)

    def _named(
        self, reading: Reading, parent: _Parent, own: set[str], handed_in: Collection[str]
    ) -> Iterator[tuple[str, str]]:
        """What is named that belongs to a task, and the sentence that says so."""
        text, how = reading.text, reading.how
        least = 8 if reading.whole else 0
        folded_text = text.casefold()
        for found in sorted(_identifiers(text) | self._rewritten(text) - own):
            if found in own or found.partition(".")[0] in own or self._is_of_packages(found):
                continue
            folded = _letters(found)
            owner = self.identifiers.get(folded)
            if owner is None and folded in handed_in and folded not in self.known:
                owner = "the tasks"
            said_already = found.casefold() in parent.words or found in parent.text
            if owner is not None and len(found) >= least and not said_already:
                yield (
                    found,
                    f"names {found!r}{how}, which belongs to {owner}: say what holds for any task",
                )
        for found in sorted(_plain(text, self.names, spans=not reading.whole) - own):
            if found.casefold() not in parent.words and len(found) >= least:
                yield (
                    found,
                    (
                        f"names {found!r}{how}, a part of {self.names[found.casefold()]}: say it in"
                        " general"
                    ),
                )
        for part, owner in self.ids.items():
            if part in folded_text and part not in parent.folded and _mentions(folded_text, part):
                whose = HELD if owner == HELD else f"the task {owner}"
                yield part, f"names {part!r}{how}, {whose}: say what holds for any task"

    def _copies(self, reading: Reading, parent: _Parent, copied: frozenset[int]) -> Iterator[str]:
        words, squeezed = _words(reading.text), ""
        for at, first in enumerate(words):
            shortest = 1 if first in self.starts else RUN
            for length in range(shortest, min(RUN, len(words) - at) + 1):
                key = _key(words[at : at + length])
                if key in self.openings:
                    squeezed = squeezed or _squeezed(reading.text)
                    for line, owner in self.openings[key].items():
                        if line in squeezed and line not in parent.squeezed:
                            quoted = " ".join(words[at : at + length])
                            yield (
                                f"copies a line of {_whose(owner)}: {quoted!r}{reading.how}: show"
                                " another example"
                            )
                            return
                if key in parent.runs or key in self.common or (length < RUN and reading.whole):
                    continue
                if key in self.quotations or key in copied:
                    quoted, owner = " ".join(words[at : at + length]), self.quotations.get(key, "")
                    yield (
                        f"copies the text of {_whose(owner)}: {quoted!r}{reading.how}: use words of"
                        " your own"
                    )
                    return

    def _rewritten(self, text: str) -> set[str]:
        """Names of tasks that are written in another way: as-this, asThis, asthis, or as words with
        spaces."""
        found = {
            token
            for token in _TOKEN.findall(text)
            if len(folded := _letters(token)) >= 6
            and folded in self.identifiers
            and not _common(token)
        }
        words = _words(text)
        for at, first in enumerate(words):
            if first in self.beginnings:
                for length in range(2, 1 + min(RUN, len(words) - at)):
                    if "".join(words[at : at + length]) in self.spoken:
                        found.add(" ".join(words[at : at + length]))
        return found


class _Shared:
    """Things that tasks have: whose each is, which several have (`many`), and which some train task
    has."""

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
        self.squeezed = _squeezed(text)
        self.runs = {
            _key(words[at : at + n]) for n in range(1, RUN + 1) for at in range(len(words) - n + 1)
        }


@lru_cache(maxsize=4)
def _said(text: str) -> _Parent:
    return _Parent(text)


def _whose(owner: str) -> str:
    return HELD if owner == HELD else "a task"


def _seams(files: Mapping[str, str], path: str) -> str:
    """Where a file may be read on into another one, or another into it."""
    ends = {
        name: (text.strip("\n")[:_SEAM], text.strip("\n")[-_SEAM:])
        for name, text in files.items()
        if text
    }
    begin, end = ends.pop(path, ("", ""))
    return _APART.join(
        f"{end}{other_begin}{_APART}{other_end}{begin}" for other_begin, other_end in ends.values()
    )


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
    """(identifiers, quotations) of more texts: an optimizer asks about many edits and the same
    attempts."""
    identifiers = {_letters(found) for text in texts for found in _identifiers(text)}
    return frozenset(identifiers), frozenset(run for text in texts for run in _runs(text))


# --------------------------------------------------------------------------------------- what is a
# secret


def _package(task: Task) -> str:
    """The source in domain:source:id, without a version: `sqlparse-0.4.3` is sqlparse."""
    parts = task.id.split(":")
    return re.sub(r"[-=@]+v?\d.*$", "", parts[1] if len(parts) > 2 else parts[0])


def _strings(value: Any, key: str = "") -> Iterator[tuple[str, str]]:
    """(the key it stands under, text) of all strings in a task's facts, but for digests and what
    its tests require."""
    if isinstance(value, str):
        if not re.fullmatch(r"[0-9a-f]{8,}", value):
            yield key, value
    elif isinstance(value, Mapping):
        for inner, part in value.items():
            if inner != "requires":
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
        if first in _modules() or first in _EVERYWHERE or dotted.endswith(".py"):
            continue
        # dict.fromkeys is Python's, dict.of_this_task is not
        if not (_a_class(first) and _pythons(second)):
            found.add(dotted)
    for word in _WORD.findall(text):
        if (_SNAKE.fullmatch(word) or _CAMEL.fullmatch(word)) and not (
            _pythons(word) or word.casefold() in _ordinary()
        ):
            found.add(word)
    return found


def _pieces(run: re.Match[str]) -> str:
    """A run without a space in overlapping pieces: a name of up to 200 characters is whole in one
    of them."""
    return " ".join(run[0][at : at + 400] for at in range(0, len(run[0]), 200))


def _usual(name: str) -> bool:
    """A name that any code may have, like error_message: it is in many answers and gives none
    away."""
    parts = name.split("_")
    return len(parts) <= 2 and all(part in _ordinary() for part in parts)


def _letters(name: str) -> str:
    """What a name is in each way of writing it: bump_prerelease, bumpPrerelease,
    bump-prerelease."""
    return (name if name.isalnum() else _BETWEEN.sub("", name)).casefold()


def _parts_of(name: str) -> list[str]:
    """bump_prerelease and bumpPrerelease -> bump, prerelease."""
    return [part.casefold() for part in re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+", name)]


def _strange(word: str) -> bool:
    return len(word) >= 4 and word not in _ordinary() and not _pythons(word)


def _is_spoken(name: str) -> bool:
    """A name that can be told from plain words when it is written as words."""
    if not (_SNAKE.fullmatch(name) or _CAMEL.fullmatch(name)):
        return False
    parts = _parts_of(name)
    return len(parts) >= 2 and (
        any(map(_strange, parts)) or len(parts) >= (4 if parts[0] == "test" else 5)
    )


def _common(token: str) -> bool:
    """A word, or words with hyphens, that anybody may write."""
    parts = token.casefold().split("-")
    return len(parts) < 4 and all(
        part in _ordinary() or _pythons(part) or len(part) < 3 for part in parts
    )


def _parts(text: str, package: str) -> set[str]:
    """The single words in the name of a package, module or function: pkg/engine/lexer.py -> pkg,
    engine, lexer."""
    words = {
        word for word in re.findall(r"[A-Za-z]\w+", re.sub(r"\.py\b", "", text)) if len(word) > 2
    }
    return {
        word
        for word in words
        if not _SNAKE.fullmatch(word)
        and (
            not _pythons(word)
            or (word == package and word.casefold() not in _modules() | _EVERYWHERE)
        )
    }


def _plain(text: str, names: Mapping[str, str], *, spans: bool) -> set[str]:
    """Names of parts of a task in `text`: ordinary words only where they are written as code.
    spans: whether it can be told what is written as code."""
    code = set()
    for span in re.findall(r"`([^`\n]+)`", text) if spans else ():
        code |= set(re.findall(r"(?<![\w.])[A-Za-z]\w*", span))
    code |= set(re.findall(r"(?<![\w.])([A-Za-z]\w*)\(", text))
    code |= set(re.findall(r"\b(?:import|from)\s+([A-Za-z]\w*)", text))
    return {
        word
        for word in _WORD.findall(text)
        if word.casefold() in names
        and (word in code if word.casefold() in _ordinary() else len(word) > 3)
    }


def _bound(code: str) -> set[str]:
    """Names that a piece of Python defines for itself."""
    if (tree := parsed(code)) is None:
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


# -------------------------------------------------------------------------------------------
# quotations


def _words(text: str) -> list[str]:
    return [word for found in re.findall(r"[\w']+", text.casefold()) if (word := found.strip("_'"))]


def _key(words: Sequence[str]) -> int:
    """A run of words in eight bytes: a domain has a million of them."""
    return hash(tuple(words))


def _runs(text: str) -> set[int]:
    words = _words(visible(text))
    runs = (words[at : at + RUN] for at in range(len(words) - RUN + 1))
    return {_key(run) for run in runs if not (_counted(run[0]) and _counting(run))}


def _whole(text: str) -> list[tuple[str, int]]:
    """(first word, key) of a text that is shorter than a run, when it tells anything."""
    words = _words(visible(text)) if len(text) < 50 * RUN else []
    told = len(words) >= LEAST or any(map(_telling, words))
    told = told and not all(map(_counted, words))
    return [(words[0], _key(words))] if words and len(words) < RUN and told else []


def _counted(word: str) -> bool:
    return word.isdecimal() and len(word) < 3


def _counting(run: Sequence[str]) -> bool:
    """1 2 3 4: numbers that follow each other."""
    return all(map(str.isdecimal, run)) and len({int(b) - int(a) for a, b in pairwise(run)}) == 1


def _squeezed(text: str) -> str:
    return "".join(_QUOTED.sub("\n", text).split()).casefold().replace('"', "'")


def _lines(text: str) -> set[tuple[str, int, str]]:
    """(first word, key of its first words, the line without spaces) of lines that say enough to be
    somebody's."""
    found = set()
    for line in visible(text).splitlines():
        words, squeezed = _words(line), _squeezed(re.sub(r"^[+-]\s", "", line))
        # `except AttributeError:` is anybody's
        telling = len(words) >= 3 or any(map(_strange, words))
        if telling and len(squeezed) >= SHORTEST and not re.match(r"\s*(?:import|from)\s", line):
            found.add((words[0], _key(words[:RUN]), squeezed))
    return found


def _uncommon(text: str) -> set[str]:
    """Words that say what a text is about, and numbers of two digits or more."""
    words = {word.removesuffix("'s") for word in _words(text)}
    return {
        word
        for word in words
        if (word.isdecimal() and len(word) > 1)
        or (
            len(word) >= 4
            and word.isalpha()
            and not any(each in _ordinary() or _pythons(each) for each in _forms(word))
        )
    }


def _forms(word: str) -> set[str]:
    """A word and what it may be the plural of."""
    return {word, word.removesuffix("s"), word.removesuffix("es")}


def _telling(word: str) -> bool:
    """Whether a word alone gives an answer away: no plain one, no name of Python's, no small
    number."""
    if word.isdigit():
        return len(word) >= 4
    return (
        len(word) >= 5
        and word not in _ordinary()
        and not _pythons(word)
        and not _SNAKE.fullmatch(word)
    )


# -------------------------------------------------------------------------------------- what is
# nobody's


@cache
def _ordinary() -> frozenset[str]:
    """Words of English and of programming, and names that packages of any field have."""
    lines = (_HERE / "plain_words.txt").read_text("utf-8").splitlines()
    return frozenset(word for line in lines if not line.startswith("#") for word in line.split())


@cache
def _modules() -> frozenset[str]:
    """The library's top modules."""
    return _library()[0]


def _a_class(name: str) -> bool:
    """A class of the library, as `timezone` in timezone.utc."""
    return name.casefold() in _library()[1]


def _pythons(word: str) -> bool:
    """A name of Python or its library, or one that every test suite has."""
    dunder = word.startswith("__") and word.endswith("__")
    return dunder or (folded := word.casefold()) in _library()[2] or folded in _EVERYWHERE


@cache
def _library() -> tuple[frozenset[str], ...]:
    """Modules, classes, all names."""
    _, *parts = (_HERE / "python_names.txt").read_text("utf-8").split("\n\n")
    return tuple(frozenset(part.split()) for part in parts)


class _Packages(NamedTuple):
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
        if rest[-1] in _ENDINGS:
            return False
        if first in self.modules or first in _ALIASES:
            return self.names.issuperset(rest)
        anybodys = len(first) <= 3 or first in self.names or first.casefold() in _ordinary()
        return anybodys and self.held.issuperset(rest)


@cache
def _names_of(packages: frozenset[str]) -> _Packages:
    """Of packages that package_names.txt does not know nothing is nobody's."""
    _, *parts = (_HERE / "package_names.txt").read_text("utf-8").split("\n\n")
    found = _Packages()
    for at in range(0, len(parts), 4):
        head, *some = parts[at : at + 4]
        if head.partition("==")[0] in packages:
            modules, held, others = (frozenset(part.split()) for part in some)
            more = _Packages(frozenset(head.split()[1:]), modules, held, modules | held | others)
            found = _Packages(*(known | new for known, new in zip(found, more, strict=True)))
    return found
