"""What an address is in jemalloc's own terms: region and slab, large block, unused extent, metadata."""

from __future__ import annotations

from typing import Iterator, Optional

import numpy as np

from gdbext.heap.jemalloc.model import ExtentState, Jemalloc
from gdbext.heap.jemalloc.read.hugepages import huge_page, huge_pages
from gdbext.heap.jemalloc.read.regions import region_counts
from gdbext.memory.intervals import Coverage
from gdbext.wording import count_text, size_text

_STATES = {int(state): state.label for state in ExtentState}
_CACHED = "in HPA's cache of small extents"


def explain(heap: Jemalloc, address: int) -> Optional[str]:
    """Return one line on an address, or None when jemalloc has nothing to do with it."""
    extent = heap.extents.find(address)
    if extent is None:
        return _metadata(heap, address)
    if heap.extents.state[extent] != ExtentState.ACTIVE:
        return _unused(heap, extent)
    if heap.extents.slab[extent]:
        return _slab(heap, extent, address)
    return _large(heap, extent, address)


def _place(heap: Jemalloc, extent: int) -> str:
    """Return address, size and arena of an extent."""
    extents = heap.extents
    size = size_text(int(extents.size[extent]))
    return f"{int(extents.address[extent]):#x} of {size}, arena {int(extents.arena[extent])}"


def _unused(heap: Jemalloc, extent: int) -> str:
    state = int(heap.extents.state[extent])
    what = _CACHED if state == ExtentState.CACHED else _STATES.get(state, f"of the unknown state {state}")
    return f"extent {_place(heap, extent)}, {what}"


def _slab(heap: Jemalloc, extent: int, address: int) -> str:
    start, szind = int(heap.extents.address[extent]), int(heap.extents.szind[extent])
    slab = f"slab {_place(heap, extent)}"
    if szind >= heap.location.nbins:
        return f"{slab}, of no small size class: {szind}"
    info = heap.location.bin_infos[szind]
    regions = int(region_counts(heap, np.array([extent]))[0])
    number = (address - start) // info.reg_size
    each = f"of {regions} ({info.reg_size} bytes each)"
    free = f"bin {szind}; {count_text(int(heap.extents.nfree[extent]), 'region')} free"
    if number >= regions:
        return f"behind the last region {each} in {slab}, {free}"
    told = [f"region {number} {each} in {slab}, {free}", *_holders(heap, start + number * info.reg_size)]
    return "; ".join(told)


def _large(heap: Jemalloc, extent: int, address: int) -> str:
    extents = heap.extents
    pointer, usable = int(extents.pointer[extent]), int(extents.usable[extent])
    where = f"extent {_place(heap, extent)}"
    if not usable:
        return f"{where}, active, of no size class: {int(extents.szind[extent])}"
    block = f"large block {pointer:#x} of {usable} bytes"
    side = "" if pointer <= address < pointer + usable else "padding around the "
    return "; ".join([f"{side}{block} in {where}", *_holders(heap, pointer)])


def _holders(heap: Jemalloc, pointer: int) -> Iterator[str]:
    """Iterate over words on the thread caches that hold a block."""
    for cache in heap.tcaches or ():
        if any((one.objects == np.uint64(pointer)).any() for one in cache.bins):
            thread = cache.thread
            named = thread is not None and thread.number is not None
            whose = f"thread {thread.number}" if thread is not None and named else "no thread of this target"
            yield f"in the thread cache {cache.address:#x} of {whose}"


def _metadata(heap: Jemalloc, address: int) -> Optional[str]:
    for arena in heap.arenas:
        for start, size in arena.base.blocks:
            if start <= address < start + size:
                block = f"in the base block {start:#x} of {size_text(size)}"
                return f"metadata of arena {arena.index}, {_structure(heap, address)}{block}"
    if Coverage(*huge_pages(heap)).holds(np.array([address], np.uint64))[0]:
        start = address & -huge_page(heap)
        return f"unused part of the huge page slab {start:#x} of {size_text(huge_page(heap))}"
    return None


def _structure(heap: Jemalloc, address: int) -> str:
    """Return which structure of those that were read an address of metadata lies in, or ""."""
    size = heap.location.layout["extent"].size
    edatas = heap.extents.edata
    near = np.flatnonzero((edatas <= np.uint64(address)) & (np.uint64(address) - edatas < np.uint64(size)))
    if len(near):
        return f"what describes the extent {int(heap.extents.address[near[0]]):#x}, "
    whole = heap.location.layout["arena"].size
    if any(arena.address <= address < arena.address + whole for arena in heap.arenas):
        return "its own structure, "
    return ""
