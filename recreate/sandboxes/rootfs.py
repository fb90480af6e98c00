"""The read-only system that every sandbox sees: programs, libraries and the few files of /etc that
they need; and what a Python environment of the host needs besides, in order to run inside."""

from __future__ import annotations

import os
import shutil
from functools import cache
from pathlib import Path

from recreate.api.errors import BadInput

HOME = "/home/agent"
NAME = "agent"
DEVICES = ("null", "zero", "full", "random", "urandom", "tty")
_SHOWN = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64")

_PLAIN = ("ld.so.cache", "localtime", "mime.types", "services", "protocols")
_FOLDERS = (
    "alternatives",
    "ssl/certs",
    "ssl/openssl.cnf",
    "ca-certificates/extracted",
    "pki/tls/certs",
    "pki/ca-trust/extracted",
    "crypto-policies",
)
"""Certificates and no keys: /etc/ssl/private and /etc/pki/tls/private stay outside."""


@cache
def top() -> tuple[tuple[tuple[str, str], ...], tuple[str, ...]]:
    """Return ((link, its target), ...) and (folder, ...) at the root of the file system that hold
    programs."""
    links: list[tuple[str, str]] = []
    folders = ["/usr"]
    for path in sorted(Path("/").iterdir()):
        if path.name in ("bin", "sbin") or path.name.startswith("lib"):
            if path.is_symlink():
                links.append((str(path), str(path.readlink())))
            elif path.is_dir():
                folders.append(str(path))
    return tuple(links), tuple(folders)


@cache
def etc() -> tuple[str, ...]:
    """Return the folders and files of the host's /etc to show read-only, relative to /etc."""
    return tuple(name for name in _FOLDERS if Path("/etc", name).exists())


def fill_etc(folder: Path, uid: int) -> None:
    """Make the sandbox's own /etc in `folder`, with mount points for what `etc()` names."""
    made = {
        "passwd": f"root:x:0:0:root:/:/bin/sh\n{NAME}:x:{uid}:{uid}:{NAME}:{HOME}:/bin/sh\n",
        "group": f"root:x:0:\n{NAME}:x:{uid}:\n",
        "hosts": "127.0.0.1 localhost box\n::1 localhost\n",
        "hostname": "box\n",
        "nsswitch.conf": (
            "passwd: files\ngroup: files\nhosts: files\nservices: files\nprotocols: files\n"
        ),
        "resolv.conf": "",
    }
    for name, text in made.items():
        (folder / name).write_text(text)
    for name in _PLAIN:
        if Path("/etc", name).is_file():
            shutil.copyfile(f"/etc/{name}", folder / name)
    for name in etc():
        there = folder / name
        if Path("/etc", name).is_dir():
            there.mkdir(parents=True, exist_ok=True)
        else:
            there.parent.mkdir(parents=True, exist_ok=True)
            there.touch()


def interpreter_mounts(venv: Path) -> dict[str, Path]:
    """Read-only mounts, path inside -> path outside (the same), to run `venv`'s python in a
    sandbox.

    The environment's folder, the prefix of the interpreter it was made from, and every folder that
    the links between the two lead through; nothing for an interpreter of the system, which every
    sandbox sees. Raises BadInput when `venv` has no python.
    """
    venv = Path(os.path.normpath(Path.cwd() / venv))
    python = next(
        (p for p in (venv / "bin" / "python", venv / "bin" / "python3") if p.exists()), None
    )
    if python is None:
        raise BadInput(
            f"{venv} has no bin/python that runs",
            fix=f"make it anew: python3 -m venv {venv}",
            code="bad-venv",
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
    """Return prefix/bin/python -> prefix, under the name given and the one it resolves to."""
    prefix = python.parent.parent
    if prefix == Path("/") or any(prefix.is_relative_to(shown) for shown in _SHOWN):
        return {}
    return {str(prefix): prefix, **_also_resolved(prefix)}


def _also_resolved(folder: Path) -> dict[str, Path]:
    real = folder.resolve()
    return {str(real): real}
