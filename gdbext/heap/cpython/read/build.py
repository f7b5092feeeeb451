"""One allocator read whole."""

from __future__ import annotations

from itertools import chain

from gdbext.heap.cpython.check.check import check_arenas, check_free_lists, check_lists_of_pools, check_pools
from gdbext.heap.cpython.find.places import find_data_stacks
from gdbext.heap.cpython.model import Pymalloc, Runtime, StatePlace
from gdbext.heap.cpython.read.arenas import read_arenas
from gdbext.heap.cpython.read.pools import read_pools
from gdbext.progress import Progress
from gdbext.target import Target


def read_pymalloc(target: Target, runtime: Runtime, place: StatePlace, name: str, progress: Progress) -> Pymalloc:
    """Return one allocator.

    :param name: as reports call it.
    :raises FaultError: its array of arena objects is not in the target.
    """
    arenas, problems = read_arenas(target, place)
    read = read_pools(target, arenas, place.geometry, progress)
    problems += chain(
        check_pools(place, read.pools),
        check_free_lists(place, read),
        check_lists_of_pools(target, place, read.pools),
        check_arenas(place, arenas, read.pools),
    )
    pools = read.pools
    heap = Pymalloc(name, runtime, place, arenas, pools, read.listed, find_data_stacks(target, runtime), problems)
    heap.complete = bool(pools.read.all()) and not any(one.kind in ("arena-object", "pool-header") for one in problems)
    return heap
