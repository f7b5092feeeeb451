"""What all reports on jemalloc share: the heaps they are about, rows told apart by heap, cached objects."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Iterable, Optional, Sequence

import numpy as np

from gdbext.errors import UsageError
from gdbext.heap.jemalloc.model import I64, U64, ArenaState, Jemalloc
from gdbext.heap.model import Heap
from gdbext.heap.reading import evidence_of, problems_of
from gdbext.report import Labels, Report, ThreadRef

_NO_STATS = "{}: built without statistics (--disable-stats): counters are unknown, the rest is from its extents"

NO_THREAD = ThreadRef(None, None, None)


@dataclass(frozen=True)
class Part:
    """One jemalloc that a report is about.

    :param arenas: of it, those that were asked for.
    """

    name: str
    heap: Jemalloc
    arenas: Sequence[ArenaState]

    @property
    def page(self) -> int:
        """Bytes of one of its pages."""
        return self.heap.location.geometry.page


def parts_of(heaps: Sequence[Heap], arena: Optional[int] = None) -> list[Part]:
    """Return the jemallocs behind neutral heaps.

    :param arena: index or address of the one arena that is wanted; jemallocs without it are left out. None takes all.
    :raises UsageError: when none has that arena.
    """
    every = [Part(heap.allocator, heap.detail, heap.detail.arenas) for heap in heaps]
    if arena is None:
        return every
    picked = [(part, [one for one in part.arenas if arena in (one.index, one.address)]) for part in every]
    found = [Part(part.name, part.heap, arenas) for part, arenas in picked if arenas]
    if not found:
        raise _no_arena(arena, every)
    return found


def _no_arena(arena: int, parts: Sequence[Part]) -> UsageError:
    indices = sorted({one.index for part in parts for one in part.arenas})
    known = ", ".join(map(str, indices[:8])) + (", …" if len(indices) > 8 else "")
    what = f"no arena {arena}" if arena < 1 << 16 else f"no arena at {arena:#x}"
    return UsageError(what, f"there are {len(indices)}: {known}" if indices else "no arena could be read")


def named_heaps(heaps: Sequence[object], *row_types: type) -> Labels:
    """Return labels by which rows say in text which heap they are of, where there are several."""
    return {(row_type, "heap"): "heap" for row_type in row_types} if len(heaps) > 1 else {}


def report_of(
    heaps: Sequence[Heap],
    data: object,
    notes: Sequence[str] = (),
    *,
    findings: bool = False,
    labels: Optional[Labels] = None,
) -> Report:
    """Return a report with the evidence and the problems of all heaps that it is about."""
    silent = [part.name for part in parts_of(heaps) if part.arenas and not part.arenas[0].stats]
    return Report(
        data,
        evidence_of(heaps),
        problems_of(heaps),
        all(heap.complete for heap in heaps),
        [*map(_NO_STATS.format, silent), *notes],
        findings,
        labels=labels or {},
    )


def total(values: Iterable[Optional[int]]) -> Optional[int]:
    """Return a sum, None when any part of it is not known."""
    known = list(values)
    return None if None in known else sum(value for value in known if value is not None)


@dataclass(frozen=True, eq=False)
class CachedObjects:
    """All objects in the thread caches of one jemalloc, as columns.

    :param address: what malloc returned.
    :param szind: size class index of the cache's bin.
    :param arena: index of the arena whose extent holds it; -1 for none.
    """

    address: U64
    szind: I64
    arena: I64

    def counts(self, nsizes: int, arena: Optional[int] = None) -> I64:
        """Return objects by size class index, of all arenas or of one."""
        mine = self.szind if arena is None else self.szind[self.arena == arena]
        counts: I64 = np.bincount(mine[mine < nsizes], minlength=nsizes).astype(np.int64)
        return counts


def cached_objects(heap: Jemalloc) -> Optional[CachedObjects]:
    """Return the objects in thread caches, None when caches could not be found."""
    if heap.tcaches is None:
        return None
    bins = [one for cache in heap.tcaches for one in cache.bins]
    address = np.concatenate([np.empty(0, np.uint64), *(one.objects.astype(np.uint64) for one in bins)])
    lengths = np.array([one.cached for one in bins], np.int64)
    szind = np.repeat(np.array([one.szind for one in bins], np.int64), lengths)
    at = heap.extents.holding(address)
    arenas = np.append(heap.extents.arena.astype(np.int64), -1)  # its last is that of NO_EXTENT
    return CachedObjects(address, szind, arenas[at])
