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
import numpy.typing as npt

from gdbext.heap.glibc.find.location import Location
from gdbext.heap.glibc.read.segments import Interval
from gdbext.heap.glibc.sizes import FLAG_BITS, IS_MMAPPED, Sizes
from gdbext.heap.model import U64
from gdbext.memory import knows_written
from gdbext.memory.bulk import for_each_written_view
from gdbext.report import Problem
from gdbext.target import Target
from gdbext.wording import size_text

HUGE_PAGES = 1  # MMAP_HP

_PAGES_AT_ONCE = 1 << 14
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
    old, new = (
        Mmapped(tuple(chunks), blocks, total, trailer=trailer)
        for trailer, chunks in _find_chunks(target, sizes, intervals).items()
    )
    census = new if new.bytes > old.bytes else old
    problems = [*_check_census(census, sizes.header), *_check_header(target, sizes, census, intervals)]
    if problems:
        problems += _not_in_core(target)
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


def _not_in_core(target: Target) -> Iterator[Problem]:
    """Say how much anonymous memory is not in the core: chunks that are counted and were not found may be there."""
    regions = (one for one in target.memory.regions() if one.source == "absent" and one.writable and not one.name)
    absent = sum(region.size for region in regions)
    if absent:
        what = f"{size_text(absent)} of anonymous memory is not in the core"
        yield Problem("absent-memory", None, f"{what}: blocks with a mapping of their own may be there")


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


def _check_census(census: Mmapped, header: int) -> Iterator[Problem]:
    """Compare with what ``mp_`` counts. Where chunks have a trailer, each mremap counts one too many.

    Whether they have one is not known where none is left; then nothing is missing either.
    """
    blocks, total = census.expected_blocks, census.expected_bytes
    if blocks is None or total is None:
        return
    excess = total - census.bytes
    trailer = census.trailer if census.chunks else header
    drifted = bool(trailer) and excess >= 0 and excess % trailer == 0
    if len(census.chunks) != blocks or (excess and not drifted):
        message = (
            f"found {len(census.chunks)} mmapped chunks of {census.bytes} bytes,"
            f" mp_ counts {blocks} of {total} bytes"
        )
        yield Problem("mmapped-count", None, message)


def _check_header(
    target: Target, sizes: Sizes, census: Mmapped, intervals: Sequence[Interval]
) -> Iterator[Problem]:
    """Where one chunk is missing, and one mapping has just its bytes: what is wrong with the header there.

    One of the header's words must be as it should be, and most bytes of the size where that is a prev_size of 0: some
    other mapping of that many bytes, which may begin with zeros, is not taken for it.
    """
    blocks, total = census.expected_blocks, census.expected_bytes
    if blocks is None or total is None or blocks != len(census.chunks) + 1:
        return
    missing = total - census.bytes
    taken = [(chunk.start, chunk.end) for chunk in census.chunks]
    starts = [low for interval in intervals for low, high in _between(taken, *interval) if high - low == missing]
    lead = -sizes.header % sizes.alignment
    if len(starts) != 1 or target.lacks(starts[0] + lead, sizes.header):
        return
    found = target.reader.words(starts[0] + lead, 2, "mmapped chunk")
    expected = [missing - lead - trailer | IS_MMAPPED for trailer in (0, sizes.header)]
    resembles = lead or any(_resembles(found[1], one) for one in expected)
    if found[1] in expected or (found[0] & ~HUGE_PAGES == lead and resembles):
        message = (
            f"prev_size is {found[0]:#x} and size {found[1]:#x} where the mapping begins that has the bytes of the"
            f" missing chunk, expected {lead:#x} and {expected[bool(census.trailer)]:#x}"
        )
        yield Problem("mmapped-header", starts[0] + lead, message, corruption=True)


def _resembles(size: int, expected: int) -> bool:
    changed = (size ^ expected).to_bytes(8, "little")
    return size != 0 and changed.count(0) >= 6


def _between(taken: Sequence[Interval], low: int, high: int) -> Iterator[Interval]:
    """Iterate over what sorted, disjoint intervals leave of another."""
    at = low
    for start, end in taken[bisect_left(taken, (low, 0)) : bisect_left(taken, (high, 0))]:
        if at < start:
            yield at, start
        at = end
    if at < high:
        yield at, high


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


