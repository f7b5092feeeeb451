"""CPython's allocator over memory laid out as its source does it: found, read, tiled; damage ends in a problem."""

import random
import time

import numpy as np
import pytest

from gdbext.analysis.footprint.ledger import ledger
from gdbext.heap.cpython.find.structural import find_by_structure
from gdbext.heap.cpython.heap import neutral
from gdbext.heap.cpython.model import Runtime
from gdbext.heap.cpython.read.build import read_pymalloc
from gdbext.heap.cpython.read.convert import blocks_of
from gdbext.heap.model import State
from gdbext.progress import SILENT
from tests.support.pymallocworld import ARENAS_AT, NEW, OLD, USEDPOOLS, World


def busy(geometry=NEW, aligned=True, seed=1, count=30_000, entries=16):
    """A program that allocates and frees at random."""
    world, chosen = World(geometry, aligned, entries), random.Random(seed)
    kept = []
    for _ in range(count):
        if kept and chosen.random() < 0.4:
            at = chosen.randrange(len(kept))
            kept[at], kept[-1] = kept[-1], kept[at]
            world.free(kept.pop())
        else:
            kept.append(world.malloc(chosen.choice((16, 24, 32, 64, 64, 100, 512))))
    return world


def read(world, target=None):
    target = target or world.target()
    places, idle = find_by_structure(target, world.module())
    assert len(places) == 1 and not idle
    runtime = Runtime(world.module(), None, (3, 11), "", False, "structure")
    return read_pymalloc(target, runtime, places[0], "pymalloc", SILENT)


def kinds(heap):
    return {(one.kind, one.corruption) for one in heap.problems}


@pytest.mark.parametrize("aligned", [True, False])
@pytest.mark.parametrize("geometry", [NEW, OLD])
def test_every_block_is_as_the_program_has_it(geometry, aligned):
    world = busy(geometry, aligned)
    target = world.target()
    heap = read(world, target)
    assert heap.problems == [] and heap.complete
    assert (heap.place.usedpools, heap.place.arenas != 0) == (USEDPOOLS, True)
    assert (heap.geometry.arena, heap.geometry.pool) == geometry
    blocks = blocks_of(heap)
    used = blocks.having([State.IN_USE])
    assert dict(zip(blocks.address[used].tolist(), blocks.size[used].tolist())) == world.live
    assert (np.diff(blocks.address.astype(np.int64)) > 0).all()
    account, problems = ledger(target, [neutral(target, heap)])
    assert account.residual == 0 and not problems
    held = {entry.owner: entry.bytes for entry in account.entries if entry.owner.startswith("pymalloc")}
    assert sum(held.values()) == len(world.arenas) * geometry[0]
    assert held["pymalloc in use"] == sum(world.live.values())


def test_the_array_of_arenas_is_measured_where_nothing_says_how_long_it_is():
    world = World(OLD, entries=64)
    for _ in range(20_000):
        world.malloc(512)
    assert 16 < len(world.arenas) < 64
    heap = read(world)
    assert heap.arenas.address.tolist() == [one.address for one in world.arenas] and heap.problems == []


def test_an_allocator_that_was_never_used_is_idle():
    world = World()
    assert find_by_structure(world.target(), world.module()) == ([], True)


def test_all_blocks_freed_leaves_free_pools():
    world = World()
    for block in [world.malloc(64) for _ in range(1000)]:
        world.free(block)
    assert find_by_structure(world.target(), world.module()) == ([], True)  # no pool is in any list


def partly_used(world):
    return next(pair[0] for szidx, pair in world.used.items() if pair[0] != world.heads[szidx])


def test_a_header_that_cannot_be_costs_its_pool_alone():
    world = busy()
    pool = world.arenas[0].address + 2 * world.pool_size
    world.put(pool + 44, 7, "<I")
    heap = read(world)
    assert ("pool-header", True) in kinds(heap) and not heap.complete
    blocks = blocks_of(heap)
    used = set(blocks.address[blocks.having([State.IN_USE])].tolist())
    assert used == {at for at in world.live if at & -world.pool_size != pool}


@pytest.mark.parametrize("to", ["back", "elsewhere", "inside", "nowhere"])
def test_a_free_list_that_breaks_is_damage_in_its_pool(to):
    world = World()
    kept = [world.malloc(64) for _ in range(200)]
    for block in kept[10:60]:
        world.free(block)
    where = {"back": kept[50], "elsewhere": 0x900000, "inside": kept[30] + 8, "nowhere": 0xDEAD_0000_0000_0000}
    world.put(kept[40], where[to])
    heap = read(world)
    assert kinds(heap) == {("pool-list", True)}
    blocks = blocks_of(heap)
    free = blocks.address[blocks.having([State.FREE]) & (blocks.size == 64)]
    assert set(kept[40:60]) <= set(free.tolist())  # the list begins with what was freed last


def test_lists_that_lead_in_circles_end():
    world = busy()
    for pair in world.used.values():
        pool = pair[0]
        if pool > USEDPOOLS + 0x1000 and world.get(pool + 8):
            world.put(world.get(pool + 8), world.get(pool + 8))
            world.put(pool + 16, pool)
    begin = time.process_time()
    heap = read(world)
    assert ("pool-list", True) in kinds(heap) and time.process_time() - begin < 5


def test_a_thread_inside_the_allocator_leaves_no_damage():
    """pymalloc_free() links the block before it counts it; pymalloc_alloc() counts before it takes it from the list."""
    world = busy()
    pool = partly_used(world)
    world.put(pool, world.get(pool, "<I") + 1, "<I")
    assert kinds(read(world)) == {("in-flux", False)}


def test_the_same_in_several_pools_is_damage():
    world = busy()
    for pair in [pair for szidx, pair in world.used.items() if pair[0] != world.heads[szidx]][:3]:
        world.put(pair[0], world.get(pair[0], "<I") + 1, "<I")
    assert ("pool-count", True) in kinds(read(world))


def test_an_arena_that_cannot_be_is_left_out():
    world = busy(count=60_000)
    assert len(world.arenas) > 1
    world.arenas[1].pool_address += 8
    target = world.target()
    heap = read(world, target)
    assert ("arena-object", True) in kinds(heap) and not heap.complete
    assert len(heap.arenas) == len(world.arenas) - 1
    assert ledger(target, [neutral(target, heap)])[0].residual == 0


def test_wild_numbers_everywhere_end_in_problems():
    for seed in range(40):
        chosen, world = random.Random(seed), busy(OLD, count=3000)
        for _ in range(60):
            pool = world.base + chosen.randrange(len(world.bytes) // 4096) * 4096
            value = chosen.choice((0, 1, 2**31, 2**32 - 1, pool & 2**32 - 1))
            world.put(pool + chosen.choice((0, 8, 16, 24, 32, 36, 40, 44)), value, "<I")
        target = world.target()
        places, _ = find_by_structure(target, world.module())
        runtime = Runtime(world.module(), None, (3, 9), "", False, "structure")
        for place in places:
            heap = neutral(target, read_pymalloc(target, runtime, place, "pymalloc", SILENT))
            assert ledger(target, [heap])[0].residual == 0


def test_explanations_name_pool_and_block():
    world = busy()
    target = world.target()
    heap = neutral(target, read(world, target))
    block = next(iter(world.live))
    text = heap.explain(block)
    assert f"pool at {block & -world.pool_size:#x} of blocks of {world.live[block]} bytes" in text
    assert heap.explain(0x1000) is None and heap.explain(ARENAS_AT) is None
