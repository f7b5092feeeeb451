"""The walker against laid-out heaps: the builder's own list of chunks is the truth."""

from __future__ import annotations

import random
from dataclasses import replace

import numpy as np
import pytest

from gdbext.abi import AARCH64, I386, X86_64, Abi
from gdbext.heap.glibc.heap import neutral
from gdbext.heap.glibc.read import mmapped
from gdbext.heap.glibc.read.build import read_heap
from gdbext.heap.glibc.sizes import Sizes
from gdbext.heap.model import State
from gdbext.memory import Region
from gdbext.memory.fake import FakeMemory
from gdbext.progress import SILENT
from tests.support.ptmalloc import RELEASES, HeapBuilder

BIG_ENDIAN = Abi(8, "big", "s390x")
MATRIX = [(X86_64, release) for release in RELEASES] + [
    (I386, "2.31"),
    (I386, "2.36"),
    (I386, "2.43"),
    (AARCH64, "2.36"),
    (AARCH64, "2.43"),
    (BIG_ENDIAN, "2.36"),
]
STATES = {
    "used": {"in_use"},
    "bin": {"small", "large"},
    "unsorted": {"unsorted"},
    "fastbin": {"fastbin"},
    "tcache": {"tcache"},
}


def fill(builder, arena, count, seed=1):
    """Append chunks of random sizes; no two free ones side by side, a used one last."""
    rnd, sizes, before = random.Random(seed), builder.sizes, "used"
    for _ in range(count):
        state = rnd.choice(["used", "used", "used", "bin", "unsorted"])
        state = "used" if before != "used" else state
        arena.chunk(sizes.minimum + sizes.alignment * rnd.randrange(1, 100), state)
        before = state
    arena.chunk(sizes.minimum)


def laid_out(abi=X86_64, release="2.36"):
    builder = HeapBuilder(abi, release)
    first = builder.add_thread()
    second = builder.add_thread(builder.add_arena())
    fill(builder, builder.main, 200)
    fill(builder, second.arena, 80, seed=2)
    second.arena.new_heap()
    fill(builder, second.arena, 40, seed=3)
    if "fastbinsY" in builder.malloc_state:
        for _ in range(5):
            builder.main.chunk(builder.sizes.minimum, "fastbin")
    for thread in (first, second):
        for _ in range(4 if thread.cached else 0):
            thread.cache(builder.sizes.minimum + builder.sizes.alignment)
        thread.arena.chunk(builder.sizes.minimum)
    builder.add_mmapped(0x21000)
    builder.add_mmapped(0x41000)
    return builder


def read(target):
    return read_heap(target, SILENT)


def states_of(heap):
    header = heap.sizes.header
    pairs = zip(heap.blocks.address.tolist(), heap.blocks.state.tolist())
    return {address - header: State(state).name.lower() for address, state in pairs}


@pytest.mark.parametrize("abi, release", MATRIX, ids=lambda value: getattr(value, "machine", value))
def test_every_chunk_has_its_state(abi, release):
    builder = laid_out(abi, release)
    heap = read(builder.target())
    states = states_of(heap)
    wrong = [
        (hex(address), state, states.get(address))
        for address, _, state, _ in builder.truth()["chunks"]
        if states.get(address) not in STATES[state]
    ]
    assert not wrong
    assert not [problem for problem in neutral(heap).problems if problem.corruption]


@pytest.mark.parametrize("abi, release", MATRIX, ids=lambda value: getattr(value, "machine", value))
def test_sums_reconcile(abi, release):
    builder = laid_out(abi, release)
    heap = read(builder.target())
    for view in heap.arenas:
        assert view.walked_bytes == view.head.system_mem
        assert view.skipped_bytes == 0
    found = [(chunk.start, chunk.end - chunk.start) for chunk in heap.mmapped.chunks]
    assert sorted(found) == sorted(builder.truth()["mmapped"])


@pytest.mark.parametrize("most, found, kinds", [(0x30000, 1, ["mmapped-count", "not-searched"]), (0x70000, 2, [])])
def test_where_nobody_knows_what_was_touched_no_more_than_a_bound_is_searched(most, found, kinds, monkeypatch):
    monkeypatch.setattr(mmapped, "_MOST_UNKNOWN", most)
    builder = laid_out()
    image = builder.build()
    image.regions.append(Region(0x10000000000, 0x10000000000 + (64 << 30)))  # nothing was ever written there
    heap = read(image.target(live=True))
    assert len(heap.mmapped.chunks) == found
    assert [problem.kind for problem in heap.mmapped.problems] == kinds
    assert not kinds or "of anonymous memory was not searched" in heap.mmapped.problems[-1].message


