"""What ``malloc_trim(0)`` would give back, and what keeps the rest.

Mirrors malloc/malloc.c, ``mtrim`` and ``systrim`` (2.23 to 2.44): fastbins are consolidated first; then, in every
arena, the whole pages inside each free chunk behind a ``struct malloc_chunk`` are returned; of the main arena's
top all but ``MINSIZE`` is. Tops of thread arenas and thread caches stay.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import List, Optional, Tuple

import numpy as np

from gdbext.heap.glibc.read.walk import readable_spans
from gdbext.heap.glibc.view import ArenaView, GlibcHeap
from gdbext.heap.model import U64, Blocks, State
from gdbext.kernels import page_census
from gdbext.report import Kind, Rows, column, line, table

FREE = (State.FASTBIN, State.UNSORTED, State.SMALL, State.LARGE, State.FREE)
LIVE = (State.IN_USE, State.TCACHE)
CHUNK_WORDS = 6  # sizeof (struct malloc_chunk), in words


@dataclass(frozen=True)
class Trimmable:
    """Bytes that ``malloc_trim(0)`` would return of one arena.

    :param in_bins: whole pages inside free chunks.
    :param of_top: the main arena's top; 0 for others.
    :param free_bytes: usable bytes of its free chunks, top not counted.
    """

    in_bins: int
    of_top: int
    free_bytes: int

    @property
    def bytes(self) -> int:
        """What comes back."""
        return self.in_bins + self.of_top


def trimmable(heap: GlibcHeap) -> List[Trimmable]:
    """Return what would be trimmed of each arena, in the order of ``heap.arenas``."""
    return [_trimmable(heap, view, free) for view, free in zip(heap.arenas, _free(heap))]


def _free(heap: GlibcHeap) -> List[Blocks]:
    """Return the free blocks of each arena, top not among them."""
    free = heap.blocks.select(heap.blocks.having(FREE))
    order = np.argsort(free.owner, kind="stable")  # within an arena they stay in address order
    bounds = np.searchsorted(free.owner[order], np.arange(len(heap.arenas) + 1))
    return [free.select(order[bounds[at] : bounds[at + 1]]) for at in range(len(heap.arenas))]


def _trimmable(heap: GlibcHeap, view: ArenaView, free: Blocks) -> Trimmable:
    low, high, into_top = _page_runs(heap, view, free)
    return Trimmable(int((high - low).sum()), _of_top(heap, view, into_top), int(free.size.sum()))


def _page_runs(heap: GlibcHeap, view: ArenaView, free: Blocks) -> Tuple[U64, U64, int]:
    """Return the beginnings and ends of runs of whole free pages, and how many free bytes merge into top."""
    page, top, into_top = heap.target.abi.page_size, view.top, 0
    starts, sizes = _merged(heap, free)
    if top is not None and len(starts) and int(starts[-1] + sizes[-1]) == top[0]:
        into_top, starts, sizes = int(sizes[-1]), starts[:-1], sizes[:-1]
    mask = ~np.uint64(page - 1)
    low = (starts + np.uint64(CHUNK_WORDS * heap.sizes.word + page - 1)) & mask
    high = (starts + sizes) & mask
    kept = high > low
    return low[kept], high[kept], into_top


def _zero_bytes(heap: GlibcHeap, view: ArenaView, free: Blocks) -> int:
    """Return the bytes of whole free pages that hold nothing: the system has them back, or never gave them.

    malloc does not clear what is freed, ``MADV_DONTNEED`` does. Pages that cannot be read are not counted.
    """
    page = heap.target.abi.page_size
    low, high, _ = _page_runs(heap, view, free)
    if not len(low):
        return 0
    _, zero = page_census(readable_spans(heap.target, heap.sizes, view.walked), low, high, page)
    return int(zero.sum()) * page


def _merged(heap: GlibcHeap, free: Blocks) -> Tuple[U64, U64]:
    """Return an arena's free chunks with neighbours merged, as chunk addresses and sizes."""
    start = free.address - np.uint64(heap.sizes.header)
    size = free.size + np.uint64(heap.sizes.word)
    if not len(start):
        return start, size
    first = np.append(True, start[1:] != start[:-1] + size[:-1])
    rows = np.flatnonzero(first)
    last = np.append(rows[1:], len(start)) - 1
    return start[rows], start[last] + size[last] - start[rows]


