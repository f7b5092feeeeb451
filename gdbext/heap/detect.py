"""Which allocators a target has: one line for each that gdbext knows."""

from __future__ import annotations

from typing import Callable, List, Sequence

from gdbext.heap.glibc.heap import find_heaps as find_glibc_heaps
from gdbext.heap.model import Heap
from gdbext.progress import Progress
from gdbext.target import Target

FINDERS: Sequence[Callable[[Target, Progress], List[Heap]]] = (find_glibc_heaps,)


def find_heaps(target: Target, progress: Progress) -> List[Heap]:
    """Return every heap of the target, in the allocators' order; none is an answer."""
    return [heap for find in FINDERS for heap in find(target, progress)]
