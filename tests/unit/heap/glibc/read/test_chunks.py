"""Chunk columns that grow in place, on runs given by hand."""

from __future__ import annotations

import numpy as np

from gdbext.heap.glibc.read.chunks import GrowingChunks
from gdbext.heap.model import State
from gdbext.kernels import ChunkRun


def run_of(*addresses, free=()):
    address = np.array(addresses, np.uint64)
    flags, nothing = np.ones(len(address), np.uint8), np.empty(0, np.int64)
    return ChunkRun(address, np.full(len(address), 32, np.uint64), flags, np.isin(address, free), nothing, 0)


def test_segments_are_put_in_order_once_and_keep_what_was_marked():
    growing = GrowingChunks()
    growing.begin(0)
    growing.add(run_of(0x1000, 0x1020, free=[0x1020]))
    growing.begin(1)
    growing.add(run_of(0x500, 0x1010))  # found late, and overlapping
    chunks = growing.finish()
    assert chunks.address.tolist() == [0x500, 0x1000, 0x1010, 0x1020] and chunks.owner.tolist() == [1, 0, 1, 0]
    assert chunks.state.tolist() == [0, 0, 0, State.FREE]
    chunks.state[2] = State.TCACHE
    assert growing.finish().state.tolist() == [0, 0, State.TCACHE, State.FREE]


def test_the_last_chunk_is_the_segments_own():
    growing = GrowingChunks()
    growing.begin(0)
    growing.add(run_of(0x1000, 0x1020))
    assert growing.find_last() == (0x1020, 32) and growing.segment_bytes() == 64
    growing.begin(1)
    assert growing.find_last() is None and growing.segment_bytes() == 0
    growing.add(run_of(0x2000))
    growing.drop_last()
    assert growing.find_last() is None and growing.finish().address.tolist() == [0x1000, 0x1020]
