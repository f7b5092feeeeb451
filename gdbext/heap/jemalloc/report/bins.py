"""``jemalloc bins``: how well the slabs of each small size class are used."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Iterator, Optional, Sequence

from gdbext.heap.jemalloc.model import BinInfo, BinState
from gdbext.heap.jemalloc.report.common import (
    Part,
    cached_objects,
    named_heaps,
    parts_of,
    report_of,
    total,
)
from gdbext.heap.model import Heap
from gdbext.report import Kind, Report, column, line, table


@dataclass(frozen=True)
class BinRow:
    """One small size class, summed over arenas.

    :param heap: which jemalloc.
    :param index: small size class.
    :param size: of one region.
    :type size: bytes
    :param slab_size: of one slab.
    :param nregs: regions in a slab.
    :param slabs: by the radix tree: ``current`` + ``nonfull`` + ``full``.
    :param current: that bins allocate from now.
    :param nonfull: others with free regions.
    :param full: without free regions.
    :param used_regions: by the slabs' own counts; those in thread caches are among them.
    :param total_regions: ``nregs`` of all slabs.
    :param utilisation: ``used_regions`` of ``total_regions``; None: there are none.
    :param used_bytes: of the used regions.
    :param empty_bytes: of regions that are free.
    :param tcache_regions: used regions that are in thread caches; with ARENA those that lie in it.
    :param tcache_bytes: of these.
    :param curregs: jemalloc's own counter; None, as the next four, in a build without statistics.
    :param curslabs: slabs, by its counter.
    :param nonfull_slabs: None before 5.2 too.
    :param nmalloc: regions handed out so far.
    :param ndalloc: regions given back so far.
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

    :param arena: index of the one that was asked for; None: all.
    :param arenas: how many the figures are sums over.
    :param slabs: sums over all size classes, as are the rest.
    :param used_regions: as in ``bins``.
    :param total_regions: as there.
    :param utilisation: None: there are no regions.
    :param used_bytes: as there.
    :param empty_bytes: as there.
    :param tcache_regions: None when the thread caches could not be found.
    :param tcache_bytes: usable bytes of them.
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
    rows = [row for part in parts for row in _rows(part, arena is not None)]
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
    return report_of(heaps, data, labels=named_heaps(parts, BinRow))


def _rows(part: Part, one_arena: bool) -> Iterator[BinRow]:
    objects = cached_objects(part.heap)
    of_arena = part.arenas[0].index if one_arena else None
    cached = None if objects is None else objects.counts(part.heap.location.nbins, of_arena)
    for info in part.heap.location.bin_infos:
        states = [one for arena in part.arenas for one in arena.bins if one.info.index == info.index]
        if any(one.slabs or one.stats.nmalloc for one in states):
            yield _row(part, info, states, None if cached is None else int(cached[info.index]))


def _row(
    part: Part, info: BinInfo, states: Sequence[BinState], cached: Optional[int]
) -> BinRow:
    used, regions = sum(one.used for one in states), sum(one.total for one in states)
    return BinRow(
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
