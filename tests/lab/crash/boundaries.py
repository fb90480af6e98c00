"""What reaches the disk, counted in this process: writes, syncs, renames, SQLite's statements, git;
a stop there."""

from __future__ import annotations

import builtins
import errno
import io
import os
import signal
import sqlite3
import subprocess
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NoReturn

CHANGES = (
    "fsync",
    "replace",
    "rename",
    "unlink",
    "remove",
    "rmdir",
    "mkdir",
    "ftruncate",
    "truncate",
    "link",
)


@dataclass
class Counter:
    """at: the boundary where it ends, 0 for none. full: from there on the disk is full; without it,
    a kill."""

    at: int = 0
    full: bool = False
    seen: list[str] = field(default_factory=list)
    lock: threading.Lock = field(default_factory=threading.Lock)


_counter: Counter | None = None


def at_boundary(what: str, torn: Callable[[], object] | None = None) -> None:
    """Count one boundary; at the chosen one, end. torn: does half of what is about to be done."""
    if _counter is None:
        return
    with _counter.lock:
        _counter.seen.append(what)
        if not _counter.at or len(_counter.seen) < _counter.at:
            return
        if torn is not None and (not _counter.full or len(_counter.seen) == _counter.at):
            torn()
        if not _counter.full:
            kill()
    if not what.startswith(
        ("unlink", "remove", "rmdir", "ftruncate", "truncate", "git", "before", "after")
    ):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), what)


def kill() -> NoReturn:
    os.kill(os.getpid(), signal.SIGKILL)
    raise AssertionError("killed")


class _File(io.FileIO):
    def write(self, data: Any) -> int:
        raw = bytes(data)
        at_boundary(f"write {len(raw)} bytes to {self.name}")
        at_boundary(
            f"half a write to {self.name}", lambda: super(_File, self).write(raw[: len(raw) // 2])
        )
        return super().write(raw)


class _Cursor(sqlite3.Cursor):
    def execute(self, sql: str, *args: Any) -> Any:
        _sql(sql)
        return super().execute(sql, *args)

    def executemany(self, sql: str, rows: Any) -> Any:
        _sql(sql)
        return super().executemany(sql, rows)

    def executescript(self, sql: str) -> Any:
        _sql(sql)
        return super().executescript(sql)


class _Connection(sqlite3.Connection):
    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        if _counter is not None and not _counter.full:
            # every statement, also those that sqlite3 makes itself: BEGIN, COMMIT, the rows of
            # executemany
            self.set_trace_callback(
                lambda sql: _reads(sql) or at_boundary(f"sqlite {' '.join(sql.split()[:5])}")
            )

    def cursor(self, factory: Any = _Cursor) -> Any:
        return super().cursor(factory)

    def commit(self) -> None:
        _sql("COMMIT")
        super().commit()


def _sql(sql: str) -> None:
    """A statement of a full disk: what reads goes on."""
    if _counter is None or not _counter.full or _reads(sql):
        return
    try:
        at_boundary("sqlite " + sql.split(maxsplit=1)[0])
    except OSError:
        raise sqlite3.OperationalError("database or disk is full") from None


def _reads(sql: str) -> bool:
    return not sql.strip() or sql.split(maxsplit=1)[0].upper() in ("SELECT", "PRAGMA", "BEGIN")


def count(counter: Counter) -> None:
    """From here on, for the rest of this process's life."""
    global _counter
    _counter = counter
    write = os.write

    def counted_write(fd: int, data: Any) -> int:
        raw = bytes(data)
        if fd > 2:
            name = Path(f"/proc/self/fd/{fd}").readlink()
            at_boundary(f"write {len(raw)} bytes to {name}")
            at_boundary(f"half a write to {name}", lambda: write(fd, raw[: len(raw) // 2]))
        return write(fd, raw)

    os.write = counted_write
    for name in CHANGES:
        setattr(os, name, _counted(name, getattr(os, name)))
    plain = io.open

    def counted_open(
        file: Any,
        mode: str = "r",
        buffering: int = -1,
        encoding: Any = None,
        errors: Any = None,
        newline: Any = None,
        closefd: bool = True,
        opener: Any = None,
    ) -> Any:
        if not set(mode) & set("wax+") or isinstance(file, int):
            return plain(file, mode, buffering, encoding, errors, newline, closefd, opener)
        at_boundary(f"open {file}")
        raw = _File(file, mode.replace("b", "").replace("t", ""), closefd, opener)
        if buffering == 0:
            return raw
        made = io.BufferedRandom(raw) if "+" in mode else io.BufferedWriter(raw)
        return made if "b" in mode else io.TextIOWrapper(made, encoding or "utf-8", errors, newline)

    io.open = builtins.open = counted_open
    sqlite3.connect = sqlite3.dbapi2.connect = lambda *a, **k: _Connection(*a, **k)
    begin = subprocess.Popen.__init__

    def counted_begin(self: Any, args: Any, *rest: Any, **options: Any) -> None:
        if changing := {"init", "fast-import", "update-ref"} & set(args):
            at_boundary(f"git {changing.pop()}")
        begin(self, args, *rest, **options)

    subprocess.Popen.__init__ = counted_begin  # type: ignore[method-assign]


def _counted(name: str, done: Callable[..., Any]) -> Callable[..., Any]:
    def counted(*args: Any, **options: Any) -> Any:
        if name != "mkdir" or not Path(args[0]).exists():
            at_boundary(f"{name} {args[0]}")
        return done(*args, **options)

    return counted
