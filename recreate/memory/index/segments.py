"""A part of the index that is written once: what some thousand documents say, as columns of facts and lists of words;
and the files of named numpy arrays that it is kept in.

Rows are documents. A fact is a column of numbers into a list of its values; words lead to the rows they stand in,
with a weight. Segments are only ever added, joined and thrown away. A file is mapped into memory:

    8 bytes `recarr01`, 8 bytes the length of the header, the header (JSON: name -> [dtype, shape, offset]), the arrays
"""

from __future__ import annotations

import hashlib
import itertools
import json
import mmap
import zlib
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from recreate.agents.trajectory import is_file
from recreate.memory.documents import Document
from recreate.memory.index.tokenizer import K1, LENGTH, B, words
from recreate.storage.files import replacing

Array = np.ndarray[Any, Any]

VALUES = ("domain", "task", "group", "split", "ending", "digest", "model", "run", "error", "grain")
"""Facts of one value; the value '' is none."""

LISTS = ("tool", "file")

_SCALE = 255 / (K1 + 1)
_MAGIC = b"recarr01"
_ALIGNED = 64
_BLOCK = 1 << 22


class Segment:
    """The arrays of a segment, and what is asked of them. `dead`: keys (by number) that are gone from the files."""

    def __init__(self, arrays: Mapping[str, Array], dead: Iterable[int] = ()) -> None:
        self.arrays = arrays
        self.docs = len(arrays["key"])
        self.keys = _unpack(arrays["keys"], arrays["keys_at"])
        self.sums = _unpack(arrays["sums"], arrays["sums_at"])
        self.dead = set(dead)
        self.alive = np.ones(self.docs, np.bool_)
        self._kill()
        self._values: dict[str, dict[str, int]] = {}
        self._bases: dict[str, list[int]] = {}
        self._scope: tuple[str, Array] | None = None

    def kill(self, keys: Iterable[int]) -> None:
        """Take keys out: their rows answer nothing any more."""
        self.dead.update(keys)
        self._kill()

    def _kill(self) -> None:
        if self.dead:
            gone = np.zeros(len(self.keys), np.bool_)
            gone[list(self.dead)] = True
            self.alive = ~gone[self.arrays["key"]]
        self._scope = None

    def id(self, row: int) -> str:
        key, part = self.keys[int(self.arrays["key"][row])], int(self.arrays["part"][row])
        return key if part < 0 else f"{key}/{part}"

    # facts

    def matching(self, wanted: Mapping[str, Sequence[Any]], closed: Mapping[str, frozenset[str]] | None) -> Array:
        """bool (docs): the rows that are alive, match, and may be seen. closed: groups and tasks that may not, of a
        reader who sees the train split only; None: of one who sees all."""
        mask = self._seen(closed)
        for name, values in wanted.items():
            mask = mask & self._with(name, values)
        return mask

    def _seen(self, closed: Mapping[str, frozenset[str]] | None) -> Array:
        if closed is None:
            return self.alive
        stamp = str(sorted((name, hash(held)) for name, held in closed.items()))
        if self._scope is None or self._scope[0] != stamp:
            mask = self.alive & self._with("split", ["train"])
            for name, held in closed.items():
                mask &= ~self._with(name, held)
            self._scope = stamp, mask
        return self._scope[1]

    def _with(self, name: str, values: Iterable[Any]) -> Array:
        """bool (docs): the rows whose fact has one of the values."""
        found = np.zeros(self.docs, np.bool_)
        if name in ("since", "until"):
            (bound,) = values
            when = self.arrays["when"]
            found = when >= bound if name == "since" else when < bound  # no time: nan, which is neither
        elif name in ("passed", "step"):
            for value in values:
                found |= self.arrays[name] == int(value)
        elif name == "experience":
            keys = [self._value("keys", v) for v in values]
            found = np.isin(self.arrays["key"], [k for k in keys if k is not None])
        elif name in LISTS:
            for code in self._listed(name, values):
                start, end = self.arrays[f"{name}_at"][code : code + 2]
                found[self.arrays[f"{name}_row"][start:end]] = True
        else:
            codes = [code for code in (self._value(name, v) for v in values if v != "") if code is not None]
            if len(codes) == 1:
                found = self.arrays[name] == codes[0]
            elif codes:
                chosen = np.zeros(len(self._values[name]), np.bool_)
                chosen[codes] = True
                found = chosen[self.arrays[name]]
        return found

    def _value(self, name: str, value: Any) -> int | None:
        if name not in self._values:
            texts = self.keys if name == "keys" else self._texts(name)
            self._values[name] = {text: n for n, text in enumerate(texts)}
        return self._values[name].get(str(value))

    def _texts(self, name: str) -> list[str]:
        return _unpack(self.arrays[f"{name}_values"], self.arrays[f"{name}_values_at"])

    def _listed(self, name: str, values: Iterable[Any]) -> Iterable[int]:
        """The numbers of a list's values that are asked for; a file by its whole path or by the end of it."""
        for value in values:
            if name == "tool":
                code = self._value(name, value)
                if code is not None:
                    yield code
                continue
            texts = self._texts_kept(name)
            if not self._bases:
                for n, text in enumerate(texts):
                    self._bases.setdefault(text.rpartition("/")[2], []).append(n)
            for n in self._bases.get(str(value).rpartition("/")[2], ()):
                if is_file(str(value), texts[n]):
                    yield n

    def _texts_kept(self, name: str) -> list[str]:
        self._value(name, "")
        return list(self._values[name])

    # words

    def frequency(self, hashes: Array) -> Array:
        """int (words): in how many rows each word stands."""
        found, at = self._find(hashes)
        ends = self.arrays["word_at"]
        return np.where(found, ends[at + 1] - ends[at], 0) if len(ends) > 1 else np.zeros(len(hashes), np.int64)

    def weigh(self, hashes: Array, worth: Array) -> Array:
        """float32 (docs): BM25 of each row for the words, whose worth (idf) is given."""
        score = np.zeros(self.docs, np.float32)
        found, at = self._find(hashes)
        ends = self.arrays["word_at"]
        for n in np.flatnonzero(found):
            start, end = ends[at[n] : at[n] + 2]
            rows = self.arrays["word_row"][start:end]
            score[rows] += self.arrays["word_weight"][start:end] * np.float32(worth[n] / _SCALE)
        return score

    def _find(self, hashes: Array) -> tuple[Array, Array]:
        own = self.arrays["words"]
        if not len(own):
            return np.zeros(len(hashes), np.bool_), np.zeros(len(hashes), np.int64)
        at = np.minimum(np.searchsorted(own, hashes), len(own) - 1)
        return own[at] == hashes, at


