"""Frames that wait below the stack pointer: contexts laid out by hand after the headers of kernel and libc."""

from __future__ import annotations

import pytest

from gdbext.abi import I386, X86_64
from gdbext.analysis.reach.model import ANONYMOUS, STACK
from gdbext.analysis.reach.roots import read_roots
from gdbext.memory import Region
from gdbext.process import Thread
from tests.support.reachworld import DATA, HEAP, ReachWorld
from tests.support.reachworld import STACK as MAIN

POINTER = MAIN + 0x2000  # of the thread: in an array on its stack
WAITS = MAIN + 0x1000  # of what waits
HELD = MAIN + 0x1010
RED = {X86_64: 128, I386: 0}

# (ABI, bytes from the saved stack pointer to the code segment, that, and to fpregs, and what that points at)
LAYOUTS = [(X86_64, 24, 0x002B000000000033, 64, 264), (I386, 32, 0x23, 48, 188)]


def world_at(abi):
    """A block that only a frame below the stack pointer points at."""
    world = ReachWorld(abi)
    block = world.block(HEAP + 0x100)
    world.put(HELD, block)
    return world, block


def live_from(world):
    ranges = read_roots(world.target(), [world.heap()]).ranges
    return next(one.start for one in ranges if one.kind == STACK)


@pytest.mark.parametrize("abi, code, selector, floats, area", LAYOUTS)
def test_what_a_signal_interrupted_lies_below_its_handler_s_stack(abi, code, selector, floats, area):
    world, block = world_at(abi)
    assert world.states() == {block: 0}
    at = POINTER + 0x400
    world.put(at, WAITS)
    assert world.states() == {block: 0}  # a pointer there is no context
    world.put(at + code, selector)
    assert world.states() == {block: 2}
    assert live_from(world) == WAITS - RED[abi]


@pytest.mark.parametrize("abi, code, selector, floats, area", LAYOUTS)
def test_what_swapcontext_left_lies_below_a_coroutine_in_its_frame(abi, code, selector, floats, area):
    world, block = world_at(abi)
    at = DATA + 0x400
    world.put(at, WAITS)
    world.put(at + floats, at + area + abi.pointer_size)
    assert world.states() == {block: 0}
    world.put(at + floats, at + area)
    assert world.states() == {block: 2}


def test_the_lowest_context_counts_and_none_of_another_stack():
    world, block = world_at(X86_64)
    for number, pointer in enumerate((WAITS + 0x800, WAITS, MAIN + 0x3000, DATA + 8)):
        world.put(DATA + 0x400 + number * 0x200, pointer, 0, 0, 0x33)
    assert live_from(world) == WAITS - 128
    assert world.states() == {block: 2}


def test_a_context_at_the_end_of_data_is_not_whole():
    world, block = world_at(X86_64)
    world.put(DATA + 0x4000 - 32, WAITS, 0, 0, 0x33)
    assert world.states() == {block: 0}


def test_a_stack_that_is_not_in_the_core_has_no_contexts():
    world = ReachWorld()
    world.map(Region(0x400000, 0x408000, source="absent"))
    world.threads.append(Thread(2, 102, None, 0x404000, tls=0x1234))
    assert world.states() == {}


def test_coroutines_that_wait_below_the_one_that_runs_are_roots():
    """One mapping of many stacks, with a guard below them all; the thread's own stack is elsewhere."""
    world = ReachWorld()
    low = 0x400000
    world.map(Region(low - 0x1000, low, "---"))
    world.map(Region(low, low + 0x8000))
    block = world.block(HEAP + 0x100)
    world.put(low + 0x1000, block)
    world.thread(stack_pointer=low + 0x7000, tls=0x1234)
    assert world.states() == {block: 2}
    kinds = {one.kind for one in read_roots(world.target(), [world.heap()]).ranges if low <= one.start < low + 0x8000}
    assert kinds == {ANONYMOUS, STACK}
