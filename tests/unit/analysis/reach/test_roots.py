from dataclasses import replace

import pytest

from gdbext.abi import AARCH64, I386, X86_64
from gdbext.analysis.reach.model import ANONYMOUS, FILE, GLOBAL, TLS
from gdbext.analysis.reach.model import STACK as STACK_KIND
from gdbext.analysis.reach.roots import read_roots
from gdbext.heap.model import Span
from gdbext.memory import Region
from gdbext.process import Thread
from gdbext.report import Problem
from tests.support.reachworld import DATA, HEAP, SIZE, STACK, ReachWorld


def roots_of(world):
    return read_roots(world.target(), [world.heap()])


def ranges_of(world):
    return [(one.kind, one.start, one.end) for one in roots_of(world).ranges]


def test_data_and_the_living_part_of_the_stack():
    expected = [(GLOBAL, DATA, DATA + SIZE), (STACK_KIND, STACK + 0x2000 - 128, STACK + SIZE)]
    assert ranges_of(ReachWorld()) == expected
    assert roots_of(ReachWorld()).complete


def test_where_there_is_no_red_zone_the_stack_begins_at_its_pointer():
    assert (STACK_KIND, STACK + 0x2000, STACK + SIZE) in ranges_of(ReachWorld(AARCH64))


def test_other_memory_and_what_is_none():
    world = ReachWorld()
    world.map(Region(0x300000, 0x301000))
    world.map(Region(0x310000, 0x311000, name="/dev/shm/x"))
    world.map(Region(0x320000, 0x321000, "r--", "/usr/share/data", source="file"))
    world.map(Region(0x330000, 0x331000, "r-x", "/usr/lib/code"))
    world.map(Region(0x340000, 0x341000, "---"))
    world.map(Region(0x350000, 0x351000, "r-x", "[vdso]"))
    world.map(Region(0x360000, 0x361000, "r--"))
    found = ranges_of(world)
    assert (ANONYMOUS, 0x300000, 0x301000) in found
    assert (FILE, 0x310000, 0x311000) in found
    assert (ANONYMOUS, 0x360000, 0x361000) in found
    assert len(found) == 5


def test_allocators_keep_no_block_alive_and_foreign_memory_does():
    world = ReachWorld()
    world.extra = {"metadata": [(DATA + 0x100, DATA + 0x180)], "foreign": [(HEAP + 0x1000, HEAP + 0x2000)]}
    assert ranges_of(world)[:3] == [
        (ANONYMOUS, HEAP + 0x1000, HEAP + 0x2000),
        (GLOBAL, DATA, DATA + 0x100),
        (GLOBAL, DATA + 0x180, DATA + SIZE),
    ]


def descriptor_at(world, address, start, size):
    """As libpthread lays struct pthread out: itself twice, its stack further on."""
    world.put(address, address, 0x5000, address)
    world.put(address + 0x690, start, size)


LOW = 0x400000


def stack_of(world, thread=True, guard=False):
    """A second thread's stack of 0x8000 bytes, in a mapping with 0x4000 bytes below it that are no stack."""
    low = LOW + 0x4000
    world.map(Region(LOW, LOW + 0xC000))
    descriptor_at(world, low + 0x7000, low, 0x8000)
    if thread:
        world.threads.append(Thread(2, 102, None, low + 0x6000, tls=low + 0x7000))
    return low


def test_a_thread_s_stack_is_told_from_what_lies_below_it_in_one_mapping():
    world = ReachWorld()
    world.thread(tls=0x1234)
    low = stack_of(world)
    found = ranges_of(world)
    assert (ANONYMOUS, LOW, low) in found
    assert (STACK_KIND, low + 0x6000 - 128, low + 0x8000) in found
    assert not any(start <= low < end or start <= low + 0x5000 < end for _, start, end in found)


def test_the_stack_of_a_thread_that_has_ended_holds_no_roots():
    world = ReachWorld()
    world.thread(tls=0x1234)
    low = stack_of(world, thread=False)
    found = [(start, end) for kind, start, end in ranges_of(world) if kind == ANONYMOUS]
    assert found == [(LOW, low), (low + 0x7000, low + 0x8000)]


def test_while_a_thread_pointer_is_unknown_no_stack_is_taken_for_ended():
    world = ReachWorld()
    stack_of(world, thread=False)
    assert (ANONYMOUS, LOW, LOW + 0xC000) in ranges_of(world)


