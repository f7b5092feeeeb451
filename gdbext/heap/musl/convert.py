"""From mallocng's groups and slots to the neutral model: blocks, spans, charges; what an address is in its terms."""

from __future__ import annotations

from typing import List, Optional, Tuple

import numpy as np

from gdbext.heap.model import Blocks, LazyCharges, Span, State
from gdbext.heap.musl.layouts import AREA, SINGLE
from gdbext.heap.musl.model import FREE, IN_USE, NESTED, ODD, Mallocng, Mask
from gdbext.memory.intervals import Intervals, bytes_of, columns, joined, merged, without

_NAMES = {FREE: "free", IN_USE: "in use", NESTED: "a group inside", ODD: "with a header that cannot be one"}


def blocks_of(heap: Mallocng) -> Blocks:
    """Return the blocks in use and the free slots."""
    kept = np.flatnonzero((heap.what != NESTED) & (heap.size > 0) | (heap.what == IN_USE))
    kept = kept[np.argsort(heap.address[kept], kind="stable")]
    alone = heap.groups.sizeclass[heap.group[kept]] == SINGLE
    state = np.where(heap.what[kept] == FREE, State.FREE, np.where(alone, State.MMAPPED, State.IN_USE))
    owner = np.zeros(len(kept), np.uint8)
    return Blocks(heap.address[kept], heap.size[kept], state.astype(np.uint8), owner)  # type: ignore[arg-type]


def spans_of(heap: Mallocng) -> List[Span]:
    """Return what it took from the system, its metas included, and the gaps of modules that it was given."""
    own = _own(heap)
    pieces = [("mmapped" if size == SINGLE else "mmap", start, end) for size, start, end in own]
    pieces += [("brk" if _is_brk(heap, start) else "mmap", start, end) for start, end in metadata_of(heap)]
    return [Span(start, end, kind, 0) for kind, start, end in sorted(pieces, key=lambda piece: piece[1])]


def _own(heap: Mallocng) -> List[Tuple[int, int, int]]:
    groups = heap.groups.select(heap.own)
    return list(zip(groups.sizeclass.tolist(), groups.start.tolist(), groups.end.tolist()))


def _is_brk(heap: Mallocng, address: int) -> bool:
    region = heap.target.index.find(address)
    return region is not None and region.name == "[heap]"


def metadata_of(heap: Mallocng) -> List[Tuple[int, int]]:
    """Return start and end of the areas of metas."""
    return [(at, at + AREA) for at in heap.areas]


def charges_of(heap: Mallocng) -> LazyCharges:
    """Return the ledger's intervals."""
    blocks = (heap.what == IN_USE) | (heap.what == FREE)

    def slots(picked: Mask) -> Intervals:
        return merged((heap.address[picked], heap.address[picked] + heap.size[picked]))

    def used() -> Intervals:
        return slots(heap.what == IN_USE)

    def free() -> Intervals:
        # Of a slot with a group inside, what that one has is the group's.
        apart = bytes_of(*slots(blocks)) == int(heap.size[blocks].sum())
        return slots(heap.what == FREE) if apart else without(slots(heap.what == FREE), used())

    def overhead() -> Intervals:
        ground, taken = columns((start, end) for _, start, end in _own(heap)), slots(blocks)
        # Blocks lie in groups: what is between an end and the next start is in none.
        starts, ends = (np.concatenate(two) for two in ((ground[0], taken[1]), (taken[0], ground[1])))
        starts.sort(kind="stable")
        ends.sort(kind="stable")
        return joined((starts, ends))

    makers = (
        ("in use", used),
        ("free", free),
        ("overhead", overhead),
        ("metadata", lambda: columns(metadata_of(heap))),
    )
    return LazyCharges([(f"musl {owner}", make) for owner, make in makers])


def explain(heap: Mallocng, address: int) -> Optional[str]:
    """Return one line on an address, or None when it is in no group."""
    groups = heap.groups
    inside = np.flatnonzero((groups.start <= np.uint64(address)) & (np.uint64(address) < groups.end))
    if not len(inside):
        return f"in the area of metas {address & -AREA:#x}" if (address & -AREA) in heap.areas else None
    at = int(inside[-1])  # the innermost
    start, count, stride = int(groups.start[at]), int(groups.slots[at]), int(groups.stride[at])
    number = (address - start - 16) // stride
    where = f"group {start:#x} ({count} x {stride} bytes, meta {int(groups.meta[at]):#x})"
    if not 0 <= number < count:
        return f"before or behind the slots of the {where}"
    what = heap.what[int(np.searchsorted(heap.group, at)) + number]
    return f"slot {number} of the {where}, {_NAMES[int(what)]}"
