"""What ``malloc_trim(0)`` would give back, and what keeps the rest.

Mirrors malloc/malloc.c, ``mtrim`` and ``systrim`` (2.23 to 2.44): fastbins are consolidated first; then, in every
arena, the whole pages inside each free chunk behind a ``struct malloc_chunk`` are returned; of the main arena's
top all but ``MINSIZE`` is. Tops of thread arenas and thread caches stay.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, List, Optional, Tuple

import numpy as np

from gdbext.heap.glibc.read.walk import readable_spans
from gdbext.heap.glibc.view import ArenaView, GlibcHeap
from gdbext.heap.model import U64, Blocks, State
from gdbext.kernels import page_census
from gdbext.kernels.columns import I64, U32
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
    return _trimmable(heap, _free_pages(heap))


@dataclass(frozen=True)
class _FreePages:
    """Runs of whole free pages of all arenas.

    :param low: where each begins, by arena and then in order of address.
    :param high: where each ends.
    :param bounds: of each arena the position of its first run, and at last how many there are.
    :param into_top: of each arena the free bytes that merge into its top.
    :param free_bytes: of each arena the usable bytes of its free chunks, top not counted.
    """

    low: U64
    high: U64
    bounds: I64
    into_top: I64
    free_bytes: I64


def _free_pages(heap: GlibcHeap) -> _FreePages:
    """Return the whole pages in free chunks, neighbours merged, as a trim merges them."""
    arenas, page = len(heap.arenas), heap.target.abi.page_size
    free = heap.blocks.select(heap.blocks.having(FREE) & (heap.blocks.owner < arenas))
    free = free.select(np.argsort(free.owner, kind="stable"))  # within an arena they stay in address order
    starts, ends, owners = _merged(heap, free)
    tops = np.array([view.top[0] if view.top else 0 for view in heap.arenas], np.uint64)
    merging = ends == tops[owners]
    low = (starts + np.uint64(CHUNK_WORDS * heap.sizes.word + page - 1)) & ~np.uint64(page - 1)
    high = ends & ~np.uint64(page - 1)
    kept = (high > low) & ~merging
    bounds = np.searchsorted(owners[kept], np.arange(arenas + 1))
    into_top = _sums(owners[merging], (ends - starts)[merging], arenas)
    return _FreePages(low[kept], high[kept], bounds, into_top, _sums(free.owner, free.size, arenas))


def _sums(owners: U32, sizes: U64, arenas: int) -> I64:
    """Return the sum of sizes of each arena."""
    return np.bincount(owners, sizes, arenas).astype(np.int64)


def _trimmable(heap: GlibcHeap, pages: _FreePages) -> List[Trimmable]:
    before = np.append(0, np.cumsum(pages.high - pages.low)).astype(np.int64)
    in_bins = before[pages.bounds[1:]] - before[pages.bounds[:-1]]
    of_top = [_of_top(heap, view, merged) for view, merged in zip(heap.arenas, pages.into_top.tolist())]
    return [Trimmable(*one) for one in zip(in_bins.tolist(), of_top, pages.free_bytes.tolist())]


def _zero_bytes(heap: GlibcHeap, view: ArenaView, low: U64, high: U64) -> int:
    """Return the bytes of whole free pages that hold nothing: the system has them back, or never gave them.

    malloc does not clear what is freed, ``MADV_DONTNEED`` does. Pages that cannot be read are not counted.
    """
    if not len(low):
        return 0
    page = heap.target.abi.page_size
    _, zero = page_census(readable_spans(heap.target, heap.sizes, view.walked), low, high, page)
    return int(zero.sum()) * page


def _merged(heap: GlibcHeap, free: Blocks) -> Tuple[U64, U64, U32]:
    """Return free chunks with neighbours of the same arena merged: where they begin, where they end, and their arena.

    :param free: by arena and then in order of address.
    """
    start = free.address - np.uint64(heap.sizes.header)
    end = start + free.size + np.uint64(heap.sizes.word)
    first = np.ones(len(start), bool)
    first[1:] = (start[1:] != end[:-1]) | (free.owner[1:] != free.owner[:-1])
    rows = np.flatnonzero(first)
    return start[rows], end[np.append(rows[1:], len(start))[: len(rows)] - 1], free.owner[rows]


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

    :param arena: of the arena, its ``malloc_state``.
    :param heap: where the stretch starts.
    :param top_bytes: usable bytes of top in it.
    :param address: user pointer of its highest live block, tcached ones included; None, as are the rest, when it has
        none.
    :param size: usable bytes of it.
    :param state: ``in use``, ``tcache``.
    :type state: word
    :param free_below: free usable bytes directly below it.
    :param contents: what its first bytes look like: a hint.
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
    """One arena's part of :class:`TrimReport`.

    :param address: of the ``malloc_state``.
    :param trimmable_bytes: ``in_bins`` + ``of_top``.
    :param in_bins: whole pages inside free chunks.
    :param zero_bytes: of ``in_bins``, in pages that hold only zeros: the system has most of these already; pages that
        cannot be read are not counted.
    :param of_top: of the main arena's top; 0 for thread arenas, whose top stays.
    :param top_bytes: usable bytes of top.
    :param free_bytes: usable bytes of free chunks but top.
    """

    address: int = column("arena", Kind.ADDRESS)
    trimmable_bytes: int = column("trimmable", Kind.BYTES)
    in_bins: int = column("in free chunks", Kind.BYTES)
    zero_bytes: int = column("of it zeros", Kind.BYTES)
    of_top: int = column("of top", Kind.BYTES)
    top_bytes: int = column("top", Kind.BYTES)
    free_bytes: int = column("free below top", Kind.BYTES)


@dataclass(frozen=True)
class TrimReport:
    """``glibc trim``; ``runs`` are those of ``gdbext.analysis.footprint.runlist``.

    :param trimmable_bytes: what ``malloc_trim(0)`` would return in all.
    """

    trimmable_bytes: int = line("malloc_trim(0) returns", Kind.BYTES)
    arenas: Tuple[TrimRow, ...] = table("What malloc_trim(0) would return")
    pins: Tuple[Pin, ...] = table("What pins each heap's top")
    runs: Rows[Any] = table("Free runs under live blocks, largest first")


def usable_top(heap: GlibcHeap, size: int) -> int:
    """Return what could be used of a top chunk of that size, as every block is counted.

    :param size: chunk size; 0 for none.
    """
    return max(size - heap.sizes.header, 0)


def trim_rows(heap: GlibcHeap) -> List[TrimRow]:
    """Return one row an arena."""
    pages, rows = _free_pages(heap), []
    for at, (view, part) in enumerate(zip(heap.arenas, _trimmable(heap, pages))):
        runs = slice(pages.bounds[at], pages.bounds[at + 1])
        zero = _zero_bytes(heap, view, pages.low[runs], pages.high[runs])
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
