"""A jemalloc laid out by hand in bytes: the globals of one module, one base block, extents.

Offsets are those of a recorded layout, which ``tests/gdb/test_jemalloc_layouts.py`` holds against gdb; what stands at
them is set here. Nothing of the walkers is used, except the geometry's numbers, which are given.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, field
from typing import Optional, Sequence

from gdbext.abi import X86_64
from gdbext.heap.jemalloc.layouts import Layout
from gdbext.memory import Region
from gdbext.memory.fake import FakeMemory
from gdbext.target import DebugStruct, Module, Symbol, Target, Thread

MODULE = 0x5555_0000_0000
BASE = 0x7F00_0000_0000
BASE_SIZE = 12 << 20
HEAP = 0x7E00_0000_0000
HEAP_SIZE = 64 << 20
BUILD_ID = "ab" * 20
ARENAS, ROOT, INFOS, TOTAL = 0x1000, 0x10000, 0x9000, 0x800
CONSTANTS = MODULE - 0x1000
PATH = "/lib/libjemalloc.so.2"


@dataclass
class Shape:
    """A radix tree's geometry as jemalloc's source gives it."""

    lg_vaddr: int
    lg_page: int
    bits: Sequence[int]
    compact: bool


NARROW = Shape(48, 12, (18, 18), True)
WIDE = Shape(57, 12, (15, 15, 15), False)
BIG_PAGES = Shape(48, 16, (16, 16), True)


@dataclass
class Names:
    """A Symbols port of given addresses."""

    known: dict[str, Symbol] = field(default_factory=dict)

    def find_symbols(self, name: str) -> Sequence[Symbol]:
        return [self.known[name]] if name in self.known else []

    def find_structs(self, name: str) -> Sequence[DebugStruct]:
        return ()

    def find_tls(self, name: str, thread: Thread) -> Optional[int]:
        return None

    def find_name(self, address: int) -> Optional[str]:
        return None


class World:
    """The bytes, and ways to put things into them."""

    def __init__(self, layout: Layout, shape: Shape, arenas: int = 2) -> None:
        self.layout, self.shape = layout, shape
        self.module = bytearray(ROOT + (8 << shape.bits[0]) + 0x1000)
        self.base = bytearray(BASE_SIZE)
        self.at = 256
        self.constants = b"\0<jemalloc>: %s: \0" + f"{layout.version}-0-g{'0' * 40}\0".encode()
        self.nodes: dict[tuple[int, ...], int] = {(): MODULE + ROOT}
        self.arenas = [self._arena(index) for index in range(arenas)]
        self._infos()
        self.poke(MODULE + TOTAL, struct.pack("<I", arenas))

    # -- bytes

    def poke(self, address: int, data: bytes) -> None:
        start, block = (MODULE, self.module) if address < HEAP else (BASE, self.base)
        block[address - start : address - start + len(data)] = data

    def word(self, address: int, value: int) -> None:
        self.poke(address, struct.pack("<Q", value & (2**64 - 1)))

    def allocate(self, size: int, alignment: int = 128) -> int:
        self.at = -(-self.at // alignment) * alignment
        self.at += size
        assert self.at <= BASE_SIZE
        return BASE + self.at - size

    def put(self, struct_name: str, place: int, /, **members: int) -> None:
        for name, value in members.items():
            member = self.layout[struct_name].member(name)
            self.poke(place + member.offset, value.to_bytes(member.size, "little"))

    # -- structures

    def _arena(self, index: int) -> int:
        layout = self.layout
        base = self.allocate(layout["base"].size)
        self.put("base_block", BASE, size=BASE_SIZE)
        self.put(
            "base", base, ind=index, blocks=BASE, allocated=1000 + index, resident=8192, mapped=BASE_SIZE
        )
        trailing = 0 if layout.bins_are_pointers else layout["bin"].size * layout.nbins
        arena = self.allocate(layout["arena"].size + trailing)
        self.put("arena", arena, base=base)
        self.word(MODULE + ARENAS + 8 * index, arena)
        if layout.bins_are_pointers:
            for at in range(layout.nbins):
                self.word(arena + layout["arena"].offset("bins") + 8 * at, self.allocate(layout["bin"].size))
        return arena

    def bin_of(self, arena: int, index: int) -> int:
        first = self.arenas[arena] + self.layout["arena"].offset("bins")
        if self.layout.bins_are_pointers:
            at = first + 8 * index - BASE
            return int(struct.unpack_from("<Q", self.base, at)[0])
        return first + index * self.layout["bin"].size

    def _infos(self) -> None:
        sizes = [8, 16, 32, 48, 64]
        while len(sizes) < self.layout.nbins:
            step = 1 << (sizes[-1].bit_length() - 3)
            sizes += [sizes[-1] + step * count for count in range(1, 5)]
        for index, size in enumerate(sizes[: self.layout.nbins]):
            slab = 1 << self.shape.lg_page
            while slab % size:
                slab += 1 << self.shape.lg_page
            at = MODULE + INFOS + index * self.layout["bin_info"].size
            self.put("bin_info", at, reg_size=size, slab_size=slab, nregs=slab // size)
            if self.layout.has("bin_info", "n_shards"):
                self.put("bin_info", at, n_shards=1)

    def extent(self, start: int, size: int, pages: Optional[Sequence[int]] = None, **fields: int) -> int:
        """Lay out an extent and enter its first and last page, or ``pages``, into the tree."""
        edata = self.allocate(self.layout["extent"].size)
        self.set_bits(edata, **fields)
        self.put("extent", edata, address=start, size=size)
        page = 1 << self.shape.lg_page
        first = start & -page
        for at in sorted({first, first + size - page} if pages is None else set(pages)):
            self.enter(at, edata, fields.get("szind", 0), fields.get("slab", 0))
        return edata

    def set_bits(self, edata: int, **fields: int) -> None:
        known = self.layout.fields(self.shape.lg_page)
        self.put("extent", edata, bits=sum(value << known[name].shift for name, value in fields.items()))

    def enter(self, page: int, edata: int, szind: int, slab: int) -> None:
        shape = self.shape
        key: tuple[int, ...] = ()
        for level in range(len(shape.bits) - 1):
            index = self._key(page, level)
            if (*key, index) not in self.nodes:
                wide = 16 if level == len(shape.bits) - 2 and not shape.compact else 8
                node = self.allocate(wide << shape.bits[level + 1], 64)
                self.word(self.nodes[key] + 8 * index, node)
                self.nodes[(*key, index)] = node
            key = (*key, index)
        stride = 8 if shape.compact else 16
        element = (szind << shape.lg_vaddr | edata | slab) if shape.compact else edata
        self.word(self.nodes[key] + stride * self._key(page, len(shape.bits) - 1), element)

    def _key(self, page: int, level: int) -> int:
        shift = self.shape.lg_page + sum(self.shape.bits[level + 1 :])
        return page >> shift & ((1 << self.shape.bits[level]) - 1)

    # -- the target

    def target(self, named: bool = True, absent: Sequence[int] = (), prefix: str = "je_") -> Target:
        blocks = [(MODULE, bytes(self.module)), (BASE, bytes(self.base)), (HEAP, b"")]
        ends = {MODULE: len(self.module), BASE: BASE_SIZE, HEAP: HEAP_SIZE}
        regions = [
            Region(
                start, start + ends[start], "rw-", PATH if start == MODULE else "", 0, _source(start, absent)
            )
            for start in (MODULE, HEAP, BASE)
        ]
        regions.insert(0, Region(CONSTANTS, MODULE, "r--", PATH))
        blocks.append((CONSTANTS, self.constants.ljust(0x1000, b"\0")))
        held = [(start, data) for start, data in blocks if data and start not in absent]
        module = Module(PATH, CONSTANTS, MODULE + len(self.module), BUILD_ID)
        return Target(
            FakeMemory(held, regions), X86_64, modules=(module,), symbols=self._names(named, prefix)
        )

    def _names(self, named: bool, prefix: str) -> Names:
        if not named:
            return Names()
        new = self.layout.has("emap", "rtree")
        inner = self.layout["emap"].offset("rtree") if new else 0
        root = MODULE + ROOT - inner - self.layout["rtree"].offset("root")
        places = {
            prefix + "arenas": MODULE + ARENAS,
            prefix + ("arena_emap_global" if new else "extents_rtree"): root,
            prefix + "bin_infos": MODULE + INFOS,
            "narenas_total": MODULE + TOTAL,
        }
        return Names({name: Symbol(name, address, BUILD_ID) for name, address in places.items()})


def _source(start: int, absent: Sequence[int]) -> str:
    return "absent" if start in absent or start == HEAP else "memory"
