"""A memory, or one domain of it, as one file: taken along, kept aside, given to somebody, merged
into another.

    manifest.json                format, version, schema, and of each other member its bytes and
                                 SHA-256
    held_out.jsonl               what must stay hidden wherever this goes
    forgotten.jsonl              what must not come back
    DOMAIN/experiences.jsonl     a sealed line each, as in memory/; `when` is that of the first
                                 recording
    DOMAIN/waiting.jsonl         imported, not graded yet
    DOMAIN/blobs/SHA256          the texts that are too large for a line
    DOMAIN/KIND/ID.md            lessons, patterns and what other policies keep; general/ID.md

A zip without dates: the same memory makes the same file. Of what is read nothing is believed and
nothing is unpacked to the disk: each name, size, sum, line and lesson is looked at before the first
is taken in, by the doors that every experience comes in by (masked, held out, not when it was
forgotten). Derived things are not in it.
"""

from __future__ import annotations

import hashlib
import re
import stat
import zipfile
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import closing, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Literal, NamedTuple

from pydantic import Field, ValidationError

from recreate.agents.lesson import headed, read_lesson
from recreate.api import paths
from recreate.api.errors import BadInput
from recreate.api.shapes import JsonDict
from recreate.api.types import SCHEMA, Experience, Lesson, Record
from recreate.memory.codec import Blobs, Ref, masked, refs, sealed
from recreate.memory.forget import lesson_files, lesson_mark, surviving
from recreate.memory.held_out import Held
from recreate.memory.store import ExperienceStore
from recreate.plugins.traces.readers import unpack_errors
from recreate.plugins.traces.ungraded import Ungraded
from recreate.storage.files import locked, replacing, write
from recreate.storage.log import decode, encode, is_deep, seal, unix, unseal
from recreate.storage.redact import redacted

MEMBERS = 1_000_000
LINE = 256 << 20
"""Bytes of one line with its large texts, and of the manifest."""
LESSON = 4 << 20
RATIO = 200
SMALL = 1 << 30
"""A file that unpacks to more than SMALL bytes may do so to RATIO times its size."""
BATCH = 100
BATCH_BYTES = 32 << 20
"""So many experiences, or bytes of their lines, are taken in at once."""

_FOLDER = r"(?!index/|general/)[A-Za-z0-9][A-Za-z0-9._-]{0,99}"
_KIND = r"(?!experiences/|waiting/|blobs/)[A-Za-z0-9][A-Za-z0-9._-]{0,99}"
_LINES = re.compile(rf"(?P<domain>{_FOLDER}(?=/))/(?P<kind>experiences|waiting)\.jsonl")
_BLOB = re.compile(rf"(?P<domain>{_FOLDER}(?=/))/blobs/(?P<sha>[0-9a-f]{{64}})")
_LESSON = re.compile(
    rf"(?:(?P<domain>{_FOLDER}(?=/))/(?P<kind>{_KIND}(?=/))|general)/(?P<id>\w[\w .-]{{0,119}})\.md"
)
_ID = re.compile(r"[\w.:-]{1,200}")


class ArchiveMember(Record):
    """What the manifest says of a member: its size unpacked, and the SHA-256 of that in hex."""

    bytes: int = Field(ge=0)
    sha256: str = Field(pattern=r"^[0-9a-f]{64}$")


class ArchiveManifest(Record):
    """The member manifest.json. domain: of which it is alone; '' for all."""

    format: Literal["recreate-memory"] = "recreate-memory"
    version: Literal[1] = 1
    domain: str = ""
    members: Mapping[str, ArchiveMember]


@dataclass
class Packed:
    """What was written. hidden: validation and test attempts; damaged: large texts in whose place a
    note stands; left_out: files of lessons that cannot be read, or that cite what is held out and
    not in the file.
    """

    experiences: int = 0
    hidden: int = 0
    waiting: int = 0
    lessons: int = 0
    damaged: int = 0
    bytes: int = 0
    left_out: list[str] = field(default_factory=list)


@dataclass
class Unpacked:
    """What came in. known: it was here already; forgotten: it was forgotten here, and stays so;
    differ: ids, or files of lessons, that are here with other content, which stays; held_out: new
    entries of the registry; kept: attempts that were forgotten where the file is from and are
    here."""

    experiences: int = 0
    waiting: int = 0
    lessons: int = 0
    known: int = 0
    forgotten: int = 0
    held_out: int = 0
    differ: list[str] = field(default_factory=list)
    kept: list[str] = field(default_factory=list)


