"""What an allocator says of itself, held against itself: pools, their lists, the arenas' counts.

All of it is guarded by the global lock, so a thread that was stopped inside the allocator leaves one place behind in
which one count is off by one; the same in several places is damage.
"""

from __future__ import annotations

from typing import Iterator

import numpy as np

from gdbext.errors import FaultError
from gdbext.heap.cpython.layouts import CLASSES, DUMMY_SIZE_IDX, LINK
from gdbext.heap.cpython.model import I64, Arenas, Pools, StatePlace
from gdbext.heap.cpython.read.pools import Read, capacities, handed_out
from gdbext.heap.model import U64
from gdbext.report import Problem
from gdbext.target import Target
from gdbext.wording import count_text, size_text

_SHOWN = 20  # places of one kind
_IN_FLUX = 1  # places that one operation leaves


def check_pools(place: StatePlace, pools: Pools) -> Iterator[Problem]:
    """Iterate over the pools whose header cannot be; what lies in them is not known."""
    wrong = np.flatnonzero(pools.read & ~pools.sound & ~pools.empty)
    for at in wrong[:_SHOWN].tolist():
        row = pools.header[at]
        if row["szidx"] == DUMMY_SIZE_IDX:
            message = "a pool is being given a size class: a thread was stopped inside the allocator"
            yield Problem("in-flux", int(pools.address[at]), message)
        else:
            yield Problem("pool-header", int(pools.address[at]), _header_text(row), corruption=True)
    if len(wrong) > _SHOWN:
        yield Problem("pool-header", None, f"{len(wrong) - _SHOWN} more pools with such a header", corruption=True)
    lost = int(np.count_nonzero(~pools.read))
    if lost:
        at = int(pools.address[np.flatnonzero(~pools.read)[0]])
        bytes_ = size_text(lost * place.geometry.pool)
        yield Problem(
            "absent-memory", at, f"{count_text(lost, 'pool')} of Python's, {bytes_}, cannot be read: left out"
        )


def _header_text(row: "np.void") -> str:
    fields = ", ".join(
        f"{name} {int(row[name])}" for name in ("count", "szidx", "nextoffset", "maxnextoffset", "arenaindex")
    )
    return f"the header of a pool cannot be: {fields}; its blocks are left out"


def check_free_lists(place: StatePlace, read: Read) -> Iterator[Problem]:
    """Iterate over the pools whose free list breaks, or whose count is not what the list leaves."""
    pools, listed, whole = read.pools, read.listed, read.whole
    broken = np.flatnonzero(pools.sound & ~whole)
    for at in broken[:_SHOWN].tolist():
        message = f"the free list of a pool breaks after {count_text(int(listed.length[at]), 'block')}"
        yield Problem("pool-list", int(pools.address[at]), f"{message}: the others count as in use", corruption=True)
    used = handed_out(place.geometry, pools) - listed.length
    off = np.flatnonzero(pools.sound & whole & (used != pools.header["count"]))
    flux = len(off) <= _IN_FLUX and all(abs(int(used[at]) - int(pools.header["count"][at])) == 1 for at in off.tolist())
    for at in off[:_SHOWN].tolist():
        message = f"a pool counts {int(pools.header['count'][at])} blocks in use, its free list leaves {int(used[at])}"
        yield _passing(flux, Problem("pool-count", int(pools.address[at]), message, corruption=True))
    for wrong in (broken, off):
        if len(wrong) > _SHOWN:
            yield Problem("pool-list", None, f"the same in {len(wrong) - _SHOWN} more pools", corruption=True)


def _passing(flux: bool, problem: Problem) -> Problem:
    if not flux:
        return problem
    message = f"{problem.message}: a thread was stopped inside the allocator"
    return Problem("in-flux", problem.address, message)


