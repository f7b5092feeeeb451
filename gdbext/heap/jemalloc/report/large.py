"""``jemalloc large``: allocations that have extents of their own, by class and one by one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Iterator, Optional, Sequence

import numpy as np

from gdbext.heap.jemalloc.model import I64, ExtentState, Mask
from gdbext.heap.jemalloc.report.common import (
    Part,
    cached_objects,
    named_heaps,
    parts_of,
    report_of,
    total,
)
from gdbext.heap.model import Heap
from gdbext.report import Kind, Report, Rows, column, line, table

_BATCH = 4096


@dataclass(frozen=True)
class LargeRow:
    """One large size class, summed over arenas.

    :param heap: which jemalloc.
    :param szind: size class.
    :param size: None: no such class.
    :param blocks: by the radix tree.
    :param bytes: usable bytes of them.
    :param extent_bytes: of their extents.
    :param tcache_blocks: of them in thread caches; None when the caches could not be found.
    :param curlextents: by jemalloc's counters; None, as the next two, in a build without statistics.
    :type curlextents: signed
    :param nmalloc: handed out so far.
    :param ndalloc: given back so far.
    """

    heap: str = column(None)
    szind: int = column("class", Kind.NUMBER)
    size: Optional[int] = column("size", Kind.BYTES)
    blocks: int = column("blocks", Kind.COUNT)
    bytes: int = column("bytes", Kind.BYTES)
    extent_bytes: int = column("extents", Kind.BYTES)
    tcache_blocks: Optional[int] = column("cached", Kind.COUNT)
    curlextents: Optional[int] = column("counted", Kind.COUNT)
    nmalloc: Optional[int] = column("allocated ever", Kind.COUNT)
    ndalloc: Optional[int] = column("freed ever", Kind.COUNT)


@dataclass(frozen=True)
class LargeBlockRow:
    """One large block.

    :param heap: which jemalloc.
    :param address: the pointer that the program has; the largest first.
    :param bytes: usable bytes.
    :param extent: of its first page.
    :param extent_bytes: of its extent.
    :param arena: index.
    :param cached: it is in a thread cache; None when the caches could not be found.
    """

    heap: str = column(None)
    address: int = column("pointer", Kind.ADDRESS)
    bytes: int = column("bytes", Kind.BYTES)
    extent: int = column("extent", Kind.ADDRESS)
    extent_bytes: int = column("extent bytes", Kind.BYTES)
    arena: int = column("arena", Kind.NUMBER)
    cached: Optional[bool] = column("cached", Kind.FLAG)


@dataclass(frozen=True)
class LargeReport:
    """``jemalloc large``.

    :param blocks: large allocations, those in thread caches too.
    :param bytes: usable bytes of them.
    :param extent_bytes: of their extents: mostly a page more for each.
    :param tcache_blocks: of them in thread caches; None when the caches could not be found.
    """

    blocks: int = line("large blocks", Kind.COUNT)
    bytes: int = line("bytes", Kind.BYTES)
    extent_bytes: int = line("bytes of their extents", Kind.BYTES)
    tcache_blocks: Optional[int] = line("in thread caches", Kind.COUNT)
    classes: Sequence[LargeRow] = table("Classes")
    largest: Rows[LargeBlockRow] = table("Blocks, the largest first")


@dataclass(frozen=True, eq=False)
class _Found:
    """The large blocks of one jemalloc: rows of its extents, and which of them are in thread caches."""

    part: Part
    rows: I64
    cached: Optional[Mask]


def large(heaps: Sequence[Heap]) -> Report:
    """Return ``jemalloc large``: large allocations by class, then each, the largest first."""
    found = [_find(part) for part in parts_of(heaps)]
    classes = [row for one in found for row in _classes(one)]
    count = sum(row.blocks for row in classes)
    data = LargeReport(
        blocks=count,
        bytes=sum(row.bytes for row in classes),
        extent_bytes=sum(row.extent_bytes for row in classes),
        tcache_blocks=None
        if any(one.cached is None for one in found)
        else total(row.tcache_blocks for row in classes),
        classes=classes,
        largest=Rows(lambda: _largest(found), LargeBlockRow, count, reads=0),
    )
    return report_of(heaps, data, labels=named_heaps(found, LargeRow, LargeBlockRow))


def _find(part: Part) -> _Found:
    extents = part.heap.extents
    rows = np.flatnonzero((extents.state == ExtentState.ACTIVE) & (extents.usable > 0)).astype(np.int64)
    objects = cached_objects(part.heap)
    cached = None if objects is None else np.isin(extents.pointer[rows], objects.address)
    return _Found(part, rows, cached)


def _classes(found: _Found) -> Iterator[LargeRow]:
    """Iterate over the classes that have blocks, or that any arena counts."""
    part, extents = found.part, found.part.heap.extents
    szind = extents.szind[found.rows]
    ever = {one.szind for arena in part.arenas if arena.stats for one in arena.large}
    for index in sorted({*np.unique(szind).tolist(), *ever}):
        mine = szind == index
        rows = found.rows[mine]
        yield LargeRow(
            heap=part.name,
            szind=index,
            size=part.heap.location.sizes[index] if index < len(part.heap.location.sizes) else None,
            blocks=len(rows),
            bytes=int(extents.usable[rows].sum()),
            extent_bytes=int(extents.size[rows].sum()),
            tcache_blocks=None if found.cached is None else int(found.cached[mine].sum()),
            **_counters(part, index),
        )


def _counters(part: Part, szind: int) -> dict[str, Optional[int]]:
    if not all(arena.stats for arena in part.arenas):
        return {"curlextents": None, "nmalloc": None, "ndalloc": None}
    mine = [one for arena in part.arenas for one in arena.large if one.szind == szind]
    return {
        "curlextents": sum(one.current for one in mine),
        "nmalloc": sum(one.nmalloc for one in mine),
        "ndalloc": sum(one.ndalloc for one in mine),
    }


def _largest(found: Sequence[_Found]) -> Iterator[LargeBlockRow]:
    usable = np.concatenate([one.part.heap.extents.usable[one.rows] for one in found])
    whose = np.repeat(np.arange(len(found)), [len(one.rows) for one in found])
    within = np.concatenate([np.arange(len(one.rows)) for one in found])
    order = np.argsort(-usable.astype(np.int64), kind="stable")
    for first in range(0, len(order), _BATCH):
        part = order[first : first + _BATCH]
        for owner, at in zip(whose[part].tolist(), within[part].tolist()):
            yield _block(found[owner], at)


def _block(found: _Found, at: int) -> LargeBlockRow:
    extents, row = found.part.heap.extents, int(found.rows[at])
    return LargeBlockRow(
        heap=found.part.name,
        address=int(extents.pointer[row]),
        bytes=int(extents.usable[row]),
        extent=int(extents.address[row]),
        extent_bytes=int(extents.size[row]),
        arena=int(extents.arena[row]),
        cached=None if found.cached is None else bool(found.cached[at]),
    )
