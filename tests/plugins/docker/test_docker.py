"""The engines docker and podman as sandboxes: attacked like the other backends where one runs here,
with images made on the spot; and what is said where none runs, by a stand-in for the client."""

from __future__ import annotations

import io
import os
import shutil
import signal
import subprocess
import sys
import tarfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from recreate import sandboxes
from recreate.api.errors import BadInput, Fault
from recreate.api.ports import Limits, OpensImages
from recreate.api.registry import find
from recreate.cli import run as cli
from recreate.plugins.docker import docker
from recreate.plugins.docker.docker import (
    ContainerEngine,
    ContainerSandbox,
    Docker,
    first_name,
    second_name,
)
from recreate.sandboxes import filesystem
from tests.sandboxes.test_breakout import (  # noqa: F401
    _running,
    _until,
    test_a_command_cannot_pretend_that_the_sandbox_failed,
    test_a_command_that_kills_all_it_can_ends_only_itself,
    test_a_daemon_does_not_survive_a_command_that_ends_well,
    test_a_file_that_was_unlinked_counts_as_disk,
    test_a_fork_bomb_is_bounded_and_gone,
    test_a_memory_hog_is_stopped,
    test_a_mount_cannot_replace_the_system,
    test_a_mount_is_read_only,
    test_a_sandbox_cannot_lead_a_mount_elsewhere,
    test_a_timeout_ends_daemons_too,
    test_descriptors_of_the_host_are_closed,
    test_disk_in_a_folder_closed_to_its_owner_counts,
    test_host_keys_and_accounts_are_not_in_etc,
    test_memory_of_many_processes_is_added_up,
    test_more_processes_than_allowed_do_not_start,
    test_no_socket_opens_that_reaches_past_the_sandboxs_network,
    test_nothing_outside_the_sandboxs_own_folders_can_be_written,
    test_processes_of_the_host_cannot_be_seen_or_signalled,
    test_sandboxes_work_side_by_side,
    test_the_keys_of_the_host_session_cannot_be_listed,
    test_the_terminal_of_the_host_is_out_of_reach,
    test_there_are_no_capabilities_and_no_way_to_new_ones,
    test_there_are_no_further_user_namespaces,
    test_there_is_no_way_to_the_network_or_to_the_hosts_sockets,
    test_two_sandboxes_do_not_see_each_other,
)

RUNNING = [name for name in ("docker", "podman") if not find("sandbox", name)().probe()]
Open = Callable[..., ContainerSandbox]


@pytest.fixture(
    params=[pytest.param(name, marks=pytest.mark.docker) for name in RUNNING or ["docker"]]
)
def engine(request: pytest.FixtureRequest) -> str:
    assert RUNNING, "neither docker nor podman runs here: start one, or leave out -m docker"
    name: str = request.param
    return name


@pytest.fixture
def open_sandbox(engine: str) -> Iterator[Open]:
    opened: list[ContainerSandbox] = []

    def make(
        limits: Limits | None = None, mounts: Mapping[str, Path] | None = None
    ) -> ContainerSandbox:
        opened.append(
            find("sandbox", engine)().open(mounts=mounts, limits=limits or Limits(seconds=20))
        )
        return opened[-1]

    yield make
    for sandbox in opened:
        sandbox.close()


@pytest.fixture
def open_chosen(open_sandbox: Open) -> Open:
    return open_sandbox


@pytest.fixture
def open_held(open_sandbox: Open) -> Open:
    return open_sandbox


