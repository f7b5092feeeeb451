"""What mimalloc reserves for later: arenas, of which parts were never used or have been given back.

gdb's core of a process holds all of an arena as zeros.
"""

from __future__ import annotations

from typing import Iterator, Sequence, Tuple

import numpy as np

from gdbext.errors import FaultError
from gdbext.heap.mimalloc.layouts import SLICE
from gdbext.heap.mimalloc.model import U64, Location, Mimalloc, Piece
from gdbext.heap.mimalloc.pagemap import find_arenas
from gdbext.memory.bulk import for_each_written_view, gather_words, words_at
from gdbext.memory.intervals import Intervals, columns, distinct, joined, merged, without
from gdbext.process import Module
from gdbext.target import Target

_MOST_SEGMENTS = 1 << 20  # of one arena
# Where an arena (``mi_arena_t``) of 1.x and 2.x has its start and its number of blocks, each as large as a segment.
_FIELDS: Sequence[Tuple[int, int]] = ((32, 40), (8, 16))


def note_reserves(heap: Mimalloc) -> None:
    """Note which parts of its arenas hold nothing, and those that do as its own memory, which nobody uses."""
    location = heap.location
    arenas = list(_of_segments(heap, location)) if isinstance(location, Location) else find_arenas(heap)
    used = joined(merged(columns([*heap.areas, *heap.own])))
    unused = without(joined(merged(columns(arenas))), used)
    written = joined(merged(columns(for_each_written_slice(heap.target, unused))))
    heap.areas += zip(*(column.tolist() for column in written))
    heap.reserves += zip(*(column.tolist() for column in without(unused, written)))


def for_each_written_slice(target: Target, pieces: Intervals) -> Iterator[Piece]:
    """Iterate over the slices of some memory that hold anything but zeros."""
    for start, end in zip(*(column.tolist() for column in pieces)):
        for region in target.index.within(start, end):
            if region.readable:
                low, high = max(start, region.start), min(end, region.end)
                for one in _slices(target, low, high):
                    yield max(one * SLICE, low), min((one + 1) * SLICE, high)


def _slices(target: Target, start: int, end: int) -> Iterator[int]:
    """Iterate over the numbers of the slices between two addresses of which a whole page is not zeros."""
    size = target.abi.page_size
    for low, view in for_each_written_view(target.memory, start + -start % size, end - end % size, size):
        words = np.frombuffer(view, np.uint64).reshape(-1, size // 8)
        pages = np.uint64(low) + np.flatnonzero(words.any(axis=1)).astype(np.uint64) * np.uint64(size)
        yield from distinct(pages // np.uint64(SLICE)).tolist()


def _of_segments(heap: Mimalloc, location: Location) -> Iterator[Piece]:
    """Iterate over start and end of the arenas that some segments are in."""
    target, size = heap.target, location.layout.align
    bases = np.array(sorted(location.segments), np.uint64)
    for pointers in (one for module in location.modules for one in _pointers(target, module)):
        for start_at, count_at in _FIELDS:
            start, known = gather_words(target.memory, target.abi, pointers + np.uint64(start_at))
            count, seen = gather_words(target.memory, target.abi, pointers + np.uint64(count_at))
            fits = known & seen & (start > 0) & (start % np.uint64(size) == 0) & (count > 0) & (count < _MOST_SEGMENTS)
            for low, high in zip(start[fits].tolist(), (start + count * np.uint64(size))[fits].tolist()):
                first, last = np.searchsorted(bases, np.array((low, high), np.uint64)).tolist()
                if first < last and _is_mapped(target, low, high):
                    yield low, high


def _is_mapped(target: Target, start: int, end: int) -> bool:
    return sum(min(one.end, end) - max(one.start, start) for one in target.index.within(start, end)) == end - start


def _pointers(target: Target, module: Module) -> Iterator[U64]:
    """Iterate over the words of a module's variables that may point to an arena, by address."""
    for region in target.index.within(module.base, module.end):
        if region.readable and region.writable:
            try:
                words = distinct(words_at(target.memory, target.abi, region.start, region.size // 8))
            except FaultError:
                continue
            yield words[(words > SLICE) & (words % np.uint64(8) == 0)]
