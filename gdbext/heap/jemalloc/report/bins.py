"""``jemalloc bins``: how well the slabs of each small size class are used."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Iterator, Optional, Sequence

from gdbext.heap.jemalloc.model import I64, BinInfo, BinState
from gdbext.heap.jemalloc.report.common import (
    CachedObjects,
    Part,
    cached_objects,
    parts_of,
    report_of,
    told_apart,
    total,
)
from gdbext.heap.model import Heap
from gdbext.report import Kind, Report, column, line, table


@dataclass(frozen=True)
class BinRow:
    """One small size class, summed over arenas.

    :param used_regions: in use or in a thread cache, by the slabs' own counts.
    :param empty_bytes: of regions that are free.
    :param tcache_regions: of the used ones, those in thread caches; None when the caches could not be found.
    :param curregs: jemalloc's counter, as ``curslabs``, ``nonfull_slabs``, ``nmalloc`` and ``ndalloc``; None
        where it keeps none.
    """

    heap: str = column(None)
    index: int = column("bin", Kind.NUMBER)
    size: int = column("size", Kind.COUNT)
    slab_size: int = column(None, Kind.BYTES)
    nregs: int = column(None, Kind.COUNT)
    slabs: int = column("slabs", Kind.COUNT)
    current: int = column("current", Kind.COUNT)
    nonfull: int = column("nonfull", Kind.COUNT)
    full: int = column("full", Kind.COUNT)
    used_regions: int = column("used", Kind.COUNT)
    total_regions: int = column("regions", Kind.COUNT)
    utilisation: Optional[float] = column("in use", Kind.SHARE)
    used_bytes: int = column(None, Kind.BYTES)
    empty_bytes: int = column("empty", Kind.BYTES)
    tcache_regions: Optional[int] = column("cached", Kind.COUNT)
    tcache_bytes: Optional[int] = column(None, Kind.BYTES)
    curregs: Optional[int] = column(None, Kind.COUNT)
    curslabs: Optional[int] = column(None, Kind.COUNT)
    nonfull_slabs: Optional[int] = column(None, Kind.COUNT)
    nmalloc: Optional[int] = column(None, Kind.COUNT)
    ndalloc: Optional[int] = column(None, Kind.COUNT)


@dataclass(frozen=True)
class BinsReport:
    """``jemalloc bins``.

    :param arena: index of the one that was asked for; None for all.
    :param arenas: how many the figures are sums over.
    """

    arena: Optional[int] = line(None, Kind.COUNT)
    arenas: int = line("arenas", Kind.COUNT)
    slabs: int = line("slabs", Kind.COUNT)
    used_regions: int = line("regions used", Kind.COUNT)
    total_regions: int = line("regions", Kind.COUNT)
    utilisation: Optional[float] = line("regions in use", Kind.SHARE)
    used_bytes: int = line("used bytes", Kind.BYTES)
    empty_bytes: int = line("empty bytes", Kind.BYTES)
    tcache_regions: Optional[int] = line("regions in thread caches", Kind.COUNT)
    tcache_bytes: Optional[int] = line("bytes in thread caches", Kind.BYTES)
    bins: Sequence[BinRow] = table("Bins")


def bins(heaps: Sequence[Heap], arena: Optional[int] = None) -> Report:
    """Return ``jemalloc bins``: every small size class that has a slab, by size.

    :param arena: index or address of the one arena wanted, or None for all.
    :raises UsageError: when there is no such arena.
    """
    parts = parts_of(heaps, arena)
    row_type = told_apart(BinRow, parts)
    rows = [row for part in parts for row in _rows(part, arena is not None, row_type)]
    used, regions = sum(row.used_regions for row in rows), sum(row.total_regions for row in rows)
    known = all(part.heap.tcaches is not None for part in parts)
    data = BinsReport(
        arena=None if arena is None else parts[0].arenas[0].index,
        arenas=sum(len(part.arenas) for part in parts),
        slabs=sum(row.slabs for row in rows),
        used_regions=used,
        total_regions=regions,
        utilisation=used / regions if regions else None,
        used_bytes=sum(row.used_bytes for row in rows),
        empty_bytes=sum(row.empty_bytes for row in rows),
        tcache_regions=total(row.tcache_regions for row in rows) if known else None,
        tcache_bytes=total(row.tcache_bytes for row in rows) if known else None,
        bins=rows,
    )
    return report_of(heaps, data)


def _rows(part: Part, one_arena: bool, row_type: type[BinRow]) -> Iterator[BinRow]:
    cached = _cached(part, cached_objects(part.heap), one_arena)
    for info in part.heap.location.bin_infos:
        states = [one for arena in part.arenas for one in arena.bins if one.info.index == info.index]
        if any(one.slabs or one.stats.nmalloc for one in states):
            yield _row(part, info, states, None if cached is None else int(cached[info.index]), row_type)


def _cached(part: Part, objects: Optional[CachedObjects], one_arena: bool) -> Optional[I64]:
    """Return the objects in thread caches by class: all, or those that lie in the one arena."""
    if objects is None:
        return None
    return objects.counts(part.heap.location.nbins, part.arenas[0].index if one_arena else None)


def _row(
    part: Part, info: BinInfo, states: Sequence[BinState], cached: Optional[int], row_type: type[BinRow]
) -> BinRow:
    used, regions = sum(one.used for one in states), sum(one.total for one in states)
    return row_type(
        heap=part.name,
        index=info.index,
        size=info.reg_size,
        slab_size=info.slab_size,
        nregs=info.nregs,
        slabs=sum(one.slabs for one in states),
        current=sum(one.current for one in states),
        nonfull=sum(one.nonfull for one in states),
        full=sum(one.full for one in states),
        used_regions=used,
        total_regions=regions,
        utilisation=used / regions if regions else None,
        used_bytes=used * info.reg_size,
        empty_bytes=sum(one.empty_bytes for one in states),
        tcache_regions=cached,
        tcache_bytes=None if cached is None else cached * info.reg_size,
        **_counters(part, states),
    )


_COUNTERS = ("curregs", "curslabs", "nonfull_slabs", "nmalloc", "ndalloc")


def _counters(part: Part, states: Sequence[BinState]) -> dict[str, Optional[int]]:
    counted = all(arena.stats for arena in part.arenas)
    return {
        name: total(getattr(one.stats, name) for one in states) if counted else None for name in _COUNTERS
    }
