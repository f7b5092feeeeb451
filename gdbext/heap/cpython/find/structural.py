"""The allocator's state by structure alone, in the writable data of a module.

``usedpools`` is 32 pairs of pointers: each leads to a pool's header, or back to itself, less the place of ``nextpool``.
glibc's empty bins are such pairs too: a pool's header must agree with the pair that leads to it. ``arenas`` is the
pointer from which the index in those headers leads to the arena around them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Iterator, List, Optional, Sequence, Tuple

import numpy as np

from gdbext.errors import FaultError
from gdbext.heap.cpython.layouts import (
    ARENA_OBJECT,
    ARENAS_IN_STATE,
    CLASSES,
    GEOMETRIES,
    LINK,
    MAXARENAS_IN_STATE,
    POOL_HEADER,
    Geometry,
    dtype_of,
)
from gdbext.heap.cpython.model import I64, StatePlace
from gdbext.heap.model import U64, Mask
from gdbext.memory.bulk import words_at
from gdbext.memory.intervals import Coverage, columns, distinct
from gdbext.process import Module
from gdbext.target import Target

_MOST = 64 << 20  # bytes of one mapping that are searched
_MOST_PLACES = 1 << 10  # places that may be usedpools
_MOST_POINTERS = 1 << 16  # pointers that may be arenas
_POOLS = 8  # that arenas must explain


@dataclass(frozen=True)
class Ring:
    """What may be ``usedpools``.

    :param pools: headers of pools that its pairs lead to; none where all lead to themselves.
    """

    address: int
    geometry: Geometry
    pools: Sequence[int]


def find_by_structure(target: Target, module: Module) -> Tuple[List[StatePlace], bool]:
    """Return the allocators in a module's data, and whether there is one that was never used."""
    data = list(module_words(target, module))
    rings = [ring for start, words in data for ring in _rings(target, start, words)]
    found = [_state(target, data, ring) for ring in rings if ring.pools]
    return [one for one in found if one is not None], any(not ring.pools for ring in rings)


def find_ring(target: Target, address: int) -> Optional[Ring]:
    """Return the lists of pools at an address that a name has led to, or None where there are none."""
    try:
        words = words_at(target.memory, target.abi, address, 2 * CLASSES)
    except FaultError:
        return None
    return next(_rings(target, address, words), None)


def module_words(target: Target, module: Module) -> Iterator[Tuple[int, U64]]:
    """Iterate over a module's variables as words, with the address of the first; what cannot be read is left out."""
    for region in target.index.within(module.base, module.end):
        if region.readable and region.writable:
            start, end = region.start, min(region.end, module.end, region.start + _MOST)
            try:
                yield start, words_at(target.memory, target.abi, start, (end - start) // 8)
            except FaultError:
                continue


def _rings(target: Target, start: int, words: U64) -> Iterator[Ring]:
    """Iterate over what may be ``usedpools`` in a stretch of words."""
    last = len(words) - 2 * CLASSES
    at = np.arange(max(last + 1, 0), dtype=np.int64)
    for szidx in range(CLASSES):
        at = at[_fits(start, words, at, szidx)]
    for place in at[:_MOST_PLACES].tolist():
        ring = _ring(target, start + 8 * place, words[place : place + 2 * CLASSES])
        if ring is not None:
            yield ring


def _fits(start: int, words: U64, at: I64, szidx: int) -> Mask:
    """Return at which places the pair of a class leads to itself, or to what is aligned as pools are."""
    one, other = words[at + 2 * szidx], words[at + 2 * szidx + 1]
    head = np.uint64(start - LINK) + ((at + 2 * szidx) * 8).astype(np.uint64)
    pools = np.uint64(min(each.pool for each in GEOMETRIES) - 1)
    aligned = ((one | other) & pools == 0) & (one != 0) & (other != 0)
    found: Mask = ((one == head) & (other == head)) | aligned
    return found


def _ring(target: Target, address: int, words: U64) -> Optional[Ring]:
    heads = [(szidx, int(words[2 * szidx]), address - LINK + 16 * szidx) for szidx in range(CLASSES)]
    led = [(szidx, pool, head) for szidx, pool, head in heads if pool != head]
    if not led:
        return Ring(address, GEOMETRIES[0], ())
    for geometry in GEOMETRIES:
        sound = [pool for szidx, pool, head in led if _is_first(target, geometry, szidx, pool, head)]
        if 2 * len(sound) > len(led):
            return Ring(address, geometry, sound)
    return None


def _is_first(target: Target, geometry: Geometry, szidx: int, pool: int, head: int) -> bool:
    """Whether a pool is of a class, partly used, and its list's first."""
    kind = dtype_of(POOL_HEADER, target.abi)
    try:
        header = np.frombuffer(target.memory.read(pool, kind.itemsize), kind)[0]
    except FaultError:
        return False
    fits = header["szidx"] == szidx and header["maxnextoffset"] == geometry.pool - geometry.size(szidx)
    return bool(fits and 0 < header["count"] < geometry.capacity(szidx) and header["prevpool"] == head)


# ---- arenas ----


def _state(target: Target, data: Sequence[Tuple[int, U64]], ring: Ring) -> Optional[StatePlace]:
    inside = ring.address + ARENAS_IN_STATE
    for arenas in (_word(target, inside), *_pointers(target, data).tolist()):
        if arenas is not None and explains(target, arenas, ring):
            in_state = arenas == _word(target, inside)
            limit = _number(target, ring.address + MAXARENAS_IN_STATE) if in_state else None
            return StatePlace(ring.address, arenas, limit, ring.geometry, "structure")
    return None


def explains(target: Target, arenas: int, ring: Ring) -> bool:
    """Whether the array of arena objects at an address has the arenas of pools."""
    return all(_in_arena(target, arenas, pool, ring.geometry) for pool in ring.pools[:_POOLS])


def _in_arena(target: Target, arenas: int, pool: int, geometry: Geometry) -> bool:
    index = _number(target, pool + POOL_HEADER["arenaindex"][0])
    kind = dtype_of(ARENA_OBJECT, target.abi)
    try:
        row = np.frombuffer(target.memory.read(arenas + kind.itemsize * (index or 0), kind.itemsize), kind)[0]
    except FaultError:
        return False
    address, carved, most = int(row["address"]), int(row["pool_address"]), geometry.arena // geometry.pool
    held = index is not None and address <= pool < carved <= address + geometry.arena
    return bool(held and most - 1 <= row["ntotalpools"] <= most and row["nfreepools"] <= most)


def _pointers(target: Target, data: Sequence[Tuple[int, U64]]) -> U64:
    """Return the distinct addresses of mapped memory in a module's data that malloc may have handed out."""
    values = [distinct(words[(words != 0) & (words % np.uint64(16) == 0)]) for _, words in data]
    found = distinct(np.concatenate([np.empty(0, np.uint64), *values]))
    mapped = Coverage(*columns((one.start, one.end) for one in target.index.regions if one.readable))
    return found[mapped.holds(found)][:_MOST_POINTERS]


def _word(target: Target, address: int) -> Optional[int]:
    try:
        return target.reader.word(address)
    except FaultError:
        return None


def _number(target: Target, address: int) -> Optional[int]:
    try:
        return target.reader.uint(address, 4)
    except FaultError:
        return None
