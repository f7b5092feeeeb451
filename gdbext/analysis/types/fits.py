"""Whether a block is as large as an object needs: what the allocator rounds up to, and no more."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from gdbext.analysis.reach.graph import Reach
from gdbext.heap.model import U64, Mask

I64 = npt.NDArray[np.int64]

_LEAST_MAPPED = 1 << 17  # from here on a block may have a mapping of its own, in whole pages


class Fits:
    """Compares blocks with objects: how much more room they may have, each heap says (``Heap.size_classes``)."""

    def __init__(self, reach: Reach) -> None:
        self._size = reach.size
        self._heap = reach.marked.blocks.heap
        self._rough = np.array([heap.size_classes for heap in reach.heaps], np.bool_)
        self._word = reach.rules.word
        self._page = reach.target.abi.page_size

    def holds(self, rows: I64, size: int) -> Mask:
        """Return which blocks are as large as an object, or larger."""
        held: Mask = self._size[rows] >= np.uint64(size)
        return held

    def tight(self, rows: I64, size: int) -> Mask:
        """Return which blocks hold one object and no room for anything else."""
        sizes = self._size[rows]
        most = np.uint64(self._most(size, 2 * self._word))
        if self._rough.any():
            rough = np.uint64(self._most(size, max(2 * self._word, size // 4 + 1)))
            most = np.where(self._rough[self._heap[rows]], rough, most)
        held: Mask = (sizes >= np.uint64(size)) & (sizes < most)
        return held

    def tight_each(self, rows: I64, needed: U64) -> Mask:
        """As :meth:`tight`, with bytes for each block."""
        room = np.full(len(rows), 2 * self._word, np.uint64)
        if self._rough.any():
            rough = np.maximum(room, needed // np.uint64(4) + np.uint64(1))
            room = np.where(self._rough[self._heap[rows]], rough, room)
        spare = self._size[rows] - np.minimum(needed, self._size[rows])
        held: Mask = (self._size[rows] >= needed) & (spare < room)
        return held

    def _most(self, size: int, room: int) -> int:
        """Return the first size that is too large."""
        most = max(size + room, 3 * self._word + 1)
        return max(most, size + self._page + 2 * self._word) if size >= _LEAST_MAPPED else most
