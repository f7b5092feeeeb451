"""glibc's reports over laid-out heaps."""

from __future__ import annotations

import pytest

from gdbext.abi import X86_64
from gdbext.errors import UsageError
from gdbext.heap.glibc.heap import neutral
from gdbext.heap.glibc.read.build import read_heap
from gdbext.heap.glibc.report import reports, trim
from gdbext.heap.model import State
from gdbext.progress import SILENT
from tests.support.ptmalloc import HeapBuilder


def read(builder):
    return read_heap(builder.target(), SILENT)


@pytest.fixture
def small():
    """Two arenas, one of each kind of chunk; sizes are chunk sizes."""
    builder = HeapBuilder(X86_64, "2.36")
    first = builder.add_thread()
    second = builder.add_thread(builder.add_arena())
    builder.main.chunk(0x100)
    builder.main.chunk(0x5000, "unsorted")
    builder.main.chunk(0x40)
    builder.main.chunk(0x500, "bin")
    builder.main.chunk(0x40, "fastbin")
    builder.main.chunk(0x60)
    first.cache(0x30)
    builder.main.chunk(0x20)
    second.cache(0x50)
    second.arena.chunk(0x2000)
    builder.add_mmapped(0x21000)
    return builder


def test_arenas(small):
    data = reports.arenas(read(small)).data
    main, thread = data.arenas
    assert (main.kind, thread.kind) == ("main", "thread")
    tcache = 0x290 - 8  # the structure of each thread is a block in use
    assert main.in_use_bytes == tcache + (0x100 - 8) + (0x40 - 8) + (0x60 - 8) + (0x20 - 8)
    assert main.tcache_bytes == 0x30 - 8
    assert main.bins_bytes == (0x5000 - 8) + (0x500 - 8) + (0x40 - 8)
    assert thread.tcache_bytes == 0x50 - 8
    assert [row.walked_bytes == row.system_mem for row in data.arenas] == [True, True]
    assert data.system_mem == main.system_mem + thread.system_mem
    assert (data.mmapped.blocks, data.mmapped.bytes) == (1, 0x21000)
    assert [thread.number for thread in main.threads] == [1]


def test_totals_beyond_32_bits():
    builder = HeapBuilder()
    builder.main.chunk(0x40)
    builder.main.system_mem = 5 << 30  # what malloc_stats would print as 1 GiB
    data = reports.arenas(read(builder)).data
    assert data.system_mem == 5 << 30


def test_an_arena_without_threads_is_stranded():
    builder = HeapBuilder()
    builder.add_thread()
    arena = builder.add_arena()
    arena.chunk(0x40)
    states = [row.state for row in reports.arenas(read(builder)).data.arenas]
    assert states == ["", "stranded"]


def test_an_arena_in_flux_is_labelled():
    builder = HeapBuilder()
    builder.main.chunk(0x40)
    builder.main.mutex = 1
    (row,) = reports.arenas(read(builder)).data.arenas
    assert row.in_flux and row.state == "in flux"


def test_chunks_by_state_size_arena_and_range(small):
    heap = read(small)
    every = list(reports.chunks(heap, reports.ChunkFilter()).data.chunks)
    assert [row.address for row in every] == sorted(row.address for row in every)

    def chosen(**wanted):
        return list(reports.chunks(heap, reports.ChunkFilter(**wanted)).data.chunks)

    assert {row.state for row in chosen(states=(State.UNSORTED, State.LARGE))} == {"unsorted", "large"}
    assert [row.size for row in chosen(sizes=(0x5000, 0x5000))] == [0x5000]
    thread = small.arenas[1].address
    assert {row.arena for row in chosen(arena=thread)} == {thread}
    low, high = every[2].address, every[5].address
    assert [row.address for row in chosen(span=(low, high))] == [row.address for row in every[2:5]]
    both = chosen(states=(State.IN_USE,), sizes=(0x40, None))
    assert both == [row for row in chosen(states=(State.IN_USE,)) if row.size >= 0x40]


def test_a_cached_chunk_says_whose_it_is(small):
    rows = reports.chunks(read(small), reports.ChunkFilter(states=(State.TCACHE,))).data.chunks
    assert sorted(row.owner for row in rows) == ["thread 1", "thread 2"]


def test_no_such_arena(small):
    with pytest.raises(UsageError, match="no arena at 0x1234; there are 2: 0x"):
        reports.chunks(read(small), reports.ChunkFilter(arena=0x1234))


