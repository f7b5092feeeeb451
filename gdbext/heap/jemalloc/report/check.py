"""``jemalloc check``: everything that does not hold, by kind and one by one."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Optional, Sequence

from gdbext.heap.jemalloc.model import ExtentState
from gdbext.heap.jemalloc.report.common import Part, parts_of, report_of, told_apart, total
from gdbext.heap.model import Heap
from gdbext.report import Kind, Report, column, line, table


@dataclass(frozen=True)
class KindRow:
    """How often one kind of damage was found."""

    kind: str = column("kind")
    count: int = column("violations", Kind.COUNT)


@dataclass(frozen=True)
class DamageRow:
    """One violated invariant."""

    heap: str = column(None)
    kind: str = column("kind")
    address: Optional[int] = column("address", Kind.ADDRESS)
    message: str = column("what is wrong")


@dataclass(frozen=True)
class CheckReport:
    """``jemalloc check``.

    :param tcache_objects: objects in thread caches; None when the caches could not be found.
    """

    arenas: int = line("arenas checked", Kind.COUNT)
    extents: int = line("extents checked", Kind.COUNT)
    slabs: int = line("slabs checked", Kind.COUNT)
    tcache_objects: Optional[int] = line("cached objects checked", Kind.COUNT)
    walked_bytes: int = line("bytes of extents", Kind.BYTES)
    corrupt: int = line("violated invariants", Kind.COUNT)
    kinds: Sequence[KindRow] = table("By kind")
    damage: Sequence[DamageRow] = table("Damage")


def check(heaps: Sequence[Heap]) -> Report:
    """Return ``jemalloc check``: counters against walk, links, bitmaps and thread caches."""
    parts = parts_of(heaps)
    row_type = told_apart(DamageRow, parts)
    damage = [
        row_type(heap.allocator, one.kind, one.address, one.message)
        for heap in heaps
        for one in heap.problems
        if one.corruption
    ]
    counts = Counter(row.kind for row in damage)
    data = CheckReport(
        arenas=sum(len(part.arenas) for part in parts),
        extents=sum(len(part.heap.extents) for part in parts),
        slabs=sum(map(_slabs, parts)),
        tcache_objects=total(map(_cached, parts)),
        walked_bytes=sum(int(part.heap.extents.size.sum()) for part in parts),
        corrupt=len(damage),
        kinds=[KindRow(kind, count) for kind, count in counts.most_common()],
        damage=damage,
    )
    return report_of(heaps, data, findings=bool(damage))


def _slabs(part: Part) -> int:
    extents = part.heap.extents
    return int((extents.slab & (extents.state == ExtentState.ACTIVE)).sum())


def _cached(part: Part) -> Optional[int]:
    caches = part.heap.tcaches
    return None if caches is None else sum(cache.cached for cache in caches)
