"""HotSpot's heap, code cache and metaspace: libjvm exports where its structures have what (``gHotSpotVMStructs``)."""

from __future__ import annotations

import bisect
from typing import Callable, Dict, Iterator, List, Sequence, Tuple

from gdbext.analysis.unread.model import Claim, Ground, find_export, for_each_exporting
from gdbext.errors import FaultError
from gdbext.memory import Reader
from gdbext.memory.intervals import columns
from gdbext.process import Module

_MOST_ENTRIES = 1 << 14
_MOST_CODE_HEAPS = 16
_MOST_CLASSES = 1 << 16  # of which one in a mapping is enough
_MOST_LOADERS = 1 << 12
_COLUMNS = ("TypeName", "FieldName", "IsStatic", "Offset", "Address")
Stretch = Tuple[int, int]


class Structs:
    """Members of HotSpot's structures by type and name.

    :raises FaultError: a table cannot be read.
    """

    def __init__(self, ground: Ground, module: Module, table: int) -> None:
        self.reader: Reader = ground.target.reader
        at, stride = self.reader.word(table), self._constant(ground, module, "ArrayStride")
        places = [self._constant(ground, module, f"{name}Offset") for name in _COLUMNS]
        self._members: Dict[Tuple[str, str], Tuple[int, int]] = {}
        for number in range(_MOST_ENTRIES):
            kind, name, static, offset, address = (at + number * stride + place for place in places)
            if not self.reader.word(kind):
                break
            key = (self._text(kind), self._text(name))
            is_static = self.reader.uint(static, 4)
            self._members[key] = (0, self.reader.word(address)) if is_static else (self.reader.word(offset), 0)

    def _constant(self, ground: Ground, module: Module, name: str) -> int:
        address = find_export(ground.target, module, f"gHotSpotVMStructEntry{name}")
        if address is None:
            raise FaultError(module.base, 8, f"gHotSpotVMStructEntry{name}")
        return self.reader.word(address)

    def _text(self, at: int) -> str:
        return self.reader.find_string(self.reader.word(at), 256) or ""

    def place(self, kind: str, name: str, base: int = 0) -> int:
        """Return the address of a member, of a static one without ``base``.

        :raises FaultError: this HotSpot has none of that name.
        """
        if (kind, name) not in self._members:
            raise FaultError(base, 8, f"{kind}::{name}")
        offset, address = self._members[kind, name]
        return address or base + offset

    def read(self, kind: str, name: str, base: int = 0) -> int:
        """Return a member that is one word; errors as :meth:`place`."""
        return self.reader.word(self.place(kind, name, base))


def find_hotspot(ground: Ground) -> Iterator[Claim]:
    """Find what HotSpot's own variables say that it reserved."""
    for module, table in for_each_exporting(ground.target, "gHotSpotVMStructs"):
        try:
            structs = Structs(ground, module, table)
        except FaultError:
            continue
        for owner, part, evidence in _PARTS:
            found = _read(part, ground, structs)
            if found:
                yield Claim(owner, columns(found), f"{module.path}: {evidence}", part is _java_heap)


def _read(part: "Part", ground: Ground, structs: Structs) -> List[Stretch]:
    """Return what one part gives; what this HotSpot has not, or the target lacks, ends it."""
    found: List[Stretch] = []
    try:
        found.extend(part(ground, structs))
    except FaultError:
        return found
    return found


def _java_heap(ground: Ground, structs: Structs) -> Iterator[Stretch]:
    heap = structs.read("Universe", "_collectedHeap")
    reserved = structs.place("CollectedHeap", "_reserved", heap)
    start = structs.read("MemRegion", "_start", reserved)
    yield start, start + 8 * structs.read("MemRegion", "_word_size", reserved)


def _code_cache(ground: Ground, structs: Structs) -> Iterator[Stretch]:
    heaps = structs.read("CodeCache", "_heaps")
    count = structs.reader.uint(structs.place("GrowableArrayBase", "_len", heaps), 4)
    array = structs.read("GrowableArray<int>", "_data", heaps)
    for number in range(min(count, _MOST_CODE_HEAPS)):
        heap = structs.reader.word(array + 8 * number)
        for member in ("_memory", "_segmap"):
            space = structs.place("CodeHeap", member, heap)
            low, high = (structs.read("VirtualSpace", name, space) for name in ("_low_boundary", "_high_boundary"))
            yield low, high


def _card_table(ground: Ground, structs: Structs) -> Iterator[Stretch]:
    barriers = structs.read("BarrierSet", "_barrier_set")
    table = structs.read("CardTableBarrierSet", "_card_table", barriers)
    start = structs.read("CardTable", "_byte_map", table)
    yield start, start + structs.read("CardTable", "_byte_map_size", table)


def _metaspace(ground: Ground, structs: Structs) -> Iterator[Stretch]:
    """Iterate over the pieces that hold classes of any loader, or what these keep outside of the class space."""
    places = sorted({place for one in _classes(structs) for place in (one, *_kept(structs, one))})
    for start, end in ground.stretches:
        at = bisect.bisect_left(places, start)
        if at < len(places) and places[at] < end:
            yield start, end


def _classes(structs: Structs) -> Iterator[int]:
    loader, loaders, classes = structs.read("ClassLoaderDataGraph", "_head"), 0, 0
    while loader and loaders < _MOST_LOADERS:
        one = structs.read("ClassLoaderData", "_klasses", loader)
        while one and classes < _MOST_CLASSES:
            yield one
            one, classes = structs.read("Klass", "_next_link", one), classes + 1
        loader, loaders = structs.read("ClassLoaderData", "_next", loader), loaders + 1


def _kept(structs: Structs, one: int) -> Iterator[int]:
    """Iterate over a class's methods and constants; of an array's class these words are something else."""
    for name in ("_constants", "_methods"):
        yield structs.read("InstanceKlass", name, one)


Part = Callable[[Ground, Structs], Iterator[Stretch]]
_PARTS: Sequence[Tuple[str, Part, str]] = (
    ("HotSpot Java heap", _java_heap, "CollectedHeap::_reserved"),
    ("HotSpot code cache", _code_cache, "CodeCache::_heaps"),
    ("HotSpot metaspace", _metaspace, "classes of ClassLoaderDataGraph, their methods and constants"),
    ("HotSpot card table", _card_table, "CardTable::_byte_map"),
)
