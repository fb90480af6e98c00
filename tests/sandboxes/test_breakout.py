"""Attempts to break out of every backend that has walls, in each of the ways it can be made here.

A sandbox is made `drop` (real root gives it an identity of its own) or `userns` (a user namespace:
all that an ordinary user can have), and its limits are held by control groups or, where these
cannot be written, by rlimits and the watch. Whatever is installed here is attacked, so a backend
that stops working fails; root can try all of it.
"""

from __future__ import annotations

import json
import os
import platform
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from recreate import sandboxes
from recreate.api.errors import BadInput, Fault
from recreate.api.ports import Limits
from recreate.api.registry import find
from recreate.api.types import Output
from recreate.sandboxes import filesystem, limits, process, seccomp
from recreate.sandboxes import sandbox as rooms
from recreate.sandboxes.rootfs import interpreter_mounts
from recreate.sandboxes.sandbox import FolderSandbox, try_enclosure

INSTALLED = [name for name in sandboxes.PREFERENCE if not find("sandbox", name)().missing()]
WALLS = [
    (name, way)
    for name in INSTALLED
    for way in (("drop", "userns") if os.geteuid() == 0 else ("userns",))
    if way == "drop"
    or os.geteuid() != 0
    or "pids" in limits.bases()  # no rlimit counts the processes of real root
]
CHOSEN = list({name: (name, way) for name, way in reversed(WALLS)}.values())
"""The way that the probe takes: for what does not depend on the way."""
HELD = [
    (name, way, by)
    for name, way in WALLS
    for by in (("cgroup", "rlimits") if limits.bases() else ("rlimits",))
    if by == "cgroup" or way == "drop" or os.geteuid() != 0
]
NOBODY = 65533
"""An ordinary user whom no machine knows."""
OWN = f".{os.getpid()}"
"""Behind the seconds that a test's processes sleep: other workers' are not counted."""
Open = Callable[..., FolderSandbox]


def opener(name: str, way: str) -> Iterator[Open]:
    opened: list[FolderSandbox] = []

    def make(limits: Limits | None = None, mounts: dict[str, Path] | None = None) -> FolderSandbox:
        backend = find("sandbox", name)()
        opened.append(
            FolderSandbox(
                backend,
                drop=way == "drop",
                source=None,
                mounts=mounts,
                env=None,
                limits=limits or Limits(seconds=20),
            )
        )
        return opened[-1]

    yield make
    for sandbox in opened:
        sandbox.close()


@pytest.fixture(params=WALLS, ids=lambda wall: "-".join(wall))
def open_sandbox(request: pytest.FixtureRequest) -> Iterator[Open]:
    yield from opener(*request.param)


@pytest.fixture(params=CHOSEN, ids=lambda wall: "-".join(wall))
def open_chosen(request: pytest.FixtureRequest) -> Iterator[Open]:
    yield from opener(*request.param)


@pytest.fixture(params=HELD, ids=lambda held: "-".join(held))
def open_held(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Open]:
    yield from held_opener(request, monkeypatch)


@pytest.fixture(
    params=list({held[1:]: held for held in HELD}.values()), ids=lambda held: "-".join(held)
)
def open_counted(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Open]:
    yield from held_opener(request, monkeypatch)


def held_opener(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Open]:
    name, way, by = request.param
    if by == "rlimits":
        monkeypatch.setattr(limits, "bases", dict)
    yield from opener(name, way)


def test_every_backend_that_is_installed_works_and_one_is() -> None:
    assert INSTALLED
    assert {
        wall: try_enclosure(find("sandbox", wall[0])(), wall[1]) for wall in WALLS
    } == dict.fromkeys(WALLS, "")


