"""A jemalloc laid out by hand in bytes: the globals of one module, one base block, extents.

Offsets are those of a recorded layout, which ``tests/gdb/test_jemalloc_layouts.py`` holds against gdb; what stands at
them is set here. Nothing of the walkers is used, except the geometry's numbers, which are given.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, field, replace
from typing import Optional, Sequence

from gdbext.abi import X86_64
from gdbext.debuginfo import DebugStruct, Symbol
from gdbext.heap.jemalloc.layouts import WANTED, Layout, recorded
from gdbext.layout import Member, StructLayout
from gdbext.memory import Region
from gdbext.memory.fake import FakeMemory
from gdbext.process import Module, Thread
from gdbext.target import Target

MODULE = 0x5555_0000_0000
BASE = 0x7F00_0000_0000
BASE_SIZE = 12 << 20
HEAP = 0x7E00_0000_0000
HEAP_SIZE = 64 << 20
BUILD_ID = "ab" * 20
ARENAS, ROOT, INFOS, TOTAL = 0x1000, 0x10000, 0x9000, 0x800
CONSTANTS = MODULE - 0x1000
PATH = "/lib/libjemalloc.so.2"
LAYOUTS = {layout.version: layout for layout in recorded()}


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
    """A Symbols port of given addresses, and of a layout's structures as debug info has them."""

    known: dict[str, Symbol] = field(default_factory=dict)
    typed: Optional[Layout] = None

    def find_symbols(self, name: str) -> Sequence[Symbol]:
        return [self.known[name]] if name in self.known else []

    def find_structs(self, name: str) -> Sequence[DebugStruct]:
        known = self.typed.structs if self.typed else {}
        return [DebugStruct(_upstream(ours, one), BUILD_ID) for ours, one in known.items() if one.name == name]

    def find_tls(self, name: str, thread: Thread) -> Optional[int]:
        return None

    def find_name(self, address: int) -> Optional[str]:
        return None


def _upstream(name: str, struct: StructLayout) -> StructLayout:
    """Return a structure with jemalloc's names for its members."""
    members = {WANTED[name].members[key][0]: member for key, member in struct.members.items()}
    return replace(struct, members={path: replace(one, name=path) for path, one in members.items()})


def with_big_pages(version: str) -> Layout:
    """Return a version's layout as ``--with-lg-page=16`` changes it: 52 bins, bitmaps of 128 + 2 + 1 groups."""
    structs = dict(LAYOUTS[version].structs)
    extent, arena, info = structs["extent"], structs["arena"], structs["bin_info"]
    structs["extent"] = _with(extent, 64 + 131 * 8 + 40, bitmap=replace(extent.member("bitmap"), count=131))
    structs["bin_info"] = _with(info, 72)
    bins = arena.member("bins")
    if bins.count:
        bins = replace(bins, offset=arena.size, count=52)
    lstats = replace(arena.member("lstats"), count=232 - 52)
    root = structs["rtree"].member("root")
    structs["rtree"] = _with(structs["rtree"], 8 << 16, root=replace(root, count=1 << 16))
    structs["arena"] = _with(arena, arena.size + bins.size * (bins.count or 0), bins=bins, lstats=lstats)
    return replace(LAYOUTS[version], version="", structs=structs)


def _with(struct: StructLayout, size: int, **members: Member) -> StructLayout:
    return replace(struct, size=size, members={**struct.members, **members})


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

    def target(
        self, named: bool = True, absent: Sequence[int] = (), prefix: str = "je_", typed: bool = False
    ) -> Target:
        """Return the target; ``typed``: with debug info of the world's layout."""
        blocks = [(MODULE, bytes(self.module)), (BASE, bytes(self.base)), (HEAP, b"")]
        ends = {MODULE: len(self.module), BASE: BASE_SIZE, HEAP: HEAP_SIZE}
        regions = [
            Region(
                start, start + ends[start], "rw-", PATH if start == MODULE else "", 0, _source(start, absent)
            )
            for start in (MODULE, HEAP, BASE)
        ]
        regions.insert(0, Region(CONSTANTS, MODULE, "r--", PATH, 0, _source(CONSTANTS, absent)))
        blocks.append((CONSTANTS, self.constants.ljust(0x1000, b"\0")))
        held = [(start, data) for start, data in blocks if data and start not in absent]
        module = Module(PATH, CONSTANTS, MODULE + len(self.module), BUILD_ID)
        return Target(
            FakeMemory(held, regions), X86_64, modules=(module,), symbols=self._names(named, prefix, typed)
        )

    def _names(self, named: bool, prefix: str, typed: bool) -> Names:
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
        known = {name: Symbol(name, address, BUILD_ID) for name, address in places.items()}
        return Names(known, self.layout if typed else None)


def _source(start: int, absent: Sequence[int]) -> str:
    return "absent" if start in absent or start == HEAP else "memory"


def laid(version: str = "5.3.0", shape: Shape = NARROW, layout: Optional[Layout] = None) -> World:
    """Two slabs, a large block off its page, and an extent in each other state; what they are by address."""
    world = World(layout or LAYOUTS[version], shape)
    page = 1 << shape.lg_page
    world.places = [HEAP + page * at for at in (1, 8, 20, 40, 50, 60)]
    slab, full, large, dirty, muzzy, retained = world.places
    free = page // 8 - 3
    slab_pages = [full, full + page, full + 2 * page]
    world.slab = world.extent(slab, page, slab=1, szind=0, nfree=free, arena=0)
    world.full = world.extent(full, 3 * page, slab_pages, slab=1, szind=3, nfree=0, arena=1)
    world.large = world.extent(large + 0x340, 5 * page, szind=36, arena=1)
    world.dirty = world.extent(dirty, 2 * page, state=1, szind=232, arena=0)
    world.extent(muzzy, page, state=2, szind=232, arena=0)
    world.extent(retained, 4 * page, state=3, szind=232, arena=1)
    bitmap = world.layout["extent"].member("bitmap")
    bits = (1 << free) - 1 | ~0 << page // 8  # above the lowest level all groups have a free region
    for at in range(bitmap.count or 0):
        world.word(world.slab + bitmap.offset + 8 * at, bits >> 64 * at)
    world.put("bin", world.bin_of(0, 0), slabcur=world.slab, curregs=3, curslabs=1, nslabs=1)
    world.put("bin", world.bin_of(1, 3), slabcur=world.full, curregs=3 * page // 48, curslabs=1, nslabs=1)
    return world
