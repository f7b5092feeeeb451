"""What thread caches hold: regions of slabs in use, or large blocks, of their class, and each once.

A cached object is in use as its slab sees it (``arena.c``: ``arena_slab_reg_dalloc`` clears what a flush gives back).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Iterator, Sequence

import numpy as np

from gdbext.heap.jemalloc.check.flux import Flux
from gdbext.heap.jemalloc.model import I64, NO_EXTENT, U64, ExtentState, Jemalloc, Mask, ThreadCache
from gdbext.heap.jemalloc.read.records import gather
from gdbext.report import Problem

_TOLD = 20


@dataclass(frozen=True, eq=False)
class Cached:
    """Every cached object of a heap, one row each.

    :param cache: position of its cache.
    :param extent: index of the extent that holds it, or :data:`NO_EXTENT`.
    :param region: its number within its slab, -1 where it is none.
    """

    heap: Jemalloc
    caches: Sequence[ThreadCache]
    address: U64
    szind: I64
    cache: I64
    extent: I64
    region: I64

    def name(self, at: int) -> str:
        """Return an object as problems name it."""
        size = self.heap.location.sizes[int(self.szind[at])]
        return f"{int(self.address[at]):#x} in the class of {size} bytes of {cache_name(self.caches[self.cache[at]])}"


def cache_name(cache: ThreadCache) -> str:
    """Return a cache as problems name it."""
    ref = cache.thread
    if ref is None:
        return f"the thread cache at {cache.address:#x}"
    names = [f"thread {ref.number}" if ref.number is not None else f"thread {ref.lwp}", ref.name and f"({ref.name})"]
    return " ".join(word for word in names if word) + "'s cache"


def gather_cached(heap: Jemalloc) -> Cached:
    """Return every cached object with the extent that holds it."""
    caches = heap.tcaches or ()
    bins = [(number, one) for number, cache in enumerate(caches) for one in cache.bins]
    lengths = [one.cached for _, one in bins]
    address = np.concatenate([one.objects for _, one in bins] or [np.empty(0, np.uint64)]).astype(np.uint64)
    szind = np.repeat(np.array([one.szind for _, one in bins], np.int64), lengths)
    cache = np.repeat(np.array([number for number, _ in bins], np.int64), lengths)
    extent = heap.extents.holding(address)
    return Cached(heap, caches, address, szind, cache, extent, _regions(heap, address, extent))


def _regions(heap: Jemalloc, address: U64, extent: I64) -> I64:
    """Return the number of the region that begins at each address, -1 where none does."""
    extents, infos = heap.extents, heap.location.bin_infos
    regions = np.full(len(address), -1, np.int64)
    held = np.flatnonzero(extent != NO_EXTENT)
    at = extent[held]
    slabs = extents.slab[at] & (extents.state[at] == int(ExtentState.ACTIVE)) & (extents.szind[at] < len(infos))
    held, at = held[slabs], at[slabs]
    sizes = np.array([info.reg_size for info in infos], np.uint64)[extents.szind[at]]
    counts = np.array([info.nregs for info in infos], np.uint64)[extents.szind[at]]
    inner = address[held] - extents.address[at]
    begins = (inner % sizes == 0) & (inner // sizes < counts)
    regions[held[begins]] = (inner // sizes)[begins].astype(np.int64)
    return regions


def check_tcaches(heap: Jemalloc, flux: Flux, whole: bool) -> Iterator[Problem]:
    """Iterate over what is wrong with cached objects.

    :param whole: whether all extents are known, so that an object in none is one too many.
    """
    cached = gather_cached(heap)
    if not len(cached.address):
        return
    placing = _place(cached)
    yield from _twice(cached, placing.begins | (~placing.active & (cached.address != 0) & (not whole)), flux)
    if whole:
        yield from _told(cached, flux, "tcache-object", ~placing.active, "is in no extent that is in use")
        yield from _told(cached, flux, "tcache-object", placing.active & ~placing.begins, "is where no object begins")
    yield from _told(cached, flux, "tcache-size", placing.begins & ~placing.fitting, "is of another class")
    yield from _given_back(cached, flux)


@dataclass(frozen=True, eq=False)
class Placing:
    """What stands at each cached object: an extent in use, the beginning of an object, one of its class."""

    active: Mask
    begins: Mask
    fitting: Mask


def _place(cached: Cached) -> Placing:
    extents, nbins = cached.heap.extents, cached.heap.location.nbins
    held = np.flatnonzero(cached.extent != NO_EXTENT)
    at = cached.extent[held]
    active, begins, fitting = (np.zeros(len(cached.address), np.bool_) for _ in range(3))
    in_use = extents.state[at] == int(ExtentState.ACTIVE)
    active[held] = in_use
    pointer = ~extents.slab[at] & (extents.pointer[at] == cached.address[held])
    begins[held] = in_use & (pointer | (cached.region[held] >= 0))
    # a small block that the profiler samples is a large one, with its own size class until it is freed
    szind = np.where(extents.slab[at], extents.szind[at], np.maximum(extents.szind[at], nbins))
    fitting[held] = szind == cached.szind[held]
    return Placing(active, begins, fitting)


def _twice(cached: Cached, picked: Mask, flux: Flux) -> Iterator[Problem]:
    """Iterate over objects that are in caches more than once."""
    rows = np.flatnonzero(picked)
    values, counts = np.unique(cached.address[rows], return_counts=True)
    again = values[counts > 1]
    for address in again[:_TOLD].tolist():
        own = rows[cached.address[rows] == np.uint64(address)]
        names = list(dict.fromkeys(cache_name(cached.caches[at]) for at in cached.cache[own].tolist()))
        size = cached.heap.location.sizes[int(cached.szind[own[0]])]
        message = f"{address:#x} ({size} bytes) is {len(own)} times in {' and '.join(names[:4])}"
        yield flux.problem("double-free", address, f"{message}: it was freed more than once", flux.inside)
    if len(again) > _TOLD:
        message = f"{len(again) - _TOLD} more objects are in caches more than once"
        yield flux.problem("double-free", int(again[_TOLD]), message, flux.inside)


def _told(cached: Cached, flux: Flux, kind: str, picked: Mask, what: str) -> Iterator[Problem]:
    rows = np.flatnonzero(picked)
    for at in rows[:_TOLD].tolist():
        message = f"{cached.name(at)} {what}{_real(cached, at) if kind == 'tcache-size' else ''}"
        yield flux.problem(kind, int(cached.address[at]), message, flux.inside)
    if len(rows) > _TOLD:
        address = int(cached.address[rows[_TOLD]])
        message = f"{len(rows) - _TOLD} more cached objects, the first {address:#x}: each {what}"
        yield flux.problem(kind, address, message, flux.inside)


def _real(cached: Cached, at: int) -> str:
    szind, sizes = int(cached.heap.extents.szind[cached.extent[at]]), cached.heap.location.sizes
    return f": of {sizes[szind]} bytes" if szind < len(sizes) else ""


def _given_back(cached: Cached, flux: Flux) -> Iterator[Problem]:
    """Iterate over cached regions that their slab has for free: freed once into the cache, and once beside it."""
    member = cached.heap.location.layout["extent"].member("bitmap")
    rows = np.flatnonzero((cached.region >= 0) & (cached.region < 64 * (member.count or 1)))
    edata = cached.heap.extents.edata[cached.extent[rows]]
    places = edata + np.uint64(member.offset) + (cached.region[rows].astype(np.uint64) >> np.uint64(6)) * np.uint64(8)
    order = np.argsort(places, kind="stable")
    words, known = gather(cached.heap.target, places[order], [0])
    bits = words[:, 0] >> (cached.region[rows[order]].astype(np.uint64) & np.uint64(63)) & np.uint64(1)
    free = np.zeros(len(cached.address), np.bool_)
    free[rows[order]] = known & (bits != 0)
    yield from _told(cached, flux, "tcache-free", free, "is free as its slab has it")