# ------------------------------------------------------------------------------------------------
# out


def pack(memory: ExperienceStore, path: Path, domain: str = "") -> Packed:
    """Write a memory, or one domain of it, to a file that is not there yet.

    Texts are masked once more: a key that became known since they were stored is in no line. Raises
    BadInput when there is nothing, or the file is there, OSError where it cannot be written.
    """
    if path.exists() or path.is_symlink():
        raise BadInput(
            f"{paths.short(path)} is there already", fix="name another file", code="exists"
        )
    memory.metadata.refresh()
    waiting = {e.domain: None for e in Ungraded(memory).waiting(domain)}
    domains = sorted(
        {row["domain"] for row in memory.facts({"domain": domain} if domain else {})}
        | waiting.keys()
    )
    found = Packed()
    lessons = dict(_lessons(memory, domain, found))
    if not domains and not lessons:
        raise BadInput(
            f"nothing of {domain} is remembered here" if domain else "nothing is remembered here",
            fix="recreate memory stats shows what there is",
            code="nothing-remembered",
        )
    with replacing(path, durable=True) as file:
        with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
            out = _Members(archive)
            names = set[str]()
            for each in domains:
                texts = dict[str, bytes | None]()
                out.put_member(
                    f"{each}/experiences.jsonl", _lines(memory, each, texts, names, found)
                )
                out.put_member(f"{each}/waiting.jsonl", _waiting(memory, each, found))
                for sha, data in sorted(texts.items()):
                    out.put_member(
                        f"{each}/blobs/{sha}", [data or memory.blobs.path(each, sha).read_bytes()]
                    )
            for name, text in lessons.items():
                out.put_member(name, [text.encode("utf-8", "surrogatepass")])
            held = sorted(set(_list_held_out(memory, domain, names)))
            out.put_member("held_out.jsonl", (seal(h._asdict()) for h in held))
            out.put_member(
                "forgotten.jsonl", (seal({"id": id}) for id in sorted(memory.forgotten.read()))
            )
            out.finish(domain)
        found.bytes = file.tell()
    return found


class _Members:
    """Members of a zip, with what the manifest says of them."""

    def __init__(self, archive: zipfile.ZipFile) -> None:
        self.archive = archive
        self.members: dict[str, ArchiveMember] = {}

    def put_member(self, name: str, parts: Iterable[bytes]) -> None:
        """A member of these parts; none when there are none."""
        size = 0
        sum_ = hashlib.sha256()
        file = None
        for part in parts:
            if file is None:
                about = zipfile.ZipInfo(name)  # of 1980: it says nothing of when it was made
                about.compress_type = zipfile.ZIP_DEFLATED
                about.external_attr = 0o644 << 16
                file = self.archive.open(about, "w", force_zip64=True)
            size += len(part)
            sum_.update(part)
            file.write(part)
        if file is not None:
            file.close()
            self.members[name] = ArchiveMember(bytes=size, sha256=sum_.hexdigest())

    def finish(self, domain: str) -> None:
        self.put_member(
            "manifest.json", [encode(ArchiveManifest(domain=domain, members=self.members)).encode()]
        )


def _lines(
    memory: ExperienceStore,
    domain: str,
    texts: dict[str, bytes | None],
    names: set[str],
    found: Packed,
) -> Iterator[bytes]:
    """The lines of a domain. texts: their large texts by SHA-256, None for one that lies in memory
    so; names: of their groups and tasks."""
    for row in list(memory.facts({"domain": domain})):
        line = memory.metadata.find(row["id"])
        e = memory.get(row["id"])
        if e is None or line is None or line.record is None:
            continue  # it went meanwhile
        found.damaged += sum(
            bool(memory.blobs.wrong(domain, sha)) for sha in {r.sha256 for r in refs(line.record)}
        )
        data, large = sealed(masked(e), str(line.record.get("when", "")))
        for sha, text in large.items():
            texts[sha] = text if memory.blobs.wrong(domain, sha) else None
        names |= {e.group, e.task, e.id} - {""}
        found.experiences += 1
        found.hidden += e.split != "train"
        yield data


def _waiting(memory: ExperienceStore, domain: str, found: Packed) -> Iterator[bytes]:
    for e in Ungraded(memory).waiting(domain):
        found.waiting += 1
        yield seal({"experience": masked(e).model_dump(mode="json")})


