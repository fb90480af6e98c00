"""Sources of a project: fetched from the package index or a repository, which of their files are
tests, cutting tests out. Every path is relative to the sources' top folder, with `/`."""

from __future__ import annotations

import ast
import hashlib
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from pathlib import Path, PurePosixPath
from typing import NamedTuple

from recreate.api import paths
from recreate.api.errors import BadInput
from recreate.api.syntax import parse_python
from recreate.api.types import digest
from recreate.plugins.swe.archives import unpack, untar
from recreate.storage import download, packages
from recreate.storage.files import once

Say = Callable[[str], None]
SKIPPED = frozenset(
    {".git", ".hg", ".tox", ".nox", ".venv", "venv", "node_modules", ".recreate"}
    | {"__pycache__", ".pytest_cache", ".mypy_cache", ".ruff_cache", ".hypothesis"}
)
"""Folders that are never part of the sources nor of an answer."""

PUBLIC = ".recreate/public.json"
"""What tools of a scaffold read: {"fail": [test ids], "suite": [paths], "python_path":
[folders]}."""

REPRODUCE = "reproduce_issue.py"
"""Our own small test of a real bug, shown to the agent."""

CONFIG = frozenset(
    {
        "conftest.py",
        "pytest.ini",
        ".pytest.ini",
        "tox.ini",
        "setup.cfg",
        "pyproject.toml",
        ".coveragerc",
    }
    | {"sitecustomize.py", "usercustomize.py"}
)
_RUNNER = frozenset(
    {"pytest", "_pytest", "pluggy", "iniconfig", "coverage", "exceptiongroup", "pygments"}
)
_LOOSE = frozenset({"setup.py", "noxfile.py", "fabfile.py", "tasks.py", "conf.py"})
AROUND = frozenset({"docs", "doc", "examples", "benchmarks", "scripts", "tools", "misc"})
"""Folders at the top of a project that are not the project."""


# --- where they come from: cached folders that nobody writes to
# -----------------------------------------


def release(package: str, version: str, sha256: str | None, say: Say = lambda _: None) -> Path:
    """The unpacked sdist of one release, without by-products: a cached folder that nobody writes
    to.

    Raises BadInput for an unknown package, version or hash, Fault when the index cannot be reached.
    """
    folder = paths.home() / "swe" / "sources"
    if sha256 and (known := folder / f"{package}-{version}-{sha256[:12]}").exists():
        return known
    if not sha256:
        say(f"looking for {package} {version} on the package index")
    else:
        say(f"fetching the sources of {package} {version}, once")
    sdist = packages.package(package, version, "sdist", sha256=sha256)
    found = download.file_sha256(sdist)

    def build(fresh: Path) -> None:
        with tempfile.TemporaryDirectory(dir=fresh.parent) as scratch:
            copy(unpack(sdist, Path(scratch)), fresh)

    return once(folder / f"{package}-{version}-{found[:12]}", build)


def released_sha256(package: str, version: str) -> str:
    """The SHA-256 of the release's sdist, fetched when it is not here yet."""
    return download.file_sha256(packages.package(package, version, "sdist"))


def repository(path: Path, commit: str, wanted: str, say: Say = lambda _: None) -> Path:
    """The sources of a repository as they were when tasks were made of it: `wanted` is their
    digest.

    Raises BadInput when the folder has changed since and neither git nor the cache has the older
    state.
    """
    target = paths.home() / "swe" / "sources" / f"repository-{wanted}"
    if target.exists():
        return target
    if not path.is_dir():
        raise BadInput(
            f"the repository {path} of these tasks is not there",
            fix="put it back, or remove its lines from benchmarks/swe/injected.jsonl",
            code="unknown-repository",
        )
    say(f"copying the sources of {path}, once")
    with tempfile.TemporaryDirectory() as scratch:
        snapshot, _, found = _snapshot(path, commit, Path(scratch))
        if found != wanted:
            raise BadInput(
                f"{path} has changed since tasks were made of it",
                fix=(
                    "bring its older state back, or make new tasks: recreate tasks make swe --repo"
                    f" {path}"
                ),
                code="changed-repository",
            )
        return once(target, lambda fresh: copy(snapshot, fresh))


def place(path: str) -> Path:
    """Where a recipe's repository is: relative to the workspace, unless it is absolute."""
    whole = Path(path).expanduser()
    return whole if whole.is_absolute() else paths.workspace() / whole