def test_bins(small):
    data = reports.bins(read(small)).data
    found = {(row.kind, row.count, row.bytes) for row in data.bins}
    assert found == {("unsorted", 1, 0x4FF8), ("large", 1, 0x4F8), ("fastbin", 1, 0x38)}
    assert data.broken == 0 and all(row.whole for row in data.bins)


def test_tcache(small):
    data = reports.tcache(read(small)).data
    assert (data.blocks, data.bytes) == (2, 0x28 + 0x48)
    assert [(row.number, row.count) for row in data.threads] == [(1, 1), (2, 1)]
    assert [(row.number, row.size, row.counted) for row in data.classes] == [(1, 0x30, 1), (2, 0x50, 1)]
    assert reports.tcache(read(small), 2).data.blocks == 1


def test_large_classes_of_a_cache_that_counts_down():
    builder = HeapBuilder(X86_64, "2.42")
    thread = builder.add_thread()
    thread.cache(0x800)
    builder.main.chunk(0x40)
    (row,) = reports.tcache(read(builder)).data.classes
    assert (row.index, row.count, row.counted) == (65, 1, 1)


def test_mmapped(small):
    (row,) = reports.mmapped(read(small)).data.chunks
    assert (row.mapped, row.size) == (0x21000, 0x21000 - 16)


def test_check_of_a_sound_heap_is_empty(small):
    report = reports.check(read(small))
    assert report.data.damage == () and not report.findings


def test_heaps():
    builder = HeapBuilder()
    arena = builder.add_arena()
    arena.chunk(0x40)
    arena.new_heap()
    arena.chunk(0x80)
    data = reports.heaps(read(builder)).data
    assert [row.kind for row in data.heaps] == ["brk", "heap", "heap"]
    assert data.heap_max == 64 << 20


def test_trim_counts_whole_pages_of_merged_runs():
    builder = HeapBuilder()
    builder.main.chunk(0x100)
    free = builder.main.chunk(0x5000, "unsorted")
    builder.main.chunk(0x40)
    heap = read(builder)
    (row,) = trim.trim_rows(heap)
    low = (free + 48 + 4095) & -4096
    assert row.in_bins == ((free + 0x5000) & -4096) - low


@pytest.mark.parametrize("written", [(), (0,), (4095,), (0, 4096)])
def test_trim_tells_which_pages_hold_nothing(written):
    builder = HeapBuilder()
    free = builder.main.chunk(0x5000, "unsorted")
    builder.main.chunk(0x40)
    low = (free + 48 + 4095) & -4096
    image = builder.build()
    for at in range(0x4000):
        image.poke(low + at, int(at in written), 1)
    (row,) = trim.trim_rows(read_heap(image.target(), SILENT))
    assert row.zero_bytes == row.in_bins - 4096 * len({at // 4096 for at in written})


def test_the_pin_of_a_heap_is_its_highest_live_chunk():
    builder = HeapBuilder()
    builder.main.chunk(0x100)
    builder.main.chunk(0x5000, "unsorted")
    last = builder.main.chunk(0x40)
    (pin,) = trim.find_pins(read(builder))
    assert (pin.address, pin.size, pin.free_below) == (last + 16, 0x38, 0x5000 - 8)


def proliferated(arenas, used, size=0x40000, count=1):
    builder = HeapBuilder()
    builder.main.chunk(0x40)
    for _ in range(arenas):
        arena = builder.add_arena()
        arena.chunk(0x40)
        for _ in range(count):
            arena.chunk(size, "used" if used else "unsorted")
            arena.chunk(0x40)
    return neutral(read(builder))


def test_many_empty_arenas_are_a_finding():
    (finding,) = proliferated(10, used=False).findings
    assert finding.kind == "arena-proliferation"
    assert finding.bytes >= 10 * 0x40000
    assert "MALLOC_ARENA_MAX" in finding.remedy
    assert "malloc_trim(0) returns 2." in finding.remedy and "MiB of free pages in these arenas now" in finding.remedy
    assert finding.details["arenas"] == 10 and finding.details["largest"][0]["address"].startswith("0x")


def test_trimming_is_not_advised_for_free_pieces_of_pages():
    (finding,) = proliferated(10, used=False, size=0x800, count=100).findings
    assert "malloc_trim(0) would return only 0 B of them" in finding.remedy


@pytest.mark.parametrize("arenas, used", [(10, True), (4, False)])
def test_used_or_few_arenas_are_none(arenas, used):
    assert proliferated(arenas, used).findings == ()
