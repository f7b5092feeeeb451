"""musl's malloc up to 1.2.0 on laid-out memory: no suite packages it any more. What was laid out is the truth.

Programs built with 1.1.24, static and not, stripped and not, were tried by hand.
"""

from __future__ import annotations

import random
import struct

import pytest

from gdbext.abi import X86_64
from gdbext.heap.model import State
from gdbext.heap.musl.heap import find_heaps
from gdbext.memory import Region
from gdbext.memory.fake import FakeMemory
from gdbext.process import Module
from gdbext.progress import SILENT
from gdbext.target import Target

LIBC, DATA, HEAP, MAPPED = 0x7F0000000000, 0x7F0000003000, 0x560000000000, 0x7E0000000000
BINS = DATA + 0x308  # of `mal`; binmap before it
GAP = DATA + 0x1010  # 16 more than a multiple of 32
SIZES = [32, 64, 4096, 96, 64, 1024, 32, 64, 2048, 32]
FREE = {1, 4, 7, 8}  # not neighbours, but for 7 and 8, which are made one


def bin_of(size):
    """As ``bin_index``, of the sizes that are used here."""
    number = size // 32 - 1
    assert number <= 32 or number < 512
    return number if number <= 32 else 32 + (number - 32) // 8


class World:
    """A heap of 64 KiB, a mapped block, a gap in a module, and the bins."""

    def __init__(self):
        self.parts = {LIBC: bytearray(0x1000), DATA: bytearray(0x2000), HEAP: bytearray(0x10000)}
        self.parts[MAPPED] = bytearray(0x40000)
        self.used, self.lists = {}, {}
        sizes = [*SIZES[:7], SIZES[7] + SIZES[8], SIZES[9]]
        sizes.append(0x10000 - 32 - sum(sizes))
        self.lay(HEAP + 16, sizes, FREE - {8})
        self.lay(GAP, [128, 64], {1})
        self.put(MAPPED + 16, 16, 0x40000 - 16)
        self.used[MAPPED + 32] = 0x40000 - 32
        self.link()

    def put(self, address, *words):
        start = max(one for one in self.parts if one <= address)
        struct.pack_into(f"<{len(words)}Q", self.parts[start], address - start, *words)

    def lay(self, at, sizes, free):
        self.put(at, 1)
        for number, size in enumerate(sizes):
            head = size | (number not in free)
            self.put(at + 8, head)
            self.put(at + size, head)
            if number in free:
                self.lists.setdefault(bin_of(size), []).append(at)
            else:
                self.used[at + 16] = size - 16
            at += size
        self.put(at + 8, 1)

    def link(self):
        binmap = 0
        for number in range(64):
            own = BINS + 24 * number - 8
            chain = [own, *self.lists.get(number, []), own]
            binmap |= (len(chain) > 2) << number
            self.put(BINS + 24 * number, 0, chain[1], chain[-2])
            for before, at, after in zip(chain, chain[1:], chain[2:]):
                self.put(at + 16, after, before)
        self.put(BINS - 8, binmap)

    def heaps(self):
        regions = [
            Region(LIBC, LIBC + 0x1000, "r-x", "/lib/libc.so"),
            Region(DATA, DATA + 0x2000, "rw-", "/lib/libc.so"),
        ]
        regions += [Region(HEAP, HEAP + 0x10000, "rw-", "[heap]"), Region(MAPPED, MAPPED + 0x40000, "rw-")]
        memory = FakeMemory([(at, bytes(data)) for at, data in self.parts.items()], regions)
        modules = [Module("/lib/libc.so", LIBC, DATA + 0x2000, None), Module("/bin/program", 0x1000, 0x2000, None)]
        return find_heaps(Target(memory, X86_64, modules=modules), SILENT)


def test_every_block_is_where_it_was_laid():
    world = World()
    (heap,) = world.heaps()
    assert (heap.complete, list(heap.problems)) == (True, [])
    used = heap.blocks.having((State.IN_USE, State.MMAPPED))
    assert dict(zip(heap.blocks.address[used].tolist(), heap.blocks.size[used].tolist())) == world.used
    free = sorted(at + 16 for chain in world.lists.values() for at in chain)
    assert heap.blocks.address[~used].tolist() == free
    assert [(span.kind, span.start) for span in heap.spans] == [("brk", HEAP), ("mmapped", MAPPED), ("mmap", GAP)]
    assert sum(charge.bytes for charge in heap.charges) == sum(span.end - span.start for span in heap.spans)


def test_a_block_that_was_written_beyond_its_end_is_found():
    world = World()
    world.put(HEAP + 16 + 32 + 64 + 4096, 0x4141414141414141)
    (heap,) = world.heaps()
    assert [(one.kind, one.address) for one in heap.problems] == [("overrun", HEAP + 16 + 32 + 64 + 16)]


def test_a_chunk_that_no_bin_holds_is_found():
    world = World()
    ((number, chain), *_) = [item for item in world.lists.items() if len(item[1]) > 1]
    chain.pop()
    world.link()
    (heap,) = world.heaps()
    assert [one.kind for one in heap.problems] == ["free-count"]


def test_a_size_that_is_none_costs_what_lies_behind():
    world = World()
    world.put(HEAP + 16 + 32 + 64 + 8, 7)
    (heap,) = world.heaps()
    assert not heap.complete
    assert ("chunk-size", HEAP + 16 + 32 + 64) in {(one.kind, one.address) for one in heap.problems}


@pytest.mark.parametrize("seed", range(8))
def test_damage_ends_in_an_answer(seed):
    chance, world = random.Random(seed), World()
    for _ in range(40):
        start = chance.choice([DATA, HEAP])
        world.put(start + 8 * chance.randrange(0x400), chance.choice([0, 1, 2**64 - 1, HEAP + 16, 4097]))
    for heap in world.heaps():
        address, size = heap.blocks.address, heap.blocks.size
        assert (address[1:] >= address[:-1] + size[:-1]).all()
