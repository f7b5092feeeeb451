from contextlib import nullcontext
from dataclasses import replace

import numpy as np
import pytest

from gdbext.abi import I386, X86_64
from gdbext.analysis.reach import graph
from gdbext.analysis.reach.graph import MARKING
from gdbext.analysis.reach.mark import live_blocks, read_reach
from gdbext.analysis.reach.model import PLAIN
from gdbext.errors import NoHeapError, TooLargeError
from gdbext.heap.model import State
from gdbext.memory import Region
from gdbext.memory.room import Room
from gdbext.progress import SILENT
from gdbext.report import Problem
from tests.support.reachworld import DATA, HEAP, SIZE, STACK, ReachWorld

REACHED, MAYBE, LEAKED = 2, 1, 0


def test_each_kind_of_root_and_what_is_behind_it():
    world = ReachWorld()
    of_data, of_stack, of_register, behind = (world.block(HEAP + 0x100 * at) for at in range(1, 5))
    lost = world.block(HEAP + 0x500)
    below = world.block(HEAP + 0x600)
    zone = world.block(HEAP + 0x700)
    world.put(DATA + 8, of_data)
    world.put(STACK + 0x3000, of_stack)
    world.put(STACK + 0x1000, below)
    world.put(STACK + 0x2000 - 8, zone)
    world.thread(registers={"rbx": of_register})
    world.put(of_register + 8, behind)
    expected = dict.fromkeys((of_data, of_stack, of_register, behind, zone), REACHED)
    assert world.states() == {**expected, lost: LEAKED, below: LEAKED}


def test_beginnings_before_middles_whatever_the_order():
    world = ReachWorld()
    first, second, third = (world.block(HEAP + 0x100 * at, 64) for at in range(1, 4))
    world.put(DATA, first + 8)
    world.put(first, second)
    world.put(DATA + 8, third)
    world.put(third, second)
    assert world.states() == {first: MAYBE, second: REACHED, third: REACHED}


def test_free_blocks_lead_nowhere_and_are_no_rows():
    world = ReachWorld()
    freed = world.block(HEAP + 0x100, state=State.FREE)
    cached = world.block(HEAP + 0x200, state=State.TCACHE)
    held = world.block(HEAP + 0x300)
    world.put(DATA, freed, cached)
    world.put(freed, held)
    world.put(cached, held)
    assert world.states() == {held: LEAKED}


def test_tags_are_cleared_when_asked():
    world = ReachWorld()
    block = world.block(HEAP + 0x100)
    world.put(DATA, block | 3)
    assert world.states() == {block: MAYBE}
    assert world.states(clear=7) == {block: REACHED}
    world = ReachWorld()
    block = world.block(HEAP + 0x100)
    world.thread(registers={"rax": block | 1 << 63})
    assert world.states() == {block: LEAKED}
    assert world.states(clear=1 << 63) == {block: REACHED}


@pytest.mark.parametrize("abi", [X86_64, I386])
def test_mangled_words_count_when_asked(abi):
    world = ReachWorld(abi)
    first, second, third = (world.block(HEAP + at, 16) for at in (0x100, 0x200, 0x300))
    word = abi.pointer_size
    world.put(DATA, first ^ DATA >> 12)
    world.put(first + word, second ^ (first + word) >> 12)
    world.put(second + word, (third + 4) ^ (second + word) >> 12)
    world.put(third, third >> 12)  # null
    assert world.states() == {first: LEAKED, second: LEAKED, third: LEAKED}
    assert world.states(mangled=True) == {first: REACHED, second: REACHED, third: MAYBE}
    world.put(first + word, (second | 1) ^ (first + word) >> 12)
    assert world.states(mangled=True)[second] == MAYBE
    assert world.states(clear=7, mangled=True) == {first: REACHED, second: REACHED, third: REACHED}


def test_a_word_that_leads_to_a_block_as_it_stands_is_not_revealed():
    world = ReachWorld()
    plain, other = world.block(HEAP + 0x100, 16), world.block(HEAP + 0x100 ^ DATA >> 12, 16)
    world.put(DATA, plain)
    assert world.states(mangled=True) == {plain: REACHED, other: LEAKED}


def test_words_without_an_address_are_never_mangled():
    world = ReachWorld()
    block = world.block(HEAP + 0x100, 16)
    world.thread(registers={"rax": block ^ DATA >> 12, "rbx": block ^ block >> 12})
    assert world.states(mangled=True) == {block: LEAKED}


def test_words_of_four_bytes():
    world = ReachWorld(I386)
    block, behind = world.block(HEAP + 0x104, 20), world.block(HEAP + 0x204, 20)
    world.put(DATA + 4, block)
    world.put(block + 16, behind)
    assert world.states() == {block: REACHED, behind: REACHED}


def test_blocks_that_overlap_end_where_the_next_begins():
    world = ReachWorld()
    world.block(HEAP + 0x100, 0x1000)
    world.block(HEAP + 0x200, 16)
    world.block(HEAP + 0x200, 24)
    world.block(HEAP + 0x300, 1 << 63)
    world.block(HEAP + 0x2000, 16)
    reach = world.reach()
    assert reach.address.tolist() == [HEAP + 0x100, HEAP + 0x200, HEAP + 0x300, HEAP + 0x2000]
    assert reach.size.tolist() == [0x100, 16, 0x1D00, 16]
    assert [(problem.address, problem.message) for problem in reach.marked.problems] == [
        (HEAP + 0x100, "3 blocks taken for shorter than the heap says: they overlap what follows")
    ]


