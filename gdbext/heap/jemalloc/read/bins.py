"""Bins: counters of each small size class beside what its slabs say.

Source: ``bin.h``, ``bin_stats.h``, ``bin_info.h``. All sums over slabs are made at once, for every arena and class.
"""

from __future__ import annotations

from functools import cached_property
from typing import Iterator, Optional, Sequence

import numpy as np

from gdbext.errors import FaultError
from gdbext.heap.jemalloc.layouts import BIN_COUNTERS
from gdbext.heap.jemalloc.model import (
    I64,
    BinInfo,
    BinShard,
    BinState,
    BinStats,
    Extents,
    ExtentState,
    Location,
    Mask,
    StateSum,
)
from gdbext.heap.jemalloc.read.records import Record, fault_problem, read_record
from gdbext.report import Problem
from gdbext.target import Target


def trailing_bytes(location: Location) -> int:
    """Return how many bytes of bins lie behind the arena's structure (5.3)."""
    layout = location.layout
    arena = layout["arena"]
    if layout.bins_are_pointers:
        return 0
    end = arena.offset("bins") + layout["bin"].size * sum(info.shards for info in location.bin_infos)
    return max(end - arena.size, 0)


class BinWalk:
    """Sums over extents: by arena and state, over slabs by arena and size class, over large blocks by arena."""

    def __init__(self, location: Location, extents: Extents) -> None:
        self.nbins, self.lg_page = location.nbins, location.geometry.lg_page
        self.extents = extents
        self.nregs = np.array([*(info.nregs for info in location.bin_infos), 0], np.int64)

    @cached_property
    def _active(self) -> Mask:
        return np.asarray(self.extents.state == ExtentState.ACTIVE)

    @cached_property
    def _slabs(self) -> I64:
        return np.flatnonzero(self._active & self.extents.slab & (self.extents.szind < self.nbins))

    @cached_property
    def _rows(self) -> int:
        return (int(self.extents.arena.max()) if len(self.extents) else 0) + 1

    def _sum(self, slabs: I64, weights: Optional[I64] = None) -> I64:
        slots = self.extents.arena[slabs].astype(np.int64) * self.nbins + self.extents.szind[slabs]
        sums = np.bincount(slots, weights, self._rows * self.nbins)
        return sums.astype(np.int64).reshape(self._rows, self.nbins)

    @cached_property
    def sums(self) -> tuple[I64, ...]:
        """Slabs, full slabs, free regions by count, free regions by bitmap: each by arena and class."""
        nfree = self.extents.nfree[self._slabs].astype(np.int64)
        bits = self.extents.popcount[self._slabs].astype(np.int64)
        return (
            self._sum(self._slabs),
            self._sum(self._slabs[nfree == 0]),
            self._sum(self._slabs, nfree),
            self._sum(self._slabs, bits),
        )

    @cached_property
    def _states(self) -> tuple[I64, I64]:
        """Extents and their pages: each by arena and state."""
        states = len(ExtentState) + 1
        slots = self.extents.arena.astype(np.int64) * states + np.minimum(self.extents.state, states - 1)
        pages = (self.extents.size >> np.uint64(self.lg_page)).astype(np.float64)
        counted = (np.bincount(slots, weights, self._rows * states) for weights in (None, pages))
        extents, pages = (sums.astype(np.int64).reshape(self._rows, states) for sums in counted)
        return extents, pages

    def states(self, arena: int) -> Sequence[StateSum]:
        """Return an arena's extents by state; the last are those of a state that there is not."""
        if arena >= self._rows:
            return [StateSum()] * (len(ExtentState) + 1)
        extents, pages = (sums[arena].tolist() for sums in self._states)
        return [StateSum(*both) for both in zip(extents, pages)]

    @cached_property
    def _large(self) -> tuple[I64, I64]:
        large = np.flatnonzero(self._active & (self.extents.usable > 0))
        arenas = self.extents.arena[large].astype(np.int64)
        counts = np.bincount(arenas, minlength=self._rows)
        usable = np.zeros(self._rows, np.int64)
        np.add.at(usable, arenas, self.extents.usable[large].astype(np.int64))
        return counts, usable

    def large(self, arena: int) -> tuple[int, int]:
        """Return an arena's large blocks and their usable bytes."""
        counts, usable = self._large
        return (int(counts[arena]), int(usable[arena])) if arena < len(counts) else (0, 0)

    def figures(self, arena: int, index: int) -> tuple[int, int, int, int]:
        """Return slabs, full slabs, free regions by count and by bitmap."""
        if arena >= self._rows:
            return 0, 0, 0, 0
        slabs, full, free, bits = (int(table[arena, index]) for table in self.sums)
        return slabs, full, free, bits


