"""Memory of the huge page allocator (5.3, ``hpa``): page slabs, and what it keeps for new ones.

Source: ``hpa.c``, ``hpa_central.c``, ``hpdata.h``. A page slab (``hpdata_t``) is one huge page. They are cut one after
the other from an "eden" of 128 that is mapped whole; the last one is known, so all of its slabs are. Of earlier edens
those are seen that an extent lies in.
"""

from __future__ import annotations

from typing import Iterator

import numpy as np

from gdbext.errors import FaultError
from gdbext.heap.jemalloc.model import Jemalloc
from gdbext.memory.intervals import Intervals, columns, merged

_EDEN = 128  # HPA_EDEN_SIZE, huge pages


def huge_page(heap: Jemalloc) -> int:
    """Return the bytes of a huge page: what one page of page table entries maps."""
    page = heap.location.geometry.page
    return page * (page // 8)


def huge_pages(heap: Jemalloc) -> Intervals:
    """Return the page slabs and the newest eden, in order; none before 5.3 and where it is off."""
    size = np.uint64(huge_page(heap))
    found = np.unique(heap.extents.address[heap.extents.hpa] // size)
    edens = columns(_edens(heap))
    return merged(
        (
            np.concatenate((found * size, edens[0])),
            np.concatenate(((found + np.uint64(1)) * size, edens[1])),
        )
    )


def _edens(heap: Jemalloc) -> Iterator[tuple[int, int]]:
    layout, reader = heap.location.layout, heap.target.reader
    if "hpa_central" not in layout.structs or "hpa_central" not in layout["arena"]:
        return
    size = huge_page(heap)
    for arena in heap.arenas:
        if not arena.use_hpa:
            continue
        try:
            central = layout["arena"].read(reader, arena.address, "hpa_central")
            eden = layout["hpa_central"].read(reader, central, "eden")
            left = layout["hpa_central"].read(reader, central, "eden_len")
        except FaultError:
            continue
        end = eden + left
        if eden and eden % size == 0 and 0 < left <= _EDEN * size and end >= _EDEN * size:
            yield end - _EDEN * size, end
