"""Private folders on the host, and file access that never follows a link.

A process keeps its sandboxes in one session folder (mode 0700) on which it holds a lock for as long
as it lives. A session folder whose lock can be taken was left by a process that died, and is swept
by the next one.
"""

from __future__ import annotations

import atexit
import contextlib
import errno
import fcntl
import os
import shutil
import stat
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path

from recreate.api import paths
from recreate.api.errors import BadInput, Fault

_PATH_ONLY = os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC
_LINK = "name the file the link points to"
_DISK = Path("/var/tmp")
_GET_FLAGS = 0x80086601
_SET_FLAGS = 0x40086602
_TOP = 0x00020000
"""FS_IOC_GETFLAGS, FS_IOC_SETFLAGS and FS_TOPDIR_FL of linux/fs.h."""
_lock = threading.Lock()
_session: tuple[int, Path, int] | None = None


class NotAFile(BadInput, FileNotFoundError):
    """What is to be read is a link, a folder, a pipe, or lies below a file: no file of that name is
    there."""


def make_folder() -> Path:
    """Return a new empty folder, mode 0700, in this process's session folder. Raises Fault when it
    cannot be made."""
    global _session
    with ours("make a sandbox folder"), _lock:
        if _session is None or _session[0] != os.getpid():
            _session = (os.getpid(), *_begin())
        return Path(tempfile.mkdtemp(prefix="box-", dir=_session[1]))


