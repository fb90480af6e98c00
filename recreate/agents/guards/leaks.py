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

import json
import re
import sys
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from functools import cache, cached_property, lru_cache
from itertools import islice
from pathlib import Path, PurePosixPath
from types import MappingProxyType
from typing import Any, NamedTuple

from recreate.agents.guards import names
from recreate.agents.guards.names import RUN, key_of, letters, split_words, squeeze
from recreate.agents.guards.readings import Reading, as_seen, readings, unreadable
from recreate.agents.scaffold import Scaffold
from recreate.api.types import Edit, Task, canaries, digest

MANY = 20
"""In a domain of one package with so many groups, names that prompts of a twentieth of them have
are nobody's own."""
MAX_REASONS = 10
HELD = "a held-out task"
"""The owner that is told of what no train task says."""
_SEAM = 100
_APART = "\nthisisanotherplace\n"
"""Characters of a file's end that are read together with another's beginning, and what stands
between two such places.
"""
_NAMING = "package module function qualname class method name file path group"
"""Facts of a task whose words are its parts' names."""


class Scanner:
    """What the tasks of a domain say. hidden: a task's id -> texts of it that no agent is shown.
    packages: requirements that every sandbox of the domain has, whose public names are nobody's.
    says: a task's id -> what `read_task` made of it before, as JSON. asked: `asked_words` of all
    texts that will be asked about, None for any text: nothing else is taken from the tasks."""

    def __init__(
        self,
        tasks: Sequence[Task],
        hidden: Mapping[str, Sequence[str]] | None = None,
        packages: Sequence[str] = (),
        says: Mapping[str, str] | None = None,
        asked: set[str] | None = None,
    ) -> None:
        self.packages = names.public_names(packages)
        self.starts = set[str]()
        """Words that something shorter than a run begins with."""
        self.files = names.files_of(tasks)
        """Files of tasks: `tree.score` is one, though packages have a `score` too."""
        self._train = {task.id: task for task in tasks if task.split == "train"}
        self._hidden = hidden or {}
        self.prompts = [(task.group, task.prompt) for task in tasks if task.split == "train"]
        self._parts = _Shared()
        self._identifiers = _Shared()
        self._lines = _Shared()
        self._runs = _Shared()
        self._short = _Shared()
        self._prompted = defaultdict[str, set[str]](set)
        self._own = set[str]()
        self._spoken: dict[str, Sequence[str]] = {}
        self._said = set[str]()
        ids = dict[str, str]()
        # what a train task says is that task's: it comes last
        for task in sorted(reversed(tasks), key=lambda t: t.split == "train"):
            owner = _owner(task)
            ids.update(
                (part, owner)
                for part in _ids(task)
                if asked is None or asked >= {*names.WORDS.findall(part)}
            )
            if (known := (says or {}).get(task.id)) is not None:
                self._take(task, owner, TaskSays(*json.loads(known)), asked)
            else:
                self._take(task, owner, read_task(task, (hidden or {}).get(task.id, ())), asked)
        self.ids = ids
        self._named_ids = names.Whole(reversed(ids))
        self._drop_what_many_say(tasks)

    def _take(self, task: Task, owner: str, says: TaskSays, asked: set[str] | None) -> None:
        package = names.package_of(task)
        found = {
            name: forms
            for name, forms in says.names.items()
            if asked is None or not asked.isdisjoint(forms)
        }
        for name, (own, *beginnings) in found.items():
            if name in says.prompted:
                self._prompted[own].add(task.group)
            if not self._is_of_packages(name):
                self._own.add(own)
                if beginnings:
                    self._spoken.setdefault(own, beginnings)
        runs = set[int]()
        short = list[Sequence[str]]()
        for at, text in enumerate(says.texts):
            split = text.split()
            for stretch in names.stretches(split, asked):
                runs |= names.run_keys(stretch)
            if at in says.short and (asked is None or asked >= {*split}):
                short.append(split)
            if at == 0 and owner != HELD:
                self._said.update(split)
        self.starts.update(words[0] for words in short)
        lines = {(first, *line) for first, *line in says.lines if asked is None or first in asked}
        self._identifiers.add({forms[0] for forms in found.values()}, package, owner)
        parts = set(says.parts) if asked is None else asked & {*says.parts}
        self._parts.add(parts - self.packages.top, package, owner)
        self._runs.add(runs, task.group, owner)
        self._short.add({*map(key_of, short)}, task.group, owner)
        self._lines.add(lines, task.group, owner)

    def _drop_what_many_say(self, tasks: Sequence[Task]) -> None:
        """Keep what is some task's own.

        What most prompts say is the domain's own wording; of many rows, which are of one package,
        what some say: `DataFrame` and `random_state` are no task's.
        """
        groups = {task.group for task in tasks}
        sources = {names.package_of(task) for task in tasks}
        most = count = len(groups)
        if count >= 10:
            most = max(3, count // 20) if len(sources) == 1 and count >= MANY else count // 2
        wording = {name for name, by in self._prompted.items() if len(by) >= max(2, most)}
        self.known = wording | self._identifiers.many
        owners = self._identifiers.owners
        self.identifiers = {k: owners[k] for k in owners if k in self._own and k not in self.known}
        self.spoken = self._spoken.keys() - self.known
        self.beginnings = set[str]().union(*(self._spoken[name] for name in self.spoken))
        nobodys = set(self._parts.many)
        if len(sources) == 1 < count:
            nobodys |= {source.casefold() for source in sources}
        self.names = {k: v for k, v in self._parts.owners.items() if k not in nobodys}
        self.common = self._runs.many & self._runs.train | self._short.many
        self.common |= {key_of([word]) for word in self._said}
        self.quotations = self._runs.owners | self._short.owners
        self.openings = defaultdict[int, dict[str, str]](dict)
        for line, owner in self._lines.owners.items():
            if line not in self._lines.many:
                first, key, text = line
                self.openings[key][text] = owner
                self.starts.add(first)

    def _is_of_packages(self, name: str) -> bool:
        return name not in self.files and self.packages.have(name)

    def words_of(self, task: str) -> str:
        """Return all that is known of a train task: its names, prompt, facts and hidden texts."""
        known = self._train[task]
        facts = (text for _, text in names.texts_in(known.facts))
        secret = self._hidden.get(task, ())
        return "\n".join([known.id, known.group, known.prompt, *facts, *secret])

    def leaks(
        self,
        edits: Sequence[Edit],
        parent: Scaffold,
        texts: Sequence[str] = (),
        examples: Mapping[str, str] = MappingProxyType({}),
    ) -> list[str]:
        """Return why edits of `parent` cannot be used, one sentence each ([] when they can).

        texts: more that belongs to train tasks: what was handed in. examples: a worked example's
        path -> what it may repeat, `words_of` its own task; no other file may, though the agent
        shows it. Looked at is what the edits make of the parent's files, and the paths, and where
        the end of one file meets the beginning of another; never their reasons.
        """
        files = dict(parent.files)
        reasons = list[str]()
        defined = set[str]()
        every = _read_parent("\n".join([*parent.files.values(), *examples.values()]))
        plain = "\n".join(t for p, t in parent.files.items() if not p.startswith("examples/"))
        for number, edit in enumerate(edits, 1):
            name = PurePosixPath(edit.path).stem
            new = edit.path not in files
            known = _read_parent(plain)
            if edit.path.startswith("examples/"):
                may = (plain, parent.files.get(edit.path, ""), examples.get(edit.path, ""))
                known = _read_parent("\n".join(may))
            files[edit.path] = _after(files.get(edit.path, ""), edit)
            code = edit.path.endswith(".py")
            own = names.bound_names(files[edit.path]) if code else set()
            defined |= own
            text = f"{files[edit.path]}\n"
            text += f"{name.replace('-', ' ')}\n{name.replace('-', '_')}\n" if new else ""
            whys = self._scan(text, known, own, tuple(texts), code)
            reasons += [f"edit {number} ({edit.path}) {why}" for why in whys]
        for path in dict.fromkeys(edit.path for edit in edits):
            if not reasons:
                seams = Reading(as_seen(_seams(files, path)), whole=True)
                whys = self._scan_reading(seams, every, defined, ())
                reasons += [f"{path}, read on into or after another file, {why}" for why in whys]
        return list(dict.fromkeys(reasons))[:MAX_REASONS]

    def says(self, text: str) -> list[str]:
        """Return what is wrong with a text by itself, as `names ...` or `copies ...`; [] for
        nothing."""
        return list(self._scan(text, _read_parent(""), set(), ()))[:MAX_REASONS]

    def particular(self, text: str, groups: Iterable[str]) -> list[str]:
        """Return what is wrong with a lesson that was born of train tasks of these groups, as `says
        ...`; [] for nothing.

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
            word: set[str]().union(*(spoken.get(form, ()) for form in names.word_forms(word)))
            for word in names.uncommon_words(text)
        }
        reasons = []
        for group in dict.fromkeys(groups):
            own = {w: by for w, by in said.items() if group in by and len(by) <= count // MANY}
            if own and set.intersection(*own.values()) == {group}:
                rarest = sorted(own, key=lambda word: (len(own[word]), word))[:3]
                reasons.append(
                    f"says {', '.join(map(repr, rarest))}, as {group} does and no other train task:"
                    " say what holds for any task"
                )
        return reasons

    @cached_property
    def _uncommon(self) -> tuple[Mapping[str, set[str]], int]:
        """(word in each of its forms -> the train groups whose prompts say it, how many train
        groups there are)."""
        spoken = defaultdict[str, set[str]](set)
        for group, prompt in self.prompts:
            for word in names.uncommon_words(prompt):
                for form in names.word_forms(word):
                    spoken[form].add(group)
        return spoken, len({group for group, _ in self.prompts})

    def _scan(
        self, text: str, parent: _Parent, own: set[str], texts: tuple[str, ...], code: bool = False
    ) -> Iterator[str]:
        """Find what is wrong with the text; only when it is nothing, in what else it can be read
        as."""
        for reading in readings(text, code=code):
            if whys := list(self._scan_reading(reading, parent, own, texts)):
                yield from whys
                return
        for run in unreadable(text):
            if run not in parent.text:
                yield (
                    f"holds {len(run)} characters of encoded data ({run[:24]}...): say in words"
                    " what it is for"
                )

    def _scan_reading(
        self, reading: Reading, parent: _Parent, own: set[str], texts: tuple[str, ...]
    ) -> Iterator[str]:
        handed_in, copied = _read_texts(texts)
        for canary in dict.fromkeys(canaries(reading.text)):
            yield (
                f"holds {canary!r}{reading.how}, the canary of {HELD}: it was made from what nobody"
                " may learn from"
            )
        named = dict[str, str]()
        text = reading.text.casefold()
        for name, why in islice(self._owned(reading, parent, own, handed_in), 4 * MAX_REASONS):
            named.setdefault(name, why)
        by_length = sorted((name.casefold() for name in named), key=len, reverse=True)
        # of a name and its parts only the name, where the parts stand nowhere else
        for name, why in named.items():
            rest = text
            part = name.casefold()
            for longer in by_length:
                rest = rest.replace(longer, " ") if part in longer and part != longer else rest
            if rest == text or part in rest:
                yield why
        yield from self._copies(reading, parent, copied)

    def _owned(
        self, reading: Reading, parent: _Parent, own: set[str], handed_in: Collection[str]
    ) -> Iterator[tuple[str, str]]:
        """Find what is named that belongs to a task, and the sentence that says so."""
        text = reading.text
        how = reading.how
        least = 8 if reading.whole else 0
        for name in sorted(names.identifiers(text) | self._rewritten(text) - own):
            if name in own or name.partition(".")[0] in own or self._is_of_packages(name):
                continue
            owner = self.identifiers.get(letters(name))
            if owner is None and letters(name) in handed_in and letters(name) not in self.known:
                owner = "the tasks"
            if owner is not None and len(name) >= least and not parent.says(name):
                yield (
                    name,
                    f"names {name!r}{how}, which belongs to {owner}: say what holds for any task",
                )
        for name in sorted(names.plain_names(text, self.names, spans=not reading.whole) - own):
            if name.casefold() not in parent.words and len(name) >= least:
                whose = self.names[name.casefold()]
                yield name, f"names {name!r}{how}, a part of {whose}: say it in general"
        for part in self._named_ids.find(text.casefold()):
            if part not in parent.folded:
                owner = self.ids[part]
                whose = HELD if owner == HELD else f"the task {owner}"
                yield part, f"names {part!r}{how}, {whose}: say what holds for any task"

    def _copies(self, reading: Reading, parent: _Parent, copied: frozenset[int]) -> Iterator[str]:
        """Find the first quotation of a task."""
        words = split_words(reading.text)
        squeezed = ""
        for at, first in enumerate(words):
            shortest = 1 if first in self.starts else RUN
            for length in range(shortest, min(RUN, len(words) - at) + 1):
                key = key_of(words[at : at + length])
                quoted = ""
                if key in self.openings:
                    squeezed = squeezed or squeeze(reading.text)
                    for line, owner in self.openings[key].items():
                        if line in squeezed and line not in parent.squeezed:
                            quoted = f"copies a line of {_whose(owner)}"
                            fix = "show another example"
                            break
                known = key in parent.runs or key in self.common
                found = key in self.quotations or key in copied
                if found and not quoted and not known and (length == RUN or not reading.whole):
                    owner = self.quotations.get(key, "")
                    quoted = f"copies the text of {_whose(owner)}"
                    fix = "use words of your own"
                if quoted:
                    shown = " ".join(words[at : at + length])
                    yield f"{quoted}: {shown!r}{reading.how}: {fix}"
                    return

    def _rewritten(self, text: str) -> set[str]:
        """Return names of tasks that are written in another way: as-this, asThis, asthis, or as
        words with spaces."""
        tokens = (
            token for token in names.TOKEN.findall(text) if letters(token) in self.identifiers
        )
        found = {token for token in tokens if names.is_telling(token)}
        words = split_words(text)
        for at, first in enumerate(words):
            if first in self.beginnings:
                for length in range(2, 1 + min(RUN, len(words) - at)):
                    if "".join(words[at : at + length]) in self.spoken:
                        found.add(" ".join(words[at : at + length]))
        return found


class TaskSays(NamedTuple):
    """What a task says, in values that JSON keeps. names: name -> its forms; prompted: those
    in the prompt. texts: the words of
    its prompt, and of its other texts; short: which of them are shorter than a run and tell
    something."""

    prompted: Collection[str]
    names: Mapping[str, Sequence[str]]
    parts: Collection[str]
    texts: Sequence[str]
    short: Collection[int]
    lines: Collection[tuple[str, int, str]]


def read_task(task: Task, secret: Sequence[str] = ()) -> TaskSays:
    """Return what a task says, and texts of it that no agent is shown."""
    package = names.package_of(task)
    strings = list(names.texts_in(task.facts))
    facts = [text for _, text in strings]
    unseen = {n for n in names.identifiers("\n".join(secret)) if not names.is_usual(n)}
    prompted = names.identifiers(task.prompt)
    found = prompted | unseen | names.identifiers("\n".join([task.group, *facts]))
    naming = [text for key, text in strings if key in _NAMING.split()]
    parts = (names.part_names(text, package) for text in [package, task.group, *naming])
    texts = [task.prompt, *facts, *secret]
    split = [split_words(as_seen(text)) for text in texts]
    code = (*(text for text in facts if "\n" in text), *secret)
    return TaskSays(
        prompted,
        {name: names.forms_of(name) for name in found},
        {name.casefold() for name in set[str]().union(*parts)},
        [*map(" ".join, split)],
        [at for at, text in enumerate(texts) if names.is_short(text, split[at])],
        set[tuple[str, int, str]]().union(*map(names.code_lines, code)),
    )


def asked_words(texts: Iterable[str]) -> set[str]:
    """Return what of a task can be found in one of these texts is made of: its words, and words
    written as one."""
    found = set[str]()
    for text in texts:
        found.update(names.WORDS.findall(text.casefold()))
        for reading in readings(text):
            tokens = names.identifiers(reading.text).union(names.TOKEN.findall(reading.text))
            found.update(map(letters, tokens))
            found.update(names.WORDS.findall(reading.text.casefold()))
            words = split_words(reading.text)
            ends = ((at, at + n) for n in range(1, RUN + 1) for at in range(len(words)))
            found.update("".join(words[at:end]) for at, end in ends)
    return found


@cache
def edition_of_guards() -> str:
    """Return what changes whenever `read_task` may read a task otherwise, or count otherwise."""
    files = sorted(path for path in Path(__file__).parent.glob("*.*") if path.is_file())
    return digest([sys.version, *(path.read_text("utf-8") for path in files)])


class _Shared:
    """Things that tasks have: whose each is, the owner that came last, which several have (`many`),
    and which some train task has."""

    def __init__(self) -> None:
        self.owners: dict[Any, str] = {}
        self.train: set[Any] = set()
        self._by = defaultdict[str, set[Any]](set)

    def add(self, things: set[Any], by: str, owner: str) -> None:
        if things:
            self.owners.update(dict.fromkeys(things, owner))
            self._by[by] |= things
            if owner != HELD:
                self.train |= things

    @cached_property
    def many(self) -> set[Any]:
        found = set[Any]()
        seen = set[Any]()
        for things in self._by.values():
            found |= things & seen
            seen |= things
        return found


class _Parent:
    """What the agent says already."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.folded = text.casefold()
        self.words = {word.casefold() for word in names.WORD.findall(text)}
        words = split_words(text)
        self.squeezed = squeeze(text)
        ends = [(at, at + n) for n in range(1, RUN + 1) for at in range(len(words) - n + 1)]
        self.runs = {key_of(words[at:end]) for at, end in ends}

    def says(self, name: str) -> bool:
        """Return whether a name stands in it."""
        return name.casefold() in self.words or name in self.text


_read_parent = lru_cache(maxsize=4)(_Parent)


def _whose(owner: str) -> str:
    return HELD if owner == HELD else "a task"


def _seams(files: Mapping[str, str], path: str) -> str:
    """Return where a file may be read on into another one, or another into it."""
    bare = {name: text.strip("\n") for name, text in files.items() if text}
    ends = {name: (text[:_SEAM], text[-_SEAM:]) for name, text in bare.items()}
    begin, end = ends.pop(path, ("", ""))
    return _APART.join(f"{end}{first}{_APART}{last}{begin}" for first, last in ends.values())


def _owner(task: Task) -> str:
    return task.id if task.split == "train" else HELD


def _after(text: str, edit: Edit) -> str:
    """Return what an edit makes of a file, whether or not it may be made."""
    return text.replace(edit.old, edit.new, 1) if edit.old in text and edit.old else text + edit.new


def _ids(task: Task) -> list[str]:
    """Return what stands for the task as a whole; a plain word does not."""
    parts = sorted({task.id, task.group, task.id.rpartition(":")[2]})
    return [p.casefold() for p in parts if len(p) > 4 and re.search(r"[^A-Za-z]", p)]


@lru_cache(maxsize=8)
def _read_texts(texts: tuple[str, ...]) -> tuple[frozenset[str], frozenset[int]]:
    """Return (identifiers, quotations) of more texts: an optimizer asks about many edits and the
    same attempts."""
    found = {letters(name) for text in texts for name in names.identifiers(text)}
    return frozenset(found), frozenset(
        run for text in texts for run in names.run_keys(split_words(as_seen(text)))
    )
