"""jemalloc's size classes as its source computes them (``size_classes.sh`` in 5.1, ``sc.c`` since 5.2; ``sz.c``)."""

from __future__ import annotations

import math
from typing import Sequence

import numpy as np

from gdbext.heap.jemalloc.model import I64, U64

LG_TINY = 3
LG_QUANTUM = 4  # 16 bytes on every 64-bit machine
LG_GROUP = 2  # classes in each doubling


def size_classes(count: int) -> tuple[int, ...]:
    """Return the first ``count`` size classes, bytes."""
    group = 1 << LG_GROUP
    sizes = [1 << lg for lg in range(LG_TINY, LG_QUANTUM)]
    sizes += [step << LG_QUANTUM for step in range(1, group + 1)]
    delta = 1 << LG_QUANTUM
    while len(sizes) < count:
        base = sizes[-1]
        sizes += [base + step * delta for step in range(1, group + 1)]
        delta *= 2
    return tuple(sizes[:count])


def slab_size(region: int, page: int) -> int:
    """Return the bytes of a slab of ``region``-byte regions: the fewest pages that they fill without a rest."""
    return math.lcm(region, page)


def heaps_of_sizes(extents: U64, sizes: Sequence[int], page: int, pad: int) -> I64:
    """Return which heap of an ``eset_t`` unused extents belong in (``sz_psz2ind (sz_psz_quantize_floor (size))``).

    :param extents: their bytes, each a multiple of ``page``.
    :param sizes: the size classes.
    :param pad: ``sz_large_pad``, 0 or ``page``. What is rounded down to a class and the pad fits into the next class.
    """
    classes = np.array([size for size in sizes if size % page == 0], np.uint64)
    reached = np.searchsorted(classes, extents - np.uint64(pad), side="right").astype(np.int64)
    heaps: I64 = reached if pad else reached - 1
    return heaps
