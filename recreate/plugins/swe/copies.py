"""Other copies of a task's package in its sandbox: in the environment, below the system's folders,
in archives.

They are masked: an empty folder or file lies over each. What cannot be masked makes a task unsound.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from functools import cache, lru_cache
from pathlib import Path, PurePosixPath

from recreate.api import paths
from recreate.api.errors import Fault
from recreate.api.ports import Limits, SandboxBackend
from recreate.api.types import Record, digest
from recreate.plugins.swe import sources
from recreate.plugins.swe.copy_finder import telling
from recreate.plugins.swe.sources import Say
from recreate.plugins.swe.test_run import ProjectTests, nothing, open_sandbox
from recreate.sandboxes.rootfs import interpreter_mounts
from recreate.storage.files import once

_GENERATED = frozenset({"_version.py", "version.py", "versioneer.py"})
"""Files that tools write, alike in packages that have nothing to do with each other."""


class Copies(Record):
    """What a sandbox holds of a package besides the sources.

    masked     its copies: files, and folders, which end with /
    installed  whether the environment has it: the sources then come first
    left       what is seen although those are masked: where it is, and the module that it is a copy
               of
    """

    masked: tuple[str, ...] = ()
    installed: bool = False
    left: tuple[tuple[str, str], ...] = ()

    def of(self, paths: Iterable[str], suite: ProjectTests) -> str:
        """Where a copy of one of these files of the sources is left, or ''."""
        inside = {sources.below(path, suite.roots) for path in paths}
        return next((place for place, module in self.left if module in inside), "")


def find(backend: SandboxBackend, env: Path, source: Path, suite: ProjectTests, say: Say) -> Copies:
    """The other copies of the package of `source` (a folder that nobody writes to), looked for once
    for a package, by the names of its modules, an environment and the state of the system.

    A backend without walls shows the whole machine, in which nothing can be masked: there are then
    said to be none.
    """
    if backend.name == "none":
        return Copies()
    modules = _modules(source, suite.roots, suite.tests)
    about = [sorted(modules), str(env), backend.name, _system(), digest(_program())]

    def build(fresh: Path) -> None:
        named = ", ".join(_tops(modules)[:3])
        say(f"hiding other copies of {named} on this machine from agents, once")
        fresh.write_text(_search_copies(backend, env, suite, modules).model_dump_json())

    file = once(paths.home() / "swe" / "copies" / f"{digest(about)}.json", build)
    return Copies.model_validate_json(file.read_text())


def without(suite: ProjectTests, copies: Copies) -> ProjectTests:
    """The suite for sandboxes in which the copies are masked."""
    return suite.model_copy(update={"masked": copies.masked, "first": copies.installed})


def tops(source: Path, suite: ProjectTests) -> list[str]:
    """The names by which the package of `source` is imported."""
    return _tops(_modules(source, suite.roots, suite.tests))


def _search_copies(
    backend: SandboxBackend, env: Path, suite: ProjectTests, modules: Mapping[str, Path]
) -> Copies:
    found = Copies()
    # a copy that is masked may show another, as the next folder of sys.path does
    for _ in range(3):
        files, imported = _look(backend, env, without(suite, found), modules)
        installed = {name: origin for name, origin in imported.items() if "-packages/" in origin}
        masks = {mask for path, module in files if (mask := _mask(path, module, modules))}
        masks |= {_installed(name, origin) for name, origin in installed.items()}
        found = found.model_copy(update={"left": tuple(files)})
        if not masks - set(found.masked):
            break
        masked = _outermost({*found.masked, *masks})
        found = found.model_copy(
            update={"masked": masked, "installed": found.installed or bool(installed)}
        )
    return found


def _look(
    backend: SandboxBackend, env: Path, suite: ProjectTests, modules: Mapping[str, Path]
) -> tuple[list[tuple[str, str]], dict[str, str]]:
    """([(a copy, the module that it is one of)], name -> where it is imported from) as a sandbox
    has them."""
    with_lines = {path: sorted(telling(file.read_bytes())) for path, file in modules.items()}
    order = {
        "modules": {
            path: lines
            for path, lines in with_lines.items()
            if PurePosixPath(path).name not in _GENERATED
        },
        "tops": _tops(modules),
        "here": "/work",
        "mounted": [inside for inside in interpreter_mounts(env) if inside.startswith("/work/")],
    }
    limits = Limits(seconds=300, cpu_seconds=300, output_bytes=4_000_000)
    sandbox = open_sandbox(backend, nothing()[0], env, suite, limits)
    try:
        line = json.dumps(order).encode() + b"\n"
        output = sandbox.run(["python3", "-I", "-B", "-c", _program()], timeout=300, stdin=line)
    finally:
        sandbox.close()
    try:
        said = json.loads(output.text.strip().rpartition("\n")[2])
        return [(path, module) for path, module in said["found"]], dict(said["imported"])
    except (ValueError, KeyError, TypeError):
        why = f"the sandbox could not be looked through for copies: {output.text[-500:]}"
        raise Fault(why, code="copies") from None


def _tops(modules: Iterable[str]) -> list[str]:
    return sorted({PurePosixPath(path).parts[0].removesuffix(".py") for path in modules})


@lru_cache(256)
def _modules(source: Path, roots: tuple[str, ...], tests: tuple[str, ...]) -> Mapping[str, Path]:
    """Path below its folder on sys.path -> file, of the package's modules."""
    within = () if {"", "."} & set(roots) else roots
    return {
        sources.below(path, roots): source / path for path in sources.modules(source, within, tests)
    }


def _mask(path: str, module: str, modules: Mapping[str, Path]) -> str:
    """What to mask for a copy of a module: the folder of the whole package when it lies in one like
    its own, else the file; '' in Python's own library, which cannot do without."""
    if re.search(r"/lib(64)?/python3[^/]*/(?!.*-packages/|ensurepip/|test/|idlelib/)", path):
        return ""
    if "/" not in module or not path.endswith("/" + module):
        return path
    parts = PurePosixPath(module).parts
    packages = (PurePosixPath(*parts[:n]).as_posix() for n in range(1, len(parts)))
    package = next((p for p in packages if f"{p}/__init__.py" in modules), "")
    return f"{path[: -len(module)]}{package}/" if package else path


def _installed(name: str, origin: str) -> str:
    """What to mask of a module that is imported from there."""
    folder, _, file = origin.rpartition("/")
    return f"{folder}/" if file.startswith("__init__.") and folder.endswith("/" + name) else origin


def _outermost(masks: Iterable[str]) -> tuple[str, ...]:
    kept: list[str] = []
    for mask in sorted(masks, key=len):
        if not any(other.endswith("/") and mask.startswith(other) for other in kept):
            kept.append(mask)
    return tuple(sorted(kept))


def _system() -> Sequence[object]:
    """What changes when the system's packages do."""
    places = (
        "lib",
        "share",
        "share/python-wheels",
        "local/lib",
        "lib*/python3*/*-packages",
        "local/*/python3*/*-*",
    )
    folders = sorted(folder for place in places for folder in Path("/usr").glob(place))
    return [(str(folder), folder.stat().st_mtime_ns) for folder in folders]


@cache
def _program() -> str:
    return (Path(__file__).parent / "copy_finder.py").read_text(encoding="utf-8")