def read_bins(
    target: Target,
    location: Location,
    arena: int,
    address: int,
    record: Record,
    walked: BinWalk,
    problems: list[Problem],
) -> tuple[BinState, ...]:
    """Return the bins of one arena; shards that cannot be read are problems and left out.

    :param record: the arena, with the bins that trail it.
    """
    shards: list[list[BinShard]] = [[] for _ in location.bin_infos]
    try:
        for info, shard, place, one in _for_each_bin(target, location, address, record):
            shards[info.index].append(_shard(place, shard, one))
    except FaultError as fault:
        problems.append(fault_problem(target, fault, "bin", fault.message))
    return tuple(_state(info, arena, own, walked) for info, own in zip(location.bin_infos, shards))


def _for_each_bin(
    target: Target, location: Location, address: int, record: Record
) -> Iterator[tuple[BinInfo, int, int, Record]]:
    layout = location.layout
    size = layout["bin"].size
    start = layout["arena"].offset("bins")
    at = 0
    for info in location.bin_infos:
        if layout.bins_are_pointers:
            held = record.element("bins", info.index, layout["bins"])
            first = held.uint("shards")
            table = read_record(target, first, layout["bin"], (info.shards - 1) * size)
        else:
            first, table = (
                address + start + at * size,
                Record(record.data, layout["bin"], record.abi, start + at * size),
            )
        at += info.shards
        for shard in range(info.shards):
            place = shard * size
            yield info, shard, first + place, Record(table.data, layout["bin"], table.abi, table.base + place)


def _shard(address: int, shard: int, record: Record) -> BinShard:
    counters = {name: record.uint(name) for name in BIN_COUNTERS}
    stats = BinStats(**counters, nonfull_slabs=record.find("nonfull_slabs"))
    return BinShard(
        address, shard, record.uint("slabcur"), record.uint("nonfull"), record.uint("full"), stats
    )


def _total(shards: Sequence[BinShard]) -> BinStats:
    sums = {name: sum(getattr(one.stats, name) for one in shards) for name in BIN_COUNTERS}
    nonfull = [one.stats.nonfull_slabs for one in shards]
    known = [count for count in nonfull if count is not None]
    return BinStats(**sums, nonfull_slabs=sum(known) if len(known) == len(nonfull) else None)


def _state(info: BinInfo, arena: int, shards: list[BinShard], walked: BinWalk) -> BinState:
    slabs, full, free, bits = walked.figures(arena, info.index)
    current, current_full = _current(walked.extents, shards)
    return BinState(
        info=info,
        shards=tuple(shards),
        stats=_total(shards),
        slabs=slabs,
        current=current,
        nonfull=slabs - full - (current - current_full),
        full=full - current_full,
        used=slabs * info.nregs - free,
        free=free,
        free_bits=bits,
    )


def _current(extents: Extents, shards: Sequence[BinShard]) -> tuple[int, int]:
    """Return how many shards have a current slab, and how many of those are full."""
    indices = [extents.find_edata(one.slabcur) for one in shards if one.slabcur]
    known = [index for index in indices if index is not None]
    return len(known), sum(int(extents.nfree[index]) == 0 for index in known)