def snapshot(path: Path) -> tuple[Path, str, str]:
    """The sources of a repository now: cached folder, commit ('' when there is none or it is not
    clean), digest."""
    if not path.is_dir():
        raise BadInput(
            f"{path} is not a folder",
            fix="name the repository's top folder",
            code="unknown-repository",
        )
    commit = _clean_commit(path)
    with tempfile.TemporaryDirectory() as scratch:
        taken, commit, found = _snapshot(path, commit, Path(scratch))
        folder = paths.home() / "swe" / "sources" / f"repository-{found}"
        return once(folder, lambda fresh: copy(taken, fresh)), commit, found


def at(path: Path, commit: str) -> tuple[Path, str]:
    """The sources of a repository at a commit, and their digest. Raises BadInput for a commit that
    is not there."""
    with tempfile.TemporaryDirectory() as scratch:
        taken, found, manifest_ = _snapshot(path, commit, Path(scratch))
        if not found:
            raise BadInput(
                f"{path} has no commit {commit}",
                fix="is it a clone of the whole history? git fetch --unshallow",
                code="no-commit",
            )
        folder = paths.home() / "swe" / "sources" / f"repository-{manifest_}"
        return once(folder, lambda fresh: copy(taken, fresh)), manifest_


class HistoryCommit(NamedTuple):
    """One of the main line. parent: the one before it there. day: ISO. files: that it changes,
    those of the branch that it merges."""

    id: str
    parent: str
    day: str
    files: Sequence[str]


def commits(path: Path, since: str = "") -> list[HistoryCommit]:
    """The main line of a repository, newest first, but for its first commit.

    since: a day, or what else git takes. Raises BadInput for a folder without history.
    """
    arguments = [
        "log",
        "--first-parent",
        "-m",
        "--relative",
        "--no-renames",
        "--name-only",
        "--format=%x01%H %P %cs",
    ]
    said = _git(path, *arguments, *([f"--since={since}"] if since else []), "--", ".")
    if said is None:
        raise BadInput(
            f"{path} has no history: it is no git repository, or has no commit",
            fix="clone the project with its history, or leave out --history",
            code="no-history",
        )
    found = []
    for entry in said.split("\x01")[1:]:
        head, *names = entry.strip().split("\n")
        words = head.split()
        if len(words) >= 3:
            found.append(HistoryCommit(words[0], words[1], words[-1], [n for n in names if n]))
    return found


