"""Members of a zip as bytes, within bounds. Nothing is written to the disk: a name is only a name.

inspect_ai compresses with Zstandard, which Python's own zipfile reads from 3.14 on; before, the package zstandard does.
"""

from __future__ import annotations

import io
import lzma
import struct
import sys
import zipfile
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO, Any

from recreate.api.errors import Missing
from recreate.api.registry import need

ZSTANDARD = 93
MEMBERS = 200_000


def members(path: Path, first: Sequence[str], prefixes: Sequence[str], most: int) -> Iterator[tuple[str, bytes | str]]:
    """(name, bytes, or why there are none) of the members called one of `first`, then of those under `prefixes`."""
    try:
        with zipfile.ZipFile(path) as archive:
            infos = archive.infolist()
            if len(infos) > MEMBERS:
                yield "", f"the zip has {len(infos)} members, more than {MEMBERS}"
                return
            by_name = {info.filename: info for info in infos}
            wanted = [by_name[name] for name in first if name in by_name]
            wanted += [i for i in infos if i.filename.startswith(tuple(prefixes)) and i.filename.endswith(".json")]
            for info in wanted:
                if ".." in info.filename.split("/"):
                    yield info.filename, "its name leads out of the zip"
                    continue
                yield info.filename, _bytes(archive, info, most)
    except (zipfile.BadZipFile, NotImplementedError, OSError, EOFError) as e:
        yield "", f"the zip cannot be read: {e}"


def _damage() -> tuple[type[Exception], ...]:
    """What unpacking raises for data that is damaged, locked or packed in an unknown way."""
    known = (zipfile.BadZipFile, zlib.error, lzma.LZMAError, OSError, EOFError, ValueError)
    loaded = sys.modules.get("zstandard")
    own = (loaded.ZstdError,) if loaded is not None else ()
    return *known, *own, RuntimeError  # zipfile's for a password; NotImplementedError, for a method, is one


def _bytes(archive: zipfile.ZipFile, info: zipfile.ZipInfo, most: int) -> bytes | str:
    """A member unpacked, at most so many bytes; else why not. Its stated size is not believed."""
    try:
        with _opened(archive, info) as file:
            raw = file.read(most + 1)
    except Missing as e:
        return f"{e}; {e.fix}"
    except _damage() as e:
        return f"it cannot be unpacked: {e}"
    return raw if len(raw) <= most else f"it unpacks to more than {most >> 20} MiB"


def _opened(archive: zipfile.ZipFile, info: zipfile.ZipInfo) -> IO[bytes]:
    if info.compress_type != ZSTANDARD or ZSTANDARD in getattr(zipfile, "compressor_names", {}):
        return archive.open(info)
    file: Any = archive.fp
    file.seek(info.header_offset)
    head = file.read(30)
    if len(head) < 30 or head[:4] != b"PK\x03\x04":
        raise zipfile.BadZipFile("a member's header is damaged")
    name, extra = struct.unpack("<HH", head[26:30])
    file.seek(name + extra, io.SEEK_CUR)
    packed = file.read(info.compress_size)
    reader: IO[bytes] = need("zstandard").ZstdDecompressor().stream_reader(packed, read_across_frames=True)
    return reader