def _of_top(heap: GlibcHeap, view: ArenaView, merged: int) -> int:
    """``systrim``: only where top ends at the present brk, which is where its mapping ends."""
    if view.head.kind != "main" or view.top is None:
        return 0
    address, size = view.top
    region = heap.target.index.find(address)
    if region is None or region.end != address + size:
        return 0
    unit = _trim_unit(heap)
    area = size + merged - heap.sizes.minimum - 1
    return max(area - area % unit, 0)


def _trim_unit(heap: GlibcHeap) -> int:
    """Since glibc commit 5f828ff824 ("malloc: Add madvise support for Transparent Huge Pages") (in 2.35)
    whole huge pages where they are in force."""
    layout, address = heap.location.malloc_par_layout, heap.location.malloc_par
    if layout is None or address is None or "thp_pagesize" not in layout:
        return heap.target.abi.page_size
    return layout.read(heap.target.reader, address, "thp_pagesize") or heap.target.abi.page_size


@dataclass(frozen=True)
class Pin:
    """The live chunk that keeps a heap's upper end from shrinking.

    :param free_below: free bytes directly below it, which would go if it were freed.
    """

    arena: int = column("arena", Kind.ADDRESS)
    heap: int = column("heap", Kind.ADDRESS)
    top_bytes: int = column("top", Kind.BYTES)
    address: Optional[int] = column("pinned by", Kind.ADDRESS)
    size: Optional[int] = column("size", Kind.BYTES)
    state: Optional[str] = column("state")
    free_below: Optional[int] = column("free below", Kind.BYTES)
    contents: Optional[str] = column("contents")


@dataclass(frozen=True)
class TrimRow:
    """One arena's part of :class:`TrimReport`."""

    address: int = column("arena", Kind.ADDRESS)
    trimmable_bytes: int = column("trimmable", Kind.BYTES)
    in_bins: int = column("in free chunks", Kind.BYTES)
    zero_bytes: int = column("of it zeros", Kind.BYTES)
    of_top: int = column("of top", Kind.BYTES)
    top_bytes: int = column("top", Kind.BYTES)
    free_bytes: int = column("free below top", Kind.BYTES)


@dataclass(frozen=True)
class TrimReport:
    """``glibc trim``; ``runs`` are those of ``gdbext.analysis.footprint.runlist``."""

    trimmable_bytes: int = line("malloc_trim(0) returns", Kind.BYTES)
    arenas: Tuple[TrimRow, ...] = table("What malloc_trim(0) would return")
    pins: Tuple[Pin, ...] = table("What pins each heap's top")
    runs: Rows = table("Free runs under live blocks, largest first")


def usable_top(heap: GlibcHeap, size: int) -> int:
    """Return what could be used of a top chunk of that size, as every block is counted.

    :param size: chunk size; 0 for none.
    """
    return max(size - heap.sizes.header, 0)


def trim_rows(heap: GlibcHeap) -> List[TrimRow]:
    """Return one row an arena."""
    rows = []
    for view, free in zip(heap.arenas, _free(heap)):
        part, zero = _trimmable(heap, view, free), _zero_bytes(heap, view, free)
        top = usable_top(heap, view.top[1]) if view.top else 0
        rows.append(TrimRow(view.head.address, part.bytes, part.in_bins, zero, part.of_top, top, part.free_bytes))
    return rows


def find_pins(heap: GlibcHeap) -> List[Pin]:
    """Return for each heap the highest live chunk, contents left out."""
    blocks = heap.blocks
    live = np.flatnonzero(blocks.having(LIVE))
    addresses = blocks.address[live]
    pins = []
    for view in heap.arenas:
        for walked in view.walked:
            start, end = walked.segment.start, walked.end
            at = int(np.searchsorted(addresses, np.uint64(end))) - 1
            row = int(live[at]) if at >= 0 and int(addresses[at]) >= start else None
            pins.append(_pin(heap, view, start, usable_top(heap, walked.top_size), row))
    return pins


def _pin(heap: GlibcHeap, view: ArenaView, start: int, top: int, row: Optional[int]) -> Pin:
    if row is None:
        return Pin(view.head.address, start, top, None, None, None, None, None)
    blocks = heap.blocks
    below, at = 0, row - 1
    while at >= 0 and State(int(blocks.state[at])) in FREE and int(blocks.address[at]) >= start:
        below += int(blocks.size[at])
        at -= 1
    state = State(int(blocks.state[row])).label
    address, size = int(blocks.address[row]), int(blocks.size[row])
    return Pin(view.head.address, start, top, address, size, state, below, None)