def _find_chunks(target: Target, sizes: Sizes, intervals: Sequence[Interval]) -> Dict[int, Iterator[MmappedChunk]]:
    """Return the chunks by both layouts: those that reach to their mapping's end, and those with a trailer."""
    users = list(_user_offsets(sizes, target.abi.page_size))
    found: Dict[int, Dict[int, Tuple[int, MmappedChunk]]] = {0: {}, sizes.header: {}}
    for pages in _for_each_pages(target, sizes, intervals, users):
        for number, user in enumerate(users):
            for trailer, known in found.items():
                for one in _headers(pages, number, sizes, target.abi.page_size, (user, trailer)):
                    if user >= known.get(one.start, (0,))[0]:
                        known[one.start] = user, one
    return {trailer: _disjoint([known[start][1] for start in sorted(known)]) for trailer, known in found.items()}


@dataclass(frozen=True)
class _Pages:
    """Pages of many intervals.

    :param address: of each.
    :param low: where its interval begins; ``high``, where it ends.
    :param leads: a row for each page: the prev_size of a header for each place where user memory may begin.
    :param heads: the size fields behind them.
    """

    address: U64
    low: U64
    high: U64
    leads: U64
    heads: U64


def _for_each_pages(
    target: Target, sizes: Sizes, intervals: Sequence[Interval], users: Sequence[int]
) -> Iterator[_Pages]:
    """Iterate over all that may have been written, many pages together: there may be an interval for each chunk."""
    abi, page = target.abi, target.abi.page_size
    lead = np.array([(user - sizes.header) // sizes.word for user in users])
    columns = np.concatenate((lead, lead + 1))
    parts: List[Tuple[int, Interval, "npt.NDArray[np.generic]"]] = []
    count = 0
    for start, end in intervals:
        low, high = start + -start % page, end - end % page
        for place, data in for_each_written_view(target.memory, low, high, page) if low < high else ():
            words = np.frombuffer(data, abi.word_dtype).reshape(-1, page // abi.pointer_size)
            parts.append((place, (low, high), words[:, columns]))
            count += len(words)
            if count >= _PAGES_AT_ONCE:
                yield _joined(parts, page, len(users))
                parts, count = [], 0
    if parts:
        yield _joined(parts, page, len(users))


def _joined(parts: Sequence[Tuple[int, Interval, "npt.NDArray[np.generic]"]], page: int, users: int) -> _Pages:
    counts = np.array([len(words) for _, _, words in parts])
    first = np.repeat(np.array([place for place, _, _ in parts], np.uint64), counts)
    steps = np.arange(len(first)) - np.repeat(np.cumsum(counts) - counts, counts)
    low, high = (np.repeat(np.array([bounds[at] for _, bounds, _ in parts], np.uint64), counts) for at in (0, 1))
    words = np.concatenate([words for _, _, words in parts]).astype(np.uint64, copy=False)
    return _Pages(first + steps.astype(np.uint64) * np.uint64(page), low, high, words[:, :users], words[:, users:])


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
    pages: _Pages, number: int, sizes: Sizes, page: int, place: Tuple[int, int]
) -> Iterator[MmappedChunk]:
    """Iterate over the mmapped chunks whose user memory begins at one offset of a page.

    :param number: of that offset among all.
    :param page: bytes.
    :param place: that offset, and the bytes between a chunk and its mapping's end.
    """
    user, trailer = place
    lead, heads = pages.leads[:, number] & ~np.uint64(HUGE_PAGES), pages.heads[:, number]
    chunk = pages.address + np.uint64(user - sizes.header)
    size = (heads & ~np.uint64(FLAG_BITS)) + np.uint64(trailer)
    whole_pages = (lead + np.uint64(sizes.header)) % np.uint64(page) == 0
    sound = whole_pages if user == page else lead == user - sizes.header
    sound &= ((heads & np.uint64(FLAG_BITS)) == IS_MMAPPED) & (size > trailer)
    sound &= (lead <= chunk - pages.low) & (size <= pages.high - chunk)
    sound &= (lead + size) % np.uint64(page) == 0
    for row in np.flatnonzero(sound).tolist():
        header = int(chunk[row])
        end = header + int(size[row])
        yield MmappedChunk(header - int(lead[row]), header, end, _usable_end(end, trailer, sizes))


def _usable_end(end: int, trailer: int, sizes: Sizes) -> int:
    """Where a chunk leaves room behind it, its last word there may be used as in any other chunk."""
    return end - trailer + sizes.word if trailer else end
