"""From jemalloc's extents to the neutral model: blocks, spans, charges.

What jemalloc took from the system is extents, the blocks of its bases (metadata), and the huge page slabs that
extents are cut from (5.3, ``hpa``). Extents that overlap the next one are damaged and told as such: left out here.
"""

from __future__ import annotations

from functools import cached_property, partial
from typing import Any, Callable, Sequence, Tuple

import numpy as np

from gdbext.heap.jemalloc.model import I64, U64, ExtentState, Jemalloc, Mask
from gdbext.heap.jemalloc.read.hugepages import huge_pages
from gdbext.heap.jemalloc.read.regions import (
    LazyBlocks,
    large_bytes,
    make_blocks,
    positions,
    region_counts,
    slabs_of,
    sound,
)
from gdbext.heap.model import NO_ARENA, Blocks, LazyCharges, Span, State
from gdbext.memory.intervals import Coverage, Intervals, columns, joined, merged, without


def blocks_of(heap: Jemalloc) -> Blocks:
    """Return the blocks of a heap, which are made when they are first looked at."""
    return LazyBlocks(partial(make_blocks, heap))


class CacheStacks(Sequence[Tuple[int, int]]):
    """The blocks that jemalloc itself allocated for the stacks of thread caches, as start and end.

    What was taken from a stack still stands there: it is no pointer of the program's. Known when first asked for: to
    find the blocks all of them are made.
    """

    def __init__(self, heap: Jemalloc, blocks: Blocks) -> None:
        self._heap, self._blocks = heap, blocks

    @cached_property
    def _found(self) -> Sequence[Tuple[int, int]]:
        tops = {cache.stack for cache in self._heap.tcaches or () if cache.stack is not None}
        places = {self._blocks.find(top) for top in tops} - {None}
        used = [at for at in places if at is not None and self._blocks.state[at] == int(State.IN_USE)]
        rows = ((int(self._blocks.address[at]), int(self._blocks.size[at])) for at in sorted(used))
        return [(start, start + size) for start, size in rows]

    def __len__(self) -> int:
        return len(self._found)

    def __getitem__(self, at: Any) -> Any:
        return self._found[at]


class Territory:
    """What one jemalloc took from the system, as disjoint intervals."""

    def __init__(self, heap: Jemalloc) -> None:
        self.heap = heap

    @cached_property
    def kept(self) -> Mask:
        """The extents that are not damaged."""
        return sound(self.heap)

    def extents(self, picked: Mask) -> Intervals:
        """Return the extents that a mask picks, without damaged ones."""
        chosen = np.flatnonzero(picked & self.kept)
        start = self.heap.extents.address[chosen]
        return start, start + self.heap.extents.size[chosen]

    @cached_property
    def all_extents(self) -> Intervals:
        """Every extent."""
        return self.extents(self.kept)

    @cached_property
    def metadata(self) -> Intervals:
        """The blocks of all bases."""
        pairs = columns((at, at + size) for arena in self.heap.arenas for at, size in arena.base.blocks)
        held = self._mappings.holds_whole(*pairs)
        return without(merged((pairs[0][held], pairs[1][held])), self.all_extents)

    @cached_property
    def huge(self) -> Intervals:
        """What huge pages have beside the extents that lie in them."""
        slabs = huge_pages(self.heap)
        held = self._mappings.holds_whole(*slabs)
        return without(without((slabs[0][held], slabs[1][held]), self.all_extents), self.metadata)

    @cached_property
    def _mappings(self) -> Coverage:
        return Coverage(*joined(columns((region.start, region.end) for region in self.heap.target.index.regions)))


