"""One at a time, whole or not at all, and what the disk refuses said in words."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import shutil
import signal
import socket
import stat
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from recreate.api.errors import BadInput, Fault
from recreate.storage import files
from recreate.storage.files import (
    RESUME,
    check_locks,
    disk,
    explain_refusal,
    home_disk,
    is_locked,
    lock,
    locked,
    make,
    make_folders,
    make_private,
    misplaced,
    of_disk,
    once,
    replacing,
    shut_out,
    umask_in,
    write,
)
from recreate.storage.log import Log


def test_threads_take_turns_even_when_the_folder_is_deleted_meanwhile(tmp_path: Path) -> None:
    folder, inside, most = tmp_path / "shared", list[int](), list[int]()

    def work(n: int) -> None:
        with locked(folder):
            inside.append(n)
            most.append(len(inside))
            time.sleep(0.01)
            inside.remove(n)
            if n % 2:
                shutil.rmtree(folder)

    threads = [threading.Thread(target=work, args=(n,)) for n in range(8)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert most == [1] * 8


def test_a_folder_that_is_deleted_while_it_is_made_is_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, real, looks = tmp_path / "shared", os.mkdir, list[int]()

    def mkdir(path: str, mode: int = 0o777, **kw: int) -> None:
        looks.append(1)
        if len(looks) == 1:
            # and gone by the time of the second look
            raise FileExistsError(errno.EEXIST, "File exists", str(path))
        real(path, mode, **kw)

    monkeypatch.setattr(os, "mkdir", mkdir)
    with locked(folder):
        assert folder.is_dir()
    assert len(looks) == 2


def test_a_folder_that_somebody_else_makes_meanwhile_is_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = os.mkdir

    def mkdir(path: str, mode: int = 0o777, **kw: int) -> None:
        real(path, mode, **kw)
        raise FileExistsError(errno.EEXIST, "File exists", str(path))

    monkeypatch.setattr(os, "mkdir", mkdir)
    make_folders(tmp_path / "a" / "b")
    assert (tmp_path / "a" / "b").is_dir()


@pytest.mark.parametrize("below", [".", "inner"])
@pytest.mark.parametrize("made", [Path.touch, lambda p: p.symlink_to(p.with_name("nowhere"))])
def test_what_stands_in_the_place_of_a_folder_is_an_error_and_not_waited_for(
    tmp_path: Path, made: Callable[[Path], None], below: str
) -> None:
    made(tmp_path / "shared")
    with pytest.raises((BadInput, Fault), match="shared"), locked(tmp_path / "shared" / below):
        pass


def test_a_lock_that_somebody_holds_is_seen_and_not_waited_for(tmp_path: Path) -> None:
    file = tmp_path / "lock"
    assert not is_locked(file)
    held = lock(file)
    assert held is not None
    assert is_locked(file)
    assert lock(file, wait=False) is None
    os.close(held)
    assert not is_locked(file)


def test_a_file_is_replaced_whole_or_not_at_all(tmp_path: Path) -> None:
    file = tmp_path / "new" / "f.txt"
    write(file, "old \ud800")
    assert file.read_bytes() == "old \ud800".encode("utf-8", "surrogatepass")
    with pytest.raises(TypeError), replacing(file) as draft:
        draft.writelines([b"half", 3])  # type: ignore[list-item]
    assert file.read_bytes().startswith(b"old")
    assert [p.name for p in file.parent.iterdir()] == ["f.txt"]


def test_a_draft_that_cannot_be_begun_is_said_as_what_the_disk_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "open", refuse)
    with pytest.raises(Fault) as caught:
        write(tmp_path / "f.txt", "x")
    assert caught.value.message == f"the disk that holds {tmp_path} is full"
    with pytest.raises(Fault) as caught:
        write(tmp_path / "f.txt", "x", fix="then resume")
    assert caught.value.message.startswith(f"cannot write {tmp_path / 'f.txt'}: ")
    assert caught.value.fix == "then resume"


def test_something_is_made_once_and_waited_for(tmp_path: Path) -> None:
    made: list[Path] = []

    def build(fresh: Path) -> None:
        made.append(fresh)
        time.sleep(0.05)
        fresh.mkdir()

    threads = [threading.Thread(target=once, args=(tmp_path / "thing", build)) for _ in range(5)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert len(made) == 1
    assert (tmp_path / "thing").is_dir()
    with pytest.raises(ValueError, match="no"):
        once(tmp_path / "other", lambda _: (_ for _ in ()).throw(ValueError("no")))
    assert sorted(p.name for p in tmp_path.iterdir() if not p.name.startswith(".")) == ["thing"]


@pytest.mark.parametrize(
    ("number", "code", "in_home"),
    [
        (errno.ENOSPC, "disk-full", "disk-full"),
        (errno.EDQUOT, "disk-full", "disk-full"),
        (errno.EROFS, "unwritable", "not-writable"),
        (errno.EIO, "disk", None),
    ],
)
def test_what_the_disk_refuses_is_said_in_words(
    tmp_path: Path, number: int, code: str, in_home: str | None
) -> None:
    error = OSError(number, os.strerror(number))
    with pytest.raises(Fault, match=str(tmp_path)) as e, disk(tmp_path):
        raise error
    assert e.value.code == code
    with pytest.raises(Fault) as e, disk(tmp_path, fix="then resume"):
        raise error
    assert (e.value.code, e.value.fix) == ("disk", "then resume")
    with pytest.raises((Fault, BadInput, OSError)) as h, home_disk(tmp_path):
        raise error
    assert getattr(h.value, "code", None) == in_home
    assert in_home is None or "RECREATE_HOME" in getattr(h.value, "fix", "")


@pytest.mark.parametrize(
    ("error", "of_a_disk"),
    [
        (Fault("full", fix="free some", code="disk-full"), True),
        (Fault("cannot write", fix=RESUME, code="disk"), True),
        (Fault("cannot write", fix="ls -ld it", code="disk"), False),
        (BadInput("full", fix="free some", code="disk-full"), False),
        (OSError(errno.ENOSPC, "full"), False),
    ],
)
def test_a_fault_of_the_disk_is_known_wherever_it_is_caught(
    error: Exception, of_a_disk: bool
) -> None:
    assert of_disk(error) is of_a_disk


# what a disk holds, or is, and no mistake of ours


@pytest.mark.parametrize("number", [errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP])
def test_a_file_system_without_locks_is_refused_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    def refuse(*_: object) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setenv("RECREATE_HOME", str(tmp_path / "home"))
    (tmp_path / "home").mkdir()
    monkeypatch.setattr(fcntl, "lockf", refuse)
    with pytest.raises(BadInput, match="has no locks") as caught:
        check_locks(tmp_path)
    assert caught.value.code == "no-locks"
    assert "local disk" in caught.value.fix
    assert "rm " not in caught.value.fix
    monkeypatch.setattr(fcntl, "flock", refuse)
    for take in (
        lambda: lock(tmp_path / "lock"),
        lambda: lock(tmp_path / "lock", wait=False),
        lambda: locked(tmp_path / "folder").__enter__(),
        lambda: Log(tmp_path / "log.jsonl").take(0),
        lambda: check_locks(tmp_path),
    ):
        with pytest.raises(BadInput, match="has no locks"):
            take()
    assert not is_locked(tmp_path / "lock")  # nobody can hold it
    with pytest.raises(BadInput) as caught:
        once(tmp_path / "home" / "thing", Path.mkdir)
    assert caught.value.fix == "set RECREATE_HOME to a folder on a local disk"


def loop(path: Path) -> None:
    path.symlink_to(path.name)


@pytest.mark.parametrize(
    ("put", "why"),
    [
        (Path.mkdir, "is a folder, and must be a file"),
        (lambda p: p.symlink_to("nowhere/at/all"), "is a link that leads nowhere"),
        (loop, "is a link that leads nowhere"),
    ],
)
def test_what_stands_in_the_place_of_a_file_is_said_and_left_alone(
    tmp_path: Path, put: Callable[[Path], object], why: str
) -> None:
    put(tmp_path / "it")
    with pytest.raises(BadInput, match=why) as caught:
        Log(tmp_path / "it").append({"kind": "x"})
    assert str(tmp_path / "it") in caught.value.message
    assert os.path.lexists(tmp_path / "it")
    (tmp_path / "folder").mkdir()
    with pytest.raises(BadInput, match="folder is a folder, and must be a file"):
        write(tmp_path / "folder", "x")


def test_a_file_among_the_folders_above_is_said_and_left_alone(tmp_path: Path) -> None:
    (tmp_path / "notes").write_text("mine")
    for below in ("x", "x/y"):
        with pytest.raises(BadInput, match="notes is no folder, and must be one"):
            write(tmp_path / "notes" / below, "x")
    with pytest.raises(BadInput, match="notes is no folder, and must be one"), disk(tmp_path):
        make_private(tmp_path / "notes", mark="ours")
    assert (tmp_path / "notes").read_text() == "mine"
    assert misplaced(tmp_path / "not" / "yet" / "there") is None


@pytest.mark.parametrize(
    ("number", "place", "said"),
    [
        (errno.EISDIR, "folder", "is a folder, and must be a file"),
        (errno.ENOENT, "file", None),
        (errno.ENOENT, "nothing", None),
        (errno.EACCES, "folder", "cannot be written"),
        (errno.ENOSPC, "folder", "is full"),
        (errno.EIO, "folder", None),
        (errno.EISDIR, None, None),
    ],
)
def test_what_is_no_fault_of_a_users_disk_is_not_said_to_be_one(
    tmp_path: Path, number: int, place: str | None, said: str | None
) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "file").touch()
    named = () if place is None else (str(tmp_path / place),)
    found = explain_refusal(OSError(number, os.strerror(number), *named))
    assert (said in found.message) if said and found else (found is None and said is None)


def test_a_lock_is_held_by_a_file_to_read_and_append_or_by_a_folder(tmp_path: Path) -> None:
    (tmp_path / "log").write_text("one ")
    handle = lock(tmp_path / "log")
    assert handle is not None
    assert os.read(handle, 9) == b"one "
    os.lseek(handle, 0, os.SEEK_SET)
    os.write(handle, b"two")
    os.close(handle)
    assert (tmp_path / "log").read_text() == "one two"
    with pytest.raises(NotADirectoryError):
        lock(tmp_path / "log", folder=True)


# who may read it


@pytest.fixture
def open_mask() -> Iterator[None]:
    """Let what is made be as open as whoever makes it asks."""
    before = os.umask(0)
    yield
    os.umask(before)


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


@pytest.mark.usefixtures("open_mask")
@pytest.mark.parametrize("allowed", [0o700, 0o701, 0o704, 0o710, 0o750, 0o755, 0o777])
def test_what_is_made_is_as_private_as_its_folder(tmp_path: Path, allowed: int) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    folder.chmod(allowed)
    make_folders(folder / "a" / "b")
    make(folder / "c", ignored=True)
    assert [mode(folder / name) for name in ("a", "a/b", "c")] == [allowed] * 3
    write(folder / "whole", "x")
    os.close(lock(folder / "lock") or 0)
    names = ("whole", "lock", "c/.gitignore")
    assert [mode(folder / name) for name in names] == [allowed & 0o666] * 3
    assert umask_in(folder) == (0o077 if allowed == 0o700 else -1)


@pytest.mark.usefixtures("open_mask")
@pytest.mark.parametrize(
    ("inside", "closed"), [([], True), (["ours"], True), (["ours", "x"], True), (["x"], False)]
)
def test_a_private_folder_is_closed_and_a_strangers_of_that_name_is_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, inside: list[str], closed: bool
) -> None:
    there, new = tmp_path / "there", tmp_path / "new"
    there.mkdir()
    for name in inside:
        (there / name).touch()
    for place in (there, new):
        make_private(place, mark="ours")
    assert (mode(there) == 0o700) is closed
    assert mode(new) == 0o700
    make_private(there)
    assert mode(there) == 0o700
    with monkeypatch.context() as patch:  # from the start, not a moment later
        patch.setattr(files, "shut_out", lambda folder: None)
        make_private(tmp_path / "newer")
    assert mode(tmp_path / "newer") == 0o700


@pytest.mark.usefixtures("open_mask")
@pytest.mark.parametrize(
    ("before", "after"),
    [
        (0o755, 0o700),
        (0o711, 0o700),
        (0o775, 0o700),
        (0o2775, 0o2700),
        (0o701, 0o700),
        (0o750, 0o750),
        (0o2770, 0o2770),
        (0o1777, 0o1777),
    ],
)
def test_a_folder_is_taken_from_everybody_unless_somebody_chose_to_share_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, before: int, after: int
) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    folder.chmod(before)
    with monkeypatch.context() as other:
        other.setattr(os, "geteuid", lambda: folder.stat().st_uid + 1)
        shut_out(folder)
    assert mode(folder) == before
    shut_out(folder)
    assert mode(folder) == after
    shut_out(tmp_path / "not there")


@contextlib.contextmanager
def not_waiting() -> Iterator[None]:
    """Whoever waits in the block for somebody to write into a pipe is woken, and fails."""

    def wake(*_: object) -> None:
        raise TimeoutError("it waits without end")

    before = signal.signal(signal.SIGALRM, wake)
    signal.alarm(60)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def make_odd(path: Path, kind: str) -> None:
    if kind == "pipe":
        os.mkfifo(path)
    elif kind == "socket":
        with socket.socket(socket.AF_UNIX) as made:
            made.bind(os.path.relpath(path))
    else:
        path.symlink_to(kind)


ODD = ("pipe", "socket", "/dev/zero", "/dev/null")


@pytest.mark.parametrize("kind", ODD)
def test_what_is_no_file_where_a_log_should_be_is_said_and_is_not_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    monkeypatch.chdir(tmp_path)
    make_odd(tmp_path / "a.jsonl", kind)
    log = Log(tmp_path / "a.jsonl")
    ways: list[Callable[[], object]] = [
        lambda: list(log.lines()),
        lambda: list(log.read()),
        lambda: list(log.having([b"x"])),
        lambda: log.at(0),
        lambda: log.append({"a": 1}),
    ]
    for way in ways:
        with not_waiting(), pytest.raises(BadInput, match="is a pipe, a socket or a device"):
            way()
    assert not (tmp_path / "a.jsonl").is_file()
