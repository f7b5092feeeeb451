"""Chunks that have a mapping of their own (``sysmalloc_mmap``).

Nothing links them, so they are recognised: at a page boundary, ``IS_MMAPPED`` alone among the flag bits, a
size of whole pages within the mapping. ``mp_.n_mmaps`` and ``mp_.mmapped_mem`` say whether all were found.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Iterator, List, Optional, Sequence, Tuple

import numpy as np

from gdbext.errors import FaultError
from gdbext.heap.glibc.location import Location
from gdbext.heap.glibc.segments import Interval
from gdbext.heap.glibc.sizes import FLAG_BITS, IS_MMAPPED, Sizes
from gdbext.memory.bulk import words_at
from gdbext.report import Problem
from gdbext.target import Target

LARGEST_ALIGNMENT_BITS = 34  # memalign up to 16 GiB is looked for


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
    try:
        candidates = _candidates(target, sizes, low, high)
    except FaultError:
        return  # the region's absence is the core reader's problem, told there
    at = low
    for start, size in candidates:
        chunk = None if start < at else _extent(target, sizes, start, size, high)
        if chunk is not None:
            at = chunk.end
            yield chunk


def _candidates(target: Target, sizes: Sizes, low: int, high: int) -> List[Tuple[int, int]]:
    """Return page starts that look like the header of an mmapped chunk, with its size."""
    if low >= high:
        return []
    page, word = target.abi.page_size, sizes.word
    words = words_at(target.memory, target.abi, low, (high - low) // word)
    heads, before = words[1 :: page // word], words[0 :: page // word]
    starts = np.arange(low, high, page, dtype=np.uint64)
    size = heads & ~np.uint64(FLAG_BITS)
    sound = (heads & np.uint64(FLAG_BITS)) == IS_MMAPPED
    sound &= (size % np.uint64(page) == 0) & (size > 0) & (before == 0)
    return list(zip(starts[sound].tolist(), size[sound].tolist()))


def _extent(
    target: Target, sizes: Sizes, start: int, size: int, high: int
) -> Optional[MmappedChunk]:
    """Return the chunk of the mapping at ``start``, or None when its size cannot be.

    ``_int_memalign`` writes a second header at the aligned place, with the distance as prev_size, and
    leaves the first one; ``mremap_chunk`` then keeps only the second up to date.
    """
    for chunk in _aligned_places(target, sizes, start, high):
        before, head = target.reader.words(chunk, 2, "mmapped chunk")
        end = chunk + (head & ~FLAG_BITS)
        whole = (end - start) % target.abi.page_size == 0 and chunk < end <= high
        if before == chunk - start and head & FLAG_BITS == IS_MMAPPED and whole:
            return MmappedChunk(start, chunk, end)
    return MmappedChunk(start, start, start + size) if start + size <= high else None


def _aligned_places(target: Target, sizes: Sizes, start: int, high: int) -> Iterator[int]:
    """Iterate over where memalign puts a header in the mapping at ``start``, for each power of two."""
    for bits in range(sizes.alignment.bit_length(), LARGEST_ALIGNMENT_BITS):
        user = target.abi.align_up(start + sizes.header, 1 << bits)
        for chunk in (user - sizes.header, user - sizes.header + (1 << bits)):
            if start < chunk and chunk + sizes.header <= high:
                yield chunk