def check_lists_of_pools(target: Target, place: StatePlace, pools: Pools) -> Iterator[Problem]:
    """Iterate over the partly used pools that are in no list of their class, and those in one that are not so."""
    try:
        words = np.array(target.reader.words(place.usedpools, 2 * CLASSES, "usedpools"), np.uint64)
    except FaultError:
        yield Problem("absent-memory", place.usedpools, "the lists of partly used pools cannot be read: not checked")
        return
    szidx = pools.header["szidx"].astype(np.int64)
    partly = np.flatnonzero(pools.sound & (pools.header["count"] < capacities(place.geometry, szidx)))
    heads = np.uint64(place.usedpools - LINK) + np.arange(CLASSES, dtype=np.uint64) * np.uint64(2 * 8)
    place_of = np.concatenate((heads, pools.address[partly]))
    after = np.concatenate((words[::2], pools.header["nextpool"][partly].astype(np.uint64)))
    before = np.concatenate((words[1::2], pools.header["prevpool"][partly].astype(np.uint64)))
    klass = np.concatenate((np.arange(CLASSES), szidx[partly]))
    at = positions(place_of, after)
    good = (at >= 0) & (before[at] == place_of) & (klass[at] == klass)
    off = np.unique(np.concatenate((place_of[~good], np.setdiff1d(place_of, after[good]))))
    flux = len(off) <= _IN_FLUX + 1
    for one in off[:_SHOWN].tolist():
        message = "a list of partly used pools breaks here, or this one is in none"
        yield _passing(flux, Problem("pool-list", int(one), message, corruption=True))


def positions(places: U64, wanted: U64) -> I64:
    """Return where each address is among others, or -1."""
    order = np.argsort(places, kind="stable")
    at = np.minimum(np.searchsorted(places[order], wanted), max(len(places) - 1, 0))
    found: I64 = np.where(places[order][at] == wanted, order[at], -1) if len(places) else np.full(len(wanted), -1)
    return found


def check_arenas(place: StatePlace, arenas: Arenas, pools: Pools) -> Iterator[Problem]:
    """Iterate over the arenas whose list of free pools is not what their pools say; or that are miscounted."""
    listed = _listed_pools(place, arenas, pools)
    empty = np.bincount(pools.arena[pools.empty], minlength=len(arenas)).astype(np.int64)
    carved = (arenas.carved - arenas.first).astype(np.int64) // place.geometry.pool
    uncut = arenas.total.astype(np.int64) - carved
    unread = np.bincount(pools.arena[~pools.read], minlength=len(arenas))
    off = np.flatnonzero(((listed != empty) | (listed + uncut != arenas.free)) & (unread == 0))
    flux = len(off) <= _IN_FLUX and all(abs(int(listed[at] - empty[at])) <= 1 for at in off.tolist())
    for at in off[:_SHOWN].tolist():
        message = (
            f"an arena counts {int(arenas.free[at])} free pools: its list has {int(listed[at])}, {int(empty[at])} of "
        )
        message += f"its pools are empty, {int(uncut[at])} were never used"
        yield _passing(flux, Problem("arena-count", int(arenas.address[at]), message, corruption=True))
    counted = place.counted.get("narenas_currently_allocated")
    if counted is not None and counted != len(arenas):
        message = f"narenas_currently_allocated is {counted}, but there are {count_text(len(arenas), 'arena')}"
        yield _passing(
            abs(counted - len(arenas)) == 1, Problem("arena-count", place.usedpools, message, corruption=True)
        )


def _listed_pools(place: StatePlace, arenas: Arenas, pools: Pools) -> I64:
    """Return how many empty pools of its own the list of each arena has before it ends or breaks."""
    listed = np.zeros(len(arenas), np.int64)
    seen = np.zeros(len(pools), np.bool_)
    arena, at = np.arange(len(arenas)), positions(pools.address, arenas.freepools)
    for _ in range(place.geometry.arena // place.geometry.pool):
        kept = at >= 0
        kept[kept] = pools.empty[at[kept]] & (pools.arena[at[kept]] == arena[kept]) & ~seen[at[kept]]
        arena, at = arena[kept], at[kept]
        if not len(at):
            break
        seen[at] = True
        listed[arena] += 1
        at = positions(pools.address, pools.header["nextpool"][at].astype(np.uint64))
    return listed
