"""What is at an address, where several things could be said of it."""

from __future__ import annotations

import pytest

from gdbext.abi import X86_64
from gdbext.analysis.addresses import Addresses, find_short_name
from gdbext.analysis.blocks import place
from gdbext.analysis.blocks.contents import pointer_namer
from gdbext.heap.model import Span, State
from gdbext.memory import Region
from gdbext.memory.fake import FakeMemory
from gdbext.process import Thread
from gdbext.target import Target
from tests.unit.analysis.heaps import heap_of

HEAP, STACKS = 0x10000, 0x50000
COROUTINE, OTHER, FREED = HEAP + 0x100, HEAP + 0x900, HEAP + 0xA00
ROWS = [(COROUTINE, 0x700, State.IN_USE, 0), (OTHER, 0x80, State.IN_USE, 0), (FREED, 0x80, State.TCACHE, 0)]


def scene():
    """Return a heap with a stack in one of its blocks, and one mapping in which two other threads have theirs."""
    regions = [Region(HEAP, HEAP + 0x1000, "rw-", "[heap]"), Region(STACKS, STACKS + 0x4000)]
    threads = [
        Thread(1, 1, None, STACKS + 0x3800),
        Thread(2, 2, None, COROUTINE + 0x400),
        Thread(3, 3, None, STACKS + 0x1800),
    ]
    data = [(HEAP, bytes(0x1000)), (STACKS, bytes(0x4000))]
    heap = heap_of(ROWS, spans=[Span(HEAP, HEAP + 0x1000, "brk", 0)])
    return heap, Target(FakeMemory(data, regions), X86_64, threads=threads)


@pytest.mark.parametrize(
    ("address", "thread", "offset"),
    [
        (STACKS + 0x3810, 1, 0x10),
        (STACKS + 0x3000, 3, 0x1800),  # where the one begins and the other ends is not known
        (STACKS + 0x1900, 3, 0x100),
        (STACKS + 0x100, 3, -0x1700),  # below every stack pointer
        (COROUTINE + 0x480, 2, 0x80),
        (COROUTINE + 0x10, 2, -0x3F0),
        (OTHER, None, None),  # another block of the same mapping, above the stack pointer
        (HEAP + 0x8, None, None),
        (STACKS - 8, None, None),
    ],
)
def test_whose_stack_it_is(address, thread, offset):
    heap, target = scene()
    stack = Addresses(target, [heap]).at(address).stack
    assert (stack and stack.thread.number, stack and stack.offset) == (thread, offset)


def test_all_who_describe_an_address_agree_on_the_stack():
    heap, target = scene()
    at, name = Addresses(target, [heap]).at, pointer_namer(target, [heap])
    assert find_short_name(at(COROUTINE + 0x480)) == "stack of thread 2"  # says more than the block
    assert find_short_name(at(COROUTINE + 0x10)) == "block of 1 792 bytes + 0x10"  # below the stack pointer
    assert find_short_name(at(OTHER + 8)) == "block of 128 bytes + 0x8"
    assert find_short_name(at(STACKS + 0x3810)) == name(STACKS + 0x3810) == "stack of thread 1"
    whole = place.describe([heap], target, STACKS + 0x3810).data.place
    assert whole.endswith("stack of thread 1 (0x50000-0x54000 rw-)")
