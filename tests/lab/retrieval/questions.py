"""Questions whose answer is an attempt, of four kinds: made by rules from the attempts, and written
(queries.jsonl, paraphrases.jsonl). Half of them may be looked at while something is tuned; the
other half was not.

error       what a program printed, as it stands there, or as another run would print it: other
            numbers and values
identifier  a name of code, alone or in a sentence
paraphrase  what an attempt was about, avoiding its words
situation   what happened in an attempt at a package
"""

from __future__ import annotations

import json
import re
import zlib
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from recreate.api.types import Experience
from tests.lab.retrieval import HERE, experiences, queries

KINDS = ("error", "identifier", "paraphrase", "situation")

MOST = 6
"""Attempts that may answer a question at most."""

_ERROR = re.compile(r"\b((?:[A-Z]\w*(?:Error|Exception|Invalid)|Failed): [^\n]{8,110})")
_NAME = re.compile(
    r"\b(?:[A-Za-z]+_[A-Za-z_0-9]+|[A-Z][a-z]+[A-Z]\w+|[A-Za-z]\w{2,}\.[A-Za-z]\w+(?:\.\w+)*)\b"
)

_SENTENCES = (
    "{}",
    "{}",
    "{}",
    "what was changed in {}",
    "attempts that had to mend {}",
    "where {} is called",
    "why {} fails",
)

_HAPPENED = {
    "the right answer was found for {}": r": solved",
    "nothing was handed in for {}": r"nothing to grade in the answer",
    "the reply for {} could not be read as Python": r"not valid Python",
    "the agent gave back the code of {} unchanged": r"the function is the same as before",
    "only a single line of {} was corrected": r"one line of .* is corrected",
    "a change was made in {} and the test went on failing": (
        r"with that the failing test still fails"
    ),
    "a repair of {} made other tests fail that had passed": r"PASS_TO_PASS (?!(\d+)/\1\b)\d+/\d+",
    "functions of {} were written anew": r"^rewritten: ",
}


class Asked(NamedTuple):
    """One question and the ids of the experiences that answer it."""

    kind: str
    text: str
    relevant: frozenset[str]

    @property
    def unseen(self) -> bool:
        """Whether it belongs to the half that nothing was tuned with."""
        return zlib.crc32(self.text.encode()) % 2 == 0


def questions() -> list[Asked]:
    """All of them, the same each time; no two with one text."""
    attempted = experiences()
    found: dict[str, Asked] = {}
    for asked in (
        *_written(attempted),
        *_errors(attempted),
        *_names(attempted),
        *_situations(attempted),
    ):
        found.setdefault(asked.text, asked)
    return list(found.values())


def _written(attempted: Sequence[Experience]) -> Iterator[Asked]:
    """Those of queries.jsonl that few attempts answer, and more paraphrases, a task each."""
    kinds = {"paraphrase": "paraphrase", "situation": "situation"}
    for query in queries():
        ids = frozenset(id.partition("/")[0] for id in query.relevant)
        kind = kinds.get(query.kind) or ("error" if _ERROR.search(query.text) else "identifier")
        if len(ids) <= 4 * MOST:
            yield Asked(kind, query.text, ids)
    for line in (HERE / "paraphrases.jsonl").read_text("utf-8").splitlines():
        said = json.loads(line)
        ids = frozenset(e.id for e in attempted if e.task.rpartition(":")[2] == said["task"])
        yield Asked("paraphrase", said["text"], ids)


def _errors(attempted: Sequence[Experience]) -> Iterator[Asked]:
    texts = {
        e.id: "\n".join([e.prompt, e.grade.evidence, *(s.output for s in e.trace.steps)])
        for e in attempted
    }
    lines = dict.fromkeys(m.strip() for text in texts.values() for m in _ERROR.findall(text))
    for n, line in enumerate(lines):
        ids = frozenset(id for id, text in texts.items() if line in text)
        if len(ids) <= MOST:
            yield Asked("error", _another_run(line) if n % 2 else line, ids)


def _another_run(line: str) -> str:
    """The same error with other numbers, and other one-word values in quotes."""
    other = re.sub(r"\d+", lambda m: str(int(m.group()[:6]) * 7 + 3), line)
    return re.sub(r"'[a-z]{1,12}'", "'other'", other)


def _names(attempted: Sequence[Experience]) -> Iterator[Asked]:
    texts = {e.id: _all(e) for e in attempted}
    counted = Counter(name for text in texts.values() for name in set(_NAME.findall(text)))
    names = sorted((name for name, n in counted.items() if n <= MOST and len(name) > 5), key=_draw)
    for n, name in enumerate(names[:130]):
        ids = frozenset(
            id
            for id, text in texts.items()
            if re.search(rf"(?<![\w.]){re.escape(name)}(?![\w.])", text)
        )
        if ids:
            yield Asked("identifier", _SENTENCES[n % len(_SENTENCES)].format(name), ids)


def _situations(attempted: Sequence[Experience]) -> Iterator[Asked]:
    packages = sorted({_package(e) for e in attempted})
    for package in packages:
        for sentence, pattern in _HAPPENED.items():
            ids = frozenset(
                e.id
                for e in attempted
                if _package(e) == package and re.search(pattern, _all(e), re.MULTILINE)
            )
            if 0 < len(ids) <= 2 * MOST:
                yield Asked("situation", sentence.format(package), ids)


def _package(e: Experience) -> str:
    return e.task.split(":")[1].rpartition("-")[0]


def _all(e: Experience) -> str:
    return "\n".join(
        [
            e.prompt,
            e.grade.evidence,
            *(f"{s.observation}\n{s.action}\n{s.output}" for s in e.trace.steps),
        ]
    )


def _draw(name: str) -> int:
    """A fixed order that has nothing to do with what the names say."""
    return zlib.crc32(name.encode())
