"""Blocks of a jemalloc: every region of every slab, every large block, every unused extent.

A slab's regions lie one behind the other from its first page on; a set bit of its bitmap means free (``bitmap.h``,
``arena_slab_reg_alloc``). What a thread cache holds is in use by the bitmap.
"""

from __future__ import annotations

from functools import cached_property
from typing import Callable, Iterator, Mapping, Sequence

import numpy as np

from gdbext.heap.jemalloc.model import (
    I64,
    U8,
    U32,
    U64,
    BinInfo,
    Extents,
    ExtentState,
    Jemalloc,
    Mask,
    ThreadCache,
)
from gdbext.heap.jemalloc.read.records import gather
from gdbext.heap.model import NO_ARENA, Blocks, State
from gdbext.kernels import slab_regions
from gdbext.memory.intervals import Coverage, columns, joined
from gdbext.report import Problem
from gdbext.wording import count_text

_AT_A_TIME = 1 << 18  # regions that are laid out together
WHOLE = {
    ExtentState.DIRTY: State.DIRTY,
    ExtentState.MUZZY: State.MUZZY,
    ExtentState.CACHED: State.FREE,
}


class LazyBlocks(Blocks):
    """Blocks that are made when they are first looked at: jemalloc's own commands need none."""

    def __init__(self, make: Callable[[], Blocks]) -> None:
        object.__setattr__(self, "_make", make)

    @cached_property
    def _made(self) -> Blocks:
        make: Callable[[], Blocks] = self.__dict__["_make"]
        return make()

    @property
    def address(self) -> U64:
        """As in :class:`Blocks`."""
        return self._made.address

    @property
    def size(self) -> U64:
        """As in :class:`Blocks`."""
        return self._made.size

    @property
    def state(self) -> U8:
        """As in :class:`Blocks`."""
        return self._made.state

    @property
    def owner(self) -> U32:
        """As in :class:`Blocks`."""
        return self._made.owner


def sound(heap: Jemalloc) -> Mask:
    """Return the extents that end before the next begins and lie in mapped memory: the others are left out."""
    return apart(heap.extents) & ~unmapped(heap)


def apart(extents: Extents) -> Mask:
    """Return the extents that end before the next begins: the others are damaged, and told as such."""
    kept = np.ones(len(extents), np.bool_)
    if len(extents) > 1:
        kept[:-1] = (extents.address + extents.size)[:-1] <= extents.address[1:]
    return kept


def unmapped(heap: Jemalloc) -> Mask:
    """Return the extents that no mappings hold, or not wholly."""
    mappings = joined(columns((region.start, region.end) for region in heap.target.index.regions))
    return ~Coverage(*mappings).holds_whole(heap.extents.address, heap.extents.address + heap.extents.size)


def check_mapped(heap: Jemalloc) -> list[Problem]:
    """Return one problem where extents that jemalloc counts as present lie in no mapping.

    What is left of a region that guarded extents were cut from is unmapped, and still has its ``edata_t``.
    """
    lost = unmapped(heap) & ~np.isin(heap.extents.state, (int(ExtentState.RETAINED), int(ExtentState.TRANSITION)))
    if not lost.any():
        return []
    at = int(heap.extents.address[lost][0])
    what = f"{count_text(int(lost.sum()), 'extent')}, the first at {at:#x}, where nothing is mapped"
    return [Problem("extent", at, f"{what}: not among the blocks", corruption=True)]


def slabs_of(heap: Jemalloc) -> Mask:
    """Return which extents are slabs of a small size class."""
    extents = heap.extents
    active = extents.state == ExtentState.ACTIVE
    slabs: Mask = extents.slab & active & (extents.szind < heap.location.nbins)
    return slabs


