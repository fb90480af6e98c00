"""A filter on system calls: parts of the kernel that no task needs, and memory that nothing would
count.

Denied are key rings (a process inherits its session's), further user namespaces (with them mounts
and networks), the interfaces through which kernels are mostly attacked, sockets of families that no
network namespace holds back (vsock reaches the hypervisor), and memory that belongs to no process
and to no folder of the sandbox: anonymous files, System V IPC, pinned pages, pipes and sockets with
larger buffers than usual. What is left is counted by `limits.Watch`.

Sandboxes share files: the system's, devices, and the one inode of all eventfds. A lock on such a
file, a watch of it, or what it has in the page cache would tell another sandbox a bit. No filter
sees which file a descriptor is of, so a lock is granted and not set, and nothing can be watched.

bubblewrap loads a filter itself. util-linux cannot: `started` starts a program under one.
"""

from __future__ import annotations

import ctypes
import errno
import os
import platform
import queue
import socket
import struct
import subprocess
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from functools import cache


def _read_table(text: str) -> dict[str, tuple[int, int]]:
    """Return name -> its number on x86_64 and on aarch64."""
    rows = (line.split() for line in text.strip().splitlines())
    return {name: (int(first), int(second)) for name, first, second in rows}


DENIED = _read_table("""
    add_key 248 217
    request_key 249 218
    keyctl 250 219
    bpf 321 280
    perf_event_open 298 241
    userfaultfd 323 282
    io_uring_setup 425 425
    fanotify_init 300 262
    vmsplice 278 75
    open_by_handle_at 304 265
    kexec_load 246 104
    init_module 175 105
    finit_module 313 273
    setns 308 268
""")
# programs that know another way take it when these are not there; the flags of clone3 lie in
# memory, and libraries fall back to clone
_ABSENT = _read_table("""
    memfd_create 319 279
    memfd_secret 447 447
    shmget 29 194
    semget 64 190
    msgget 68 186
    clone3 435 435
    inotify_init1 294 26
    cachestat 451 451
    io_setup 206 0
""")
_INOTIFY_INIT = 253
"""On x86_64 alone; on aarch64 the number is another call's."""
MOUNTING = _read_table("""
    mount 165 40
    umount2 166 39
    pivot_root 155 41
    move_mount 429 429
    fsopen 430 430
    open_tree 428 428
""")
_CLONE, _UNSHARE = (56, 220), (272, 97)
_SOCKET, _SOCKETPAIR, _SETSOCKOPT, _FCNTL = (41, 198), (53, 199), (54, 208), (72, 25)
_FLOCK, _FADVISE, _PREADV2 = (73, 32), (221, 223), (327, 286)
NEWUSER = 0x10000000
_SETLK, _SETLKW, _OFD_SETLK, _OFD_SETLKW = 6, 7, 37, 38
_SETLEASE, _NOTIFY, _SETPIPE_SZ, _SET_RW_HINT = 1024, 1026, 1031, 1036
_CONTROLS = dict.fromkeys((_SETLK, _SETLKW, _OFD_SETLK, _OFD_SETLKW), 0) | dict.fromkeys(
    (_SETLEASE, _NOTIFY, _SETPIPE_SZ, _SET_RW_HINT), errno.EPERM
)
_DONTNEED, _NOWAIT = 4, 8
_BUFFERS = (socket.SO_SNDBUF, socket.SO_RCVBUF, 32, 33)
_AUDIT = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
_ALLOW, _ERRNO = 0x7FFF0000, 0x00050000
_LOAD, _EQUAL, _SET, _AT_LEAST, _RETURN = 0x20, 0x15, 0x45, 0x35, 0x06
_NUMBER, _ARCH = 0, 4
_ARGUMENTS = (16, 24, 32, 40, 48, 56)
_PR_SET_NO_NEW_PRIVS, _PR_SET_SECCOMP, _MODE_FILTER = 38, 22, 2

Line = tuple[int, int, int, int]
Popen = subprocess.Popen[bytes]


