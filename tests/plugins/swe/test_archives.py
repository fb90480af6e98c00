"""Archives are unpacked, and cannot climb out."""

from __future__ import annotations

import os
import tarfile
from pathlib import Path

import pytest

from recreate.api.errors import BadInput
from recreate.plugins.swe.archives import unpack
from tests.web import targz, zipped


@pytest.mark.parametrize("make", [targz, zipped])
def test_an_sdist_is_unpacked_to_its_single_folder(tmp_path: Path, make: object) -> None:
    archive = tmp_path / "a"
    archive.write_bytes(make({"demo-1.0/x.py": b"1", "demo-1.0/sub/y.py": b"2"}))  # type: ignore[operator]
    top = unpack(archive, tmp_path / "into")
    assert top == tmp_path / "into" / "demo-1.0"
    (top / "stray").write_text("left by an earlier use")
    assert unpack(archive, tmp_path / "into") == top
    assert sorted(p.name for p in top.rglob("*")) == ["sub", "x.py", "y.py"]


@pytest.fixture(params=["with filters", "as Python 3.11.2 has it"])
def filters(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """`tarfile` as it is, and as Debian 12 has it: without filters, so that nothing but our own
    checks is left."""
    if request.param != "with filters":
        monkeypatch.delattr(tarfile, "data_filter", raising=False)


def _link(target: str, kind: bytes = tarfile.SYMTYPE) -> tarfile.TarInfo:
    info = tarfile.TarInfo()
    info.type = kind
    info.linkname = target
    return info


@pytest.mark.usefixtures("filters")
def test_links_that_stay_inside_and_modes_are_unpacked_the_same_on_every_python(
    tmp_path: Path,
) -> None:
    program = tarfile.TarInfo()
    program.mode, program.uid, program.uname = 0o6777, 4321, "nobody"
    archive = tmp_path / "a"
    links = {"d/sub/up": _link("../x"), "d/sub/hard": _link("d/x", tarfile.LNKTYPE)}
    archive.write_bytes(targz({"d/x": b"1", "d/sub/y": b"2", "d/run": program, **links}))
    top = unpack(archive, tmp_path / "into")
    assert [(top / "sub" / name).read_bytes() for name in ("up", "hard")] == [b"1", b"1"]
    about = (top / "run").stat()
    assert (about.st_mode & 0o7777, about.st_uid) == (0o755, os.geteuid())


@pytest.mark.usefixtures("filters")
@pytest.mark.parametrize(
    "data",
    [
        targz({"d/x": b"1", "d/l": _link("..", tarfile.SYMTYPE), "d/l/l/out": b"2"}),
        targz({"d/x": b"1", "d/here": _link("."), "d/l": _link("here/../..")}),
        targz({"d/x": b"1", "d/l": _link("../out", tarfile.LNKTYPE)}),
        targz({"d/x": b"1", "d/l": _link("x"), "d/l/y": b"2"}),
        targz({"d/x": b"1", "d/p": _link("", tarfile.FIFOTYPE)}),
        targz({"d/x": b"1", "../out": b"2"}),
        targz({"d/x": b"1", "d/l": _link("../../out")}),
        targz({"d/x": b"1", "d/l": _link("/etc/passwd")}),
        zipped({"d/x": b"1", "../out": b"2"}),
        zipped({"d/x": b"1", "/out": b"2"}),
        targz({"d/x": b"1", "e/x": b"2"}),
        targz({}),
        targz({"d/x": b"1" * 9999})[:60],
        b"not an archive",
    ],
    ids=[
        "through-a-link",
        "link-by-a-link",
        "hard-link-climbs",
        "onto-a-link",
        "device",
        "climbs",
        "link-climbs",
        "link-absolute",
        "zip-climbs",
        "zip-absolute",
        "two-tops",
        "empty",
        "cut",
        "garbage",
    ],
)
def test_a_bad_archive_is_refused_and_leaves_nothing(tmp_path: Path, data: bytes) -> None:
    archive = tmp_path / "a.tar.gz"
    archive.write_bytes(data)
    with pytest.raises(BadInput) as e:
        unpack(archive, tmp_path / "into")
    assert e.value.code == "bad-archive"
    assert [p.name for p in (tmp_path / "into").iterdir()] == []
    assert not (tmp_path / "out").exists()