def region_counts(heap: Jemalloc, slabs: I64) -> I64:
    """Return how many regions each slab has, as far as its pages reach.

    :param slabs: indices of extents that are slabs of a small size class.
    """
    infos = heap.location.bin_infos
    classes = heap.extents.szind[slabs]
    nregs = np.array([info.nregs for info in infos], np.int64)[classes]
    sizes = np.array([info.reg_size for info in infos], np.int64)[classes]
    fitting: I64 = np.minimum(nregs, heap.extents.size[slabs].astype(np.int64) // sizes)
    return fitting


def positions(heap: Jemalloc) -> U32:
    """Return the position in ``heap.arenas`` of each extent's arena, :data:`NO_ARENA` where there is none."""
    table = np.full(1 << 16, NO_ARENA, np.uint32)
    for position, arena in enumerate(heap.arenas):
        table[arena.index] = position
    owners: U32 = table[heap.extents.arena]
    return owners


def make_blocks(heap: Jemalloc) -> Blocks:
    """Return the blocks of a heap, by address. Retained extents are none: nothing is handed out from there."""
    extents = heap.extents
    kept = sound(heap)
    slabs = np.flatnonzero(slabs_of(heap) & kept)
    counts = np.zeros(len(extents), np.int64)
    counts[slabs] = region_counts(heap, slabs)
    large = np.flatnonzero(kept & (extents.usable > 0))
    whole = np.flatnonzero(kept & np.isin(extents.state, list(WHOLE)))
    counts[large] = counts[whole] = 1
    first = np.cumsum(counts) - counts
    blocks = _empty(int(counts.sum()))
    blocks.owner[:] = np.repeat(positions(heap), counts)
    for szind in np.unique(extents.szind[slabs]).tolist():
        info = heap.location.bin_infos[szind]
        _lay_slabs(heap, info, slabs[extents.szind[slabs] == szind], counts, first, blocks)
    _lay_large(extents, large, first[large], blocks)
    _lay_whole(extents, whole, first[whole], blocks)
    _mark_cached(heap.tcaches or (), blocks)
    return blocks


def _empty(count: int) -> Blocks:
    return Blocks(
        np.empty(count, np.uint64),
        np.empty(count, np.uint64),
        np.empty(count, np.uint8),
        np.empty(count, np.uint32),
    )


def _lay_slabs(heap: Jemalloc, info: BinInfo, slabs: I64, counts: I64, first: I64, blocks: Blocks) -> None:
    """Fill in the regions of the slabs of one size class."""
    for part in _parts(slabs[np.argsort(heap.extents.edata[slabs])], max(1, _AT_A_TIME // info.nregs)):
        number, region = counts[part], np.full(len(part), info.reg_size, np.uint64)
        bitmaps = _bitmaps(heap, info, part)
        address, free = slab_regions(heap.extents.address[part], region, number.astype(np.uint32), bitmaps)
        place = np.repeat(first[part] - (np.cumsum(number) - number), number) + np.arange(len(address))
        blocks.address[place] = address
        blocks.size[place] = info.reg_size
        blocks.state[place] = np.where(free, np.uint8(State.FREE), np.uint8(State.IN_USE))


def _parts(whole: I64, step: int) -> Iterator[I64]:
    for low in range(0, len(whole), step):
        yield whole[low : low + step]


def _bitmaps(heap: Jemalloc, info: BinInfo, slabs: I64) -> U64:
    """Return the words of each slab's bitmap, a row each, as many as its regions need.

    Where the layout has fewer, the others are zeros: these regions count as used.

    :param slabs: indices of extents, sorted by the addresses of their ``extent_t``.
    """
    member = heap.location.layout["extent"].member("bitmap")
    needed = -(-info.nregs // 64)
    groups = min(needed, member.count or 8)
    rows, _ = gather(
        heap.target, heap.extents.edata[slabs], [member.offset + 8 * at for at in range(groups)]
    )
    return rows if groups == needed else np.pad(rows, ((0, 0), (0, needed - groups)))


def _lay_large(extents: Extents, large: I64, places: I64, blocks: Blocks) -> None:
    blocks.address[places] = extents.pointer[large]
    blocks.size[places] = large_bytes(extents, large)
    blocks.state[places] = int(State.IN_USE)


def large_bytes(extents: Extents, large: I64) -> U64:
    """Return the usable bytes of large blocks, as far as their extents reach."""
    room = extents.address[large] + extents.size[large] - extents.pointer[large]
    usable: U64 = np.minimum(extents.usable[large], room)
    return usable


def _lay_whole(extents: Extents, whole: I64, places: I64, blocks: Blocks) -> None:
    blocks.address[places] = extents.address[whole]
    blocks.size[places] = extents.size[whole]
    blocks.state[places] = _mapped_states(WHOLE)[extents.state[whole]]


def _mapped_states(states: Mapping[ExtentState, State]) -> U8:
    table = np.full(256, int(State.FREE), np.uint8)
    for extent, block in states.items():
        table[int(extent)] = int(block)
    return table


def _mark_cached(caches: Sequence[ThreadCache], blocks: Blocks) -> None:
    """Mark the blocks in use that thread caches hold; other pointers in there are for ``check``."""
    objects = [one.objects for cache in caches for one in cache.bins]
    if not objects or not len(blocks):
        return
    cached = np.concatenate(objects)
    at = np.minimum(np.searchsorted(blocks.address, cached), len(blocks) - 1)
    held = at[(blocks.address[at] == cached) & (blocks.state[at] == int(State.IN_USE))]
    blocks.state[held] = int(State.TCACHE)