@pytest.mark.parametrize("lost, kinds", [(True, ["mmapped-count", "absent-memory"]), (False, [])])
def test_blocks_whose_mapping_is_not_in_the_core_are_missing(lost, kinds):
    builder = laid_out()
    image = builder.build()
    if lost:
        (start, size), *_ = builder.truth()["mmapped"]
        image.segments.pop(start)
        image.regions = [one for one in image.regions if one.start != start]
    else:
        start, size = 0x10000000000, 0x5000  # nothing of malloc's was there
    image.regions.append(Region(start, start + size, source="absent"))
    assert [problem.kind for problem in read(image.target()).mmapped.problems] == kinds


def test_what_another_allocator_has_is_no_mapped_chunk():
    builder = laid_out()
    (start, size), other = sorted(builder.truth()["mmapped"])
    heap = read_heap(builder.target(), SILENT, [(start, start + size)])
    assert [(chunk.start, chunk.end - chunk.start) for chunk in heap.mmapped.chunks] == [other]


@pytest.mark.parametrize("blocks, total, counts", [(0, 0, True), (0, 176, True), (0, 7, False), (1, 4096, False)])
def test_what_mremap_counts_too_much_is_left_when_no_chunk_is(blocks, total, counts):
    census = mmapped.Mmapped((), blocks, total)
    assert [one.kind for one in mmapped._check_census(census, 16)] == ([] if counts else ["mmapped-count"])


@pytest.mark.parametrize("more, locked, whole", [(4096, 0, False), (4096, 1, True), (-4096, 0, True), (0, 0, True)])
def test_an_arena_that_says_more_than_was_met_is_not_whole(more, locked, whole):
    heap = read(laid_out().target())
    head = heap.arenas[0].head
    heap.arenas[0].head = replace(head, system_mem=head.system_mem + more, mutex=locked)
    assert neutral(heap).complete == whole


@pytest.mark.parametrize("abi, release", MATRIX, ids=lambda value: getattr(value, "machine", value))
def test_charges_tile_the_spans(abi, release):
    heap = neutral(read(laid_out(abi, release).target()))
    charges = list(heap.charges)
    assert sum(charge.bytes for charge in charges) == sum(span.end - span.start for span in heap.spans)
    starts = np.concatenate([charge.starts for charge in charges])
    ends = np.concatenate([charge.ends for charge in charges])
    order = np.argsort(starts)
    assert np.all(ends[order][:-1] <= starts[order][1:])


def damage(heap):
    return [problem for problem in neutral(heap).problems if problem.corruption]


def test_overrun_into_the_next_size_field_is_named_and_walked_past():
    builder = HeapBuilder()
    before = builder.main.chunk(0x40)
    broken = builder.main.chunk(0x60)
    after = builder.main.chunk(0x80)
    builder.main.chunk(0x500)
    image = builder.build()
    image.poke(broken + 8, 0x4141414141414141)
    heap = read(image.target())
    (problem,) = damage(heap)
    assert (problem.kind, problem.address) == ("chunk-size", broken)
    for text in ("0x4141414141414141", f"{before:#x}, 64 bytes", f"resynchronised at {after:#x}"):
        assert text in problem.message
    view = heap.arenas[0]
    assert view.skipped_bytes == 0x60
    assert view.walked_bytes + 0x60 == view.head.system_mem
    assert states_of(heap)[after] == "in_use"


def test_two_damaged_chunks_are_two_problems():
    builder = HeapBuilder()
    chunks = [builder.main.chunk(0x40) for _ in range(200)]
    image = builder.build()
    for at in (50, 120):
        image.poke(chunks[at] + 8, 0xFFFF)
    heap = read(image.target())
    assert [problem.address for problem in damage(heap)] == [chunks[50], chunks[120]]
    assert heap.arenas[0].skipped_bytes == 0x80


def test_damage_next_to_a_free_chunk_resynchronises_at_the_listed_one():
    builder = HeapBuilder()
    broken = builder.main.chunk(0x40)
    free = builder.main.chunk(0x500, "bin")
    builder.main.chunk(0x40)
    image = builder.build()
    image.poke(broken + 8, 3)
    (problem,) = damage(read(image.target()))
    assert f"resynchronised at {free:#x}" in problem.message


def test_a_walk_around_damage_looks_at_each_listed_chunk_once(monkeypatch):
    seen, aligned = [], Sizes.aligned
    monkeypatch.setattr(Sizes, "aligned", lambda sizes, chunk: seen.append(chunk) or aligned(sizes, chunk))
    builder = HeapBuilder()
    arena = builder.add_thread(builder.add_arena()).arena
    free = [chunk for _ in range(50) for chunk in (builder.main.chunk(64, "bin"), builder.main.chunk(64))][::2]
    for _ in range(20):
        arena.chunk(64)
        arena.new_heap()
    arena.chunk(64)
    broken = builder.main.chunk(64)
    builder.main.chunk(0x500)
    image = builder.build()
    image.poke(broken + 8, 3)
    heap = read(image.target())
    assert [problem.address for problem in damage(heap)] == [broken]
    assert sorted(chunk for chunk in seen if chunk in free) == free


