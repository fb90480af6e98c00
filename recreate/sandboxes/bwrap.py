"""The `bwrap` rung: bubblewrap."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path

from recreate.api.errors import BadInput, Fault
from recreate.api.ports import Limits
from recreate.api.types import Output
from recreate.sandboxes import limits, rootfs
from recreate.sandboxes.process import LAUNCH
from recreate.sandboxes.sandbox import FolderSandbox, Way

DROP = "setpriv --reuid={uid} --regid={uid} --clear-groups --inh-caps=-all --bounding-set=-all --no-new-privs"


class Bwrap:
    """Own namespaces for everything, a minimal read-only system, no capabilities.

    Real root gives each box an unused uid; an ordinary user, or a root that may not change identity, gets a user
    namespace in which no further ones can be made.
    """

    name = "bwrap"
    own_namespaces = True

    def probe(self) -> str:
        """'' when a box was really made and a command run in it, else why not."""
        return _way()[1]

    def open(
        self,
        *,
        source: Path | None = None,
        mounts: Mapping[str, Path] | None = None,
        env: Mapping[str, str] | None = None,
        limits: Limits | None = None,
    ) -> FolderSandbox:
        """See `recreate.api.ports.SandboxBackend`. Raises BadInput when the probe says no, Fault when the host fails."""
        way, why = _way()
        if why:
            raise BadInput(f"the bwrap sandbox does not work here: {why}", fix="recreate doctor", code="no-sandbox")
        return FolderSandbox(self, drop=way == "drop", source=source, mounts=mounts, env=env, limits=limits)

    def argv(self, box: FolderSandbox, command: Sequence[bytes], seccomp: int) -> list[bytes]:
        """The command in a box: read-only system, the box's folders, the mounts, and nothing else."""
        words = [_bwrap(), *_NAMESPACES.split()]
        if box.owner is None:
            words += ["--unshare-user", "--uid", str(box.uid), "--gid", str(box.uid), "--cap-drop", "ALL"]
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
        words += ["--ro-bind", str(box.root / "etc"), "/etc"]
        for name in rootfs.etc():
            words += ["--ro-bind", f"/etc/{name}", f"/etc/{name}"]
        for there in ("/home", "/var", *box.above_mounts()):
            words += ["--dir", there]  # made in passing, it would be closed to all but the box's maker
        words += ["--symlink", "../tmp", "/var/tmp", "--proc", "/proc", "--dev", "/dev"]
        for name, there in (("shm", "/dev/shm"), ("tmp", "/tmp"), ("home", rootfs.HOME), ("work", "/work")):
            words += ["--bind", str(box.root / name), there]
        for inside, outside in box.mounts.items():
            words += ["--ro-bind", str(outside), inside]
        # A namespace's root that is the host's root under another number may write to the kernel's settings.
        words += ["--remount-ro", "/proc", "--remount-ro", "/dev", "--remount-ro", "/", "--info-fd", "3"]
        if seccomp >= 0:
            words += ["--seccomp", str(seccomp)]
        words += ["--"]
        if box.owner is not None:
            words += DROP.format(uid=box.owner).split()
        return [os.fsencode(word) for word in words] + list(command)

    def surroundings(self, box: FolderSandbox) -> tuple[str, dict[str, str]]:
        """(the folder a command starts in, the environment that says where it may write)."""
        return "/work", {"HOME": rootfs.HOME}


_NAMESPACES = (
    "--unshare-ipc --unshare-pid --unshare-net --unshare-uts --unshare-cgroup-try --hostname box"
    " --die-with-parent --new-session"
)


@cache
def _bwrap() -> str:
    return shutil.which("bwrap", path=LAUNCH["PATH"]) or shutil.which("bwrap") or ""


@cache
def _features() -> frozenset[str]:
    import subprocess

    said = subprocess.run([_bwrap(), "--help"], stdin=subprocess.DEVNULL, capture_output=True, check=False)
    return frozenset(word for word in said.stdout.decode("utf-8", "replace").split() if word.startswith("--"))


@cache
def _way() -> tuple[str, str]:
    """(`drop` or `userns`, '') for what works, else ('', why nothing does)."""
    if not _bwrap():
        return "", "the program bwrap is not installed"
    why = ""
    for way in ("drop", "userns") if os.geteuid() == 0 else ("userns",):
        why = tried(Bwrap(), way)
        if not why:
            return way, ""
    return "", why


def tried(backend: Way, way: str) -> str:
    """Make a box and run a command in it: '' when that works and the box is closed to the network, else why not."""
    if way == "userns" and os.geteuid() == 0 and "pids" not in limits.bases():
        return "root may not change identity here and no cgroup counts processes: nothing would stop a fork bomb"
    try:
        with FolderSandbox(backend, drop=way == "drop", source=None, mounts=None, env=None, limits=None) as box:
            output: Output = box.run(["cat", "/proc/self/status", "/proc/net/dev"], timeout=20)
    except Fault as e:
        return e.message
    if output.status != 0 or "CapEff:\t0000000000000000" not in output.text or "eth0" in output.text:
        return f"a box was made but is not closed: {output.text[-200:]}"
    return ""
