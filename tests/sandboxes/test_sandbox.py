"""What every backend does for the code that uses it: run, read, write, limits of time and output,
closing."""

from __future__ import annotations

import fcntl
import os
import stat
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from recreate import sandboxes
from recreate.api.errors import BadInput, Fault
from recreate.api.plugins import names
from recreate.api.ports import Copyable, Limits, Sandbox, SandboxBackend
from recreate.api.registry import find
from recreate.sandboxes import filesystem
from recreate.sandboxes.process import Tail
from recreate.sandboxes.rootfs import interpreter_mounts
from recreate.sandboxes.sandbox import UIDS

WORKING = [name for name in ("bwrap", "unshare") if not find("sandbox", name)().missing()] + [
    "none"
]
"""What is installed here: where one of them does not work, its tests fail."""
ENGINES = [
    name
    for name in ("docker", "podman")
    if name in names("sandbox") and not find("sandbox", name)().probe()
]
"""What runs here: an engine may be installed and not run."""


@pytest.fixture(
    params=[*WORKING, *(pytest.param(name, marks=pytest.mark.docker) for name in ENGINES)]
)
def backend(request: pytest.FixtureRequest) -> SandboxBackend:
    made: SandboxBackend = find("sandbox", request.param)()
    return made


@pytest.fixture
def sandbox(backend: SandboxBackend) -> Iterator[Sandbox]:
    made = backend.open(env={"GREETING": "a 'b' \"c\" $d\n"}, limits=Limits(seconds=20))
    yield made
    made.close()


def test_what_is_installed_works() -> None:
    assert {name: why for name, why in sandboxes.survey() if name in WORKING} == dict.fromkeys(
        WORKING, ""
    )


def test_a_shell_command_and_an_argv(sandbox: Sandbox) -> None:
    assert sandbox.run("echo $((6 * 7)) | cat").text == "42\n"
    assert sandbox.run(["printf", "%s|", "a b", "$HOME", "'"]).text == "a b|$HOME|'|"
    assert sandbox.run("[[ ab == a* ]] && echo yes").text == "yes\n"


def test_stdout_and_stderr_come_in_the_order_they_were_printed(sandbox: Sandbox) -> None:
    assert sandbox.run("echo 1; echo 2 >&2; echo 3; echo 4 >&2").text == "1\n2\n3\n4\n"


def test_the_status_is_the_commands_own(sandbox: Sandbox) -> None:
    expected = {
        "exit 7": 7,
        "exit 125": 125,
        "kill -9 $$": 137,
        "kill -TERM $$": 143,
        "kill -SEGV $$": 139,
        "no-such-program-here": 127,
    }
    assert {command: sandbox.run(command).status for command in expected} == expected


def test_an_argv_that_cannot_run_is_the_commands_failure_and_raises_nothing(
    sandbox: Sandbox,
) -> None:
    sandbox.write("not-executable", b"text", 0o644)
    for argv in (
        ["no-such-program-here"],
        ["./not-executable"],
        [],
        ["a\0b"],
        ["x" * 200_000],
        ["\ud800"],
    ):
        output = sandbox.run(argv)
        assert output.status in (126, 127)
        assert output.text


def test_stdin_reaches_the_command_and_is_empty_without(sandbox: Sandbox) -> None:
    data = bytes(range(256)) * 2000
    assert sandbox.run("sha256sum | cut -c1-8; wc -c", stdin=data).text.endswith("\n0\n")
    assert sandbox.run("wc -c", stdin=data).text.strip() == str(len(data))
    assert sandbox.run("wc -c").text.strip() == "0"
    assert sandbox.run("true", stdin=b"x" * 1_000_000).status == 0


def test_commands_start_in_the_work_folder_and_share_files_but_nothing_else(
    sandbox: Sandbox,
) -> None:
    sandbox.run(
        'cd /; export A=1; echo hi > "$OLDPWD"/kept; echo h > ~/home; echo t > ${TMPDIR:-/tmp}/tmp'
    )
    assert sandbox.run("cat kept ~/home ${TMPDIR:-/tmp}/tmp; echo [$A]").text == "hi\nh\nt\n[]\n"


