"""The `unshare` backend: the walls of `bwrap`, built with util-linux alone (unshare, mount,
pivot_root, setpriv)."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Sequence
from pathlib import Path

from recreate.sandboxes import filesystem, rootfs, seccomp
from recreate.sandboxes.process import LAUNCH
from recreate.sandboxes.sandbox import DROP, FolderSandbox, Walled

_PROGRAMS = ("unshare", "mount", "umount", "pivot_root", "setpriv")
_ENTER = "setpriv --pdeathsig KILL unshare --mount --uts --ipc --net --pid --fork --kill-child"
_SETTINGS = ("sys", "sysrq-trigger", "irq", "bus", "fs", "acpi", "mtrr", "scsi", "asound", "driver")
"""The kernel's: a namespace's root that is the host's root under another number may write to some
of them."""
_INIT = """set -e
read -r pid _ </proc/self/stat
echo "\\"child-pid\\": $pid" >&3
exec 3>&-
{ echo box >/proc/sys/kernel/hostname; } 2>/dev/null || :
if [ "$3" ]; then echo 1 >/proc/sys/user/max_user_namespaces; fi
mount -a -T "$1"
cd "$2"
shift 3
ip link set lo up 2>/dev/null || :
pivot_root . .
umount -l .
cd /
"$@" && status=0 || status=$?
exit $status
"""
"""What the first process of the pid namespace does. It stays, with the privileges it needs to have
been killed with its parent: a process that changes identity loses its pdeathsig, so only its child
does."""


class Unshare(Walled):
    """The walls, made with util-linux. An ordinary user gets a user namespace that is root for as
    long as the mounts take, and a second one inside it for the command, in which no third can be
    made."""

    name = "unshare"

    def missing(self) -> str:
        absent = [name for name in _PROGRAMS if not shutil.which(name, path=LAUNCH["PATH"])]
        return f"util-linux programs are missing: {', '.join(absent)}" if absent else ""

    def filter(self, sandbox: FolderSandbox) -> bytes:
        """Return the filter, under which the walls are built. It leaves mounts to capabilities, of
        which a command has none, and an ordinary user's namespaces to the kernel's count of
        them."""
        return seccomp.program(mounting=True, namespaces=sandbox.owner is None)

    def argv(self, sandbox: FolderSandbox, command: Sequence[bytes], given: int) -> list[bytes]:
        """Return the command in a sandbox: read-only system, the sandbox's folders, the mounts, and
        nothing else."""
        table = sandbox.root / "fstab"
        if not table.exists():
            with filesystem.ours("prepare a sandbox folder"):
                table.write_text(_skeleton(sandbox), encoding="utf-8", errors="surrogateescape")
        words = _ENTER.split()
        words += ["--cgroup"] if Path("/proc/self/ns/cgroup").exists() else []
        words += ["--map-root-user"] if sandbox.owner is None else []
        words += ["--", "/bin/sh", "-c", _INIT, "sh", str(table), str(sandbox.root / "top")]
        if sandbox.owner is None:
            words += [
                "yes",
                "unshare",
                "--user",
                f"--map-user={sandbox.uid}",
                f"--map-group={sandbox.uid}",
                "--",
            ]
            words += ["setpriv", "--inh-caps=-all", "--no-new-privs"]
        else:
            words += ["", *DROP.format(uid=sandbox.owner).split()]
        return [os.fsencode(word) for word in words] + list(command)


def _skeleton(sandbox: FolderSandbox) -> str:
    """Make the sandbox's root folder with every mount point, and return the fstab that fills it."""
    root = sandbox.root / "top"
    root.mkdir(mode=0o755)
    rows = [(root, root, "bind,ro")]
    links, folders = rootfs.top()
    for link, target in links:
        (root / link[1:]).symlink_to(target)
    shown = [(Path(there), there, "bind,ro") for there in folders]
    shown += [(sandbox.root / "etc", "/etc", "bind,ro")]
    shown += [(Path("/etc", name), f"/etc/{name}", "bind,ro") for name in rootfs.etc()]
    shown += [(Path("/dev", name), f"/dev/{name}", "dev") for name in rootfs.DEVICES]
    shown += [
        (sandbox.root / "shm", "/dev/shm", "bind"),
        (sandbox.root / "tmp", "/tmp", "bind"),
        (sandbox.root / "home", rootfs.HOME, "bind"),
        (sandbox.root / "work", "/work", "bind"),
    ]
    shown += [(outside, inside, "bind,ro") for inside, outside in sandbox.mounts.items()]
    for outside, inside, options in shown:
        rows.append((outside, root / inside[1:], options))
        found = sandbox.within(inside)
        if (found and found[1]) or inside.startswith("/etc/"):
            # its place is in what covers the skeleton there, and the sandbox has seen to it
            continue
        place = root / inside[1:]
        if outside.is_dir():
            place.mkdir(parents=True, exist_ok=True)
        else:
            place.parent.mkdir(parents=True, exist_ok=True)
            place.touch()
    for name in ("proc", "var", "dev/pts"):
        (root / name).mkdir(parents=True, exist_ok=True)
    (root / "var" / "tmp").symlink_to("../tmp")
    for name, target in (
        ("fd", "self/fd"),
        ("stdin", "self/fd/0"),
        ("stdout", "self/fd/1"),
        ("stderr", "self/fd/2"),
    ):
        (root / "dev" / name).symlink_to(f"/proc/{target}")
    (root / "dev" / "ptmx").symlink_to("pts/ptmx")
    text = "".join(
        f"{_quoted(source)} {_quoted(place)} none"
        f" {'bind,ro,nosuid' if how == 'dev' else how + ',nosuid,nodev'} 0 0\n"
        for source, place, how in rows
    )
    text += f"proc {_quoted(root / 'proc')} proc nosuid,nodev,noexec 0 0\n"
    for name in _SETTINGS:
        if Path("/proc", name).exists():
            there = _quoted(root / "proc" / name)
            text += f"{there} {there} none bind,ro,nosuid,nodev,noexec 0 0\n"
    return (
        text + f"devpts {_quoted(root / 'dev/pts')} devpts"
        " newinstance,ptmxmode=0666,mode=620,nosuid,noexec 0 0\n"
    )


def _quoted(path: Path) -> str:
    return re.sub(r"[\s\\#]", lambda found: f"\\{ord(found[0]):03o}", str(path))
