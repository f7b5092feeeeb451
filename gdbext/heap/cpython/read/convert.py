"""From arenas and pools to the neutral model: blocks, arenas, spans, charges."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Callable, List, Tuple

import numpy as np

from gdbext.heap.cpython.layouts import POOL_OVERHEAD
from gdbext.heap.cpython.model import I64, Pymalloc
from gdbext.heap.cpython.read.pools import capacities, handed_out, sizes_of
from gdbext.heap.model import NO_ARENA, U32, U64, Arena, Blocks, LazyCharges, Span, State
from gdbext.memory.intervals import Intervals, columns, joined, slices

_AT_ONCE = 1 << 10  # pools


@dataclass(frozen=True)
class _Cuts:
    """What arenas are cut into: pools in use into their blocks; a free pool, and the rest of an arena, are one block.

    :param used: how many of the blocks were ever handed out.
    """

    start: U64
    size: I64
    count: I64
    used: I64
    owner: U32


def blocks_of(heap: Pymalloc) -> Blocks:
    """Return every block of pools in use; a pool that is free, or the rest of an arena, is one free block."""
    cuts, at = _cuts(heap)
    ends = np.cumsum(cuts.count)
    total = int(ends[-1]) if len(ends) else 0
    blocks = Blocks(
        np.empty(total, np.uint64), np.empty(total, np.uint64), np.empty(total, np.uint8), np.empty(total, np.uint32)
    )
    for part in slices(len(ends), _AT_ONCE):
        count = cuts.count[part]
        first = int(ends[part.start] - count[0])
        place = slice(first, int(ends[part.stop - 1]))
        cut = np.repeat(np.arange(part.start, part.stop), count)
        number = np.arange(first, place.stop) - (ends - cuts.count)[cut]
        size = cuts.size[cut].astype(np.uint64)
        blocks.address[place] = cuts.start[cut] + number.astype(np.uint64) * size
        blocks.size[place] = size
        blocks.state[place] = np.where(number < cuts.used[cut], int(State.IN_USE), int(State.FREE))
        blocks.owner[place] = cuts.owner[cut]
    blocks.state[_positions(heap, at, ends - cuts.count)] = int(State.FREE)
    return blocks


def _cuts(heap: Pymalloc) -> "Tuple[_Cuts, I64]":
    """Return what arenas are cut into, by address, and which cut each pool in use is."""
    pools, geometry = heap.pools, heap.geometry
    rows = np.flatnonzero(pools.sound)
    szidx = pools.header["szidx"][rows].astype(np.int64)
    spare, behind = free_pools(heap)
    none, one = np.zeros(len(spare), np.int64), np.ones(len(spare), np.int64)
    arena = np.searchsorted(heap.arenas.address, spare, side="right") - 1
    start = np.concatenate((pools.address[rows] + np.uint64(POOL_OVERHEAD), spare))
    order = np.argsort(start, kind="stable")
    parts = (
        np.concatenate((sizes_of(geometry, szidx), (behind - spare).astype(np.int64))),
        np.concatenate((capacities(geometry, szidx), one)),
        np.concatenate((handed_out(geometry, pools)[rows], none)),
    )
    owner = np.concatenate((pools.arena[rows], arena)).astype(np.uint32)[order]
    place = np.empty(len(order), np.int64)
    place[order] = np.arange(len(order))
    at = np.zeros(len(pools), np.int64)
    at[rows] = place[: len(rows)]
    size, count, used = (each[order] for each in parts)
    return _Cuts(start[order], size, count, used, owner), at


def _positions(heap: Pymalloc, at: I64, firsts: I64) -> I64:
    """Return which blocks the free lists name.

    :param at: of each pool in use, which cut it is.
    :param firsts: the position of the first block of each cut.
    """
    pools, listed = heap.pools, heap.listed
    size = sizes_of(heap.geometry, pools.header["szidx"][listed.pool].astype(np.int64)).astype(np.uint64)
    number = (listed.address - pools.address[listed.pool] - np.uint64(POOL_OVERHEAD)) // size
    found: I64 = firsts[at[listed.pool]] + number.astype(np.int64)
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
    spans += [Span(one.address, one.end, "data stack", NO_ARENA) for one in heap.stacks]
    return sorted(spans, key=lambda span: span.start)


def charges_of(heap: Pymalloc, blocks: Blocks) -> LazyCharges:
    """Return the ledger's intervals."""
    makers: Tuple[Tuple[str, Callable[[], Intervals]], ...] = (
        ("in use", partial(_in_state, heap, blocks, State.IN_USE)),
        ("free", partial(_in_state, heap, blocks, State.FREE)),
        ("free pools", partial(free_pools, heap)),
        ("pool overhead", partial(_overhead, heap)),
        ("arena alignment", partial(_alignment, heap)),
        ("data stacks", lambda: columns((one.address, one.end) for one in heap.stacks)),
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
