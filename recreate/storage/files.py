"""One way to lock, to replace a file whole, to make something once, and to say in words what the
disk refused."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import stat
import tempfile
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO

from recreate.api import paths
from recreate.api.errors import BadInput, Fault, RecreateError

RESUME = "free some disk space, then run `recreate resume` on this run"

_DENIED = (errno.EACCES, errno.EROFS, errno.EPERM)
_LOCKLESS = (errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP)
_KINDS = (errno.EISDIR, errno.ENOTDIR, errno.ELOOP, errno.ENOENT, errno.EEXIST)


# what the disk says


def is_full(e: BaseException) -> bool:
    """Whether the operating system says that there is no space, or no quota, left."""
    return isinstance(e, OSError) and e.errno in (errno.ENOSPC, errno.EDQUOT)


def of_disk(e: BaseException) -> bool:
    """Whether it is the Fault that the disk's refusal became."""
    return isinstance(e, Fault) and (e.code == "disk-full" or e.fix == RESUME)


def misplaced(path: Path) -> BadInput | None:
    """Return what to say of a place where no file can be kept, because of what is there: a folder,
    a link that leads nowhere, a file among the folders above. None for any other place."""
    above = next((p for p in path.absolute().parents if os.path.lexists(p)), path)
    if path.is_dir():
        why = f"{path} is a folder, and must be a file"
    elif path.is_symlink() and not path.exists():
        why = f"{path} is a link that leads nowhere"
    elif not above.is_dir():
        why = f"{above} is no folder, and must be one"
    else:
        return None
    return BadInput(why, fix="move it away, and put back what was there if it held something")


def refuse_odd(path: Path) -> None:
    """Raise BadInput for a pipe, a socket or a device: opening one may wait without end."""
    with contextlib.suppress(OSError):
        mode = path.stat().st_mode
        if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):
            raise BadInput(
                f"{path} is a pipe, a socket or a device, and must be a file",
                fix="move it away, and put back what was there if it held something",
                code="no-file",
            )


def _explain_kind(e: OSError, place: Path) -> BadInput | None:
    """Return what is wrong with the kind of thing at the place of an error, if that is why."""
    if e.errno in (errno.EEXIST, errno.ENOTDIR):
        place = place / "it"  # a folder was wanted there, to hold something
    return misplaced(place) if e.errno in _KINDS else None


def explain_refusal(e: OSError) -> RecreateError | None:
    """Return what to say of an error whose cause is what a user's disk holds, or is; None where it
    may be a mistake of ours."""
    if not isinstance(e.filename, str):
        return None
    path = Path(e.filename)
    if found := _explain_kind(e, path):
        return found
    return fault(path, e) if e.errno in _DENIED or is_full(e) else None


def lockless(path: Path) -> BadInput:
    """Return the error for a file system that has no locks."""
    if path.is_relative_to(paths.home()):
        fix = "set RECREATE_HOME to a folder on a local disk"
    else:
        fix = (
            "work in a workspace on a local disk, or mount this one with locks; RECREATE_HOME"
            " elsewhere moves what lies there"
        )
    why = f"the file system that holds {path} has no locks: two processes could spoil what is there"
    return BadInput(why, fix=fix, code="no-locks")


def fault(path: Path, e: OSError, fix: str = "") -> RecreateError:
    """Return what the operating system said of a place in a workspace, and what to do about it.

    fix: advice for this very file; the code is then `disk` whatever happened.
    """
    named = e.filename2 or e.filename
    place = Path(named) if isinstance(named, str) else path
    if found := _explain_kind(e, place):
        return found
    if fix:
        return Fault(f"cannot write {path}: {e.strerror or e}", fix=fix, code="disk")
    if is_full(e):
        return Fault(
            f"the disk that holds {path} is full",
            fix=f"free some space there: df -h {path}",
            code="disk-full",
        )
    if e.errno in _DENIED:
        there = next(
            it for it in (path.absolute(), *path.absolute().parents) if os.path.lexists(it)
        )
        return Fault(
            f"{path} cannot be written: {e.strerror}",
            fix=f"make it writable, or work in another workspace: ls -ld {there}",
            code="unwritable",
        )
    return Fault(f"{path}: {e.strerror or e}", fix=f"ls -ld {path}", code="disk")


