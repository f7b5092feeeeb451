"""What arenas, caches, bins and slabs count, against what the radix tree holds.

Source: ``arena_stats.h``, ``base.c``, ``bin_stats.h``, ``eset.c``, ``pac.h``, ``edata.h``; before 5.3 ``extent.c`` and
``extent_structs.h``.
"""

from __future__ import annotations

from functools import reduce
from math import gcd
from typing import Iterator, Sequence

import numpy as np

from gdbext.heap.jemalloc.check.flux import Flux
from gdbext.heap.jemalloc.model import ArenaState, BinState, Extents, ExtentState, Jemalloc
from gdbext.report import Problem

_TOLD = 20
_BITS = 64
_HUGE_PAGE = 2 << 20  # no machine with smaller ones is known, unless its jemalloc has blocks that are no multiple


def check_slabs(heap: Jemalloc, flux: Flux) -> Iterator[Problem]:
    """Iterate over slabs whose count of free regions is not what their bitmap says, or whose size is wrong."""
    extents, infos = heap.extents, heap.location.bin_infos
    slabs = np.flatnonzero(extents.slab & (extents.state == int(ExtentState.ACTIVE)) & (extents.szind < len(infos)))
    words = heap.location.layout["extent"].member("bitmap").count or 1
    whole = np.array([info.nregs <= words * _BITS for info in infos] or [False])  # a table of another page size
    szind = extents.szind[slabs]
    wrong = slabs[(extents.nfree[slabs] != extents.popcount[slabs]) & whole[szind]]
    for at in wrong[:_TOLD].tolist():
        where = _slab(heap, at)
        message = f"{where} counts {int(extents.nfree[at])} free regions, its bitmap has {int(extents.popcount[at])}"
        reason = flux.of_bin(int(extents.arena[at]), int(extents.szind[at]))
        yield flux.problem("slab-count", int(extents.edata[at]), message, reason)
    if len(wrong) > _TOLD:
        first = int(extents.edata[wrong[_TOLD]])
        message = f"{len(wrong) - _TOLD} more slabs, the first {first:#x}, count other free regions than their bitmaps"
        yield flux.problem("slab-count", first, message, flux.inside)
    sizes = np.array([info.slab_size for info in infos] or [0], np.uint64)
    for at in slabs[extents.size[slabs] != sizes[szind]][:_TOLD].tolist():
        wanted = int(sizes[extents.szind[at]])
        message = f"{_slab(heap, at)} has {int(extents.size[at])} bytes, its class has slabs of {wanted}"
        yield flux.problem("extent", int(extents.edata[at]), message, "")


def _slab(heap: Jemalloc, at: int) -> str:
    extents = heap.extents
    size = heap.location.bin_infos[int(extents.szind[at])].reg_size
    where = f"{int(extents.edata[at]):#x} (for {int(extents.address[at]):#x})"
    return f"slab {where} of {size}-byte regions, arena {int(extents.arena[at])},"


def check_states(heap: Jemalloc, flux: Flux) -> Iterator[Problem]:
    """Iterate over extents whose state is none that there is."""
    extents = heap.extents
    field = heap.location.layout.fields(heap.location.geometry.lg_page)["state"]
    wrong = np.flatnonzero(field.take(extents.bits) > np.uint64(int(ExtentState.MERGING)))
    for at in wrong[:_TOLD].tolist():
        state = int(field.take(int(extents.bits[at])))
        place = int(extents.edata[at])
        message = f"extent {place:#x} (for {int(extents.address[at]):#x}) is in state {state}, which there is not"
        yield flux.problem("extent", place, message, "")


def check_counts(heap: Jemalloc, flux: Flux) -> Iterator[Problem]:
    """Iterate over counters of arenas that are not what the radix tree has."""
    large = LargeWalk(heap.extents, heap.location.nbins, heap.location.layout.nsizes)
    for arena in heap.arenas:
        yield from _pages(arena, flux)
        yield from _caches(arena, flux)
        if arena.stats:
            for one in arena.bins:
                yield from _bin(arena, one, flux)
            yield from _large(arena, large, flux)


def _pages(arena: ArenaState, flux: Flux) -> Iterator[Problem]:
    for state, counted in (
        (ExtentState.ACTIVE, arena.nactive),
        (ExtentState.DIRTY, arena.dirty.npages),
        (ExtentState.MUZZY, arena.muzzy.npages),
        (ExtentState.RETAINED, arena.retained.npages),
    ):
        found = arena.walked[state].pages
        if counted != found:
            message = f"arena {arena.index} counts {counted} {state.label} pages, the radix tree has {found}"
            yield flux.problem("extent-count", arena.address, message, flux.of_pages(arena.index))


