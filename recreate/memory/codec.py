"""What an experience is on disk: one sealed line, and files of the texts that are too large for it.

    memory/DOMAIN/experiences/RUN.jsonl   the lines
    memory/DOMAIN/blobs/ab/REST           a large text as UTF-8; `abREST` is the SHA-256 of the
                                          file, in hex

A line keeps a large text's beginning and end with a note between them, so that whoever reads only
lines (search by meaning, the index, `jq`) sees that something was left out; beside the experience
it has a reference for each text. Equal texts are one file, and so are the system messages and the
parameters (schemas of tools) that many attempts share: of these the line keeps nothing. Nothing is
believed: a file is hashed when it is read.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from pydantic import BaseModel

from recreate.api.errors import BadInput
from recreate.api.shapes import JsonDict, JsonMap
from recreate.api.types import SCHEMA, Experience, Grade, Provisional, Sent, Step, Trace, digest
from recreate.storage.files import make, write
from recreate.storage.log import encode, now, seal
from recreate.storage.redact import redacted

Kept = TypeVar("Kept", bound=BaseModel)

LARGE = 64 * 1024
"""Bytes of UTF-8 that a text in a line may have."""

SHARED = 512
"""Bytes from which on a system message, or a parameter as JSON, is a file that attempts share."""

HEAD = 4_000
TAIL = 20_000
"""Characters of a large text that stay in the line. An error is looked for in the last 20,000 of a
text."""

_SHA = re.compile(r"[0-9a-f]{64}")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
_NAMED = re.compile(rb'"sha256":"([0-9a-f]{64})"')


# the line


def file_of(folder: Path, domain: str, run: str, kind: str = "experiences") -> Path:
    """Return the file of a run's lines. Raises BadInput for a domain that cannot name a folder.

    One file a run, so that builds side by side do not wait for each other's disk and a run can be
    deleted.
    """
    if not _NAME.fullmatch(domain) or domain == "index":
        raise BadInput(
            f"{domain!r} cannot be a domain: it names a folder",
            fix="letters, digits, `.`, `_` and `-`, and not `index`",
        )
    name = run if _NAME.fullmatch(run) else f"run-{digest(run)}" if run else "no-run"
    return folder / domain / kind / f"{name}.jsonl"


def sealed(e: Experience, when: str | None = None) -> tuple[bytes, dict[str, bytes]]:
    """Return the line to be written, and the texts that are too large for it by SHA-256. when: it
    was recorded, `` when nobody knows; None: now."""
    when = now() if when is None else when
    e, named, texts = _share(e)
    if any(map(is_large, _texts(e))):
        record, more, large = _take_out(e.model_dump(mode="json"))
        line = {
            "experience": record,
            "blobs": [ref.as_record() for ref in (*named, *more)],
            "when": when,
        }
        return seal(line), texts | large
    about = {"blobs": [ref.as_record() for ref in named]} if named else {}
    return seal(encode({"experience": e, **about, "schema": SCHEMA, "when": when})), texts


_NAMES: Mapping[type, frozenset[str]] = {
    Experience: frozenset({"id", "domain", "task", "group", "split", "digest", "run"}),
    Trace: frozenset({"attempt", "task", "scaffold", "model", "ending", "limit"}),
    Step: frozenset({"kind", "offered", "propensities"}),
    Provisional: frozenset({"model"}),
}
"""Fields that say which one it is, and stay: a masked id would be another experience."""


def masked(record: Kept) -> Kept:
    """Return an experience without keys in its texts: what was asked, seen, said, done, handed in,
    and said of it.

    Itself when there is nothing to mask.
    """
    names = _NAMES.get(type(record), frozenset())
    fields = {name: value for name, value in record if name not in names}
    changed = {name: new for name, value in fields.items() if (new := _masked(value)) is not value}
    return type(record).model_validate({**dict(record), **changed}) if changed else record


_MASKED = (Experience, Trace, Step, Grade, Provisional, Sent)


def _masked(value: Any) -> Any:
    if value is None or isinstance(value, int | float):
        return value
    if isinstance(value, _MASKED):
        return masked(value)
    if isinstance(value, tuple) and value and isinstance(value[0], Step):
        steps = tuple(map(masked, value))
        return value if all(a is b for a, b in zip(steps, value, strict=True)) else steps
    return redacted(value)


_OF_A_STEP = {
    "sample",
    "kind",
    "observation",
    "reply",
    "action",
    "output",
    "status",
    "offered",
    "after",
}


def what_happened(e: Experience) -> str:
    """Return a digest of what was said, done, handed in and graded: the same for two attempts that
    went alike, whatever they cost and how long they took."""
    trace = e.trace
    grade = e.grade
    steps = [step.model_dump(mode="json", include=_OF_A_STEP) for step in trace.steps]
    end = [trace.ending, trace.limit, trace.chosen, trace.answer]
    return digest([steps, end, grade.score, grade.passed, grade.evidence])


def _texts(e: Experience) -> Iterator[str]:
    """Yield every text of an experience that may be large."""
    stack: list[Any] = [e]
    while stack:
        value = stack.pop()
        if isinstance(value, str):
            yield value
        elif isinstance(value, BaseModel):
            stack += [*vars(value).values(), *(value.model_extra or {}).values()]
        elif isinstance(value, Mapping):
            stack += value.values()
        elif isinstance(value, list | tuple):
            stack += value


# its large texts


class Ref(NamedTuple):
    """Where in an experience a text belongs: `at` is the way there, keys and places in lists. json:
    the text is JSON, and its value belongs there, where the line has null."""

    at: tuple[str | int, ...]
    sha256: str
    bytes: int
    json: bool = False

    def as_record(self) -> JsonDict:
        """Return it as it stands in a line."""
        return (
            {**self._asdict(), "json": True}
            if self.json
            else {k: getattr(self, k) for k in self._fields[:3]}
        )


def is_large(text: str) -> bool:
    """Whether a text is too large for a line. Raises nothing, whatever is in it."""
    if len(text) * 4 <= LARGE:
        return False
    return len(text) > LARGE or len(_encoded(text)) > LARGE


def _share(e: Experience) -> tuple[Experience, list[Ref], dict[str, bytes]]:
    """Return (the experience without the system messages and parameters that its requests share
    with those of other attempts, their references, the texts by SHA-256)."""
    refs: list[Ref] = []
    texts: dict[str, bytes] = {}
    steps = list(e.trace.steps)

    def out(value: Any, *at: str | int) -> bool:
        is_text = isinstance(value, str)
        data = _encoded(value if is_text else encode(value))
        if len(data) < SHARED:
            return False
        sha = hashlib.sha256(data).hexdigest()
        texts[sha] = data
        refs.append(Ref(("trace", "steps", *at), sha, len(data), not is_text))
        return True

    for n, step in enumerate(steps):
        if (sent := step.sent) is None:
            continue
        rest = [
            (
                {**part, "content": ""}
                if _is_system(part) and out(part["content"], n, "sent", "rest", i, "content")
                else part
            )
            for i, part in enumerate(sent.rest)
        ]
        values = {
            k: v for k, v in sent.params.items() if isinstance(v, str | list | tuple | Mapping)
        }
        params = {
            k: "" if isinstance(v, str) else None
            for k, v in values.items()
            if out(v, n, "sent", "params", k)
        }
        if params or rest != list(sent.rest):
            update = {"rest": tuple(rest), "params": {**sent.params, **params}}
            steps[n] = step.model_copy(update={"sent": sent.model_copy(update=update)})
    if not refs:
        return e, refs, texts
    return (
        e.model_copy(update={"trace": e.trace.model_copy(update={"steps": tuple(steps)})}),
        refs,
        texts,
    )


def _is_system(part: Any) -> bool:
    role = part.get("role") if isinstance(part, Mapping) else None
    return role in ("system", "developer") and isinstance(part.get("content"), str)


def _take_out(record: JsonMap) -> tuple[JsonDict, list[Ref], dict[str, bytes]]:
    """Return (the record with its large texts cut, their references, the texts by SHA-256)."""
    refs: list[Ref] = []
    texts: dict[str, bytes] = {}
    seen: dict[str, tuple[str, str]] = {}  # an observation is the output before it: hash it once

    def walk(value: Any, at: tuple[str | int, ...]) -> Any:
        if isinstance(value, dict):
            return {k: walk(v, (*at, str(k))) for k, v in value.items()}
        if isinstance(value, list | tuple):
            return [walk(v, (*at, n)) for n, v in enumerate(value)]
        if not isinstance(value, str) or not is_large(value):
            return value
        if value not in seen:
            data = _encoded(value)
            sha = hashlib.sha256(data).hexdigest()
            texts[sha] = data
            between = (
                f"\n[... {len(data):,} bytes in all, SHA-256 {sha}: `recreate traces show` has them"
                " ...]\n"
            )
            seen[value] = (sha, value[:HEAD] + between + value[-TAIL:])
        sha, short = seen[value]
        refs.append(Ref(at, sha, len(texts[sha])))
        return short

    return {k: walk(v, (k,)) for k, v in record.items()}, refs, texts


def refs(record: JsonMap) -> list[Ref]:
    """Return the references of a line's record, [] for none. One that makes no sense is left
    out."""
    found = []
    listed = record.get("blobs")
    for each in listed if isinstance(listed, list) else ():
        try:
            ref = Ref(tuple(each["at"]), each["sha256"], each["bytes"], each.get("json") is True)
        except (KeyError, TypeError, AttributeError):
            continue
        if (
            isinstance(ref.sha256, str)
            and _SHA.fullmatch(ref.sha256)
            and isinstance(ref.bytes, int)
        ):
            found.append(ref)
    return found


def named_in(raw: bytes) -> set[str]:
    """Return the SHA-256 that a line names, also when it is damaged."""
    return {sha.decode() for sha in _NAMED.findall(raw)}


class Blobs:
    """The large texts below a memory folder. Several processes may write at once: equal names are
    equal texts."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def path(self, domain: str, sha: str) -> Path:
        return self.folder / domain / "blobs" / sha[:2] / sha[2:]

    def put_texts(self, domain: str, texts: Mapping[str, bytes]) -> None:
        """Write what is not there whole yet; on the disk when this returns. Raises Fault naming the
        folder.

        The caller holds the memory folder's lock, so that nobody prunes a blob before a line names
        it.
        """
        for sha, data in texts.items():
            if self.wrong(domain, sha):
                make(self.folder / domain / "blobs", ignored=True)
                # durable: the line that names it must not outlive it; and blobs are rare
                write(self.path(domain, sha), data, durable=True)

    def restore(self, record: JsonMap) -> JsonDict:
        """Return the experience of a line's record with its large texts whole; a note stands before
        what is left of one."""
        experience: JsonDict = record["experience"]
        read: dict[str, str | bytes] = {}
        for ref in refs(record):
            place = _place(experience, ref)
            if place is None:
                continue
            if ref.sha256 not in read:
                read[ref.sha256] = self._read(str(experience.get("domain", "")), ref)
            found = read[ref.sha256]
            if isinstance(found, bytes):
                text = found.decode("utf-8", "surrogatepass")
                place[ref.at[-1]] = json.loads(text) if ref.json else text
            else:
                about = (
                    f"a text of {ref.bytes:,} bytes, SHA-256 {ref.sha256}. What the line kept of it"
                )
                place[ref.at[-1]] = f"[{found}: {about}:]\n{place[ref.at[-1]] or ''}"
        return experience

    def all(self) -> Iterator[tuple[str, str, Path]]:
        """Yield (domain, SHA-256, file) of every blob there is."""
        for path in sorted(self.folder.glob("*/blobs/??/*")):
            sha = path.parent.name + path.name
            if _SHA.fullmatch(sha):
                yield path.parents[2].name, sha, path

    def drafts(self) -> list[Path]:
        """Return what writers that were killed left behind; also what one that is at work has just
        begun."""
        return sorted(self.folder.glob("*/blobs/??/*.draft"))

    def wrong(self, domain: str, sha: str) -> str:
        """Return '' for a blob that is what its name says, else `missing` or `damaged`."""
        try:
            with self.path(domain, sha).open("rb") as file:
                return "" if hashlib.file_digest(file, "sha256").hexdigest() == sha else "damaged"
        except FileNotFoundError:
            return "missing"
        except OSError:
            return "damaged"

    def _read(self, domain: str, ref: Ref) -> bytes | str:
        """Return the text of a reference, verified, as UTF-8; `missing` or `damaged` when there is
        none."""
        if not _NAME.fullmatch(domain):
            return "missing"
        try:
            data = self.path(domain, ref.sha256).read_bytes()
        except (FileNotFoundError, NotADirectoryError):
            return "missing"
        except OSError:  # a disk that cannot read it, a folder in its place
            return "damaged"
        whole = len(data) == ref.bytes and hashlib.sha256(data).hexdigest() == ref.sha256
        return data if whole else "damaged"


def _place(experience: Any, ref: Ref) -> Any:
    """Return what holds the text of a reference under the last of its keys; None when there is no
    such place."""
    try:
        for step in ref.at[:-1]:
            experience = experience[step]
        there = experience[ref.at[-1]]
        return experience if (there is None if ref.json else isinstance(there, str)) else None
    except (KeyError, IndexError, TypeError):
        return None


def _encoded(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")
