"""Finds and reads mimalloc 3.x by its page map: a table of tables that has the page of every 64 KiB.

Pages are taken from arenas, or from the system. Their structures begin them (3.0 to 3.2), or lie in the arena's first
slices (since 3.3). From ``src/page-map.c`` and ``src/arena.c`` at 3.0.1 to 3.4.3.
"""

from __future__ import annotations

from typing import Dict, Iterator, List, Optional, Sequence, Tuple

import numpy as np

from gdbext.errors import FaultError
from gdbext.heap.mimalloc.layouts import MAP_LAYOUTS, SLICE
from gdbext.heap.mimalloc.model import U64, MapLocation, Mimalloc, Piece
from gdbext.heap.reading import mapped_ranges
from gdbext.heap.symbolcheck import find_disbelief
from gdbext.memory.bulk import for_each_written_view, gather_words, words_at
from gdbext.memory.intervals import distinct
from gdbext.process import Module
from gdbext.report import Evidence, Problem
from gdbext.target import Target

_NAME = "_mi_page_map"
_TABLE_SHIFT = 29  # of an address: MI_PAGE_MAP_SUB_SHIFT + MI_ARENA_SLICE_SHIFT
_TABLE = 1 << 16  # bytes of a table of the second level
_ROOT = 8 << 47 - _TABLE_SHIFT  # bytes of the first
_MOST_REGION = 1 << 40  # bytes; what is larger is reserved
_SAMPLE = 64  # pages that are judged
_ENOUGH = 0.9  # of them that have to be pages; a process may be stopped while one is made
_FLAGS, _PAGE_FLAGS = 3, 7  # of xthread_free; of xthread_id
_MOST_SLICES = 1 << 20  # of an arena


def find_maps(target: Target, modules: Sequence[Module]) -> List[MapLocation]:
    """Return what the page map of a target may be, by all layouts that fit; none is an answer."""
    if target.abi.byteorder != "little":
        return []
    for root, how in _candidates(target, modules):
        tables, pages = _pages_of(target, root)
        if len(pages) and _fits(_sample(target, pages)):
            evidence = (Evidence("mimalloc", f"page map at {root:#x} {how}: {len(pages)} pages"),)
            return [MapLocation(layout, root, tables, pages, evidence) for layout in MAP_LAYOUTS]
    return []


def _candidates(target: Target, modules: Sequence[Module]) -> Iterator[Tuple[int, str]]:
    """Iterate over what the page map's address may be: by its name, then each pointer to a page of the machine."""
    for symbol in target.symbols.find_symbols(_NAME):
        if find_disbelief(target, symbol) is None:
            try:
                yield target.reader.word(symbol.address), "by its name"
            except FaultError:
                continue
    for module in modules:
        for region in target.index.within(module.base, module.end):
            if region.readable and region.writable:
                yield from ((root, "by its structure") for root in _roots(target, region.start, region.size))


