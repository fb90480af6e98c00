"""Named numpy arrays in one file that is written once and then mapped into memory.

8 bytes `recarr01`, 8 bytes the length of the header, the header (JSON: name -> [dtype, shape, offset]), the arrays
"""

from __future__ import annotations

import itertools
import json
import mmap
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from recreate.storage.files import replacing

Array = np.ndarray[Any, Any]

_MAGIC = b"recarr01"
_ALIGNED = 64
_BLOCK = 1 << 22


class Written(NamedTuple):
    """What a file was when it was written: bytes, ns of its last change, CRC-32 of all of it."""

    size: int
    mtime: int
    sum: int


def write(path: Path, arrays: Mapping[str, Array]) -> Written:
    """Write the arrays; what is at the path is replaced when all are there. Raises OSError."""
    header: dict[str, Any] = {}
    offset = 0
    for name, array in arrays.items():
        header[name] = [array.dtype.str, list(array.shape), offset]
        offset += -(-array.nbytes // _ALIGNED) * _ALIGNED
    told = json.dumps(header).encode()
    told += b" " * (-(len(told) + 16) % _ALIGNED)
    with replacing(path) as file:
        sum_ = 0
        for block in (_MAGIC, len(told).to_bytes(8, "little"), told):
            sum_ = zlib.crc32(block, sum_)
            file.write(block)
        for array in arrays.values():
            whole = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
            for start in range(0, len(whole), _BLOCK):
                block = whole[start : start + _BLOCK].tobytes()
                sum_ = zlib.crc32(block, sum_)
                file.write(block)
            padding = b"\0" * (-array.nbytes % _ALIGNED)
            sum_ = zlib.crc32(padding, sum_)
            file.write(padding)
    stat = path.stat()
    return Written(stat.st_size, stat.st_mtime_ns, sum_)


def checksum(path: Path) -> int:
    """The CRC-32 of a file."""
    sum_ = 0
    with path.open("rb") as file:
        while block := file.read(_BLOCK):
            sum_ = zlib.crc32(block, sum_)
    return sum_


def read(path: Path) -> dict[str, Array]:
    """The arrays of a file whose checksum is known to be right, mapped. Raises OSError, ValueError."""
    with path.open("rb") as file:
        view = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    if view[:8] != _MAGIC:
        raise ValueError(f"{path} is no file of arrays")
    length = int.from_bytes(view[8:16], "little")
    found = {}
    for name, (dtype, shape, offset) in json.loads(view[16 : 16 + length]).items():
        count = int(np.prod(shape, dtype=np.int64))
        flat = np.frombuffer(view, np.dtype(dtype), count, 16 + length + offset)
        found[name] = flat.reshape(shape)
    return found


def pack(texts: list[str]) -> tuple[Array, Array]:
    """Texts as one run of bytes and the offsets of their ends, the first offset 0."""
    data = [text.encode("utf-8", "surrogatepass") for text in texts]
    ends = np.zeros(len(data) + 1, np.int64)
    np.cumsum([len(d) for d in data], out=ends[1:])
    return np.frombuffer(b"".join(data), np.uint8), ends


def unpack(data: Array, ends: Array) -> list[str]:
    whole = data.tobytes()
    at = ends.tolist()
    return [whole[a:b].decode("utf-8", "surrogatepass") for a, b in itertools.pairwise(at)]