@contextlib.contextmanager
def disk(path: Path, fix: str = "") -> Iterator[None]:
    """Turn every OSError into the Fault that `fault` makes of it."""
    try:
        yield
    except OSError as e:
        raise fault(path, e, fix) from e


@contextlib.contextmanager
def home_disk(path: Path, kept: str = "") -> Iterator[None]:
    """Say the same of `path` below RECREATE_HOME, which can be put elsewhere; let other errors
    pass.

    kept: what is not lost, for the end of the advice. Raises Fault (disk-full), BadInput
    (not-writable).
    """
    try:
        yield
    except OSError as e:
        if is_full(e):
            raise Fault(
                f"the disk is full: cannot write {path.name} in {path.parent}",
                fix=f"free some space, or set RECREATE_HOME to a folder on another disk{kept}",
                code="disk-full",
            ) from None
        if e.errno in _DENIED:
            raise BadInput(
                f"cannot write {path}: {e.strerror}",
                fix="set RECREATE_HOME to a folder you can write",
                code="not-writable",
            ) from None
        raise


# who may read it


def mode_in(folder: Path, mode: int = 0o666) -> int:
    """Return the mode for what is made in a folder: nobody may do more with it than with the
    folder."""
    return mode & (stat.S_IMODE(folder.stat().st_mode) | 0o700)


def umask_in(folder: Path) -> int:
    """Return the umask of a program that writes into a folder; -1 for this process's."""
    return -1 if stat.S_IMODE(folder.stat().st_mode) & 0o077 else 0o077


def make_folders(folder: Path) -> None:
    """Make a folder, and those above it, each as private as the one that it lies in. Raises
    OSError."""
    if folder.is_dir():
        return
    make_folders(folder.parent)
    with contextlib.suppress(FileExistsError):
        folder.mkdir(mode_in(folder.parent, 0o777))
        return
    if not folder.is_dir():
        raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(folder))


def make_private(folder: Path, mark: str = "") -> None:
    """Make a folder for what other users of this machine are not to read. Raises OSError.

    mark: the file by which a folder that is there is known as ours; any other that holds something
    stays as it is.
    """
    make_folders(folder.parent)
    with contextlib.suppress(FileExistsError):
        folder.mkdir(0o700)
    if not mark or (folder / mark).exists() or not any(folder.iterdir()):
        shut_out(folder)


def shut_out(folder: Path) -> None:
    """Take a folder from everybody but its owner. One that is shared with a group alone stays so:
    somebody has chosen that."""
    with contextlib.suppress(OSError):
        found = folder.stat()
        shared = found.st_mode & stat.S_ISVTX  # /tmp, and its like
        if found.st_mode & 0o007 and found.st_uid == os.geteuid() and not shared:
            folder.chmod(stat.S_IMODE(found.st_mode) & 0o7700)


# one at a time


def take_lock(handle: int, how: int, path: Path) -> None:
    """Take, or give back, the lock of an open file. Raises OSError, BadInput (`no-locks`)."""
    try:
        fcntl.flock(handle, how)
    except OSError as e:
        if e.errno in _LOCKLESS:
            raise lockless(path) from None
        raise


def check_locks(folder: Path) -> None:
    """Raise BadInput (`no-locks`) where SQLite would wait for a lock that is never given."""
    with tempfile.TemporaryFile(dir=folder) as file:
        take_lock(file.fileno(), fcntl.LOCK_EX, folder)
        try:
            fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as e:
            if e.errno in _LOCKLESS:
                raise lockless(folder) from None
            raise


