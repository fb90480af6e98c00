"""A filter on system calls, for backends that can load one: parts of the kernel that no task needs.

Key rings (a process inherits its session's), further user namespaces (with them mounts and memory that nothing
counts), and the interfaces through which kernels are mostly attacked. A denied call fails with EPERM.
"""

from __future__ import annotations

import os
import platform
import struct
from functools import cache

# x86_64, aarch64
_DENIED = {
    "add_key": (248, 217),
    "request_key": (249, 218),
    "keyctl": (250, 219),
    "bpf": (321, 280),
    "perf_event_open": (298, 241),
    "userfaultfd": (323, 282),
    "io_uring_setup": (425, 425),
    "open_by_handle_at": (304, 265),
    "kexec_load": (246, 104),
    "init_module": (175, 105),
    "finit_module": (313, 273),
    "mount": (165, 40),
    "umount2": (166, 39),
    "pivot_root": (155, 41),
    "move_mount": (429, 429),
    "fsopen": (430, 430),
    "setns": (308, 268),
}
_CLONE, _UNSHARE, _CLONE3 = (56, 220), (272, 97), 435
_NEWUSER = 0x10000000
_AUDIT = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
_ALLOW, _EPERM, _ENOSYS = 0x7FFF0000, 0x00050001, 0x00050026
_LOAD, _EQUAL, _SET, _AT_LEAST, _RETURN = 0x20, 0x15, 0x45, 0x35, 0x06
_NUMBER, _ARCH, _FIRST = 0, 4, 16


@cache
def program() -> bytes:
    """The filter as the kernel takes it, b'' on a processor whose numbers are not known here."""
    machine = platform.machine()
    if machine not in _AUDIT:
        return b""
    column = list(_AUDIT).index(machine)
    code: list[tuple[int, int, int, int]] = [
        (_LOAD, 0, 0, _ARCH),
        (_EQUAL, 1, 0, _AUDIT[machine]),
        (_RETURN, 0, 0, _ENOSYS),  # the calls of another processor, under other numbers
        (_LOAD, 0, 0, _NUMBER),
        (_AT_LEAST, 0, 1, 0x40000000),  # x32
        (_RETURN, 0, 0, _ENOSYS),
        (_EQUAL, 0, 1, _CLONE3),  # its flags lie in memory; libraries fall back to clone
        (_RETURN, 0, 0, _ENOSYS),
    ]
    for numbers in _DENIED.values():
        code += [(_EQUAL, 0, 1, numbers[column]), (_RETURN, 0, 0, _EPERM)]
    code += [
        (_EQUAL, 1, 0, _CLONE[column]),
        (_EQUAL, 0, 3, _UNSHARE[column]),
        (_LOAD, 0, 0, _FIRST),
        (_SET, 0, 1, _NEWUSER),
        (_RETURN, 0, 0, _EPERM),
        (_RETURN, 0, 0, _ALLOW),
    ]
    return b"".join(struct.pack("=HBBI", operation, yes, no, value) for operation, yes, no, value in code)


def descriptor() -> int:
    """A descriptor to read the program from, for the one who closes it; -1 when there is no program."""
    if not program():
        return -1
    handle = os.memfd_create("seccomp", os.MFD_CLOEXEC)
    os.write(handle, program())
    os.lseek(handle, 0, os.SEEK_SET)
    return handle
