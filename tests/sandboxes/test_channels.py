"""Two sandboxes side by side: one tries to tell the other a bit, by what they share."""

from __future__ import annotations

import ctypes
import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from recreate.api.errors import BadInput
from recreate.api.ports import Limits
from recreate.sandboxes import choose
from recreate.sandboxes.limits import bases
from recreate.sandboxes.process import Dialogue
from recreate.sandboxes.sandbox import FolderSandbox
from tests.sandboxes import party

PARTY = Path(party.__file__).read_text()


def ask(who: Dialogue, what: str, channel: str) -> object:
    assert who.send(json.dumps([what, channel]).encode(), 20)
    said = who.take(20)
    assert said is not None
    return json.loads(said)


@pytest.fixture(scope="module", params=["bwrap", "unshare"])
def two(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[list[FolderSandbox]]:
    shared = tmp_path_factory.mktemp("shared")
    (shared / "file").write_bytes(b"x" * 65536)
    for folder in (shared, *shared.parents[:2]):
        folder.chmod(0o755)
    try:
        backend = choose(request.param)
    except BadInput as e:
        pytest.skip(e.message)
    made = [backend.open(mounts={"/opt/shared": shared}) for _ in range(2)]
    yield made  # type: ignore[misc]
    for each in made:
        each.close()


@pytest.fixture(scope="module")
def parties(two: list[FolderSandbox]) -> list[Dialogue]:
    return [each.start(["python3", "-c", PARTY], 120) for each in two]


@pytest.mark.parametrize("channel", list(party.CHANNELS))
def test_a_sandbox_tells_another_nothing_by_what_they_share(
    two: list[FolderSandbox], parties: list[Dialogue], channel: str
) -> None:
    one, other = parties
    if channel.startswith("the times") and two[0].backend == "bwrap" and two[0].owner is None:
        pytest.skip("bubblewrap shows an ordinary user's sandboxes the host's devices")
    ask(other, "prepare", channel)
    before = ask(other, "read", channel)
    ask(one, "send", channel)
    assert ask(other, "read", channel) == before


LOCKING = """
import fcntl, os, sqlite3
with open("file", "w") as file:
    fcntl.flock(file, fcntl.LOCK_EX)
    fcntl.flock(file, fcntl.LOCK_UN)
    fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
for mode in ("wal", "delete"):
    base = sqlite3.connect(mode + ".sqlite")
    base.execute("PRAGMA journal_mode = " + mode)
    with base:
        base.execute("CREATE TABLE t (a)")
    for number in range(3):
        with base:
            base.execute("INSERT INTO t VALUES (?)", (number,))
    other = sqlite3.connect(mode + ".sqlite")
    print(mode, other.execute("SELECT sum(a) FROM t").fetchone()[0])
"""


def test_programs_that_lock_their_own_files_go_on(two: list[FolderSandbox]) -> None:
    assert two[0].run(["python3", "-c", LOCKING]).text == "wal 3\ndelete 3\n"
    git = (
        "git init -q r && cd r && git config user.email a@b && git config user.name a"
        " && echo a >f && git add f && git commit -qm a && git log --oneline | wc -l"
    )
    if subprocess.run(["sh", "-c", "command -v git"], capture_output=True, check=False).stdout:
        assert two[0].run(git).text.strip() == "1"


def test_connections_of_one_process_still_keep_each_other_out(two: list[FolderSandbox]) -> None:
    said = two[0].run(
        [
            "python3",
            "-c",
            "import sqlite3\n"
            "a, b = (sqlite3.connect('one.sqlite', timeout=0) for _ in range(2))\n"
            "a.isolation_level = b.isolation_level = None\n"
            "a.execute('CREATE TABLE t (a)')\n"
            "a.execute('BEGIN EXCLUSIVE')\n"
            "try: b.execute('BEGIN EXCLUSIVE')\n"
            "except sqlite3.OperationalError as e: print(e)\n",
        ]
    )
    assert said.text == "database is locked\n"


def test_devices_are_read_and_written(two: list[FolderSandbox]) -> None:
    for sandbox in two:
        said = sandbox.run(
            "echo x >/dev/null && echo y >>/dev/null && head -c 2 /dev/zero | wc -c"
            " && head -c 3 /dev/urandom | wc -c && ! echo z 2>&- >/dev/full && echo full"
        )
        assert said.text.split() == ["2", "3", "full"]


def count_cached(file: Path) -> int:
    """How many pages of a file of ours are in memory."""
    libc = ctypes.CDLL(None, use_errno=True)
    libc.mmap.restype = ctypes.c_void_p
    size = file.stat().st_size
    with file.open("rb") as opened:
        at = libc.mmap(None, ctypes.c_size_t(size), 1, 2, opened.fileno(), ctypes.c_long(0))
        told = (ctypes.c_ubyte * (size // 4096))()
        assert not libc.mincore(ctypes.c_void_p(at), ctypes.c_size_t(size), told)
        libc.munmap(ctypes.c_void_p(at), ctypes.c_size_t(size))
    return sum(page & 1 for page in told)


@pytest.mark.parametrize("forgets", [True, False])
@pytest.mark.parametrize("name", ["bwrap", "unshare"])
def test_what_a_sandbox_that_forgets_has_read_is_not_in_memory_after_it(
    name: str, forgets: bool, tmp_path: Path
) -> None:
    for folder in (tmp_path, *tmp_path.parents[:2]):
        folder.chmod(0o755)
    file = tmp_path / "file"
    file.write_bytes(b"x" * 65536)
    with file.open("rb") as opened:
        os.fsync(opened)
        os.posix_fadvise(opened.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    try:
        backend = choose(name)
    except BadInput as e:
        pytest.skip(e.message)
    if count_cached(file) or "memory" not in bases():
        pytest.skip("a file system in memory, or no control group that counts it")
    sandbox = backend.open(mounts={"/opt/shared": tmp_path}, limits=Limits(forgets=forgets))
    try:
        assert sandbox.run("cat /opt/shared/file | wc -c").text.strip() == "65536"
        assert count_cached(file) == 16
    finally:
        sandbox.close()
    assert count_cached(file) == (0 if forgets else 16)
