"""Images that are folders, for tests without an engine: what a container would have is a host
sandbox of the same; and one for an engine."""

from __future__ import annotations

import io
import os
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Callable, Collection, Mapping
from pathlib import Path

from recreate.api.errors import IMAGE, Fault
from recreate.api.ports import Limits, Sandbox
from recreate.api.types import digest
from recreate.plugins.docker.docker import ContainerEngine
from recreate.sandboxes import choose
from recreate.sandboxes.rootfs import interpreter_mounts
from tests.plugins.swe.swe_project import _environment


class ImageFolders:
    """A backend whose images are folders below FOLDER_IMAGES: `name`, with `:` and `/` as `_`. In
    each, `testbed` is what is worked on; the Python is that of ROWS_ENV. asked: the names of
    images; mounted: what was to be mounted.
    """

    name = "folders"
    asked: list[str] = []  # noqa: RUF012
    mounted: list[str] = []  # noqa: RUF012

    def __init__(self) -> None:
        self.inner = choose("bwrap")

    def probe(self) -> str:
        return ""

    def open(
        self,
        *,
        source: Path | None = None,
        mounts: Mapping[str, Path] | None = None,
        env: Mapping[str, str] | None = None,
        limits: Limits | None = None,
    ) -> Sandbox:
        return self.inner.open(source=source, mounts=mounts, env=env, limits=limits)

    def image(
        self, name: str, folder: str = "", say: Callable[[str], None] | None = None
    ) -> ImageFolder:
        self.asked.append(name)
        place = image_folder(name)
        if not place.is_dir():
            raise Fault(
                f"the image {name} cannot be pulled: manifest unknown",
                fix="docker pull",
                code=IMAGE,
            )
        return ImageFolder(place)


class ImageFolder(ImageFolders):
    def __init__(self, place: Path) -> None:
        super().__init__()
        self.place = place

    @property
    def digest(self) -> str:
        return digest(
            sorted((p.name, p.read_text()) for p in (self.place / "testbed").rglob("*.py"))
        )

    def copy(self, folder: str, target: Path, without: Collection[str] = ()) -> None:
        assert folder == "/testbed"
        shutil.copytree(
            self.place / "testbed", target, symlinks=True, ignore=shutil.ignore_patterns(*without)
        )

    def open(
        self,
        *,
        source: Path | None = None,
        mounts: Mapping[str, Path] | None = None,
        env: Mapping[str, str] | None = None,
        limits: Limits | None = None,
    ) -> Sandbox:
        self.mounted.extend(mounts or {})
        python = Path(os.environ["ROWS_ENV"])
        own = {"PATH": f"{python}/bin:/usr/bin:/bin", **(env or {})}
        return self.inner.open(
            source=source, mounts=interpreter_mounts(python), env=own, limits=limits
        )


def image_folder(name: str) -> Path:
    return Path(os.environ["FOLDER_IMAGES"]) / name.replace(":", "_").replace("/", "_")


def python_of_images(folder: Path) -> Path:
    """An environment with pytest in which what is worked on is installed, as in an image."""
    made = _environment(folder)
    script = f"#!{made}/bin/python3\nimport sys\n\nimport pytest\n\nsys.exit(pytest.main())\n"
    (made / "bin" / "pytest").write_text(script)
    (made / "bin" / "pytest").chmod(0o755)
    (
        made / "lib" / f"python3.{sys.version_info.minor}" / "site-packages" / "worked_on.pth"
    ).write_text("/work\n")
    return made


def folder_of(clone: Path, commit: str, name: str) -> Path:
    """An image's /testbed: a clone with all of its history at a commit, and files that are compiled
    and generated."""
    place = image_folder(name) / "testbed"
    subprocess.run(["git", "clone", "-q", str(clone), str(place)], check=True)
    subprocess.run(["git", "-C", str(place), "reset", "-q", "--hard", commit], check=True)
    (place / ".gitignore").write_text("*.so\n")
    (place / "fast.so").write_bytes(b"\x7fELF\x00\xff")
    (place / "made_by_setup.py").write_text("version = '1.0'\n")
    return place


def pack(engine: ContainerEngine, name: str, place: Path, packages: Path) -> None:
    """Import a real image as SWE-bench's are: a /testbed, and this Python with `packages` in
    conda's place for it."""
    blob, home = io.BytesIO(), "opt/miniconda3/envs/testbed"
    within = f"{home}/lib/python3.{sys.version_info.minor}"
    programs = {
        p: shutil.which(p, path="/usr/bin:/bin")
        for p in ("sh", "env", "cat", "id", "ls", "rm", "git", "wc")
    }
    binary = f"{sys.base_prefix}/bin/python3.{sys.version_info.minor}"
    native = [
        str(path)
        for path in Path(sys.base_prefix, within[len(home) + 1 :], "lib-dynload").glob("*.so")
    ]
    asked = [*filter(None, programs.values()), binary, *native]
    listed = subprocess.run(
        ["ldd", *asked], capture_output=True, text=True, check=False
    ).stdout.split()
    script = (
        b"#!/bin/sh\nexec /%s/bin/python3 -c 'import pytest; raise SystemExit(pytest.main())'"
        b' "$@"\n' % home.encode()
    )

    def library(entry: tarfile.TarInfo) -> tarfile.TarInfo | None:
        return (
            None if {"site-packages", "test", "__pycache__"} & {*entry.name.split("/")} else entry
        )

    with tarfile.open(fileobj=blob, mode="w", dereference=True) as tar:
        for program, path in programs.items():
            tar.add(str(path), f"usr/bin/{program}")
        for path in {word for word in listed if word.startswith("/") and not word.endswith(":")}:
            tar.add(path, path.lstrip("/"))
        tar.add(f"{sys.base_prefix}/{within[len(home) + 1 :]}", within, filter=library)
        tar.add(binary, f"{home}/bin/python3")
        tar.add(packages, f"{within}/site-packages")
        tar.add(place, "testbed")
        texts = {
            f"{home}/bin/pytest": script,
            f"{within}/site-packages/here.pth": b"/testbed\n",
            "etc/passwd": b"root:x:0:0::/root:/bin/sh\n",
        }
        for file, text in texts.items():
            entry = tarfile.TarInfo(file)
            entry.size, entry.mode = len(text), 0o755
            tar.addfile(entry, io.BytesIO(text))
        entry = tarfile.TarInfo("bin")
        entry.type, entry.linkname = tarfile.SYMTYPE, "usr/bin"
        tar.addfile(entry)
    engine.ask(
        "import",
        "--change",
        "ENV PATH=/usr/bin:/bin",
        "-",
        name,
        stdin=blob.getvalue(),
        seconds=300,
    )
