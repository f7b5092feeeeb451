"""Chunks that have a mapping of their own (``sysmalloc_mmap``).

Nothing links them, so they are recognised: at a page boundary, ``IS_MMAPPED`` alone among the flag bits, a
size of whole pages within the mapping. ``mp_.n_mmaps`` and ``mp_.mmapped_mem`` say whether all were found.

Since glibc commit 614cfd0f8a ("malloc: Change mmap chunk layout") (in 2.43) such a chunk leaves a header's room
behind it and bit 0 of its prev_size says that it is of huge pages; before that it reached to the mapping's
end. Which of the two a target has is told by the sizes found.
"""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass, replace
from typing import Dict, Iterator, List, Optional, Sequence, Tuple

import numpy as np

from gdbext.heap.glibc.find.location import Location
from gdbext.heap.glibc.read.segments import Interval
from gdbext.heap.glibc.sizes import FLAG_BITS, IS_MMAPPED, Sizes
from gdbext.heap.model import U64
from gdbext.memory import knows_written
from gdbext.memory.bulk import for_each_written_page
from gdbext.report import Problem
from gdbext.target import Target
from gdbext.wording import size_text

HUGE_PAGES = 1  # MMAP_HP

_MOST_UNKNOWN = 1 << 28  # bytes that are searched of a process whose debugger does not say what it ever touched


@dataclass(frozen=True)
class MmappedChunk:
    """One chunk with its own mapping.

    :param start: first byte of the mapping that it owns.
    :param chunk: chunk header; behind ``start`` where memalign moved it.
    :param end: first address after the mapping.
    :param usable_end: first address that the program may not use.
    """

    start: int
    chunk: int
    end: int
    usable_end: int


@dataclass(frozen=True)
class Mmapped:
    """The census.

    :param expected_blocks: ``mp_.n_mmaps``, or None when mp_ is not known.
    :param expected_bytes: ``mp_.mmapped_mem``, or None.
    :param trailer: bytes between a chunk and its mapping's end.
    """

    chunks: Tuple[MmappedChunk, ...]
    expected_blocks: Optional[int]
    expected_bytes: Optional[int]
    problems: Tuple[Problem, ...] = ()
    trailer: int = 0

    @property
    def bytes(self) -> int:
        """Bytes of the mappings found."""
        return sum(chunk.end - chunk.start for chunk in self.chunks)


def find_mmapped(
    target: Target, location: Location, sizes: Sizes, claimed: Sequence[Interval]
) -> Mmapped:
    """Look for mmapped chunks in all anonymous memory that nobody claims.

    :param claimed: disjoint intervals of heaps, segments and stacks.
    """
    blocks, total = _expected(target, location)
    intervals, left = _affordable(target, list(_unclaimed(target, claimed)))
    found = [_find_chunks(target, sizes, *interval) for interval in intervals]
    old, new = (
        Mmapped(tuple(chunk for both in found for chunk in both[at]), blocks, total, trailer=trailer)
        for at, trailer in enumerate((0, sizes.header))
    )
    census = new if new.bytes > old.bytes else old
    problems = [*_check_census(census)]
    return replace(census, problems=(*problems, *_not_searched(census, left, bool(problems))))


def _affordable(target: Target, intervals: Sequence[Interval]) -> Tuple[Sequence[Interval], int]:
    """Return the intervals to search, and how many bytes are left out: untouched reservations may be terabytes."""
    if not target.live or knows_written(target.memory):
        return intervals, 0
    chosen: List[Interval] = []
    room = _MOST_UNKNOWN
    for low, high in sorted(intervals, key=lambda interval: interval[1] - interval[0]):
        if high - low > room:
            break
        chosen.append((low, high))
        room -= high - low
    return sorted(chosen), sum(high - low for low, high in intervals) - (_MOST_UNKNOWN - room)


def _not_searched(census: Mmapped, left: int, differs: bool) -> Iterator[Problem]:
    """Say what was not searched, unless all chunks were found in the rest."""
    if left and (differs or census.expected_blocks is None):
        message = (
            f"{size_text(left)} of anonymous memory was not searched for blocks with a mapping of their own: the"
            " debugger cannot say what of it was ever touched; ask it for a core"
        )
        yield Problem("not-searched", None, message)


def _expected(target: Target, location: Location) -> Tuple[Optional[int], Optional[int]]:
    layout, address = location.malloc_par_layout, location.malloc_par
    if layout is None or address is None:
        return None, None
    reader = target.reader
    return layout.read(reader, address, "n_mmaps"), layout.read(reader, address, "mmapped_mem")


