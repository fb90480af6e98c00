"""A Python with pytest and coverage, in which suites run: built at first use from wheels by uv,
then shared."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple

from packaging.requirements import InvalidRequirement, Requirement
from packaging.version import InvalidVersion, Version
from pydantic import Field, ValidationError, field_validator

from recreate.api import paths
from recreate.api.errors import BadInput, Fault, RecreateError
from recreate.api.shapes import JsonMap
from recreate.api.types import Record, digest
from recreate.storage import packages
from recreate.storage.files import making, once

PINS = ("pytest==9.2.0", "coverage==7.17.3")
"""What an environment holds unless its task says otherwise; a task's `requires` come on top."""
_OLDER = {
    (3, 8): ("pytest==8.3.5", "coverage==7.6.1"),
    (3, 9): ("pytest==8.4.2", "coverage==7.10.7"),
    (3, 10): ("pytest==9.2.0", "coverage==7.16.2"),
}
"""PINS for Pythons that those have left behind."""
OLDEST = (3, 8)
"""The runner's programs run on it and on what came after."""
NO_PYTEST = "none"
UV = "0.13.9"
"""Fetched where no uv is here: 23 MB that an install which builds no environment does without."""

_READY = "ready"
_LAYOUT = 2
"""Part of every environment's name: raised when the way they are built changes."""
_NEVER = "2100-01-01T00:00:00Z"
_OURS = ("PATH", "PYTHONPATH", "PYTHONHOME", "HOME")

Default = Annotated[str, Field(default="", exclude_if=lambda value: not value)]
"""A text that is no part of a record's dump, and so of no digest, while it is empty."""


class Environment(Record):
    """What a task's tests run in. Fields of their default are left out of dumps, so that they are
    part of no digest.

    python        "3.9" or "3.9.18"; '' is the Python that runs recreate
    pytest        a version; '' is that of PINS, or the newest of the day `index_before`; "none"
                  when the sources are pytest themselves: it is then imported from them
    requires      requirements of the package index, pinned as a rule; wheels only
    index_before  a date or time, as "2023-06-01": the index as it was then (UTC), but for a pytest
                  that is named
    env           variables that the tests run with
    runner        what runs the tests and tells of them
    """

    python: Default = ""
    pytest: Default = ""
    requires: tuple[str, ...] = ()
    index_before: Default = ""
    env: Mapping[str, str] = Field(default={}, exclude_if=lambda value: not value)
    runner: Literal["pytest", "django", "sympy"] = Field(
        default="pytest", exclude_if=lambda value: value == "pytest"
    )

    @field_validator("python")
    @classmethod
    def _version(cls, value: str) -> str:
        if value and not (re.fullmatch(r"3\.\d+(\.\d+)?", value) and _minor(value) >= OLDEST):
            raise ValueError(f"{value!r} is not a Python like 3.9 or 3.9.18, from 3.8 on")
        return value

    @field_validator("pytest")
    @classmethod
    def _pytest(cls, value: str) -> str:
        try:
            return str(Version(value)) if value not in ("", NO_PYTEST) else value
        except InvalidVersion:
            raise ValueError(f"{value!r} is not a version of pytest like 7.4.4") from None

    @field_validator("requires")
    @classmethod
    def _requirements(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        for one in value:
            try:
                address = Requirement(one).url
            except InvalidRequirement:
                raise ValueError(f"{one!r} is not a requirement like idna==3.10") from None
            if address:
                raise ValueError(
                    f"{one!r} names an address: what the tests need comes from the package index"
                )
        return value

    @field_validator("index_before")
    @classmethod
    def _date(cls, value: str) -> str:
        if value:
            try:
                _moment(value)
            except ValueError:
                raise ValueError(f"{value!r} is not a date like 2023-06-01") from None
        return value

    @field_validator("env")
    @classmethod
    def _variables(cls, value: Mapping[str, str]) -> Mapping[str, str]:
        for name in value:
            if name in _OURS or not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name):
                raise ValueError(
                    f"{name!r} cannot be set for tests; folders of modules go into `python_path`"
                )
        return value

    @property
    def key(self) -> list[Any]:
        """What tells this environment from others: the sorted requirements, then what is not as by
        default."""
        others = self.model_dump(exclude={"schema_", "requires"}, exclude_defaults=True)
        return [*sorted(self.requires), *([others] if others else [])]


def read_environment(fields: JsonMap) -> Environment:
    """Return an Environment of what somebody asks for. Raises BadInput that names the first field
    that cannot be."""
    try:
        return Environment(**fields)
    except ValidationError as e:
        error = e.errors()[0]
        raise BadInput(
            str(error["msg"]).removeprefix("Value error, "),
            fix=f"correct {'.'.join(map(str, error['loc'])) or 'it'}",
            code="bad-environment",
        ) from None


class Interpreter(NamedTuple):
    """A CPython of this machine: its program, (3, minor, micro), and the folder that holds its
    library."""

    program: str
    version: tuple[int, int, int]
    prefix: str


