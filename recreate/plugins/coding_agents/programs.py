"""Where a command's program lies on the host, and what of it a sandbox has to see."""

from __future__ import annotations

import os
import re
import shlex
import shutil
from pathlib import Path

from recreate.api.errors import BadInput, Missing
from recreate.plugins.coding_agents.known import KNOWN
from recreate.sandboxes.rootfs import interpreter_mounts

SEEN = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64")
"""Folders that every sandbox sees."""


def program_of(command: str) -> str:
    """Return the program that a command begins with; '' where it begins with none."""
    try:
        words = [w for w in shlex.split(command) if not re.match(r"\w+=", w)]
    except ValueError as e:
        raise BadInput(
            f"the coding agent's command is no shell's: {e}", fix="mend its quotes"
        ) from None
    return words[0] if words else ""


def find_program(name: str, command: str) -> Path:
    """Return where the program of a coding agent lies. Raises Missing with what installs it."""
    program = program_of(command)
    found = _which(program) if program else None
    if found is None:
        package = KNOWN[name].package if name in KNOWN else "install it, or give its whole path"
        raise Missing(f"the coding agent {program or command!r} is not installed", fix=package)
    return Path(found).absolute()


def mounts_of(program: Path) -> tuple[dict[str, Path], list[str]]:
    """Return (what is mounted for a program: path inside -> the same outside, what goes on PATH):
    the package that its links lead to, and its interpreter."""
    mounts: dict[str, Path] = {}
    path = [str(program.parent)]
    _see(inside(program), mounts)
    line = _first_line(program.resolve())
    words = line.removeprefix("#!").split() if line.startswith("#!") else []
    if words and words[0].endswith("/env"):
        words = [w for w in words[1:] if not w.startswith("-")]
    interpreter = _which(words[0]) if words else None
    if interpreter is not None:
        name = Path(interpreter).name
        if name.startswith("python"):
            mounts |= interpreter_mounts(Path(interpreter).parent.parent)
        else:
            for place in _links(Path(interpreter)):
                _see(place, mounts)
        path.append(str(Path(interpreter).parent))
    return mounts, list(dict.fromkeys(path))


def _which(program: str) -> str | None:
    """Return where a program lies: where every sandbox sees it, else on this process's PATH."""
    return shutil.which(program, path="/usr/local/bin:/usr/bin:/bin") or shutil.which(program)


def _links(path: Path) -> list[Path]:
    """Return a path and all that its links lead through."""
    found = [path.absolute()]
    while found[-1].is_symlink() and len(found) < 40:
        target = found[-1].readlink()
        found.append(Path(os.path.normpath(found[-1].parent / target)))
    return found


def _see(place: Path, mounts: dict[str, Path]) -> None:
    """Mount a file, unless it is seen already; of a package of node all that lies in its
    `node_modules`. No folder that a program merely lies in: that may be the workspace."""
    if not str(place).startswith(tuple(f"{folder}/" for folder in SEEN)):
        parts = place.parts
        if "node_modules" in parts:
            place = Path(*parts[: parts.index("node_modules") + 1])
        mounts[str(place)] = place


def inside(program: Path) -> Path:
    """Return what is started inside: of a package of node the file that its link leads to, since
    that looks for what lies beside it."""
    found = program.resolve()
    return found if "node_modules" in found.parts else program


def _first_line(path: Path) -> str:
    try:
        with path.open("rb") as file:
            return file.readline(400).decode("utf-8", "replace").strip()
    except OSError:
        return ""
