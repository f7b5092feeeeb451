"""A block that a thread was handing out for the first time has no padding yet: that is no damage."""

from __future__ import annotations

import numpy as np
import pytest

from gdbext.abi import X86_64
from gdbext.heap.freelists import Objects
from gdbext.heap.mimalloc.check import check_heap
from gdbext.heap.mimalloc.layouts import MAP_LAYOUTS
from gdbext.heap.mimalloc.model import MapLocation, Mimalloc, Pages
from gdbext.memory import Region
from gdbext.memory.fake import FakeMemory
from gdbext.process import Module, Thread
from gdbext.report import Problem
from gdbext.target import Target

CODE, BLOCK = 0x7F0000000000, 0x500000
NONE = np.empty(0, np.uint64)


def heap_of(fresh, program_counter):
    path = "/lib/libmimalloc.so.3"
    memory = FakeMemory([(CODE, bytes(0x1000))], [Region(CODE, CODE + 0x1000, "r-x", path)])
    thread = Thread(1, 1, "worker", registers={"rip": program_counter})
    target = Target(memory, X86_64, modules=[Module(path, CODE, CODE + 0x1000, None)], threads=[thread])
    pages = Pages(*[NONE] * 3, NONE.astype(np.int64), *[NONE] * 8)
    heap = Mimalloc(target, MapLocation(MAP_LAYOUTS[2], 0, (), NONE), pages, Objects(NONE, NONE, pages.capacity))
    heap.problems = [Problem("overrun", BLOCK + 64 * at, "written beyond its end", corruption=True) for at in range(2)]
    heap.fresh = {BLOCK + 64 * at for at in range(fresh)}
    return heap


@pytest.mark.parametrize(
    "fresh, inside, kinds",
    [
        (1, True, ["overrun", "in-flux"]),
        (1, False, ["overrun"] * 2),
        (2, True, ["overrun"] * 2),
        (0, True, ["overrun"] * 2),
    ],
)
def test_one_for_each_thread_inside_is_excused(fresh, inside, kinds):
    assert [one.kind for one in check_heap(heap_of(fresh, CODE + 16 if inside else 0x1000))] == kinds
