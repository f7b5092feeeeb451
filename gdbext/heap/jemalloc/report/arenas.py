"""``jemalloc arenas``: what each arena has allocated, and what became of its pages."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, fields
from typing import Mapping, Optional, Sequence

from gdbext.heap.jemalloc.model import ArenaState, Jemalloc
from gdbext.heap.jemalloc.report.common import Part, parts_of, report_of, told_apart, total
from gdbext.heap.model import Heap
from gdbext.report import Kind, Report, ThreadRef, column, line, table


@dataclass(frozen=True)
class ArenaRow:
    """One arena, all in bytes. What a build without statistics does not count is None.

    :param dirty: pages in use by nobody, given back by nobody, as jemalloc's ``pdirty``.
    :param fragmentation: ``active`` less ``allocated``.
    :param tcache_bytes: in the thread caches that are filled from this arena; they count as allocated.
    :param sec_bytes: in HPA's cache of small extents, HPA's active and dirty pages: since 5.3.
    :param attached: threads that allocate from it, by its own count.
    """

    heap: str = column(None)
    index: int = column("arena", Kind.NUMBER)
    address: int = column(None, Kind.ADDRESS)
    kind: Optional[str] = column("kind")
    allocated: int = column("allocated", Kind.BYTES)
    small: int = column("small", Kind.BYTES)
    large: int = column("large", Kind.BYTES)
    active: int = column("active", Kind.BYTES)
    fragmentation: int = column("fragmented", Kind.BYTES)
    dirty: int = column(None, Kind.BYTES)
    muzzy: int = column(None, Kind.BYTES)
    retained: int = column(None, Kind.BYTES)
    metadata: Optional[int] = column(None, Kind.BYTES)
    internal: Optional[int] = column(None, Kind.BYTES)
    mapped: Optional[int] = column(None, Kind.BYTES)
    resident: Optional[int] = column(None, Kind.BYTES)
    tcache_bytes: Optional[int] = column("tcached", Kind.BYTES)
    sec_bytes: Optional[int] = column(None, Kind.BYTES)
    hpa_active: Optional[int] = column(None, Kind.BYTES)
    hpa_dirty: Optional[int] = column(None, Kind.BYTES)
    abandoned_vm: Optional[int] = column(None, Kind.BYTES)
    attached: int = column("attached", Kind.COUNT)
    threads: Optional[tuple[ThreadRef, ...]] = column("threads", Kind.THREADS)


@dataclass(frozen=True)
class PageRow:
    """The same arena's pages, for text: beside the other columns they would not fit."""

    heap: str = column(None)
    index: int = column("arena", Kind.NUMBER)
    active: int = column("active", Kind.BYTES)
    dirty: int = column("dirty", Kind.BYTES)
    muzzy: int = column("muzzy", Kind.BYTES)
    retained: int = column("retained", Kind.BYTES)
    metadata: Optional[int] = column("metadata", Kind.BYTES)
    mapped: Optional[int] = column("mapped", Kind.BYTES)
    resident: Optional[int] = column("resident", Kind.BYTES)


@dataclass(frozen=True)
class ArenaTotals:
    """Sums over all arenas, in bytes; None when one of them is not known."""

    arenas: int = line("arenas", Kind.COUNT)
    allocated: int = line("allocated", Kind.BYTES)
    small: int = line("small", Kind.BYTES)
    large: int = line("large", Kind.BYTES)
    active: int = line("active", Kind.BYTES)
    fragmentation: int = line("active − allocated", Kind.BYTES)
    dirty: int = line("dirty", Kind.BYTES)
    muzzy: int = line("muzzy", Kind.BYTES)
    retained: int = line("retained", Kind.BYTES)
    metadata: Optional[int] = line("metadata", Kind.BYTES)
    mapped: Optional[int] = line("mapped", Kind.BYTES)
    resident: Optional[int] = line("resident", Kind.BYTES)
    tcache_bytes: Optional[int] = line("tcached", Kind.BYTES)


@dataclass(frozen=True)
class HeapRow:
    """One jemalloc of several: its own sums.

    :param page: bytes of one of its pages.
    """

    heap: str = column("heap")
    version: Optional[str] = column("version")
    file: Optional[str] = column(None)
    page: int = column(None, Kind.BYTES)
    arenas: int = column("arenas", Kind.COUNT)
    allocated: int = column("allocated", Kind.BYTES)
    active: int = column("active", Kind.BYTES)
    retained: int = column("retained", Kind.BYTES)
    mapped: Optional[int] = column("mapped", Kind.BYTES)
    resident: Optional[int] = column("resident", Kind.BYTES)


