"""What must hold of any jemalloc: how a candidate, however it was found, is believed or refused.

``arenas[i]->base->ind == i``; the radix tree leads from a slab's address to the slab's extent; the table of small
size classes is the one that the source computes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Iterable, Optional, Sequence

import numpy as np

from gdbext.errors import FaultError
from gdbext.heap.jemalloc.layouts import Layout
from gdbext.heap.jemalloc.model import U64, BinInfo, Geometry
from gdbext.heap.jemalloc.read.records import Record, gather, read_record
from gdbext.heap.jemalloc.read.rtree import find_extent
from gdbext.heap.jemalloc.sizes import size_classes, slab_size
from gdbext.memory.bulk import words_at
from gdbext.target import Target

MOST_ARENAS = (1 << 12) - 1  # MALLOCX_ARENA_LIMIT
_SAMPLE = 64  # slabs that are looked up in the radix tree
_MOST_INDEX = 1 << 12


@dataclass(frozen=True)
class Slots:
    """The array of arenas under one layout.

    :param addresses: of the arenas by index; 0 for none.
    :param sound: indices whose ``base->ind`` is their own.
    :param broken: indices of others that are not 0.
    :param absent: indices of those that the target does not hold.
    """

    addresses: U64
    sound: tuple[int, ...]
    broken: tuple[int, ...]
    absent: tuple[int, ...] = ()

    @property
    def holds(self) -> bool:
        """Whether this is an array of arenas: most slots in use are sound, the first or two others among them."""
        return len(self.sound) > len(self.broken) and (0 in self.sound or len(self.sound) > 1)


def read_slots(target: Target, arenas: int, limit: int, layout: Layout) -> Optional[Slots]:
    """Return the slots of ``arenas[limit]``, or None when the array cannot be read."""
    try:
        addresses = words_at(target.memory, target.abi, arenas, min(limit, MOST_ARENAS))
    except FaultError:
        return None
    used = np.flatnonzero(addresses)
    right = arena_indices(target, addresses[used], layout) == used
    others = used[~right].tolist()
    absent = tuple(index for index in others if _lacks_arena(target, int(addresses[index]), layout))
    broken = tuple(index for index in others if index not in absent)
    return Slots(addresses, tuple(used[right].tolist()), broken, absent)


def _lacks_arena(target: Target, arena: int, layout: Layout) -> bool:
    """Whether an arena, or the base that it names, is mapped but not in the target."""
    if target.lacks(arena, layout["arena"].size):
        return True
    try:
        base = layout["arena"].read(target.reader, arena, "base")
    except FaultError:
        return False
    return target.lacks(base, layout["base"].size)


def arena_indices(target: Target, arenas: U64, layout: Layout) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    """Return ``base->ind`` of each arena, -1 where it cannot be read."""
    bases = follow(target, arenas, layout["arena"].offset("base"))
    ind = layout["base"].member("ind")
    low = ind.offset & ~7
    words = follow(target, bases, low, missing=2**64 - 1)
    shift = np.uint64(8 * (ind.offset - low))
    values = (words >> shift) & np.uint64(0xFFFFFFFF)
    return (
        np.where((words != 2**64 - 1) & (values < _MOST_INDEX), values, 2**63)
        .astype(np.uint64)
        .view(np.int64)
    )


def follow(target: Target, addresses: U64, offset: int, missing: int = 0) -> U64:
    """Return the word at ``offset`` from each address, ``missing`` where it cannot be read."""
    order = np.argsort(addresses, kind="stable")
    rows, known = gather(target, addresses[order], [offset])
    values = np.empty(len(addresses), np.uint64)
    values[order] = np.where(known, rows[:, 0], np.uint64(missing))
    return values


def current_slabs(target: Target, arenas: Iterable[int], layout: Layout) -> U64:
    """Return extents that bins of these arenas hold as current slabs: up to a sample's number."""
    found: dict[int, None] = {}
    for arena in arenas:
        for at in _bin_addresses(target, arena, layout):
            try:
                slab = layout["bin"].read(target.reader, at, "slabcur")
            except FaultError:
                continue
            if slab:
                found[slab] = None
        if len(found) >= _SAMPLE:
            break
    return np.array(sorted(found)[:_SAMPLE], np.uint64)


def _bin_addresses(target: Target, arena: int, layout: Layout) -> Sequence[int]:
    first = arena + layout["arena"].offset("bins")
    if not layout.bins_are_pointers:
        return [first + index * layout["bin"].size for index in range(layout.nbins)]
    try:
        return [address for address in target.reader.words(first, layout.nbins, "jemalloc's bins") if address]
    except FaultError:
        return []


@dataclass(frozen=True)
class Votes:
    """How many extents the radix tree leads back to, leads elsewhere for, and says nothing of for want of memory."""

    back: int
    elsewhere: int
    absent: int

    @property
    def holds(self) -> bool:
        """Whether the tree is one, as far as it can be seen."""
        return self.back > self.elsewhere or not self.back + self.elsewhere


def count_mapped_back(target: Target, root: int, geometry: Geometry, layout: Layout, extents: U64) -> Votes:
    """Look extents up in the radix tree by their addresses."""
    rows, known = gather(target, extents, [layout["extent"].offset("address")])
    back, absent = 0, int((~known).sum())
    for extent, address in zip(extents[known].tolist(), rows[known, 0].tolist()):
        try:
            back += find_extent(target, root, geometry, layout, address) == extent
        except FaultError as fault:
            absent += target.lacks(fault.address, fault.size)
    return Votes(back, len(extents) - back - absent, absent)


def compute_bin_infos(layout: Layout, page: int = 4096) -> tuple[BinInfo, ...]:
    """Return the small size classes as the source computes them, one shard each (``size_classes.sh``, ``sc.c``)."""
    sizes = enumerate(size_classes(layout.nbins))
    return tuple(
        BinInfo(index, size, slab_size(size, page), slab_size(size, page) // size) for index, size in sizes
    )


def read_bin_infos(target: Target, address: int, layout: Layout) -> Optional[tuple[BinInfo, ...]]:
    """Return the table of small size classes at an address, or None when there is none."""
    info = layout["bin_info"]
    sizes = size_classes(layout.nbins)
    try:
        table = read_record(target, address, info, (layout.nbins - 1) * info.size)
    except FaultError:
        return None
    found = []
    for index, size in enumerate(sizes):
        one = Record(table.data, info, table.abi, index * info.size)
        known = BinInfo(
            index, one.uint("reg_size"), one.uint("slab_size"), one.uint("nregs"), one.find("n_shards") or 1
        )
        if known.reg_size != size or known.nregs != known.slab_size // size or not 0 < known.shards <= 64:
            return None
        found.append(known)
    return tuple(found)
