"""From arenas and pools to the neutral model: blocks, arenas, spans, charges."""

from __future__ import annotations

from functools import partial
from typing import Callable, List, Tuple

import numpy as np

from gdbext.heap.cpython.layouts import POOL_OVERHEAD
from gdbext.heap.cpython.model import I64, Pymalloc
from gdbext.heap.cpython.read.pools import capacities, handed_out, sizes_of
from gdbext.heap.model import NO_ARENA, Arena, Blocks, LazyCharges, Span, State
from gdbext.memory.intervals import Intervals, columns, joined


def blocks_of(heap: Pymalloc) -> Blocks:
    """Return every block of pools in use; a pool that is free, or the rest of an arena, is one free block."""
    blocks = _small_blocks(heap)
    start, end = free_pools(heap)
    owner = np.searchsorted(heap.arenas.address, start, side="right").astype(np.uint32) - np.uint32(1)
    spare = Blocks(start, end - start, np.full(len(start), int(State.FREE), np.uint8), owner)
    return Blocks.join([blocks, spare]) if len(spare) else blocks


def _small_blocks(heap: Pymalloc) -> Blocks:
    pools, geometry = heap.pools, heap.geometry
    rows = np.flatnonzero(pools.sound)
    szidx = pools.header["szidx"][rows].astype(np.int64)
    size, count = sizes_of(geometry, szidx), capacities(geometry, szidx)
    ends = np.cumsum(count)
    total = int(ends[-1]) if len(ends) else 0
    pool = np.repeat(np.arange(len(rows), dtype=np.int32), count)
    number = np.arange(total, dtype=np.int64) - (ends - count)[pool]
    address = (pools.address[rows] + np.uint64(POOL_OVERHEAD))[pool]
    address += (number * size[pool]).astype(np.uint64)
    state = np.where(number < handed_out(geometry, pools)[rows][pool], int(State.IN_USE), int(State.FREE)).astype(
        np.uint8
    )
    state[_positions(heap, rows, ends - count)] = int(State.FREE)
    owner = pools.arena[rows].astype(np.uint32)[pool]
    return Blocks(address, size.astype(np.uint64)[pool], state, owner)


def _positions(heap: Pymalloc, rows: I64, firsts: I64) -> I64:
    """Return which blocks the free lists name.

    :param rows: the pools in use.
    :param firsts: the position of the first block of each.
    """
    pools, listed = heap.pools, heap.listed
    of_pool = np.zeros(len(pools), np.int64)
    of_pool[rows] = firsts
    size = sizes_of(heap.geometry, pools.header["szidx"][listed.pool].astype(np.int64)).astype(np.uint64)
    number = (listed.address - pools.address[listed.pool] - np.uint64(POOL_OVERHEAD)) // size
    found: I64 = of_pool[listed.pool] + number.astype(np.int64)
    return found


def free_pools(heap: Pymalloc) -> Intervals:
    """Return the pools that are free, and what of arenas was never cut into pools; neighbours apart."""
    arenas, step = heap.arenas, np.uint64(heap.geometry.pool)
    start = heap.pools.address[heap.pools.empty]
    uncut = arenas.first + arenas.total * step
    rest = arenas.carved < uncut
    starts = np.concatenate((start, arenas.carved[rest]))
    ends = np.concatenate((start + step, uncut[rest]))
    order = np.argsort(starts, kind="stable")
    return starts[order], ends[order]


def arenas_of(heap: Pymalloc) -> List[Arena]:
    """Return the arenas, by address."""
    size = heap.geometry.arena
    return [Arena(at, address, "arena", size) for at, address in enumerate(heap.arenas.address.tolist())]


def spans_of(heap: Pymalloc) -> List[Span]:
    """Return what was taken from the system: arenas, and the chunks of data stacks."""
    size = heap.geometry.arena
    spans = [Span(at, at + size, "arena", number) for number, at in enumerate(heap.arenas.address.tolist())]
    spans += [Span(at, at + length, "data stack", NO_ARENA) for at, length in heap.stacks]
    return sorted(spans, key=lambda span: span.start)


def charges_of(heap: Pymalloc, blocks: Blocks) -> LazyCharges:
    """Return the ledger's intervals."""
    makers: Tuple[Tuple[str, Callable[[], Intervals]], ...] = (
        ("in use", partial(_in_state, heap, blocks, State.IN_USE)),
        ("free", partial(_in_state, heap, blocks, State.FREE)),
        ("free pools", partial(free_pools, heap)),
        ("pool overhead", partial(_overhead, heap)),
        ("arena alignment", partial(_alignment, heap)),
        ("data stacks", lambda: columns((at, at + size) for at, size in heap.stacks)),
        ("unknown (damaged or in flux)", partial(_unknown, heap)),
    )
    return LazyCharges([(f"{heap.name} {owner}", partial(_joined, make)) for owner, make in makers])


def _joined(make: Callable[[], Intervals]) -> Intervals:
    return joined(make())


def _in_state(heap: Pymalloc, blocks: Blocks, state: State) -> Intervals:
    """Return blocks of a state; a block as large as a pool is one."""
    chosen = np.flatnonzero((blocks.state == int(state)) & (blocks.size <= np.uint64(heap.geometry.pool // 2)))
    start = blocks.address[chosen]
    return start, start + blocks.size[chosen]


def _overhead(heap: Pymalloc) -> Intervals:
    """Return the headers of pools in use, and what is left behind their last block."""
    rows = np.flatnonzero(heap.pools.sound)
    start = heap.pools.address[rows]
    szidx = heap.pools.header["szidx"][rows].astype(np.int64)
    taken = POOL_OVERHEAD + capacities(heap.geometry, szidx) * sizes_of(heap.geometry, szidx)
    starts = np.concatenate((start, start + taken.astype(np.uint64)))
    ends = np.concatenate((start + np.uint64(POOL_OVERHEAD), start + np.uint64(heap.geometry.pool)))
    return starts, ends


def _alignment(heap: Pymalloc) -> Intervals:
    """Return what arenas lose before their first pool and behind their last."""
    arenas = heap.arenas
    last = arenas.first + arenas.total * np.uint64(heap.geometry.pool)
    starts = np.concatenate((arenas.address, last))
    ends = np.concatenate((arenas.first, arenas.address + np.uint64(heap.geometry.arena)))
    return starts, ends


def _unknown(heap: Pymalloc) -> Intervals:
    start = heap.pools.address[~heap.pools.sound & ~heap.pools.empty]
    return start, start + np.uint64(heap.geometry.pool)


def sums_by_class(heap: Pymalloc) -> "Tuple[I64, I64, I64]":
    """Return for each size class its pools, blocks in use, and blocks that are not."""
    pools = heap.pools
    rows = np.flatnonzero(pools.sound)
    szidx = pools.header["szidx"][rows].astype(np.int64)
    capacity = np.bincount(szidx, capacities(heap.geometry, szidx), 32).astype(np.int64)
    used = np.bincount(szidx, pools.header["count"][rows], 32).astype(np.int64)
    return np.bincount(szidx, minlength=32), used, capacity - used
