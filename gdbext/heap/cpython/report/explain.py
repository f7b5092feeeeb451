"""What an address is in the allocator's own terms."""

from __future__ import annotations

from typing import Optional

import numpy as np

from gdbext.heap.cpython.layouts import POOL_OVERHEAD
from gdbext.heap.cpython.model import Pymalloc


def explain(heap: Pymalloc, address: int) -> Optional[str]:
    """Return arena, pool and size class of an address as one line, or None for one outside of arenas."""
    for one in heap.stacks:
        if one.address <= address < one.end:
            what = "frames of Python functions" if address < one.live else "no frame now"
            return f"data stack of a Python thread at {one.address:#x} +{address - one.address:#x}, {what}"
    arenas = heap.arenas
    at = int(np.searchsorted(arenas.address, np.uint64(address), side="right")) - 1
    if at < 0 or address - int(arenas.address[at]) >= heap.geometry.arena:
        return None
    where = f"arena {at} at {int(arenas.address[at]):#x}"
    pool = int(np.searchsorted(heap.pools.address, np.uint64(address), side="right")) - 1
    if pool < 0 or heap.pools.arena[pool] != at or address - int(heap.pools.address[pool]) >= heap.geometry.pool:
        return f"{where}, in no pool"
    return f"{where}, {_pool_text(heap, pool, address)}"


def _pool_text(heap: Pymalloc, pool: int, address: int) -> str:
    start, row = int(heap.pools.address[pool]), heap.pools.header[pool]
    if heap.pools.empty[pool]:
        return f"free pool at {start:#x}"
    if not heap.pools.sound[pool]:
        return f"pool at {start:#x}, whose header cannot be"
    szidx = int(row["szidx"])
    size, capacity = heap.geometry.size(szidx), heap.geometry.capacity(szidx)
    part = "its header" if address < start + POOL_OVERHEAD else f"block {(address - start - POOL_OVERHEAD) // size}"
    return f"pool at {start:#x} of blocks of {size} bytes, {int(row['count'])} of {capacity} in use: {part}"
