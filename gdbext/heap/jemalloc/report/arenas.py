"""``jemalloc arenas``: what each arena has allocated, and what became of its pages."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, fields
from typing import Mapping, Optional, Sequence

from gdbext.heap.jemalloc.model import ArenaState, Jemalloc
from gdbext.heap.jemalloc.report.common import Part, named_heaps, parts_of, report_of, total
from gdbext.heap.model import Heap
from gdbext.report import Kind, Report, ThreadRef, column, hidden, line, table


@dataclass(frozen=True)
class ArenaRow:
    """One arena, all in bytes. What a build without statistics does not count is None.

    :param heap: which jemalloc.
    :param index: as ``mallctl`` has it.
    :param address: of the ``arena_t``.
    :param kind: ``auto`` (given to threads by jemalloc), ``manual`` (made by mallctl, or for huge blocks); None: not
        known.
    :type kind: word
    :param allocated: ``small`` + ``large``: what jemalloc counts as handed out, thread caches included.
    :param small: in regions of slabs.
    :param large: usable, in extents of their own.
    :param active: pages in use.
    :param fragmentation: ``active`` less ``allocated``; negative only where something is damaged.
    :type fragmentation: signed bytes
    :param dirty: unused pages that are perhaps in RAM; since 5.3.1 the huge page allocator's too.
    :param muzzy: unused pages that the kernel may take.
    :param retained: unused address space.
    :param metadata: what jemalloc uses of its base blocks, and its internal allocations (``rss`` has whole base
        blocks); None, as all below that may be, in a build without statistics.
    :param internal: of it, what was allocated from the arena itself.
    :param mapped: as jemalloc counts: in use, dirty, muzzy, and metadata.
    :param resident: what jemalloc takes for resident.
    :param tcache_bytes: usable bytes in the thread caches that it fills; None when the caches could not be found.
    :param sec_bytes: in the huge page allocator's cache of small extents, neither active nor dirty; None before 5.3.
    :param hpa_active: active pages in the huge page allocator's slabs; None before 5.3.
    :param hpa_dirty: dirty pages there; None before 5.3.
    :param abandoned_vm: address space that had to be left; None where it is not kept.
    :param attached: threads that allocate from it, by its own count.
    :param threads: the same by the threads' data; None when that could not be found.
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
    """Sums over all arenas, in bytes; None when one of them is not known.

    :param arenas: arenas that are initialised.
    :param allocated: sums over all arenas; None where one of them is not known.
    :param small: as in ``arenas``, as is all that follows.
    :param large: as there.
    :param active: as there.
    :param fragmentation: as there.
    :type fragmentation: signed bytes
    :param dirty: as there.
    :param muzzy: as there.
    :param retained: as there.
    :param metadata: as there.
    :param mapped: as there.
    :param resident: as there.
    :param tcache_bytes: as there.
    """

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

    :param heap: which jemalloc.
    :param version: of the library; None when not known.
    :param file: the mapped file that it lies in.
    :param page: of one of its pages, which need not be the machine's.
    :param arenas: that are initialised.
    :param allocated: sums over its arenas, as are the rest.
    :param active: as in ``arenas``.
    :param retained: as there.
    :param mapped: as there.
    :param resident: as there.
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
    heaps: Sequence[HeapRow] = table("Heaps")
    arenas: Sequence[ArenaRow] = table("Arenas", equal_but=("index", "address", "threads"))
    pages: Sequence[PageRow] = table("Pages of arenas", json=False, equal_but=("index",))


def arenas(heaps: Sequence[Heap]) -> Report:
    """Return ``jemalloc arenas``: every arena with exact sums."""
    parts = parts_of(heaps)
    by_part = [_arena_rows(part) for part in parts]
    rows = [row for some in by_part for row in some]
    pages = [PageRow(**{one.name: getattr(row, one.name) for one in fields(PageRow)}) for row in rows]
    named = [_heap_row(part, some) for part, some in zip(parts, by_part)]
    labels = named_heaps(parts, ArenaRow, PageRow)
    left_out = hidden(ArenaRow, ("kind", "attached")) if labels else hidden(ArenasReport, ("heaps",))
    return report_of(heaps, ArenasReport(_totals(rows), named, rows, pages), labels={**labels, **left_out})


def _arena_rows(part: Part) -> list[ArenaRow]:
    cached = tcache_bytes(part.heap)
    return [_arena_row(part, arena, cached) for arena in part.arenas]


def _arena_row(
    part: Part, arena: ArenaState, cached: Optional[Mapping[int, int]]
) -> ArenaRow:
    page = arena.page
    small = arena.small_allocated if arena.stats else arena.small_walked
    return ArenaRow(
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
