"""Reads one jemalloc whole: extents, threads, arenas."""

from __future__ import annotations

from gdbext.heap.jemalloc.find.locate import sound_arenas
from gdbext.heap.jemalloc.model import Extents, Jemalloc, Location
from gdbext.heap.jemalloc.read.arenas import read_arenas
from gdbext.heap.jemalloc.read.regions import check_mapped
from gdbext.heap.jemalloc.read.rtree import check_slabs, read_extents
from gdbext.heap.jemalloc.read.tcache import read_tcaches
from gdbext.heap.jemalloc.read.tsd import read_tsds
from gdbext.progress import Progress
from gdbext.report import Problem
from gdbext.target import Target


def read_jemalloc(target: Target, location: Location, progress: Progress) -> Jemalloc:
    """Return all that one jemalloc has; what cannot be read or cannot be is among its problems.

    An interrupt ends the reading early; what is there then is returned with ``complete`` False.
    """
    heap = Jemalloc(target, location, Extents.empty(), problems=list(location.problems))
    try:
        _read_extents(heap, progress)
    except KeyboardInterrupt:
        heap.complete = False
        message = "interrupted: extents are missing, only counters are shown"
        heap.problems.append(Problem("interrupted", None, message))
    heap.tsds = read_tsds(target, location, heap.problems)
    heap.tcaches = read_tcaches(target, location, heap.tsds, heap.problems)
    arenas = sound_arenas(target, location)
    heap.arenas = read_arenas(target, location, arenas, heap.extents, heap.tsds, heap.problems)
    heap.complete = heap.complete and not any(one.kind == "absent-memory" for one in heap.problems)
    return heap


def _read_extents(heap: Jemalloc, progress: Progress) -> None:
    heap.extents, walk = read_extents(heap.target, heap.location, progress)
    heap.problems += walk.problems
    heap.problems += check_slabs(heap.extents, heap.location.bin_infos)
    heap.problems += check_mapped(heap)
    heap.complete = not walk.absent
