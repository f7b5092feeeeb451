"""``python blocks``: how pools and arenas of CPython's allocator are used."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Iterator, List, Sequence

import numpy as np

from gdbext.heap.cpython.model import Pymalloc
from gdbext.heap.cpython.read.convert import sums_by_class
from gdbext.heap.cpython.read.pools import sizes_of
from gdbext.heap.model import Heap
from gdbext.heap.reading import evidence_of, problems_of
from gdbext.report import Kind, Report, column, line, table


@dataclass(frozen=True)
class ClassRow:
    """One size class.

    :param heap: which allocator, where there are several.
    :param size: of one block.
    :type size: bytes
    :param pools: in use.
    :param used_blocks: that Python has.
    :param free_blocks: of these pools; those that were never handed out too.
    :param used_bytes: of the used blocks.
    :param free_bytes: of the free ones.
    :param utilisation: ``used_blocks`` of all.
    """

    heap: str = column(None)
    size: int = column("size", Kind.COUNT)
    pools: int = column("pools", Kind.COUNT)
    used_blocks: int = column("used", Kind.COUNT)
    free_blocks: int = column("free", Kind.COUNT)
    used_bytes: int = column("used bytes", Kind.BYTES)
    free_bytes: int = column("free bytes", Kind.BYTES)
    utilisation: float = column("in use", Kind.SHARE)


@dataclass(frozen=True)
class ArenaRow:
    """One arena, which goes back to the system when all its pools are free.

    :param heap: which allocator, where there are several.
    :param address: of its mapping.
    :param pools: that it has.
    :param free_pools: of them, those that were never used too.
    :param used_blocks: in its other pools.
    :param used_bytes: of them.
    :param utilisation: ``used_bytes`` of the whole arena.
    """

    heap: str = column(None)
    address: int = column("arena", Kind.ADDRESS)
    pools: int = column("pools", Kind.COUNT)
    free_pools: int = column("free pools", Kind.COUNT)
    used_blocks: int = column("used blocks", Kind.COUNT)
    used_bytes: int = column("used bytes", Kind.BYTES)
    utilisation: float = column("in use", Kind.SHARE)


@dataclass(frozen=True)
class PythonBlocks:
    """What ``python blocks`` answers; of several allocators sums over all.

    :param arenas: that it has from the system.
    :param arena_bytes: of them.
    :param pools: in use.
    :param free_pools: all others; those that were never used too.
    :param used_blocks: that Python has. Objects above 512 bytes are malloc's.
    :param used_bytes: of them.
    :param free_bytes: of free blocks in pools in use.
    :param classes: that have a pool, by size.
    :param by_arena: those with the fewest bytes in use first.
    """

    arenas: int = line("arenas", Kind.COUNT)
    arena_bytes: int = line("bytes of arenas", Kind.BYTES)
    pools: int = line("pools in use", Kind.COUNT)
    free_pools: int = line("free pools", Kind.COUNT)
    used_blocks: int = line("blocks used", Kind.COUNT)
    used_bytes: int = line("bytes used", Kind.BYTES)
    free_bytes: int = line("bytes free in pools in use", Kind.BYTES)
    classes: Sequence[ClassRow] = table("Size classes")
    by_arena: Sequence[ArenaRow] = table("Arenas")


def blocks(heaps: Sequence[Heap]) -> Report:
    """Return how the pools of each size class, and the arenas, are used."""
    details: List[Pymalloc] = [heap.detail for heap in heaps]
    classes = sorted((row for one in details for row in _classes(one)), key=lambda row: (row.heap, row.size))
    arenas = sorted((row for one in details for row in _arenas(one)), key=lambda row: (row.used_bytes, row.address))
    data = PythonBlocks(
        len(arenas),
        sum(one.geometry.arena * len(one.arenas) for one in details),
        sum(row.pools for row in classes),
        sum(row.free_pools for row in arenas),
        sum(row.used_blocks for row in classes),
        sum(row.used_bytes for row in classes),
        sum(row.free_bytes for row in classes),
        classes,
        arenas,
    )
    complete = all(heap.complete for heap in heaps)
    return Report(data, evidence=evidence_of(heaps), problems=problems_of(heaps), complete=complete)


def _classes(heap: Pymalloc) -> Iterator[ClassRow]:
    pools, used, free = (each.tolist() for each in sums_by_class(heap))
    for szidx, count in enumerate(pools):
        if count:
            size, share = heap.geometry.size(szidx), used[szidx] / (used[szidx] + free[szidx])
            yield ClassRow(
                heap.name, size, count, used[szidx], free[szidx], used[szidx] * size, free[szidx] * size, share
            )


def _arenas(heap: Pymalloc) -> Iterator[ArenaRow]:
    pools, arenas, geometry = heap.pools, heap.arenas, heap.geometry
    rows = np.flatnonzero(pools.sound)
    counts = pools.header["count"][rows].astype(np.int64)
    sizes = sizes_of(geometry, pools.header["szidx"][rows].astype(np.int64))
    blocks, bytes_ = (
        np.bincount(pools.arena[rows], each, len(arenas)).astype(np.int64) for each in (counts, counts * sizes)
    )
    columns = (arenas.address, arenas.total, arenas.free, blocks, bytes_)
    for address, total, free, used, size in zip(*(each.tolist() for each in columns)):
        yield ArenaRow(heap.name, address, total, free, used, size, size / geometry.arena)
