"""Waiters of one lock, counted by registers and by what the kernel says of each thread."""

import pytest

from gdbext.memory.fake import FakeMemory
from gdbext.structures.locks.waiters import count_told_waiters, count_waiters
from gdbext.target import Target
from tests.support.lockworld import BITSET_RT, CODE, LOCK, PRIVATE, World, futex


def target_of(world):
    memory = FakeMemory([(LOCK, bytes(world.lock)), (CODE, bytes(world.code)), *world.segments])
    return Target(memory, world.abi, threads=world.threads)


def line(address, operation, value, timeout=0, number=202):
    arguments = f"{address:#x} {operation:#x} {value:#x} {timeout:#x} 0x0 0xffffffff"
    return f"{number} {arguments} 0x7ffff7dcfea8 0x7ffff7e5f000\n"


def told(world, lock, *lines):
    return count_told_waiters(target_of(world), lock, lines)


def held_mutex():
    world = World()
    world.words(0x40, 2, 0, 1002, 1, 0)
    return world


def test_both_ways_agree():
    world = held_mutex()
    for address in (LOCK + 0x40, LOCK + 0x40, LOCK + 0x80):
        world.thread(futex(address, PRIVATE, 2))
    target = target_of(world)
    assert count_waiters(target, LOCK + 0x40, world.threads) == 2
    lines = [line(address, PRIVATE, 2) for address in (LOCK + 0x40, LOCK + 0x40, LOCK + 0x80)]
    assert told(world, LOCK + 0x40, *lines) == 2
    assert told(world, LOCK + 0x80, *lines) == 1 and told(world, LOCK + 0x100, *lines) == 0


@pytest.mark.parametrize(
    "text",
    ["running\n", "-1 0x7ffe 0x7f00\n", "", "0 0x3 0x7f 0x1 0x0 0x0 0x0 0x1 0x2\n", "202 0x10040\n", "nonsense\n"],
)
def test_other_lines_are_no_waiters(text):
    assert told(held_mutex(), LOCK + 0x40, text) == 0


def test_a_word_inside_the_object_counts_for_the_object():
    world = World()
    world.words(0x40, 1 << 3, 0, 3, 0, 0, 0, 1002, 0, 0)  # a rwlock held by a writer
    reading = line(LOCK + 0x48, BITSET_RT, 3)
    assert told(world, LOCK + 0x40, reading) == 1
    assert told(world, LOCK, reading) == 0


@pytest.mark.parametrize(("word", "count"), [(1, 0), (0, 0), (-1, 1), (-7, 7), (-4096, 4096), (-4097, 0)])
def test_a_spinlock_counts_itself(word, count):
    world = World()
    world.words(0, word & 0xFFFFFFFF)
    assert told(world, LOCK, "running\n") == count


def test_what_cannot_be_read_has_no_waiters():
    assert told(World(), 0x10) == 0
    assert count_waiters(target_of(World()), LOCK, []) == 0