def _roots(target: Target, start: int, size: int) -> List[int]:
    try:
        words = distinct(words_at(target.memory, target.abi, start, size // 8))
    except FaultError:
        return []
    return [one for one in words[words % np.uint64(target.abi.page_size) == 0].tolist() if _is_anonymous(target, one)]


def _is_anonymous(target: Target, address: int) -> bool:
    region = target.index.find(address)
    return region is not None and region.anonymous and region.readable and region.writable


def _pages_of(target: Target, root: int) -> Tuple[List[int], U64]:
    """Return the tables of the second level, and the pages that these name: each once, by address."""
    numbers: List[int] = []
    for region in target.index.regions:
        if region.anonymous and region.readable and region.size < _MOST_REGION:
            numbers += range(region.start >> _TABLE_SHIFT, (region.end - 1 >> _TABLE_SHIFT) + 1)
    wanted = np.uint64(root) + distinct(np.array(numbers, np.uint64)) * np.uint64(8)
    tables = distinct(gather_words(target.memory, target.abi, wanted)[0])
    tables = tables[tables != 0]
    if any(table % target.abi.page_size or not _is_anonymous(target, table) for table in tables.tolist()):
        return [], np.empty(0, np.uint64)
    named = [np.empty(0, np.uint64)]
    for table in tables.tolist():
        for _, view in for_each_written_view(target.memory, table, table + _TABLE, target.abi.page_size):
            named.append(distinct(np.frombuffer(view, target.abi.word_dtype).astype(np.uint64)))
    pages = distinct(np.concatenate(named))
    return tables.tolist(), pages[pages != 0]


def _sample(target: Target, pages: U64) -> U64:
    chosen = pages[:: max(len(pages) // _SAMPLE, 1)]
    return _words(target, chosen, 6)[0]


def _words(target: Target, pages: U64, count: int) -> Tuple[U64, "np.ndarray[tuple[int], np.dtype[np.bool_]]"]:
    """Return the first words of structures, a row each, and which could be read."""
    columns = [gather_words(target.memory, target.abi, pages + np.uint64(8 * number)) for number in range(count)]
    return np.stack([values for values, _ in columns], 1), np.logical_and.reduce([known for _, known in columns])


def _fits(words: U64) -> bool:
    """Whether structures are pages, by what all layouts have in common."""
    counts = words[:, 2]
    used, capacity, reserved = (counts >> np.uint64(shift) & np.uint64(0xFFFF) for shift in (0, 16, 32))
    each = words[:, 5]
    sound = (used <= capacity) & (capacity <= reserved) & (reserved > 0) & (each >= 8) & (each % np.uint64(8) == 0)
    return bool(sound.mean() >= _ENOUGH)


def read_mapped(heap: Mimalloc, location: MapLocation) -> U64:
    """Return the pages that were ever used, a row each, and note what memory they have."""
    target, layout = heap.target, location.layout
    words, known = _words(target, location.pages, layout.size // 8)
    for at in np.flatnonzero(~known).tolist():
        address = int(location.pages[at])
        lacks = target.lacks(address, layout.size)
        heap.complete &= not lacks
        message = f"the page {address:#x} cannot be read"
        heap.problems.append(Problem("absent-memory" if lacks else "page", address, message, corruption=not lacks))
    at, words = location.pages[known], words[known]
    fields = {name: _field(words, *place) for name, place in layout.page.items()}
    start = fields.get("page_start")
    if start is None:
        start = at + fields["page_woffset"] * np.uint64(8)
    _note_memory(heap, location, at, start, fields, words)
    columns = [at, start, fields["block_size"], fields["capacity"], fields["used"], fields["free"],
               fields["local_free"], fields["thread_free"] & ~np.uint64(_FLAGS), fields["heap"],
               fields["thread"] & ~np.uint64(_PAGE_FLAGS), *_keys(words, layout.keys)]  # fmt: skip
    return np.stack(columns, 1)[fields["capacity"] > 0]


def _keys(words: U64, offset: int) -> Tuple[U64, U64]:
    """Return the two keys of each page, zeros where it has none."""
    none = np.zeros(len(words), np.uint64)
    return (_field(words, offset, 8), _field(words, offset + 8, 8)) if offset else (none, none)


def _field(words: U64, offset: int, size: int) -> U64:
    column: U64 = words[:, offset // 8] >> np.uint64(offset % 8 * 8)
    return column if size == 8 else column & np.uint64((1 << 8 * size) - 1)


def _note_memory(
    heap: Mimalloc, location: MapLocation, at: U64, start: U64, fields: Dict[str, U64], words: U64
) -> None:
    """Note the memory of pages, the first slices of their arenas, and the tables of the page map."""
    layout, mapped = location.layout, mapped_ranges(heap.target.index)
    base, second = (_field(words, layout.memid + 8 * number, 8) for number in (0, 1))
    first, count = second & np.uint64(0xFFFFFFFF), second >> np.uint64(32)
    arenas = _arenas(heap, base)
    inside = np.isin(base, np.array(list(arenas), np.uint64))
    low = np.where(inside, base + first * np.uint64(SLICE), base)
    high = np.where(inside, low + count * np.uint64(SLICE), low + second)
    end = start + fields["block_size"] * fields["reserved"]
    known = (low <= start) & (end <= high) & mapped.holds_whole(low, high)
    low, high = np.where(known, low, start), np.where(known, high, start + fields["block_size"] * fields["capacity"])
    sound = mapped.holds_whole(low, high)
    heap.areas += zip(low[sound].tolist(), high[sound].tolist())
    within = (low <= at) & (at < start) & sound  # structures at the beginning of pages
    heap.own += zip(low[within].tolist(), np.minimum(start, high)[within].tolist())
    own = [(arena, arena + info) for arena, (_, info) in arenas.items()]
    own += [(table, table + _TABLE) for table in location.tables]
    own += [(location.root, min(location.root + _ROOT, _end_of(heap.target, location.root)))]
    heap.areas += own
    heap.own += own


def _end_of(target: Target, address: int) -> int:
    region = target.index.find(address)
    return address if region is None else region.end


def _arenas(heap: Mimalloc, named: U64) -> Dict[int, Tuple[int, int]]:
    """Return the arenas among some addresses: their bytes, and those that they keep for themselves."""
    found = ((one, _arena(heap.target, one)) for one in distinct(named).tolist() if one and one % SLICE == 0)
    return {one: size for one, size in found if size is not None}


def _arena(target: Target, address: int) -> Optional[Tuple[int, int]]:
    """Return the size of an arena and of its own part, or None where none begins: ``slice_count``, ``info_slices``."""
    try:
        words = target.reader.words(address, 7)
    except FaultError:
        return None
    for count, info in (words[4:6], words[5:7]):
        if 0 < info < count <= _MOST_SLICES and count >= 512:
            return count * SLICE, info * SLICE
    return None


def find_arenas(heap: Mimalloc) -> List[Piece]:
    """Return start and end of the arenas whose first slices were noted."""
    found = ((one, _arena(heap.target, one)) for one, _ in heap.own if one % SLICE == 0)
    return [(one, one + size[0]) for one, size in found if size is not None]
