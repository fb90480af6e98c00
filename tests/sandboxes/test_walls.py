"""The command line that a backend's walls are made with: each wall by itself, where another one would hide its loss."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from recreate.api.registry import find
from recreate.sandboxes import bwrap, seccomp
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


def test_a_backend_is_missing_exactly_when_a_program_of_it_is(backend: Walled, monkeypatch: pytest.MonkeyPatch) -> None:
    assert backend.missing() == ""
    bwrap._bwrap.cache_clear()
    monkeypatch.setattr(shutil, "which", lambda name, path=None: None)
    assert PROGRAMS[backend.name][-1] in backend.missing()
    bwrap._bwrap.cache_clear()


def test_the_systems_bwrap_goes_before_one_that_only_the_user_has(monkeypatch: pytest.MonkeyPatch) -> None:
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


@pytest.mark.skipif(not here("bwrap"), reason="bwrap is not installed")
def test_bwrap_is_told_of_every_wall(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    backend = Bwrap()
    made = FolderSandbox(backend, drop=False, source=None, mounts={"/opt/a": tmp_path}, env=None, limits=None)
    try:
        monkeypatch.setattr(bwrap, "_features", lambda: frozenset({"--disable-userns"}))
        said = words(backend, made)
        line = " ".join(said)
        for wall in ("ipc", "pid", "net", "uts", "cgroup-try", "user"):
            assert f"--unshare-{wall}" in said
        for part in ("--die-with-parent", "--new-session", "--cap-drop ALL", "--disable-userns", "--hostname box"):
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
        assert "--cap-drop ALL --cap-add CAP_SETUID --cap-add CAP_SETGID --cap-add CAP_SETPCAP" in dropped
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
        for wall in ("mount", "uts", "ipc", "net", "pid", "cgroup", "map-root-user", "kill-child", "fork"):
            assert f"--{wall}" in said or wall == "cgroup"
        assert line.startswith("setpriv --pdeathsig KILL unshare ")
        at = said.index("yes")
        assert said[at - 2 : at] == [str(made.root / "fstab"), str(made.root / "top")]
        assert said[at + 1 : at + 5] == ["unshare", "--user", f"--map-user={made.uid}", f"--map-group={made.uid}"]
        assert line.endswith("-- setpriv --inh-caps=-all --no-new-privs true --last")
        table = (made.root / "fstab").read_text()
        rows = {fields[1]: (fields[0], fields[3]) for fields in (row.split(" ") for row in table.splitlines())}
        top = str(made.root / "top")
        assert rows[top] == (top, "bind,ro,nosuid,nodev")
        assert rows[f"{top}/etc"] == (str(made.root / "etc"), "bind,ro,nosuid,nodev")
        assert rows[f"{top}/work"] == (str(made.root / "work"), "bind,nosuid,nodev")
        assert rows[f"{top}/opt/a\\040b"] == (str(tmp_path), "bind,ro,nosuid,nodev")
        assert rows[f"{top}/var/lib/data"] == (str(tmp_path), "bind,ro,nosuid,nodev")
        assert (made.root / "top" / "var" / "tmp").is_symlink()
        assert rows[f"{top}/proc"] == ("proc", "nosuid,nodev,noexec")
        assert rows[f"{top}/proc/sys"] == (f"{top}/proc/sys", "bind,ro,nosuid,nodev,noexec")
        assert rows[f"{top}/dev/null"] == ("/dev/null", "bind,nosuid")
        assert rows[f"{top}/dev/pts"] == ("devpts", "newinstance,ptmxmode=0666,mode=620,nosuid,noexec")
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
