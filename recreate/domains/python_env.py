"""A Python with pytest and coverage, in which suites run: built at first use from pinned wheels, then shared."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from recreate.api import paths
from recreate.api.errors import BadInput, Fault
from recreate.api.types import digest
from recreate.storage import packages
from recreate.storage.files import making

PINS = ("pytest==9.2.0", "coverage==7.17.3")
"""What every environment holds; a task's `requires` come on top."""

_READY = "ready"
_LAYOUT = 2
"""Part of every environment's name: raised when the way they are built changes."""


def environment(requires: Sequence[str] = (), say: Callable[[str], None] = lambda _: None) -> Path:
    """The virtual environment with PINS and `requires`: home()/envs/DIGEST, complete when this returns.

    Wheels only: nothing of the index is executed while installing. Raises BadInput (a requirement that cannot
    be met) and Fault (the index cannot be reached).
    """
    wanted = sorted({*PINS, *requires})
    version = f"{sys.implementation.name}{sys.version_info.major}.{sys.version_info.minor}"
    target = paths.home() / "envs" / digest([_LAYOUT, version, sys.base_prefix, wanted], 12)
    if (target / _READY).exists():
        return target
    with making(target):
        if not (target / _READY).exists():
            say(f"building an environment for the tests, once: {', '.join(wanted)}")
            shutil.rmtree(target, ignore_errors=True)
            _build(target, wanted)
            (target / _READY).write_text("\n".join(wanted) + "\n")
    return target


def _build(target: Path, wanted: Sequence[str]) -> None:
    uv = shutil.which("uv")
    python = str(target / "bin" / "python3")
    if uv:
        make = [uv, "venv", "--quiet", "--no-project", "--python", sys.executable, str(target)]
        install = [uv, "pip", "install", "--quiet", "--python", python, "--only-binary", ":all:", *wanted]
        install += ["--compile-bytecode"]  # sandboxes cannot write it, and pytest takes a second to compile
    else:
        make = [sys.executable, "-m", "venv", str(target)]
        install = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-input"]
        install += ["--only-binary", ":all:", *wanted]
    _run(make, target, wanted)
    _run(install, target, wanted)
    if not uv:  # an agent needs no installer, and what pip carries inside could be some task's package
        _run([python, "-m", "pip", "uninstall", "--quiet", "--yes", "pip", "setuptools"], target, wanted)


def _run(command: list[str], target: Path, wanted: Sequence[str]) -> None:
    env = {k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV")}
    if index := packages.index_url():
        env |= {"UV_DEFAULT_INDEX": index, "PIP_INDEX_URL": index}
    done = subprocess.run(
        command, env=env, stdin=subprocess.DEVNULL, capture_output=True, text=True, cwd=target.parent, check=False
    )
    if done.returncode == 0:
        return
    shutil.rmtree(target, ignore_errors=True)
    why = " ".join((done.stderr or done.stdout).split())[-600:]
    if any(word in why.lower() for word in ("no solution", "no matching distribution", "conflicting", "no usable")):
        raise BadInput(
            f"the tests need {', '.join(wanted)}, which cannot be installed together: {why}",
            fix="correct `requires`: pinned names that have wheels on your package index",
            code="bad-requirement",
        )
    raise Fault(
        f"the environment for the tests was not built: {why}",
        fix="is the package index reachable? behind a proxy set HTTPS_PROXY; your own index: PIP_INDEX_URL",
        code="environment",
    )
