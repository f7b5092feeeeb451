"""ptmalloc's arithmetic, against figures worked out by hand from malloc.c's macros."""

from __future__ import annotations

import numpy as np
import pytest

from gdbext.heap.glibc.sizes import Sizes

WIDE, NARROW, OLD_NARROW = Sizes(8, 16), Sizes(4, 16), Sizes(4, 8)


@pytest.mark.parametrize("sizes, minimum", [(WIDE, 32), (NARROW, 16), (OLD_NARROW, 16)])
def test_minsize(sizes, minimum):
    assert sizes.minimum == minimum


# 64-bit: small bins up to 1008, then steps of 64, 512, 4096, 32768, 262144.
WIDE_BINS = {
    0x20: 2, 0x30: 3, 0x3F0: 63, 0x400: 64, 0x430: 64, 0x440: 65, 0xC00: 96, 0xC30: 96, 0xC40: 97,
    0xE00: 98, 0x2800: 111, 0x2A00: 112, 0x3000: 113, 0xA000: 120, 0x10000: 121, 0x28000: 124,
    0x40000: 125, 0x80000: 126, 0x10000000: 126,
}  # fmt: skip


@pytest.mark.parametrize("size, index", WIDE_BINS.items())
def test_bin_index(size, index):
    assert WIDE.bin_index(size) == index


@pytest.mark.parametrize("size, index", [(16, 2), (32, 3), (0x3E0, 63), (0x3F0, 64), (0x400, 65)])
def test_bin_index_of_32_bits_with_alignment_16(size, index):
    assert NARROW.bin_index(size) == index


@pytest.mark.parametrize("size, index", [(16, 2), (24, 3), (504, 63), (512, 64), (576, 65)])
def test_bin_index_of_32_bits_with_alignment_8(size, index):
    assert OLD_NARROW.bin_index(size) == index


@pytest.mark.parametrize("index, kind", [(1, "unsorted"), (2, "small"), (63, "small"), (64, "large")])
def test_bin_kind(index, kind):
    assert WIDE.bin_kind(index) == kind


@pytest.mark.parametrize("sizes, size, index", [(WIDE, 32, 0), (WIDE, 128, 6), (NARROW, 16, 0), (NARROW, 64, 6)])
def test_fastbin_index(sizes, size, index):
    assert sizes.fastbin_index(size) == index
    assert sizes.fastbin_indices(np.array([size], np.uint64)).tolist() == [index]


# glibc 2.42's large classes: one for each power of two above the 64 of one size each.
@pytest.mark.parametrize(
    "size, index", [(32, 0), (48, 1), (1040, 63), (1056, 64), (2032, 64), (2048, 65), (4096, 66), (1 << 21, 75)]
)
def test_tcache_index(size, index):
    assert WIDE.tcache_index(size) == index
    assert WIDE.tcache_size(index) <= size
    assert WIDE.tcache_index(WIDE.tcache_size(index)) == index


def test_chunks_begin_where_user_memory_is_aligned():
    assert WIDE.align_chunk(0x1001) == 0x1010
    assert NARROW.align_chunk(0x1000) == 0x1008
    assert NARROW.aligned(0x1008) and not NARROW.aligned(0x1000)


@pytest.mark.parametrize("size, valid", [(0, False), (16, False), (32, True), (40, False), (48, True)])
def test_valid(size, valid):
    assert WIDE.valid(size) is valid