def test_files_of_the_host_are_not_there(open_sandbox: Open, tmp_path: Path) -> None:
    secrets = [
        tmp_path / "secret",
        Path(__file__),
        Path.home(),
        Path("/root"),
        Path("/var/log"),
        Path("/etc/shadow"),
    ]
    secrets[0].write_text("secret")
    sandbox = open_sandbox()
    there = [
        str(secret)
        for secret in secrets
        if not secret.is_relative_to("/home/agent") and secret.exists()
    ]
    assert len(there) > 2
    for above in ("", "/proc/1/root", "/proc/self/root/..", "/proc/1/cwd/.."):
        seen = sandbox.run(["find", *(above + path for path in there), "-maxdepth", "0"])
        assert [line for line in seen.text.splitlines() if line.startswith("/")] == [], above
    assert set(sandbox.run("ls /").text.split()) <= {
        *(
            "bin",
            "dev",
            "etc",
            "home",
            "lib",
            "lib32",
            "lib64",
            "libx32",
            "proc",
            "sbin",
            "tmp",
            "usr",
            "var",
            "work",
        ),
    }
    assert sandbox.run("ls /home /var").text.split() == ["/home:", "agent", "/var:", "tmp"]


def test_host_keys_and_accounts_are_not_in_etc(open_sandbox: Open) -> None:
    sandbox = open_sandbox()
    assert [line.split(":")[0] for line in sandbox.run("cat /etc/passwd").text.splitlines()] == [
        "root",
        "agent",
    ]
    assert sandbox.run("cat /etc/shadow /etc/ssl/private/* /etc/pki/tls/private/*").status != 0
    assert sandbox.run("ls /etc/ssh /root/.ssh /run /sys").status != 0
    assert sandbox.run("id -un; cd; pwd").text == "agent\n/home/agent\n"


def test_nothing_outside_the_sandboxs_own_folders_can_be_written(open_sandbox: Open) -> None:
    sandbox = open_sandbox()
    output = sandbox.run(
        "for d in / /usr /usr/bin /usr/local/lib /etc /home /var /dev /proc/sys/kernel; do  touch"
        " $d/planted && echo $d;done 2>/dev/null; for f in /proc/sys/kernel/core_pattern"
        " /proc/sysrq-trigger /usr/bin/env /etc/passwd; do  (: >> $f) && echo $f; done"
        " 2>/dev/null;(mount -o remount,rw / || mount -t tmpfs x /tmp || umount /usr) 2>/dev/null"
        " && echo mounted"
    )
    assert output.text == ""
    assert sandbox.run("touch /work/a /home/agent/a /tmp/a /var/tmp/b /dev/shm/a").status == 0


def test_a_mount_is_read_only(open_sandbox: Open, tmp_path: Path) -> None:
    (tmp_path / "data").write_text("data")
    tmp_path.chmod(0o777)
    (tmp_path / "data").chmod(0o666)
    (tmp_path / "one file").write_text("one")
    sandbox = open_sandbox(
        mounts={"/data/here": tmp_path, "/work/below": tmp_path, "/work/f": tmp_path / "one file"}
    )
    assert sandbox.run("cat /data/here/data below/data f").text == "datadataone"
    assert (
        sandbox.run(
            "echo x > /data/here/data || touch /data/here/new || touch below/new || echo x > f"
        ).status
        != 0
    )
    assert sandbox.run("ls -ld /data").text.startswith("drwxr-xr-x")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["data", "one file"]
    assert (tmp_path / "data").read_text() == "data"


def test_a_sandbox_cannot_lead_a_mount_elsewhere(open_chosen: Open, tmp_path: Path) -> None:
    (tmp_path / "data").write_text("data")
    tmp_path.chmod(0o755)
    sandbox = open_chosen(mounts={"/work/a/b": tmp_path})
    assert sandbox.run("cat a/b/data; mv a c; ln -s /oldroot/tmp a; ls -d a").text == "dataa\n"
    output = sandbox.run("cat a/b/data")
    assert (output.status, "link" in output.text) == (126, True)


def test_a_mount_cannot_replace_the_system(open_chosen: Open, tmp_path: Path) -> None:
    for inside in (
        "/",
        "/usr/x",
        "/etc/passwd",
        "/proc/x",
        "relative",
        "/a/../usr",
        "/work",
        "/dev",
    ):
        with pytest.raises(BadInput):
            open_chosen(mounts={inside: tmp_path})


