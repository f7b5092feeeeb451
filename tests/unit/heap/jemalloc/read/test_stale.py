"""Elements of the radix tree that outlive a destroyed region: they lead to where its ``edata_t`` is used again."""

from __future__ import annotations

import pytest

from gdbext.heap.jemalloc.find.globals import find_jemallocs
from gdbext.heap.jemalloc.model import ExtentState
from gdbext.heap.jemalloc.read.build import read_jemalloc
from gdbext.progress import SILENT
from tests.support.jeworld import HEAP, HEAP_SIZE, laid

PAGE = 4096
UNMAPPED = HEAP + HEAP_SIZE + 5 * PAGE
PAGES = {"slab": 1, "full": 3, "large": 5, "dirty": 2}
STALE = {
    "behind": (UNMAPPED, UNMAPPED + 6 * PAGE),
    "before": (HEAP - 9 * PAGE, HEAP - 7 * PAGE),
    "both": (HEAP - 9 * PAGE, UNMAPPED),
    "mapped again": (HEAP + 70 * PAGE,),
    "none": (),
}
# sizes in pages that are not the extent's
DAMAGED = [
    ("slab", 2),
    ("slab", 0),
    ("full", 1),
    ("full", 2),
    ("full", 4),
    ("large", 1),
    ("large", 3),
    ("large", 6),
    ("dirty", 1),
    ("dirty", 1 << 28),
]


def reused(name, pages, version="5.3.0"):
    """Return a world where stale elements for ``pages`` lead to an extent."""
    world = laid(version)
    for page in pages:
        world.enter(page, getattr(world, name), 232, 0)
    return world


def read(world):
    target = world.target()
    (location,) = find_jemallocs(target, SILENT).locations
    return read_jemalloc(target, location, SILENT)


@pytest.mark.parametrize("version", ["5.3.0", "5.3.1"])
@pytest.mark.parametrize("where", STALE)
@pytest.mark.parametrize("name", PAGES)
def test_stale_elements_say_nothing_about_a_sound_extent(name, where, version):
    world = reused(name, STALE[where], version)
    heap = read(world)
    assert heap.problems == []
    assert heap.extents.address.tolist() == world.places
    assert heap.extents.size.tolist() == [PAGE * pages for pages in (1, 3, 5, 2, 1, 4)]


@pytest.mark.parametrize("where", ["behind", "mapped again", "none"])
@pytest.mark.parametrize(("name", "pages"), DAMAGED)
def test_a_damaged_size_is_found_all_the_same(name, pages, where):
    world = reused(name, STALE[where])
    edata = getattr(world, name)
    world.put("extent", edata, size=pages * PAGE)
    heap = read(world)
    first = heap.problems[0]
    assert (first.kind, first.address, first.corruption) == ("extent-size", edata, True)
    if where == "none":
        assert heap.extents.size[heap.extents.find_edata(edata)] == PAGES[name] * PAGE


@pytest.mark.parametrize(("page", "count"), [(UNMAPPED, 0), (HEAP + 70 * PAGE, 1)], ids=["unmapped", "mapped"])
def test_an_edata_that_is_not_in_use_is_none_of_the_extents(page, count):
    world = laid()
    world.extent(HEAP + 80 * PAGE, PAGE, [page], szind=232, arena=0)
    heap = read(world)
    assert len(heap.extents) == 6
    assert [one.kind for one in heap.problems] == ["extent"] * count


@pytest.mark.parametrize(("szind", "count"), [(232, 0), (36, 1)], ids=["left of a region", "large block"])
def test_what_is_left_of_a_destroyed_region_may_be_unmapped(szind, count):
    world = laid()
    world.extent(UNMAPPED, 4 * PAGE, szind=szind, arena=0)
    heap = read(world)
    assert [one.kind for one in heap.problems] == ["extent"] * count
    assert (heap.extents.state[-1] == ExtentState.TRANSITION) == (not count)
