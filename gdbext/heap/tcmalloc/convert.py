"""From tcmalloc's spans and objects to the neutral model: blocks, spans, charges."""

from __future__ import annotations

from functools import partial
from typing import Callable, List, Tuple

import numpy as np

from gdbext.errors import FaultError
from gdbext.heap.freelists import PROGRAM
from gdbext.heap.model import Blocks, LazyCharges, Span, State
from gdbext.heap.reading import mapped_ranges
from gdbext.heap.tcmalloc.chunk import find_chunk
from gdbext.heap.tcmalloc.debugblocks import without_headers
from gdbext.heap.tcmalloc.layouts import IN_USE, ON_NORMAL, ON_RETURNED, SAMPLED
from gdbext.heap.tcmalloc.model import IN_SPAN, IN_THREAD, IN_TRANSFER, U64, Mask, Tcmalloc
from gdbext.memory.intervals import Coverage, Intervals, columns, joined, merged, without

_NEAR = 1 << 18  # bytes between two of its structures that one piece of its metadata holds: 128 KiB are taken at once
_STATES = {PROGRAM: State.IN_USE, IN_SPAN: State.FREE, IN_TRANSFER: State.FREE, IN_THREAD: State.TCACHE}


def blocks_of(heap: Tcmalloc) -> Blocks:
    """Return objects, large blocks, and the free spans that are not returned."""
    spans = heap.spans
    address, size = heap.objects.columns
    states = np.array([int(_STATES[holder]) for holder in range(len(_STATES))], np.uint8)
    parts = [_blocks(address, size, states[heap.objects.held])]
    for picked, state in ((large(heap), State.IN_USE), (spans.location == ON_NORMAL, State.DIRTY)):
        chosen = np.flatnonzero(picked)
        size = _usable(heap, chosen) if state == State.IN_USE else spans.size[chosen]
        parts.append(_blocks(spans.start[chosen], size, np.full(len(chosen), int(state), np.uint8)))
    return without_headers(heap, Blocks.join(parts))


def _usable(heap: Tcmalloc, chosen: "np.ndarray[tuple[int], np.dtype[np.int64]]") -> U64:
    """Return the bytes of large blocks: of one that was sampled, which has a span of its own, those of its class."""
    sizes: U64 = heap.spans.size[chosen].copy()
    classes = heap.location.classes
    for at in np.flatnonzero(heap.spans.flags[chosen] & np.uint64(SAMPLED)).tolist():
        try:
            asked = heap.target.reader.word(int(heap.spans.objects[chosen[at]]))
        except FaultError:
            continue
        sizes[at] = next((size for size in classes[1:] if asked <= size <= int(sizes[at])), int(sizes[at]))
    return sizes


def _blocks(address: U64, size: U64, state: "np.ndarray[tuple[int], np.dtype[np.uint8]]") -> Blocks:
    return Blocks(address, size, state, np.zeros(len(address), np.uint8))


def large(heap: Tcmalloc) -> Mask:
    """Return which spans are one block each."""
    picked: Mask = (heap.spans.location == IN_USE) & (heap.spans.sizeclass == 0)
    return picked


def spans_of(heap: Tcmalloc) -> List[Span]:
    """Return what it took from the system, its metadata included."""
    pieces = joined(tuple(np.concatenate(two) for two in zip(_ground(heap), metadata_of(heap))))  # type: ignore[arg-type]
    regions = heap.target.index
    return [
        Span(start, end, "brk" if (region := regions.find(start)) and region.name == "[heap]" else "mmap", 0)
        for start, end in zip(*(column.tolist() for column in pieces))
    ]


def _ground(heap: Tcmalloc) -> Intervals:
    return merged((heap.spans.start, heap.spans.start + heap.spans.size))


def metadata_of(heap: Tcmalloc) -> Intervals:
    """Return where its page map's leaves, spans and thread caches lie, beside the spans.

    It takes 8 MiB from the system for these, and hands out 128 KiB for structures of one kind; what is left of the
    last 8 MiB is its own, too.
    """
    cache = heap.location.cache
    pieces = [(leaf, leaf + heap.leaf_bytes) for leaf in heap.leaves.tolist()]
    pieces += [(one, one + cache.size) for one in heap.location.caches or () if cache is not None]
    at = np.sort(heap.spans.at)
    begins = np.flatnonzero(np.diff(at, prepend=np.uint64(0)) > _NEAR)
    ends = np.append(at[begins[1:] - 1], at[-1:]) + np.uint64(heap.location.layouts.span.size)
    pieces += zip(at[begins].tolist(), ends.tolist())
    ground = Coverage(*joined(_ground(heap)))
    held = columns([*pieces, *find_chunk(heap.target, heap.location.module, pieces, ground)])
    inside = mapped_ranges(heap.target.index).holds_whole(*held)
    return without(joined(merged((held[0][inside], held[1][inside]))), (ground.starts, ground.ends))


def charges_of(heap: Tcmalloc) -> LazyCharges:
    """Return the ledger's intervals."""
    spans = heap.spans

    def objects(*holders: int) -> Intervals:
        address, size = heap.objects.columns
        picked = np.isin(heap.objects.held, holders)
        return joined((address[picked], address[picked] + size[picked]))

    def whole(picked: Mask) -> Intervals:
        return joined((spans.start[picked], spans.start[picked] + spans.size[picked]))

    def used() -> Intervals:
        return joined(tuple(np.concatenate(two) for two in zip(objects(PROGRAM), whole(large(heap)))))  # type: ignore[arg-type]

    def slack() -> Intervals:
        taken = heap.objects.count.astype(np.uint64) * heap.objects.each
        picked = spans.slabs
        return joined((spans.start[picked] + taken[picked], spans.start[picked] + spans.size[picked]))

    makers: List[Tuple[str, Callable[[], Intervals]]] = [
        ("in use", used),
        ("tcache", partial(objects, IN_THREAD)),
        ("free objects", partial(objects, IN_SPAN, IN_TRANSFER)),
        ("free pages", partial(whole, spans.location == ON_NORMAL)),
        ("retained", partial(whole, spans.location >= ON_RETURNED)),
        ("overhead", slack),
        ("metadata", partial(metadata_of, heap)),
    ]
    return LazyCharges([(f"tcmalloc {owner}", make) for owner, make in makers])
