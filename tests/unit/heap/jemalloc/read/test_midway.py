"""What reading meets while extents are being split or merged."""

from __future__ import annotations

import pytest

from gdbext.heap.jemalloc.check.check import check_heap
from gdbext.heap.jemalloc.find.globals import find_jemallocs
from gdbext.heap.jemalloc.read.build import read_jemalloc
from gdbext.progress import SILENT
from gdbext.report import Problem
from tests.support.jeworld import LAYOUTS, laid


def problems(world) -> list[Problem]:
    """Those of extents' sizes; the world keeps no counters."""
    target = world.target()
    (location,) = find_jemallocs(target, SILENT).locations
    return [one for one in check_heap(read_jemalloc(target, location, SILENT)) if one.kind == "extent-size"]


@pytest.mark.parametrize("version", LAYOUTS)
def test_a_wrong_size_is_damage_unless_its_arenas_pages_are_moved(version):
    world = laid(version)
    world.put("extent", world.dirty, size=1 << 40)
    (damage,) = problems(world)
    assert damage.corruption and "has another size than the tree gives it" in damage.message
    retained = world.layout["arena"].offset("retained")
    world.put("cache", world.arenas[1] + retained, mutex=1)  # another arena's
    assert [one.corruption for one in problems(world)] == [True]
    world.put("cache", world.arenas[0] + retained, mutex=1)
    (midway,) = problems(world)
    message = f"{damage.message}; in flux: the mutex of its retained extents is held"
    assert midway == Problem("extent-size", world.dirty, message)
