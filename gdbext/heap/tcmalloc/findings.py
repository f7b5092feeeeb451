"""What tcmalloc's own view recognises: spans that few objects keep, thread caches that hold much."""

from __future__ import annotations

from typing import List

import numpy as np

from gdbext.heap.sparse import Slabs, find_fragmentation, find_hoarding
from gdbext.heap.tcmalloc.convert import large
from gdbext.heap.tcmalloc.model import IN_SPAN, IN_THREAD, IN_TRANSFER, Tcmalloc
from gdbext.report import Finding

_KEPT = (
    "A span goes back only when its last object is freed. Keep long-lived objects apart from short-lived ones of the"
    " same size, or allocate what is left anew and free the old. MallocExtension::ReleaseFreeMemory() does not help."
)
_HOARDED = (
    "Lower TCMALLOC_MAX_TOTAL_THREAD_CACHE_BYTES; let threads that go idle call MallocExtension::MarkThreadIdle();"
    " keep fewer threads."
)


def find_findings(heap: Tcmalloc) -> List[Finding]:
    """Return what is wrong with this heap; thresholds of bytes are the caller's."""
    objects, slab = heap.objects, np.repeat(np.arange(len(heap.objects.start)), heap.objects.count)
    size = objects.each.astype(np.int64)
    is_free = np.isin(objects.held, (IN_SPAN, IN_TRANSFER))
    free = np.bincount(slab[is_free], minlength=len(size)).astype(np.int64) * size
    slabs = Slabs("span", size, objects.count * size - free, free)
    cached = int(objects.columns[1][objects.held == IN_THREAD].sum())
    whole = int((objects.count * size).sum()) + int(heap.spans.size[large(heap)].sum())
    found = (
        find_fragmentation("tcmalloc", slabs, heap.complete, _KEPT),
        find_hoarding("tcmalloc", _of_caches(heap, cached), whole, heap.complete, _HOARDED),
    )
    return [one for one in found if one is not None]


def _of_caches(heap: Tcmalloc, cached: int) -> "np.ndarray[tuple[int], np.dtype[np.int64]]":
    """Return the bytes of each thread's cache, the sum of which is known, by what each says of its size."""
    layout, reader = heap.location.cache, heap.target.reader
    if layout is None or not heap.location.caches:
        return np.zeros(0, np.int64)
    said = np.array([layout.read(reader, one, "size") for one in heap.location.caches], np.int64)
    return said if int(said.sum()) <= 2 * cached else np.array([cached], np.int64)
