"""From glibc's chunks to the neutral model: blocks, spans, charges.

A chunk at c of size s owns the bytes from c+SIZE_SZ to c+s+SIZE_SZ: its size word, then what the program
may use. So chunks tile their segment, shifted by one word.
"""

from __future__ import annotations

from functools import partial
from typing import Iterable, Iterator, List, Sequence, Tuple

import numpy as np

from gdbext.heap.glibc.read.chunks import GrowingChunks
from gdbext.heap.glibc.read.walk import Walked
from gdbext.heap.glibc.sizes import Sizes
from gdbext.heap.glibc.view import GlibcHeap
from gdbext.heap.model import (
    CACHED_STATES,
    NO_ARENA,
    U64,
    Blocks,
    LazyCharges,
    Span,
    State,
)

_BINNED = (State.FASTBIN, State.UNSORTED, State.SMALL, State.LARGE, State.FREE)


def blocks_of(heap: GlibcHeap, growing: GrowingChunks) -> Blocks:
    """Turn chunks, tops, fenceposts and mmapped chunks into blocks: in place, so the chunks are no more."""
    few, sizes, chunks = _extra_blocks(heap), heap.sizes, growing.finish()
    chunks.address[:] += np.uint64(sizes.header)
    chunks.size[:] -= np.uint64(sizes.word)
    places = np.searchsorted(chunks.address, few.address, side="right").tolist()
    owner = np.minimum(few.owner, np.uint32(np.iinfo(chunks.owner.dtype).max))
    return Blocks(*growing.finish_with((few.address, few.size, few.state, owner), places))


def _extra_blocks(heap: GlibcHeap) -> Blocks:
    rows: List[Tuple[int, int, int, int]] = []
    header = heap.sizes.header
    for position, view in enumerate(heap.arenas):
        for walked in view.walked:
            if walked.top is not None and walked.top_size:
                rows.append((walked.top + header, walked.top_size - header, State.TOP, position))
            rows += [(at + header, 0, State.FENCEPOST, position) for at, _ in walked.fenceposts]
    for chunk in heap.mmapped.chunks:
        user = chunk.chunk + header
        rows.append((user, chunk.usable_end - user, State.MMAPPED, NO_ARENA))
    rows.sort()
    columns = list(zip(*rows)) or [(), (), (), ()]
    return Blocks(
        np.array(columns[0], np.uint64),
        np.array(columns[1], np.uint64),
        np.array(columns[2], np.uint8),
        np.array(columns[3], np.uint32),
    )


def spans_of(heap: GlibcHeap) -> List[Span]:
    """Return what malloc took from the system, heap slack included, sorted."""
    spans = []
    for position, view in enumerate(heap.arenas):
        slack = {info.address: info.address + info.mprotect_size for info in view.heaps}
        for walked in view.walked:
            start = walked.segment.start
            end = max(walked.end, slack.get(start, 0))
            spans.append(Span(start, end, walked.segment.kind, position))
    spans += [Span(one.start, one.end, "mmapped", NO_ARENA) for one in heap.mmapped.chunks]
    return sorted(spans, key=lambda span: span.start)


