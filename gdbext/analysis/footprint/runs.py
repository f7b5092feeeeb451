"""Runs of free bytes, and the live blocks on both sides of them.

A run is a longest row of neighbouring free blocks of one arena: in a list or not, but neither top
nor tcached (an allocator does not merge those). A run is *pinned* when something live lies above it in
the same span, or when its arena's top is elsewhere: memory goes back to the system from the top only.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Container, List, Sequence, Tuple

import numpy as np

from gdbext.heap.model import CACHED_STATES, U32, U64, USED_STATES, Heap, Mask, Span, State
from gdbext.memory.intervals import I64, Coverage

RUN_STATES = (State.FASTBIN, State.UNSORTED, State.SMALL, State.LARGE, State.FREE)
LIVE_STATES = (*USED_STATES, *CACHED_STATES)

_HEADER_LIMIT = 64  # bytes between neighbours: more than any allocator's header, less than foreign memory
_LINKS = 4  # words at a free block's start that its allocator keeps
_LOOK_BACK = 1 << 12
NONE = -1


@dataclass(frozen=True)
class Runs:
    """Runs as columns, in address order.

    :param start: user pointer of the first block.
    :param end: first address after the last block's usable bytes.
    :param bytes: usable bytes of its blocks.
    :param pages: bytes of the whole pages inside, that could go back to the system page by page.
    :param owner: index into :attr:`Heap.arenas`.
    :param span: index into :attr:`Layout.spans`.
    :param before: index of the live block that directly precedes, or -1.
    :param after: index of the live block that directly follows, or -1.
    """

    start: U64
    end: U64
    bytes: U64
    pages: U64
    owner: U32
    span: I64
    before: I64
    after: I64
    pinned: Mask

    def __len__(self) -> int:
        return len(self.start)

    def page_bounds(self, page_size: int) -> Tuple[U64, U64]:
        """Return where the whole pages inside begin and end."""
        return _page_bounds(self.start, self.end, page_size)

    def select(self, mask: "Mask | I64") -> "Runs":
        """Return the runs that a mask or an index array picks."""
        unsigned = (self.start[mask], self.end[mask], self.bytes[mask], self.pages[mask])
        signed = (self.span[mask], self.before[mask], self.after[mask])
        return Runs(*unsigned, self.owner[mask], *signed, self.pinned[mask])


@dataclass(frozen=True)
class Layout:
    """The spans that hold several blocks, with what lies highest in each.

    :param last_live: index of the highest live block of each span, or -1.
    :param topless: whether its arena's top is in another span.
    """

    spans: Sequence[Span]
    extent: Coverage
    last_live: I64
    topless: Mask


def layout_of(heap: Heap) -> Layout:
    """Return a heap's shared spans; a heap that declares none counts as one."""
    spans: List[Span] = [span for span in heap.spans if span.kind != "mmapped" and span.end > span.start]
    if not heap.spans and len(heap.blocks):
        spans = [Span(0, (1 << 64) - 1, "unknown", 0)]
    spans.sort(key=lambda span: span.start)
    extent = Coverage(
        np.array([span.start for span in spans], np.uint64), np.array([span.end for span in spans], np.uint64)
    )
    return Layout(spans, extent, _last_live(heap, extent), _topless(heap, spans, extent))


def _topless(heap: Heap, spans: Sequence[Span], extent: Coverage) -> Mask:
    tops = heap.blocks.select(heap.blocks.state == int(State.TOP))
    holding = set(extent.index(tops.address).tolist())
    owners = set(tops.owner.tolist())
    return np.array([s.arena in owners and at not in holding for at, s in enumerate(spans)], np.bool_)


def _last_live(heap: Heap, extent: Coverage) -> I64:
    low = np.searchsorted(heap.blocks.address, extent.starts)
    high = np.searchsorted(heap.blocks.address, extent.ends)
    pairs = zip(low.tolist(), high.tolist())
    return np.array([_highest_live(heap, first, end) for first, end in pairs], np.int64)


