"""Archives unpacked safely: nothing lands outside the folder, whatever the archive says."""

from __future__ import annotations

import re
import shutil
import stat
import tarfile
import tempfile
import zipfile
from pathlib import Path, PurePosixPath

from recreate.api.errors import BadInput
from recreate.storage.files import home_disk, is_full

_BLOCK = 1 << 18


def unpack(archive: Path, into: Path) -> Path:
    """Unpack a .tar.gz or .zip sdist below `into`; returns its single top folder, `into`/NAME.

    A member that is absolute, climbs out by `..`, is a device, or is a link that leads out is refused, and
    nothing is left behind. An older folder of the same name is replaced, so the result is always the archive's.
    Raises BadInput (bad-archive) and Fault (disk-full).
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
                        tar.extractall(fresh, filter="data")
            except (tarfile.TarError, zipfile.BadZipFile, EOFError, ValueError, NotImplementedError) as e:
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


def _unzip(archive: Path, into: Path) -> None:
    with zipfile.ZipFile(archive) as z:
        for member in z.infolist():
            name = PurePosixPath(member.filename)
            if name.is_absolute() or ".." in name.parts or re.match(r"[A-Za-z]:|.*[\\\0]", member.filename):
                raise ValueError(f"{member.filename!r} leads out of the archive")
            mode = member.external_attr >> 16
            if mode and stat.S_IFMT(mode) not in (0, stat.S_IFREG, stat.S_IFDIR):
                raise ValueError(f"{member.filename!r} is a link or a device")
            target = into / name
            if member.is_dir():
                target.mkdir(parents=True, exist_ok=True)
                continue
            target.parent.mkdir(parents=True, exist_ok=True)
            with z.open(member) as source, target.open("wb") as out:
                shutil.copyfileobj(source, out, _BLOCK)
            target.chmod(0o755 if mode & 0o100 else 0o644)


def _bad(archive: Path, why: str) -> BadInput:
    return BadInput(f"{archive.name} was not unpacked: {why}", fix="is it the right file?", code="bad-archive")