def test_there_is_no_way_to_the_network_or_to_the_hosts_sockets(
    open_chosen: Open, tmp_path: Path
) -> None:
    abstract = f"\0recreate-{os.getpid()}"
    with socket.create_server(("127.0.0.1", 0)) as tcp, socket.socket(socket.AF_UNIX) as unix:
        unix.bind(abstract)
        unix.listen()
        port = tcp.getsockname()[1]
        sandbox = open_chosen(mounts=interpreter_mounts(Path(sys.prefix)))
        sandbox.write(
            "reach.py",
            f"""
import socket
for family, address in ((socket.AF_INET, ("127.0.0.1", {port})), (socket.AF_INET, ("1.1.1.1", 53)),
                        (socket.AF_UNIX, {abstract!r})):
    try:
        socket.socket(family).connect(address)
        print("connected", address)
    except OSError as e:
        print(type(e).__name__)
""".encode(),
        )
        output = sandbox.run([sys.executable, "reach.py"])
    assert "connected" not in output.text
    assert len(output.text.splitlines()) == 3, output.text
    assert [
        line.split(":")[0].strip()
        for line in sandbox.run("cat /proc/net/dev").text.splitlines()[2:]
    ] == ["lo"]
    assert len(sandbox.run("cat /proc/net/route").text.splitlines()) <= 1


def test_processes_of_the_host_cannot_be_seen_or_signalled(open_sandbox: Open) -> None:
    sandbox = open_sandbox()
    listed = sandbox.run("cat /proc/[0-9]*/comm").text.split()
    assert len(listed) < 12
    assert "pytest" not in listed
    assert sandbox.run(f"kill -0 {os.getpid()}").status != 0 or os.getpid() < 50
    assert sandbox.run("tr '\\0' '\\n' < /proc/1/environ").text.count("RECREATE") == 0
    assert sandbox.run("cat /proc/sysvipc/msg | wc -l").text.strip() == "1"


def test_there_are_no_capabilities_and_no_way_to_new_ones(open_sandbox: Open) -> None:
    sandbox = open_sandbox()
    status = dict(
        line.split(":\t", 1) for line in sandbox.run("cat /proc/self/status").text.splitlines()
    )
    assert (status["CapEff"], status["CapPrm"], status["NoNewPrivs"]) == ("0" * 16, "0" * 16, "1")
    assert "0" not in sandbox.run("id -u; id -g").text.split()
    assert sandbox.run("sudo id || chroot / id || mknod /tmp/disk b 8 0").status != 0


def test_there_are_no_further_user_namespaces(open_sandbox: Open) -> None:
    sandbox = open_sandbox()
    assert sandbox.run("unshare --user true").status != 0
    assert sandbox.run("unshare --user --map-root-user --mount mount -t tmpfs x /tmp").status != 0


def test_the_keys_of_the_host_session_cannot_be_listed(open_sandbox: Open) -> None:
    sandbox = open_sandbox(mounts=interpreter_mounts(Path(sys.prefix)))
    number = {"x86_64": 250, "aarch64": 219}[platform.machine()]
    ask = f"import ctypes; print(ctypes.CDLL(None).syscall({number}, 0, -3, 1))"
    assert sandbox.run([sys.executable, "-c", ask]).text == "-1\n"


FAMILIES = """
import socket
for family in range(64):
    for kind in (1, 2, 3, 5):
        for protocol in (0, 1, 4, 6, 9, 15):
            try:
                socket.socket(family, kind, protocol).close()
                print(family, protocol if family == 16 else "")
            except OSError:
                pass
            try:
                [end.close() for end in socket.socketpair(family, kind, protocol)]
                print("pair", family)
            except OSError:
                pass
"""


def test_no_socket_opens_that_reaches_past_the_sandboxs_network(open_sandbox: Open) -> None:
    sandbox = open_sandbox(mounts=interpreter_mounts(Path(sys.prefix)))
    opened = {
        line.strip() for line in sandbox.run([sys.executable, "-c", FAMILIES]).text.splitlines()
    }
    unix, internet, six, routes = "1", "2", "10", "16 0"
    assert opened - {six} == {unix, internet, routes, "pair 1"}