@dataclass(frozen=True)
class ArenasReport:
    """``jemalloc arenas``."""

    totals: ArenaTotals = table("Totals")
    heaps: Sequence[HeapRow] = table(None)
    arenas: Sequence[ArenaRow] = table("Arenas", equal_but=("index", "address", "threads"))
    pages: Sequence[PageRow] = table("Pages of arenas", json=False, equal_but=("index",))


@dataclass(frozen=True)
class SeveralArenasReport(ArenasReport):
    """As :class:`ArenasReport`, where there is more than one jemalloc."""

    heaps: Sequence[HeapRow] = table("Heaps")


def arenas(heaps: Sequence[Heap]) -> Report:
    """Return ``jemalloc arenas``: every arena with exact sums."""
    parts = parts_of(heaps)
    row_type, page_type = told_apart(ArenaRow, parts, "kind", "attached"), told_apart(PageRow, parts)
    by_part = [_arena_rows(part, row_type) for part in parts]
    rows = [row for some in by_part for row in some]
    pages = [page_type(**{one.name: getattr(row, one.name) for one in fields(PageRow)}) for row in rows]
    named = [_heap_row(part, some) for part, some in zip(parts, by_part)]
    report = ArenasReport if len(parts) < 2 else SeveralArenasReport
    return report_of(heaps, report(_totals(rows), named, rows, pages))


def _arena_rows(part: Part, row_type: type[ArenaRow]) -> list[ArenaRow]:
    cached = tcache_bytes(part.heap)
    return [_arena_row(part, arena, cached, row_type) for arena in part.arenas]


def _arena_row(
    part: Part, arena: ArenaState, cached: Optional[Mapping[int, int]], row_type: type[ArenaRow]
) -> ArenaRow:
    page = arena.page
    small = arena.small_allocated if arena.stats else arena.small_walked
    return row_type(
        heap=part.name,
        index=arena.index,
        address=arena.address,
        kind=None if arena.auto is None else "auto" if arena.auto else "manual",
        allocated=arena.allocated,
        small=small,
        large=arena.allocated - small,
        active=arena.active,
        fragmentation=arena.active - arena.allocated,
        dirty=arena.ndirty * page,
        muzzy=arena.muzzy.npages * page,
        retained=arena.retained.npages * page,
        metadata=arena.metadata,
        internal=arena.internal,
        mapped=arena.mapped,
        resident=arena.resident,
        tcache_bytes=None if cached is None else cached.get(arena.address, 0),
        sec_bytes=arena.sec_bytes,
        hpa_active=_bytes(arena.hpa_active, page),
        hpa_dirty=_bytes(arena.hpa_dirty, page),
        abandoned_vm=arena.abandoned_vm,
        attached=arena.nthreads[0],
        threads=arena.threads,
    )


def _bytes(pages: Optional[int], page: int) -> Optional[int]:
    return None if pages is None else pages * page


def tcache_bytes(heap: Jemalloc) -> Optional[Mapping[int, int]]:
    """Return the bytes in thread caches by the address of the arena that fills them; None when not known."""
    if heap.tcaches is None:
        return None
    sums: dict[int, int] = defaultdict(int)
    for cache in heap.tcaches:
        sums[cache.arena] += cache.bytes
    return sums


_REQUIRED = ("allocated", "small", "large", "active", "fragmentation", "dirty", "muzzy", "retained")
_PERHAPS = ("metadata", "mapped", "resident", "tcache_bytes")


def _totals(rows: Sequence[ArenaRow]) -> ArenaTotals:
    required = {name: sum(getattr(row, name) for row in rows) for name in _REQUIRED}
    perhaps = {name: total(getattr(row, name) for row in rows) for name in _PERHAPS}
    return ArenaTotals(arenas=len(rows), **required, **perhaps)  # type: ignore[arg-type]


def _heap_row(part: Part, rows: Sequence[ArenaRow]) -> HeapRow:
    sums, location = _totals(rows), part.heap.location
    return HeapRow(
        heap=part.name,
        version=location.version or None,
        file=None if location.module is None else location.module.path,
        page=part.page,
        arenas=sums.arenas,
        allocated=sums.allocated,
        active=sums.active,
        retained=sums.retained,
        mapped=sums.mapped,
        resident=sums.resident,
    )