def _highest_live(heap: Heap, first: int, end: int) -> int:
    while end > first:
        begin = max(first, end - _LOOK_BACK)
        live = np.flatnonzero(heap.blocks.select(slice(begin, end)).having(LIVE_STATES))
        if len(live):
            return begin + int(live[-1])
        end = begin
    return NONE


def find_runs(heap: Heap, page_size: int, skip_arenas: Container[int] = ()) -> Tuple[Runs, Layout]:
    """Return every run of free bytes in a heap's shared spans.

    :param page_size: bytes.
    :param skip_arenas: indices of arenas that are left out.
    """
    layout = layout_of(heap)
    free = np.flatnonzero(heap.blocks.having(RUN_STATES))
    head = ~_follows(heap, free)
    first = free[head]
    last = free[np.append(head[1:], np.ones(min(len(free), 1), np.bool_))]
    runs = _measure(heap, layout, first, last, _sums(heap.blocks.size[free], head), page_size)
    skipped = [arena.index for arena in heap.arenas if arena.index in skip_arenas]
    return runs.select((runs.span >= 0) & ~np.isin(runs.owner, skipped)), layout


def _sums(sizes: U64, head: Mask) -> U64:
    """Return the sums of the stretches that begin where ``head`` is set."""
    if not len(sizes):
        return sizes
    sums: U64 = np.add.reduceat(sizes, np.flatnonzero(head))
    return sums


def _touching(heap: Heap, low: I64, high: I64) -> Mask:
    """Return which pairs of blocks are neighbours of one arena with only a header between them."""
    blocks = heap.blocks
    gap = blocks.address[high] - (blocks.address[low] + blocks.size[low])
    touching: Mask = (gap <= np.uint64(_HEADER_LIMIT)) & (blocks.owner[low] == blocks.owner[high])
    return touching


def _follows(heap: Heap, free: I64) -> Mask:
    """Return which of the free blocks continue the run of the one before."""
    follows = np.zeros(len(free), np.bool_)
    next_to = np.flatnonzero(free[1:] == free[:-1] + 1) + 1
    follows[next_to] = _touching(heap, free[next_to] - 1, free[next_to])
    return follows


def _measure(heap: Heap, layout: Layout, first: I64, last: I64, sizes: U64, page_size: int) -> Runs:
    blocks = heap.blocks
    start = blocks.address[first]
    end = blocks.address[last] + blocks.size[last]
    span = layout.extent.index(start)
    pages = _whole_pages(start, end, page_size)
    owner = blocks.owner[first]
    before = _live_neighbour(heap, first, first - 1, -1)
    after = _live_neighbour(heap, last, last + 1, 1)
    return Runs(start, end, sizes, pages, owner, span, before, after, _pinned(layout, span, last))


def _page_bounds(start: U64, end: U64, page_size: int, links: int = 8 * _LINKS) -> Tuple[U64, U64]:
    mask = ~np.uint64(page_size - 1)
    low = (start + np.uint64(links + page_size - 1)) & mask
    return low, np.maximum(end & mask, low)


def _whole_pages(start: U64, end: U64, page_size: int) -> U64:
    low, high = _page_bounds(start, end, page_size)
    return high - low


def _live_neighbour(heap: Heap, block: I64, neighbour: I64, step: int) -> I64:
    inside = (neighbour >= 0) & (neighbour < len(heap.blocks))
    near = np.where(inside, neighbour, block)
    low, high = (near, block) if step < 0 else (block, near)
    touching = inside & _touching(heap, low, high)
    live = heap.blocks.select(near).having(LIVE_STATES)
    return np.where(touching & live, neighbour, NONE)


def _pinned(layout: Layout, span: I64, last: I64) -> Mask:
    if not len(layout.spans):
        return np.zeros(len(span), np.bool_)
    below_live: Mask = layout.last_live[span] > last
    return (span >= 0) & (below_live | layout.topless[span])