UNCOUNTED = """
import ctypes, fcntl, os, socket
libc = ctypes.CDLL(None, use_errno=True)
mine = os.pipe()
def file(): os.close(os.memfd_create("x"))
def shared(): return libc.shmget(0, 1 << 20, 0o1600) >= 0
def messages(): return libc.msgget(0, 0o1600) >= 0
def semaphores(): return libc.semget(0, 8, 0o1600) >= 0
def pinned(): return libc.vmsplice(mine[1], None, 0, 0) >= 0
def pipe(): fcntl.fcntl(mine[1], 1031, 1 << 20)
def buffer():
    one = socket.socketpair()[0]
    before = one.getsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF)
    one.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4 * before)
    return one.getsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF) > before
for attempt in (file, shared, messages, semaphores, pinned, pipe, buffer):
    try:
        if attempt() is not False:
            print("got", attempt.__name__)
    except OSError:
        pass
print("tried")
"""


def test_memory_that_nothing_counts_cannot_be_had(open_sandbox: Open) -> None:
    sandbox = open_sandbox(mounts=interpreter_mounts(Path(sys.prefix)))
    assert sandbox.run([sys.executable, "-c", UNCOUNTED]).text == "tried\n"


HOARDS = {
    "sockets": (
        """
import os, socket, time
kept = []
def fill(end):
    end.setblocking(False)
    try:
        while True:
            end.send(b"x" * 60_000)
    except OSError:
        kept.append(end)
for _ in range(8):
    if os.fork() == 0:
        break
for _ in range(300):
    for end in socket.socketpair():
        fill(end)
"""
    ),
    "sockets that nobody accepts": (
        """
import os, socket, time
for _ in range(8):
    if os.fork() == 0:
        break
server = socket.socket(socket.AF_UNIX)
server.bind(f"/tmp/{os.getpid()}")
server.listen(4096)
for _ in range(400):
    one = socket.socket(socket.AF_UNIX)
    one.setblocking(False)
    try:
        one.connect(server.getsockname())
        while True:
            one.send(b"x" * 60_000)
    except OSError:
        one.close()
"""
    ),
    "pipes": (
        """
import os, time
for _ in range(30):
    if os.fork() == 0:
        break
for _ in range(500):
    try:
        read, write = os.pipe()
        os.set_blocking(write, False)
        while True:
            os.write(write, b"x" * 4096)
    except OSError:
        pass
"""
    ),
    "loopback": (
        """
import socket, time
kept = []
sent = 0
server = socket.create_server(("127.0.0.1", 0))
for _ in range(100):
    one = socket.socket()
    one.connect(server.getsockname())
    kept += [one, server.accept()[0]]
    one.setblocking(False)
    try:
        while True:
            sent += one.send(b"x" * 60_000)
    except OSError:
        pass
if sent < 100_000_000:
    raise SystemExit("no more memory")
"""
    ),
}


@pytest.mark.parametrize("hoard", HOARDS)
def test_memory_in_the_kernels_buffers_counts(open_counted: Open, hoard: str) -> None:
    sandbox = open_counted(
        Limits(memory_mb=64, seconds=30), mounts=interpreter_mounts(Path(sys.prefix))
    )
    output = sandbox.run([sys.executable, "-c", HOARDS[hoard] + "time.sleep(3); print('held')"])
    assert "held" not in output.text
    assert output.limit == "memory" or "emory" in output.text