def test_the_environment_is_minimal_plus_what_was_given(
    sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SECRET_API_KEY", "sk-123")
    names = {
        line.partition("=")[0]
        for line in sandbox.run("env -0 | tr '\\n\\0' ' \\n'").text.splitlines()
    }
    assert names <= {"PATH", "HOME", "LANG", "TERM", "GREETING", "PWD", "SHLVL", "_", "TMPDIR"}
    assert (
        sandbox.run('printf %s "$GREETING"; printf "|%s|%s" "$LANG" "$TERM"').text
        == "a 'b' \"c\" $d\n|C.UTF-8|dumb"
    )


def test_long_output_keeps_its_head_and_tail_and_counts_the_rest(backend: SandboxBackend) -> None:
    sandbox = backend.open(limits=Limits(output_bytes=1000))
    output = sandbox.run("echo first; seq 1 2000000; echo last")
    sandbox.close()
    assert output.text.startswith("first\n1\n")
    assert output.text.endswith("\nlast\n")
    assert f"[... {output.cut} bytes cut ...]" in output.text
    assert output.cut + 1000 == len("first\nlast\n") + sum(
        len(f"{n}\n") for n in range(1, 2_000_001)
    )


def test_output_up_to_the_limit_is_whole_and_bytes_that_are_no_text_do_not_fail(
    backend: SandboxBackend,
) -> None:
    sandbox = backend.open(limits=Limits(output_bytes=1000))
    whole = sandbox.run("head -c 1000 /dev/zero | tr '\\0' x")
    assert (whole.text, whole.cut) == ("x" * 1000, 0)
    assert sandbox.run("printf 'a\\377\\000b'").text == "a\ufffd\0b"
    sandbox.close()


def test_what_is_held_of_an_output_does_not_grow_with_it() -> None:
    tail = Tail(1000)
    for _ in range(1000):
        tail.add(b"x" * 700)
    assert len(tail.head) + sum(map(len, tail.last)) <= 1000 + 700
    assert tail.text()[1] == 700_000 - 1000


def test_endless_output_ends_at_the_timeout_and_does_not_fill_memory(
    backend: SandboxBackend,
) -> None:
    sandbox = backend.open(limits=Limits(output_bytes=10_000))
    output = sandbox.run("yes", timeout=0.4)
    sandbox.close()
    assert (output.status, output.timed_out, output.limit) == (124, True, "seconds")
    assert output.cut > 0
    assert len(output.text) < 11_000


def test_a_timeout_says_so_and_keeps_what_was_printed(sandbox: Sandbox) -> None:
    output = sandbox.run("echo before; sleep 60; echo after", timeout=1)
    assert (output.text, output.status, output.timed_out) == ("before\n", 124, True)


def test_a_background_child_neither_delays_the_command_nor_survives_it(sandbox: Sandbox) -> None:
    output = sandbox.run("(sleep 60; echo late > late) & echo now")
    assert (output.text, output.status) == ("now\n", 0)
    assert output.seconds < 30
    assert sandbox.run("ps -e 2>/dev/null | grep -c 'sleep 6[0]'; cat late 2>&1").text.startswith(
        "0"
    )


@pytest.mark.slow
def test_cpu_time_is_limited_and_no_command_lifts_the_limit(backend: SandboxBackend) -> None:
    sandbox = backend.open(limits=Limits(cpu_seconds=1))
    output = sandbox.run("ulimit -St unlimited; trap '' XCPU; while :; do :; done", timeout=30)
    assert (output.status, output.timed_out) == (137, False)
    assert sandbox.run("ulimit -Ht 100").status != 0
    assert sandbox.run("ulimit -St").text == "1\n"
    sandbox.close()


def test_open_files_are_limited(backend: SandboxBackend) -> None:
    sandbox = backend.open()
    assert sandbox.run("ulimit -Hn; ulimit -n 2048 || echo no").text.splitlines()[::2] == [
        "1024",
        "no",
    ]
    sandbox.close()


def test_a_file_is_not_larger_than_the_disk_quota(backend: SandboxBackend) -> None:
    sandbox = backend.open(limits=Limits(disk_mb=4))
    output = sandbox.run("head -c 20000000 /dev/zero > big; stat -c %s big")
    size = len(sandbox.read("big"))
    sandbox.close()
    assert output.status != 0 or output.text
    assert size <= 4 * 1024 * 1024


def test_many_files_over_the_disk_quota_are_noticed(backend: SandboxBackend) -> None:
    sandbox = backend.open(limits=Limits(disk_mb=8))
    output = sandbox.run(
        "for i in 1 2 3 4 5 6; do head -c 3000000 /dev/zero > $i; done; sleep 30", timeout=25
    )
    sandbox.close()
    assert output.limit == "disk"
    assert output.status == 137


def test_disk_used_by_a_quick_command_is_noticed_at_its_end(backend: SandboxBackend) -> None:
    sandbox = backend.open(limits=Limits(disk_mb=8))
    output = sandbox.run(
        "for i in 1 2 3 4 5 6; do head -c 3000000 /dev/zero > ${TMPDIR:-/tmp}/$i; done"
    )
    sandbox.close()
    assert output.limit == "disk"
    assert output.status != 0


def test_files_go_in_and_come_out_whole_with_their_mode(sandbox: Sandbox) -> None:
    data = bytes(range(256)) * 10
    sandbox.write("a/b/c.bin", data)
    sandbox.write("a/run", b"#!/bin/sh\necho ran\n", 0o755)
    sandbox.write("a/run2", b"x")
    assert sandbox.read("a/b/c.bin") == data
    assert (
        sandbox.run("./a/run; stat -c %a a/run a/run2; echo more >> a/b/c.bin; rm a/run2").text
        == "ran\n755\n644\n"
    )
    assert sandbox.read("./a//b/c.bin") == data + b"more\n"
    sandbox.write("a/run", b"shorter", 0o600)
    assert sandbox.read("a/run") == b"shorter"
    with pytest.raises(FileNotFoundError):
        sandbox.read("a/nothing")
    with pytest.raises(FileNotFoundError):
        sandbox.read("nothing/there")


def test_a_path_that_leads_out_is_refused(sandbox: Sandbox) -> None:
    for path in ("../x", "/etc/passwd", "a/../../x", "", ".", "a\0b", "x" * 300, "\ud800"):
        with pytest.raises(BadInput):
            sandbox.read(path)
        with pytest.raises(BadInput):
            sandbox.write(path, b"")


def test_a_link_is_never_followed(sandbox: Sandbox, tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_bytes(b"host")
    sandbox.run(
        [
            "sh",
            "-c",
            f"ln -s {secret} file; ln -s {tmp_path} dir; ln -s inside alias; echo 1 > inside",
        ]
    )
    for path in ("file", "dir/secret", "alias"):
        with pytest.raises(BadInput, match="link"):
            sandbox.read(path)
        with pytest.raises(BadInput, match="link"):
            sandbox.write(path, b"changed")
    with pytest.raises(BadInput, match="link"):
        sandbox.write("dir/new/file", b"made")
    assert secret.read_bytes() == b"host"
    assert [p.name for p in tmp_path.iterdir()] == ["secret"]


def test_what_is_no_regular_file_is_refused_at_once(sandbox: Sandbox) -> None:
    sandbox.run("mkfifo pipe; mkdir folder; touch file")
    for path in ("pipe", "folder", "file/below"):
        with pytest.raises(BadInput):
            sandbox.read(path)
        with pytest.raises(BadInput):
            sandbox.write(path, b"x")


def test_what_the_sandbox_closed_with_chmod_can_be_read_written_and_deleted(
    backend: SandboxBackend,
) -> None:
    sandbox = backend.open()
    sandbox.run("mkdir -p d/e; echo hi > d/e/f; chmod 000 d/e/f d/e d; chmod 000 .")
    assert sandbox.read("d/e/f") == b"hi\n"
    sandbox.write("d/e/f", b"new")
    sandbox.write("d/e/g", b"g")
    assert sandbox.read("d/e/f") == b"new"
    assert sandbox.run("stat -c %a d").text == "0\n"
    root = sandbox.root  # type: ignore[attr-defined]
    sandbox.close()
    assert not root.exists()


def test_close_deletes_even_what_is_nested_deeper_than_a_path_may_be_long(
    backend: SandboxBackend,
) -> None:
    sandbox = backend.open()
    output = sandbox.run(
        "n=$(printf %0200d 0); for i in $(seq 60); do mkdir $n && cd $n || exit 1; done; pwd -P |"
        " wc -c"
    )
    # what lies so deep cannot be counted: it ends there, or at the end
    assert output.limit == "disk"
    root = sandbox.root  # type: ignore[attr-defined]
    sandbox.close()
    sandbox.close()
    assert not root.exists()


def test_a_closed_sandbox_says_so(backend: SandboxBackend) -> None:
    sandbox = backend.open()
    sandbox.close()
    with pytest.raises(Fault, match="closed"):
        sandbox.run("true")


def test_close_ends_a_command_that_runs_in_another_thread(backend: SandboxBackend) -> None:
    sandbox = backend.open()
    seen: list[object] = []

    def work() -> None:
        seen.append(sandbox.run("touch started; sleep 60").status)

    thread = threading.Thread(target=work)
    thread.start()
    while not (sandbox.root / "work" / "started").exists():  # type: ignore[attr-defined]
        time.sleep(0.01)
    sandbox.close()
    thread.join(30)
    assert not thread.is_alive()
    assert seen == [137]


def test_a_sandbox_opened_from_a_folder_is_a_copy_with_links_and_modes(
    backend: SandboxBackend, tmp_path: Path
) -> None:
    (tmp_path / "sub").mkdir(mode=0o750)
    (tmp_path / "sub" / "tool").write_text("#!/bin/sh\necho tool\n")
    (tmp_path / "sub" / "tool").chmod(0o555)
    (tmp_path / "link").symlink_to("sub/tool")
    (tmp_path / "dangling").symlink_to("/no/where")
    os.mkfifo(tmp_path / "fifo")
    os.utime(tmp_path / "sub" / "tool", (1e9, 1e9))
    sandbox = backend.open(source=tmp_path)
    output = sandbox.run(
        "./link; stat -c %a-%Y sub/tool; readlink link dangling; ls -A; echo mine > sub/new; rm -f"
        " link"
    )
    sandbox.close()
    assert output.text.splitlines() == [
        "tool",
        "555-1000000000",
        "sub/tool",
        "/no/where",
        "dangling",
        "link",
        "sub",
    ]
    assert not (tmp_path / "sub" / "new").exists()
    assert (tmp_path / "link").is_symlink()


def test_a_missing_source_is_bad_input_and_leaves_no_folder(
    backend: SandboxBackend, tmp_path: Path
) -> None:
    session = filesystem.make_folder().parent
    before = set(session.iterdir())
    with pytest.raises(BadInput, match="not a folder"):
        backend.open(source=tmp_path / "nothing")
    assert set(session.iterdir()) == before


def test_a_source_nested_without_end_is_bad_input_and_leaves_no_folder(
    backend: SandboxBackend, tmp_path: Path
) -> None:
    here = os.open(tmp_path, os.O_RDONLY)
    for _ in range(1200):
        os.mkdir("d", dir_fd=here)
        below = os.open("d", os.O_RDONLY, dir_fd=here)
        os.close(here)
        here = below
    os.close(here)
    session = filesystem.make_folder().parent
    before = set(session.iterdir())
    with pytest.raises(BadInput, match="nested too deeply"):
        backend.open(source=tmp_path)
    assert set(session.iterdir()) == before
    filesystem.delete(tmp_path / "d")


def test_a_mount_is_seen_at_its_own_path_and_a_python_environment_runs(
    backend: SandboxBackend, tmp_path: Path
) -> None:
    sandbox = backend.open(mounts=interpreter_mounts(Path(sys.prefix)))
    output = sandbox.run([sys.executable, "-c", "import sys, ssl; print(sys.prefix)"])
    sandbox.close()
    assert output.text.strip() == sys.prefix


@pytest.mark.parametrize("name", [name for name in WORKING if name != "none"])
def test_a_file_and_a_folder_of_the_system_are_hidden_and_never_replaced(
    name: str, tmp_path: Path
) -> None:
    backend = find("sandbox", name)()
    files = (p for p in sorted(Path("/usr/lib").iterdir()) if p.is_file() and not p.is_symlink())
    file = next(p for p in files if p.stat().st_size)
    folder = next(
        p for p in sorted(Path("/usr/share").iterdir()) if p.is_dir() and any(p.iterdir())
    )
    (tmp_path / "empty").mkdir()
    (tmp_path / "nothing").touch()
    with backend.open(
        mounts={str(file): tmp_path / "nothing", str(folder): tmp_path / "empty"}
    ) as sandbox:  # type: ignore[attr-defined]
        output = sandbox.run(f"cat {file}; ls -A {folder}; ls {file.parent} | wc -l")
    assert output.text.strip() == str(
        len([p for p in file.parent.iterdir() if not p.name.startswith(".")])
    )
    (tmp_path / "nothing").write_text("something")
    for inside, outside in (
        (str(file), "nothing"),
        ("/etc/passwd", "empty"),
        ("/usr", "empty"),
        ("/proc/1", "empty"),
    ):
        with pytest.raises(BadInput, match="nothing can be mounted"):
            backend.open(mounts={inside: tmp_path / outside})


def test_sandboxes_are_private_to_their_owner(backend: SandboxBackend) -> None:
    sandbox = backend.open()
    mode = stat.S_IMODE(sandbox.root.stat().st_mode)  # type: ignore[attr-defined]
    sandbox.close()
    assert mode == 0o700


def test_sandboxes_of_a_process_that_died_are_swept_and_those_of_a_living_one_are_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    dead = tmp_path / "recreate-dead"
    (dead / "box-1" / "work").mkdir(parents=True)
    (dead / "lock").touch()
    monkeypatch.setattr(filesystem, "_session", None)
    first = filesystem.make_folder()
    assert not dead.exists()
    monkeypatch.setattr(filesystem, "_session", None)
    filesystem.make_folder()
    assert first.exists()


def test_a_full_disk_is_a_fault_that_says_so(backend: SandboxBackend) -> None:
    sandbox = backend.open()
    with pytest.raises(Fault) as caught, filesystem.ours("write"):
        raise OSError(28, "No space left on device")
    sandbox.close()
    assert caught.value.code == "disk-full"
    assert "TMPDIR" in caught.value.fix


@pytest.mark.skipif(os.geteuid() != 0, reason="an ordinary user has no other identity to give")
def test_what_root_runs_has_an_identity_of_its_own(backend: SandboxBackend) -> None:
    if backend.name == "none":
        return
    with backend.open() as first, backend.open() as second:
        uids = [int(sandbox.run("id -u; sleep 0.1").text) for sandbox in (first, second)]
    assert 0 not in uids
    assert set(uids) <= set(UIDS)
    assert uids[0] != uids[1]


def test_choose_takes_the_best_backend_that_works(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("RECREATE_SANDBOX", raising=False)
    assert sandboxes.choose().name == next(name for name in sandboxes.PREFERENCE if name in WORKING)
    monkeypatch.setenv("RECREATE_SANDBOX", "none")
    assert sandboxes.choose().name == "none"
    assert sandboxes.choose(WORKING[0]).name == WORKING[0]


def test_an_unknown_sandbox_lists_the_ones_there_are(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(BadInput) as caught:
        sandboxes.choose("dokcer")
    assert caught.value.code == "unknown-sandbox"
    assert all(name in caught.value.fix for name in names("sandbox"))


def test_where_nothing_works_the_error_says_what_to_install_and_none_is_not_chosen(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("RECREATE_SANDBOX", raising=False)
    monkeypatch.setattr(sandboxes, "_probe", lambda name: "" if name == "none" else "not permitted")
    with pytest.raises(BadInput) as caught:
        sandboxes.choose()
    assert caught.value.code == "no-sandbox"
    assert "apt-get install bubblewrap" in caught.value.fix
    assert "--sandbox none" in caught.value.fix
    with pytest.raises(BadInput) as named:
        sandboxes.choose("unshare")
    assert named.value.code == "no-sandbox"


def test_survey_names_every_backend() -> None:
    assert [name for name, _ in sandboxes.survey()][:2] == ["bwrap", "unshare"]
    assert ("none", "") in sandboxes.survey()


def test_folders_of_sandboxes_lie_far_apart_where_the_disk_is_ext4(tmp_path: Path) -> None:
    def flags() -> int:
        handle, found = os.open(tmp_path, os.O_RDONLY), bytearray(8)
        try:
            fcntl.ioctl(handle, filesystem._GET_FLAGS, found)
        finally:
            os.close(handle)
        return int.from_bytes(found[:4], sys.byteorder)

    try:
        before = flags()
    except OSError:
        before = -1
    filesystem._spread(tmp_path)  # and nothing is said where the disk knows no such thing
    if before & 0x80000 and before != -1:  # extents: ext4
        assert flags() == before | 0x20000


def test_a_copy_has_the_same_files_and_what_happens_in_it_stays_there(
    backend: SandboxBackend,
) -> None:
    with_files = backend.open(env={"GREETING": "hello"})
    if not isinstance(with_files, Copyable):
        with_files.close()
        assert backend.name in ENGINES
        return
    with_files.run(
        "mkdir a; echo 1 > a/one; ln -s a/one link; echo 2 > ~/two; echo 3 > ${TMPDIR:-/tmp}/three;"
        " chmod 700 a/one"
    )
    copy = with_files.copy()
    try:
        seen = "cat link ~/two ${TMPDIR:-/tmp}/three; stat -c %a a/one; echo $GREETING"
        assert copy.run(seen).text == with_files.run(seen).text == "1\n2\n3\n700\nhello\n"
        copy.run("rm -r a; echo new > new")
        assert with_files.run("cat a/one; ls").text == "1\na\nlink\n"
    finally:
        copy.close()
    assert with_files.run("cat a/one").text == "1\n"
    with_files.close()


def test_a_copy_takes_no_more_of_the_disk_than_what_is_copied(backend: SandboxBackend) -> None:
    sandbox = backend.open(limits=Limits(disk_mb=20))
    if not isinstance(sandbox, Copyable):
        sandbox.close()
        assert backend.name in ENGINES
        return
    sandbox.run(
        "head -c 2000000 /dev/urandom > a; for n in $(seq 20); do ln a a$n; truncate -s 19M hole$n;"
        " done; printf end >> hole1; printf middle | dd of=hole2 bs=1 seek=9000000 conv=notrunc"
        " status=none"
    )
    copy = sandbox.copy()
    try:
        seen = "cksum * | sort -u; stat -c '%n %s' *; stat -c %h a"
        assert copy.run(seen).text == sandbox.run(seen).text
        used = copy.run("du -sk .").text.split()[0]
        assert int(used) < 4000
        assert not copy.run("true").limit
    finally:
        copy.close()
        sandbox.close()
