"""Blocks and bytes of a heap by arena, by size and by category, in one pass over the columns."""

from __future__ import annotations

from dataclasses import dataclass
from typing import List, Optional, Sequence, Tuple

import numpy as np

from gdbext.heap.model import CACHED_STATES, FREE_STATES, U8, U64, Blocks, Heap, State
from gdbext.kernels import count_values
from gdbext.memory.intervals import I64, distinct, slices

USED, MMAPPED, CACHED, FREE, TOP, OTHER = range(6)
_CATEGORIES = 6
_AT_ONCE = 1 << 16


def _categories() -> U8:
    table = np.full(256, OTHER, np.uint8)
    table[[int(state) for state in FREE_STATES]] = FREE
    table[[int(state) for state in CACHED_STATES]] = CACHED
    table[int(State.TOP)] = TOP
    table[int(State.IN_USE)] = USED
    table[int(State.MMAPPED)] = MMAPPED
    return table


CATEGORY = _categories()


@dataclass(frozen=True)
class Tally:
    """Counts by arena (rows) and category (columns: USED, MMAPPED, CACHED, FREE, TOP, OTHER).

    The last row holds the blocks of no arena.

    :param sizes: the usable sizes that there are, in order.
    :param by_size: how many blocks have each, by category.
    """

    blocks: I64
    bytes: I64
    sizes: U64
    by_size: I64

    def count(self, *categories: int) -> int:
        """Return the blocks of those categories, over all arenas."""
        return int(self.blocks[:, list(categories)].sum())

    def size(self, *categories: int) -> int:
        """Return the bytes of those categories, over all arenas."""
        return int(self.bytes[:, list(categories)].sum())


def arena_address(heap: Heap, owner: int) -> Optional[int]:
    """Return the address of the arena that a block's ``owner`` means, or None: it belongs to none."""
    return heap.arenas[owner].address if owner < len(heap.arenas) else None


def tally(heap: Heap) -> Tally:
    """Count a heap's blocks and usable bytes; FREE is without TOP."""
    rows = len(heap.arenas) + 1
    count, total = (np.zeros((rows, _CATEGORIES), np.int64) for _ in range(2))
    parts: List[Tuple[U64, I64]] = []
    for part in slices(len(heap.blocks), _AT_ONCE):
        blocks = heap.blocks.select(part)
        sizes, counts = count_values(blocks.size, blocks.state, CATEGORY, _CATEGORIES)
        parts.append((sizes, counts))
        owner = int(blocks.owner[0])
        if (blocks.owner == owner).all():
            count[min(owner, rows - 1)] += counts.sum(axis=0)
            total[min(owner, rows - 1)] += (sizes.astype(np.int64)[:, None] * counts).sum(axis=0)
        else:
            _add(blocks, count.reshape(-1), total.reshape(-1))
    return Tally(count, total, *_joined(parts))


def _joined(parts: Sequence[Tuple[U64, I64]]) -> Tuple[U64, I64]:
    """Return the counts by size of all parts."""
    sizes = distinct(np.concatenate([np.empty(0, np.uint64), *(values for values, _ in parts)]))
    counts = np.zeros((len(sizes), _CATEGORIES), np.int64)
    for values, number in parts:
        counts[np.searchsorted(sizes, values)] += number
    return sizes, counts


def _add(blocks: Blocks, count: I64, total: I64) -> None:
    last = len(count) // _CATEGORIES - 1
    key = np.minimum(blocks.owner, np.uint32(last)).astype(np.int64) * _CATEGORIES + CATEGORY[blocks.state]
    count += np.bincount(key, minlength=len(count))
    # Weights are floats, exact below 2**53: low and high halves apart keep hostile sizes exact too.
    low = np.bincount(key, (blocks.size & np.uint64(0xFFFFFFFF)).astype(np.float64), len(total))
    total += low.astype(np.int64)
    if len(key) and blocks.size.max() >> np.uint64(32):
        high = np.bincount(key, (blocks.size >> np.uint64(32)).astype(np.float64), len(total))
        total += high.astype(np.int64) << 32
