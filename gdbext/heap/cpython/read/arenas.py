"""The arenas that an allocator has, from its array of arena objects."""

from __future__ import annotations

from typing import List, Tuple

import numpy as np

from gdbext.errors import FaultError
from gdbext.heap.cpython.layouts import ARENA_OBJECT, INITIAL_ARENA_OBJECTS, POOL_HEADER, Geometry, dtype_of
from gdbext.heap.cpython.model import Arenas, Records, StatePlace
from gdbext.heap.model import U64, Mask
from gdbext.memory.intervals import Coverage, columns, joined
from gdbext.report import Problem
from gdbext.target import Target

_MOST = 1 << 24  # arena objects: 4 TiB of small blocks


def read_arenas(target: Target, place: StatePlace) -> Tuple[Arenas, List[Problem]]:
    """Return the arenas by address, and what is wrong with them.

    :raises FaultError: the array cannot be read.
    """
    objects = _objects(target, place)
    index = np.flatnonzero(objects["address"])
    taken = objects[index]
    good = _are_sound(target, place.geometry, taken)
    problems = [
        Problem("arena-object", place.arenas + 48 * int(at), _damage(int(at), row), corruption=True)
        for at, row in zip(index[~good].tolist(), taken[~good])
    ]
    order = np.argsort(taken["address"][good], kind="stable")
    kept = taken[good][order]
    first = _first_pools(kept["address"].astype(np.uint64), place.geometry)
    arenas = Arenas(
        index[good][order].astype(np.uint32),
        kept["address"].astype(np.uint64),
        first,
        kept["pool_address"].astype(np.uint64),
        kept["ntotalpools"].astype(np.uint32),
        kept["nfreepools"].astype(np.uint32),
        kept["freepools"].astype(np.uint64),
    )
    return arenas, problems


def _damage(index: int, row: "np.void") -> str:
    return (
        f"arenas[{index}] cannot be: its mapping {int(row['address']):#x}, its next pool {int(row['pool_address']):#x}"
    )


def _first_pools(address: U64, geometry: Geometry) -> U64:
    mask = np.uint64(geometry.pool - 1)
    first: U64 = (address + mask) & ~mask
    return first


def _are_sound(target: Target, geometry: Geometry, rows: Records) -> Mask:
    """Return which arenas are mapped, disjoint, and have a next pool where one can be."""
    address = rows["address"].astype(np.uint64)
    first, size = _first_pools(address, geometry), np.uint64(geometry.arena)
    pools = np.uint64(geometry.arena // geometry.pool) - (first != address)
    mapped = Coverage(*joined(columns((one.start, one.end) for one in target.index.regions)))
    good = mapped.holds_whole(address, address + size) & (address % np.uint64(target.abi.page_size) == 0)
    good &= rows["ntotalpools"] == pools
    good &= rows["nfreepools"] <= pools
    carved = rows["pool_address"].astype(np.uint64)
    good &= (carved >= first) & (carved <= first + pools * np.uint64(geometry.pool))
    good &= (carved - first) % np.uint64(geometry.pool) == 0
    order = np.argsort(address, kind="stable")
    good[order[1:]] &= address[order[1:]] - address[order[:-1]] >= size
    return np.asarray(good, np.bool_)


def _objects(target: Target, place: StatePlace) -> Records:
    kind = dtype_of(ARENA_OBJECT, target.abi)
    if not place.arenas:
        return np.empty(0, kind)
    if place.limit is not None and place.limit <= _MOST:
        return np.frombuffer(target.memory.read(place.arenas, 48 * place.limit), kind)
    return _measured(target, place, kind)


def _measured(target: Target, place: StatePlace, kind: "np.dtype[np.void]") -> Records:
    """Return the array where nothing says how long it is: it is doubled when it is full, and each half is whole."""
    count = INITIAL_ARENA_OBJECTS
    objects = np.frombuffer(target.memory.read(place.arenas, 48 * count), kind)
    while count < _MOST:
        try:
            further = np.frombuffer(target.memory.read(place.arenas + 48 * count, 48 * count), kind)
        except FaultError:
            break
        if not _are_objects(target, place, further, count):
            break
        objects, count = np.concatenate((objects, further)), 2 * count
    return objects


def _are_objects(target: Target, place: StatePlace, rows: Records, start: int) -> bool:
    """Whether rows are arena objects: each unused, or with pools that have its index."""
    used = np.flatnonzero(rows["address"])
    unused = rows[rows["address"] == 0]
    inside = (unused["nextarena"] == 0) | (unused["nextarena"] - np.uint64(place.arenas) < np.uint64(48 * 4 * start))
    if not inside.all() or not len(unused) + len(used) or not _are_sound(target, place.geometry, rows[used]).all():
        return False
    first = _first_pools(rows["address"][used].astype(np.uint64), place.geometry)
    at = POOL_HEADER["arenaindex"][0]
    try:
        found = [target.reader.uint(pool + at, 4) for pool in first.tolist()]
    except FaultError:
        return False
    return found == [start + each for each in used.tolist()]
