"""Finding and walking a jemalloc that was laid out by hand, healthy and damaged."""

import random
import time

import numpy as np
import pytest

from gdbext.heap.jemalloc.find.globals import find_jemallocs
from gdbext.heap.jemalloc.model import NO_EXTENT, ExtentState
from gdbext.heap.jemalloc.read.build import read_jemalloc
from gdbext.progress import SILENT
from tests.support.jeworld import (
    ARENAS,
    BASE,
    BIG_PAGES,
    HEAP,
    LAYOUTS,
    MODULE,
    NARROW,
    ROOT,
    TOTAL,
    WIDE,
    laid,
    with_big_pages,
)


def walk(world, **how):
    found = find_jemallocs(world.target(**how), SILENT)
    assert len(found.locations) == 1, found.problems
    return read_jemalloc(world.target(**how), found.locations[0], SILENT)


def messages(heap):
    return [problem.message for problem in heap.problems]


@pytest.mark.parametrize("named", [True, False], ids=["named", "structure"])
@pytest.mark.parametrize("shape", [NARROW, WIDE, BIG_PAGES], ids=["48", "57", "64k"])
@pytest.mark.parametrize("version", list(LAYOUTS))
def test_everything_is_found(version, shape, named):
    world = laid(version, shape)
    heap = walk(world, named=named)
    extents, page = heap.extents, 1 << shape.lg_page
    assert messages(heap) == [] and heap.complete
    assert heap.location.layout.version == version
    assert heap.location.geometry.bits == tuple(shape.bits)
    assert heap.location.found_by == ("symbols" if named else "structure")
    assert extents.address.tolist() == world.places
    assert extents.size.tolist() == [page * pages for pages in (1, 3, 5, 2, 1, 4)]
    assert extents.state.tolist() == [0, 0, 0, 1, 2, 3]
    assert extents.slab.tolist() == [True, True, False, False, False, False]
    assert extents.arena.tolist() == [0, 1, 1, 0, 0, 1]
    assert extents.nfree.tolist()[:2] == [page // 8 - 3, 0]
    assert extents.pointer[2] == world.places[2] + 0x340
    assert extents.usable.tolist()[:2] == [0, 0]
    first, second = heap.arenas
    dirty, muzzy, retained = ExtentState.DIRTY, ExtentState.MUZZY, ExtentState.RETAINED
    assert [first.walked[dirty].pages, first.walked[muzzy].pages, second.walked[retained].pages] == [2, 1, 4]
    assert (first.bins[0].used, first.bins[0].slabs, first.bins[0].current) == (3, 1, 1)
    assert (second.bins[3].used, second.bins[3].full) == (3 * page // 48, 0)
    assert first.bins[0].free_bits == (page // 8 - 3 if page == 4096 else 512)  # the table keeps 8 words
    assert (first.base.allocated, second.base.allocated) == (1000, 1001)


@pytest.mark.parametrize("version", list(LAYOUTS))
def test_with_big_pages_the_lowest_level_of_a_bitmap_counts(version):
    world = laid(shape=BIG_PAGES, layout=with_big_pages(version))
    heap = walk(world, typed=True)
    assert messages(heap) == []
    assert (heap.location.geometry.page, heap.location.nbins) == (1 << 16, 52)
    first, second = (arena.bins for arena in heap.arenas)
    assert (first[0].info.nregs, first[0].used, first[0].free, first[0].free_bits) == (8192, 3, 8189, 8189)
    assert (second[3].info.nregs, second[3].used, second[3].free_bits) == (4096, 4096, 0)
    assert len(first) == 52


@pytest.mark.parametrize("version", list(LAYOUTS))
def test_with_big_pages_debug_info_is_needed(version):
    world = laid(version, shape=BIG_PAGES, layout=with_big_pages(version))
    (problem,) = find_jemallocs(world.target(), SILENT).problems
    assert "is not believed" in problem.message


def test_an_interrupt_leaves_what_is_counted():
    class Impatient:
        def at(self, doing, done, total):
            if doing == "radix tree":
                raise KeyboardInterrupt

    world = laid()
    (location,) = find_jemallocs(world.target(), SILENT).locations
    heap = read_jemalloc(world.target(), location, Impatient())
    assert not heap.complete and len(heap.extents) == 0
    (problem,) = heap.problems
    assert (problem.kind, problem.corruption) == ("interrupted", False)
    assert "only counters are shown" in problem.message
    assert [arena.bins[0].stats.curregs for arena in heap.arenas] == [3, 0]


def test_an_interrupt_while_jemallocs_are_looked_for_goes_on_to_the_command():
    class Impatient:
        def at(self, doing, done, total):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        find_jemallocs(laid().target(named=False), Impatient())


@pytest.mark.parametrize(("version", "usable"), [("5.3.0", 16384), ("5.3.1", 16384), ("5.1.0", 16384)])
def test_large_blocks_are_as_large_as_the_program_may_use(version, usable):
    assert walk(laid(version)).extents.usable[2] == usable


def test_places_are_looked_up():
    world = laid()
    extents = walk(world).extents
    slab, full, large = world.places[:3]
    assert extents.find(slab) == extents.find(slab + 4095) == 0
    assert extents.find(full + 3 * 4096) is None and extents.find(slab - 1) is None
    assert extents.find_edata(world.large) == 2 and extents.find_edata(world.large + 1) is None
    wanted = np.array([large + 0x1000, slab - 1, 0, 2**64 - 1, full + 5000], np.uint64)
    assert extents.holding(wanted).tolist() == [2, NO_EXTENT, NO_EXTENT, NO_EXTENT, 1]
    assert extents.select(extents.slab).address.tolist() == [slab, full]


# -- damage --------------------------------------------------------------------------------------------


def test_one_broken_arena_leaves_the_others():
    world = laid()
    world.word(MODULE + ARENAS + 16, HEAP - 0x100000)
    world.poke(MODULE + TOTAL, b"\3\0\0\0")
    heap = walk(world)
    assert [arena.index for arena in heap.arenas] == [0, 1]
    assert any("arenas[2]" in line and "left out" in line for line in messages(heap))


def test_a_count_of_arenas_that_cannot_be():
    world = laid()
    world.poke(MODULE + TOTAL, b"\xff\xff\xff\xff")
    heap = walk(world)
    assert any("narenas_total is 4294967295" in line for line in messages(heap))
    assert len(heap.extents) == 6


def test_an_extent_of_an_arena_that_there_is_not():
    world = laid()
    world.set_bits(world.dirty, state=1, arena=9)
    heap = walk(world)
    assert len(heap.extents) == 5
    assert messages(heap) == [
        f"the extent at {world.dirty:#x} (for {world.places[3]:#x}) is of an arena that there is not: left out"
    ]


def test_an_extent_that_says_that_it_is_elsewhere():
    world = laid()
    world.put("extent", world.dirty, address=HEAP + 0x100000)
    heap = walk(world)
    assert len(heap.extents) == 5
    assert "does not begin at the page that leads to it: left out" in messages(heap)[0]
    assert heap.problems[0].corruption


def test_an_extent_with_a_wrong_size_has_that_of_the_tree():
    world = laid()
    world.put("extent", world.dirty, size=1 << 40)
    heap = walk(world)
    assert heap.extents.size.tolist()[3] == 2 * 4096
    assert "has another size than the tree gives it" in messages(heap)[0]


def test_an_extent_that_cannot_be_read():
    world = laid()
    world.enter(HEAP + 4096 * 100, 0x123456789000, 0, 0)
    heap = walk(world)
    assert len(heap.extents) == 6
    assert messages(heap)[0].endswith("cannot be read: left out")


def test_extents_that_overlap():
    world = laid()
    world.extent(world.places[1] + 4096, 2 * 4096, [world.places[1] + 8192 + 4096], state=1, arena=0)
    world.extent(world.places[3] + 4096 * 1, 4096 * 3, [world.places[3] + 4096 * 3], state=1, arena=0)
    assert messages(walk(world))


def test_slabs_that_cannot_be():
    world = laid()
    world.set_bits(world.full, slab=1, szind=200, arena=1)
    assert any("is a slab of no small size class" in line for line in messages(walk(world)))
    world.set_bits(world.full, slab=1, szind=3, nfree=900, arena=1)
    assert any("more free regions than it has regions" in line for line in messages(walk(world)))


def test_a_node_that_is_used_twice():
    world = laid(shape=WIDE)
    first = next(node for key, node in world.nodes.items() if len(key) == 1)
    world.word(MODULE + ROOT + 8 * 5, first)
    heap = walk(world)
    assert any("nodes of the radix tree are used twice" in line for line in messages(heap))
    assert len(heap.extents) == 6


def test_states_have_names():
    assert [state.label for state in ExtentState][:4] == ["active", "dirty", "muzzy", "retained"]


@pytest.mark.parametrize("seed", range(60))
def test_hostile_bytes_end_soon(seed):
    chance = random.Random(seed)
    world = laid(chance.choice(list(LAYOUTS)), chance.choice([NARROW, WIDE]))
    places = [
        *world.arenas,
        world.slab,
        world.full,
        world.large,
        *world.nodes.values(),
        BASE,
        MODULE + ARENAS,
    ]
    for _ in range(chance.choice([1, 10, 200])):
        at = chance.choice(places) + 8 * chance.randrange(40)
        world.word(
            at,
            chance.choice([0, 1, 2**64 - 1, chance.getrandbits(64), chance.choice(places), BASE + at % 4096]),
        )
    start = time.process_time()
    target = world.target(named=chance.random() < 0.5)
    for location in find_jemallocs(target, SILENT).locations:
        read_jemalloc(target, location, SILENT)
    assert time.process_time() - start < 5