def hashed(texts: Iterable[str]) -> Array:
    """uint64 (words): what words are stored as."""
    return np.array([_hash(text) for text in texts], np.uint64)


@lru_cache(200_000)
def _hash(text: str) -> int:
    return int.from_bytes(hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).digest(), "little")


def build(documents: Sequence[Document], sums: Mapping[str, str], first: int) -> dict[str, Array]:
    """The arrays of a new segment. sums: key -> its checksum; first: the number of the first document."""
    n = len(documents)
    keys: dict[str, int] = {}
    key = np.array([keys.setdefault(d.key, len(keys)) for d in documents], np.int32)
    parts = [-1 if d.id == d.key else int(d.id.rpartition("/")[2]) for d in documents]
    found: dict[str, Array] = {
        "number": np.arange(first, first + n, dtype=np.int64),
        "key": key,
        "part": np.array(parts, np.int32),
        "passed": np.array([int(d.facts.get("passed", -1)) for d in documents], np.int8),
        "step": np.array([int(d.facts.get("step", -1)) for d in documents], np.int32),
        "when": np.array([np.nan if d.when is None else d.when for d in documents], np.float64),
    }
    found["keys"], found["keys_at"] = _pack(list(keys))
    found["sums"], found["sums_at"] = _pack([sums[k] for k in keys])
    for name in VALUES:
        _column(found, name, [str(d.facts.get(name, "")) for d in documents])
    for name, lists in (("tool", [d.tools for d in documents]), ("file", [d.files for d in documents])):
        pairs = [(value, row) for row, values in enumerate(lists) for value in values]
        codes = _column(found, name, [value for value, _ in pairs], keep=False)
        rows = np.array([row for _, row in pairs], np.int32)
        order = np.argsort(codes, kind="stable")
        found[f"{name}_row"] = rows[order]
        found[f"{name}_at"] = _ends(codes, len(found[f"{name}_values_at"]) - 1)
    _words(found, documents)
    return found


