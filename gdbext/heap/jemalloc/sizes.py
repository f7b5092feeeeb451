"""jemalloc's size classes as its source computes them (``size_classes.sh`` in 5.1, ``sc.c`` since 5.2)."""

from __future__ import annotations

import math

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
