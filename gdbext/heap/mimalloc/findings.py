"""What mimalloc's own view recognises: pages that few blocks keep, heaps of threads that hold much."""

from __future__ import annotations

from typing import List, Tuple

import numpy as np

from gdbext.heap.freelists import PROGRAM
from gdbext.heap.mimalloc.arenas import for_each_written_slice
from gdbext.heap.mimalloc.convert import charges_of
from gdbext.heap.mimalloc.model import I64, U64, Mimalloc
from gdbext.heap.sparse import Slabs, find_fragmentation, find_hoarding
from gdbext.memory.intervals import Coverage, columns, distinct, joined, merged
from gdbext.report import Finding

_KEPT = (
    "A page is used for another size only when its last block is freed. Keep long-lived blocks apart from short-lived"
    " ones (a heap of their own: mi_heap_new), or allocate what is left anew and free the old. mi_collect(true) does"
    " not help."
)
_HOARDED = (
    "Let threads call mi_collect(true) before they go idle, end idle threads, or keep fewer; what a thread has freed"
    " goes back after purge_delay only when that thread allocates again."
)


def find_findings(heap: Mimalloc) -> List[Finding]:
    """Return what is wrong with this heap; thresholds of bytes are the caller's."""
    size = heap.objects.each.astype(np.int64)
    slab = np.repeat(np.arange(len(size)), heap.objects.count)
    used = np.bincount(slab[heap.objects.held == PROGRAM], minlength=len(size)).astype(np.int64) * size
    slabs = Slabs("page", size, used, heap.objects.count * size - used)
    found = (
        find_fragmentation("mimalloc", slabs, heap.complete, _KEPT),
        find_hoarding("mimalloc", *_held_by_threads(heap, slabs), heap.complete, _HOARDED, "thread heap"),
    )
    return [one for one in found if one is not None]


def _held_by_threads(heap: Mimalloc, slabs: Slabs) -> Tuple[I64, int]:
    """Return what each thread's heap holds that nobody else gets, where that is more than it uses, and all bytes.

    Of a heap that one thread has alone that is nothing.
    """
    threads = distinct(np.append(heap.pages.thread, np.array([one for _, _, one in heap.owners], np.uint64)))
    threads = threads[threads != 0]
    whole = int((slabs.used + slabs.free).sum())
    if len(threads) < 2:
        return np.zeros(0, np.int64), whole
    free, unused = _of(threads, heap.pages.thread, slabs.free), _unused(heap, threads)
    held = free + unused
    return held[held > _of(threads, heap.pages.thread, slabs.used)], whole + int(unused.sum())


def _of(threads: U64, owner: U64, size: I64) -> I64:
    """Return the sum of sizes by thread."""
    at = np.searchsorted(threads, owner)
    mine = owner != 0
    return np.bincount(at[mine], size[mine], len(threads)).astype(np.int64)


def _unused(heap: Mimalloc, threads: U64) -> I64:
    """Return the bytes that each thread's segments have in no block, and that were written: only it may use them."""
    free = next(one for one in charges_of(heap) if one.owner == "mimalloc free pages")
    written = Coverage(*joined(merged(columns(for_each_written_slice(heap.target, (free.starts, free.ends))))))
    starts, ends = columns((start, end) for start, end, _ in heap.owners)
    size = (written.below(ends) - written.below(starts)).astype(np.int64)
    return _of(threads, np.array([one for _, _, one in heap.owners], np.uint64), size)
