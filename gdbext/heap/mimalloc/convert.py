"""From mimalloc's pages to the neutral model: blocks, spans, charges; what an address is in its terms."""

from __future__ import annotations

from typing import List, Optional

import numpy as np

from gdbext.heap.freelists import PROGRAM
from gdbext.heap.mimalloc.model import HOLDERS, U64, Mimalloc
from gdbext.heap.model import Blocks, LazyCharges, Span, State
from gdbext.memory.intervals import Intervals, columns, joined, merged, without


def blocks_of(heap: Mimalloc) -> Blocks:
    """Return every block that was ever handed out."""
    address, size = heap.objects.columns
    state = np.where(heap.objects.held == PROGRAM, State.IN_USE, State.FREE).astype(np.uint8)
    return Blocks(address, size if heap.sizes is None else heap.sizes, state, np.zeros(len(address), np.uint8))


def spans_of(heap: Mimalloc) -> List[Span]:
    """Return the segments, or the memory of pages and what is kept beside them."""
    return [Span(start, end, "mmap", 0) for start, end in zip(*(column.tolist() for column in _whole(heap)))]


def _whole(heap: Mimalloc) -> Intervals:
    return merged(columns(heap.areas))


def charges_of(heap: Mimalloc) -> LazyCharges:
    """Return the ledger's intervals."""

    def blocks(used: bool) -> Intervals:
        address, size = heap.objects.columns
        picked = (heap.objects.held == PROGRAM) == used
        return joined((address[picked], address[picked] + _asked(heap, size)[picked]))

    def padding() -> Intervals:
        address, size = heap.objects.columns
        return joined((address + _asked(heap, size), address + size))

    def metadata() -> Intervals:
        return without(joined(merged(columns(heap.own))), _ground(heap))

    def rest() -> Intervals:
        taken = [np.concatenate(two) for two in zip(_ground(heap), metadata())]
        return without(joined(_whole(heap)), joined((taken[0], taken[1])))

    makers = {
        "in use": lambda: blocks(True),
        "free": lambda: blocks(False),
        "free pages": rest,
        **({} if heap.sizes is None else {"overhead": padding}),
        "metadata": metadata,
    }
    return LazyCharges([(f"mimalloc {owner}", make) for owner, make in makers.items()])


def _asked(heap: Mimalloc, size: U64) -> U64:
    return size if heap.sizes is None else heap.sizes


def _ground(heap: Mimalloc) -> Intervals:
    objects = heap.objects
    return joined((objects.start, objects.start + objects.each * objects.count.astype(np.uint64)))


def explain(heap: Mimalloc, address: int) -> Optional[str]:
    """Return one line on an address, or None when it is in no segment or page."""
    area = next((one for one in heap.areas if one[0] <= address < one[1]), None)
    if area is None:
        return None
    where = f"the {heap.unit} {area[0]:#x}"
    objects = heap.objects
    at = int(np.searchsorted(objects.start, np.uint64(address), side="right")) - 1
    number = (address - int(objects.start[at])) // int(objects.each[at]) if at >= 0 else -1
    if at < 0 or not 0 <= number < int(objects.count[at]):
        own = any(start <= address < end for start, end in heap.own)
        return f"in {'the data of' if own else 'an unused part of'} {where}"
    holder = HOLDERS[objects.held[objects.first[at] + number]]
    page = f"page {int(heap.pages.at[at]):#x} ({int(objects.count[at])} blocks of {int(objects.each[at])} bytes)"
    return f"block {number} of the {page} in {where}, {holder}"
