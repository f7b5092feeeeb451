"""Which objects are free, and where they wait: on their span's list, in the transfer cache, in threads' caches.

A span's own count is of the objects that are not on its list: in use, or in one of the caches.
"""

from __future__ import annotations

from typing import List, Tuple

import numpy as np

from gdbext.errors import FaultError
from gdbext.heap.freelists import FreeLists, Objects, follow
from gdbext.heap.tcmalloc.layouts import CENTRAL_STRIDE
from gdbext.heap.tcmalloc.model import IN_SPAN, IN_THREAD, IN_TRANSFER, U64, Tcmalloc
from gdbext.progress import Progress
from gdbext.report import Problem

_WORD = 8
_MOST_SLOTS = 64  # of a central list's transfer cache
Row = Tuple[int, int, int, int]  # owner, size class, first object, objects


def read_caches(heap: Tcmalloc, progress: Progress) -> None:
    """Find out where each object is, and what is wrong with the lists."""
    spans, sizes = heap.spans, np.array(heap.location.classes, np.uint64)
    each = sizes[np.minimum(spans.sizeclass, len(sizes) - 1)]
    count = np.where(spans.slabs, spans.size // np.maximum(each, np.uint64(8)), 0).astype(np.int64)
    heap.objects = Objects(spans.start, each, count)
    memory = list(heap.objects.memory(heap.target))
    for done, lists in enumerate((_of_spans(heap), _of_transfer(heap, sizes), _of_threads(heap, sizes))):
        progress.at("tcmalloc free objects", done, 3)
        problems = follow(heap.target, heap.objects, lists, memory)
        heap.complete &= not any(one.kind == "absent-memory" for one in problems)
        heap.problems += problems


def _of_spans(heap: Tcmalloc) -> FreeLists:
    objects = heap.objects
    slab = np.flatnonzero(objects.count)
    spans, count = heap.spans.select(slab), objects.count[slab].astype(np.uint64)
    free = count - np.minimum(spans.refcount, count)
    return FreeLists(IN_SPAN, "the list of the span", spans.at, spans.objects, objects.each[slab], free, slab)


def _of_transfer(heap: Tcmalloc, sizes: U64) -> FreeLists:
    """Return the slots of the transfer cache: each holds as many objects as its class moves at once."""
    location, layout, reader = heap.location, heap.location.layouts.central, heap.target.reader
    rows: List[Row] = []
    for number in range(1, len(location.classes)):
        central = location.central + CENTRAL_STRIDE * number
        try:
            for at in range(min(layout.read(reader, central, "used_slots"), _MOST_SLOTS)):
                head = reader.word(central + layout.offset("tc_slots") + 2 * _WORD * at)
                rows.append((central, number, head, location.moved[number]))
        except FaultError as fault:
            _lose(heap, fault, f"the central list of class {number}")
    return _lists(IN_TRANSFER, "a transfer slot of", rows, sizes, by_count=True)


def _of_threads(heap: Tcmalloc, sizes: U64) -> FreeLists:
    rows: List[Row] = []
    for cache in heap.location.caches or ():
        try:
            words = heap.target.reader.words(cache, 4 * len(sizes), "tcmalloc's ThreadCache")
        except FaultError as fault:
            _lose(heap, fault, f"the thread cache {cache:#x}")
            continue
        used = (number for number in range(1, len(sizes)) if words[4 * number])
        rows += [(cache, number, words[4 * number], words[4 * number + 1] & 0xFFFFFFFF) for number in used]
    return _lists(IN_THREAD, "the thread cache", rows, sizes)


def _lists(holder: int, name: str, rows: List[Row], sizes: U64, by_count: bool = False) -> FreeLists:
    table = np.array(rows, np.uint64).reshape(-1, 4)
    return FreeLists(
        holder, name, table[:, 0], table[:, 2].copy(), sizes[table[:, 1]], table[:, 3].copy(), by_count=by_count
    )


def _lose(heap: Tcmalloc, fault: FaultError, what: str) -> None:
    lacks = heap.target.lacks(fault.address, fault.size)
    heap.complete = False
    kind = "absent-memory" if lacks else "free-object"
    heap.problems.append(Problem(kind, fault.address, f"{what} cannot be read", corruption=not lacks))
