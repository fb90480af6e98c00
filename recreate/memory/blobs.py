"""Texts too large for a line of experience: whole in files named after their SHA-256, once however often they occur.

    memory/DOMAIN/blobs/ab/REST      the text as UTF-8; `abREST` is the SHA-256 of the file, in hex

The line keeps the text's beginning and end with a note between them, so that whoever reads only lines (search by
meaning, the index, `jq`) sees that something was left out; beside the experience it has a reference for each text.
Nothing is believed: a file is hashed when it is read.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from recreate.storage.files import make, write
from recreate.storage.redact import redact

LARGE = 64 * 1024
"""Bytes of UTF-8 that a text in a line may have."""

HEAD, TAIL = 4_000, 20_000
"""Characters of a large text that stay in the line. An error is looked for in the last 20,000 of a text."""

_SHA = re.compile(r"[0-9a-f]{64}")
_DOMAIN = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
_NAMED = re.compile(rb'"sha256":"([0-9a-f]{64})"')


class Ref(NamedTuple):
    """Where in an experience a large text belongs: `at` is the way there, keys and places in lists."""

    at: tuple[str | int, ...]
    sha256: str
    bytes: int


class Whole(NamedTuple):
    """What was found of a blob: its text, or what is wrong with it (`missing`, `damaged`)."""

    text: str
    wrong: str


def is_large(text: str) -> bool:
    """Whether a text is too large for a line. Raises nothing, whatever is in it."""
    if len(text) * 4 <= LARGE:
        return False
    return len(text) > LARGE or len(_encoded(text)) > LARGE


def take_out(
    record: Mapping[str, Any], keep: Collection[str] = ()
) -> tuple[dict[str, Any], list[Ref], dict[str, bytes]]:
    """(the record with its large texts cut, their references, the texts by SHA-256); keys are masked first.

    What stands under the names in `keep` stays as it is.
    """
    refs: list[Ref] = []
    texts: dict[str, bytes] = {}
    seen: dict[str, tuple[str, str]] = {}  # an observation is the output before it: mask and hash it once

    def walk(value: Any, at: tuple[str | int, ...]) -> Any:
        if isinstance(value, dict):
            return {k: walk(v, (*at, str(k))) for k, v in value.items()}
        if isinstance(value, list | tuple):
            return [walk(v, (*at, n)) for n, v in enumerate(value)]
        if not isinstance(value, str) or not is_large(value):
            return value
        if value not in seen:
            masked = redact(value)
            data = _encoded(masked)
            sha = hashlib.sha256(data).hexdigest()
            texts[sha] = data
            seen[value] = (sha, _cut(masked, sha, len(data)))
        sha, short = seen[value]
        refs.append(Ref(at, sha, len(texts[sha])))
        return short

    return {k: v if k in keep else walk(v, (k,)) for k, v in record.items()}, refs, texts


def refs(record: Mapping[str, Any]) -> list[Ref]:
    """The references of a line's record, [] for none. One that makes no sense is left out."""
    found = []
    listed = record.get("blobs")
    for each in listed if isinstance(listed, list) else ():
        try:
            ref = Ref(tuple(each["at"]), each["sha256"], each["bytes"])
        except (KeyError, TypeError):
            continue
        if isinstance(ref.sha256, str) and _SHA.fullmatch(ref.sha256) and isinstance(ref.bytes, int):
            found.append(ref)
    return found


def named_in(raw: bytes) -> set[str]:
    """The SHA-256 that a line names, also when it is damaged."""
    return {sha.decode() for sha in _NAMED.findall(raw)}


def put_back(experience: dict[str, Any], ref: Ref, text: str) -> None:
    """Put a text where its reference says; nothing happens when there is no such place."""
    place: Any = experience
    try:
        for step in ref.at[:-1]:
            place = place[step]
        if isinstance(place[ref.at[-1]], str):
            place[ref.at[-1]] = text
    except (KeyError, IndexError, TypeError):
        return


class Blobs:
    """The blobs below a memory folder. Several processes may write at once: equal names are equal texts."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def path(self, domain: str, sha: str) -> Path:
        return self.folder / domain / "blobs" / sha[:2] / sha[2:]

    def put(self, domain: str, texts: Mapping[str, bytes]) -> None:
        """Write what is not there whole yet; on the disk when this returns. Raises Fault naming the folder.

        The caller holds the memory folder's lock, so that nobody prunes a blob before a line names it.
        """
        for sha, data in texts.items():
            path = self.path(domain, sha)
            if self._is(path, sha, len(data)):
                continue
            make(self.folder / domain / "blobs", ignored=True)
            write(path, data, durable=True)  # the line that names it must not outlive it; and blobs are rare

    def whole(self, domain: str, ref: Ref) -> Whole:
        """The text of a reference, verified."""
        try:
            data = self.path(domain, ref.sha256).read_bytes() if _DOMAIN.fullmatch(domain) else None
        except (FileNotFoundError, NotADirectoryError):
            data = None
        except OSError:  # a disk that cannot read it, a folder in its place
            return Whole("", "damaged")
        if data is None:
            return Whole("", "missing")
        if len(data) != ref.bytes or hashlib.sha256(data).hexdigest() != ref.sha256:
            return Whole("", "damaged")
        return Whole(data.decode("utf-8", "surrogatepass"), "")

    def restore(self, record: Mapping[str, Any]) -> dict[str, Any]:
        """The experience of a line's record with its large texts whole; a note takes the place of one that is lost."""
        experience: dict[str, Any] = record["experience"]
        read: dict[str, Whole] = {}
        for ref in refs(record):
            domain = str(experience.get("domain", ""))
            found = read.get(ref.sha256) or self.whole(domain, ref)
            read[ref.sha256] = found
            if found.wrong:
                note = (
                    f"[{found.wrong}: a text of {ref.bytes:,} bytes, SHA-256 {ref.sha256}. What the line kept of it:]\n"
                )
                found = Whole(note + _at(experience, ref), "")
            put_back(experience, ref, found.text)
        return experience

    def all(self) -> Iterator[tuple[str, str, Path]]:
        """(domain, SHA-256, file) of every blob there is."""
        for path in sorted(self.folder.glob("*/blobs/??/*")):
            sha = path.parent.name + path.name
            if _SHA.fullmatch(sha):
                yield path.parents[2].name, sha, path

    def drafts(self) -> list[Path]:
        """What writers that were killed left behind; also what one that is at work has just begun."""
        return sorted(self.folder.glob("*/blobs/??/*.draft"))

    def sound(self, domain: str, sha: str) -> str:
        """'' for a blob that is what its name says, else `missing` or `damaged`."""
        try:
            return "" if _sha(self.path(domain, sha)) == sha else "damaged"
        except FileNotFoundError:
            return "missing"
        except OSError:
            return "damaged"

    def _is(self, path: Path, sha: str, size: int) -> bool:
        try:
            return path.stat().st_size == size and _sha(path) == sha
        except OSError:
            return False


def _sha(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _encoded(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")


def _cut(text: str, sha: str, size: int) -> str:
    between = f"\n[... {size:,} bytes in all, SHA-256 {sha}: `recreate traces show` has them ...]\n"
    return text[:HEAD] + between + text[-TAIL:]


def _at(experience: Any, ref: Ref) -> str:
    for step in ref.at:
        try:
            experience = experience[step]
        except (KeyError, IndexError, TypeError):
            return ""
    return experience if isinstance(experience, str) else ""
