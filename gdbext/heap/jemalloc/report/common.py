"""What all reports on jemalloc share: the heaps they are about, rows told apart by heap, cached objects."""

from __future__ import annotations

from dataclasses import dataclass, fields, make_dataclass
from functools import lru_cache
from typing import Iterable, Optional, Sequence, TypeVar

import numpy as np

from gdbext.errors import UsageError
from gdbext.heap.jemalloc.model import I64, NO_EXTENT, U64, ArenaState, Jemalloc
from gdbext.heap.model import Heap
from gdbext.heap.reading import evidence_of, problems_of
from gdbext.report import Report, column

Row = TypeVar("Row")
_NO_STATS = "{}: built without statistics (--disable-stats): counters are unknown, the rest is from its extents"


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


def told_apart(row_type: type[Row], heaps: Sequence[object], *spared: str) -> type[Row]:
    """Return the row's class whose text has the heap's name in it where there are several heaps.

    :param spared: fields that the text then leaves out, to make room for it.
    """
    return row_type if len(heaps) < 2 else _named(row_type, spared)  # type: ignore[arg-type]


@lru_cache(maxsize=None)
def _named(row_type: type[Row], spared: tuple[str, ...]) -> type[Row]:
    known = {one.name: one for one in fields(row_type)}  # type: ignore[arg-type]
    hidden = [(name, known[name].type, column(None, known[name].metadata["show"].kind)) for name in spared]
    heap = ("heap", str, column("heap"))
    return make_dataclass(f"Named{row_type.__name__}", [heap, *hidden], bases=(row_type,), frozen=True)


def report_of(
    heaps: Sequence[Heap], data: object, notes: Sequence[str] = (), findings: bool = False
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
    arena = np.where(at == NO_EXTENT, -1, _arena_of(heap, at))
    return CachedObjects(address, szind, arena)


def _arena_of(heap: Jemalloc, at: I64) -> I64:
    if not len(heap.extents):
        return np.full(len(at), -1, np.int64)
    return heap.extents.arena[np.maximum(at, 0)].astype(np.int64)
