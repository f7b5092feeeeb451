"""Which allocators a target has: one line for each that gdbext knows."""

from __future__ import annotations

from typing import Callable, List, Sequence

from gdbext.heap.glibc.heap import find_heaps as find_glibc_heaps
from gdbext.heap.jemalloc.heap import find_heaps as find_jemalloc_heaps
from gdbext.heap.mimalloc.heap import find_heaps as find_mimalloc_heaps
from gdbext.heap.model import Heap
from gdbext.heap.musl.heap import find_heaps as find_musl_heaps
from gdbext.heap.tcmalloc.heap import find_heaps as find_tcmalloc_heaps
from gdbext.progress import Progress
from gdbext.target import Target

FINDERS: Sequence[Callable[[Target, Progress], List[Heap]]] = (
    find_glibc_heaps,
    find_jemalloc_heaps,
    find_tcmalloc_heaps,
    find_musl_heaps,
    find_mimalloc_heaps,
)


def find_heaps(target: Target, progress: Progress) -> List[Heap]:
    """Return every heap of the target, in the allocators' order; none is an answer.

    libc brings its allocator into every process: beside another heap it counts only if it was ever used.
    """
    heaps = [heap for find in FINDERS for heap in find(target, progress)]
    if not any(heap.spans for heap in heaps):
        return heaps
    return [heap for heap in heaps if not _is_idle(heap)]


def _is_idle(heap: Heap) -> bool:
    """Whether a heap was read whole, took nothing from the system and has nothing to tell."""
    return heap.complete and not heap.spans and not heap.problems and not heap.findings