def _lessons(memory: ExperienceStore, domain: str, found: Packed) -> Iterator[tuple[str, str]]:
    """(member, text) of the lessons of a domain and the general ones, or of all."""
    for path, lesson in lesson_files(memory.folder, found.left_out):
        name = path.relative_to(memory.folder).as_posix()
        if domain and not (
            name.startswith(f"{domain}/")
            or (name.startswith("general/") and domain in lesson.domains)
        ):
            continue
        if not _LESSON.fullmatch(name) or (domain and _is_closed_elsewhere(memory, lesson, domain)):
            found.left_out.append(name)
            continue
        found.lessons += 1
        yield name, headed(_masked_lesson(lesson))


def _is_closed_elsewhere(memory: ExperienceStore, lesson: Lesson, domain: str) -> bool:
    """Whether it cites a held-out experience of another domain: where that is not, nobody would
    know to hide it."""
    cited = {"experience": [*lesson.born_of, *lesson.supports, *lesson.contradicts]}
    if not cited["experience"]:
        return False
    seen = {row["id"] for row in memory.facts(cited, "optimizer")}
    return any(row["id"] not in seen and row["domain"] != domain for row in memory.facts(cited))


def _list_held_out(memory: ExperienceStore, domain: str, names: Collection[str]) -> Iterator[Held]:
    """The registry, and what is closed by what files hold; of a domain, what is its own or names
    one of `names`, which has no ''."""
    groups, tasks = memory.metadata.closed_names()
    closed = [
        *(Held(g, "", "validation", "") for g in groups),
        *(Held("", t, "validation", "") for t in tasks),
    ]
    for held in [*memory.held_out.entries(), *closed]:
        if not domain or held.domain == domain or held.group in names or held.task in names:
            yield held


def _masked_lesson(lesson: Lesson) -> Lesson:
    title = redacted(lesson.title)
    body = redacted(lesson.body)
    return (
        lesson
        if (title, body) == (lesson.title, lesson.body)
        else lesson.model_copy(update={"title": title, "body": body})
    )


# ------------------------------------------------------------------------------------------------
# in


def unpack(
    memory: ExperienceStore, path: Path, domain: str = "", *, own: bool = False, dry: bool = False
) -> Unpacked:
    """Merge a file that `pack` wrote, or one domain of it, into a memory; `dry` only looks. own: it
    is of this memory, and what it says of trust holds; else all of it is foreign, and none of its
    lessons is in use.

    What is here stays as it is, what was forgotten here stays forgotten, and what either holds out
    is held out. The whole file is looked at first: BadInput, and nothing came in, for one that is
    damaged or no such file. Killed in the middle, the same again completes it. Raises Fault when
    the disk does not take it.
    """
    found = Unpacked()
    with closing(_Archive(path)) as archive:
        archive.verify()
        if domain and domain not in archive.domains():
            raise BadInput(
                f"{path.name} holds nothing of {domain}",
                fix=f"it holds {', '.join(sorted(archive.domains()))}",
                code="no-domain",
            )
        _registries(memory, archive, found, dry=dry)
        for name, match in archive.matching(_LINES):
            if domain in ("", match["domain"]):
                here = Ungraded(memory).ids() if match["kind"] == "waiting" else None
                for batch in _batches(archive.experiences(name, match["domain"])):
                    if here is None:
                        _take(memory, batch, found, own=own, dry=dry)
                    else:
                        _take_waiting(memory, batch, here, found, own=own, dry=dry)
        for name, match in archive.matching(_LESSON):
            if domain in ("", match["domain"] or ""):
                _take_lesson(memory, archive.lesson(name), name, match, found, own=own, dry=dry)
    return found


def _distrust(e: Experience, own: bool) -> Experience:
    """Return an experience as it is taken in."""
    return e if own else e.model_copy(update={"trust": "foreign", "checked": False})


def _distrust_lesson(lesson: Lesson, own: bool) -> Lesson:
    """Return a lesson as it is taken in: one of others is on trial."""
    status = "candidate" if lesson.status == "active" else lesson.status
    return lesson if own else lesson.model_copy(update={"trust": "foreign", "status": status})