def _column(found: dict[str, Array], name: str, given: list[str], keep: bool = True) -> Array:
    values: dict[str, int] = {}
    codes = np.array([values.setdefault(value, len(values)) for value in given], np.int32)
    if keep:
        found[name] = codes
    found[f"{name}_values"], found[f"{name}_values_at"] = _pack(list(values))
    return codes


def _ends(codes: Array, n: int) -> Array:
    ends = np.zeros(n + 1, np.int64)
    np.cumsum(np.bincount(codes, minlength=n), out=ends[1:])
    return ends


def _words(found: dict[str, Array], documents: Sequence[Document]) -> None:
    hashes: list[int] = []
    rows: list[int] = []
    counts: list[int] = []
    lengths = np.zeros(len(documents), np.float64)
    for row, document in enumerate(documents):
        counted = Counter(words(document.text))
        lengths[row] = counted.total()
        hashes += [_hash(word) for word in counted]
        counts += counted.values()
        rows += [row] * len(counted)
    each = np.array(hashes, np.uint64)
    order = np.argsort(each, kind="stable")
    each, places, count = each[order], np.array(rows, np.int32)[order], np.array(counts, np.float64)[order]
    unique, starts = np.unique(each, return_index=True)
    weight = count * (K1 + 1) / (count + K1 * (1 - B + B * lengths[places] / LENGTH))
    found["words"] = unique
    found["word_at"] = np.append(starts, len(each)).astype(np.int64)
    found["word_row"] = places
    found["word_weight"] = np.clip(np.rint(weight * _SCALE), 1, 255).astype(np.uint8)


def join(segments: Sequence[Segment]) -> dict[str, Array]:
    """The arrays of one segment in place of several neighbours, in their order and without what is dead."""
    kept = [np.flatnonzero(s.alive) for s in segments]
    bases = np.cumsum([0, *(len(rows) for rows in kept)])
    moved = []  # old row -> new row, -1 for a dead one
    for s, rows, base in zip(segments, kept, bases, strict=False):
        to = np.full(s.docs, -1, np.int64)
        to[rows] = np.arange(base, base + len(rows))
        moved.append(to)
    found: dict[str, Array] = {}
    for name in ("number", "part", "passed", "step", "when"):
        found[name] = np.concatenate([s.arrays[name][rows] for s, rows in zip(segments, kept, strict=True)])
    keys: dict[str, int] = {}
    sums: list[str] = []
    numbers = []
    for s, rows in zip(segments, kept, strict=True):
        renumbered = np.full(len(s.keys), -1, np.int64)
        for n, key in enumerate(s.keys):
            if n not in s.dead:
                renumbered[n] = keys.setdefault(key, len(keys))
                sums.append(s.sums[n])
        numbers.append(renumbered[s.arrays["key"][rows]])
    found["key"] = np.concatenate(numbers).astype(np.int32)
    found["keys"], found["keys_at"] = _pack(list(keys))
    found["sums"], found["sums_at"] = _pack(sums)
    for name in VALUES:
        codes = [
            to[s.arrays[name][rows]] for s, rows, to in zip(segments, kept, _values(found, name, segments), strict=True)
        ]
        found[name] = np.concatenate(codes).astype(np.int32)
    for name in LISTS:
        pairs = []
        for s, to, renamed in zip(segments, moved, _values(found, name, segments), strict=True):
            code = np.repeat(np.arange(len(renamed)), np.diff(s.arrays[f"{name}_at"]))
            row = to[s.arrays[f"{name}_row"]]
            pairs.append((renamed[code[row >= 0]], row[row >= 0]))
        code = np.concatenate([c for c, _ in pairs])
        row = np.concatenate([r for _, r in pairs])
        found[f"{name}_row"] = row[np.argsort(code, kind="stable")].astype(np.int32)
        found[f"{name}_at"] = _ends(code, len(found[f"{name}_values_at"]) - 1)
    _join_words(found, segments, moved)
    return found