@contextlib.contextmanager
def _lock_if_left(session: Path) -> Iterator[bool]:
    """Whether the process whose session folder this is has died; its lock is then ours for as long
    as this is entered. Of another user's, who alone may know, it is not said."""
    handle = -1
    dead = False
    try:
        with contextlib.suppress(OSError):
            if session.lstat().st_uid == os.geteuid():  # the folder it lies in may be everybody's
                handle = os.open(session / "lock", os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                dead = True
        yield dead
    finally:
        if handle >= 0:
            os.close(handle)


def abandoned(session: Path) -> bool:
    """Whether nobody is at work any more in a session folder, or it is gone."""
    with _lock_if_left(session) as dead:
        return dead or not os.path.lexists(session)


def sweep(really: bool = True) -> list[Path]:
    """Delete the session folders that processes left which died; which they are."""
    found = []
    for old in sorted(_base().glob("recreate-*")):
        with _lock_if_left(old) as dead:
            if dead:
                found.append(old)
                if really:
                    delete(old)
    return found


def _base() -> Path:
    """Return where session folders are made: where TMPDIR says, else on a disk, and under a path
    that tells nothing of the user, since the kernel shows it to sandboxes
    (/proc/self/mountinfo)."""
    if named := os.environ.get("TMPDIR"):
        return Path(named)
    try:
        if os.access(_DISK, os.W_OK | os.X_OK) and not os.statvfs(_DISK).f_flag & os.ST_NOEXEC:
            return _DISK
    except OSError:
        pass
    return paths.home() / "boxes"


def _begin() -> tuple[Path, int]:
    base = _base()
    base.mkdir(parents=True, exist_ok=True)
    sweep()
    folder = Path(tempfile.mkdtemp(prefix="recreate-", dir=base)).resolve()
    handle = os.open(folder / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    fcntl.flock(handle, fcntl.LOCK_EX)
    _spread(folder)
    return folder, handle


def _spread(folder: Path) -> None:
    """Have ext4 put the folders in here far apart, as those of a disk's top. It looks at each inode
    near by that was deleted in the last minutes before it makes a file: where sandboxes come and
    go, 1 ms a file instead of 0.03.
    """
    with contextlib.suppress(OSError):  # another file system
        handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            flags = bytearray(8)
            fcntl.ioctl(handle, _GET_FLAGS, flags)
            known = int.from_bytes(flags[:4], sys.byteorder)
            fcntl.ioctl(handle, _SET_FLAGS, (known | _TOP).to_bytes(4, sys.byteorder) + bytes(4))
        finally:
            os.close(handle)


@atexit.register
def _end() -> None:
    if _session is not None and _session[0] == os.getpid():
        delete(_session[1])


@contextlib.contextmanager
def ours(doing: str) -> Iterator[None]:
    """Turn an OSError of the host (disk full, no descriptors left) into a Fault that says what was
    being done.

    Not storage/files.py's: a sandbox's errors name what was done inside it, their remedy is TMPDIR,
    and its folders are locked through descriptors that follow no link. The two rooms do not know
    each other.
    """
    try:
        yield
    except FileNotFoundError:
        raise
    except OSError as e:
        full = e.errno in (errno.ENOSPC, errno.EDQUOT)
        remedies = dict.fromkeys(
            (errno.ENOSPC, errno.EDQUOT),
            "free some disk space, or point TMPDIR or RECREATE_HOME at a larger disk",
        )
        remedies[errno.ENOLCK] = "point TMPDIR at a folder on a local disk, which has locks"
        raise Fault(
            f"cannot {doing}: {e}",
            fix=remedies.get(e.errno or 0, ""),
            code="disk-full" if full else "sandbox-failed",
        ) from e


def delete(folder: Path) -> None:
    """Remove a tree whatever its modes, depth and owners; links are removed, never followed."""
    try:
        shutil.rmtree(folder)
    except FileNotFoundError:
        return
    except (OSError, RecursionError):
        # chmod 000 folders, or nesting deeper than a path or the stack: coreutils walk with
        # descriptors.
        for argv in (["chmod", "-R", "u+rwX", "--"], ["rm", "-rf", "--"]):
            subprocess.run(
                [*argv, str(folder)],
                stdin=subprocess.DEVNULL,
                capture_output=True,
                check=False,
                cwd="/",
            )
        if folder.is_dir():
            raise Fault(
                f"cannot delete the sandbox folder {folder}",
                fix=f"delete it by hand: rm -rf {folder}",
            ) from None


def copy(
    source: Path, target: Path, owner: int | None, linked: dict[tuple[int, int], Path] | None = None
) -> None:
    """Copy the content of `source` into the existing folder `target`: links stay links, modes,
    times and holes stay.

    Sockets, FIFOs and devices are left out. `owner` is the uid and gid that everything gets, None
    for ours. linked: where hard links stay such, the files copied so far that have several names: a
    copy then takes no more of the disk than what is copied, whatever made that.
    """
    with os.scandir(source) as entries:
        for entry in entries:
            there = target / entry.name
            if entry.is_symlink():
                there.symlink_to(Path(entry.path).readlink())
            elif entry.is_dir(follow_symlinks=False):
                there.mkdir(mode=0o700)
                copy(Path(entry.path), there, owner, linked)
                shutil.copystat(entry.path, there, follow_symlinks=False)
            elif entry.is_file(follow_symlinks=False):
                about = entry.stat(follow_symlinks=False)
                if linked is not None and about.st_nlink > 1:
                    first = linked.setdefault((about.st_dev, about.st_ino), there)
                    if first != there:
                        there.hardlink_to(first)
                        continue
                if about.st_blocks * 512 < about.st_size:
                    _copy_data(entry.path, there, about.st_size)
                else:
                    shutil.copyfile(entry.path, there, follow_symlinks=False)
                shutil.copystat(entry.path, there, follow_symlinks=False)
            else:
                continue
            if owner is not None:
                os.chown(there, owner, owner, follow_symlinks=False)


def _copy_data(source: str, target: Path, size: int) -> None:
    """Copy a file of this size without what it has no blocks for."""
    with (
        Path(source).open("rb", buffering=0) as old,
        target.open("xb", buffering=0) as new,
    ):
        at = 0
        while at < size:
            try:
                at = os.lseek(old.fileno(), at, os.SEEK_DATA)
            except OSError as e:
                if e.errno != errno.ENXIO:
                    raise
                break  # a hole to the end
            end = os.lseek(old.fileno(), at, os.SEEK_HOLE)
            os.lseek(new.fileno(), at, os.SEEK_SET)
            while at < end and (sent := os.sendfile(new.fileno(), old.fileno(), at, end - at)):
                at += sent
        new.truncate(size)


def usage(folders: list[Path], enough: int) -> int:
    """Bytes that the folders' contents occupy on disk, counting at least 512 for every entry.

    Stops early above `enough`. A folder nested too deep to be named counts as more than enough.
    """
    total = 0
    linked: set[tuple[int, int]] = set()
    stack = [str(f) for f in folders]
    while stack and total <= enough:
        here = stack.pop()
        try:
            with os.scandir(here) as entries:
                for entry in entries:
                    with contextlib.suppress(FileNotFoundError):
                        about = entry.stat(follow_symlinks=False)
                        if about.st_nlink > 1 and not stat.S_ISDIR(about.st_mode):
                            if (about.st_dev, about.st_ino) in linked:
                                continue
                            linked.add((about.st_dev, about.st_ino))
                        total += max(512, about.st_blocks * 512)
                        if stat.S_ISDIR(about.st_mode):
                            stack.append(entry.path)
        except PermissionError:
            # Made unreadable by the sandbox, perhaps to hide what lies in it: open it up and look
            # again.
            try:
                _open_up(here)
            except OSError:
                continue
            stack.append(here)
        except OSError as e:
            if e.errno == errno.ENAMETOOLONG:
                return enough + 1
    return total


def _open_up(path: str) -> None:
    handle = os.open(path, _PATH_ONLY | os.O_DIRECTORY)
    try:
        before = os.fstat(handle).st_mode & 0o7777
        if before & 0o700 == 0o700:
            raise PermissionError(path)
        Path(f"/proc/self/fd/{handle}").chmod(before | 0o700)
    finally:
        os.close(handle)


def parts(path: str) -> list[str]:
    """Return the components of a path inside a sandbox. Raises BadInput for an absolute one, `..`,
    NUL or nothing at all."""
    names = [name for name in path.split("/") if name not in ("", ".")]
    long = any(len(name.encode("utf-8", "replace")) > 255 for name in names)
    if path.startswith("/") or ".." in names or "\0" in path or long or not names or _halves(path):
        raise BadInput(
            f"{path!r} is not a path inside a sandbox",
            fix="name a file relative to /work, without ..",
            code="bad-path",
        )
    return names


def _halves(path: str) -> bool:
    try:
        path.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        return True
    return False


def read(root: Path, path: str) -> bytes:
    """Return the bytes of a regular file under `root`. Raises FileNotFoundError (NotAFile for a
    link or what is no file), BadInput for a path that leads outside."""
    *folders, name = parts(path)
    try:
        return _read(root, folders, name, path)
    except BadInput as e:
        raise NotAFile(e.message, fix=e.fix, code=e.code) from None


def _read(root: Path, folders: list[str], name: str, path: str) -> bytes:
    with ours(f"read {path} from a sandbox"), _folder(root, folders, path) as parent:
        handle = _path_only(name, parent, path)
        try:
            about = os.fstat(handle)
            _regular(about.st_mode, path)
            through = f"/proc/self/fd/{handle}"
            try:
                file = os.open(through, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
            except PermissionError:
                mode = stat.S_IMODE(about.st_mode)
                Path(through).chmod(mode | 0o400)
                try:
                    file = os.open(through, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
                finally:
                    Path(through).chmod(mode)
            with os.fdopen(file, "rb") as stream:
                return stream.read()
        finally:
            os.close(handle)


def write(root: Path, path: str, data: bytes, mode: int, owner: int | None) -> None:
    """Put a regular file under `root`, making the folders above it. Raises BadInput for a link or
    no file."""
    *folders, name = parts(path)
    with (
        ours(f"write {path} into a sandbox"),
        _folder(root, folders, path, make=True, owner=owner) as parent,
    ):
        with contextlib.suppress(FileNotFoundError):
            _regular(os.stat(name, dir_fd=parent, follow_symlinks=False).st_mode, path)
        # A new file renamed over the old one: what the name turns into meanwhile is replaced, never
        # opened.
        fresh_name = f".{os.urandom(6).hex()}.tmp"
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        file = os.open(fresh_name, flags, 0o600, dir_fd=parent)
        try:
            with os.fdopen(file, "wb") as stream:
                stream.write(data)
                stream.flush()
                if owner is not None:
                    os.fchown(file, owner, owner)
                os.fchmod(file, mode & 0o777)
            os.replace(fresh_name, name, src_dir_fd=parent, dst_dir_fd=parent)
        except BaseException:
            with contextlib.suppress(OSError):
                os.unlink(fresh_name, dir_fd=parent)
            raise


def place(root: Path, path: str, is_folder: bool, owner: int | None) -> None:
    """Make sure that a folder or a file is at `path`, reached through no link, for a mount to cover
    it."""
    names = parts(path)
    above = names if is_folder else names[:-1]
    with (
        ours(f"make {path} in a sandbox"),
        _folder(root, above, path, make=True, owner=owner) as parent,
    ):
        if not is_folder:
            flags = os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
            try:
                os.close(os.open(names[-1], flags, 0o644, dir_fd=parent))
            except OSError as e:
                if e.errno in (errno.ELOOP, errno.EISDIR, errno.ENXIO):
                    raise BadInput(
                        f"{path!r} in a sandbox is no regular file", code="not-a-file"
                    ) from None
                raise


@contextlib.contextmanager
def _folder(
    root: Path, names: list[str], path: str, make: bool = False, owner: int | None = None
) -> Iterator[int]:
    """Open a descriptor of the folder reached from `root` by `names`, one component at a time,
    through no link."""
    here = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    closed: list[tuple[int, int]] = []
    try:
        for name in names:
            if make:
                try:
                    os.mkdir(name, 0o755, dir_fd=here)
                    if owner is not None:
                        os.chown(name, owner, owner, dir_fd=here, follow_symlinks=False)
                except FileExistsError:
                    pass
            there = _path_only(name, here, path)
            try:
                mode = os.fstat(there).st_mode
                if not stat.S_ISDIR(mode):
                    raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), path)
                if mode & 0o700 != 0o700 and os.geteuid() != 0:
                    Path(f"/proc/self/fd/{there}").chmod(stat.S_IMODE(mode) | 0o700)
                    closed.append((os.dup(there), stat.S_IMODE(mode)))
                inside = os.open(
                    f"/proc/self/fd/{there}", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
                )
            finally:
                os.close(there)
            os.close(here)
            here = inside
        yield here
    except NotADirectoryError:
        raise BadInput(f"{path!r} in a sandbox leads through a file", code="bad-path") from None
    finally:
        os.close(here)
        for handle, mode in reversed(closed):
            Path(f"/proc/self/fd/{handle}").chmod(mode)
            os.close(handle)


def _path_only(name: str, parent: int, path: str) -> int:
    handle = os.open(name, _PATH_ONLY, dir_fd=parent)
    if stat.S_ISLNK(os.fstat(handle).st_mode):
        os.close(handle)
        raise BadInput(f"{path!r} in a sandbox leads through a link", fix=_LINK, code="link")
    return handle


def _regular(mode: int, path: str) -> None:
    if stat.S_ISLNK(mode):
        raise BadInput(f"{path!r} in a sandbox is a link", fix=_LINK, code="link")
    if not stat.S_ISREG(mode):
        raise BadInput(
            f"{path!r} in a sandbox is not a regular file",
            fix="name a regular file",
            code="not-a-file",
        )