def _caches(arena: ArenaState, flux: Flux) -> Iterator[Problem]:
    if not arena.stats:
        return
    for name, cache, state in (
        ("dirty", arena.dirty, ExtentState.DIRTY),
        ("muzzy", arena.muzzy, ExtentState.MUZZY),
        ("retained", arena.retained, ExtentState.RETAINED),
    ):
        walked = arena.walked[state]
        size = walked.pages * arena.page
        for what, counted, found in (("extents", cache.nextents, walked.extents), ("bytes", cache.nbytes, size)):
            if counted is not None and counted != found:
                of = f"{name} extents" if what == "extents" else f"bytes of {name} extents"
                message = f"arena {arena.index} counts {counted} {of}, the radix tree has {found}"
                yield flux.problem("extent-count", cache.address, message, flux.of_pages(arena.index))


def _bin(arena: ArenaState, one: BinState, flux: Flux) -> Iterator[Problem]:
    stats = one.stats
    rows: Sequence[tuple[str, int | None, int]] = (
        ("regions in use", stats.curregs, one.used),
        ("slabs", stats.curslabs, one.slabs),
        ("slabs not full", stats.nonfull_slabs, one.nonfull),
    )
    for what, counted, found in rows:
        if counted is not None and counted != found:
            where = f"bin {one.info.index} ({one.info.reg_size} bytes) of arena {arena.index}"
            message = f"{where} counts {counted} {what}, its slabs say {found}"
            place = one.shards[0].address if one.shards else None
            yield flux.problem("bin-count", place, message, flux.of_bin(arena.index, one.info.index))


def check_bases(heap: Jemalloc, flux: Flux) -> Iterator[Problem]:
    """Iterate over arenas whose own data has more bytes allocated than resident, or resident than mapped."""
    for arena in heap.arenas:
        base = arena.base
        huge = reduce(gcd, (size for _, size in base.blocks), _HUGE_PAGE)
        thp = None if base.n_thp is None else base.n_thp * huge
        for few, what, many, of in (
            (base.allocated, "allocated", base.resident, "resident"),
            (base.resident, "resident", base.mapped, "mapped"),
            (thp, "in huge pages", base.mapped, "mapped"),
        ):
            if few is not None and many is not None and few > many:
                message = f"the base of arena {arena.index} counts {few} bytes {what}, and only {many} {of}"
                yield flux.problem("base", base.address, message, flux.of_base(base.address))


class LargeWalk:
    """Large blocks by arena and size class. A small block that is sampled by the profiler is counted in the first."""

    def __init__(self, extents: Extents, nbins: int, nsizes: int) -> None:
        mask = (extents.state == int(ExtentState.ACTIVE)) & ~extents.slab
        szind = np.clip(extents.szind[mask], nbins, nsizes).astype(np.int64)
        self.nsizes = nsizes
        keys = extents.arena[mask].astype(np.int64) * (nsizes + 1) + szind
        self.counts = np.bincount(keys)

    def of_arena(self, arena: int) -> dict[int, int]:
        """Return the counts of one arena by class."""
        row = self.counts[arena * (self.nsizes + 1) : (arena + 1) * (self.nsizes + 1)]
        return {int(szind): int(row[szind]) for szind in np.flatnonzero(row)}


def _large(arena: ArenaState, large: LargeWalk, flux: Flux) -> Iterator[Problem]:
    counted = {one.szind: one.current for one in arena.large}
    walked = large.of_arena(arena.index)
    for szind in sorted({*counted, *walked}):
        ours, theirs = walked.get(szind, 0), counted.get(szind, 0)
        if ours != theirs:
            message = f"arena {arena.index} counts {theirs} large blocks of class {szind}, the radix tree has {ours}"
            yield flux.problem("large-count", arena.address, message, flux.of_large(arena.index))


def check_current(heap: Jemalloc, flux: Flux) -> Iterator[Problem]:
    """Iterate over bins whose current slab is none of theirs."""
    for arena in heap.arenas:
        for one in arena.bins:
            for shard in one.shards:
                wrong = _not_own(heap.extents, arena.index, one.info.index, shard.shard, shard.slabcur)
                if shard.slabcur and wrong:
                    where = f"bin {one.info.index} ({one.info.reg_size} bytes) of arena {arena.index}"
                    message = f"the current slab of {where} is {shard.slabcur:#x}, {wrong}"
                    reason = flux.of_bin(arena.index, one.info.index)
                    yield flux.problem("bin-slab", shard.address, message, reason)


def _not_own(extents: Extents, arena: int, szind: int, shard: int, slab: int) -> str:
    at = extents.find_edata(slab)
    if at is None:
        return "which is no extent"
    if not extents.slab[at] or extents.state[at] != ExtentState.ACTIVE:
        return "which is no slab in use"
    own = (int(extents.arena[at]), int(extents.szind[at]), int(extents.shard[at]))
    return "" if own == (arena, szind, shard) else f"a slab of arena {own[0]}, class {own[1]}"
