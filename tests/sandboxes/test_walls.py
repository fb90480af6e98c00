"""The command line that a backend's walls are made with: each wall by itself, where another one
would hide its loss."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from recreate.api.ports import Limits, Output
from recreate.api.registry import find
from recreate.sandboxes import bwrap, limits, rootfs, seccomp, unshare
from recreate.sandboxes.bwrap import Bwrap
from recreate.sandboxes.process import LAUNCH
from recreate.sandboxes.sandbox import FolderSandbox, Walled
from recreate.sandboxes.unshare import Unshare

PROGRAMS = {"bwrap": ("bwrap",), "unshare": ("unshare", "mount", "umount", "pivot_root", "setpriv")}


def here(name: str) -> bool:
    return all(shutil.which(program, path=LAUNCH["PATH"]) for program in PROGRAMS[name])


@pytest.fixture(params=[name for name in PROGRAMS if here(name)])
def backend(request: pytest.FixtureRequest) -> Walled:
    made: Walled = find("sandbox", request.param)()
    return made


def words(backend: Walled, sandbox: FolderSandbox, given: int = -1) -> list[str]:
    return [word.decode() for word in backend.argv(sandbox, [b"true", b"--last"], given)]


def test_a_backend_is_missing_exactly_when_a_program_of_it_is(
    backend: Walled, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert backend.missing() == ""
    bwrap._bwrap.cache_clear()
    monkeypatch.setattr(shutil, "which", lambda name, path=None: None)
    assert PROGRAMS[backend.name][-1] in backend.missing()
    bwrap._bwrap.cache_clear()


def test_the_systems_bwrap_goes_before_one_that_only_the_user_has(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for known, wanted in (
        ({None: "/own/bwrap", LAUNCH["PATH"]: "/usr/bin/bwrap"}, "/usr/bin/bwrap"),
        ({None: "/own/bwrap"}, "/own/bwrap"),
        ({}, ""),
    ):
        bwrap._bwrap.cache_clear()
        monkeypatch.setattr(shutil, "which", lambda name, path=None, known=known: known.get(path))
        assert bwrap._bwrap() == wanted
    bwrap._bwrap.cache_clear()


@pytest.mark.skipif(not here("bwrap"), reason="bwrap is not installed")
def test_bwrap_is_asked_what_it_can_do() -> None:
    bwrap._features.cache_clear()
    assert {"--ro-bind", "--seccomp", "--unshare-user"} <= bwrap._features()


def test_what_bwrap_says_of_itself_counts_whatever_it_ends_with(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    said = tmp_path / "bwrap"
    said.write_text("#!/bin/sh\necho usage: --some --disable-userns other\nexit 1\n")
    said.chmod(0o755)
    monkeypatch.setattr(bwrap, "_bwrap", lambda: str(said))
    bwrap._features.cache_clear()
    assert bwrap._features() == {"--some", "--disable-userns"}
    bwrap._features.cache_clear()


@pytest.mark.skipif(not here("bwrap"), reason="bwrap is not installed")
def test_bwrap_is_told_of_every_wall(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    backend = Bwrap()
    made = FolderSandbox(
        backend, drop=False, source=None, mounts={"/opt/a": tmp_path}, env=None, limits=None
    )
    try:
        monkeypatch.setattr(bwrap, "_features", lambda: frozenset({"--disable-userns"}))
        said = words(backend, made)
        line = " ".join(said)
        for wall in ("ipc", "pid", "net", "uts", "cgroup-try", "user"):
            assert f"--unshare-{wall}" in said
        for part in (
            "--die-with-parent",
            "--new-session",
            "--cap-drop ALL",
            "--disable-userns",
            "--hostname box",
        ):
            assert part in line
        assert f"--uid {made.uid} --gid {made.uid}" in line
        assert f"--ro-bind {tmp_path} /opt/a" in line
        for name, there in (("shm", "/dev/shm"), ("tmp", "/tmp"), ("work", "/work")):
            assert f"--bind {made.root / name} {there}" in line
        assert f"--ro-bind {made.root / 'etc'} /etc" in line
        assert "--remount-ro /proc --remount-ro /dev --remount-ro / " in line
        assert said[-3:] == ["--", "true", "--last"]
        assert "--seccomp" not in said
        assert "--seccomp 0 --" in " ".join(words(backend, made, 0))
        monkeypatch.setattr(bwrap, "_features", frozenset)
        assert "--disable-userns" not in words(backend, made)
        made.owner = 4321
        dropped = " ".join(words(backend, made))
        assert "--unshare-user" not in dropped
        assert (
            "--cap-drop ALL --cap-add CAP_SETUID --cap-add CAP_SETGID --cap-add CAP_SETPCAP"
            in dropped
        )
        assert dropped.count("--cap-add") == 3
        assert "4321" in dropped.partition(" -- ")[2]
    finally:
        made.owner = None
        made.close()


@pytest.mark.skipif(not here("unshare"), reason="util-linux is not installed")
def test_unshare_is_told_of_every_wall(tmp_path: Path) -> None:
    backend = Unshare()
    mounts = {"/opt/a b": tmp_path, "/var/lib/data": tmp_path}
    made = FolderSandbox(backend, drop=False, source=None, mounts=mounts, env=None, limits=None)
    try:
        said = words(backend, made)
        line = " ".join(said)
        for wall in (
            "mount",
            "uts",
            "ipc",
            "net",
            "pid",
            "cgroup",
            "map-root-user",
            "kill-child",
            "fork",
        ):
            assert f"--{wall}" in said or wall == "cgroup"
        assert line.startswith("setpriv --pdeathsig KILL unshare ")
        at = said.index("yes")
        assert said[at - 2 : at] == [str(made.root / "fstab"), str(made.root / "top")]
        assert said[at + 1 : at + 5] == [
            "unshare",
            "--user",
            f"--map-user={made.uid}",
            f"--map-group={made.uid}",
        ]
        assert line.endswith("-- setpriv --inh-caps=-all --no-new-privs true --last")
        table = (made.root / "fstab").read_text()
        rows = {
            fields[1]: (fields[0], fields[3])
            for fields in (row.split(" ") for row in table.splitlines())
        }
        top = str(made.root / "top")
        assert rows[top] == (top, "bind,ro,nosuid,nodev")
        assert rows[f"{top}/etc"] == (str(made.root / "etc"), "bind,ro,nosuid,nodev")
        assert rows[f"{top}/work"] == (str(made.root / "work"), "bind,nosuid,nodev")
        assert rows[f"{top}/opt/a\\040b"] == (str(tmp_path), "bind,ro,nosuid,nodev")
        assert rows[f"{top}/var/lib/data"] == (str(tmp_path), "bind,ro,nosuid,nodev")
        assert (made.root / "top" / "var" / "tmp").is_symlink()
        assert rows[f"{top}/proc"] == ("proc", "nosuid,nodev,noexec")
        assert rows[f"{top}/proc/sys"] == (f"{top}/proc/sys", "bind,ro,nosuid,nodev,noexec")
        assert rows[f"{top}/dev/null"] == ("/dev/null", "bind,ro,nosuid")
        assert rows[f"{top}/dev/pts"] == (
            "devpts",
            "newinstance,ptmxmode=0666,mode=620,nosuid,noexec",
        )
        made.owner = 4321
        dropped = words(backend, made)
        assert "--map-root-user" not in dropped
        assert dropped[dropped.index(top) + 1] == ""
        assert backend.filter(made) != seccomp.program(mounting=True, namespaces=True)
        made.owner = None
        assert backend.filter(made) == seccomp.program(mounting=True, namespaces=True)
    finally:
        made.owner = None
        made.close()


def plainly(text: str, made: FolderSandbox, outside: Path) -> str:
    return text.replace(str(made.root), "ROOT").replace(str(outside), "OUT")


@pytest.fixture
def sandbox(
    tmp_path: Path, backend: Walled, monkeypatch: pytest.MonkeyPatch
) -> Iterator[FolderSandbox]:
    """One of a host that has a link, a folder and certificates."""
    monkeypatch.setattr(rootfs, "top", lambda: ((("/bin", "usr/bin"),), ("/usr",)))
    monkeypatch.setattr(rootfs, "etc", lambda: ("ssl/certs",))
    (tmp_path / "file").touch()
    mounts = {"/opt/a b": tmp_path, "/work/data/x": tmp_path, "/var/lib/f": tmp_path / "file"}
    umask = os.umask(0o022)
    made = FolderSandbox(backend, drop=False, source=None, mounts=mounts, env=None, limits=None)
    yield made
    os.umask(umask)
    made.owner = None
    made.close()


@pytest.mark.skipif(not here("bwrap"), reason="bwrap is not installed")
@pytest.mark.parametrize("backend", [Bwrap()], ids=["bwrap"])
def test_bwrap_shows_a_command_these_folders_and_no_others(
    sandbox: FolderSandbox, backend: Walled, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bwrap, "_own_devices", lambda _: ["null", "tty"])
    shown = (
        "--ro-bind /usr /usr --symlink usr/bin /bin --ro-bind ROOT/etc /etc --ro-bind"
        " /etc/ssl/certs /etc/ssl/certs"
    )
    shown += (
        " --dir /home --dir /var --dir /opt --dir /var --dir /var/lib --symlink ../tmp /var/tmp"
        " --proc /proc"
    )
    shown += (
        " --dev /dev --bind ROOT/shm /dev/shm --bind ROOT/tmp /tmp --bind ROOT/home /home/agent"
    )
    shown += (
        " --bind ROOT/work /work --ro-bind OUT /opt/a b --ro-bind OUT /work/data/x --ro-bind"
        " OUT/file /var/lib/f"
    )
    own = " --dev-bind ROOT/dev/null /dev/null --dev-bind ROOT/dev/tty /dev/tty"
    last = " --remount-ro /proc --remount-ro /dev --remount-ro / --info-fd 3"
    drop = (
        "setpriv --reuid=4321 --regid=4321 --clear-groups --inh-caps=-all --bounding-set=-all"
        " --no-new-privs"
    )
    for owner, given, ends in (
        (None, -1, "--"),
        (None, 0, "--seccomp 0 --"),
        (4321, 7, f"--seccomp 7 -- {drop}"),
    ):
        sandbox.owner = owner
        line = plainly(" ".join(words(backend, sandbox, given)), sandbox, tmp_path)
        devices = own if owner else ""
        assert line.endswith(f" {shown}{devices}{last} {ends} true --last")


def test_where_no_device_can_be_made_those_of_the_system_are_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise PermissionError

    with FolderSandbox(
        Bwrap(), drop=False, source=None, mounts=None, env=None, limits=None
    ) as made:
        monkeypatch.setattr(os, "mknod", refuse)
        assert bwrap._own_devices(made) == bwrap._own_devices(made) == []


@pytest.mark.skipif(not here("unshare"), reason="util-linux is not installed")
@pytest.mark.parametrize("backend", [Unshare()], ids=["unshare"])
def test_unshare_shows_a_command_these_folders_and_no_others(
    sandbox: FolderSandbox, backend: Walled, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(unshare, "_SETTINGS", ("sys", "not-there"))
    made = words(backend, sandbox)
    assert made[:2] == ["setpriv", "--pdeathsig"]
    assert ("--cgroup" in made) is Path("/proc/self/ns/cgroup").exists()
    sandbox.owner = 4321
    drop = (
        "setpriv --reuid=4321 --regid=4321 --clear-groups --inh-caps=-all --bounding-set=-all"
        " --no-new-privs"
    )
    assert " ".join(words(backend, sandbox)).endswith(f" {drop} true --last")
    rows = """
        ROOT/top ROOT/top none bind,ro,nosuid,nodev 0 0
        /usr ROOT/top/usr none bind,ro,nosuid,nodev 0 0
        ROOT/etc ROOT/top/etc none bind,ro,nosuid,nodev 0 0
        /etc/ssl/certs ROOT/top/etc/ssl/certs none bind,ro,nosuid,nodev 0 0
        /dev/null ROOT/top/dev/null none bind,ro,nosuid 0 0
        /dev/zero ROOT/top/dev/zero none bind,ro,nosuid 0 0
        /dev/full ROOT/top/dev/full none bind,ro,nosuid 0 0
        /dev/random ROOT/top/dev/random none bind,ro,nosuid 0 0
        /dev/urandom ROOT/top/dev/urandom none bind,ro,nosuid 0 0
        /dev/tty ROOT/top/dev/tty none bind,ro,nosuid 0 0
        ROOT/shm ROOT/top/dev/shm none bind,nosuid,nodev 0 0
        ROOT/tmp ROOT/top/tmp none bind,nosuid,nodev 0 0
        ROOT/home ROOT/top/home/agent none bind,nosuid,nodev 0 0
        ROOT/work ROOT/top/work none bind,nosuid,nodev 0 0
        OUT ROOT/top/opt/a\\040b none bind,ro,nosuid,nodev 0 0
        OUT ROOT/top/work/data/x none bind,ro,nosuid,nodev 0 0
        OUT/file ROOT/top/var/lib/f none bind,ro,nosuid,nodev 0 0
        proc ROOT/top/proc proc nosuid,nodev,noexec 0 0
        ROOT/top/proc/sys ROOT/top/proc/sys none bind,ro,nosuid,nodev,noexec 0 0
        devpts ROOT/top/dev/pts devpts newinstance,ptmxmode=0666,mode=620,nosuid,noexec 0 0
    """
    table = plainly((sandbox.root / "fstab").read_text(), sandbox, tmp_path)
    assert table.splitlines() == [row.strip() for row in rows.strip().splitlines()]
    top = sandbox.root / "top"
    found = {str(path.relative_to(top)): path for path in top.rglob("*")}
    links = {name: str(path.readlink()) for name, path in found.items() if path.is_symlink()}
    fds = {
        f"dev/{name}": f"/proc/self/fd/{n}" for n, name in enumerate(("stdin", "stdout", "stderr"))
    }
    assert links == {
        "bin": "usr/bin",
        "dev/fd": "/proc/self/fd",
        "dev/ptmx": "pts/ptmx",
        "var/tmp": "../tmp",
        **fds,
    }
    assert {name for name, path in found.items() if path.is_file() and name not in links} == {
        *(f"dev/{name}" for name in ("null", "zero", "full", "random", "urandom", "tty")),
        "var/lib/f",
    }
    folders = "dev dev/pts dev/shm etc home home/agent opt opt/a=b proc tmp usr var var/lib work"
    assert {name for name, path in found.items() if path.is_dir() and name not in links} == {
        name.replace("=", " ") for name in folders.split()
    }
    assert top.stat().st_mode & 0o777 == 0o755


@pytest.mark.skipif(not here("unshare"), reason="util-linux is not installed")
def test_a_folder_may_be_mounted_over_the_place_of_one_before(tmp_path: Path) -> None:
    mounts = {"/opt/a/b": tmp_path, "/opt/a": tmp_path}
    made = FolderSandbox(Unshare(), drop=False, source=None, mounts=mounts, env=None, limits=None)
    words(Unshare(), made)
    rows = (made.root / "fstab").read_text()
    assert [rows.count(f"{made.root}/top{there} none bind,ro,") for there in mounts] == [1, 1]
    made.close()


def test_the_limits_are_those_that_were_asked_for() -> None:
    wanted = Limits(cpu_seconds=7, memory_mb=300, disk_mb=40, processes=50)
    made = FolderSandbox(Bwrap(), drop=False, source=None, mounts={}, env=None, limits=wanted)
    try:
        made._cgroup = None
        rules = made._ulimits()
        assert {"-c 0", "-S -t 7", "-H -t 8", f"-v {2 * 300 * 1024}", f"-f {40 * 2048}"} <= set(
            rules
        )
        assert limits.Watch(wanted, [made.root], None).quota == 40 * 1024 * 1024
    finally:
        made.close()


def test_memory_is_counted_in_bytes(tmp_path: Path) -> None:
    told = tmp_path / "status"
    told.write_text("Name: x\nVmRSS:\t  100 kB\nVmSwap: 20 kB\nVmPTE: 3 kB\nVmData: 999 kB\n")
    assert limits._kilobytes(limits._OF_STATUS, told) == 123 * 1024


def test_only_groups_of_processes_that_are_gone_are_swept(tmp_path: Path) -> None:
    gone = subprocess.run(
        ["sh", "-c", "echo $$"], capture_output=True, text=True, check=True
    ).stdout.strip()
    own = Path("/proc/self/ns/pid").stat().st_ino
    kept = {
        f"recreate-{own}-{os.getpid()}-b",
        f"recreate-{own + 1}-{gone}-of-another-namespace",
        "recreate-other-c",
    }
    for name in (f"recreate-{own}-{gone}-a", *kept):
        (tmp_path / name).mkdir()
    limits._sweep(tmp_path)
    assert {p.name for p in tmp_path.iterdir()} == kept


def test_what_no_folder_shows_is_looked_for_whenever_the_disk_is_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    free, clock = [100 * 2**20], [1000.0]
    monkeypatch.setattr(limits.Watch, "_free_bytes", lambda self: free[0])
    monkeypatch.setattr(limits.time, "monotonic", lambda: clock[0])
    monkeypatch.setattr(limits, "unlinked", lambda init: looked.append(init) or 0)
    monkeypatch.setattr(limits, "sends_files", lambda init: True)
    looked: list[int] = []
    watch = limits.Watch(Limits(disk_mb=40), [tmp_path], None)
    assert (watch._disk(7), watch._disk(7), looked) == (False, False, [7])  # the second is not due
    free[0] += 50 * 2**20  # of others
    clock[0] += 3
    assert (watch._disk(7), looked) == (False, [7, 7])
    free[0] -= 41 * 2**20
    assert watch._disk(7)  # it sends files, and as much is gone


def test_a_command_that_ended_well_and_filled_the_disk_is_told_as_killed(tmp_path: Path) -> None:
    watch = limits.Watch(Limits(disk_mb=1), [tmp_path], None)
    watch._free += 10 * 2**20
    (tmp_path / "much").write_bytes(bytes(3 * 2**20))
    told = watch.last(Output(text="", status=0))
    assert (told.limit, told.status) == ("disk", 137)


def test_what_a_quick_command_wrote_is_counted_though_others_freed_as_much(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits.Watch, "_free_bytes", lambda self: 2**40)
    clock, took, disk = [1000.0], [0.0], limits.DiskCount()
    monkeypatch.setattr(limits.time, "monotonic", lambda: clock[0])
    usage = limits.filesystem.usage

    def counted(*given: Any) -> int:
        clock[0] += took[0]
        return usage(*given)

    monkeypatch.setattr(limits.filesystem, "usage", counted)

    def limit() -> str:
        watch = limits.Watch(Limits(disk_mb=1), [tmp_path], None, disk=disk)
        return watch.last(Output(text="", status=0)).limit

    assert limit() == ""  # the first command's end
    (tmp_path / "much").write_bytes(bytes(3 * 2**20))
    assert [limit(), limit()] == ["disk", "disk"]
    (tmp_path / "much").unlink()
    took[0] = 1.0  # a big tree, which would cost too much each time
    assert limit() == ""
    (tmp_path / "much").write_bytes(bytes(3 * 2**20))
    clock[0] += 10
    assert limit() == ""
    clock[0] += 11
    assert limit() == "disk"


def test_a_pipe_may_hold_what_a_pipe_holds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "fd").mkdir()
    for n in range(3):
        (tmp_path / "fd" / str(n)).symlink_to(f"pipe:[{n % 2}]")
    monkeypatch.setattr(limits, "_inside", lambda init: [tmp_path])
    assert limits.buffers(None) == 2 * limits._PIPE
