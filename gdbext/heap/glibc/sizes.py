"""ptmalloc's arithmetic: chunk sizes, bin indices, tcache classes.

Mirrors the macros of malloc/malloc.c (glibc 2.23 to 2.44): ``MINSIZE``, ``bin_index``,
``fastbin_index``, ``csize2tidx`` and, since glibc commit cbfd798810 ("malloc: add tcache
support for large chunk caching") in 2.42, ``large_csize2tidx``.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from gdbext.abi import Abi
from gdbext.heap.model import U64
from gdbext.kernels import ChunkRules

PREV_INUSE = 1
IS_MMAPPED = 2
NON_MAIN_ARENA = 4
FLAG_BITS = 7

NBINS = 128
UNSORTED_BIN = 1
SMALL_BINS = 64

# Steps of 512 B, 4 KiB, 32 KiB, 256 KiB: (shift, highest quotient, base). Above them bin 126.
_LARGE_STEPS = ((9, 20, 91), (12, 10, 110), (15, 4, 119), (18, 2, 124))


@dataclass(frozen=True)
class Sizes:
    """Sizes and classes for one word size and ``MALLOC_ALIGNMENT``. All in bytes of chunk size."""

    word: int
    alignment: int

    @property
    def header(self) -> int:
        """``CHUNK_HDR_SZ``: from a chunk's address to its user memory."""
        return 2 * self.word

    @property
    def minimum(self) -> int:
        """``MINSIZE``."""
        return (4 * self.word + self.alignment - 1) & -self.alignment

    @property
    def rules(self) -> ChunkRules:
        """The same for the kernels."""
        return ChunkRules(self.word, self.minimum, self.alignment)

    def valid(self, size: int) -> bool:
        """Whether ``size`` can be a chunk's, its place aside."""
        return size >= self.minimum and size % self.alignment == 0

    def align_chunk(self, address: int) -> int:
        """Return the first address from ``address`` on where a chunk may begin."""
        return address + -(address + self.header) % self.alignment

    def aligned(self, chunk: int) -> bool:
        """Whether a chunk may begin at ``chunk``."""
        return (chunk + self.header) % self.alignment == 0

    @property
    def least_large(self) -> int:
        """``MIN_LARGE_SIZE``: the first size of the large bins."""
        return (SMALL_BINS - self._small_bin_correction) * self.alignment

    @property
    def _small_bin_correction(self) -> int:
        return int(self.alignment > self.header)

    def bin_index(self, size: int) -> int:
        """``bin_index``: 2 to 63 small, 64 to 126 large."""
        correction = self._small_bin_correction
        if size < self.least_large:
            return size // self.alignment + correction
        limit, base = ((48, 48) if self.word == 8 else (45, 49) if correction else (38, 56))
        if size >> 6 <= limit:
            return base + (size >> 6)
        for shift, highest, step_base in _LARGE_STEPS:
            if size >> shift <= highest:
                return step_base + (size >> shift)
        return 126

    def bin_indices(self, sizes: U64) -> "np.typing.NDArray[np.int64]":
        """:meth:`bin_index` of many sizes at once."""
        distinct, place = np.unique(sizes, return_inverse=True)
        of_distinct = [self.bin_index(size) for size in distinct.tolist()]
        return np.array(of_distinct, np.int64)[place]

    def bin_kind(self, index: int) -> str:
        """Return ``unsorted``, ``small`` or ``large``."""
        if index == UNSORTED_BIN:
            return "unsorted"
        return "small" if index < SMALL_BINS else "large"

    def fastbin_index(self, size: int) -> int:
        """``fastbin_index``."""
        return (size >> (4 if self.word == 8 else 3)) - 2

    def fastbin_indices(self, sizes: U64) -> U64:
        """``fastbin_index`` of many sizes at once."""
        indices: U64 = (sizes >> np.uint64(4 if self.word == 8 else 3)) - np.uint64(2)
        return indices

    def tcache_index(self, size: int, small_bins: int = 64) -> int:
        """Return the tcache class of a chunk size.

        :param small_bins: classes of one size each; above them one for each power of two (2.42).
        """
        index = (size - self.minimum) // self.alignment
        if index < small_bins:
            return index
        largest_small = (small_bins - 1) * self.alignment + self.minimum
        return small_bins + size.bit_length() - largest_small.bit_length()

    def tcache_size(self, index: int, small_bins: int = 64) -> int:
        """Return the smallest chunk size of a tcache class."""
        if index < small_bins:
            return index * self.alignment + self.minimum
        largest_small = (small_bins - 1) * self.alignment + self.minimum
        return max(1 << (largest_small.bit_length() + index - small_bins - 1), largest_small + self.alignment)


def sizes_for(abi: Abi, alignment: int) -> Sizes:
    """Return the arithmetic of one target."""
    return Sizes(abi.pointer_size, alignment)
