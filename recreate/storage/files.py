"""Make a folder or a file once, whoever asks first: another process waits, and a crash leaves nothing half made."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

from recreate.api.errors import BadInput, Fault


def once(target: Path, build: Callable[[Path], None]) -> Path:
    """`target`, made by `build(fresh path)` when it is not there yet, and put in place by one rename."""
    if target.exists():
        return target
    with locked(target):
        if not target.exists():
            with writing(target), tempfile.TemporaryDirectory(prefix=".new-", dir=target.parent) as scratch:
                fresh = Path(scratch) / target.name
                build(fresh)
                fresh.rename(target)
    return target


@contextlib.contextmanager
def locked(target: Path) -> Iterator[None]:
    """Hold the lock of `target` between processes and threads; its folder is made."""
    with writing(target):
        target.parent.mkdir(parents=True, exist_ok=True)
        handle = (target.parent / f".{target.name}.lock").open("w")
    with handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield


@contextlib.contextmanager
def writing(target: Path) -> Iterator[None]:
    """Turn a full disk or a forbidden folder into an error that says what to do."""
    try:
        yield
    except (OSError, shutil.Error) as e:
        code = getattr(e, "errno", None)
        if code in (errno.ENOSPC, errno.EDQUOT):
            raise Fault(
                f"the disk is full: cannot write {target.name} in {target.parent}",
                fix="free some space, or set RECREATE_HOME to a folder on another disk",
                code="disk-full",
            ) from None
        if code in (errno.EACCES, errno.EROFS, errno.EPERM):
            raise BadInput(
                f"cannot write {target}: {e}",
                fix="set RECREATE_HOME to a folder you can write",
                code="not-writable",
            ) from None
        raise
