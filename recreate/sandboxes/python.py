"""What a Python environment on the host needs in order to run inside a box."""

from __future__ import annotations

import os
from pathlib import Path

from recreate.api.errors import BadInput

_SHOWN = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64")


def interpreter_mounts(venv: Path) -> dict[str, Path]:
    """Read-only mounts, path inside -> path outside (the same), to run `venv`'s python in a box.

    The environment's folder, the prefix of the interpreter it was made from, and every folder that the links
    between the two lead through; nothing for an interpreter of the system, which every box sees. Raises BadInput
    when `venv` has no python.
    """
    venv = Path(os.path.normpath(Path.cwd() / venv))
    python = next((p for p in (venv / "bin" / "python", venv / "bin" / "python3") if p.exists()), None)
    if python is None:
        raise BadInput(
            f"{venv} has no bin/python that runs", fix=f"make it anew: python3 -m venv {venv}", code="bad-venv"
        )
    found = _prefix(python)
    here = python
    while here.is_symlink():
        here = Path(os.path.normpath(here.parent / here.readlink()))
        found.update(_prefix(here))
    found.update(_prefix(python.resolve()))
    configured = venv / "pyvenv.cfg"
    if configured.is_file():
        for line in configured.read_text(encoding="utf-8").splitlines():
            name, _, value = line.partition("=")
            if name.strip() == "home":
                found.update(_prefix(Path(value.strip()) / "python"))
    return {
        inside: outside
        for inside, outside in found.items()
        if not any(other != inside and Path(inside).is_relative_to(other) for other in found)
    }


def _prefix(python: Path) -> dict[str, Path]:
    """prefix/bin/python -> prefix, under the name given and the one it resolves to."""
    prefix = python.parent.parent
    if prefix == Path("/") or any(prefix.is_relative_to(shown) for shown in _SHOWN):
        return {}
    return {str(prefix): prefix, **_also_resolved(prefix)}


def _also_resolved(folder: Path) -> dict[str, Path]:
    real = folder.resolve()
    return {str(real): real}
