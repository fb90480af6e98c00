"""What the filter answers to a system call, worked out here as the kernel does, for both processors
it knows."""

from __future__ import annotations

import errno
import platform
import struct
from collections.abc import Iterator, Mapping
from typing import Final

import pytest

from recreate.sandboxes import seccomp

ALLOWED: Final = 0x7FFF0000
ARCH = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
NEW_USER = 0x10000000
REFUSED: Mapping[int, Mapping[str, tuple[int, ...]]] = {
    errno.EPERM: {
        "x86_64": (248, 249, 250, 321, 298, 323, 425, 300, 278, 304, 246, 175, 313, 308),
        "aarch64": (217, 218, 219, 280, 241, 282, 425, 262, 75, 265, 104, 105, 273, 268),
    },
    errno.ENOSYS: {
        "x86_64": (
            *(319, 447, 29, 64, 68, 435, 253, 294, 451, 206),
            *(0x40000000, 0x40000001, 0x40000000 + 56),
        ),
        "aarch64": (279, 447, 194, 190, 186, 435, 26, 451, 0),
    },
}
MOUNTS = {"x86_64": (165, 166, 155, 429, 430, 428), "aarch64": (40, 39, 41, 429, 430, 428)}
NUMBERS = {  # clone, unshare, socket, socketpair, setsockopt, fcntl
    "x86_64": (56, 272, 41, 53, 54, 72),
    "aarch64": (220, 97, 198, 199, 208, 25),
}

FLOCK = {"x86_64": 73, "aarch64": 32}
FADVISE = {"x86_64": 221, "aarch64": 223}
PREADV2 = {"x86_64": 327, "aarch64": 286}


def answer(program: bytes, arch: int, number: int, *arguments: int) -> int:
    """ALLOWED, or the errno (0: it seems to succeed and nothing was done) that the call gets."""
    given = [*arguments, *[0] * (6 - len(arguments))]
    data = struct.pack("=IIQ6Q", number, arch, 0, *given)
    lines = list(struct.iter_unpack("=HBBI", program))
    at = loaded = 0
    for _ in range(len(lines)):
        operation, yes, no, value = lines[at]
        at += 1
        assert operation & 0x07 == 0x05 or (yes, no) == (0, 0), "only a comparison jumps"
        if operation == 0x06:
            return ALLOWED if value == ALLOWED else value - 0x00050000
        if operation == 0x20:
            (loaded,) = struct.unpack_from("=I", data, value)
        else:
            held = {0x15: loaded == value, 0x45: bool(loaded & value), 0x35: loaded >= value}[
                operation
            ]
            at += yes if held else no
    raise AssertionError("it does not end")


@pytest.fixture(params=list(ARCH))
def machine(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    monkeypatch.setattr(platform, "machine", lambda: request.param)
    seccomp.program.cache_clear()
    yield request.param
    seccomp.program.cache_clear()


def test_calls_that_no_task_needs_are_refused_and_the_others_are_not(machine: str) -> None:
    program, arch = seccomp.program(), ARCH[machine]
    refused = {number: code for code, numbers in REFUSED.items() for number in numbers[machine]}
    refused |= dict.fromkeys(MOUNTS[machine], errno.EPERM)
    asked = [*range(500), *(number for number in refused if number >= 500)]
    found = {number: said for number in asked if (said := answer(program, arch, number)) != ALLOWED}
    socket, pair = NUMBERS[machine][2:4]
    granted = {FLOCK[machine]: 0}
    families = {socket: errno.EAFNOSUPPORT, pair: errno.EAFNOSUPPORT}
    assert found == refused | families | granted


def test_the_calls_of_another_processor_are_not_there(machine: str) -> None:
    other = next(arch for name, arch in ARCH.items() if name != machine)
    assert {answer(seccomp.program(), other, number) for number in range(500)} == {errno.ENOSYS}


def test_whoever_builds_the_walls_under_the_filter_may_mount(machine: str) -> None:
    arch, (clone, unshare, *_) = ARCH[machine], NUMBERS[machine]
    for mounting in (False, True):
        for namespaces in (False, True):
            program = seccomp.program(mounting=mounting, namespaces=namespaces)
            mounts = {answer(program, arch, number) for number in MOUNTS[machine]}
            assert mounts == {ALLOWED if mounting else errno.EPERM}
            for number in (clone, unshare):
                user = answer(program, arch, number, NEW_USER | 0x11)
                assert user == (ALLOWED if namespaces else errno.EPERM)
                assert answer(program, arch, number, 0x11) == ALLOWED


@pytest.mark.parametrize(
    ("family", "protocol", "opened", "paired"),
    [
        (1, 0, True, True),
        (2, 6, True, False),
        (10, 17, True, False),
        (16, 0, True, False),
        (16, 15, False, False),
        (40, 0, False, False),
        (38, 0, False, False),
        (0, 0, False, False),
    ],
)
def test_sockets_are_of_families_that_a_namespace_holds_back(
    machine: str, family: int, protocol: int, opened: bool, paired: bool
) -> None:
    program, arch, (socket, pair) = seccomp.program(), ARCH[machine], NUMBERS[machine][2:4]
    assert answer(program, arch, socket, family, 1, protocol) == (
        ALLOWED if opened else errno.EAFNOSUPPORT
    )
    assert answer(program, arch, pair, family, 1, protocol) == (
        ALLOWED if paired else errno.EAFNOSUPPORT
    )


def test_buffers_stay_as_large_as_they_are(machine: str) -> None:
    program, arch, (option, control) = seccomp.program(), ARCH[machine], NUMBERS[machine][4:]
    for name in range(64):
        assert answer(program, arch, option, 3, 1, name) == (
            0 if name in (7, 8, 32, 33) else ALLOWED
        )
        assert answer(program, arch, option, 3, 6, name) == ALLOWED
    assert answer(program, arch, control, 3, 1031) == errno.EPERM
    assert {
        answer(program, arch, control, 3, number) for number in (0, 1, 2, 3, 4, 1030, 1032)
    } == {ALLOWED}


def test_a_lock_is_granted_and_not_set_whatever_the_file(machine: str) -> None:
    program, arch, control = seccomp.program(), ARCH[machine], NUMBERS[machine][5]
    for operation in range(16):
        assert answer(program, arch, FLOCK[machine], 3, operation) == 0
    said = {command: answer(program, arch, control, 3, command) for command in range(1100)}
    assert {command for command, number in said.items() if number == 0} == {6, 7, 37, 38}
    refused = {command for command, number in said.items() if number == errno.EPERM}
    assert refused == {1024, 1026, 1031, 1036}
    assert said[5] == said[36] == ALLOWED  # no lock is there to be told of


def test_what_is_in_the_page_cache_is_neither_told_nor_thrown_out(machine: str) -> None:
    program, arch = seccomp.program(), ARCH[machine]
    for advice in range(8):
        said = answer(program, arch, FADVISE[machine], 3, 0, 0, advice)
        assert said == (0 if advice == 4 else ALLOWED)
    for flags in range(32):
        said = answer(program, arch, PREADV2[machine], 3, 0, 1, 0, 0, flags)
        assert said == (errno.EOPNOTSUPP if flags & 8 else ALLOWED)


def test_a_processor_whose_numbers_are_not_known_has_no_filter(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(platform, "machine", lambda: "riscv64")
    seccomp.program.cache_clear()
    assert seccomp.program() == b""
    seccomp.program.cache_clear()
