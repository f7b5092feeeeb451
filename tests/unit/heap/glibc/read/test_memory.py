"""What reading a heap takes: at most 24 bytes a block and a byte for 16 bytes of heap, at its peak."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pytest

from gdbext.analysis.blocks.summary import summary
from gdbext.heap.glibc.heap import find_heaps
from gdbext.heap.glibc.read import walk
from gdbext.heap.glibc.read.chunks import insert_few
from gdbext.kernels import IN_USE, columns
from gdbext.progress import SILENT, relieve_with
from tests.support.ptmalloc import HeapBuilder

CHUNKS = 1_000_000  # what is held for a part of them at a time does not count any more


def crowded(arenas):
    """Return a target whose arenas share many chunks, where each chunk begins, and how many bytes there are of them."""
    builder, rng = HeapBuilder(), np.random.default_rng(1)
    builder.add_thread()
    every = [builder.main, *(builder.add_thread(builder.add_arena()).arena for _ in range(arenas - 1))]
    sizes = [rng.integers(2, 9, CHUNKS // arenas) * 16 for _ in every]
    starts = [arena.chunk(int(size.sum())) for arena, size in zip(every, sizes)]
    image, places = builder.build(), []
    for arena, start, size in zip(every, starts, sizes):
        (at,) = [low for low, held in image.segments.items() if low <= start < low + len(held)]
        words = np.frombuffer(image.segments[at], np.uint64)[(start - at) // 8 :]
        before = np.cumsum(size) - size
        words[before // 8 + 1] = size | (1 if arena is builder.main else 5)
        places.append(start + 16 + before)
    return image.target(), np.sort(np.concatenate(places)), sum(int(size.sum()) for size in sizes)


def peak_of(work):
    """Return what some work answers, and the most bytes that it held beyond what was there."""
    tracemalloc.start()
    try:
        answer = work()
        return answer, tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize(("kernels", "arenas"), [("reference", 1), ("native", 1), ("native", 64)])
def test_the_peak_is_hardly_more_than_the_columns(kernels, arenas, monkeypatch):
    if kernels == "native" and IN_USE != "native":
        pytest.skip("no native kernels")
    if kernels == "reference":
        monkeypatch.setattr(walk, "read_chunks", columns.read_chunks)
    target, places, scanned = crowded(arenas)
    (heap,), peak = peak_of(lambda: find_heaps(target, SILENT))
    rows = np.searchsorted(heap.blocks.address, places)
    assert np.array_equal(heap.blocks.address[rows], places) and not heap.problems
    assert peak <= 24 * len(heap.blocks) + scanned // 16
    report, more = peak_of(lambda: summary([heap]))
    assert report.data.totals.used_blocks >= CHUNKS
    kept = sum(column.nbytes for column in heap.blocks.columns)
    assert kept + more <= 24 * len(heap.blocks) + scanned // 16


class Relieved:
    """Is asked to let go of what it holds, and holds nothing."""

    asked = 0

    def relieve(self):
        self.asked += 1


def test_where_memory_is_short_steps_are_small_and_find_the_same(monkeypatch):
    monkeypatch.setitem(globals(), "CHUNKS", 20_000)
    target, places, _ = crowded(1)
    (usual,) = find_heaps(target, SILENT)
    tight = Relieved()
    relieve_with(tight)
    (heap,) = find_heaps(target, SILENT)
    assert all(np.array_equal(*both) for both in zip(heap.blocks.columns, usual.blocks.columns))
    assert tight.asked > 15 and np.isin(places, heap.blocks.address).all()


@pytest.mark.parametrize("places", [[], [0], [5], [0, 0, 2, 5, 5], [1, 3]])
def test_a_few_are_inserted(places):
    column, few = np.arange(5, dtype=np.uint64), np.arange(100, 100 + len(places), dtype=np.uint64)
    expected = np.insert(column, places, few)
    column = np.append(column, few)  # room
    insert_few(column, few, places)
    assert column.tolist() == expected.tolist()