@pytest.mark.slow
def test_an_ordinary_user_is_held_by_the_same_walls(tmp_path: Path) -> None:
    hog = "import time\nkept = [b'x' * 1_000_000 for _ in range(300)]\nprint('held')"
    shared = (
        "import mmap\nkept = mmap.mmap(-1, 100_000_000)\nkept.write(b'x' *"
        " 100_000_000)\nprint('held')"
    )
    swarm = (
        "import os, time\nfor _ in range(6):\n    if os.fork() == 0: break\nkept = b'x' *"
        " 20_000_000; time.sleep(9)"
    )

    def attack(name: str) -> dict[str, Output]:
        with FolderSandbox(
            find("sandbox", name)(),
            drop=False,
            source=None,
            mounts=None,
            env=None,
            limits=Limits(memory_mb=64, cpu_seconds=1, seconds=30, processes=64),
        ) as sandbox:
            python = shutil.which("python3", path=process.LAUNCH["PATH"])
            assert python, "no python3 of the system"
            programs = {
                "uncounted": UNCOUNTED,
                "families": FAMILIES,
                "hog": hog,
                "shared": shared,
                "swarm": swarm,
            }
            programs["unaccepted"] = (
                HOARDS["sockets that nobody accepts"] + "time.sleep(3); print('held')"
            )
            found = {
                what: sandbox.run([python, "-c", program]) for what, program in programs.items()
            }
            found["cpu"] = sandbox.run("ulimit -St unlimited; while :; do :; done")
            found["files"] = sandbox.run("ulimit -n")
            found["nested"] = sandbox.run("unshare --user true")
            return found

    for name in INSTALLED:
        found = as_ordinary_user(
            lambda name=name: {what: o.model_dump() for what, o in attack(name).items()}
        )
        assert found["uncounted"]["text"] == "tried\n", name
        assert {*found["families"]["text"].split("\n")} <= {
            "",
            "1 ",
            "2 ",
            "10 ",
            "16 0",
            "pair 1",
        }, name
        for what in ("hog", "shared", "swarm", "unaccepted"):
            assert "held" not in found[what]["text"], (name, what)
            assert found[what]["limit"] == "memory" or "emory" in found[what]["text"], (
                name,
                what,
                found[what],
            )
        assert found["cpu"]["status"] in (128 + signal.SIGXCPU, 137)
        assert not found["cpu"]["timed_out"]
        assert found["files"]["text"] == "1024\n"
        assert found["nested"]["status"] != 0


def test_limits_that_nothing_would_hold_are_refused_by_name(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(limits, "bases", dict)
    monkeypatch.setattr(limits, "_inside", lambda init: [])
    for name, way in WALLS:
        if way == "drop" or os.geteuid() != 0:
            assert "nothing would hold memory" in try_enclosure(find("sandbox", name)(), way)


def test_a_processor_without_a_filter_is_refused_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rooms, "_identities", {})
    monkeypatch.setattr(platform, "machine", lambda: "riscv64")
    seccomp.program.cache_clear()
    try:
        for name in INSTALLED:
            assert "riscv64" in rooms.identity(find("sandbox", name)())[1]
    finally:
        monkeypatch.undo()
        seccomp.program.cache_clear()


