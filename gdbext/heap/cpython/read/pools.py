"""The pools of arenas, as columns, and the free lists in them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import List, Sequence, Tuple

import numpy as np

from gdbext.heap.cpython.layouts import CLASSES, POOL_HEADER, POOL_OVERHEAD, Geometry, dtype_of
from gdbext.heap.cpython.model import I64, Arenas, FreeBlocks, Pools, Records
from gdbext.heap.model import U64, Mask
from gdbext.kernels import LinkRules, Span, walk_chains
from gdbext.memory.bulk import for_each_view
from gdbext.memory.intervals import slices
from gdbext.progress import Progress
from gdbext.target import Target

_AT_ONCE = 1 << 26  # bytes of arenas: of a process they are copied


@dataclass(frozen=True)
class Read:
    """The pools of an allocator.

    :param whole: of which pools the free list is, those without one included.
    """

    pools: Pools
    listed: FreeBlocks
    whole: Mask


def read_pools(target: Target, arenas: Arenas, geometry: Geometry, progress: Progress) -> Read:
    """Return every pool that was handed out once, with its header and its free list."""
    step = max(_AT_ONCE // geometry.arena, 1)
    parts = []
    for part in slices(max(len(arenas), 1), step):
        progress.at("reading Python's arenas", part.start, len(arenas))
        parts.append(_read_part(target, arenas, geometry, part))
    return _joined(parts)


def _read_part(target: Target, arenas: Arenas, geometry: Geometry, part: slice) -> Read:
    spans: List[Span] = []
    for start, end in zip(arenas.first[part].tolist(), arenas.carved[part].tolist()):
        spans += for_each_view(target.memory, start, end, target.abi.page_size) if start < end else ()
    step = np.uint64(geometry.pool)
    counts = ((arenas.carved[part] - arenas.first[part]) // step).astype(np.int64)
    arena = np.repeat(np.arange(part.start, part.start + len(counts)), counts)
    within = np.arange(len(arena)) - np.repeat(np.cumsum(counts) - counts, counts)
    address = arenas.first[arena] + within.astype(np.uint64) * step
    header, read = _headers(target, geometry, address, spans)
    sound, empty = _judge(arenas, geometry, header, arena)
    pools = Pools(address, arena, header, read, sound & read, empty & read)
    return Read(pools, *_free_lists(target, geometry, pools, spans))


def _joined(parts: Sequence[Read]) -> Read:
    if len(parts) == 1:
        return parts[0]
    pools = [one.pools for one in parts]
    before = np.cumsum([0, *map(len, pools)])
    members = ("address", "arena", "header", "read", "sound", "empty")
    whole = Pools(*(np.concatenate([getattr(one, name) for one in pools]) for name in members))
    listed = FreeBlocks(
        np.concatenate([one.listed.address for one in parts]),
        np.concatenate([one.listed.pool + first for one, first in zip(parts, before.tolist())]),
        np.concatenate([one.listed.length for one in parts]),
    )
    return Read(whole, listed, np.concatenate([one.whole for one in parts]))


def _headers(target: Target, geometry: Geometry, address: U64, spans: Sequence[Span]) -> Tuple[Records, Mask]:
    kind = dtype_of(POOL_HEADER, target.abi)
    found, read = np.zeros(len(address), kind), np.zeros(len(address), np.bool_)
    for start, data in spans:
        held = memoryview(data)  # type: ignore[arg-type]
        low = int(np.searchsorted(address, np.uint64(start)))
        behind = np.uint64(max(start + held.nbytes - kind.itemsize + 1, 0))
        high = int(np.searchsorted(address, behind))
        if low < high:
            offset = int(address[low]) - start
            rows = np.ndarray((high - low,), kind, held, offset, (geometry.pool,))
            found[low:high], read[low:high] = rows, True
    return found, read


def _judge(arenas: Arenas, geometry: Geometry, header: Records, arena: I64) -> Tuple[Mask, Mask]:
    """Return which pools are in use and agree with themselves, and which are empty."""
    own = header["arenaindex"] == arenas.index[arena]
    szidx = header["szidx"].astype(np.int64)
    size = sizes_of(geometry, szidx)
    behind, last = header["nextoffset"].astype(np.int64), header["maxnextoffset"].astype(np.int64)
    sound = own & (header["count"] > 0) & (szidx < CLASSES) & (last == geometry.pool - size)
    sound &= (behind > POOL_OVERHEAD) & (behind <= geometry.pool) & ((behind - POOL_OVERHEAD) % size == 0)
    sound &= header["count"] <= capacities(geometry, szidx)
    return np.asarray(sound, np.bool_), np.asarray(own & (header["count"] == 0), np.bool_)


def sizes_of(geometry: Geometry, szidx: I64) -> I64:
    """Return the bytes of size classes; of no class those of the first."""
    known: I64 = np.where(szidx < CLASSES, (szidx + 1) * geometry.alignment, geometry.alignment)
    return known


def capacities(geometry: Geometry, szidx: I64) -> I64:
    """Return how many blocks pools of size classes have."""
    found: I64 = (geometry.pool - POOL_OVERHEAD) // sizes_of(geometry, szidx)
    return found


def handed_out(geometry: Geometry, pools: Pools) -> I64:
    """Return of how many blocks of each pool in use one was ever handed out; the others are on no list."""
    szidx = pools.header["szidx"].astype(np.int64)
    count = (pools.header["nextoffset"].astype(np.int64) - POOL_OVERHEAD) // sizes_of(geometry, szidx)
    found: I64 = np.where(pools.sound, np.minimum(count, capacities(geometry, szidx)), 0)
    return found


def _free_lists(target: Target, geometry: Geometry, pools: Pools, spans: Sequence[Span]) -> Tuple[FreeBlocks, Mask]:
    """Return the free blocks that pools list, and of which pools the list is whole.

    What a broken list leads to before it breaks is among them, each block once.
    """
    rows = np.flatnonzero(pools.sound & (pools.header["freeblock"] != 0))
    firsts = pools.header["freeblock"][rows].astype(np.uint64)
    most = capacities(geometry, pools.header["szidx"][rows].astype(np.int64)).astype(np.uint64)
    rules = LinkRules(0, target.abi.pointer_size, target.abi.byteorder)
    chains = walk_chains(spans, firsts, None, rules, most)
    lengths = chains.lengths.astype(np.int64)
    pool = np.repeat(rows, lengths)
    good = _are_blocks(geometry, pools, chains.nodes, pool)
    place = np.arange(len(pool)) - np.repeat(np.cumsum(lengths) - lengths, lengths)
    broken = np.full(len(pools), np.iinfo(np.int64).max, np.int64)
    np.minimum.at(broken, pool[~good], place[~good])
    kept = place < broken[pool]
    whole = np.ones(len(pools), np.bool_)
    whole[rows] = (chains.ends == 0) & (broken[rows] == np.iinfo(np.int64).max)
    length = np.bincount(pool[kept], minlength=len(pools)).astype(np.int64)
    return FreeBlocks(chains.nodes[kept], pool[kept], length), whole


def _are_blocks(geometry: Geometry, pools: Pools, nodes: U64, pool: I64) -> Mask:
    """Return which nodes are blocks that their pool has handed out."""
    size = sizes_of(geometry, pools.header["szidx"][pool].astype(np.int64))
    offset = nodes - pools.address[pool] - np.uint64(POOL_OVERHEAD)  # of what lies before the first it is huge
    number = offset // size.astype(np.uint64)
    good = (offset % size.astype(np.uint64) == 0) & (number < handed_out(geometry, pools)[pool].astype(np.uint64))
    return np.asarray(good, np.bool_)
