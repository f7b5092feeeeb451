"""``binmap``: malloc searches only the bins whose bit is set.

Mirrors malloc/malloc.c: ``mark_bin`` before a chunk goes into a bin, and ``do_check_malloc_state``. A bit is cleared
when its bin is found empty, not when it becomes so: a set bit of an empty bin is sound.
"""

from __future__ import annotations

from dataclasses import replace
from typing import List, Sequence, Tuple

from gdbext.heap.glibc.find.location import Location
from gdbext.heap.glibc.read.lists import FreeList
from gdbext.heap.glibc.read.segments import ArenaHead
from gdbext.heap.glibc.sizes import UNSORTED_BIN
from gdbext.memory import Reader
from gdbext.report import Problem


def with_binmap(lists: Sequence[FreeList], location: Location, head: ArenaHead, reader: Reader) -> List[FreeList]:
    """Return the bins of an arena, those that malloc does not find with a problem that says so.

    :raises FaultError: when the bitmap cannot be read.
    """
    member = location.malloc_state.member("binmap")
    words = [
        (at, reader.uint(at, member.size, "binmap"))
        for at in range(head.address + member.offset, head.address + member.offset + member.extent, member.size)
    ]
    return [_checked(one, words[one.index // (8 * member.size)], 8 * member.size, head.in_flux) for one in lists]


def _checked(one: FreeList, word: Tuple[int, int], bits: int, in_flux: bool) -> FreeList:
    place, value = word
    if one.index == UNSORTED_BIN or not len(one.chunks) or value >> one.index % bits & 1:
        return one
    message = f"{one.kind} bin {one.index}: its bit in binmap is 0, expected 1 as it holds {int(one.chunks[0]):#x}"
    why = "; its arena is in flux" if in_flux else ": malloc does not find what it holds"
    problem = Problem("bin-map", place, message + why, corruption=not in_flux)
    return replace(one, problems=(*one.problems, problem))
