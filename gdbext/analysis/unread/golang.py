"""Go's heap, stripped or not: ``mheap_.arenas`` leads from the program's variables to a table of its arenas.

From Go's ``src/runtime/mheap.go`` and ``malloc.go`` at 1.11 to 1.26: arenas of 64 MiB; on 64-bit Linux the first level
of the table has one entry, the second 4 Mi; each used entry points at a ``heapArena``.
"""

from __future__ import annotations

import bisect
from typing import Iterator, List, Optional, Sequence, Tuple

import numpy as np

from gdbext.analysis.unread.model import Claim, Ground
from gdbext.errors import FaultError
from gdbext.memory import Region
from gdbext.memory.bulk import U64, for_each_written_view, words_at
from gdbext.memory.intervals import columns
from gdbext.process import Module

_ARENA_BITS = 26
_ARENA = 1 << _ARENA_BITS
_TABLE = 1 << 25  # bytes of the second level
_OFFSETS = (0x800000000000, 0)  # arenaBaseOffset, negated: amd64, others
_MOST_DATA = 64 << 20  # bytes of a module's variables
_AROUND = 1 << 17  # bytes of mheap_ beside ``arenas``


def find_go(ground: Ground) -> Iterator[Claim]:
    """Find the arenas, and what else the runtime took: its tables, and what ``mheap_`` points at."""
    for module in ground.target.modules:
        found = _find_table(ground, module)
        if found is None:
            continue
        variable, table, arenas = found
        named = f"{len(arenas)} arenas of 64 MiB, each in the runtime's table at {table:#x}"
        yield Claim("Go heap", columns((start, start + _ARENA) for start, _ in arenas), named)
        own = sorted({table, *(place for _, place in arenas), *_around(ground, variable)})
        evidence = f"its tables, which mheap_ at {variable:#x} leads to"
        yield Claim("Go runtime", columns(_stretches(ground, own)), evidence, blocks=False)


def _find_table(ground: Ground, module: Module) -> Optional[Tuple[int, int, Sequence[Tuple[int, int]]]]:
    """Return the address of the variable, of the table, and each arena with its heapArena; None where it has none."""
    for start, words in _data(ground, module):
        for at in np.flatnonzero((words != 0) & (words % np.uint64(4096) == 0)).tolist():
            table = int(words[at])
            arenas = _read_arenas(ground, table) if _is_table(ground, table) else ()
            if arenas:
                return start + 8 * at, table, arenas
    return None


def _data(ground: Ground, module: Module) -> Iterator[Tuple[int, U64]]:
    for region in ground.target.index.within(module.base, module.end):
        if region.readable and region.writable:
            try:
                size = min(region.size, _MOST_DATA)
                yield region.start, words_at(ground.target.memory, ground.target.abi, region.start, size // 8)
            except FaultError:
                continue


def _is_table(ground: Ground, table: int) -> bool:
    held = ground.pieces.within(*columns([(table, table + _TABLE)]))
    return held == _TABLE


def _read_arenas(ground: Ground, table: int) -> Sequence[Tuple[int, int]]:
    """Return each arena and its heapArena, in order; nothing where an entry cannot be one."""
    target = ground.target
    most = sum(one.size for one in target.index.regions if one.anonymous) // _ARENA
    for offset in _OFFSETS:
        found: List[Tuple[int, int]] = []
        for start, data in for_each_written_view(target.memory, table, table + _TABLE, target.abi.page_size):
            words = np.frombuffer(data, target.abi.word_dtype)
            used = np.flatnonzero(words)
            if len(found) + len(used) > most:
                return ()
            for at in used.tolist():
                arena = ((start - table) // 8 + at << _ARENA_BITS) - offset
                found.append((arena, int(words[at])))
        if found and all(_is_arena(ground, arena, place) for arena, place in found):
            return found
    return ()


def _is_arena(ground: Ground, arena: int, place: int) -> bool:
    """Whether an arena is address space that no file has, and its heapArena anonymous memory."""
    parts = ground.target.index.within(max(arena, 0), max(arena, 0) + _ARENA)
    held = sum(min(one.end, arena + _ARENA) - max(one.start, arena) for one in parts)
    own = ground.pieces.holds(np.array([place], np.uint64))[0]
    return place % 4096 == 0 and held == _ARENA and all(one.anonymous for one in parts) and bool(own)


def _around(ground: Ground, variable: int) -> Iterator[int]:
    """Iterate over what page-aligned words near ``mheap_.arenas`` point at."""
    low, high = variable - _AROUND, variable + _AROUND
    for region in ground.target.index.within(low, high):
        start, end = max(region.start, low), min(region.end, high)
        if region.writable and region.readable:
            for word in ground.words(start, (end - start) // 8):
                if word and word % 4096 == 0 and ground.target.index.find(word) is not None:
                    yield word


def _stretches(ground: Ground, places: Sequence[int]) -> Iterator[Tuple[int, int]]:
    """Iterate over what may be written of the runs of adjoining anonymous mappings that hold the places."""
    run: List[Region] = []
    regions = [one for one in ground.target.index.regions if not one.name or one.name.startswith("[anon: Go")]
    for region, after in zip(regions, [*regions[1:], None]):
        run.append(region)
        if after is None or after.start != region.end:
            first = bisect.bisect_left(places, run[0].start)
            if first < len(places) and places[first] < region.end:
                yield from ((one.start, one.end) for one in run if one.writable)
            run = []
