"""A process's memory with CPython's small-object allocator in it, laid out as Objects/obmalloc.c does it.

The allocator is written a second time here, so that what reads it is held to the source and not to itself.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

from gdbext.abi import X86_64
from gdbext.memory import Region
from gdbext.memory.fake import FakeMemory
from gdbext.process import Module
from gdbext.target import Target

NEW, OLD = (1 << 20, 1 << 14), (1 << 18, 1 << 12)  # bytes of arenas and pools, since 3.10 and before
OVERHEAD, CLASSES = 48, 32

MODULE, USEDPOOLS, ARENAS_AT = 0x900000, 0x900400, 0x900C00
ARRAY = 0x20000010
FIRST_ARENA = 0x7F0000_100000


@dataclass
class Arena:
    address: int
    pool_address: int
    nfreepools: int
    ntotalpools: int
    freepools: int = 0


class World:
    """Allocates as pymalloc_alloc() and pymalloc_free() do, one class of functions to one of theirs.

    :param aligned: whether arenas begin at the address of a pool.
    """

    def __init__(self, geometry=NEW, aligned=True, entries=16):
        self.arena_size, self.pool_size = geometry
        self.arenas: list[Arena] = []
        self.entries = entries
        self.bytes = bytearray()
        self.base = FIRST_ARENA + (0 if aligned else 4096)
        self.heads = {szidx: USEDPOOLS - 16 + 16 * szidx for szidx in range(CLASSES)}
        self.used = {szidx: [head, head] for szidx, head in self.heads.items()}  # nextpool, prevpool
        self.live: dict[int, int] = {}

    # ---- words of pools ----

    def get(self, address, form="<Q"):
        return struct.unpack_from(form, self.bytes, address - self.base)[0]

    def put(self, address, value, form="<Q"):
        struct.pack_into(form, self.bytes, address - self.base, value)

    def link(self, pool, which, value):
        """Set nextpool (0) or prevpool (1) of a pool or of a list's head."""
        for szidx, head in self.heads.items():
            if pool == head:
                self.used[szidx][which] = value
                return
        self.put(pool + 16 + 8 * which, value)

    # ---- the allocator ----

    def malloc(self, size):
        szidx = (size - 1) >> 4
        pool = self.used[szidx][0]
        if pool == self.heads[szidx]:
            pool = self.new_pool(szidx)
        block = self.get(pool + 8)
        self.put(pool, self.get(pool, "<I") + 1, "<I")
        following = self.get(block)
        self.put(pool + 8, following)
        if not following:
            self.extend(pool, szidx)
        self.live[block] = (szidx + 1) * 16
        return block

    def extend(self, pool, szidx):
        size, offset = (szidx + 1) * 16, self.get(pool + 40, "<I")
        if offset <= self.get(pool + 44, "<I"):
            self.put(pool + 8, pool + offset)
            self.put(pool + 40, offset + size, "<I")
            self.put(pool + offset, 0)
            return
        after, before = self.get(pool + 16), self.get(pool + 24)
        self.link(after, 1, before)
        self.link(before, 0, after)

    def new_pool(self, szidx):
        arena = next((one for one in self.arenas if one.nfreepools), None) or self.new_arena()
        index, size = self.arenas.index(arena), (szidx + 1) * 16
        pool = arena.freepools
        if pool:
            arena.freepools = self.get(pool + 16)
        else:
            pool, arena.pool_address = arena.pool_address, arena.pool_address + self.pool_size
            self.put(pool + 32, index, "<I")
            self.put(pool + 36, 0xFFFF, "<I")
        arena.nfreepools -= 1
        head = self.heads[szidx]
        self.put(pool + 16, head)
        self.put(pool + 24, head)
        self.used[szidx] = [pool, pool]
        self.put(pool, 0, "<I")
        if self.get(pool + 36, "<I") != szidx:
            self.put(pool + 36, szidx, "<I")
            self.put(pool + 40, OVERHEAD + size, "<I")
            self.put(pool + 44, self.pool_size - size, "<I")
            self.put(pool + 8, pool + OVERHEAD)
            self.put(pool + OVERHEAD, 0)
        return pool

    def new_arena(self):
        address = self.base + len(self.bytes)
        self.bytes += bytes(self.arena_size)
        count = self.arena_size // self.pool_size
        first = -(-address // self.pool_size) * self.pool_size
        count -= first != address
        self.arenas.append(Arena(address, first, count, count))
        return self.arenas[-1]

    def free(self, block):
        del self.live[block]
        pool = block & -self.pool_size
        szidx, last = self.get(pool + 36, "<I"), self.get(pool + 8)
        self.put(block, last)
        self.put(pool + 8, block)
        count = self.get(pool, "<I") - 1
        self.put(pool, count, "<I")
        if not last:  # it was full: now it is the first of its list
            head = self.heads[szidx]
            after = self.used[szidx][0]
            self.put(pool + 16, after)
            self.put(pool + 24, head)
            self.link(after, 1, pool)
            self.used[szidx][0] = pool
        elif not count:
            after, before = self.get(pool + 16), self.get(pool + 24)
            self.link(after, 1, before)
            self.link(before, 0, after)
            arena = self.arenas[self.get(pool + 32, "<I")]
            self.put(pool + 16, arena.freepools)
            arena.freepools = pool
            arena.nfreepools += 1

    # ---- as a target ----

    def module(self):
        return Module("/usr/bin/python3.11", MODULE, MODULE + 0x1000, None)

    def target(self, live=False):
        data = bytearray(0x1000)
        for szidx, pair in self.used.items():
            struct.pack_into("<QQ", data, USEDPOOLS - MODULE + 16 * szidx, *pair)
        struct.pack_into("<Q", data, ARENAS_AT - MODULE, ARRAY if self.arenas else 0)
        array = bytearray(48 * self.entries)
        for index, one in enumerate(self.arenas):
            words = (one.address, one.pool_address, one.nfreepools, one.ntotalpools, one.freepools, 0, 0)
            struct.pack_into("<QQIIQQQ", array, 48 * index, *words)
        # behind the array malloc has something else
        array = bytes(16) + bytes(array) + struct.pack("<6Q", 0x21, 5, 5, 5, 5, 5) * self.entries
        segments = [(MODULE, bytes(data)), (ARRAY - 16, array), (self.base, bytes(self.bytes))]
        regions = [Region(start, start + len(bytes_)) for start, bytes_ in segments if bytes_]
        regions[0] = Region(MODULE, MODULE + 0x1000, name="/usr/bin/python3.11")
        return Target(FakeMemory(segments, regions), X86_64, modules=[self.module()], live=live)