def test_wrong_prev_size():
    builder = HeapBuilder()
    free = builder.main.chunk(0x500, "bin")
    after = builder.main.chunk(0x40)
    image = builder.build()
    image.poke(after, 0x4F0)
    (problem,) = damage(read(image.target()))
    assert (problem.kind, problem.address) == ("prev-size", after)
    assert "0x4f0, expected 0x500" in problem.message and hex(free) in problem.message


def test_top_beyond_its_heap():
    builder = HeapBuilder()
    builder.main.chunk(0x40)
    image = builder.build()
    image.poke(builder.main.top + 8, 0xFFFFFFFFFFFFFFF1)
    (problem,) = damage(read(image.target()))
    assert (problem.kind, problem.address) == ("top-size", builder.main.top)


def bins_of(kind, count=3, size=0x500):
    builder = HeapBuilder()
    freed = []
    for _ in range(count):
        freed.append(builder.main.chunk(size, kind))
        builder.main.chunk(0x40)
    return builder, freed


def test_bad_bk():
    builder, freed = bins_of("unsorted")
    image = builder.build()
    image.poke(freed[1] + 24, freed[1])
    problems = damage(read(image.target()))
    assert {problem.kind for problem in problems} == {"bin-link"}
    assert any(problem.address == freed[1] for problem in problems)


def test_bad_fd_and_the_rest_is_found_from_behind():
    builder, freed = bins_of("unsorted")
    image = builder.build()
    image.poke(freed[0] + 16, 0xDEAD0)
    heap = read(image.target())
    (problem,) = damage(heap)
    assert problem.kind == "bin-link" and "0xdead0" in problem.message
    assert all(states_of(heap)[chunk] == "unsorted" for chunk in freed)


def test_cycle_in_a_bin_ends():
    builder, freed = bins_of("unsorted")
    image = builder.build()
    image.poke(freed[2] + 16, freed[0])
    problems = damage(read(image.target()))
    assert "bin-cycle" in {problem.kind for problem in problems}


def test_wrong_bin_for_the_size():
    builder, freed = bins_of("bin")
    other = builder.main.chunk(0x900, "bin")
    builder.main.chunk(0x40)
    image = builder.build()
    # the list of 0x900 is also hung with a chunk of 0x500
    image.poke(other + 16, freed[0])
    kinds = {problem.kind for problem in damage(read(image.target()))}
    assert "bin-size" in kinds


def test_double_free_in_the_tcache():
    builder = HeapBuilder()
    thread = builder.add_thread()
    chunks = [thread.cache(0x40) for _ in range(3)]
    builder.main.chunk(0x40)
    image = builder.build()
    slot = chunks[0] + 16
    image.poke(slot, slot >> 12 ^ (chunks[2] + 16))
    problems = damage(read(image.target()))
    assert any(p.kind == "double-free" and p.address == chunks[2] + 16 for p in problems)


def test_double_free_in_a_fastbin():
    builder = HeapBuilder(X86_64, "2.31")
    chunks = [builder.main.chunk(0x40, "fastbin") for _ in range(3)]
    builder.main.chunk(0x40)
    image = builder.build()
    image.poke(chunks[0] + 16, chunks[2])
    problems = damage(read(image.target()))
    assert any(p.kind == "double-free" and p.address == chunks[2] for p in problems)


def test_a_cached_chunk_that_is_also_in_a_bin():
    builder = HeapBuilder()
    thread = builder.add_thread()
    cached = thread.cache(0x40)
    builder.main.chunk(0x40)
    image = builder.build()
    header = builder.main.address + builder.malloc_state.offset("bins") - 16
    for place, value in ((header + 16, cached), (header + 24, cached)):
        image.poke(place, value)
    image.poke(cached + 16, header)
    image.poke(cached + 24, header)
    kinds = {problem.kind for problem in damage(read(image.target()))}
    assert kinds & {"double-free", "bin-in-use"}


def test_arena_in_flux_excuses_a_chunk_on_its_way():
    builder = HeapBuilder()
    builder.main.chunk(0x40)
    free = builder.main.chunk(0x500, "unsorted")
    builder.main.chunk(0x40)
    builder.main.mutex = 1
    image = builder.build()
    header = builder.main.address + builder.malloc_state.offset("bins") - 16
    image.poke(header + 16, header)
    image.poke(header + 24, header)
    heap = read(image.target())
    assert heap.arenas[0].head.in_flux
    assert not damage(heap)
    unlisted = [problem for problem in neutral(heap).problems if problem.kind == "free-unlisted"]
    assert [problem.address for problem in unlisted] == [free]