@cache
def program(*, mounting: bool = False, namespaces: bool = False) -> bytes:
    """Return the filter as the kernel takes it, b'' on a processor whose numbers are not known
    here.

    `mounting`, `namespaces`: leave mounts, further user namespaces, to whoever builds the walls
    under the filter.
    """
    machine = platform.machine()
    if machine not in _AUDIT:
        return b""
    column = list(_AUDIT).index(machine)
    code: list[Line] = [
        (_LOAD, 0, 0, _ARCH),
        (_EQUAL, 1, 0, _AUDIT[machine]),
        _refuse(errno.ENOSYS),  # the calls of another processor, under other numbers
        (_LOAD, 0, 0, _NUMBER),
        (_AT_LEAST, 0, 1, 0x40000000),  # x32
        _refuse(errno.ENOSYS),
    ]
    for numbers in (DENIED | ({} if mounting else MOUNTING)).values():
        code += [(_EQUAL, 0, 1, numbers[column]), _refuse(errno.EPERM)]
    absent = [numbers[column] for numbers in _ABSENT.values()]
    for number in (*absent, *([_INOTIFY_INIT] if machine == "x86_64" else ())):
        code += [(_EQUAL, 0, 1, number), _refuse(errno.ENOSYS)]
    families = _only(0, (socket.AF_UNIX, socket.AF_INET, socket.AF_INET6))
    routes = [(_EQUAL, 0, 3, socket.AF_NETLINK), *_only(2, (0,))]  # which interfaces there are
    code += _rule(_SOCKET[column], [*families, *routes, _refuse(errno.EAFNOSUPPORT)])
    code += _rule(_SOCKETPAIR[column], [*_only(0, (socket.AF_UNIX,)), _refuse(errno.EAFNOSUPPORT)])
    # As the kernel does with a size over its maximum: the call succeeds, the buffer stays as it is.
    level = [
        (_LOAD, 0, 0, _ARGUMENTS[1]),
        (_EQUAL, 1, 0, socket.SOL_SOCKET),
        (_RETURN, 0, 0, _ALLOW),
    ]
    code += _rule(_SETSOCKOPT[column], [*level, *_answer(2, dict.fromkeys(_BUFFERS, 0))])
    code += _rule(_FCNTL[column], _answer(1, _CONTROLS))
    code += _rule(_FLOCK[column], [_refuse(0)])
    code += _rule(_FADVISE[column], _answer(3, {_DONTNEED: 0}))
    code += _rule(_PREADV2[column], _without(5, _NOWAIT, errno.EOPNOTSUPP))
    if not namespaces:
        for numbers in (_CLONE, _UNSHARE):
            code += _rule(numbers[column], _without(0, NEWUSER, errno.EPERM))
    code.append((_RETURN, 0, 0, _ALLOW))
    return b"".join(
        struct.pack("=HBBI", operation, yes, no, value) for operation, yes, no, value in code
    )


def _refuse(number: int) -> Line:
    return _RETURN, 0, 0, _ERRNO | number


def _rule(number: int, body: Sequence[Line]) -> list[Line]:
    """Return what a call of this number goes through; the body ends it."""
    return [(_EQUAL, 0, len(body), number), *body]


def _only(argument: int, values: Sequence[int]) -> list[Line]:
    """Allow a call whose argument is one of the values; others go on, with the argument loaded."""
    tests = [line for value in values for line in ((_EQUAL, 0, 1, value), (_RETURN, 0, 0, _ALLOW))]
    return [(_LOAD, 0, 0, _ARGUMENTS[argument]), *tests]


def _answer(argument: int, answers: Mapping[int, int]) -> list[Line]:
    """Answer a call whose argument is one of these with its errno (0: success), and allow it
    else."""
    tests = [
        line
        for value, number in answers.items()
        for line in ((_EQUAL, 0, 1, value), _refuse(number))
    ]
    return [(_LOAD, 0, 0, _ARGUMENTS[argument]), *tests, (_RETURN, 0, 0, _ALLOW)]


def _without(argument: int, flag: int, number: int) -> list[Line]:
    """Answer a call whose argument has the flag with an errno, and allow it else."""
    tests = [(_LOAD, 0, 0, _ARGUMENTS[argument]), (_SET, 0, 1, flag), _refuse(number)]
    return [*tests, (_RETURN, 0, 0, _ALLOW)]


def descriptor() -> int:
    """Return a descriptor to read the whole filter from, for the one who closes it."""
    handle = os.memfd_create("seccomp", os.MFD_CLOEXEC)
    os.write(handle, program())
    os.lseek(handle, 0, os.SEEK_SET)
    return handle


def started(start: Callable[[], Popen], filtered: bytes) -> Popen:
    """Return what `start` returns, called in a thread that lives under the filter: processes that
    it makes do too.

    A thread for each filter, as long as we live: a child's pdeathsig comes when the thread ends
    that made it.
    """
    with _lock:
        calls = _threads.get((os.getpid(), filtered))
        if calls is None:
            calls = _threads[os.getpid(), filtered] = queue.SimpleQueue()
            threading.Thread(
                target=_serve, args=(calls, filtered), name="seccomp", daemon=True
            ).start()
    answer: Future[Popen] = Future()
    calls.put((start, answer))
    return answer.result()


_lock = threading.Lock()
_threads: dict[tuple[int, bytes], queue.SimpleQueue[tuple[Callable[[], Popen], Future[Popen]]]] = {}


def _serve(
    calls: queue.SimpleQueue[tuple[Callable[[], Popen], Future[Popen]]], filtered: bytes
) -> None:
    problem = _load(filtered)
    while True:
        start, answer = calls.get()
        try:
            if problem:
                raise problem
            answer.set_result(start())
        except BaseException as e:
            answer.set_exception(e)
        del start, answer


def _load(filtered: bytes) -> OSError | None:
    """Put the calling thread, and all that it starts, under the filter."""

    class Program(ctypes.Structure):
        _fields_ = (("length", ctypes.c_ushort), ("code", ctypes.c_char_p))

    prctl = ctypes.CDLL(None, use_errno=True).prctl
    prctl.argtypes = (ctypes.c_int, *(ctypes.c_ulong,) * 4)
    given = Program(len(filtered) // 8, filtered)
    if prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) or prctl(
        _PR_SET_SECCOMP, _MODE_FILTER, ctypes.addressof(given), 0, 0
    ):
        number = ctypes.get_errno()
        return OSError(number, f"no system call filter can be loaded: {os.strerror(number)}")
    return None