def lacking(python: str) -> str:
    """Return '' when this machine has a CPython of that version, else what is not here and what to
    type to get it."""
    if interpreter(python) is not None:
        return ""
    return (
        f"Python {python} is not on this machine: `uv python install {python}`, or `pyenv install"
        f" {python}`"
    )


def interpreter(python: str = "") -> Interpreter | None:
    """Return the CPython of a version, or None: the one that runs recreate, pyenv's, what uv knows,
    `pythonX.Y` on PATH.

    Nothing is downloaded. '' is the one that runs recreate.
    """
    pyenv = os.environ.get("PYENV_ROOT") or str(Path("~/.pyenv").expanduser())
    return _interpreter(python, os.environ.get("PATH", os.defpath), pyenv)


@cache
def _interpreter(python: str, path: str, pyenv: str) -> Interpreter | None:
    here = Interpreter(sys.executable, sys.version_info[:3], sys.base_prefix)
    if not python or _fits(here, python):
        return here
    minor = ".".join(python.split(".")[:2])
    versions = sorted(
        Path(pyenv).glob(f"versions/{minor}.*/bin/python3"), key=lambda p: _patch(p.parts[-3])
    )
    # A shim of pyenv answers for Pythons that it then does not start; those that it has are in
    # `versions`.
    others = os.pathsep.join(p for p in path.split(os.pathsep) if Path(p).name != "shims")
    known = [str(p) for p in reversed(versions)]
    if program := uv_here():
        found = subprocess.run(
            [
                program,
                "python",
                "find",
                "--system",
                "--no-project",
                "--no-python-downloads",
                f"cpython@{python}",
            ],
            env={**_environ(), "PATH": others},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
        )
        known.append(found.stdout.strip())
    for program in filter(None, (*known, shutil.which(f"python{minor}", path=others))):
        one = _ask_program(program)
        if one is not None and _fits(one, python):
            return one
    return None


