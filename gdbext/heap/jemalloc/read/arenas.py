"""Arenas: their own counters, read whole.

Source: ``arena_structs.h``, ``arena_stats.h``, ``base.h``; since 5.3 also ``pac.h``, ``ecache.h``, ``decay.h``.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Mapping, Optional, Sequence

import numpy as np

from gdbext.errors import FaultError
from gdbext.heap.jemalloc.model import (
    ArenaState,
    BaseState,
    CacheState,
    DecayState,
    Extents,
    LargeClass,
    Location,
    TsdState,
)
from gdbext.heap.jemalloc.read.bins import BinWalk, read_bins, trailing_bytes
from gdbext.heap.jemalloc.read.records import Record, fault_problem, read_record
from gdbext.layout import StructLayout
from gdbext.report import Problem, ThreadRef
from gdbext.target import Target

_MOST_BLOCKS = 1 << 16


def read_arenas(
    target: Target,
    location: Location,
    arenas: Mapping[int, int],
    extents: Extents,
    tsds: Optional[Sequence[TsdState]],
    problems: list[Problem],
) -> list[ArenaState]:
    """Return the state of each arena; one that cannot be read is a problem and left out.

    :param arenas: addresses by index.
    """
    walked = BinWalk(location, extents)
    threads = threads_by_arena(tsds)
    found = []
    for index, address in arenas.items():
        try:
            record = read_record(target, address, location.layout["arena"], trailing_bytes(location))
            found.append(_arena(target, location, index, address, record, walked, threads, problems))
        except FaultError as fault:
            message = f"arena {index} at {address:#x}: {fault.message}: left out"
            problems.append(fault_problem(target, fault, "arena", message, address))
    return found if _has_stats(found) else [_without_stats(arena) for arena in found]


def _has_stats(arenas: Sequence[ArenaState]) -> bool:
    """Whether statistics are kept: where they are not, no base and no bin counts anything."""
    return any(arena.base.allocated or any(one.stats.nslabs for one in arena.bins) for arena in arenas)


def _without_stats(arena: ArenaState) -> ArenaState:
    return replace(
        arena,
        base=replace(arena.base, allocated=None, resident=None, mapped=None, n_thp=None),
        decay_dirty=replace(arena.decay_dirty, npurge=None, nmadvise=None, purged=None),
        decay_muzzy=replace(arena.decay_muzzy, npurge=None, nmadvise=None, purged=None),
        stats=False,
        internal=None,
        mapped=None,
        resident=None,
        abandoned_vm=None,
    )


def threads_by_arena(tsds: Optional[Sequence[TsdState]]) -> Optional[dict[int, tuple[ThreadRef, ...]]]:
    """Return the threads that allocate from each arena, by its address; None when tsds are not known."""
    if tsds is None:
        return None
    found: dict[int, list[ThreadRef]] = {}
    for tsd in tsds:
        if tsd.arena and tsd.thread is not None:
            found.setdefault(tsd.arena, []).append(tsd.thread)
    return {arena: tuple(refs) for arena, refs in found.items()}


def _arena(
    target: Target,
    location: Location,
    index: int,
    address: int,
    record: Record,
    walked: BinWalk,
    threads: Optional[dict[int, tuple[ThreadRef, ...]]],
    problems: list[Problem],
) -> ArenaState:
    layout = location.layout
    base = read_base(target, location, record.uint("base"), problems)
    dirty, muzzy, retained = (
        _cache(record, layout["cache"], kind, address) for kind in ("dirty", "muzzy", "retained")
    )
    nactive = record.uint("nactive")
    ndirty = dirty.npages + ((record.find("hpa_ndirty") or 0) if layout.family.dirty_hpa else 0)
    resident = nactive + ndirty + (muzzy.npages if layout.family.resident_muzzy else 0)
    return ArenaState(
        index=index,
        address=address,
        base=base,
        auto=_is_auto(target, location, index),
        nthreads=_nthreads(target, record),
        nactive=nactive,
        ndirty=ndirty,
        dirty=dirty,
        muzzy=muzzy,
        retained=retained,
        decay_dirty=_decay(record, layout["decay"], "dirty", address),
        decay_muzzy=_decay(record, layout["decay"], "muzzy", address),
        internal=record.uint("internal"),
        stats=True,
        mapped=(base.mapped or 0) + record.uint("mapped"),
        resident=(base.resident or 0) + resident * location.geometry.page,
        abandoned_vm=record.find("abandoned_vm"),
        large=_large(location, record),
        bins=read_bins(target, location, index, address, record, walked, problems),
        walked=walked.states(index),
        large_walked=walked.large(index),
        tcaches=record.uint("tcaches"),
        create_time=record.uint("create_time"),
        page=location.geometry.page,
        threads=None if threads is None else threads.get(address, ()),
        use_hpa=bool(record.uint("use_hpa")) if "use_hpa" in record.layout else None,
        sec_bytes=_sec_bytes(target, location, record),
        hpa_active=record.find("hpa_nactive"),
        hpa_dirty=record.find("hpa_ndirty"),
    )


def _nthreads(target: Target, record: Record) -> tuple[int, int]:
    counts = record.data[record.layout.offset("nthreads") :]
    application, internal = np.frombuffer(counts, f"{target.abi.order_mark}u4", 2).tolist()
    return application, internal


def _is_auto(target: Target, location: Location, index: int) -> Optional[bool]:
    """Whether an arena is one of those that threads are given (``arena_is_auto``); None when not known."""
    name = "manual_arena_base" if "manual_arena_base" in location.symbols else "narenas_auto"
    if name not in location.symbols:
        return None
    try:
        return index < target.reader.uint(location.symbols[name], 4)
    except FaultError:
        return None


# -- parts --------------------------------------------------------------------------------------------


def _cache(record: Record, layout: StructLayout, kind: str, arena: int) -> CacheState:
    cache = record.inner(kind, layout)
    npages = cache.uint("npages") + (cache.find("guarded_npages") or 0)
    sums = _stats_sums(cache)
    address = arena + record.layout.offset(kind)
    return CacheState(address, npages, *(sums if sums is not None else (None, None)))


def _stats_sums(cache: Record) -> Optional[tuple[int, int]]:
    """Return the cache's counts of extents and bytes over its size classes, or None where it keeps none."""
    if "nextents" in cache.layout:
        return int(cache.words("nextents").sum()), int(cache.words("nbytes").sum())
    if "bin_stats" not in cache.layout:
        return None
    nextents = nbytes = 0
    for name in ("bin_stats", "guarded_bin_stats"):
        member = cache.layout.member(name)
        words = np.frombuffer(
            cache.data, f"{cache.abi.order_mark}u8", member.extent // 8, cache.base + member.offset
        ).astype(np.uint64)
        nextents, nbytes = nextents + int(words[0::2].sum()), nbytes + int(words[1::2].sum())
    return nextents, nbytes


