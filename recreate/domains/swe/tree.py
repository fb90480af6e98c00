"""A folder of sources: which of its files are tests, which say how tests run, and cutting tests out."""

from __future__ import annotations

import ast
import hashlib
import os
import shutil
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path, PurePosixPath

SKIPPED = frozenset(
    {
        ".git",
        ".hg",
        "__pycache__",
        ".pytest_cache",
        ".mypy_cache",
        ".ruff_cache",
        ".hypothesis",
        ".tox",
        ".nox",
        ".venv",
        "venv",
        "node_modules",
        ".recreate",
    }
)
"""Folders that are never part of the sources nor of an answer."""

PUBLIC = ".recreate/public.json"
"""What tools of a scaffold read: {"fail": [test ids], "suite": [paths], "python_path": [folders]}."""

REPRODUCE = "reproduce_issue.py"
"""Our own small test of a real bug, shown to the agent."""

_CONFIG = frozenset(
    {"conftest.py", "pytest.ini", ".pytest.ini", "tox.ini", "setup.cfg", "pyproject.toml", ".coveragerc"}
    | {"sitecustomize.py", "usercustomize.py"}
)
_RUNNER = frozenset({"pytest", "_pytest", "pluggy", "iniconfig", "coverage", "exceptiongroup", "pygments"})
_LOOSE = frozenset({"setup.py", "noxfile.py", "fabfile.py", "tasks.py", "conf.py"})


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
        or any(path == t.rstrip("/") or path.startswith(t.rstrip("/") + "/") for t in tests if t not in ("", "."))
    )


def unacceptable(path: str, tests: Iterable[str] = (), roots: Iterable[str] = ()) -> str:
    """Why an answer's change to `path` is dropped before grading, or '' when it counts."""
    pure = PurePosixPath(path)
    if skipped(path):
        return "not a source file"
    if pure.name in _CONFIG or pure.suffix == ".pth":
        return "configures how tests run"
    if is_test(path, tests):
        return "a test"
    top = next((path[len(r) + 1 :] for r in roots if r not in ("", ".") and path.startswith(r + "/")), path)
    name = PurePosixPath(top).parts[0].removesuffix(".py")
    if name in _RUNNER or name in sys.stdlib_module_names:
        return "would stand in for a module of Python or of the runner"
    return ""


def paths(root: Path) -> Iterator[str]:
    """The files below `root` that are sources, as relative posix paths in order; links are left out."""
    for folder, folders, names in os.walk(root):
        folders[:] = sorted(f for f in folders if f not in SKIPPED and not (Path(folder) / f).is_symlink())
        for name in sorted(names):
            whole = Path(folder) / name
            path = whole.relative_to(root).as_posix()
            if not skipped(path) and not whole.is_symlink() and whole.is_file():
                yield path


def texts(root: Path, only: Iterable[str] | None = None) -> dict[str, str]:
    """path -> text of the files that are UTF-8."""
    found: dict[str, str] = {}
    for path in paths(root) if only is None else only:
        data = (root / path).read_bytes()
        try:
            found[path] = data.decode("utf-8")
        except UnicodeDecodeError:
            continue
    return found


def manifest(root: Path) -> dict[str, str]:
    """path -> SHA-256 of the file."""
    return {p: hashlib.sha256((root / p).read_bytes()).hexdigest() for p in paths(root)}


def copy(source: Path, target: Path) -> None:
    """Copy the sources below `source` to `target`, by-products left out, modes kept."""
    target.mkdir(parents=True, exist_ok=True)
    for path in paths(source):
        (target / path).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(source / path, target / path)


def write(root: Path, files: Mapping[str, str | None]) -> None:
    """Write texts below `root`; None deletes."""
    for path, text in files.items():
        whole = root / path
        if text is None:
            whole.unlink(missing_ok=True)
            continue
        whole.parent.mkdir(parents=True, exist_ok=True)
        whole.write_bytes(text.encode("utf-8"))


def modules(root: Path, roots: Sequence[str], tests: Iterable[str] = ()) -> list[str]:
    """The Python files of the project that are neither tests nor scripts around it."""
    inside = [r.rstrip("/") + "/" for r in roots if r not in ("", ".")]
    return [
        p
        for p in paths(root)
        if p.endswith(".py")
        and not is_test(p, tests)
        and (not inside or any(p.startswith(r) for r in inside))
        and PurePosixPath(p).name not in _LOOSE
        and PurePosixPath(p).parts[0] not in ("docs", "doc", "examples", "benchmarks", "scripts", "tools", "misc")
    ]


# --- tests, by id -----------------------------------------------------------------------------------------


def function_of(test: str) -> str:
    """The test function a test id belongs to: the id without its parameters."""
    path, _, rest = test.partition("::")
    return f"{path}::{rest.partition('[')[0]}"


def cut(text: str, functions: Iterable[Sequence[str]]) -> tuple[str, set[tuple[str, ...]]]:
    """`text` of a test file without `functions` (each a name path: class..., function), and those not found.

    A body that would be empty gets `pass`. Raises SyntaxError when the text is not Python.
    """
    wanted = {tuple(f) for f in functions}
    lines = text.split("\n")
    gone: set[tuple[str, ...]] = set()
    spans: list[tuple[int, int, str]] = []

    def visit(body: list[ast.stmt], prefix: tuple[str, ...], indent: str) -> None:
        removed = 0
        for node in body:
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and (*prefix, node.name) in wanted:
                first = min([node.lineno, *(d.lineno for d in node.decorator_list)])
                spans.append((first, node.end_lineno or node.lineno, ""))
                gone.add((*prefix, node.name))
                removed += 1
            elif isinstance(node, ast.ClassDef):
                inner = " " * node.body[0].col_offset
                visit(node.body, (*prefix, node.name), inner)
        if removed and removed == len(body) and prefix:
            first, last, _ = spans[-1]
            spans[-1] = (first, last, f"{indent}pass")

    visit(ast.parse(text).body, (), "")
    for first, last, instead in sorted(spans, reverse=True):
        lines[first - 1 : last] = [instead] if instead else []
    return "\n".join(lines), wanted - gone
