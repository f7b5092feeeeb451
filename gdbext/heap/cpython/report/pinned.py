"""Arenas that few blocks keep: memory that Python has freed and the system does not get back."""

from __future__ import annotations

from collections import Counter
from typing import List, Optional, Sequence, Tuple

import numpy as np

from gdbext.heap.cpython.model import I64, Pymalloc
from gdbext.heap.cpython.objects.naming import BlockNames
from gdbext.heap.cpython.read.pools import capacities, sizes_of
from gdbext.heap.model import Blocks, Mask, State
from gdbext.report import Confidence, Finding, Severity
from gdbext.target import Target
from gdbext.wording import count_text, grouped, share_text, size_text

USED = 0.25  # of an arena's bytes: fewer in use, and few blocks keep it
SHARE = 0.5  # of all arenas' bytes, free in such arenas; growth and random frees stay below
SHOWN = 4
_EXAMINED = 1 << 10  # blocks whose types are read

REMEDY = (
    "An arena goes back only when its last pool is free. Whatever outlives the peak keeps the arenas that it lies in:"
    " make it before the peak, copy it afterwards and drop the old (a copy of a container copies no elements), or do"
    " the work of the peak in a process of its own (multiprocessing, maxtasksperchild). malloc_trim() does not help."
)


def find_pinned(target: Target, heap: Pymalloc, blocks: Blocks) -> Optional[Finding]:
    """Return the finding when most of the arenas' bytes are free in arenas that few blocks keep, else None."""
    used, free = _bytes_by_arena(heap)
    whole = heap.geometry.arena * len(heap.arenas)
    pinned = (used > 0) & (used <= USED * heap.geometry.arena)
    lost = int(free[pinned].sum())
    if not lost or lost < SHARE * whole:
        return None
    kept = int(used[pinned].sum())
    types, examined = _types(target, blocks, pinned)
    summary = (
        f"{grouped(int(pinned.sum()))} of CPython's {count_text(len(heap.arenas), 'arena')} stay for {size_text(kept)}"
        f" in use: {size_text(lost)} in them are free ({share_text(lost, whole)} of all arenas)"
    )
    return Finding(
        "arena-pinned",
        Severity.WARNING,
        Confidence.HIGH if heap.complete else Confidence.MEDIUM,
        summary,
        bytes=lost,
        evidence=tuple(_evidence(heap, pinned, types, examined)),
        remedy=REMEDY,
        details={
            "allocator": heap.name,
            "arenas": int(pinned.sum()),
            "free_bytes": lost,
            "used_bytes": kept,
            "heap_bytes": whole,
            "examined": examined,
            "types": [{"type": name, "blocks": count} for name, count in types],
        },
    )


def _bytes_by_arena(heap: Pymalloc) -> Tuple[I64, I64]:
    """Return for each arena the bytes in use, and those of free blocks and of pools that were used once."""
    pools, geometry, arenas = heap.pools, heap.geometry, len(heap.arenas)
    rows = np.flatnonzero(pools.sound)
    szidx = pools.header["szidx"][rows].astype(np.int64)
    size, count = sizes_of(geometry, szidx), pools.header["count"][rows].astype(np.int64)
    used = np.bincount(pools.arena[rows], count * size, arenas).astype(np.int64)
    free = np.bincount(pools.arena[rows], (capacities(geometry, szidx) - count) * size, arenas).astype(np.int64)
    free += np.bincount(pools.arena[pools.empty], minlength=arenas).astype(np.int64) * geometry.pool
    return used, free


def _types(target: Target, blocks: Blocks, pinned: Mask) -> Tuple[Sequence[Tuple[str, int]], int]:
    """Return what keeps the arenas, most first, by a fixed choice of the blocks in use there, and how many it has."""
    rows = np.flatnonzero(pinned[blocks.owner] & (blocks.state == int(State.IN_USE)))
    chosen = rows[:: max(-(-len(rows) // _EXAMINED), 1)]
    names = BlockNames(target.reader)
    found = Counter(names.find_name(address) or "no object" for address in blocks.address[chosen].tolist())
    return sorted(found.items(), key=lambda item: (-item[1], item[0])), len(chosen)


def _evidence(heap: Pymalloc, pinned: Mask, types: Sequence[Tuple[str, int]], examined: int) -> List[str]:
    shown = ", ".join(f"{grouped(count)} {name}" for name, count in types[:SHOWN])
    lines = [f"of {count_text(examined, 'block')} in use in them: {shown}"]
    pools = heap.pools
    inside = np.flatnonzero(pools.sound & pinned[pools.arena])
    szidx = pools.header["szidx"][inside].astype(np.int64)
    count = np.bincount(szidx, pools.header["count"][inside]).astype(np.int64)
    number = np.bincount(szidx)
    for at in np.argsort(-number, kind="stable")[:2].tolist():
        if number[at]:
            blocks = count_text(int(count[at]), "block")
            lines.append(f"blocks of {heap.geometry.size(at)}: {blocks} in {count_text(int(number[at]), 'pool')}")
    return lines
