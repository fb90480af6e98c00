"""A program that asks, in a sandbox, for a bit that another sandbox sends: lines [what, channel] on
stdin, one answer each."""

from __future__ import annotations

import ctypes
import errno
import fcntl
import json
import os
import signal
import struct
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

libc = ctypes.CDLL(None, use_errno=True)
kept: dict[str, Any] = {}


def called(name: str, *arguments: Any) -> int:
    found = getattr(libc, name)(*arguments)
    if found < 0:
        raise OSError(ctypes.get_errno(), name)
    return int(found)


FILES: dict[str, Callable[[], int]] = {
    "a program": lambda: os.open("/usr/bin/env", os.O_RDONLY),
    "a folder": lambda: os.open("/usr/bin", os.O_RDONLY),
    "a mount": lambda: os.open("/opt/shared/file", os.O_RDONLY),
    "a certificate": lambda: os.open("/etc/ssl/openssl.cnf", os.O_RDONLY),
    "a device": lambda: os.open("/dev/null", os.O_RDWR),
    "an eventfd": lambda: called("eventfd", 0, 0),
    "an epoll": lambda: called("epoll_create1", 0),
    "a namespace": lambda: os.open("/proc/self/ns/time", os.O_RDONLY),
    "the users": lambda: os.open("/proc/self/ns/user", os.O_RDONLY),
}


def lock(kind: int) -> bytes:
    return struct.pack("hhqqi4x", kind, 0, 0, 0, 0)


def is_held(handle: int, command: int) -> bool:
    told = fcntl.fcntl(handle, command, lock(fcntl.F_WRLCK))
    return bool(struct.unpack("hhqqi4x", told)[0] != fcntl.F_UNLCK)


def is_locked(handle: int) -> bool:
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    return False


LOCKS: dict[str, tuple[Callable[[int], object], Callable[[int], bool]]] = {
    "fcntl": (
        lambda h: fcntl.fcntl(h, fcntl.F_SETLK, lock(fcntl.F_RDLCK)),
        lambda h: is_held(h, fcntl.F_GETLK),
    ),
    "ofd": (lambda h: fcntl.fcntl(h, 37, lock(fcntl.F_RDLCK)), lambda h: is_held(h, 36)),
    "flock": (lambda h: fcntl.flock(h, fcntl.LOCK_SH), is_locked),
    "lease": (
        lambda h: fcntl.fcntl(h, fcntl.F_SETLEASE, fcntl.F_RDLCK),
        lambda h: fcntl.fcntl(h, fcntl.F_GETLEASE) != fcntl.F_UNLCK,
    ),
}


def watch(path: str) -> None:
    kept["watch"] = called("inotify_init1", os.O_NONBLOCK)
    called("inotify_add_watch", kept["watch"], path.encode(), 0xFFF)


def is_noted() -> bool:
    try:
        return bool(os.read(kept.get("watch", -1), 4096))
    except BlockingIOError:
        return False


def watch_old() -> None:
    signal.signal(signal.SIGIO, lambda *_: kept.update(noted=True))
    kept["folder"] = os.open("/usr/bin", os.O_RDONLY)
    fcntl.fcntl(kept["folder"], fcntl.F_NOTIFY, fcntl.DN_ACCESS | fcntl.DN_MULTISHOT)


def is_cached() -> list[int]:
    handle = FILES["a mount"]()
    return [os.preadv(handle, [bytearray(1)], at, os.RWF_NOWAIT) for at in range(0, 65536, 4096)]


def count_cached() -> int:
    told = ctypes.create_string_buffer(40)
    handle = FILES["a mount"]()
    if libc.syscall(451, handle, struct.pack("QQ", 0, 0), told, 0):
        raise OSError(ctypes.get_errno(), "cachestat")
    return int(struct.unpack_from("Q", told)[0])


def evict() -> None:
    os.posix_fadvise(FILES["a mount"](), 0, 0, os.POSIX_FADV_DONTNEED)


def of_lock(lock: str, file: str) -> dict[str, Callable[[], object]]:
    def send() -> None:
        kept["file"] = FILES[file]()
        LOCKS[lock][0](kept["file"])

    return {"send": send, "read": lambda: LOCKS[lock][1](FILES[file]())}


CHANNELS = {f"{lock} on {file}": of_lock(lock, file) for lock in LOCKS for file in FILES}
for path in ("/usr/bin/env", "/opt/shared/file", "/dev/null"):
    CHANNELS[f"a watch of {path}"] = {
        "prepare": lambda path=path: watch(path),
        "send": lambda path=path: os.read(os.open(path, os.O_RDWR if "dev" in path else 0), 1),
        "read": is_noted,
    }
for name in ("null", "zero", "full", "tty"):
    CHANNELS[f"the times of {name}"] = {
        "send": lambda name=name: os.utime("/dev/" + name),
        "read": lambda name=name: Path("/dev", name).stat().st_mtime_ns,
    }
CHANNELS["a watch of before inotify"] = {
    "prepare": watch_old,
    "send": FILES["a program"],
    "read": lambda: bool(kept.get("noted")),
}
CHANNELS["what is cached"] = {"send": evict, "read": is_cached}
CHANNELS["how much is cached"] = {"send": evict, "read": count_cached}
CHANNELS["a hint"] = {
    "send": lambda: fcntl.fcntl(FILES["an eventfd"](), 1036, struct.pack("Q", 3)),
    "read": lambda: fcntl.fcntl(FILES["an eventfd"](), 1035, bytes(8))[0],
}
CHANNELS["requests under way"] = {
    "send": lambda: libc.syscall(206, 500, ctypes.byref(ctypes.c_ulong(0))),
    "read": lambda: Path("/proc/sys/fs/aio-nr").read_text(),
}
CHANNELS["a queue"] = {
    "send": lambda: called("mq_open", b"/bit", os.O_CREAT | os.O_RDWR, 0o666, None),
    "read": lambda: libc.mq_open(b"/bit", os.O_RDWR) >= 0,
}
CHANNELS["shared memory"] = {
    "send": lambda: Path("/dev/shm/bit").touch(),
    "read": lambda: Path("/dev/shm/bit").exists(),
}
if __name__ == "__main__":
    for line in sys.stdin:
        what, channel = json.loads(line)
        try:
            said = CHANNELS[channel].get(what, lambda: None)()
        except OSError as e:
            said = errno.errorcode[e.errno]
        print(json.dumps(said if what == "read" else None), flush=True)
