"""Source archives, unpacked safely: nothing of one lands outside its folder."""

from __future__ import annotations

import copy
import os
import re
import shutil
import stat
import tarfile
import tempfile
import zipfile
from pathlib import Path, PurePosixPath

from recreate.api import paths
from recreate.api.errors import BadInput
from recreate.storage.files import home_disk, is_full


def unpack(archive: Path, into: Path) -> Path:
    """Unpack a .tar.gz or .zip sdist below `into`; returns its single top folder, `into`/NAME.

    A member that is absolute, climbs out by `..`, is a device, or is a link that leads out is
    refused, and nothing is left behind. An older folder of the same name is replaced, so the result
    is always the archive's. Raises BadInput (bad-archive) and Fault (disk-full).
    """
    with home_disk(into):
        into.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".unpack-", dir=into) as scratch:
            fresh = Path(scratch)
            try:
                if zipfile.is_zipfile(archive):
                    _unzip(archive, fresh)
                else:
                    with tarfile.open(archive, "r:*") as tar:
                        untar(tar, fresh)
            except (
                tarfile.TarError,
                zipfile.BadZipFile,
                EOFError,
                ValueError,
                NotImplementedError,
            ) as e:
                raise _bad(archive, str(e)) from None
            except OSError as e:
                if is_full(e) or isinstance(e, FileNotFoundError):
                    raise
                raise _bad(archive, str(e)) from None  # a broken gzip stream is an OSError
            tops = sorted(fresh.iterdir())
            if len(tops) != 1 or tops[0].is_symlink() or not tops[0].is_dir():
                names = ", ".join(t.name for t in tops[:5])
                raise _bad(archive, f"it should hold one folder, and holds {names or 'nothing'}")
            target = into / tops[0].name
            if target.is_symlink() or target.is_file():
                target.unlink()
            elif target.exists():
                shutil.rmtree(target)
            tops[0].rename(target)
            return target


def untar(tar: tarfile.TarFile, into: Path, links: bool = True) -> None:
    """Unpack what is a file, a folder or, with `links`, a link, as ours and by modes of ours.

    The same on every Python: `extractall(filter="data")` came with 3.11.4, and stands behind these
    checks where it is there. Raises ValueError and tarfile.TarError for a member that leads outside
    `into` or is a device.
    """
    tar.extraction_filter = getattr(tarfile, "data_filter", lambda ours, _: ours)
    for member in tar:
        if member.issym() or member.islnk():
            if not links:
                continue
            _stays(into, member)
        elif not member.isreg() and not member.isdir():
            raise ValueError(f"{member.name!r} is a device")
        paths.member(into, member.name)
        ours = copy.copy(member)
        ours.uid = os.geteuid()
        ours.gid = os.getegid()
        ours.uname = ""
        ours.gname = ""
        ours.mode = (
            0o755
            if member.isdir()
            else member.mode & (0o755 if member.mode & 0o100 else 0o644) | 0o600
        )
        tar.extract(ours, into)


def _stays(into: Path, link: tarfile.TarInfo) -> None:
    """Raises ValueError unless a link leads to what lies in `into`: whatever links it passes do
    too."""
    if link.islnk():
        paths.member(into, link.linkname)
        return
    steps = PurePosixPath(link.linkname).parts
    up = next((n for n, step in enumerate(steps) if step != ".."), len(steps))
    depth = len(PurePosixPath(link.name).parts) - 1
    if PurePosixPath(link.linkname).is_absolute() or up > depth or ".." in steps[up:]:
        raise ValueError(f"the link {link.name!r} leads outside its folder")


def _unzip(archive: Path, into: Path) -> None:
    with zipfile.ZipFile(archive) as z:
        for member in z.infolist():
            target = paths.member(into, member.filename)
            if re.match(r"[A-Za-z]:|.*[\\\0]", member.filename):
                raise ValueError(f"{member.filename!r} leads out of the archive")
            mode = member.external_attr >> 16
            if mode and stat.S_IFMT(mode) not in (0, stat.S_IFREG, stat.S_IFDIR):
                raise ValueError(f"{member.filename!r} is a link or a device")
            if member.is_dir():
                target.mkdir(parents=True, exist_ok=True)
                continue
            target.parent.mkdir(parents=True, exist_ok=True)
            with z.open(member) as source, target.open("wb") as out:
                shutil.copyfileobj(source, out, 1 << 18)
            target.chmod(0o755 if mode & 0o100 else 0o644)


def _bad(archive: Path, why: str) -> BadInput:
    return BadInput(
        f"{archive.name} was not unpacked: {why}", fix="is it the right file?", code="bad-archive"
    )
