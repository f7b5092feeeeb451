"""glibc's heap as the neutral model sees it."""

from __future__ import annotations

from functools import partial
from typing import Dict, List, Optional, Sequence, Tuple

from gdbext.heap.glibc.read.build import read_heap
from gdbext.heap.glibc.read.convert import Charges, spans_of
from gdbext.heap.glibc.read.lists import links
from gdbext.heap.glibc.read.segments import Interval
from gdbext.heap.glibc.report.check import check_heap
from gdbext.heap.glibc.report.findings import find_arena_proliferation
from gdbext.heap.glibc.report.trim import trimmable
from gdbext.heap.glibc.view import GlibcHeap
from gdbext.heap.model import Arena, Heap
from gdbext.progress import Progress
from gdbext.target import Target

REMEDIES: Dict[str, str] = {
    "corruption": "Look at who writes to the block before the first damaged place: `blocks at ADDRESS` shows it and "
    "what it holds; `glibc check` lists every place. Running the program under valgrind or AddressSanitizer "
    "names the line that writes.",
    "trim": "malloc_trim(0)",
    "fragmentation": "To keep free memory from staying below live blocks, give long-lived blocks their own place "
    "(allocate them first, or from a pool), or lower M_MMAP_THRESHOLD (mallopt, or GLIBC_TUNABLES="
    "glibc.malloc.mmap_threshold=131072) so that large buffers get mappings of their own.",
    "shrink-realloc": "A large buffer that realloc shrinks keeps its place, and what is cut off stays below "
    "later blocks. Copy the result into a new small block and free the buffer, or give large buffers mappings "
    "of their own: GLIBC_TUNABLES=glibc.malloc.mmap_threshold=131072, which also stops the threshold from growing.",
}


def find_heaps(target: Target, progress: Progress, taken: Sequence[Interval] = ()) -> List[Heap]:
    """Return the glibc heap of a target as a list of one, or of none.

    :param taken: start and end of what other allocators have: what looks like a mapped chunk there is none.
    """
    heap = read_heap(target, progress, taken)
    return [] if heap is None else [neutral(heap)]


def neutral(heap: GlibcHeap) -> Heap:
    """Return the neutral view of a glibc heap."""
    arenas = [
        Arena(position, v.head.address, v.head.kind, v.head.system_mem, v.threads, v.head.in_flux)
        for position, v in enumerate(heap.arenas)
    ]
    finding = find_arena_proliferation(heap)
    charges = Charges(heap)
    return Heap(
        "glibc",
        heap.blocks,
        arenas,
        spans_of(heap),
        charges,
        heap.location.evidence,
        check_heap(heap),
        (finding,) if finding else (),
        dict(REMEDIES),
        heap.whole,
        heap,
        _mmap_threshold(heap),
        size_classes=False,
        links=partial(links, heap.blocks, heap.sizes),
        metadata=_structures(heap),
        foreign=charges.foreign(),
        reserves=_reserves(heap),
        trimmable=lambda: (sum(arena.bytes for arena in trimmable(heap)), "glibc trim"),
    )


def _structures(heap: GlibcHeap) -> List[Tuple[int, int]]:
    """Return where glibc has lists of free chunks: in libc's data, and in blocks that are thread caches.

    A bin points at a free chunk's header, whose first word belongs to the block below it.
    """
    location = heap.location
    pieces = [(cache.at.address, cache.at.address + cache.at.layout.struct.size) for cache in heap.caches]
    if location.main_arena is not None:
        pieces.append((location.main_arena, location.main_arena + location.malloc_state.size))
    if location.malloc_par is not None and location.malloc_par_layout is not None:
        pieces.append((location.malloc_par, location.malloc_par + location.malloc_par_layout.size))
    return pieces


def _reserves(heap: GlibcHeap) -> List[Tuple[int, int]]:
    """Return what each heap of a thread arena has to its ``HEAP_MAX_SIZE``, sorted."""
    most = heap.location.heap_max
    infos = [info for view in heap.arenas for info in view.heaps]
    return sorted((info.address + info.mprotect_size, info.address + most) for info in infos)


def _mmap_threshold(heap: GlibcHeap) -> Optional[int]:
    """Return ``mp_.mmap_threshold``: larger requests get a mapping of their own. None when mp_ is not known."""
    layout, address = heap.location.malloc_par_layout, heap.location.malloc_par
    if layout is None or address is None:
        return None
    return layout.read(heap.target.reader, address, "mmap_threshold")