def _snapshot(path: Path, commit: str, scratch: Path) -> tuple[Path, str, str]:
    taken = scratch / "tree"
    if commit and _git(path, "cat-file", "-e", f"{commit}^{{commit}}") is not None:
        exported = scratch / "tree.tar"
        if (
            _git(path, "archive", "--format=tar", f"--output={exported}", f"{commit}:./")
            is not None
        ):
            with tarfile.open(exported) as tar:
                untar(tar, taken, links=False)
            return taken, commit, digest(manifest(taken))
    listed = _git(path, "ls-files", "-z", "--cached", "--others", "--exclude-standard")
    if listed is None:
        copy(path, taken)
    else:
        for name in filter(None, listed.split("\0")):
            if (path / name).is_file() and not (path / name).is_symlink() and not skipped(name):
                (taken / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(path / name, taken / name)
    taken.mkdir(exist_ok=True)
    return taken, "", digest(manifest(taken))


def _clean_commit(path: Path) -> str:
    status = _git(path, "status", "--porcelain", "--", ".")
    head = _git(path, "rev-parse", "--verify", "HEAD")
    return head.strip() if head and status == "" else ""


def _git(path: Path, *arguments: str) -> str | None:
    """What git says in `path`, or None when it fails or is not installed."""
    if shutil.which("git") is None:
        return None
    done = subprocess.run(
        ["git", "-C", str(path), *arguments],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        check=False,
    )
    return done.stdout.decode("utf-8", "surrogateescape") if done.returncode == 0 else None


# --- their files
# ------------------------------------------------------------------------------------------


def skipped(path: str) -> bool:
    """Whether `path` is by-product: caches, compiled files, installation records."""
    parts = PurePosixPath(path).parts
    return (
        any(p in SKIPPED or p.endswith((".egg-info", ".dist-info")) for p in parts)
        or path.endswith((".pyc", ".pyo", ".orig", ".rej"))
        or parts[-1].startswith(".coverage")
    )


def is_test(path: str, tests: Iterable[str] = ()) -> bool:
    """Whether `path` is a test file, by name or because it lies at or below one of `tests`."""
    pure = PurePosixPath(path)
    return (
        any(p in ("tests", "test", "testing_data") for p in pure.parts[:-1])
        or (pure.suffix == ".py" and (pure.name.startswith("test_") or pure.stem.endswith("_test")))
        or pure.name in ("tests.py", "test.py", REPRODUCE)
        or any(
            path == t.rstrip("/") or path.startswith(t.rstrip("/") + "/")
            for t in tests
            if t not in ("", ".")
        )
    )


def unacceptable(
    path: str, tests: Iterable[str] = (), roots: Iterable[str] = (), own: Collection[str] = ()
) -> str:
    """Why an answer's change to `path` is dropped before grading, or '' when it counts. own: the
    package's names."""
    pure = PurePosixPath(path)
    if skipped(path):
        return "not a source file"
    if pure.name in CONFIG or pure.suffix == ".pth":
        return "configures how tests run"
    if is_test(path, tests):
        return "a test"
    name = PurePosixPath(below(path, roots)).parts[0].removesuffix(".py")
    if name not in own and shadows(name):
        return "would stand in for a module of Python or of the runner"
    return ""


def shadows(name: str) -> bool:
    """Whether a top-level module of that name would be imported in place of Python's or the
    runner's."""
    return name in _RUNNER or name in sys.stdlib_module_names


def files(root: Path) -> Iterator[str]:
    """The files below `root` that are sources, as relative posix paths in order; links are left
    out."""
    for folder, folders, names in os.walk(root):
        folders[:] = sorted(
            f for f in folders if f not in SKIPPED and not (Path(folder) / f).is_symlink()
        )
        for name in sorted(names):
            whole = Path(folder) / name
            path = whole.relative_to(root).as_posix()
            if not skipped(path) and not whole.is_symlink() and whole.is_file():
                yield path


def texts(root: Path, only: Iterable[str] | None = None) -> dict[str, str]:
    """path -> text of the files that are UTF-8."""
    found: dict[str, str] = {}
    for path in files(root) if only is None else only:
        data = (root / path).read_bytes()
        try:
            found[path] = data.decode("utf-8")
        except UnicodeDecodeError:
            continue
    return found


def manifest(root: Path) -> dict[str, str]:
    """path -> SHA-256 of the file."""
    return {p: hashlib.sha256((root / p).read_bytes()).hexdigest() for p in files(root)}


def copy(source: Path, target: Path) -> None:
    """Copy the sources below `source` to `target`, by-products left out, modes kept."""
    target.mkdir(parents=True, exist_ok=True)
    for path in files(source):
        (target / path).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(source / path, target / path)


def find_tests(pristine: Path) -> tuple[str, ...]:
    """The topmost folders of tests, else the test files; those of examples only when there are no
    others."""
    found = [PurePosixPath(p) for p in files(pristine) if p.endswith(".py") and is_test(p)]
    found = [p for p in found if p.parts[0] not in AROUND] or found
    named = {
        PurePosixPath(*p.parts[: i + 1]).as_posix()
        for p in found
        for i, part in enumerate(p.parts[:-1])
        if part in ("tests", "test")
    }
    top = {f for f in named if not any(f.startswith(other + "/") for other in named)}
    return tuple(sorted(top or {p.as_posix() for p in found}))


def modules(root: Path, roots: Sequence[str], tests: Iterable[str] = ()) -> list[str]:
    """The Python files of the project that are neither tests nor scripts around it."""
    inside = [r.rstrip("/") + "/" for r in roots if r not in ("", ".")]
    return [
        p
        for p in files(root)
        if p.endswith(".py")
        and not is_test(p, tests)
        and (not inside or any(p.startswith(r) for r in inside))
        and PurePosixPath(p).name not in _LOOSE
        and PurePosixPath(p).parts[0] not in AROUND
    ]


def below(path: str, roots: Iterable[str]) -> str:
    """`path` as seen from the folder of sys.path in which it lies."""
    return next(
        (path[len(r) + 1 :] for r in roots if r not in ("", ".") and path.startswith(r + "/")), path
    )


# --- tests, by id
# -----------------------------------------------------------------------------------------


def function_of(test: str) -> str:
    """The test function a test id belongs to: the id without its parameters."""
    path, _, rest = test.partition("::")
    return f"{path}::{rest.partition('[')[0]}"


def test_functions(text: str) -> dict[tuple[str, ...], str]:
    """Name path (class..., function) -> text of every test function. What is not Python has
    none."""
    found: dict[tuple[str, ...], str] = {}

    def visit(body: list[ast.stmt], prefix: tuple[str, ...]) -> None:
        for node in body:
            if isinstance(node, ast.ClassDef):
                visit(node.body, (*prefix, node.name))
            elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith(
                "test"
            ):
                first = min([node.lineno, *(d.lineno for d in node.decorator_list)])
                found[(*prefix, node.name)] = "\n".join(lines[first - 1 : node.end_lineno])

    lines = text.split("\n")
    try:
        visit(parse_python(text).body, ())
    except (SyntaxError, ValueError, RecursionError):
        return {}
    return found


def reads_alike(old: str, new: str) -> bool:
    """Whether a test that is the same in two texts of a test file reads the same there: what the
    old one has besides tests and imports is in the new one, which adds nothing but classes, and
    functions by names that the old one does not hold."""
    try:
        before, after = _outside_tests(parse_python(old)), _outside_tests(parse_python(new))
    except (SyntaxError, ValueError, RecursionError):
        return old == new
    rest = [ast.dump(node) for node in before.pop(())]
    for node in after.pop(()):
        if rest and ast.dump(node) == rest[0]:
            rest.pop(0)
            continue
        name = node.name if isinstance(node, ast.FunctionDef) and not node.decorator_list else ""
        if not name or _HOOK.match(name) or re.search(rf"\b{re.escape(name)}\b", old):
            return False
    inside = [
        {name: [ast.dump(n) for n in body] for name, body in found.items()}
        for found in (before, after)
    ]
    return not rest and all(inside[1].get(name) == body for name, body in inside[0].items())


_HOOK = re.compile(r"pytest_|(set_?up|tear_?down)|load_tests", re.IGNORECASE)
"""Functions of a module that who runs its tests calls."""


def _outside_tests(module: ast.Module) -> dict[tuple[str, ...], list[ast.AST]]:
    """Name path of a class, () for the module -> its statements but for imports, tests and
    classes."""
    found: dict[tuple[str, ...], list[ast.AST]] = {}

    def visit(body: list[ast.stmt], prefix: tuple[str, ...], own: list[ast.AST]) -> None:
        for node in body:
            if isinstance(node, ast.ClassDef):
                visit(
                    node.body,
                    (*prefix, node.name),
                    [*node.bases, *node.keywords, *node.decorator_list],
                )
            elif not isinstance(node, ast.Import | ast.ImportFrom) and not (
                isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
                and node.name.startswith("test")
            ):
                own.append(node)
        found[prefix] = own

    visit(module.body, (), [])
    return found


def cut_tests(text: str, functions: Iterable[Sequence[str]]) -> tuple[str, set[tuple[str, ...]]]:
    """`text` of a test file without `functions` (each a name path: class..., function), and those
    not found.

    A body that would be empty gets `pass`. Raises SyntaxError when the text is not Python.
    """
    wanted = {tuple(f) for f in functions}
    lines = text.split("\n")
    found: set[tuple[str, ...]] = set()
    spans: list[tuple[int, int, str]] = []

    def visit(body: list[ast.stmt], prefix: tuple[str, ...], indent: str) -> None:
        removed = 0
        for node in body:
            if (
                isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
                and (*prefix, node.name) in wanted
            ):
                first = min([node.lineno, *(d.lineno for d in node.decorator_list)])
                spans.append((first, node.end_lineno or node.lineno, ""))
                found.add((*prefix, node.name))
                removed += 1
            elif isinstance(node, ast.ClassDef):
                inner = " " * node.body[0].col_offset
                visit(node.body, (*prefix, node.name), inner)
        if removed and removed == len(body) and prefix:
            first, last, _ = spans[-1]
            spans[-1] = (first, last, f"{indent}pass")

    visit(parse_python(text).body, (), "")
    for first, last, instead in sorted(spans, reverse=True):
        lines[first - 1 : last] = [instead] if instead else []
    return "\n".join(lines), wanted - found
