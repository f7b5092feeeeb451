"""A small target laid out by hand: a module, variables, and blocks whose bytes the test writes."""

from __future__ import annotations

import numpy as np

from gdbext.abi import X86_64
from gdbext.analysis.reach.graph import Reach
from gdbext.analysis.reach.model import LiveBlocks, Marked, RootHits, Roots
from gdbext.analysis.types.find import find_types
from gdbext.analysis.types.model import CONFIDENCE_NAMES
from gdbext.debuginfo import NoDebugInfo, Symbol, TypedPlace
from gdbext.heap.model import Blocks, Heap
from gdbext.kernels import NOT_REACHED, REACHED, BlockIndex, Hits, PointerRules
from gdbext.layout.declared import DeclaredTypes
from gdbext.memory import Region
from gdbext.memory.fake import FakeMemory
from gdbext.process import Module
from gdbext.progress import SILENT
from gdbext.structures.shapes.shape import StructPart
from gdbext.target import Target

# Addresses in blocks are letters, for those who take them for text.
MODULE, CODE, DATA, HEAP = 0x400000, 0x410000, 0x420000, 0x62616000
PAGES = 0x10000


class Names(NoDebugInfo):
    """Symbols by address."""

    def __init__(self, names):
        self._names = names

    def find_name(self, address):
        return self._names.get(address)

    def find_symbols(self, name):
        return [Symbol(name, at, None) for at, known in self._names.items() if known == name]


class World:
    """Bytes by address, and blocks one after the other from HEAP on.

    :ivar places: what the clues say of variables.
    :ivar leaked: addresses of blocks that no root leads to.
    :ivar demangled: what the debugger says of names.
    :ivar mangled: whether mangled words count as pointers.
    """

    def __init__(self, abi=X86_64, family="glibc"):
        self.abi = abi
        self.family = family
        self.module, self.code, self.data = bytearray(PAGES), bytearray(PAGES), bytearray(PAGES)
        self.heap = bytearray(PAGES)
        self.blocks = []
        self.leaked = set()
        self.places, self.demangled, self.names = [], {}, {}
        self.types = None
        self.executable = "r-x"
        self.mangled = False
        self.absent = ()
        self._next = 16
        self._used = 0x100

    # ---- bytes ----

    def word(self, number):
        return (number & self.abi.word_mask).to_bytes(self.abi.pointer_size, self.abi.byteorder)

    def words(self, *numbers):
        return b"".join(self.word(number) for number in numbers)

    def block(self, data, usable=None):
        """Make a block; glibc's rounding where the size is not given."""
        word = self.abi.pointer_size
        usable = usable or max((len(data) + word + 2 * word - 1) // (2 * word) * 2 * word, 4 * word) - word
        at = HEAP + self._next
        self.heap[self._next : self._next + len(data)] = data
        self.blocks.append((at, usable))
        self._next += (usable + word + 15) // 16 * 16
        return at

    def write(self, address, data):
        for start, buffer in ((MODULE, self.module), (CODE, self.code), (DATA, self.data), (HEAP, self.heap)):
            if start <= address < start + PAGES:
                buffer[address - start : address - start + len(data)] = data
                return
        raise AssertionError(hex(address))

    def put(self, data, place="module"):
        """Lay bytes into the module's constants; return their address."""
        self._used = (self._used + 15) // 16 * 16
        at, self._used = self._used, self._used + len(data)
        getattr(self, place)[at : at + len(data)] = data
        return {"module": MODULE, "data": DATA}[place] + at

    def variable(self, type, data, pointed=False):
        at = self.put(data, "data")
        self.places.append(TypedPlace(at, type, pointed))
        return at

    # ---- C++ ----

    def runtime(self):
        """Lay out the type information of __si_class_type_info; return what classes' type information begins with."""
        name = self.put(b"N10__cxxabiv120__si_class_type_infoE\0")
        info = self.put(self.words(0, name))
        return self.put(self.words(0, info, CODE + 8)) + 2 * self.abi.pointer_size

    def table(self, mangled, kind=None, top=0, code=CODE + 64):
        """Lay out a class's virtual table; return what its objects begin with."""
        name = self.put(mangled.encode() + b"\0")
        info = self.put(self.words(self.runtime() if kind is None else kind, name))
        return self.put(self.words(top, info, code, code)) + 2 * self.abi.pointer_size

    # ---- the whole ----

    def declare(self, **structs):
        rows = [StructPart(f"struct {name}", tuple(members)) for name, members in structs.items()]
        self.types = DeclaredTypes(rows, self.abi)
        return self.types

    def target(self):
        parts = [(MODULE, self.module), (CODE, self.code), (DATA, self.data), (HEAP, self.heap)]
        rights = ("r--", self.executable, "rw-", "rw-")
        regions = [
            Region(at, at + PAGES, right, source="absent" if at in self.absent else "memory")
            for (at, _), right in zip(parts, rights)
        ]
        memory = FakeMemory([part for part in parts if part[0] not in self.absent], regions)
        module = Module("/lib/program", MODULE, DATA + PAGES, None)
        return Target(memory, self.abi, modules=[module], symbols=Names(self.names))

    def reach(self):
        address, size = (np.array(each, np.uint64) for each in zip(*sorted(self.blocks)))
        count = len(address)
        live = LiveBlocks(BlockIndex(address, size), np.zeros(count, np.uint8))
        nothing = Hits(np.empty(0, np.uint64), np.empty(0, np.uint32), np.empty(0, np.bool_))
        blocks = Blocks(address, size, np.zeros(count, np.uint8), np.zeros(count, np.uint32))
        heap = Heap(self.family, blocks, (), size_classes=self.family != "glibc")
        spans = [] if HEAP in self.absent else [(HEAP, bytes(self.heap))]
        states = np.array([NOT_REACHED if at in self.leaked else REACHED for at in address.tolist()], np.uint8)
        marked = Marked(live, Roots((), ()), RootHits(nothing), spans, states)
        rules = PointerRules(self.abi.pointer_size, self.abi.byteorder, mangled=self.mangled)
        return Reach(self.target(), [heap], marked, rules, SILENT)

    def found(self):
        return find_types(self.reach(), Clues(self), SILENT)

    def answers(self):
        """Return name, kind and confidence by address."""
        found, reach = self.found(), self.reach()
        return {
            address: (found.types[code].name, found.types[code].kind, CONFIDENCE_NAMES[confidence])
            for address, code, confidence in zip(
                reach.address.tolist(), found.code.tolist(), found.confidence.tolist()
            )
        }


class Clues(NoDebugInfo):
    """What a world's debugger would say."""

    def __init__(self, world):
        self._world = world

    def places(self):
        return self._world.places

    def find_type(self, name):
        return None if self._world.types is None else self._world.types.find_type(name)

    def demangle(self, name):
        return self._world.demangled.get(name)