def test_flag_of_another_arena():
    builder = HeapBuilder()
    chunk = builder.main.chunk(0x40)
    builder.main.chunk(0x40)
    image = builder.build()
    image.poke(chunk + 8, 0x40 | 1 | 4)
    (problem,) = damage(read(image.target()))
    assert (problem.kind, problem.address) == ("chunk-flags", chunk)


def cut(target, start, end):
    """The same target with a range that the core does not hold."""
    segments, regions = [], []
    for region in target.memory.regions():
        for low, high in ((region.start, min(region.end, start)), (max(region.start, end), region.end)):
            if low < high and region.permissions != "---":
                segments.append((low, target.memory.read(low, high - low)))
                regions.append(Region(low, high, region.permissions, region.name, region.offset))
        low, high = max(region.start, start), min(region.end, end)
        if low < high:
            regions.append(Region(low, high, region.permissions, region.name, region.offset, "absent"))
    memory = FakeMemory(segments, regions)
    return type(target)(
        memory, target.abi, target.identity, target.modules, target.threads, target.symbols
    )


def test_absent_memory_is_said_and_not_taken_for_damage():
    builder = HeapBuilder()
    chunks = [builder.main.chunk(0x40) for _ in range(1000)]
    target = builder.target()
    start = builder.main.segments[0].start + 0x4000
    heap = read(cut(target, start, start + 0x2000))
    assert not damage(heap)
    problems = neutral(heap).problems
    assert [problem.address for problem in problems if problem.kind == "absent-memory"] == [start]
    states = states_of(heap)
    outside = [c for c in chunks if c + 0x40 <= start or c >= start + 0x2040]
    assert sum(chunk in states for chunk in outside) >= len(outside) - 1
    view = heap.arenas[0]
    assert view.walked_bytes + view.skipped_bytes == view.head.system_mem


def test_interrupt_gives_what_there_is():
    class Stop:
        def at(self, doing, done, total):
            if doing == "segments" and done == 1:
                raise KeyboardInterrupt

    builder = laid_out()
    heap = read_heap(builder.target(), Stop())
    assert not heap.complete
    first = sorted([*(chunk.address for chunk in builder.main.chunks), builder.main.top])
    assert heap.blocks.address.tolist() == [chunk + builder.sizes.header for chunk in first]
    assert "interrupted" in {problem.kind for problem in neutral(heap).problems}


@pytest.mark.parametrize("step", ["mark_states", "check_flags"])
def test_an_interrupt_while_chunks_are_marked_keeps_them(step, monkeypatch):
    def stop(*arguments):
        raise KeyboardInterrupt

    whole = read(laid_out().target())
    monkeypatch.setattr(f"gdbext.heap.glibc.read.build.{step}", stop)
    heap = read(laid_out().target())
    assert not heap.complete and [problem.kind for problem in heap.problems] == ["interrupted"]
    assert [column.tolist() for column in heap.blocks.columns[:2]] == [one.tolist() for one in whole.blocks.columns[:2]]
    assert (states_of(heap) == states_of(whole)) == (step == "check_flags")


def test_an_interrupt_while_damage_is_walked_again_makes_no_damage():
    class Stop:
        walks = 0

        def at(self, doing, done, total):
            self.walks += doing == "segments" and done == 0
            if self.walks == 2 and done == 1:
                raise KeyboardInterrupt

    builder = laid_out()
    image = builder.build()
    damaged = builder.main.chunks[20].address
    image.poke(damaged + builder.sizes.word, 3)
    heap = read_heap(image.target(), Stop())
    assert not heap.complete
    kinds = {problem.kind for problem in neutral(heap).problems}
    assert "chunk-size" in kinds and not kinds & {"list-chunk", "bin-in-use", "free-unlisted"}


def test_a_wrecked_heap_is_told_in_bounds(monkeypatch):
    monkeypatch.setattr("gdbext.heap.glibc.read.mark.MOST_PROBLEMS", 10)
    builder = HeapBuilder()
    for _ in range(60):
        builder.main.chunk(0x500, "bin")
        builder.main.chunk(0x40)
    image = builder.build()
    header = builder.main.address + builder.malloc_state.offset("bins") - 16
    index = builder.sizes.bin_index(0x500)
    for end in (16, 24):  # the bin is cut off: nothing is on it any more
        image.poke(header + (index - 1) * 16 + end, header + (index - 1) * 16)
    problems = [problem for problem in damage(read(image.target())) if problem.kind == "free-unlisted"]
    assert len(problems) == 11
    assert "50 more chunks" in problems[-1].message and problems[-1].address is None