class Charges(LazyCharges):
    """The ledger's intervals."""

    def __init__(self, heap: GlibcHeap) -> None:
        self._heap = heap
        super().__init__(
            (
                ("glibc in use", partial(self._payload, (State.IN_USE, State.MMAPPED))),
                ("glibc chunk overhead", self._headers),
                ("glibc tcache", partial(self._payload, CACHED_STATES)),
                ("glibc bins", partial(self._payload, _BINNED)),
                ("glibc top", partial(self._payload, (State.TOP,))),
                ("glibc heap slack", self._slack),
                ("glibc arena structures", self._structures),
                ("glibc foreign sbrk", self._foreign),
                ("glibc unknown (damaged or absent)", self._skipped),
            )
        )

    def foreign(self) -> List[Tuple[int, int]]:
        """Return start and end of what others took from the break between glibc's own pieces."""
        starts, ends = self._foreign()
        return list(zip(starts.tolist(), ends.tolist()))

    def _payload(self, states: Sequence[State]) -> Tuple[U64, U64]:
        """User bytes; the last word of an arena chunk at its segment's end is clipped."""
        chosen = self._heap.blocks.having(states)
        starts = self._heap.blocks.address[chosen]
        ends = self._heap.blocks.size[chosen]
        ends += starts
        self._clip(starts, ends)
        return starts, ends

    def _clip(self, starts: U64, ends: U64) -> None:
        """Bound each end by that of the segment that its block lies in."""
        spans = [(w.segment.start, w.end) for v in self._heap.arenas for w in v.walked]
        spans = sorted([*spans, *((one.start, one.end) for one in self._heap.mmapped.chunks)])
        firsts = np.searchsorted(starts, np.array([start for start, _ in spans], np.uint64)).tolist()
        for (_, limit), first, behind in zip(spans, firsts, [*firsts[1:], len(starts)]):
            np.minimum(ends[first:behind], np.uint64(limit), out=ends[first:behind])

    def _headers(self) -> Tuple[U64, U64]:
        """One size word a chunk, and the whole header of mmapped chunks."""
        blocks, mmapped = self._heap.blocks, self._heap.mmapped.chunks
        pieces = [(one.start, one.chunk + self._heap.sizes.header) for one in mmapped]
        few_starts, few_ends = _columns(pieces + [(one.usable_end, one.end) for one in mmapped])
        ends = blocks.address[blocks.state != State.MMAPPED]
        count = len(ends)
        ends.resize(count + len(few_ends), refcheck=False)  # in place: it is as long as the heap has blocks
        starts = ends - np.uint64(self._heap.sizes.word)
        starts[count:], ends[count:] = few_starts, few_ends
        return starts, ends

    def _slack(self) -> Tuple[U64, U64]:
        return _columns(
            (info.address + info.size, info.address + info.mprotect_size)
            for view in self._heap.arenas
            for info in view.heaps
        )

    def _structures(self) -> Tuple[U64, U64]:
        """What lies before the first size word, and behind the last fencepost."""
        word = self._heap.sizes.word
        pieces: List[Tuple[int, int]] = []
        for walked in self._walked():
            pieces.append((walked.segment.start, min(walked.segment.first + word, walked.end)))
            pieces += _fence_bodies(walked, self._heap.sizes)
        return _columns(pieces)

    def _foreign(self) -> Tuple[U64, U64]:
        word = self._heap.sizes.word
        return _columns((a + word, b + word) for w in self._walked() for a, b in w.foreign)

    def _skipped(self) -> Tuple[U64, U64]:
        word = self._heap.sizes.word
        return _columns(
            (a + word, min(b + word, w.end)) for w in self._walked() for a, b in w.skipped
        )

    def _walked(self) -> Iterator[Walked]:
        for view in self._heap.arenas:
            yield from view.walked


def _fence_bodies(walked: Walked, sizes: Sizes) -> Iterator[Tuple[int, int]]:
    """Behind each fencepost's size word, up to the next one's."""
    places = [address for address, _ in walked.fenceposts]
    for number, address in enumerate(places):
        size = walked.fenceposts[number][1]
        end = min(address + size + sizes.word, walked.end)
        yield address + sizes.header, end
    if walked.tail and places:
        last, size = walked.fenceposts[-1]
        yield last + size + sizes.word, walked.end
    elif walked.tail:
        yield walked.end - walked.tail, walked.end


def _columns(pairs: Iterable[Tuple[int, int]]) -> Tuple[U64, U64]:
    flat = np.array([(start, end) for start, end in pairs if start < end], np.uint64).reshape(-1, 2)
    return flat[:, 0].copy(), flat[:, 1].copy()