def test_nothing_of_the_host_but_its_system_is_there(open_sandbox: Open, tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("secret")
    sandbox = open_sandbox()
    for path in (
        tmp_path / "secret",
        Path(__file__),
        Path.home(),
        Path("/var/log"),
        Path("/var/run/docker.sock"),
    ):
        assert sandbox.run(["ls", "-d", str(path)]).status != 0
    assert sandbox.run("ls /home /var").text.split() == ["/home:", "agent", "/var:", "tmp"]
    assert (
        sandbox.run(
            "cat /etc/resolv.conf; cat /proc/1/environ | tr '\\0' '\\n' | grep -i proxy"
        ).text
        == ""
    )


def test_a_killed_recreate_leaves_no_container(engine: str, tmp_path: Path) -> None:
    program = f"""
from recreate.api.registry import find
sandbox = find("sandbox", {engine!r})().open()
print(sandbox.root, flush=True)
sandbox.run("setsid sleep 67 & touch started; sleep 67")
"""
    env = {**os.environ, "TMPDIR": str(tmp_path), "PYTHONPATH": os.pathsep.join(sys.path)}
    with subprocess.Popen(
        [sys.executable, "-c", program], stdout=subprocess.PIPE, env=env
    ) as child:
        assert child.stdout
        root = Path(child.stdout.readline().decode().strip())
        try:
            _until((root / "work" / "started").exists)
            _until(lambda: _running("sleep 67") >= 2)
        finally:
            child.send_signal(signal.SIGKILL)
    _until(lambda: _running("sleep 67") == 0)
    _until(lambda: _of_session(engine, root.parent) == [])


def test_ctrl_c_ends_the_container_and_leaves_none(engine: str, tmp_path: Path) -> None:
    words = [
        sys.executable,
        "-m",
        "recreate",
        "sandbox",
        "exec",
        "--rung",
        engine,
        "--",
        "sleep",
        "68",
    ]
    env = {**os.environ, "TMPDIR": str(tmp_path), "PYTHONPATH": os.pathsep.join(sys.path)}
    with subprocess.Popen(words, env=env, stderr=subprocess.DEVNULL) as child:
        _until(lambda: _running("sleep 68") > 0, 60)
        session = next(tmp_path.glob("recreate-*"))
        child.send_signal(signal.SIGINT)
        assert child.wait(30) == 130
    _until(lambda: _running("sleep 68") == 0)
    _until(lambda: _of_session(engine, session) == [])


def test_containers_of_a_dead_session_are_swept_by_the_next_one(
    open_sandbox: Open, engine: str, tmp_path: Path
) -> None:
    client = ContainerEngine(engine)
    image = client.host_image()
    labels = [
        "--label",
        "recreate=sandbox",
        "--label",
        f"recreate.session={tmp_path}/recreate-gone",
    ]
    client.ask("create", "--name", "recreate-left-over", *labels, image, "true")
    assert "recreate-left-over" in client.abandoned()
    client.watched(tmp_path / "recreate-other")
    assert "recreate-left-over" not in client.ask("ps", "--all", "--format", "{{.Names}}")
    assert client._reaper
    client._reaper.forget()


def _of_session(engine: str, session: Path) -> list[str]:
    return (
        ContainerEngine(engine)
        .ask("ps", "--all", "--quiet", "--filter", f"label=recreate.session={session}")
        .split()
    )


@pytest.fixture
def image(engine: str) -> Iterator[str]:
    """A small image as SWE-bench's are: a project in /testbed, programs on a PATH of its own."""
    name = "localhost/recreate-test/sweb.eval.x86_64.toy_1776_toy-1:latest"
    blob = io.BytesIO()
    programs = {
        p: shutil.which(p, path="/usr/bin:/bin")
        for p in ("sh", "env", "cat", "id", "touch", "ls", "cp")
    }
    listed = subprocess.run(
        ["ldd", *filter(None, programs.values())], capture_output=True, text=True, check=True
    )
    libraries = {
        word for word in listed.stdout.split() if word.startswith("/") and not word.endswith(":")
    }
    with tarfile.open(fileobj=blob, mode="w", dereference=True) as tar:
        for program, path in programs.items():
            assert path
            tar.add(path, f"usr/bin/{program}")
        for library in libraries:
            tar.add(library, library.lstrip("/"))
        for link, target in (("bin", "usr/bin"),):
            entry = tarfile.TarInfo(link)
            entry.type, entry.linkname = tarfile.SYMTYPE, target
            tar.addfile(entry)
        for file, text in (
            ("testbed/toy/__init__.py", b"x = 1\n"),
            ("etc/passwd", b"root:x:0:0::/root:/bin/sh\n"),
        ):
            entry = tarfile.TarInfo(file)
            entry.size = len(text)
            tar.addfile(entry, io.BytesIO(text))
        entry = tarfile.TarInfo("testbed/large")
        entry.size = 6_000_000
        tar.addfile(entry, io.BytesIO(bytes(entry.size)))
        entry = tarfile.TarInfo("testbed/link")
        entry.type, entry.linkname = tarfile.SYMTYPE, "/etc/passwd"
        tar.addfile(entry)
    client = ContainerEngine(engine)
    change = ("--change", "ENV PATH=/opt/none:/usr/bin:/bin", "--change", "ENV COLOUR=blue")
    client.ask("import", *change, "-", name, stdin=blob.getvalue())
    yield name
    client.try_engine("rmi", "--force", name)


def of_image(engine: str, image: str, folder: str = "/testbed", **given: Any) -> ContainerSandbox:
    backend = find("sandbox", engine)()
    assert isinstance(backend, OpensImages)
    made = backend.image(image, folder, say=lambda _: None).open(**given)
    assert isinstance(made, ContainerSandbox)
    return made


def test_a_task_of_an_image_works_on_a_copy_of_the_images_folder(engine: str, image: str) -> None:
    with of_image(engine, image, env={"SHAPE": "round"}) as sandbox:
        output = sandbox.run("pwd; ls; cat toy/__init__.py; echo y = 2 >> toy/__init__.py")
        assert output.text == "/testbed\nlarge\nlink\ntoy\nx = 1\n"
        assert sandbox.read("toy/__init__.py") == b"x = 1\ny = 2\n"
        sandbox.write("toy/new.py", b"z = 3\n")
        assert sandbox.run("cat /testbed/toy/new.py /work/toy/new.py").text == "z = 3\nz = 3\n"
        with pytest.raises(FileNotFoundError):
            sandbox.read("link")
        assert "agent" in sandbox.run("id").text
    with of_image(engine, image) as again:
        assert again.read("toy/__init__.py") == b"x = 1\n"


def test_a_container_of_an_image_has_the_images_environment_and_nothing_else_to_write(
    engine: str, image: str
) -> None:
    with of_image(engine, image, env={"SHAPE": "round"}) as sandbox:
        environment = dict(line.split("=", 1) for line in sandbox.run("env").text.splitlines())
        assert environment["PATH"] == "/opt/none:/usr/bin:/bin"
        assert (environment["COLOUR"], environment["SHAPE"], environment["HOME"]) == (
            "blue",
            "round",
            "/home/agent",
        )
        assert sandbox.run("touch /usr/bin/x || touch /etc/x || touch /x || touch /opt").status != 0
        assert sandbox.run("touch /tmp/x /var/tmp/y ~/z /testbed/w /dev/shm/v").status == 0
        assert sandbox.run("cat /proc/net/dev").text.count(":") == 1  # the loopback alone


def test_an_images_folder_does_not_count_as_the_sandboxs_own_disk(engine: str, image: str) -> None:
    with of_image(engine, image, limits=Limits(disk_mb=2)) as sandbox:
        assert sandbox.run("echo x > small").limit == ""
        assert sandbox.run("cat large > copied").limit == "disk"


def test_an_image_without_the_folder_is_the_tasks_fault(engine: str, image: str) -> None:
    with pytest.raises(Fault, match="/nowhere of the image") as caught:
        of_image(engine, image, "/nowhere")
    assert caught.value.code == "image"


def test_a_folder_is_copied_out_of_an_image_without_what_is_not_wanted(
    engine: str, image: str, tmp_path: Path
) -> None:
    backend = find("sandbox", engine)().image(image, "/testbed", say=lambda _: None)
    backend.copy("/testbed", tmp_path / "all")
    assert sorted(path.name for path in (tmp_path / "all").iterdir()) == ["large", "link", "toy"]
    assert str((tmp_path / "all" / "link").readlink()) == "/etc/passwd"
    assert (tmp_path / "all" / "toy" / "__init__.py").read_bytes() == b"x = 1\n"
    backend.copy("/testbed", tmp_path / "some", without={"toy"})
    assert sorted(path.name for path in (tmp_path / "some").iterdir()) == ["large", "link"]
    assert backend.digest == ContainerEngine(engine).about(image)["Id"]
    with pytest.raises(Fault, match="/nowhere of the image") as caught:
        backend.copy("/nowhere", tmp_path / "none")
    assert caught.value.code == "image"


def test_an_image_that_cannot_be_pulled_is_refused_and_asked_for_once(
    engine: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []
    real = ContainerEngine.try_engine

    def tried(
        self: ContainerEngine, *words: str, **given: Any
    ) -> subprocess.CompletedProcess[bytes]:
        asked.extend(words[:1])
        return real(self, *words, **given)

    monkeypatch.setattr(ContainerEngine, "try_engine", tried)
    for _ in range(2):
        with pytest.raises(Fault, match=r"127\.0\.0\.1:9/no/such:image cannot be pulled") as caught:
            of_image(engine, "127.0.0.1:9/no/such:image")
        assert caught.value.code == "image"
        assert f"{engine} pull 127.0.0.1:9/no/such:image" in caught.value.fix
    assert asked.count("pull") == 1


def test_clean_removes_images_that_were_pulled_and_none_that_is_in_use_or_the_users(
    engine: str,
    image: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    client = ContainerEngine(engine)
    monkeypatch.setattr(docker, "installed", lambda: [client])
    client.ask("tag", image, second_name(image))  # as after a pull
    with of_image(engine, image):
        assert cli(["clean"]) == 0
        assert f"left, since it is in use: the image {image}" in capsys.readouterr().out
    holder = find("sandbox", engine)().engine
    holder.ask("rm", "--force", holder._held.pop(client.about(image)["Id"]))
    assert cli(["clean", "--dry-run"]) == 0
    assert f"would remove the image {image} of {engine}" in capsys.readouterr().out
    assert client.has(image)
    client.ask("tag", image, "localhost/recreate-test/mine:latest")
    try:
        assert cli(["clean"]) == 0
        assert f"removed the image {image} of {engine}" in capsys.readouterr().out
        assert client.has("localhost/recreate-test/mine:latest")
        assert not client.has(second_name(image))
    finally:
        client.try_engine("rmi", "localhost/recreate-test/mine:latest")
    client.try_engine("tag", image, second_name(image))
    assert cli(["clean"]) == 0
    assert not client.has(image)


# -------------------------------------------------------------------- without an engine: a stand-in
# for the client


@pytest.fixture
def stand_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], ContainerEngine]:
    """A program `docker` that is this shell script."""

    def make(script: str) -> ContainerEngine:
        folder = tmp_path / "bin"
        folder.mkdir(exist_ok=True)
        (folder / "docker").write_text(f"#!/bin/sh\n{script}\n")
        (folder / "docker").chmod(0o755)
        monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
        docker._probed.cache_clear()
        sandboxes._probe.cache_clear()
        monkeypatch.setattr(docker, "_engine", ContainerEngine)
        return ContainerEngine("docker")

    yield make
    docker._probed.cache_clear()
    sandboxes._probe.cache_clear()


def test_an_engine_that_is_not_installed_or_does_not_run_says_what_to_type(
    stand_in: Callable[[str], ContainerEngine], monkeypatch: pytest.MonkeyPatch
) -> None:
    stand_in("echo 'Cannot connect to the Docker daemon' >&2; exit 1")
    with pytest.raises(
        BadInput, match=r"Cannot connect to the Docker daemon.*systemctl start docker"
    ) as caught:
        sandboxes.choose("docker")
    assert caught.value.code == "no-sandbox"
    monkeypatch.setattr(docker.shutil, "which", lambda name, path=None: None)
    docker._probed.cache_clear()
    assert Docker().probe() == "the program docker is not installed"


def test_an_engine_is_never_chosen_unless_it_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    assert not {"docker", "podman"} & set(sandboxes.PREFERENCE)
    monkeypatch.setattr(
        sandboxes, "_probed", lambda name: "" if name in ("docker", "podman") else "no"
    )
    with pytest.raises(BadInput, match="no sandbox works here"):
        sandboxes.choose()


def test_an_image_is_asked_for_where_it_is_pulled_from_and_gets_a_name_that_tells_it_is_ours(
    stand_in: Callable[[str], ContainerEngine], tmp_path: Path
) -> None:
    engine = stand_in(f'echo "$@" >> {tmp_path}/log; [ "$1 $2" != "image inspect" ]')
    said: list[str] = []
    for image in ("swebench/sweb.eval.x86_64.a_1776_b-1:latest", "ghcr.io/x/y@sha256:0a"):
        engine.pull(image, said.append)
        assert first_name(second_name(image)) == image
    lines = (tmp_path / "log").read_text().splitlines()
    assert [line for line in lines if line.startswith("pull")] == [
        "pull --quiet docker.io/swebench/sweb.eval.x86_64.a_1776_b-1:latest",
        "pull --quiet ghcr.io/x/y@sha256:0a",
    ]
    assert f"tag ghcr.io/x/y@sha256:0a {second_name('ghcr.io/x/y@sha256:0a')}" in lines
    assert "pulling ghcr.io/x/y@sha256:0a, once" in said[1]


@pytest.fixture(params=["with filters", "as Python 3.11.2 has it"])
def filters(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """`tarfile` as it is, and as Debian 12 has it, where nothing but our own checks is left."""
    if request.param != "with filters":
        for name in ("data_filter", "tar_filter"):
            monkeypatch.delattr(tarfile, name, raising=False)


@pytest.mark.usefixtures("filters")
def test_what_an_image_holds_is_unpacked_below_its_own_folder(
    stand_in: Callable[[str], ContainerEngine], tmp_path: Path
) -> None:
    packed = tmp_path / "it.tar"
    with tarfile.open(packed, "w") as tar:
        for name, kind, link in (
            ("./.git/HEAD", tarfile.REGTYPE, ""),
            ("./sub/.git", tarfile.REGTYPE, ""),
            ("./sub/a.py", tarfile.REGTYPE, ""),
            ("./b.py", tarfile.LNKTYPE, "./sub/a.py"),
            ("./c.py", tarfile.LNKTYPE, "./.git/HEAD"),
            ("./pipe", tarfile.FIFOTYPE, ""),
            ("./away", tarfile.SYMTYPE, "/etc"),
        ):
            entry = tarfile.TarInfo(name)
            entry.type, entry.linkname, entry.mode, entry.uid = kind, link, 0o400, 1234
            tar.addfile(entry)
    engine = stand_in(f'[ "$1 $3" = "cp -" ] && cat {packed}')
    (tmp_path / "to").mkdir()
    assert engine.unpacked("c:/testbed/.", tmp_path / "to", {".git"}) == ""
    found = {path.relative_to(tmp_path / "to").as_posix() for path in (tmp_path / "to").rglob("*")}
    assert found == {"sub", "sub/a.py", "b.py", "away"}
    about = (tmp_path / "to" / "sub" / "a.py").stat()
    assert (about.st_mode & 0o777, about.st_uid) == (0o600, os.geteuid())


@pytest.mark.usefixtures("filters")
@pytest.mark.parametrize(
    ("names", "why"),
    [
        (["../out"], "outside"),
        (["away", "away/out"], "outside"),
        ([], "cannot be unpacked"),
        (None, "gone"),
    ],
)
def test_what_leads_out_of_the_folder_or_is_no_archive_is_not_unpacked(
    names: list[str] | None, why: str, stand_in: Callable[[str], ContainerEngine], tmp_path: Path
) -> None:
    packed = tmp_path / "it.tar"
    with tarfile.open(packed, "w") as tar:
        for name in names or ():
            entry = tarfile.TarInfo(name)
            entry.type, entry.linkname = (
                (tarfile.SYMTYPE, str(tmp_path)) if name == "away" else (tarfile.REGTYPE, "")
            )
            tar.addfile(entry)
    if names == []:
        packed.write_bytes(b"no archive" * 100)
    engine = stand_in(
        f"cat {packed}" if names is not None else "echo 'the container is gone' >&2; exit 1"
    )
    (tmp_path / "to").mkdir()
    assert why in engine.unpacked("c:/testbed/.", tmp_path / "to", ())
    assert not (tmp_path / "out").exists()


def test_what_is_no_name_of_an_image_is_not_handed_to_the_engine() -> None:
    for name in ("", "--privileged", "a b"):
        with pytest.raises(Fault, match="no name of an image"):
            Docker().image(name)


def test_a_container_is_told_of_every_wall(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tmp_path.chmod(0o755)
    sandbox = ContainerSandbox(
        Docker(), None, {"/opt/data": tmp_path}, None, Limits(memory_mb=100, processes=7, seconds=5)
    )
    try:
        line = " ".join(map(os.fsdecode, Docker().command(sandbox, "recreate-1", [b"true"])))
    finally:
        sandbox.close()
    for words in (
        "--network none --read-only",
        "--ipc private --cgroupns private",
        "--cap-drop ALL",
        "--security-opt no-new-privileges",
        "--memory 100m --memory-swap 100m",
        "--pids-limit 11",
        "--pull never",
        "--log-driver none",
        f"--user {sandbox.uid}:",
        f"--label recreate.session={sandbox.root.parent}",
        f"--mount type=bind,source={sandbox.root / 'work'},destination=/work",
        f"--mount type=bind,source={tmp_path},destination=/opt/data,readonly",
        f"seccomp={sandbox.root / 'filter.json'}",
    ):
        assert words in line, words
    assert f"source={sandbox.root / 'work'},destination=/work,readonly" not in line


def test_a_mount_whose_path_an_engine_would_misread_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a,readwrite").mkdir(mode=0o755)
    sandbox = ContainerSandbox(Docker(), None, {"/opt/data": tmp_path / "a,readwrite"}, None, None)
    try:
        with pytest.raises(BadInput, match="a comma"):
            Docker().command(sandbox, "recreate-1", [b"true"])
    finally:
        sandbox.close()


def test_a_session_that_is_at_work_is_not_swept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ours = filesystem.make_folder()
    try:
        assert not filesystem.abandoned(ours.parent)
        assert filesystem.abandoned(tmp_path / "recreate-gone")
        (tmp_path / "recreate-left").mkdir()
        (tmp_path / "recreate-left" / "lock").touch()
        assert filesystem.abandoned(tmp_path / "recreate-left")
        monkeypatch.setenv("TMPDIR", str(tmp_path))
        assert cli(["clean", "--dry-run"]) == 0
        assert (tmp_path / "recreate-left").exists()
        assert cli(["clean"]) == 0
        assert not (tmp_path / "recreate-left").exists()
    finally:
        filesystem.delete(ours)
