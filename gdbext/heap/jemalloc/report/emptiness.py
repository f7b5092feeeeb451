"""Slabs that are mostly empty: pages that stay for the few regions of them that are still in use."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Optional, Sequence

import numpy as np

from gdbext.heap.jemalloc.model import BinInfo, Jemalloc
from gdbext.report import Confidence, Finding, Severity
from gdbext.wording import count_text, share_text, size_text

SHARE_OF_SLABS = 0.5  # empty bytes of all in slabs; random frees of a third, or growth, stay below
SHARE_OF_ACTIVE = 0.2  # empty bytes of all that is active
SHOWN = 5

REMEDY = (
    "A slab goes back only when its last region is freed. Keep long-lived objects apart from short-lived ones"
    ' (an arena of their own: mallctl("arenas.create") and MALLOCX_ARENA); use fewer arenas (MALLOC_CONF=narenas:N)'
    " and smaller thread caches (lg_tcache_max); or move what is left: allocate anew and free the old, as redis's"
    " `activedefrag yes` does. Purging (arena.N.purge) does not help."
)


@dataclass(frozen=True)
class Emptiness:
    """The slabs of one size class that are neither full nor the one that a bin allocates from.

    :param empty: bytes of their regions that are not in use.
    :param size: all bytes of their regions.
    """

    info: BinInfo
    slabs: int
    empty: int
    size: int


def measure_emptiness(heap: Jemalloc) -> Sequence[Emptiness]:
    """Return what is empty by size class, most first; each bin's current slab is left out: it is to be filled."""
    extents, infos = heap.extents, heap.location.bin_infos
    current = [shard.slabcur for arena in heap.arenas for one in arena.bins for shard in one.shards]
    picked = extents.slab & (extents.szind < len(infos)) & (extents.nfree > 0)
    picked &= ~np.isin(extents.edata, np.array(current, np.uint64))
    slabs = np.bincount(extents.szind[picked], minlength=len(infos))
    free = np.bincount(extents.szind[picked], extents.nfree[picked], len(infos))
    rows = [
        Emptiness(one, int(slabs[at]), int(free[at]) * one.reg_size, int(slabs[at]) * one.nregs * one.reg_size)
        for at, one in enumerate(infos)
        if slabs[at]
    ]
    return sorted(rows, key=lambda row: -row.empty)


def find_empty_slabs(heap: Jemalloc) -> Optional[Finding]:
    """Return the finding when slabs' empty regions are a large share of all that is active, else None."""
    rows = measure_emptiness(heap)
    empty = sum(row.empty for row in rows)
    slabs = int(heap.extents.size[heap.extents.slab].sum())
    active = sum(arena.active for arena in heap.arenas)
    if not empty or empty < SHARE_OF_SLABS * slabs or empty < SHARE_OF_ACTIVE * active:
        return None
    count = sum(row.slabs for row in rows)
    summary = (
        f"{size_text(empty)} of {size_text(slabs)} in slabs are empty regions ({share_text(empty, slabs)}):"
        f" {count_text(count, 'slab')} stay for what is left in them"
    )
    return Finding(
        "fragmentation",
        Severity.WARNING,
        Confidence.HIGH if heap.complete else Confidence.MEDIUM,
        summary,
        bytes=empty,
        evidence=tuple(_row_text(row) for row in rows[:SHOWN]),
        remedy=REMEDY,
        details={
            "allocator": heap.name,
            "slabs": count,
            "free_bytes": empty,
            "heap_bytes": slabs,
            "classes": [
                {"size": row.info.reg_size, "slabs": row.slabs, "free_bytes": row.empty, "bytes": row.size}
                for row in rows
            ],
        },
    )


def _row_text(row: Emptiness) -> str:
    return (
        f"regions of {row.info.reg_size}: {count_text(row.slabs, 'slab')} not full,"
        f" {share_text(row.size - row.empty, row.size)} of their regions in use, {size_text(row.empty)} empty"
    )