def _ask_program(program: str) -> Interpreter | None:
    """Return what a program says that it is; None when it is no CPython that starts."""
    ask = (
        "import sys; print(sys.implementation.name, *sys.version_info[:3], sys.base_prefix,"
        " sys.executable, sep='\\n')"
    )
    try:
        done = subprocess.run(
            [program, "-I", "-c", ask],
            env=_environ(),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=30,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    name, *rest = done.stdout.split("\n")
    if done.returncode or name != "cpython":
        return None
    major, minor, micro, prefix, executable = rest[:5]
    return Interpreter(executable, (int(major), int(minor), int(micro)), prefix)


def _fits(one: Interpreter, python: str) -> bool:
    wanted = tuple(map(int, python.split(".")))
    return one.version[: len(wanted)] == wanted


def _minor(python: str) -> tuple[int, ...]:
    return tuple(map(int, python.split(".")[:2]))


def _patch(version: str) -> int:
    return int(found.group()) if (found := re.search(r"(?<=\.)\d+$", version)) else -1


def _moment(value: str) -> str:
    """Return a moment in UTC; a date is the beginning of that day."""
    when = datetime.fromisoformat(value)
    return (
        (when if when.tzinfo else when.replace(tzinfo=UTC))
        .astimezone(UTC)
        .strftime("%Y-%m-%dT%H:%M:%SZ")
    )


def uv(say: Callable[[str], None] = lambda _: None) -> str:
    """Return the program uv: the one that is here (`uv_here`), else one of the package index,
    fetched once, into home().

    Raises Fault and BadInput, which say what to install instead.
    """

    def fetch(fresh: Path) -> None:
        say(f"fetching uv {UV}, which builds environments for tests, once")
        wheel = packages.package("uv", UV, "wheel")
        with zipfile.ZipFile(wheel) as archive:
            fresh.write_bytes(archive.read(f"uv-{UV}.data/scripts/uv"))
        fresh.chmod(0o755)
        wheel.unlink()

    if found := uv_here():
        return found
    try:
        return str(once(_fetched(), fetch))
    except RecreateError as e:
        e.fix = (
            f"{paths.install('swe')} brings uv, and so does your system's installer; or: {e.fix}"
        )
        raise


def uv_here() -> str:
    """Return the program uv that is installed beside recreate, was fetched before or is on PATH; ''
    when there is none."""
    if found := _installed_uv():
        return found
    return (
        str(_fetched()) if _fetched().exists() else _uv_on_path(os.environ.get("PATH", os.defpath))
    )


def _installed_uv() -> str:
    try:
        from uv import find_uv_bin

        return str(find_uv_bin())
    except (ModuleNotFoundError, FileNotFoundError):
        return ""


def _fetched() -> Path:
    return paths.home() / "tools" / f"uv-{UV}"


@cache
def _uv_on_path(path: str) -> str:
    """Return the uv on PATH; '' also for one that is too old to know `--exclude-newer-package`."""
    program = shutil.which("uv", path=path)
    if program is None:
        return ""
    try:
        done = subprocess.run(
            [program, "--version"], capture_output=True, text=True, timeout=60, check=False
        )
        return program if Version(done.stdout.split()[1]) >= Version("0.9") else ""
    except (OSError, subprocess.TimeoutExpired, IndexError, InvalidVersion):
        return ""


def environment(
    wanted: Environment | None = None, say: Callable[[str], None] = lambda _: None
) -> Path:
    """Return the virtual environment that a task asks for: home()/envs/DIGEST, complete when this
    returns.

    Wheels only: nothing of the index is executed while installing. Raises BadInput (a requirement
    that cannot be met, a Python that is not here) and Fault (the index cannot be reached, the disk
    is full).
    """
    wanted = wanted or Environment()
    python = interpreter(wanted.python)
    if python is None:
        raise BadInput(
            lacking(wanted.python),
            fix=f"install it, or leave out the tasks that need Python {wanted.python}",
            code="no-python",
        )
    installed = _installed(wanted, python)
    others = wanted.key[len(wanted.requires) :]
    version = f"cpython{python.version[0]}.{python.version[1]}"
    target = (
        paths.home() / "envs" / digest([_LAYOUT, version, python.prefix, installed, *others], 12)
    )
    if (target / _READY).exists():
        return target
    with making(target):
        if not (target / _READY).exists():
            about = _describe(wanted, python, installed)
            say(f"building an environment for the tests, once: {about}")
            shutil.rmtree(target, ignore_errors=True)
            try:
                _build(uv(say), target, wanted, python, installed)
                (target / _READY).write_text("\n".join(installed) + "\n")
            except BaseException:  # also Ctrl-C: whoever waits for the lock begins anew
                shutil.rmtree(target, ignore_errors=True)
                raise
    return target


def _installed(wanted: Environment, python: Interpreter) -> list[str]:
    """Everything that is asked of the index."""
    pytest, coverage = _OLDER.get(python.version[:2], PINS)
    if wanted.pytest:
        pytest = "" if wanted.pytest == NO_PYTEST else f"pytest=={wanted.pytest}"
    elif wanted.index_before:
        pytest = "pytest"
    return sorted({*filter(None, (pytest, coverage)), *wanted.requires})


def _describe(wanted: Environment, python: Interpreter, installed: Sequence[str]) -> str:
    on = f" on Python {'.'.join(map(str, python.version[:2]))}" if wanted.python else ""
    day = f", of the index before {wanted.index_before}" if wanted.index_before else ""
    return f"{', '.join(installed)}{on}{day}"


def _build(
    uv: str, target: Path, wanted: Environment, python: Interpreter, installed: Sequence[str]
) -> None:
    """Raises as `environment`."""
    make = [uv, "venv", "--quiet", "--no-project", "--python", python.program, str(target)]
    install = [uv, "pip", "install", "--quiet", "--python", str(target / "bin" / "python3")]
    # a sandbox cannot write it, and it saves a second
    install += ["--only-binary", ":all:", "--compile-bytecode"]
    if wanted.index_before:
        install += ["--exclude-newer", _moment(wanted.index_before)]
        # coverage is our tool, and a pytest that is named is meant, whatever the day
        for name in ["coverage"] + ["pytest"] * bool(wanted.pytest):
            install += ["--exclude-newer-package", f"{name}={_NEVER}"]
    _run(make, target, _describe(wanted, python, installed))
    _run([*install, "--", *installed], target, _describe(wanted, python, installed))


def _environ() -> dict[str, str]:
    return {
        k: v
        for k, v in os.environ.items()
        if k not in ("PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV", "UV_EXCLUDE_NEWER")
    }


def _run(command: list[str], target: Path, about: str) -> None:
    env = _environ()
    if index := packages.index_url():
        env["UV_DEFAULT_INDEX"] = index
    if certificates := os.environ.get("PIP_CERT"):
        env.setdefault("SSL_CERT_FILE", certificates)
    done = subprocess.run(
        command,
        env=env,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        cwd=target.parent,
        check=False,
    )
    if done.returncode == 0:
        return
    said = " ".join((done.stderr or done.stdout).split())
    why = said[-600:]
    lower = said.lower()
    if any(
        word in lower for word in ("os error 28", "no space left", "os error 122", "quota exceeded")
    ):
        raise Fault(
            f"the disk is full: the environment for the tests cannot be written in {target.parent}",
            fix=(
                "free some space, or set RECREATE_HOME (and UV_CACHE_DIR) to a folder on another"
                " disk"
            ),
            code="disk-full",
        )
    if any(
        word in lower
        for word in ("no solution", "unsatisfiable", "conflicting", "no usable", "no wheels")
    ):
        raise BadInput(
            f"the tests need {about}, which cannot be installed together from wheels: {why}",
            fix=(
                "correct `requires`, `pytest`, `python` or `index_before`: nothing is built from"
                " sources, so each must have a wheel for that Python on your package index by"
                " that day"
            ),
            code="bad-requirement",
        )
    raise Fault(
        f"the environment for the tests was not built: {why}",
        fix=(
            "is the package index reachable? behind a proxy set HTTPS_PROXY; your own index:"
            " PIP_INDEX_URL"
        ),
        code="environment",
    )
