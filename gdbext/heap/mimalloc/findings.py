"""What mimalloc's own view recognises: pages that few blocks keep."""

from __future__ import annotations

from typing import List

import numpy as np

from gdbext.heap.freelists import PROGRAM
from gdbext.heap.mimalloc.model import Mimalloc
from gdbext.heap.sparse import Slabs, find_fragmentation
from gdbext.report import Finding

_REMEDY = (
    "A page is used for another size only when its last block is freed. Keep long-lived blocks apart from short-lived"
    " ones (a heap of their own: mi_heap_new), or allocate what is left anew and free the old. mi_collect(true) does"
    " not help."
)


def find_findings(heap: Mimalloc) -> List[Finding]:
    """Return what is wrong with this heap; thresholds of bytes are the caller's."""
    objects, slab = heap.objects, np.repeat(np.arange(len(heap.objects.start)), heap.objects.count)
    size = objects.each.astype(np.int64)
    used = np.bincount(slab[objects.held == PROGRAM], minlength=len(size)).astype(np.int64) * size
    slabs = Slabs("page", size, used, objects.count * size - used)
    found = find_fragmentation("mimalloc", slabs, heap.complete, _REMEDY)
    return [] if found is None else [found]