def _values(found: dict[str, Array], name: str, segments: Sequence[Segment]) -> list[Array]:
    """Put all values of a fact into one list; for each segment, its numbers' new numbers."""
    values: dict[str, int] = {}
    renamed = []
    for s in segments:
        renamed.append(np.array([values.setdefault(text, len(values)) for text in s._texts(name)], np.int64))
    found[f"{name}_values"], found[f"{name}_values_at"] = _pack(list(values))
    return renamed


def _join_words(found: dict[str, Array], segments: Sequence[Segment], moved: Sequence[Array]) -> None:
    parts = []
    for s, to in zip(segments, moved, strict=True):
        counts = np.diff(s.arrays["word_at"])
        row, weight = to[s.arrays["word_row"]], s.arrays["word_weight"]
        if s.dead:
            word = np.repeat(np.arange(len(counts)), counts)[row >= 0]
            row, weight = row[row >= 0], weight[to[s.arrays["word_row"]] >= 0]
            counts = np.bincount(word, minlength=len(counts))
        parts.append((s.arrays["words"][counts > 0], counts[counts > 0], row, weight))
    unique = np.unique(np.concatenate([each for each, _, _, _ in parts]))
    places = [np.searchsorted(unique, each) for each, _, _, _ in parts]
    total = np.zeros(len(unique), np.int64)
    for place, (_, counts, _, _) in zip(places, parts, strict=True):
        total[place] += counts
    ends = np.zeros(len(unique) + 1, np.int64)
    np.cumsum(total, out=ends[1:])
    rows, weights = np.empty(ends[-1], np.int32), np.empty(ends[-1], np.uint8)
    filled = ends[:-1].copy()  # where each word's next rows go: segments come in order, so rows stay ascending
    for place, (_, counts, row, weight) in zip(places, parts, strict=True):
        before = np.cumsum(counts) - counts
        to = np.repeat(filled[place] - before, counts) + np.arange(len(row))
        rows[to], weights[to] = row, weight
        filled[place] += counts
    found["words"], found["word_at"], found["word_row"], found["word_weight"] = unique, ends, rows, weights


# files of arrays


class Written(NamedTuple):
    """What a file was when it was written: bytes, ns of its last change, CRC-32 of all of it."""

    size: int
    mtime: int
    sum: int


def write_arrays(path: Path, arrays: Mapping[str, Array]) -> Written:
    """Write the arrays; what is at the path is replaced when all are there. Raises OSError."""
    header: dict[str, Any] = {}
    offset = 0
    for name, array in arrays.items():
        header[name] = [array.dtype.str, list(array.shape), offset]
        offset += -(-array.nbytes // _ALIGNED) * _ALIGNED
    head = json.dumps(header).encode()
    head += b" " * (-(len(head) + 16) % _ALIGNED)
    with replacing(path) as file:
        sum_ = 0
        for block in (_MAGIC, len(head).to_bytes(8, "little"), head):
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


def read_arrays(path: Path) -> dict[str, Array]:
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


def _pack(texts: list[str]) -> tuple[Array, Array]:
    """Texts as one run of bytes and the offsets of their ends, the first offset 0."""
    data = [text.encode("utf-8", "surrogatepass") for text in texts]
    ends = np.zeros(len(data) + 1, np.int64)
    np.cumsum([len(d) for d in data], out=ends[1:])
    return np.frombuffer(b"".join(data), np.uint8), ends


def _unpack(data: Array, ends: Array) -> list[str]:
    whole = data.tobytes()
    at = ends.tolist()
    return [whole[a:b].decode("utf-8", "surrogatepass") for a, b in itertools.pairwise(at)]