def _registries(memory: ExperienceStore, archive: _Archive, found: Unpacked, *, dry: bool) -> None:
    """First of all: killed from here on, nothing was shown that had to be hidden."""
    before = set(memory.held_out.entries())
    held = [h for h in archive.held_out() if h not in before]
    found.held_out = len(set(held))
    gone = [id for id in archive.forgotten() if id not in memory.forgotten.read()]
    memory.metadata.refresh()
    here = memory.metadata.knows(gone)
    found.kept = sorted(here)
    if not dry:
        memory.held_out.add(held)
        memory.forgotten.add(set(gone) - here)


class _Line(NamedTuple):
    experience: Experience
    when: str
    bytes: int


def _batches(lines: Iterator[_Line]) -> Iterator[list[_Line]]:
    batch = list[_Line]()
    size = 0
    for line in lines:
        batch.append(line)
        size += line.bytes
        if len(batch) == BATCH or size > BATCH_BYTES:
            yield batch
            batch = []
            size = 0
    if batch:
        yield batch


def _take(
    memory: ExperienceStore, batch: list[_Line], found: Unpacked, *, own: bool, dry: bool
) -> None:
    gone = memory.forgotten.read()
    found.forgotten += sum(line.experience.id in gone for line in batch)
    batch = [line for line in batch if line.experience.id not in gone]
    memory.metadata.refresh()
    known = memory.metadata.knows([line.experience.id for line in batch])
    for e in (line.experience for line in batch if line.experience.id in known):
        found.known += 1
        if memory.get(e.id) not in (masked(e), masked(_distrust(e, own))):
            found.differ.append(e.id)
    new = [line for line in batch if line.experience.id not in known]
    found.experiences += len(new)
    if not dry:
        when = {line.experience.id: line.when for line in new}
        memory.add([_distrust(line.experience, own) for line in new], when)


def _take_waiting(
    memory: ExperienceStore,
    batch: list[_Line],
    here: Collection[str],
    found: Unpacked,
    *,
    own: bool,
    dry: bool,
) -> None:
    """here: the ids that wait here already."""
    gone = memory.forgotten.read()
    memory.metadata.refresh()
    known = memory.metadata.knows([line.experience.id for line in batch]).union(here)
    taken = (_distrust(masked(line.experience), own) for line in batch)
    new = [e for e in taken if e.id not in known | gone]
    found.forgotten += sum(line.experience.id in gone for line in batch)
    found.known += sum(line.experience.id in known - gone for line in batch)
    found.waiting += len(new)
    if not dry:
        memory.held_out.add(Held(e.group, e.task, e.split, e.domain) for e in new)
        Ungraded(memory).add(new)


def _take_lesson(
    memory: ExperienceStore,
    lesson: Lesson,
    name: str,
    match: re.Match[str],
    found: Unpacked,
    *,
    own: bool,
    dry: bool,
) -> None:
    """One of a name that is here, in whatever of the domain's folders, changes nothing."""
    gone = memory.forgotten.read()
    left = surviving(lesson, gone)
    if left is None or lesson_mark(match["domain"] or "general", lesson.id) in gone:
        found.forgotten += 1
        return
    climbing = (
        ["patterns", "lessons"]
        if match["kind"] in ("lessons", "patterns", None)
        else [match["kind"]]
    )
    folders = [memory.folder / (match["domain"] or "general") / kind for kind in climbing]
    folders += [memory.folder / "general"] if "lessons" in climbing else []
    plain = _masked_lesson(left)
    text = headed(_distrust_lesson(plain, own))
    with nullcontext() if dry else locked(memory.folder):
        here = [file for folder in folders if (file := folder / f"{lesson.id}.md").exists()]
        if here:
            found.known += 1
            if here[0].read_text("utf-8", "replace") not in (text, headed(plain)):
                found.differ.append(here[0].relative_to(memory.folder).as_posix())
            return
        found.lessons += 1
        if not dry:
            write(memory.folder / name, text)


