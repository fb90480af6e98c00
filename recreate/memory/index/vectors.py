"""The vectors of one segment: exact ones, and one bit a dimension to find candidates among many.

A bit says on which side of the segment's mean a vector lies along one of `dimensions` rotated axes. The rotation
spreads over all axes what an embedder puts into few; it is the same everywhere, so that codes stay true.
"""

from __future__ import annotations

import hashlib
from functools import lru_cache
from typing import Any

import numpy as np

from recreate.memory.index.arrays import Array

CODED = 2048
"""Fewer vectors than this have no codes: comparing all is as quick."""


def arrays(vectors: Array) -> dict[str, Array]:
    """What is stored of vectors, float32 (n, dimensions) of length 1."""
    n, dimensions = vectors.shape
    found = {"vectors": vectors}
    if n >= CODED:
        centre = np.zeros(dimensions, np.float64)
        for start in range(0, n, 65536):
            centre += vectors[start : start + 65536].sum(0, dtype=np.float64)
        found["centre"] = (centre / n).astype(np.float32)
        codes = np.empty((-(-dimensions // 64), n), np.uint64)
        for start in range(0, n, 65536):
            codes[:, start : start + 65536] = _codes(vectors[start : start + 65536], found["centre"])
        found["codes"] = codes
    return found


def candidates(stored: dict[str, Array], query: Array, rows: Array | None, most: int) -> Array:
    """About `most` rows whose codes are nearest to the query's, among `rows` (ascending; None: all)."""
    n = len(stored["vectors"])
    if "codes" not in stored or (n if rows is None else len(rows)) <= most:
        return np.arange(n) if rows is None else rows
    codes: Any = stored["codes"]
    mine = _codes(query[None, :], stored["centre"])[:, 0]
    scanned = rows if rows is not None and 3 * len(rows) < n else None  # few: it pays to pick their codes out
    far = np.zeros(n if scanned is None else len(scanned), np.uint16)
    for word, own in zip(codes, mine, strict=True):
        far += np.bitwise_count((word if scanned is None else word[scanned]) ^ own)
    if rows is not None and scanned is None:
        far = far[rows]
    within = int(np.searchsorted(np.cumsum(np.bincount(far)), most))
    near = np.flatnonzero(far <= within)
    if len(near) > 2 * most:  # so many at one distance: alike vectors, of which any will do
        near = np.concatenate([np.flatnonzero(far < within), np.flatnonzero(far == within)])[:most]
        near.sort()
    return near if rows is None else rows[near]


def cosines(stored: dict[str, Array], query: Array, rows: Array) -> Array:
    """float32 (rows): of the query with each of the rows, ascending."""
    whole = stored["vectors"]
    if len(rows) < len(whole):
        whole = np.take(whole, rows, axis=0, mode="clip")
    # Not `@`: the threads of a BLAS wait for each other, and on a busy machine that took ten times as long.
    found: Array = np.einsum("ij,j->i", whole, query)
    return found


def _codes(vectors: Array, centre: Array) -> Array:
    """uint64 (words, n)."""
    dimensions = vectors.shape[1]
    signs = (vectors - centre) @ _rotation(dimensions) > 0
    bits = np.zeros((len(vectors), -(-dimensions // 64) * 64), np.bool_)
    bits[:, :dimensions] = signs
    return np.packbits(bits, axis=1).view(np.uint64).T


@lru_cache(4)
def _rotation(dimensions: int) -> Array:
    """A rotation that does not depend on numpy's version: an orthogonal basis from a hash's bytes."""
    noise = hashlib.shake_256(b"recreate").digest(dimensions * dimensions * 8)
    normal = np.frombuffer(noise, np.uint8).reshape(dimensions, dimensions, 8).sum(2, dtype=np.float64) - 8 * 127.5
    basis: Array = np.linalg.qr(normal)[0].astype(np.float32)
    return basis