def _check_census(census: Mmapped) -> Iterator[Problem]:
    """Compare with what ``mp_`` counts. Where chunks have a trailer, each mremap counts one too many."""
    blocks, total = census.expected_blocks, census.expected_bytes
    if blocks is None or total is None:
        return
    excess = total - census.bytes
    drifted = bool(census.trailer) and excess >= 0 and excess % census.trailer == 0
    if len(census.chunks) != blocks or (excess and not drifted):
        message = (
            f"found {len(census.chunks)} mmapped chunks of {census.bytes} bytes,"
            f" mp_ counts {blocks} of {total} bytes"
        )
        yield Problem("mmapped-count", None, message)


def _unclaimed(target: Target, claimed: Sequence[Interval]) -> Iterator[Interval]:
    """Iterate over the anonymous, writable memory between the claimed intervals."""
    taken, first = sorted(claimed), 0
    for region in target.memory.regions():
        if not (region.anonymous and region.writable and region.readable) or region.name:
            continue
        at = region.start
        while first < len(taken) and taken[first][1] <= at:
            first += 1
        for low, high in taken[first:bisect_left(taken, (region.end, 0))]:
            if high <= at:
                continue
            if low > at:
                yield at, low
            at = max(at, high)
        if at < region.end:
            yield at, region.end


def _find_chunks(target: Target, sizes: Sizes, low: int, high: int) -> List[List[MmappedChunk]]:
    """Return the chunks in an interval, by both layouts: those that reach to their mapping's end, and the others."""
    page = target.abi.page_size
    low, high = low + -low % page, high - high % page
    trailers = (0, sizes.header)
    found: List[Dict[int, Tuple[int, MmappedChunk]]] = [{} for _ in trailers]
    for pages, words in for_each_written_page(target.memory, target.abi, low, high) if low < high else ():
        for user in _user_offsets(sizes, page):
            for known, trailer in zip(found, trailers):
                for one in _headers(words, pages, sizes, page, (low, high), (user, trailer)):
                    if user >= known.get(one.start, (0,))[0]:
                        known[one.start] = user, one
    return [list(_disjoint([known[start][1] for start in sorted(known)])) for known in found]


def _disjoint(chunks: Sequence[MmappedChunk]) -> Iterator[MmappedChunk]:
    at = 0
    for one in chunks:
        if one.start >= at:
            at = one.end
            yield one


def _user_offsets(sizes: Sizes, page: int) -> Iterator[int]:
    """Iterate over where in a page user memory can begin, the plain place first.

    ``_int_memalign`` moves the header of an mmapped chunk to the aligned place, with the distance from
    the mapping's start as prev_size; the old header stays behind, and ``mremap_chunk`` updates only
    the new one. So a header found at an aligned place counts more than the one at the start.
    """
    yield sizes.header + -sizes.header % sizes.alignment
    alignment = 2 * sizes.alignment
    while alignment < page:
        yield from (alignment, 2 * alignment)
        alignment *= 2
    yield page


def _headers(
    words: U64, pages: U64, sizes: Sizes, page: int, bounds: Tuple[int, int], place: Tuple[int, int]
) -> Iterator[MmappedChunk]:
    """Iterate over the mmapped chunks whose user memory begins at one offset of a page.

    :param words: of pages, a row each.
    :param pages: their addresses.
    :param bounds: of all memory that chunks may lie in here.
    :param place: that offset, and the bytes between a chunk and its mapping's end.
    """
    (low, high), (user, trailer) = bounds, place
    at = (user - sizes.header) // sizes.word
    lead, heads = words[:, at] & ~np.uint64(HUGE_PAGES), words[:, at + 1]
    chunk = pages + np.uint64(user - sizes.header)
    size = (heads & ~np.uint64(FLAG_BITS)) + np.uint64(trailer)
    whole_pages = (lead + np.uint64(sizes.header)) % np.uint64(page) == 0
    sound = whole_pages if user == page else lead == user - sizes.header
    sound &= ((heads & np.uint64(FLAG_BITS)) == IS_MMAPPED) & (size > trailer)
    sound &= (lead <= chunk - np.uint64(low)) & (size <= np.uint64(high) - chunk)
    sound &= (lead + size) % np.uint64(page) == 0
    for row in np.flatnonzero(sound).tolist():
        header = int(chunk[row])
        end = header + int(size[row])
        yield MmappedChunk(header - int(lead[row]), header, end, _usable_end(end, trailer, sizes))


def _usable_end(end: int, trailer: int, sizes: Sizes) -> int:
    """Where a chunk leaves room behind it, its last word there may be used as in any other chunk."""
    return end - trailer + sizes.word if trailer else end