class _Archive:
    """A file to take in. Nothing of it is believed: `verify` reads all of it, and what is read
    again is checked again.

    Raises BadInput: `bad-archive`, or `newer-schema` for one of a newer recreate.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            if not path.is_file():
                raise OSError("there is no such file")
            self.file = path.open("rb")
        except OSError as e:
            raise BadInput(
                f"{path} cannot be read: {e.strerror or e}", fix="name a file", code="no-file"
            ) from None
        try:
            self.zip = zipfile.ZipFile(self.file)
        except unpack_errors() as e:
            self.file.close()
            raise self.bad(f"it is no zip: {e}") from None
        self.members: Mapping[str, ArchiveMember] = {}
        self.blobs = _BlobsInside(self)

    def close(self) -> None:
        self.zip.close()
        self.file.close()

    def bad(self, why: str) -> BadInput:
        fix = "export it again where it is from; nothing of it was taken in"
        return BadInput(
            f"{self.path.name} is no memory that can be taken in: {why}",
            fix=fix,
            code="bad-archive",
        )

    def verify(self) -> None:
        """Look at everything: names, sizes, sums, lines, large texts, lessons."""
        infos = self.zip.infolist()
        if len(infos) > MEMBERS:
            raise self.bad(f"it has {len(infos):,} members, more than {MEMBERS:,}")
        names = {info.filename: info for info in infos}
        if len(names) != len(infos):
            raise self.bad("it has two members of one name")
        if (manifest := names.pop("manifest.json", None)) is None:
            raise self.bad("it has no manifest.json")
        self.members = self._manifest(manifest)
        if odd := names.keys() ^ self.members.keys():
            raise self.bad(f"{min(odd)!r} is in its manifest or in the file, and not in both")
        for name, info in names.items():
            self._check(name, info)
        self._check_sizes([*names.values(), manifest])
        seen = set[tuple[str, str]]()
        for name in self.members:
            self._read(name, seen)

    def domains(self) -> set[str]:
        return {
            match["domain"]
            for form in (_LINES, _LESSON)
            for _, match in self.matching(form)
            if match["domain"]
        }

    def matching(self, form: re.Pattern[str]) -> list[tuple[str, re.Match[str]]]:
        """The members of this form, by name."""
        return [(name, match) for name in sorted(self.members) if (match := form.fullmatch(name))]

    def experiences(self, name: str, domain: str) -> Iterator[_Line]:
        """The lines of a member, whole."""
        for number, raw in enumerate(self._lines(name), 1):
            record = self._unsealed(raw, f"{name}, line {number}")
            try:
                if sum(ref.bytes for ref in refs(record)) > LINE:
                    raise ValueError(f"its large texts take more than {LINE >> 20} MiB")
                whole = self.blobs.restore(record)
                if is_deep(whole):
                    raise ValueError("it is nested too deeply")
                e = Experience.model_validate(whole)
            except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as wrong:
                why = str(wrong).splitlines()[0] if str(wrong) else type(wrong).__name__
                raise self.bad(f"{name}, line {number} is no experience: {why}") from None
            if (
                e.domain != domain
                or not _ID.fullmatch(e.id)
                or (name.endswith("/waiting.jsonl") and e.grade.graded)
            ):
                raise self.bad(
                    f"{name}, line {number}: the experience {e.id[:40]!r} does not belong there"
                )
            when = str(record.get("when", ""))
            yield _Line(
                e,
                when if unix(when) is not None else "",
                len(raw) + sum(r.bytes for r in refs(record)),
            )

    def lesson(self, name: str) -> Lesson:
        try:
            return read_lesson(
                Path(name).stem, b"".join(self._parts(name)).decode("utf-8", "surrogatepass")
            )
        except UnicodeDecodeError:
            raise self.bad(f"{name} is not UTF-8") from None
        except BadInput as e:
            raise e if e.code == "bad-archive" else self.bad(f"{name}: {e.message}") from None

    def held_out(self) -> list[Held]:
        """Entries of its registry."""
        records = self._records("held_out.jsonl")
        found = [Held(*(str(record.get(key, "")) for key in Held._fields)) for record in records]
        if any(held.split not in ("validation", "test") for held in found):
            raise self.bad("held_out.jsonl has an entry that is neither of validation nor of test")
        return found

    def forgotten(self) -> list[str]:
        ids = [str(record.get("id", "")) for record in self._records("forgotten.jsonl")]
        if not all(map(_ID.fullmatch, ids)):
            raise self.bad("forgotten.jsonl has what is no id")
        return ids

    def blob(self, name: str) -> bytes | None:
        """A large text, None for one that is not in it."""
        return b"".join(self._parts(name)) if name in self.members else None

    # inside

    def _manifest(self, info: zipfile.ZipInfo) -> Mapping[str, ArchiveMember]:
        try:
            with self.zip.open(info) as file:
                raw = file.read(LINE + 1)
            told = decode(raw) if len(raw) <= LINE else None
            if (
                isinstance(told, dict)
                and isinstance(told.get("schema"), int)
                and told["schema"] > SCHEMA
            ):
                raise BadInput(
                    f"{self.path.name} has schema {told['schema']}; this recreate reads up to"
                    f" {SCHEMA}",
                    fix=paths.upgrade(),
                    code="newer-schema",
                )
            return ArchiveManifest.model_validate(told).members
        except ValidationError as e:
            first = e.errors(include_url=False)[0]
            raise self.bad(
                f"manifest.json: {'.'.join(map(str, first['loc']))}: {first['msg'].lower()}"
            ) from None
        except unpack_errors() as e:
            raise self.bad(f"manifest.json: {e}") from None

    def _check(self, name: str, info: zipfile.ZipInfo) -> None:
        if name not in ("held_out.jsonl", "forgotten.jsonl") and not any(
            form.fullmatch(name) for form in (_LINES, _BLOB, _LESSON)
        ):
            raise self.bad(f"{name[:80]!r} is nothing that a memory has")
        if stat.S_IFMT(info.external_attr >> 16) not in (0, stat.S_IFREG):
            raise self.bad(f"{name!r} is a link or a device")
        if info.flag_bits & 1 or info.compress_type not in (
            zipfile.ZIP_STORED,
            zipfile.ZIP_DEFLATED,
        ):
            raise self.bad(f"{name!r} is encrypted, or packed in another way")
        most = (
            LESSON
            if name.endswith(".md")
            else LINE
            if _BLOB.fullmatch(name)
            else self.members[name].bytes
        )
        if info.file_size != self.members[name].bytes or info.file_size > most:
            raise self.bad(f"{name!r} is not as large as it may be, or as its manifest says")

    def _check_sizes(self, infos: Collection[zipfile.ZipInfo]) -> None:
        size = self.path.stat().st_size
        whole = sum(info.file_size for info in infos)
        if sum(info.compress_size for info in infos) > size:
            raise self.bad("its members lie over each other")
        if whole > max(SMALL, RATIO * size):
            raise self.bad(f"its {size:,} bytes unpack to {whole:,}")

    def _read(self, name: str, seen: set[tuple[str, str]]) -> None:
        """Read a member for nothing but to see that it can be read."""
        if name.endswith(".md"):
            self.lesson(name)
        elif name == "held_out.jsonl":
            self.held_out()
        elif name == "forgotten.jsonl":
            self.forgotten()
        elif match := _LINES.fullmatch(name):
            for line in self.experiences(name, match["domain"]):
                key = (match["kind"], line.experience.id)
                if key in seen:
                    raise self.bad(f"it has the experience {line.experience.id} twice")
                seen.add(key)
        else:
            for _ in self._parts(name):
                pass
            if name.rpartition("/")[2] != self.members[name].sha256:
                raise self.bad(f"{name} is not the text that its name says")

    def _parts(self, name: str) -> Iterator[bytes]:
        """The bytes of a member, some at a time; its sum is compared at the end."""
        return self._summed(name, lambda file: file.read(1 << 20))

    def _lines(self, name: str) -> Iterator[bytes]:
        return self._summed(name, lambda file: file.readline(LINE))

    def _summed(self, name: str, read: Callable[[IO[bytes]], bytes]) -> Iterator[bytes]:
        sum_ = hashlib.sha256()
        try:
            with self.zip.open(name) as file:
                while part := read(file):
                    sum_.update(part)
                    yield part
        except unpack_errors() as e:
            raise self.bad(f"{name} cannot be unpacked: {e}") from None
        if sum_.hexdigest() != self.members[name].sha256:
            raise self.bad(f"{name} has another SHA-256 than its manifest says")

    def _records(self, name: str) -> Iterator[JsonDict]:
        for number, raw in enumerate(self._lines(name) if name in self.members else (), 1):
            yield self._unsealed(raw, f"{name}, line {number}")

    def _unsealed(self, raw: bytes, place: str) -> JsonDict:
        record = unseal(raw) if raw.endswith(b"\n") else None
        if record is None:
            raise self.bad(f"{place} is damaged")
        return record


class _BlobsInside(Blobs):
    """The large texts that lie in an archive."""

    def __init__(self, archive: _Archive) -> None:
        super().__init__(Path())
        self.archive = archive

    def _read(self, domain: str, ref: Ref) -> bytes | str:
        data = self.archive.blob(f"{domain}/blobs/{ref.sha256}")
        return "missing" if data is None else data if len(data) == ref.bytes else "damaged"