def test_memory_of_blocks_that_is_not_there_is_a_missing_root():
    world = ReachWorld()
    world.problems = [Problem("truncated-core", None, "truncated")]
    world.map(Region(HEAP + SIZE, HEAP + 2 * SIZE, name="[heap]", source="absent"))
    block = world.block(HEAP + SIZE - 16, 0x1010)
    world.put(DATA, block)
    reach = world.reach()
    assert reach.states.tolist() == [REACHED]
    assert "4 KiB of the heap's own memory" in [one.what for one in reach.marked.roots.missing]


def test_a_hole_between_two_mapped_blocks_is_not_missing():
    world = ReachWorld()
    world.map(Region(HEAP + 2 * SIZE, HEAP + 3 * SIZE))
    world.block(HEAP + SIZE - 16, 16)
    world.block(HEAP + 2 * SIZE, 0x1000)
    assert world.reach().marked.roots.complete
    world.block(HEAP + 3 * SIZE - 16, 32)
    assert [one.what for one in world.reach().marked.roots.missing] == ["16 B of the heap's own memory"]


def test_rows_and_their_blocks():
    world = ReachWorld()
    world.block(HEAP + 0x80, state=State.FREE)
    block = world.block(HEAP + 0x100, 24)
    reach = world.reach()
    assert reach.find_row(block + 23) == 0
    assert reach.find_row(block + 24) is None
    heap, position = reach.block_of(0)
    assert (heap.allocator, position) == ("test", 1)


def test_several_heaps_are_one_order():
    world, other = ReachWorld(), ReachWorld()
    for at in (1, 3):
        world.block(HEAP + 0x100 * at)
    other.block(HEAP + 0x200)
    heaps = [world.heap(), other.heap()]
    blocks, problems = live_blocks(heaps)
    assert blocks.heap.tolist() == [0, 1, 0]
    of_heaps = [part for number, heap in enumerate(heaps) for part in blocks.for_each_of(heap, number)]
    assert [(rows.tolist(), places.tolist()) for rows, places in of_heaps] == [([0, 2], [0, 1]), ([1], [0])]
    assert np.all(np.diff(blocks.index.address) > 0)
    assert not problems


def test_no_heap():
    with pytest.raises(NoHeapError, match="no heap of a known allocator"):
        read_reach(ReachWorld().target(), [], PLAIN, SILENT)


class Copies:
    """Memory that must be copied to be read."""

    def __init__(self, memory):
        self.memory = memory

    def read(self, address, size):
        return bytes(self.memory.read(address, size))

    def regions(self):
        return self.memory.regions()


def test_a_process_is_copied_up_to_a_limit_only():
    world = ReachWorld()
    world.block(HEAP + 0x100, 0x1000)
    target = replace(world.target(), memory=Copies(world.target().memory))
    wanted = SIZE + SIZE - 0x2000 + 128 + 0x1000
    for most in (0, wanted):
        assert len(read_reach(target, [world.heap()], PLAIN, SILENT, most)) == 1
    with pytest.raises(TooLargeError, match=r"28.1 KiB of the process would be copied to be searched for pointers"):
        read_reach(target, [world.heap()], PLAIN, SILENT, wanted - 1)
    assert len(read_reach(world.target(), [world.heap()], PLAIN, SILENT, 1)) == 1  # lent


def test_a_heap_that_was_not_walked_to_its_end_is_not_marked():
    world = ReachWorld()
    world.put(DATA, world.block(HEAP + 0x100))
    heap = replace(world.heap(), problems=[Problem("interrupted", None, "stopped")])
    with pytest.raises(KeyboardInterrupt):
        read_reach(world.target(), [heap], PLAIN, SILENT)


def test_what_takes_more_memory_than_is_allowed_does_not_begin():
    world = ReachWorld()
    for at in range(1, 4):
        world.block(HEAP + 0x100 * at)
    target, heaps = world.target(), [world.heap()]
    with pytest.raises(TooLargeError) as caught:
        read_reach(target, heaps, PLAIN, SILENT, most_taken=3 * MARKING)  # what is known of blocks counts, too
    needed = 3 * (graph.KNOWN + MARKING)
    assert caught.value.message == (
        f"following pointers among 3 blocks takes about {needed} B of memory, more than the {3 * MARKING} B allowed"
    )
    reach = read_reach(target, heaps, PLAIN, SILENT, most_taken=needed)
    assert len(reach) == 3
    with pytest.raises(TooLargeError, match="finding types among 3 blocks takes about 177 B of memory, more than"):
        reach.check_types()
    with pytest.raises(TooLargeError, match="which block points at which among 3 blocks takes about"):
        _ = reach.edges


@pytest.mark.parametrize("left", [Room(40 << 10, "left by its cgroup"), None])
def test_what_takes_more_than_there_is_does_not_begin(monkeypatch, left):
    monkeypatch.setattr(graph, "find_room", lambda: left)
    graph.check_room(6_000_000, 40, "following pointers", 0)  # not worth the question
    graph.check_room(10_000_000, 40, "following pointers", 1 << 30)
    said = "more than 36 KiB, nine tenths of what is left by its cgroup"
    with nullcontext() if left is None else pytest.raises(TooLargeError, match=said):
        graph.check_room(10_000_000, 40, "following pointers", 0)
