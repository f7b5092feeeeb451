"""Chunks that have a mapping of their own (``sysmalloc_mmap``).

Nothing links them, so they are recognised: at a page boundary, ``IS_MMAPPED`` alone among the flag bits, a
size of whole pages within the mapping. ``mp_.n_mmaps`` and ``mp_.mmapped_mem`` say whether all were found.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Dict, Iterator, List, Optional, Sequence, Tuple

import numpy as np

from gdbext.errors import FaultError
from gdbext.heap.glibc.location import Location
from gdbext.heap.glibc.segments import Interval
from gdbext.heap.glibc.sizes import FLAG_BITS, IS_MMAPPED, Sizes
from gdbext.heap.model import U64
from gdbext.memory.bulk import words_at
from gdbext.report import Problem
from gdbext.target import Target


@dataclass(frozen=True)
class MmappedChunk:
    """One chunk with its own mapping.

    :param start: first byte of the mapping that it owns.
    :param chunk: chunk header; behind ``start`` where memalign moved it.
    :param end: first address after it.
    """

    start: int
    chunk: int
    end: int


@dataclass(frozen=True)
class Mmapped:
    """The census.

    :param expected_blocks: ``mp_.n_mmaps``, or None when mp_ is not known.
    :param expected_bytes: ``mp_.mmapped_mem``, or None.
    """

    chunks: Tuple[MmappedChunk, ...]
    expected_blocks: Optional[int]
    expected_bytes: Optional[int]
    problems: Tuple[Problem, ...] = ()

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
    chunks: List[MmappedChunk] = []
    for low, high in _unclaimed(target, claimed):
        chunks += _for_each_chunk(target, sizes, low, high)
    census = Mmapped(tuple(chunks), blocks, total)
    return Mmapped(census.chunks, blocks, total, tuple(_check_census(census)))


def _expected(target: Target, location: Location) -> Tuple[Optional[int], Optional[int]]:
    layout, address = location.malloc_par_layout, location.malloc_par
    if layout is None or address is None:
        return None, None
    reader = target.reader
    return layout.read(reader, address, "n_mmaps"), layout.read(reader, address, "mmapped_mem")


def _check_census(census: Mmapped) -> Iterator[Problem]:
    found = (len(census.chunks), census.bytes)
    expected = (census.expected_blocks, census.expected_bytes)
    if None not in expected and found != expected:
        message = (
            f"found {found[0]} mmapped chunks of {found[1]} bytes,"
            f" mp_ counts {expected[0]} of {expected[1]} bytes"
        )
        yield Problem("mmapped-count", None, message)


def _unclaimed(target: Target, claimed: Sequence[Interval]) -> Iterator[Interval]:
    """Iterate over the anonymous, writable memory between the claimed intervals."""
    taken = sorted(claimed)
    for region in target.memory.regions():
        if not (region.anonymous and region.writable and region.readable) or region.name:
            continue
        at = region.start
        for low, high in taken:
            if high <= at or low >= region.end:
                continue
            if low > at:
                yield at, low
            at = max(at, high)
        if at < region.end:
            yield at, region.end


def _for_each_chunk(target: Target, sizes: Sizes, low: int, high: int) -> Iterator[MmappedChunk]:
    page = target.abi.page_size
    low, high = low + -low % page, high - high % page
    if low >= high:
        return
    try:
        words = words_at(target.memory, target.abi, low, (high - low) // sizes.word)
    except FaultError:
        return  # the region's absence is the core reader's problem, told there
    found: Dict[int, MmappedChunk] = {}
    for user in _user_offsets(sizes, page):
        found.update((one.start, one) for one in _headers(words, sizes, page, (low, high), user))
    at = low
    for start in sorted(found):
        if start >= at:
            at = found[start].end
            yield found[start]


def _user_offsets(sizes: Sizes, page: int) -> Iterator[int]:
    """Iterate over where in a page user memory can begin, the plain place first.

    ``_int_memalign`` moves the header of an mmapped chunk to the aligned place, with the distance from
    the mapping's start as prev_size; the old header stays behind, and ``mremap_chunk`` updates only
    the new one. So a header found at an aligned place counts more than the one at the start.
    """
    yield sizes.header
    alignment = 2 * sizes.alignment
    while alignment < page:
        yield from (alignment, 2 * alignment)
        alignment *= 2
    yield page


def _headers(
    words: U64, sizes: Sizes, page: int, bounds: Tuple[int, int], user: int
) -> Iterator[MmappedChunk]:
    """Iterate over the mmapped chunks whose user memory begins at that offset of a page."""
    (low, high), step = bounds, page // sizes.word
    at = (user - sizes.header) // sizes.word
    before, heads = words[at::step], words[at + 1 :: step]
    before = before[: len(heads)]
    chunk = np.arange(len(heads), dtype=np.uint64) * np.uint64(page) + np.uint64(low + user - sizes.header)
    size = heads & ~np.uint64(FLAG_BITS)
    whole_pages = (before + np.uint64(sizes.header)) % np.uint64(page) == 0
    lead_fits = whole_pages if user == page else before == user - sizes.header
    sound = ((heads & np.uint64(FLAG_BITS)) == IS_MMAPPED) & lead_fits & (size > 0)
    sound &= (before <= chunk - np.uint64(low)) & (size <= np.uint64(high) - chunk)
    sound &= (before + size) % np.uint64(page) == 0
    for row in np.flatnonzero(sound).tolist():
        place = int(chunk[row])
        yield MmappedChunk(place - int(before[row]), place, place + int(size[row]))