def test_a_word_that_looks_like_a_descriptor_and_encloses_no_stack():
    world = ReachWorld()
    world.thread(tls=0x1234)
    world.map(Region(LOW, LOW + 0xC000))
    descriptor_at(world, LOW + 0x7000, LOW + 0x7000, 0x1000)  # does not hold what is below itself
    descriptor_at(world, LOW + 0xB000, LOW, 0xD000)  # beyond the mapping
    assert (ANONYMOUS, LOW, LOW + 0xC000) in ranges_of(world)


def test_a_stack_of_unknown_bounds_is_cut_only_where_a_guard_lies_below():
    for guard in (False, True):
        world = ReachWorld()
        world.map(Region(LOW, LOW + 0x4000))
        if guard:
            world.map(Region(LOW - 0x1000, LOW, "---"))
        world.threads.append(Thread(2, 102, None, LOW + 0x2000))
        assert ((ANONYMOUS, LOW, LOW + 0x2000 - 128) in ranges_of(world)) is not guard


def test_the_loader_s_mapping_with_the_first_thread_s_storage():
    world = ReachWorld()
    world.map(Region(LOW, LOW + 0x3000))
    world.thread(tls=LOW + 0x740)
    assert (TLS, LOW, LOW + 0x3000) in ranges_of(world)


def test_a_stack_in_a_block_lives_with_its_block():
    world = ReachWorld()
    own = world.block(HEAP + 0x100, 0x1000)
    held = world.block(HEAP + 0x2000)
    lost = world.block(HEAP + 0x2100)
    world.threads.append(Thread(2, 102, None, HEAP + 0x800))
    world.put(HEAP + 0x808, held)
    world.put(HEAP + 0x200, lost)  # below the stack pointer: but in a live block, so it counts
    assert (STACK_KIND, HEAP + 0x800 - 128, HEAP + 0x1100) in ranges_of(world)
    assert world.states() == {own: 2, held: 2, lost: 2}


@pytest.mark.parametrize("abi, at", [(X86_64, 8), (I386, 4), (AARCH64, 0)])
def test_the_table_of_thread_local_storage_begins_before_its_address(abi, at):
    world = ReachWorld(abi)
    block = world.block(HEAP + 0x100, 0x110)
    world.map(Region(LOW, LOW + 0x3000))
    world.thread(tls=LOW + 0x700)
    world.put(LOW + 0x700 + at, block + 2 * abi.pointer_size)
    assert world.states() == {block: 2}


def test_what_is_missing_is_named():
    world = ReachWorld()
    world.problems = [Problem("filtered-core", None, "filtered")]
    world.map(Region(LOW, LOW + 0x3000, source="absent"))
    world.map(Region(LOW + 0x10000, LOW + 0x14000, source="absent"))
    world.threads.append(Thread(2, 102, None, LOW + 0x11000))
    world.threads.append(Thread(3, 103, None))
    missing = [(one.what, one.bytes, one.start) for one in roots_of(world).missing]
    assert missing == [
        ("registers and stack of thread 3", None, None),
        ("anonymous rest", 0x3000, LOW),
        ("thread stacks", 0x4000, LOW + 0x10000),
    ]


def test_pages_that_were_never_written_are_not_missed():
    world = ReachWorld()
    world.map(Region(LOW, LOW + 0x3000, name="/lib/x.so", source="absent"))
    assert roots_of(world).complete


def test_no_threads_and_no_mappings():
    world = ReachWorld()
    world.threads = []
    assert [one.what for one in roots_of(world).missing] == ["registers and stacks of all threads"]


def test_many_heaps_spans_cost_no_quadratic_time():
    world = ReachWorld()
    heap = world.heap()
    spans = [Span(1 << 30 | at << 13, (1 << 30 | at << 13) + 0x1000, "mmapped", 0) for at in range(30_000)]
    world.map(Region(1 << 30, (1 << 30) + (30_000 << 13)))
    object.__setattr__(heap, "spans", [*heap.spans, *spans])
    assert len(read_roots(world.target(), [heap]).ranges) == 30_002


def test_memory_that_a_whole_core_lacks_is_missing():
    """A mapping that was never written, or with MADV_DONTDUMP; not a module's, nor one within a heap."""
    world = ReachWorld()
    for start, permissions in ((HEAP + SIZE, "rw-"), (LOW, "rw-"), (LOW + 0x2000, "---"), (DATA + SIZE, "r--")):
        world.map(Region(start, start + 0x1000, permissions, source="absent"))
    missing = read_roots(world.target(), [replace(world.heap(), metadata=[(HEAP + SIZE, HEAP + 2 * SIZE)])]).missing
    assert [(one.bytes, one.start) for one in missing] == [(0x1000, LOW)]
    assert "MADV_DONTDUMP" in missing[0].what
