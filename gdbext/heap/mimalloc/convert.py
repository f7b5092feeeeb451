"""From mimalloc's segments and pages to the neutral model: blocks, spans, charges; what an address is in its terms."""

from __future__ import annotations

from typing import List, Optional

import numpy as np

from gdbext.heap.freelists import PROGRAM
from gdbext.heap.mimalloc.model import HOLDERS, Mimalloc
from gdbext.heap.model import Blocks, LazyCharges, Span, State
from gdbext.memory.intervals import Intervals, columns, joined, without


def blocks_of(heap: Mimalloc) -> Blocks:
    """Return every block that was ever handed out."""
    address, size = heap.objects.columns
    state = np.where(heap.objects.held == PROGRAM, State.IN_USE, State.FREE).astype(np.uint8)
    return Blocks(address, size, state, np.zeros(len(address), np.uint8))


def spans_of(heap: Mimalloc) -> List[Span]:
    """Return the segments."""
    return [Span(start, end, "mmap", 0) for start, end, _ in heap.segments]


def charges_of(heap: Mimalloc) -> LazyCharges:
    """Return the ledger's intervals."""

    def blocks(used: bool) -> Intervals:
        address, size = heap.objects.columns
        picked = (heap.objects.held == PROGRAM) == used
        return joined((address[picked], address[picked] + size[picked]))

    def metadata() -> Intervals:
        return without(columns((start, info) for start, _, info in heap.segments), _ground(heap))

    def rest() -> Intervals:
        return without(columns((info, end) for _, end, info in heap.segments), _ground(heap))

    makers = {
        "in use": lambda: blocks(True),
        "free": lambda: blocks(False),
        "free pages": rest,
        "metadata": metadata,
    }
    return LazyCharges([(f"mimalloc {owner}", make) for owner, make in makers.items()])


def _ground(heap: Mimalloc) -> Intervals:
    objects = heap.objects
    return joined((objects.start, objects.start + objects.each * objects.count.astype(np.uint64)))


def explain(heap: Mimalloc, address: int) -> Optional[str]:
    """Return one line on an address, or None when it is in no segment."""
    segment = next((one for one in heap.segments if one[0] <= address < one[1]), None)
    if segment is None:
        return None
    objects = heap.objects
    at = int(np.searchsorted(objects.start, np.uint64(address), side="right")) - 1
    number = (address - int(objects.start[at])) // int(objects.each[at]) if at >= 0 else -1
    if at < 0 or not 0 <= number < int(objects.count[at]):
        part = "the data of" if address < segment[2] else "an unused part of"
        return f"in {part} the segment {segment[0]:#x}"
    holder = HOLDERS[objects.held[objects.first[at] + number]]
    page = f"page {int(heap.pages.at[at]):#x} ({int(objects.count[at])} blocks of {int(objects.each[at])} bytes)"
    return f"block {number} of the {page} in the segment {segment[0]:#x}, {holder}"
