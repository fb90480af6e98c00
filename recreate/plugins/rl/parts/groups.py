"""Which rows are compared with each other: group ids, never positions."""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterator, Sequence
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING

from recreate.api.errors import BadInput
from recreate.plugins.rl import lazy_torch as torch

if TYPE_CHECKING:
    from torch import Tensor


class Groups:
    """B rows in at most `size` groups. `index` (B,) int64 holds each row's group, 0..size-1; a
    group may be empty."""

    def __init__(self, index: Tensor, size: int) -> None:
        self.index = index
        self.size = size

    @cached_property
    def count(self) -> Tensor:
        """Rows of each group, (size,) float64."""
        return torch.bincount(self.index, minlength=self.size).double()

    def total(self, values: Tensor) -> Tensor:
        """The sum of each group's values: (B,) -> (size,) float64."""
        return torch.bincount(self.index, weights=values.double(), minlength=self.size)

    def spread(self, values: Tensor) -> Tensor:
        """Each group's value on its rows: (size,) -> (B,)."""
        return values.index_select(0, self.index)

    def any(self, flags: Tensor) -> Tensor:
        """Whether a row of the group is flagged: (B,) bool -> (size,) bool."""
        found = torch.zeros(self.size, dtype=torch.bool, device=flags.device)
        found[self.index[flags]] = True
        return found

    def subset(self, rows: Tensor) -> Groups:
        """The same groups, of these rows only; rows: (B,) bool or indices."""
        return Groups(
            self.index[rows] if rows.dtype == torch.bool else self.index.index_select(0, rows),
            self.size,
        )

    def first(self) -> Tensor:
        """The first row of each group that has rows, in order of the group's number."""
        rows = torch.arange(len(self.index), device=self.index.device)
        found = torch.full((self.size,), len(rows), device=rows.device).scatter_reduce_(
            0, self.index, rows, "amin"
        )
        return found[found < len(rows)]

    @cached_property
    def _sizes(self) -> Tensor:
        count = torch.bincount(self.index, minlength=self.size)
        return count[count > 0]

    @cached_property
    def _order(self) -> Tensor:
        return _stable_order(self.index, self.size)

    def blocks(self) -> Iterator[Tensor]:
        """Rows of groups of one size, (groups, rows) int64, for each size there is; in each, rows
        keep their order."""
        if not len(self.index):
            return
        least, most = (int(n) for n in torch.aminmax(self._sizes))
        if least == most:
            yield self._order.view(-1, least)
            return
        start = torch.cumsum(self._sizes, 0) - self._sizes
        for n in torch.unique(self._sizes).tolist():
            yield self._order[
                start[self._sizes == n].unsqueeze(1) + torch.arange(n, device=start.device)
            ]


def grouped(ids: Tensor | Sequence[Hashable]) -> Groups:
    """Groups from B ids of any kind: an integer tensor or array, or a sequence of strings, numbers,
    tuples.

    Small non-negative integers are taken as they are; other ids get numbers below B. Raises
    BadInput for other tensors.
    """
    if not isinstance(ids, torch.Tensor):
        if getattr(getattr(ids, "dtype", None), "kind", "") not in ("i", "u"):
            return _numbered(ids)
        ids = torch.as_tensor(ids)
    if ids.dim() != 1 or ids.is_floating_point():
        raise BadInput(
            f"group ids are one integer a row, got {ids.dtype} of shape {tuple(ids.shape)}",
            fix="give an int64 tensor of shape (B,), or a list of ids",
        )
    if not len(ids):
        return Groups(ids.long(), 0)
    low, high = (int(n) for n in torch.aminmax(ids))
    if low >= 0 and high < 4 * len(ids) + 1024:
        return Groups(ids.long(), high + 1)
    known, index = torch.unique(ids, return_inverse=True)
    return Groups(index, len(known))


def spread(advantages: Tensor, mask: Tensor) -> Tensor:
    """(B,) over the tokens of `mask` (B,T); 0 elsewhere."""
    per_token = advantages.unsqueeze(-1)
    return torch.where(mask.bool(), per_token, torch.zeros_like(per_token))


def _numbered(ids: Sequence[Hashable]) -> Groups:
    import numpy as np

    rows = len(ids)
    first: dict[Hashable, int] = {}
    # a group's number is its first row's
    return Groups(
        torch.from_numpy(np.fromiter(map(first.setdefault, ids, range(rows)), np.int64, rows)), rows
    )


def _stable_order(index: Tensor, size: int) -> Tensor:
    """Rows by group, in their own order within each: a sort, unless they already stand so."""
    if bool((index[1:] >= index[:-1]).all()):
        return torch.arange(len(index), device=index.device)
    if index.device.type != "cpu":
        return torch.argsort(index, stable=True)
    # a stable sort of 16-bit keys is a radix sort in numpy: five times as fast as sorting int64 in
    # torch
    import numpy as np

    keys = index.numpy()
    order = np.argsort((keys & 0xFFFF).astype(np.uint16), kind="stable")
    for shift in range(16, max(size - 1, 1).bit_length(), 16):
        order = order[
            np.argsort(((keys[order] >> shift) & 0xFFFF).astype(np.uint16), kind="stable")
        ]
    return torch.from_numpy(order)


def sorted_columns(block: Tensor) -> list[Tensor]:
    """The rows of (groups, n), each sorted ascending, as n columns of (groups,). NaN must not be in
    it.

    Few columns are sorted by a network of minima and maxima over whole columns: a tenth of the time
    of a sort a row.
    """
    n = block.shape[1]
    if n > 32:
        return list(torch.sort(block, dim=1).values.unbind(1))
    columns = list(block.t().contiguous().unbind(0))
    for i, j in _network(n):
        columns[i], columns[j] = (
            torch.minimum(columns[i], columns[j]),
            torch.maximum(columns[i], columns[j]),
        )
    return columns


@lru_cache
def _network(n: int) -> tuple[tuple[int, int], ...]:
    """Comparisons that sort n values: Batcher's merge exchange (Knuth, vol. 3, 5.2.2, algorithm
    M)."""
    if n < 2:
        return ()
    found = []
    top = 1 << (math.ceil(math.log2(n)) - 1)
    p = top
    while p:
        q = top
        r = 0
        d = p
        while True:
            found += [(i, i + d) for i in range(n - d) if i & p == r]
            if q == p:
                break
            d = q - p
            q = q >> 1
            r = p
        p >>= 1
    return tuple(found)
