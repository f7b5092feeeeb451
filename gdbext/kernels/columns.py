"""Work on whole columns of a heap: chunk columns, rows of addresses, counts of values, regions of slabs, pages.

The definition that a native version must equal.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Optional, Sequence, Tuple

import numpy as np
import numpy.typing as npt

from gdbext.kernels.chains import Span
from gdbext.kernels.reference import FLAGS, PREV_INUSE, ChunkRules, Words, walk_chunks

U64 = npt.NDArray[np.uint64]
U32 = npt.NDArray[np.uint32]
U8 = npt.NDArray[np.uint8]
I64 = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]

SKIPPED = 255  # a category that is not counted


@dataclass(frozen=True)
class ChunkRun:
    """Chunks that follow each other.

    :param address: of the headers.
    :param size: chunk sizes in bytes, flag bits cleared.
    :param flags: the three flag bits.
    :param free: whether the following chunk says that this one is not in use.
    :param mismatched: rows of free chunks whose size does not stand again in front of the chunk that follows.
    :param end: position of the word at which the walk ended.
    """

    address: U64
    size: U64
    flags: U8
    free: Mask
    mismatched: I64
    end: int

    def __len__(self) -> int:
        return len(self.address)


def read_chunks(words: Words, origin: int, start: int, stop: int, rules: ChunkRules, limit: int) -> ChunkRun:
    """Walk chunks as :func:`gdbext.kernels.walk_chunks` does, and return their columns.

    :param origin: address of the first word.
    :param limit: chunks after which to return.
    """
    found, end = walk_chunks(words, start, stop, rules, limit)
    if not len(found):
        nothing = np.empty(0, np.uint64)
        none = np.empty(0, np.int64)
        return ChunkRun(nothing, nothing, np.empty(0, np.uint8), np.empty(0, np.bool_), none, end)
    heads = np.asarray(words)[found.astype(np.int64) + 1].astype(np.uint64)
    following = words[end + 1] if end + 1 < len(words) else PREV_INUSE
    free = (np.append(heads[1:], np.uint64(following)) & np.uint64(PREV_INUSE)) == 0
    size = heads & ~np.uint64(FLAGS)
    behind = (found + size // np.uint64(rules.word)).astype(np.int64)
    freed = np.flatnonzero(free & (behind < len(words)))
    again = np.asarray(words)[behind[freed]].astype(np.uint64)
    address = found * np.uint64(rules.word) + np.uint64(origin)
    flags = (heads & np.uint64(FLAGS)).astype(np.uint8)
    return ChunkRun(address, size, flags, free, freed[again != size[freed]], end)


def rows_of(address: U64, wanted: U64) -> I64:
    """Return for each wanted address its row in the sorted ``address``, or -1."""
    if not len(address):
        return np.full(len(wanted), -1, np.int64)
    rows = np.searchsorted(address, wanted)
    rows[rows == len(address)] = 0
    return np.where(address[rows] == wanted, rows, -1).astype(np.int64)


def count_values(values: U64, kinds: U8, category: U8, categories: int) -> Tuple[U64, npt.NDArray[np.int64]]:
    """Count how often each value occurs in each category.

    :param kinds: of each value.
    :param category: 256 items: the category of each kind, below ``categories``, or :data:`SKIPPED`.
    :return: the distinct values, sorted, and a row of counts for each.
    """
    of = category[kinds]
    values, of = values[of != SKIPPED], of[of != SKIPPED].astype(np.int64)
    distinct, place = np.unique(values, return_inverse=True)
    counts = np.bincount(place * categories + of, minlength=len(distinct) * categories)
    return distinct, counts.reshape(len(distinct), categories).astype(np.int64)


def slab_regions(start: U64, region: U64, count: U32, bitmaps: U64) -> Tuple[U64, Mask]:
    """List the regions of jemalloc slabs, slab by slab.

    :param start: address of each slab.
    :param region: bytes of one region.
    :param count: regions of each slab, at most 64 for each word of its bitmap.
    :param bitmaps: a row of words for each slab; a set bit is a free region (``bitmap.h``, flat bitmaps).
    :return: the address of each region, and whether it is free.
    """
    number = count.astype(np.int64)
    slab = np.repeat(np.arange(len(start)), number)
    at = np.arange(len(slab)) - np.repeat(np.cumsum(number) - number, number)
    address = start[slab] + region[slab] * at.astype(np.uint64)
    bits = bitmaps[slab, at >> 6] >> (at & 63).astype(np.uint64)
    return address, (bits & np.uint64(1)) != 0


def page_census(spans: Sequence[Span], starts: U64, ends: U64, page: int) -> Tuple[U64, U64]:
    """Count for each interval the whole pages that can be read, and those of them that hold only zeros.

    A page that lies in two spans is not counted.

    :param spans: the memory, sorted, disjoint.
    :param page: bytes.
    """
    whole, zero = np.zeros(len(starts), np.uint64), np.zeros(len(starts), np.uint64)
    for row, (start, end) in enumerate(zip(starts.tolist(), ends.tolist())):
        for base, buffer in spans:
            part = _whole_pages(base, buffer, start, end, page)
            if part is not None:
                whole[row] += np.uint64(len(part))
                zero[row] += np.uint64(len(part) - np.count_nonzero(part.any(axis=1)))
    return whole, zero


def _whole_pages(base: int, buffer: object, start: int, end: int, page: int) -> Optional[U8]:
    data = np.frombuffer(buffer, np.uint8)  # type: ignore[call-overload]
    low = -(-max(start, base) // page) * page
    high = min(end, base + len(data)) // page * page
    if low >= high:
        return None
    part: U8 = data[low - base : high - base].reshape(-1, page)
    return part