def lock(path: Path, *, folder: bool = False, wait: bool = True) -> int | None:
    """Take the lock of a file, which is made when it is not there, or of a folder.

    Returns the descriptor that holds it until it is closed (a dead process lets go), opened to read
    and append a file; None when somebody else has it and `wait` is false. Not re-entrant. Raises
    OSError.
    """
    flags = os.O_RDONLY | os.O_DIRECTORY if folder else os.O_RDWR | os.O_APPEND | os.O_CREAT
    while True:
        handle = os.open(path, flags | os.O_CLOEXEC, mode_in(path.parent))
        try:
            take_lock(handle, fcntl.LOCK_EX if wait else fcntl.LOCK_EX | fcntl.LOCK_NB, path)
            # The holder before us may have deleted it, renamed it or made it anew.
            with contextlib.suppress(FileNotFoundError):
                if os.path.samestat(os.fstat(handle), path.stat()):
                    return handle
        except BaseException as e:
            os.close(handle)
            if isinstance(e, BlockingIOError) and not wait:
                return None
            raise
        os.close(handle)


@contextlib.contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Hold a folder for this thread of this process alone; it is made when it is not there. Raises
    Fault."""
    with disk(folder):
        # each holder before us may delete it; a dangling link stays one
        for left in reversed(range(1000)):
            try:
                make_folders(folder)
                handle = lock(folder, folder=True)
                break
            # deleted while we waited, or between two looks of mkdir
            except (FileExistsError, FileNotFoundError):
                if not left:
                    raise
    assert handle is not None
    try:
        yield
    finally:
        # closing alone would not do while a child that was forked has it too
        fcntl.flock(handle, fcntl.LOCK_UN)
        os.close(handle)


@contextlib.contextmanager
def exclusive(file: Path) -> Iterator[IO[bytes]]:
    """Open a file for appending by one process and thread at a time, with the folders above it.
    Raises OSError."""
    make_folders(file.parent)
    handle = lock(file)
    assert handle is not None
    with os.fdopen(handle, "ab") as out:
        yield out


def is_locked(file: Path) -> bool:
    """Whether a process holds the lock of a file. It need not be there."""
    try:
        with file.open("rb") as handle:
            fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:  # it is not there, or nobody can lock it
        return False
    return False


# whole or not at all


@contextlib.contextmanager
def replacing(path: Path, *, durable: bool = False) -> Iterator[IO[bytes]]:
    """Open a file to write, which takes the name `path` when the block ends well, and is gone when
    it does not.

    durable: on the disk first, whatever happens to the machine. Raises OSError.
    """
    draft = path.with_name(f".{path.name[:100]}.{os.getpid()}-{threading.get_ident()}.draft")
    try:
        with open(draft, "wb", opener=_open_as_private) as file:
            yield file
            if durable:
                file.flush()
                os.fsync(file.fileno())
        draft.replace(path)
    except BaseException:
        draft.unlink(missing_ok=True)
        raise


def _open_as_private(path: str, flags: int) -> int:
    return os.open(path, flags, mode_in(Path(path).parent))


def write(path: Path, data: str | bytes, *, durable: bool = False, fix: str = "") -> None:
    """Write a file as `replacing` does, with the folders above it. Raises the Fault that `fault`
    makes."""
    with disk(path.parent if not fix else path, fix):
        make_folders(path.parent)
        with replacing(path, durable=durable) as file:
            file.write(data.encode("utf-8", "surrogatepass") if isinstance(data, str) else data)


def make(folder: Path, *, ignored: bool = False) -> None:
    """Make a folder; with `ignored` git never shows it, whatever the workspace's own .gitignore
    says. Raises Fault."""
    with disk(folder):
        make_folders(folder)
        mark = folder / ".gitignore"
        if ignored and not mark.exists():
            write(mark, "*\n")


def once(target: Path, build: Callable[[Path], None]) -> Path:
    """Return `target`, made by `build(fresh path)` when it is not there yet, and put in place by
    one rename.

    Whoever asks meanwhile waits, and a crash leaves nothing half made. Raises as `home_disk`, and
    what `build` raises.
    """
    if not target.exists():
        with making(target):
            if not target.exists():
                with tempfile.TemporaryDirectory(prefix=".new-", dir=target.parent) as scratch:
                    fresh = Path(scratch) / target.name
                    build(fresh)
                    fresh.rename(target)
    return target


@contextlib.contextmanager
def making(target: Path) -> Iterator[None]:
    """Make something below RECREATE_HOME while nobody else does, under the lock of a file beside
    it.

    Raises as `home_disk`.
    """
    with home_disk(target), exclusive(target.parent / f".{target.name}.lock"):
        yield
