"""The read-only system that every box sees: programs, libraries and the few files of /etc that they need."""

from __future__ import annotations

import shutil
from functools import cache
from pathlib import Path

HOME = "/home/agent"
NAME = "agent"

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
    """((link, its target), ...) and (folder, ...) at the root of the file system that hold programs."""
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
    """The folders and files of the host's /etc to show read-only, relative to /etc."""
    return tuple(name for name in _FOLDERS if Path("/etc", name).exists())


def fill_etc(folder: Path, uid: int) -> None:
    """Make the box's own /etc in `folder`, with mount points for what `etc()` names."""
    made = {
        "passwd": f"root:x:0:0:root:/:/bin/sh\n{NAME}:x:{uid}:{uid}:{NAME}:{HOME}:/bin/sh\n",
        "group": f"root:x:0:\n{NAME}:x:{uid}:\n",
        "hosts": "127.0.0.1 localhost box\n::1 localhost\n",
        "hostname": "box\n",
        "nsswitch.conf": "passwd: files\ngroup: files\nhosts: files\nservices: files\nprotocols: files\n",
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