def spans_of(heap: Jemalloc, territory: Territory) -> list[Span]:
    """Return what jemalloc took from the system, sorted; neighbours of one arena and kind are one."""
    place = {arena.index: position for position, arena in enumerate(heap.arenas)}
    owners = positions(heap)
    spans = []
    for owner in np.unique(owners).tolist():
        spans += _spans(joined(territory.extents(owners == owner)), "extents", owner)
    bases = {at: place[arena.index] for arena in heap.arenas for at, _ in arena.base.blocks}
    starts, ends = territory.metadata
    spans += [
        Span(start, end, "base", bases.get(start, NO_ARENA)) for start, end in zip(starts.tolist(), ends.tolist())
    ]
    spans += _spans(joined(territory.huge), "huge pages", NO_ARENA)
    return sorted(spans, key=lambda span: span.start)


def _spans(intervals: Intervals, kind: str, owner: int) -> list[Span]:
    return [Span(start, end, kind, owner) for start, end in zip(*(side.tolist() for side in intervals))]


def _joined(make: Callable[[], Intervals]) -> Intervals:
    return joined(make())


class Charges(LazyCharges):
    """The ledger's intervals."""

    def __init__(self, heap: Jemalloc, blocks: Blocks, territory: Territory) -> None:
        self._heap, self._blocks, self._territory = heap, blocks, territory
        state = self._in_state
        makers: tuple[tuple[str, Callable[[], Intervals]], ...] = (
            ("in use", partial(self._in, State.IN_USE)),
            ("tcache", partial(self._in, State.TCACHE)),
            ("free regions", self._free_regions),
            ("slab and size-class slack", self._slack),
            ("dirty", partial(state, ExtentState.DIRTY)),
            ("muzzy", partial(state, ExtentState.MUZZY)),
            ("retained", partial(state, ExtentState.RETAINED)),
            ("cache of small extents", partial(state, ExtentState.CACHED)),
            ("huge pages (free)", lambda: territory.huge),
            ("base blocks (metadata)", lambda: territory.metadata),
            ("unknown (damaged or in flux)", self._unknown),
        )
        super().__init__([(f"{heap.name} {owner}", partial(_joined, make)) for owner, make in makers])

    def _in(self, state: State) -> Intervals:
        chosen = np.flatnonzero(self._blocks.state == int(state))
        start = self._blocks.address[chosen]
        return start, start + self._blocks.size[chosen]

    def _free_regions(self) -> Intervals:
        """Free blocks that are no extents of HPA's cache."""
        start, end = self._in(State.FREE)
        cached = self._territory.extents(self._heap.extents.state == ExtentState.CACHED)[0]
        own = ~np.isin(start, cached)
        return start[own], end[own]

    def _in_state(self, state: ExtentState) -> Intervals:
        return self._territory.extents(self._heap.extents.state == state)

    @cached_property
    def _slabs(self) -> I64:
        return np.flatnonzero(slabs_of(self._heap) & self._territory.kept)

    @cached_property
    def _large(self) -> I64:
        return np.flatnonzero((self._heap.extents.usable > 0) & self._territory.kept)

    def _slack(self) -> Intervals:
        """What slabs have behind their last region, and extents around their large block."""
        extents, slabs, large = self._heap.extents, self._slabs, self._large
        regions = np.array([info.reg_size for info in self._heap.location.bin_infos], np.uint64)
        taken = region_counts(self._heap, slabs).astype(np.uint64) * regions[extents.szind[slabs]]
        pointer = extents.pointer[large]
        starts = (extents.address[slabs] + taken, extents.address[large], pointer + large_bytes(extents, large))
        ends = (_ends(self._heap, slabs), pointer, _ends(self._heap, large))
        return np.concatenate(starts), np.concatenate(ends)

    def _unknown(self) -> Intervals:
        """Extents in transition, and active ones that are neither a slab nor a large block."""
        extents = self._heap.extents
        named = slabs_of(self._heap) | (extents.usable > 0)
        named |= (extents.state != ExtentState.ACTIVE) & (extents.state <= ExtentState.RETAINED)
        return self._territory.extents(~named & (extents.state != ExtentState.CACHED))


def _ends(heap: Jemalloc, picked: I64) -> U64:
    ends: U64 = heap.extents.address[picked] + heap.extents.size[picked]
    return ends
