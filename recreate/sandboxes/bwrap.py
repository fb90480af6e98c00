"""The `bwrap` backend: bubblewrap."""

from __future__ import annotations

import contextlib
import os
import shutil
import stat
import subprocess
from collections.abc import Sequence
from functools import cache
from pathlib import Path

from recreate.sandboxes import rootfs
from recreate.sandboxes.process import LAUNCH
from recreate.sandboxes.sandbox import DROP, FolderSandbox, Walled


class Bwrap(Walled):
    """The walls, made by bubblewrap. An ordinary user, or a root that may not change identity, gets
    a user namespace in which no further ones can be made."""

    name = "bwrap"

    def missing(self) -> str:
        return "" if _bwrap() else "the program bwrap is not installed"

    def argv(self, sandbox: FolderSandbox, command: Sequence[bytes], given: int) -> list[bytes]:
        """Return the command in a sandbox: read-only system, the sandbox's folders, the mounts, and
        nothing else."""
        words = [_bwrap(), *_NAMESPACES.split()]
        if sandbox.owner is None:
            words += [
                "--unshare-user",
                "--uid",
                str(sandbox.uid),
                "--gid",
                str(sandbox.uid),
                "--cap-drop",
                "ALL",
            ]
            words += ["--disable-userns"] if "--disable-userns" in _features() else []
        else:
            words += ["--cap-drop", "ALL"]
            for capability in ("CAP_SETUID", "CAP_SETGID", "CAP_SETPCAP"):
                words += ["--cap-add", capability]
        links, folders = rootfs.top()
        for there in folders:
            words += ["--ro-bind", there, there]
        for link, target in links:
            words += ["--symlink", target, link]
        words += ["--ro-bind", str(sandbox.root / "etc"), "/etc"]
        for name in rootfs.etc():
            words += ["--ro-bind", f"/etc/{name}", f"/etc/{name}"]
        for there in ("/home", "/var", *sandbox.above_mounts()):
            # made in passing, it would be closed to all but the sandbox's maker
            words += ["--dir", there]
        words += ["--symlink", "../tmp", "/var/tmp", "--proc", "/proc", "--dev", "/dev"]
        for name, there in (
            ("shm", "/dev/shm"),
            ("tmp", "/tmp"),
            ("home", rootfs.HOME),
            ("work", "/work"),
        ):
            words += ["--bind", str(sandbox.root / name), there]
        for inside, outside in sandbox.mounts.items():
            words += ["--ro-bind", str(outside), inside]
        for name in _own_devices(sandbox) if sandbox.owner is not None else ():
            words += ["--dev-bind", str(sandbox.root / "dev" / name), f"/dev/{name}"]
        # A namespace's root that is the host's root under another number may write to the kernel's
        # settings.
        for there in ("/proc", "/dev", "/"):
            words += ["--remount-ro", there]
        words += ["--info-fd", "3"]
        if given >= 0:
            words += ["--seccomp", str(given)]
        words += ["--"]
        if sandbox.owner is not None:
            words += DROP.format(uid=sandbox.owner).split()
        return [os.fsencode(word) for word in words] + list(command)


def _own_devices(sandbox: FolderSandbox) -> list[str]:
    """Return the devices that the sandbox has to itself, made on the first call: of one that is
    shared,
    whoever may write to it sets the times that all see. None where the file system or the kernel
    lets us make none that opens."""
    folder = sandbox.root / "dev"
    with contextlib.suppress(OSError):
        if not folder.exists():
            folder.mkdir()
            for name in rootfs.DEVICES:
                os.mknod(folder / name, stat.S_IFCHR, Path("/dev", name).stat().st_rdev)
                (folder / name).chmod(0o666)
        (folder / "null").read_bytes()
        return list(rootfs.DEVICES)
    return []


_NAMESPACES = (
    "--unshare-ipc --unshare-pid --unshare-net --unshare-uts --unshare-cgroup-try --hostname box"
    " --die-with-parent --new-session"
)


@cache
def _bwrap() -> str:
    return shutil.which("bwrap", path=LAUNCH["PATH"]) or shutil.which("bwrap") or ""


@cache
def _features() -> frozenset[str]:
    said = subprocess.run(
        [_bwrap(), "--help"], stdin=subprocess.DEVNULL, capture_output=True, check=False
    )
    return frozenset(
        word for word in said.stdout.decode("utf-8", "replace").split() if word.startswith("--")
    )
