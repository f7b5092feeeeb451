"""Finding and walking a jemalloc that was laid out by hand, healthy and damaged."""

import random
import time

import numpy as np
import pytest

from gdbext.heap.jemalloc.build import read_jemalloc
from gdbext.heap.jemalloc.find import find_jemallocs
from gdbext.heap.jemalloc.layouts import recorded
from gdbext.heap.jemalloc.model import NO_EXTENT, ExtentState
from gdbext.progress import SILENT
from tests.support.jeworld import (
    ARENAS,
    BASE,
    BIG_PAGES,
    HEAP,
    MODULE,
    NARROW,
    PATH,
    ROOT,
    TOTAL,
    WIDE,
    World,
)

LAYOUTS = {layout.version: layout for layout in recorded()}
SIZES = [8, 16, 32, 48]


def laid(version="5.3.0", shape=NARROW):
    """Two slabs, a large block off its page, and an extent in each other state; what they are by address."""
    world = World(LAYOUTS[version], shape)
    page = 1 << shape.lg_page
    world.places = [HEAP + page * at for at in (1, 8, 20, 40, 50, 60)]
    slab, full, large, dirty, muzzy, retained = world.places
    free = page // 8 - 3
    slab_pages = [full, full + page, full + 2 * page]
    world.slab = world.extent(slab, page, slab=1, szind=0, nfree=free, arena=0)
    world.full = world.extent(full, 3 * page, slab_pages, slab=1, szind=3, nfree=0, arena=1)
    world.large = world.extent(large + 0x340, 5 * page, szind=36, arena=1)
    world.dirty = world.extent(dirty, 2 * page, state=1, szind=232, arena=0)
    world.extent(muzzy, page, state=2, szind=232, arena=0)
    world.extent(retained, 4 * page, state=3, szind=232, arena=1)
    fill = 2**64 - 1
    for at in range(min(free // 64, 8)):
        world.word(world.slab + world.layout["extent"].offset("bitmap") + 8 * at, fill)
    if free % 64 and free // 64 < 8:
        world.word(
            world.slab + world.layout["extent"].offset("bitmap") + 8 * (free // 64), (1 << free % 64) - 1
        )
    world.put("bin", world.bin_of(0, 0), slabcur=world.slab, curregs=3, curslabs=1, nslabs=1)
    world.put("bin", world.bin_of(1, 3), slabcur=world.full, curregs=3 * page // 48, curslabs=1, nslabs=1)
    return world


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
    assert (first.walked.dirty, first.walked.muzzy, second.walked.retained) == (2, 1, 4)
    assert (first.bins[0].used, first.bins[0].slabs, first.bins[0].current) == (3, 1, 1)
    assert (second.bins[3].used, second.bins[3].full) == (3 * page // 48, 0)
    assert first.bins[0].free_bits == (page // 8 - 3 if page == 4096 else 512)  # the table keeps 8 words
    assert (first.base.allocated, second.base.allocated) == (1000, 1001)


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


def test_a_process_without_jemalloc_has_none():
    world = laid()
    world.module[ARENAS : ARENAS + 16] = bytes(16)
    assert find_jemallocs(world.target(), SILENT).locations == ()
    assert find_jemallocs(world.target(), SILENT).problems == ()  # linked in, and never used
    assert find_jemallocs(world.target(named=False), SILENT).locations == ()


# -- refusals ------------------------------------------------------------------------------------------


def refusal(world, **how):
    found = find_jemallocs(world.target(**how), SILENT)
    assert found.locations == ()
    return [problem.message for problem in found.problems][0]


def test_a_wrong_index_is_refused():
    world = laid()
    for index in (0, 1):
        at = world.arenas[index] + LAYOUTS["5.3.0"]["arena"].offset("base") - BASE
        world.put("base", int.from_bytes(world.base[at : at + 8], "little"), ind=77)
    why = "arenas[0]->base->ind is not 0 (table of 5.3.0, 54eaed1d8b)"
    assert refusal(world) == f"jemalloc in {PATH} (by symbols) is not believed: {why}"


def test_a_version_without_a_table_is_named():
    world = laid()
    world.constants = world.constants.replace(b"5.3.0", b"5.0.1")
    world.module[ARENAS : ARENAS + 16] = bytes(16)
    assert refusal(world, named=False) == (
        f"{PATH} holds jemalloc 5.0.1; without debug info only 5.1.0, 5.2.1, 5.3.0, 5.3.1 are known"
    )


def test_a_tree_that_leads_elsewhere_is_refused():
    world = laid()
    world.module[ROOT : ROOT + (8 << 18)] = bytes(8 << 18)
    assert "its radix tree leads back to 0 of 2 slabs" in refusal(world)


def test_size_classes_of_another_allocator_are_refused():
    world = laid()
    world.put("bin_info", MODULE + 0x9000, reg_size=9)
    assert "its table of small size classes is not as the source computes it" in refusal(world)


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


def test_metadata_that_is_not_in_the_core_is_no_damage():
    world = laid()
    found = find_jemallocs(world.target(absent=[BASE]), SILENT)
    assert found.locations == ()
    assert "its arenas are not in the target" in found.problems[0].message


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