def test_where_the_users_files_lie_on_the_host_is_not_told(
    open_sandbox: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("TMPDIR", raising=False)
    monkeypatch.setattr(filesystem, "_session", None)
    shown = (
        open_sandbox().run("cat /proc/self/mountinfo /proc/self/mounts /proc/self/mountstats").text
    )
    filesystem._end()
    for private in {str(Path.home()), os.environ["RECREATE_HOME"], str(Path.cwd())}:
        assert private not in shown
    assert "/work" in shown


PROGRAMS = """
import asyncio, concurrent.futures, http.server, multiprocessing, socket, subprocess, tempfile, \
threading
import urllib.request
from multiprocessing import shared_memory

def double(number):
    return 2 * number

async def shell():
    made = await asyncio.create_subprocess_exec("echo", "hi", stdout=subprocess.PIPE)
    return (await made.communicate())[0]

if __name__ == "__main__":
    for how in ("fork", "spawn", "forkserver"):
        with concurrent.futures.ProcessPoolExecutor(2, \
mp_context=multiprocessing.get_context(how)) as pool:
            assert list(pool.map(double, range(4))) == [0, 2, 4, 6]
    with multiprocessing.Manager() as manager:
        assert manager.list([1])[0] == 1
    block = shared_memory.SharedMemory(create=True, size=1 << 20)
    block.buf[0] = 7
    block.close(); block.unlink()
    assert asyncio.run(shell()) == b"hi\\n"
    server = http.server.ThreadingHTTPServer(("localhost", 0), http.server.SimpleHTTPRequestHandler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    assert urllib.request.urlopen(f"http://localhost:{server.server_port}/").status == 200
    tempfile.TemporaryFile().write(b"x")
    socket.socket().setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 20)
    print("fine")
"""


def test_what_programs_commonly_need_of_the_system_is_there(open_chosen: Open) -> None:
    sandbox = open_chosen(Limits(seconds=60), mounts=interpreter_mounts(Path(sys.prefix)))
    sandbox.write("programs.py", PROGRAMS.encode())
    assert sandbox.run([sys.executable, "programs.py"]).text.endswith("fine\n")


def test_the_terminal_of_the_host_is_out_of_reach(open_chosen: Open) -> None:
    assert open_chosen().run("echo x > /dev/tty").status != 0


def test_descriptors_of_the_host_are_closed(open_chosen: Open, tmp_path: Path) -> None:
    (tmp_path / "open").write_text("secret")
    with (tmp_path / "open").open() as file:
        os.set_inheritable(file.fileno(), True)
        assert (
            open_chosen()
            .run("ls -l /proc/self/fd | grep -c -e ' [012] -> ' -e ' 3 -> /proc'")
            .text.strip()
            == "4"
        )
        assert "open" not in open_chosen().run(
            "ls -l /proc/self/fd /proc/1/fd 2>&1; cat <&3 2>&1"
        ).text.split("/")


def test_two_sandboxes_do_not_see_each_other(open_chosen: Open) -> None:
    one, two = open_chosen(), open_chosen()
    one.run("echo secret | tee f ~/f /tmp/f /dev/shm/f")
    assert two.run("cat f ~/f /tmp/f /dev/shm/f 2>/dev/null").text == ""


def test_a_fork_bomb_is_bounded_and_gone(open_held: Open) -> None:
    sandbox = open_held(Limits(processes=40, seconds=20))
    began = _children()
    output = sandbox.run(
        ["sh", "-c", f"for i in $(seq 500); do sleep 61{OWN} & done; wait"], timeout=0.5
    )
    assert output.status != 0
    assert _running(f"sleep 61{OWN}") == 0
    sandbox.run(
        "b() { [ $1 -gt 8 ] || { b $(($1+1)) & b $(($1+1)) & }; }; b 0; sleep 1", timeout=0.5
    )
    assert sandbox.run("echo fine").text == "fine\n"
    assert _children() == began


def test_more_processes_than_allowed_do_not_start(open_held: Open) -> None:
    sandbox = open_held(Limits(processes=30, seconds=20))
    output = sandbox.run(["sh", "-c", "for i in $(seq 100); do sleep 62 & done; wait"], timeout=5)
    assert output.limit == "processes" or "fork" in output.text


def test_a_memory_hog_is_stopped(open_held: Open) -> None:
    sandbox = open_held(
        Limits(memory_mb=64, seconds=30), mounts=interpreter_mounts(Path(sys.prefix))
    )
    hog = "held = []\nwhile True: held.append(b'x' * 4_000_000)"
    output = sandbox.run([sys.executable, "-c", hog])
    assert output.status != 0
    assert not output.timed_out
    assert output.limit == "memory" or "MemoryError" in output.text
    assert sandbox.run("echo fine").text == "fine\n"


def test_memory_of_many_processes_is_added_up(open_held: Open) -> None:
    sandbox = open_held(
        Limits(memory_mb=100, seconds=30), mounts=interpreter_mounts(Path(sys.prefix))
    )
    hog = "import time; held = b'x' * 40_000_000; time.sleep(30)"
    sandbox.write("hog.py", hog.encode())
    output = sandbox.run(
        f"for i in 1 2 3 4; do {sys.executable} hog.py || exit 9 & done; wait -n; exit $?"
    )
    assert output.limit == "memory"
    assert output.status != 0


def test_a_file_that_was_unlinked_counts_as_disk(open_chosen: Open) -> None:
    sandbox = open_chosen(Limits(disk_mb=8, seconds=25))
    command = (
        'for i in 3 4 5 6; do eval "exec $i>f"; rm f; head -c 4000000 /dev/zero >&$i; done;'
        " sleep 60"
    )
    assert sandbox.run(command).limit == "disk"


_HIDING = """
import ctypes, os, socket, sys, time
libc = ctypes.CDLL(None)
libc.mmap.restype = ctypes.c_void_p
libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, \
ctypes.c_long]
one, other = socket.socketpair()
for n in range(8):
    fd = os.open("f", os.O_RDWR | os.O_CREAT)
    os.posix_fallocate(fd, 0, 4_000_000)
    os.unlink("f")
    if sys.argv[1] == "sent":
        socket.send_fds(one, [b"x"], [fd])
    else:
        libc.mmap(None, 4_000_000, 1, 2, fd, 0)
    os.close(fd)
time.sleep(20)
"""


@pytest.mark.parametrize("how", ["sent", "mapped"])
def test_a_file_that_no_folder_and_no_descriptor_shows_counts_as_disk(
    open_chosen: Open, how: str
) -> None:
    sandbox = open_chosen(
        Limits(disk_mb=8, seconds=25), mounts=interpreter_mounts(Path(sys.prefix))
    )
    sandbox.write("hide.py", _HIDING.encode())
    assert sandbox.run([sys.executable, "hide.py", how]).limit == "disk"


@pytest.mark.parametrize("how", ["sent", "mapped"])
def test_what_others_free_meanwhile_hides_no_such_file(
    open_chosen: Open, how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, looks = limits.Watch._free_bytes, [0]

    def left(watch: limits.Watch) -> int:
        looks[0] += 1
        return real(watch) + (2**30 if looks[0] > 1 else 0)

    monkeypatch.setattr(limits.Watch, "_free_bytes", left)
    sandbox = open_chosen(
        Limits(disk_mb=8, seconds=25), mounts=interpreter_mounts(Path(sys.prefix))
    )
    sandbox.write("hide.py", f"import time; time.sleep(1)\n{_HIDING}".encode())
    assert sandbox.run([sys.executable, "hide.py", how]).limit == "disk"


def test_disk_in_a_folder_closed_to_its_owner_counts(open_sandbox: Open) -> None:
    sandbox = open_sandbox(Limits(disk_mb=8, seconds=25))
    output = sandbox.run(
        "mkdir d; for i in 1 2 3 4; do head -c 4000000 /dev/zero > d/$i; done; chmod 000 d;"
        " sleep 60"
    )
    assert output.limit == "disk"


def test_a_timeout_ends_daemons_too(open_chosen: Open) -> None:
    sleep = f"sleep 63{OWN}"
    leaving = f"setsid {sleep} & (setsid sh -c '{sleep} & {sleep}' &) & nohup {sleep} &"
    output = open_chosen().run(f"{leaving} trap '' TERM INT HUP; {sleep}", timeout=0.4)
    assert output.timed_out
    assert _running(sleep) == 0


def test_a_daemon_does_not_survive_a_command_that_ends_well(open_chosen: Open) -> None:
    output = open_chosen().run(f"setsid sleep 64{OWN} >/dev/null 2>&1 & echo done")
    assert (output.text, output.status) == ("done\n", 0)
    assert _running(f"sleep 64{OWN}") == 0


def test_a_command_that_kills_all_it_can_ends_only_itself(open_chosen: Open) -> None:
    sandbox = open_chosen()
    assert sandbox.run("kill -9 -1; kill -9 1; sleep 0.1").status in (0, 137)
    assert sandbox.run("echo fine").text == "fine\n"


def test_a_killed_recreate_leaves_no_process(open_sandbox: Open, tmp_path: Path) -> None:
    sandbox = open_sandbox()
    program = f"""
import sys
from pathlib import Path
from recreate.api.registry import find
from recreate.sandboxes.sandbox import FolderSandbox
nothing = dict(source=None, mounts=None, env=None, limits=None)
sandbox = FolderSandbox(find("sandbox", {sandbox.backend!r})(), drop={sandbox.owner is not None}, \
**nothing)
print(sandbox.root, flush=True)
sandbox.run("setsid sleep 65{OWN} & touch started; sleep 65{OWN}")
"""
    environment = {**os.environ, "TMPDIR": str(tmp_path), "PYTHONPATH": os.pathsep.join(sys.path)}
    with subprocess.Popen(
        [sys.executable, "-c", program], stdout=subprocess.PIPE, env=environment
    ) as child:
        assert child.stdout
        started = Path(child.stdout.readline().decode().strip()) / "work" / "started"
        try:
            _until(started.exists)
            _until(lambda: _running(f"sleep 65{OWN}") >= 2)
        finally:
            child.send_signal(signal.SIGKILL)
    _until(lambda: _running(f"sleep 65{OWN}") == 0)
    for base in limits.bases().values():
        limits._sweep(base)


def test_a_recreate_killed_before_the_command_began_never_begins_it(open_chosen: Open) -> None:
    sandbox = open_chosen()
    inside = process.shim([b"touch", b"/work/began"], {}, [], "/work")
    argv = process.launcher(find("sandbox", sandbox.backend)().argv(sandbox, inside, -1), ())
    with subprocess.Popen(
        argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as child:
        child.communicate(b"", timeout=20)
    assert child.returncode == 125
    assert not (sandbox.work / "began").exists()


def test_a_sandbox_that_cannot_be_made_is_a_fault_and_not_the_commands_failure(
    open_sandbox: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    sandbox = open_sandbox()
    backend = find("sandbox", sandbox.backend)
    real = backend.argv
    monkeypatch.setattr(
        backend, "argv", lambda self, b, c, s: real(self, b, [b"/no/such/shell"], s)
    )
    with pytest.raises(Fault) as caught:
        sandbox.run("echo hi")
    assert caught.value.code == "sandbox-failed"
    assert "/no/such/shell" in caught.value.message


def test_a_command_cannot_pretend_that_the_sandbox_failed(open_chosen: Open) -> None:
    output = open_chosen().run(
        "echo 'bwrap: setup failed' >&2; printf '\\001ready\\001' >&2; exit 125"
    )
    assert (output.status, output.limit) == (125, "")


def test_sandboxes_work_side_by_side(open_chosen: Open) -> None:
    made = [open_chosen() for _ in range(6)]
    seen: dict[int, str] = {}

    def work(number: int) -> None:
        seen[number] = made[number].run(f"echo {number} > f; sleep 0.05; cat f").text

    threads = [threading.Thread(target=work, args=(number,)) for number in range(len(made))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert seen == {number: f"{number}\n" for number in range(len(made))}


def test_control_groups_are_removed_with_the_sandbox(open_chosen: Open) -> None:
    sandbox = open_chosen()
    sandbox.run("true")
    groups = sandbox._cgroup.folders if sandbox._cgroup else ()
    assert all(group.exists() for group in groups)
    sandbox.close()
    assert not any(group.exists() for group in groups)


def as_ordinary_user(what: Callable[[], object]) -> Any:
    """What it returns, as JSON, when an ordinary user runs it; under real root in a child that has
    become one."""
    if os.geteuid() != 0:
        return json.loads(json.dumps(what()))
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.setgroups([])
            os.setresgid(NOBODY, NOBODY, NOBODY)
            os.setresuid(NOBODY, NOBODY, NOBODY)
            os.environ.pop("TMPDIR", None)
            limits.bases = dict
            said = json.dumps(what())
            filesystem._end()
        except BaseException:
            said = json.dumps(traceback.format_exc())
        with os.fdopen(write, "w") as file:
            file.write(said)
        os._exit(0)
    os.close(write)
    with os.fdopen(read) as file:
        said = file.read()
    os.waitpid(child, 0)
    found = json.loads(said)
    assert not isinstance(found, str), found
    return found


def _running(line: str) -> int:
    """Processes on this machine with this command line, in any namespace."""
    found = 0
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                found += (entry / "cmdline").read_bytes().replace(
                    b"\0", b" "
                ).strip() == line.encode()
            except OSError:
                continue
    return found


def _children() -> int:
    return sum(
        len((task / "children").read_text().split())
        for task in Path("/proc/self/task").iterdir()
        if (task / "children").exists()
    )


def _until(true: Callable[[], bool], seconds: float = 20.0) -> None:
    end = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < end
        time.sleep(0.02)
