"""What mallocng's own view recognises: groups that few slots keep."""

from __future__ import annotations

from typing import List

import numpy as np

from gdbext.heap.musl.model import FREE, IN_USE, Mallocng
from gdbext.heap.sparse import Slabs, find_fragmentation
from gdbext.report import Finding

_REMEDY = (
    "A group goes back only when its last slot is freed. Keep long-lived blocks apart from short-lived ones of the same"
    " size, or allocate what is left anew and free the old. There is no call that gives memory back."
)


def find_findings(heap: Mallocng) -> List[Finding]:
    """Return what is wrong with this heap; thresholds of bytes are the caller's."""
    size = heap.groups.stride.astype(np.int64)
    used, free = (
        np.bincount(heap.group[heap.what == what], minlength=len(size)).astype(np.int64) * size
        for what in (IN_USE, FREE)
    )
    found = find_fragmentation("musl", Slabs("group", size, used, free), heap.complete, _REMEDY)
    return [] if found is None else [found]