def _decay(record: Record, layout: StructLayout, kind: str, arena: int) -> DecayState:
    decay = record.inner(f"decay_{kind}", layout)
    return DecayState(
        address=arena + record.layout.offset(f"decay_{kind}"),
        time_ms=decay.sint("time_ms"),
        interval=decay.uint("interval"),
        epoch=decay.uint("epoch"),
        deadline=decay.uint("deadline"),
        purging=bool(decay.uint("purging")),
        npages_limit=decay.find("npages_limit"),
        nunpurged=decay.uint("nunpurged"),
        backlog=tuple(decay.words("backlog").tolist()),
        npurge=record.find(f"{kind}_npurge"),
        nmadvise=record.find(f"{kind}_nmadvise"),
        purged=record.find(f"{kind}_purged"),
    )


def _large(location: Location, record: Record) -> tuple[LargeClass, ...]:
    layout = location.layout
    found = []
    for at in range(layout.nlarge):
        one = record.element("lstats", at, layout["large_stats"])
        nmalloc = one.uint("nmalloc")
        if nmalloc:
            szind = location.nbins + at
            found.append(
                LargeClass(
                    szind, location.sizes[szind], nmalloc, one.uint("ndalloc"), one.find("active_bytes")
                )
            )
    return tuple(found)


def read_base(target: Target, location: Location, address: int, problems: list[Problem]) -> BaseState:
    """Return an arena's allocator of metadata, with its blocks.

    :raises FaultError: when it cannot be read.
    """
    record = read_record(target, address, location.layout["base"])
    blocks = _blocks(target, location.layout["base_block"], record.uint("blocks"), problems)
    allocated, resident, mapped = (record.uint(name) for name in ("allocated", "resident", "mapped"))
    return BaseState(address, record.uint("ind"), allocated, resident, mapped, tuple(blocks), record.find("n_thp"))


def _blocks(
    target: Target, layout: StructLayout, first: int, problems: list[Problem]
) -> list[tuple[int, int]]:
    found: dict[int, int] = {}
    at = first
    while at and at not in found and len(found) < _MOST_BLOCKS:
        try:
            block = read_record(target, at, layout)
        except FaultError as fault:
            problems.append(fault_problem(target, fault, "base", fault.message, at))
            break
        found[at], at = block.uint("size"), block.uint("next")
    if at in found:
        problems.append(
            Problem("base", at, f"a base's list of blocks comes back to {at:#x}", corruption=True)
        )
    return list(found.items())


def _sec_bytes(target: Target, location: Location, record: Record) -> Optional[int]:
    """Return the bytes in HPA's cache of small extents; 0 where HPA was never used, None before 5.3."""
    layout = location.layout
    if "sec" not in layout.structs or "ever_used_hpa" not in record.layout:
        return None
    if not record.uint("ever_used_hpa"):
        return 0
    sec = record.inner("sec", layout["sec"])
    nshards = sec.uint("nshards")
    sharded = "shards" in layout["sec"]
    count = nshards if sharded else nshards * sec.uint("npsizes")
    struct = layout["sec_shard" if sharded else "sec_bin"]
    if count > 1 << 16:
        return None
    try:
        table = read_record(
            target, sec.uint("shards" if sharded else "bins"), struct, max(count - 1, 0) * struct.size
        )
    except FaultError:
        return None
    return sum(
        Record(table.data, struct, table.abi, at * struct.size).uint("bytes_cur") for at in range(count)
    )
