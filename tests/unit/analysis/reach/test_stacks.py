"""Stacks in mappings that glibc, kernels and gdb's cores leave behind: found by running programs on them."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gdbext.abi import I386, X86_64
from gdbext.analysis.reach.mark import read_reach
from gdbext.analysis.reach.model import ANONYMOUS, GLOBAL, PLAIN
from gdbext.analysis.reach.roots import read_roots
from gdbext.analysis.reach.stacks import find_stack_bounds
from gdbext.kernels import MAYBE_REACHED, NOT_REACHED, REACHED
from gdbext.memory import Region
from gdbext.process import Thread
from gdbext.progress import SILENT
from tests.support.reachworld import DATA, HEAP, SIZE, STACK, ReachWorld

LOW = 0x400000
END = LOW + 0x8000


def descriptor(world, address, *words, tid=0):
    """``struct pthread`` as far as it is read: itself, its vector, itself; its tid; two words further on."""
    size = world.abi.pointer_size
    world.put(address, address, 0, address)
    world.put(address + 0x40 * size, tid)
    world.put(address + 0x60 * size, *words)


def world_with_stack(abi=X86_64, **thread):
    """A second stack, with its descriptor at 0x7000 behind its start; a thread's, or of one that has ended."""
    world = ReachWorld(abi)
    world.thread(tls=0x1234)
    world.map(Region(LOW, END))
    descriptor(world, LOW + 0x7000, LOW, END - LOW)
    if thread:
        world.threads.append(Thread(2, 102, None, **thread))
    return world


def missing(world, live=False):
    target = replace(world.target(), live=live)
    return [one.what for one in read_reach(target, [world.heap()], PLAIN, SILENT).marked.roots.missing]


@pytest.mark.parametrize("abi", [X86_64, I386])
def test_a_null_word_is_no_start_of_a_stack(abi):
    """0 and an address behind it would be a stack of nearly all memory, the program's data in it."""
    world = world_with_stack(abi)
    descriptor(world, LOW + 0x7000, 0, END - 0x100)
    found = [(one.kind, one.start, one.end) for one in read_roots(world.target(), [world.heap()]).ranges]
    assert (GLOBAL, DATA, DATA + SIZE) in found and (ANONYMOUS, LOW, END) in found


@pytest.mark.parametrize("guard", ("---", "r--"))
def test_a_guard_belongs_to_its_stack(guard):
    """gdb's cores say of guards that they can be read."""
    world = world_with_stack()
    world.map(Region(LOW - 0x1000, LOW, guard))
    descriptor(world, LOW + 0x7000, LOW - 0x1000, END - LOW + 0x1000)
    assert find_stack_bounds(world.target(), LOW + 0x7000) == (LOW - 0x1000, END)


def test_a_descriptor_is_read_up_to_the_guard_of_the_next_stack():
    """Since glibc 2.42 guards lie in the mapping that all stacks share (MADV_GUARD_INSTALL)."""
    world = world_with_stack()
    world.regions[-1] = Region(LOW, END + 0x8000)
    assert world.regions[-1].end == END + 0x8000
    descriptor(world, LOW + 0x7800, LOW, END - LOW)
    assert find_stack_bounds(world.target(), LOW + 0x7800) == (LOW, END)


def test_what_a_process_cannot_read_is_not_missing():
    world = world_with_stack(stack_pointer=LOW + 0x1008, tls=LOW + 0x7000)
    world.map(Region(END + 0x1000, END + 0x3000))
    world.regions[-2:] = [Region(LOW, END + 0x3000)]  # one mapping, with a guard of a page
    held, lost = world.block(HEAP + 0x100), world.block(HEAP + 0x200)
    world.put(LOW + 0x6FF8, held)
    world.put(LOW + 0x800, lost)
    assert missing(world, live=True) == []
    assert missing(world) == [f"{END:#x}-{END + 0x3000:#x} (not readable)"]
    assert world.states() == {held: REACHED, lost: NOT_REACHED}


def test_a_range_of_a_process_of_which_nothing_can_be_read_is_missing():
    world = world_with_stack()
    world.regions.append(Region(END + 0x10000, END + 0x12000))
    assert missing(world, live=True) == [f"{END + 0x10000:#x}-{END + 0x12000:#x} (not readable)"]


def test_a_blank_stack_is_missing():
    """gdb writes zeros for a whole mapping where it cannot read a page."""
    world = world_with_stack(stack_pointer=LOW + 0x1008, tls=0x5678)
    assert missing(world) == []
    world.put(LOW + 0x7000, *[0] * 0x70)
    assert missing(world) == ["stack of thread 2 (only zeros in the core)"]
    assert missing(world, live=True) == []


def test_a_thread_whose_pointer_is_unknown_is_told_by_its_number():
    world = world_with_stack(stack_pointer=STACK + 0x3000)
    descriptor(world, LOW + 0x7000, LOW, END - LOW, tid=102)
    low = LOW + 0x10000
    world.map(Region(low, low + 0x8000))
    descriptor(world, low + 0x7000, low, 0x8000)  # has ended
    kept = [(one.start, one.end) for one in read_roots(world.target(), [world.heap()]).ranges]
    assert (LOW, END) in kept and (low + 0x7000, low + 0x8000) in kept and (low, low + 0x8000) not in kept


@pytest.mark.parametrize("ended", (True, False))
def test_vectors_of_threads_that_have_ended_or_whose_pointer_is_unknown(ended):
    world = world_with_stack(**({} if ended else {"stack_pointer": STACK + 0x3000}))
    block = world.block(HEAP + 0x100, 0x110)
    world.put(LOW + 0x7008, block + 16)
    assert world.states() == {block: REACHED}


def test_a_null_vector():
    world = world_with_stack(stack_pointer=LOW + 0x1000, tls=LOW + 0x7000)
    block = world.block(HEAP + 0x100)
    assert world.states() == {block: NOT_REACHED}


SHARED = {"/dev/zero (deleted)": True, "/memfd:x (deleted)": True, "/SYSV00000001": True, "/tmp/x": False}


@pytest.mark.parametrize("name, told", SHARED.items())
def test_shared_memory_that_a_core_lacks_is_missing(name, told):
    world = ReachWorld()
    world.map(Region(LOW, LOW + 0x3000, name=name, source="absent"))
    assert missing(world) == ([name] if told else [])


def test_what_an_allocator_keeps_in_a_block_keeps_nothing_alive():
    """The stacks of a thread cache: what was taken from them still stands there."""
    world = ReachWorld()
    own, other, held = world.block(HEAP + 0x100, 0x100), world.block(HEAP + 0x300), world.block(HEAP + 0x400, 0x40)
    world.put(own + 8, other)
    world.put(DATA, held)
    world.put(held, held + 8)
    world.extra = {"metadata": [(own, own + 0x100)]}
    assert world.states() == {own: REACHED, other: NOT_REACHED, held: REACHED}
    world.put(DATA + 8, other + 8)
    assert world.states()[other] == MAYBE_REACHED
