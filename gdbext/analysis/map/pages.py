"""What each page of some stretches of memory is, for all of them at once.

A page has one state: in a heap ``used`` beats ``cached`` beats ``free``, so a page is free only where nothing in it is
in use. Of a stretch too long for that a *unit* of several pages stands in the place of a page.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import Iterable, Iterator, Sequence, Tuple

import numpy as np

from gdbext.analysis.footprint.ledger import coverage_of, memory_of, region_owners
from gdbext.heap.model import CACHED_STATES, FREE_STATES, U8, U64, USED_STATES, Heap, Mask, State
from gdbext.memory import Region, for_each_written
from gdbext.memory.intervals import I64, Coverage, columns, joined, merged
from gdbext.report import Memory
from gdbext.target import Target

_MOST_UNITS = 1 << 22


class Use(IntEnum):
    """What a page is; the names are those that reports print (lower case)."""

    USED = 0  # a block in use lies in it
    CACHED = 1  # blocks in thread caches, and none in use
    FREE = 2  # free blocks alone; its memory is there
    RETURNED = 3  # free, and its memory went back to the system
    UNTOUCHED = 4  # of a block in use, a top, a stack: never written to
    OVERHEAD = 5  # the allocator's own
    FILE = 6
    STACK = 7
    ANONYMOUS = 8
    RESERVED = 9
    MISSING = 10  # not in the core

    @property
    def label(self) -> str:
        """The word of reports."""
        return self.name.lower()


_OF_MEMORY = {
    Memory.FILE: Use.FILE,
    Memory.STACK: Use.STACK,
    Memory.RESERVED: Use.RESERVED,
}
# Kinds of blocks, from the one that others beat; what a page is where its memory is there, and where it is not.
_KINDS: Sequence[Tuple[Sequence[State], Use, Use]] = (
    ((State.TOP,), Use.FREE, Use.UNTOUCHED),
    (tuple(state for state in FREE_STATES if state is not State.TOP), Use.FREE, Use.RETURNED),
    (CACHED_STATES, Use.CACHED, Use.RETURNED),
    (USED_STATES, Use.USED, Use.UNTOUCHED),
)


@dataclass(frozen=True)
class Units:
    """The pages of stretches one after the other.

    :param starts: first address of each stretch; they are sorted and disjoint.
    :param ends: first addresses after them.
    :param unit: bytes of a page, or of what stands in its place; a power of two.
    :param first: of each stretch its first unit, and at last how many there are.
    """

    starts: U64
    ends: U64
    unit: int
    first: I64

    @staticmethod
    def of(starts: U64, ends: U64, page: int) -> Units:
        """Return the units of stretches, larger than a page where there would be millions.

        :param page: bytes.
        """
        unit = page
        while _count(starts, ends, unit).sum() > _MOST_UNITS and unit < 1 << 62:
            unit *= 2
        first = np.concatenate((np.zeros(1, np.int64), np.cumsum(_count(starts, ends, unit))))
        return Units(starts, ends, unit, first)

    def __len__(self) -> int:
        return int(self.first[-1])

    def index(self, addresses: U64) -> I64:
        """Return the unit of each address, which lies in a stretch."""
        part = np.searchsorted(self.starts, addresses, side="right") - 1
        within = (addresses - self.starts[part]) >> np.uint64(self.unit.bit_length() - 1)
        found: I64 = self.first[part] + within.astype(np.int64)
        return found

    def bounds(self) -> Tuple[U64, U64]:
        """Return the first address of each unit, and the first after it."""
        counts = np.diff(self.first)
        within = (np.arange(len(self)) - np.repeat(self.first[:-1], counts)).astype(np.uint64)
        start = np.repeat(self.starts, counts) + within * np.uint64(self.unit)
        return start, np.minimum(start + np.uint64(self.unit), np.repeat(self.ends, counts))

    def touched(self, starts: U64, ends: U64) -> Mask:
        """Return which units any of these intervals overlaps, each as far as the first stretch that it meets."""
        change = np.zeros(len(self) + 1, np.int32)
        low, high = self._clipped(starts, ends)
        if len(low):
            np.add.at(change, self.index(low), 1)
            np.add.at(change, self.index(high - np.uint64(1)) + 1, -1)
        covered: Mask = np.cumsum(change[:-1]) > 0
        return covered

    def _clipped(self, starts: U64, ends: U64) -> Tuple[U64, U64]:
        """Return the intervals within the first stretch that each meets; those that meet none are left out."""
        if not len(self.starts):
            return starts[:0], ends[:0]
        part = np.searchsorted(self.ends, starts, side="right")
        inside = part < len(self.starts)
        part = np.minimum(part, len(self.starts) - 1)
        low, high = np.maximum(starts, self.starts[part]), np.minimum(ends, self.ends[part])
        inside &= high > low
        return low[inside], high[inside]


def _count(starts: U64, ends: U64, unit: int) -> I64:
    counts: I64 = -(-(ends - starts).astype(np.int64) // unit)
    return counts


def uses_of(target: Target, heaps: Sequence[Heap], units: Units) -> U8:
    """Return what each unit is, as a :class:`Use`."""
    starts, ends = units.bounds()
    present = units.touched(*_present(target, units))
    regions = target.memory.regions()
    region = coverage_of(regions).index(starts)
    uses = _by_mapping(target, regions, region, present)
    for heap in heaps:
        _mark_heap(uses, heap, starts, ends, present)
    absent = np.array([*(one.source == "absent" for one in regions), False])
    uses[absent[region] & (uses != Use.FILE) & (uses != Use.RESERVED)] = Use.MISSING
    return uses


def _by_mapping(target: Target, regions: Sequence[Region], region: I64, present: Mask) -> U8:
    """Return what each unit is but for heaps.

    :param region: position of each unit's mapping, -1 for none.
    """
    kinds = [_OF_MEMORY.get(memory_of(owner), Use.ANONYMOUS) for owner in region_owners(target, regions)]
    uses: U8 = np.array([*kinds, Use.RESERVED], np.uint8)[region]
    uses[~present & ((uses == Use.ANONYMOUS) | (uses == Use.STACK))] = Use.UNTOUCHED
    return uses


def _present(target: Target, units: Units) -> Tuple[U64, U64]:
    """Return what may hold anything that the target wrote."""
    pairs = zip(units.starts.tolist(), units.ends.tolist())
    return columns(piece for start, end in pairs for piece in _pieces(target, start, end))


def _pieces(target: Target, start: int, end: int) -> Iterator[Tuple[int, int]]:
    for region in target.index.within(start, end):
        if region.source != "absent":
            yield from for_each_written(target.memory, max(start, region.start), min(end, region.end))


def _mark_heap(uses: U8, heap: Heap, starts: U64, ends: U64, present: Mask) -> None:
    spans = stretches((span.start, span.end) for span in heap.spans)
    mine = spans.holds(starts)
    uses[mine] = np.where(present[mine], Use.OVERHEAD, Use.RETURNED)
    uses[stretches(heap.reserves).holds(starts) & ~mine] = Use.RESERVED
    met = _met(heap, starts, ends)
    for bit, (_, there, gone) in enumerate(_KINDS):
        covered = (met >> bit & 1).astype(np.bool_)
        uses[covered & present] = there
        uses[covered & ~present] = gone


def _met(heap: Heap, starts: U64, ends: U64) -> U8:
    """Return which of :data:`_KINDS`, as bits, have blocks in each unit.

    Blocks are disjoint and in order: those that begin in a unit follow each other, and one before may go on into it.
    """
    blocks, bits = heap.blocks, np.append(_bits_of_states()[heap.blocks.state], np.uint8(0))
    low, high = np.searchsorted(blocks.address, starts), np.searchsorted(blocks.address, ends)
    met: U8 = np.bitwise_or.reduceat(bits, np.stack((low, high), axis=1).ravel())[::2] if len(starts) else bits[:0]
    met[low >= high] = 0
    before = np.flatnonzero(low > 0)
    last = low[before] - 1
    within = blocks.size[last] > starts[before] - blocks.address[last]
    met[before[within]] |= bits[last[within]]
    return met


def _bits_of_states() -> U8:
    bits = np.zeros(256, np.uint8)
    for bit, (states, _, _) in enumerate(_KINDS):
        bits[[int(state) for state in states]] = 1 << bit
    return bits


def stretches(pairs: Iterable[Tuple[int, int]]) -> Coverage:
    """Return intervals in order, those that overlap or touch as one."""
    return Coverage(*joined(merged(columns(pairs))))
