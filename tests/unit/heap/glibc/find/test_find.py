"""Finding arenas: laid-out heaps are the truth, by name and by structure alone."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gdbext.abi import AARCH64, I386, X86_64, Abi
from gdbext.debuginfo import DebugStruct, NoDebugInfo, Symbol
from gdbext.heap.glibc.find import structural
from gdbext.heap.glibc.find.globals import find_arenas
from gdbext.heap.glibc.find.invariants import Probe
from gdbext.heap.glibc.find.structural import ThreadArenas, fit_arena
from gdbext.layout import StructLayout
from gdbext.memory import Region
from gdbext.memory.fake import FakeMemory
from gdbext.process import Module
from gdbext.progress import SILENT
from gdbext.target import Target
from tests.support.ptmalloc import LIBC, RELEASES, HeapBuilder

S390X = Abi(8, "big", "s390x")
ARM = Abi(4, "little", "40")
LIBC_ID = "1b" * 20


def laid_out(abi=X86_64, release="2.36", arenas=3, **options):
    builder = HeapBuilder(abi, release, **options)
    builder.add_thread()
    builder.main.chunk(0x40)
    builder.main.chunk(0x500, "bin")
    builder.main.chunk(0x20)
    for _ in range(arenas):
        thread = builder.add_thread(builder.add_arena())
        thread.arena.chunk(0x60, "unsorted")
        thread.arena.chunk(0x40)
        thread.arena.new_heap()
        thread.arena.chunk(0x40)
    builder.add_mmapped(0x22000)
    return builder


def find(target):
    return find_arenas(target, SILENT)


def kinds(location):
    return [problem.kind for problem in location.problems]


class FakeSymbols(NoDebugInfo):
    """What a debugger would answer from one libc file."""

    def __init__(self, builder, build_id=LIBC_ID, types=True, shift=0):
        self.builder, self.build_id, self._types, self.shift = builder, build_id, types, shift

    def find_symbols(self, name):
        places = {"main_arena": self.builder.main.address, "mp_": self.builder.mp}
        return [Symbol(name, places[name] + self.shift, self.build_id)] if name in places else []

    def find_structs(self, name):
        known = {
            "malloc_state": self.builder.malloc_state,
            "_heap_info": self.builder.heap_info,
            "malloc_par": self.builder.malloc_par,
        }
        if self.builder.tcache:
            counts = "num_slots" if self.builder.tcache.counts_down else "counts"
            known["tcache_perthread_struct"] = self.builder.tcache.struct.renamed({"counts": counts})
            known["tcache_entry"] = self.builder.tcache.entry
        if not self._types or name not in known:
            return []
        layout = known[name]
        layout = StructLayout(layout.name, layout.size, layout.members, "debug info")
        return [DebugStruct(layout, self.build_id)]


# -- by structure -----------------------------------------------------------------------------------


@pytest.mark.parametrize("arenas", [0, 1, 3])
@pytest.mark.parametrize("release", RELEASES)
@pytest.mark.parametrize("abi", [X86_64, I386, AARCH64, S390X, ARM], ids=lambda abi: abi.machine)
def test_structure_alone_finds_everything(abi, release, arenas):
    builder = laid_out(abi, release, arenas)
    location, truth = find(builder.target()), builder.truth()
    assert location.main_arena == truth["main_arena"]
    # arena_get2 puts the newest directly behind the main arena
    assert location.arenas == (truth["main_arena"], *reversed(truth["arenas"][1:]))
    assert location.malloc_par == truth["mp"]
    assert location.malloc_state == builder.malloc_state
    assert location.alignment == builder.alignment
    assert location.heap_info.size == builder.heap_info.size
    assert location.heap_info == builder.heap_info
    for name in ("sbrk_base", "n_mmaps", "mmapped_mem"):
        assert location.malloc_par_layout.offset(name) == builder.malloc_par.offset(name)
    structs = [cache.struct for cache in location.tcache_layouts]
    assert (builder.tcache.struct in structs) if builder.tcache else not structs
    assert not location.problems and not location.trusted_debug
    subjects = [evidence.subject for evidence in location.evidence]
    assert subjects == ["main_arena", "mp_", "heap_info", "tcache"]


def test_i386_before_2_26_aligned_to_8():
    builder = laid_out(I386, "2.23", alignment=8)
    builder.main.chunk(0x38)
    location = find(builder.target())
    assert location.alignment == 8
    assert location.malloc_state == builder.malloc_state
    assert location.malloc_state.member("fastbinsY").count == 10


def test_names_of_mappings_are_not_needed():
    image = laid_out().build()
    image.regions = [replace(region, name="") for region in image.regions]
    location = find(image.target(modules=()))
    assert location.main_arena == image.builder.main.address
    assert len(location.arenas) == 4


def test_static_program_without_modules_named_libc():
    image = laid_out().build()
    image.regions = [replace(region, name=region.name and "/bin/prog") for region in image.regions]
    assert find(image.target(modules=())).main_arena == image.builder.main.address


def test_fragmented_heap_with_most_bins_in_use():
    builder = HeapBuilder()
    for index in range(2, 64):
        builder.main.chunk(index * 16, "bin")
        builder.main.chunk(0x20)
    for size in (0x420, 0x480, 0x1000, 0x2000, 0x5000, 0x20000):
        builder.main.chunk(size, "bin")
        builder.main.chunk(0x20)
    builder.main.chunk(0x70, "unsorted")
    builder.main.chunk(0x20)
    assert find(builder.target()).main_arena == builder.main.address


def test_an_arena_is_not_taken_for_one_that_begins_some_bins_earlier():
    # Bins 110, 112 and 113 in use: 109 looks like the last one, and low addresses in 112 and 113 like system_mem.
    builder = HeapBuilder(release="2.31")
    segment = builder.main.segments[0]
    segment.start, segment.first, segment.cursor = 0x4400000, 0x4400000, 0x4400000
    for _ in range(3):
        builder.add_arena()  # reservations, as large as such a system_mem
    for size in (0x2600, 0x2A00, 0x3000):
        builder.main.chunk(size, "bin")
        builder.main.chunk(0x40)
    target = builder.target()
    shifted = fit_arena(Probe(target), builder.main.address - 18 * 16, ThreadArenas(Probe(target), []))
    assert shifted is not None and shifted.check.system_mem > 0x4400000
    location = find(target)
    assert location.main_arena == builder.main.address and not location.problems


def test_heap_memory_that_is_absent_does_not_hide_the_arena():
    image = laid_out().build()
    brk = image.builder.main.segments[0].start
    image.segments.pop(brk)
    image.regions = [replace(r, source="absent") if r.start == brk else r for r in image.regions]
    location = find(image.target())
    assert location.main_arena == image.builder.main.address
    assert location.malloc_par == image.builder.mp


def test_damaged_bins_and_top_do_not_hide_the_arena():
    image = laid_out().build()
    arena, layout = image.builder.main.address, image.builder.malloc_state
    for index in range(5):
        image.poke(arena + layout.offset("bins") + index * 8, 0x4141414141414141)
    image.put(layout, arena, top=0x4141414141414140)
    assert find(image.target()).main_arena == arena


# -- no heap ------------------------------------------------------------------------------------------


def untouched(builder):
    """What a libc looks like whose malloc nobody has called: initialised data only."""
    image = builder.build()
    data = image.segments[builder.data]
    start = builder.main.address - builder.data
    data[start : start + builder.malloc_state.size] = bytes(builder.malloc_state.size)
    image.put(builder.malloc_state, builder.main.address, next=builder.main.address, attached_threads=1)
    return image


@pytest.mark.parametrize("symbols", [False, True])
def test_malloc_never_called_is_no_heap(symbols):
    builder = HeapBuilder()
    target = untouched(builder).target(symbols=FakeSymbols(builder) if symbols else NoDebugInfo())
    assert find(target) is None


def test_malloc_initialised_but_unused_is_no_heap():
    builder = HeapBuilder()
    builder.main.system_mem = 0
    assert find(builder.target()) is None


def test_only_mmapped_blocks_are_a_heap():
    builder = HeapBuilder()
    builder.main.system_mem = 0
    builder.add_mmapped(0x100000)
    location = find(builder.target())
    assert location is not None and location.arenas == (builder.main.address,)


def test_no_memory_at_all():
    assert find(Target(FakeMemory([]), X86_64)) is None


# -- by name ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("release", ["2.31", "2.36", "2.42", "2.44"])
def test_debug_info_is_believed_with_equal_build_id(release):
    builder = laid_out(release=release)
    location = find(builder.target(symbols=FakeSymbols(builder)))
    assert location.trusted_debug and not location.problems
    assert location.main_arena == builder.main.address and len(location.arenas) == 4
    assert location.malloc_par == builder.mp
    for layout in (location.malloc_state, location.heap_info, location.malloc_par_layout):
        assert layout.origin == "debug info"
    (cache,) = location.tcache_layouts
    assert cache.counts_down == (release in ("2.42", "2.44")) and "counts" in cache.struct
    assert LIBC_ID in location.evidence[0].message


def test_symtab_without_types_takes_the_layout_that_fits():
    builder = laid_out()
    location = find(builder.target(symbols=FakeSymbols(builder, types=False)))
    assert location.trusted_debug
    assert location.malloc_state == builder.malloc_state
    assert location.malloc_par_layout.origin == builder.malloc_par.origin


def test_wrong_build_id_is_not_believed():
    builder = laid_out()
    location = find(builder.target(symbols=FakeSymbols(builder, "2c" * 20, shift=0x40)))
    assert not location.trusted_debug
    assert location.main_arena == builder.main.address
    assert kinds(location) == ["wrong-debug-info"]
    message = location.problems[0].message
    assert "2c2c" in message and "1b1b" in message and "not believed" in message


def test_module_without_build_id_is_not_believed():
    builder = laid_out()
    modules = (Module(LIBC, builder.libc, builder.data + 0x4000, None),)
    location = find(builder.target(symbols=FakeSymbols(builder), modules=modules))
    assert not location.trusted_debug and location.main_arena == builder.main.address
    assert kinds(location) == ["no-build-id"]
    assert "the target holds no build-id of /lib/libc.so.6" in location.problems[0].message


def test_file_without_build_id_is_not_believed():
    builder = laid_out()
    location = find(builder.target(symbols=FakeSymbols(builder, None)))
    assert not location.trusted_debug and kinds(location) == ["no-build-id"]
    assert "the file it is from has no build-id" in location.problems[0].message


def test_symbol_where_nothing_is_mapped_is_not_believed():
    builder = laid_out()
    location = find(builder.target(symbols=FakeSymbols(builder, shift=1 << 40)))
    assert not location.trusted_debug and kinds(location) == ["debug-info"]
    assert "no module of the target is mapped there" in location.problems[0].message


def test_debug_info_that_breaks_the_invariants_is_not_believed():
    builder = laid_out()
    location = find(builder.target(symbols=FakeSymbols(builder, shift=16)))
    assert not location.trusted_debug and location.main_arena == builder.main.address
    assert kinds(location) == ["wrong-debug-info"]
    assert "breaks malloc's invariants" in location.problems[0].message


def test_par_symbol_that_breaks_the_invariants_is_not_used():
    image = laid_out().build()
    builder = image.builder
    image.put(builder.malloc_par, builder.mp, mmapped_mem=0x123, n_mmaps=0x7FFFFFFF)
    location = find(image.target(symbols=FakeSymbols(builder)))
    assert location.main_arena == builder.main.address
    assert location.malloc_par is None and location.malloc_par_layout is None
    assert kinds(location)[0] == "malloc-par" and "its figures are not used" in location.problems[0].message


def test_named_arena_that_is_not_in_the_core():
    image = laid_out().build()
    start = image.builder.data
    image.segments.pop(start)
    image.regions = [replace(r, source="absent") if r.start == start else r for r in image.regions]
    location = find(image.target(symbols=FakeSymbols(image.builder)))
    assert location.main_arena is None and len(location.arenas) == 3
    assert kinds(location) == ["absent-memory", "no-main-arena"]
    assert "known by name, cannot be read" in location.problems[0].message


# -- parts missing, parts damaged ---------------------------------------------------------------------


def without_data(builder):
    image = builder.build()
    for start in (builder.data, builder.data + 0x2000):
        image.segments.pop(start)
        image.regions = [replace(r, source="absent") if r.start == start else r for r in image.regions]
    return image


@pytest.mark.parametrize("release", RELEASES)
@pytest.mark.parametrize("abi", [X86_64, I386, S390X], ids=lambda abi: abi.machine)
def test_without_libc_data_thread_arenas_remain(abi, release):
    builder = laid_out(abi, release)
    location = find(without_data(builder).target())
    assert location.main_arena is None and location.malloc_par is None
    assert sorted(location.arenas) == sorted(builder.truth()["arenas"][1:])
    assert location.malloc_state.offset("top") == builder.malloc_state.offset("top")
    assert location.heap_info == builder.heap_info
    assert kinds(location) == ["no-main-arena"]
    assert "thread arenas only" in location.problems[0].message


def test_without_libc_data_and_thread_arenas_there_is_no_heap():
    assert find(without_data(laid_out(arenas=0)).target()) is None


def test_ring_that_leads_nowhere():
    image = laid_out().build()
    arenas = image.builder.truth()["arenas"]
    image.put(image.builder.malloc_state, arenas[2], next=0x4141414141414140)
    location = find(image.target())
    assert sorted(location.arenas) == sorted(arenas) and location.arenas[0] == arenas[0]
    assert set(kinds(location)) == {"arena-ring"} and all(p.corruption for p in location.problems)
    assert "does not lead back to main_arena" in location.problems[0].message
    assert "1 arenas have heaps but are not in the ring: added" in location.problems[1].message


def test_ring_that_never_returns_to_the_main_arena():
    image = laid_out().build()
    arenas = image.builder.truth()["arenas"]
    image.put(image.builder.malloc_state, arenas[1], next=arenas[2])
    location = find(image.target())
    assert sorted(location.arenas) == sorted(arenas)
    assert location.malloc_state == image.builder.malloc_state
    assert kinds(location) == ["arena-ring"]


def test_missing_mp_is_said():
    image = laid_out().build()
    image.segments[image.builder.data][0x340 : 0x340 + 200] = bytes(200)
    location = find(image.target())
    assert location.malloc_par is None and kinds(location) == ["malloc-par"]
    assert "mp_ was not found" in location.problems[0].message


def test_tuned_mp_is_found_by_sbrk_base():
    image = laid_out().build()
    builder = image.builder
    image.put(
        builder.malloc_par,
        builder.mp,
        n_mmaps_max=10,
        top_pad=4096,
        mmap_threshold=1000000,
        trim_threshold=7,
        tcache_count=100,
        tcache_bins=3,
        tcache_max_bytes=64,
        arena_test=1,
    )
    assert find(image.target()).malloc_par == builder.mp


def test_decoy_of_mp_elsewhere_in_the_data_loses():
    image = laid_out().build()
    builder = image.builder
    # n_mmaps_max and sbrk_base alone do not make a malloc_par
    image.poke(builder.data + 0x1800, 65536, 4)
    image.poke(builder.data + 0x1900, builder.main.segments[0].start)
    assert find(image.target()).malloc_par == builder.mp


@pytest.mark.parametrize("huge", [2 << 20, 32 << 20, 1 << 30])
def test_heap_max_with_huge_pages(huge):
    builder = laid_out(heap_max=4 * huge, hp_pagesize=huge)
    location = find(builder.target())
    assert len(location.arenas) == 4
    heaps = [heap for each in builder.truth()["heaps"].values() for heap in each]
    assert all(heap % location.heap_max == 0 for heap in heaps)
    assert location.heap_max == 4 * huge


def test_heap_max_is_constant_again_since_2_42():
    builder = laid_out(release="2.43", hp_pagesize=2 << 20)
    assert find(builder.target()).heap_max == 64 << 20


def test_heap_max_without_mp():
    builder = laid_out(heap_max=8 << 20, hp_pagesize=2 << 20)
    location = find(without_data(builder).target())
    assert location.heap_max == 8 << 20 and len(location.arenas) == 3


def test_two_libcs_the_more_used_wins():
    one, other = laid_out(arenas=2), laid_out(arenas=0)
    for name in ("libc", "data", "mp"):
        setattr(other, name, getattr(other, name) + 0x10000000)
    other.main.address += 0x10000000
    other.main.segments[0].start += 0x1000000
    other.main.segments[0].cursor += 0x1000000
    for chunk in other.main.segments[0].chunks:
        chunk.address += 0x1000000
    other.main.top_size = 0x100000
    other.threads, other.mmapped = [], []
    image, second = one.build(), other.build()
    image.segments.update(second.segments)
    image.regions += second.regions
    location = find(image.target())
    assert location.main_arena == other.main.address
    assert location.arenas == (other.main.address,)
    assert kinds(location) == ["several-heaps"]
    assert f"{one.main.address:#x}" in location.problems[0].message


# -- hostile ------------------------------------------------------------------------------------------


def hostile(data, name=LIBC):
    start = 0x7F0000000000
    return Target(FakeMemory([(start, data)], [Region(start, start + len(data), "rw-", name)]), X86_64)


def test_data_full_of_self_links_ends_soon():
    start = 0x7F0000000000
    words = []
    for at in range(0, 1 << 20, 16):
        words.append((start + at - 16).to_bytes(8, "little") * 2)
    assert find(hostile(b"".join(words))) is None


def test_more_decoys_than_are_looked_at(monkeypatch):
    monkeypatch.setattr(structural, "_HIT_LIMIT", 2)
    image = laid_out().build()
    bss = image.builder.data + 0x2000
    for at in range(bss + 0x10, bss + 0x2000, 0x900):
        image.poke(at, at - 16)
        image.poke(at + 8, at - 16)
    location = find(image.target())
    assert location.main_arena == image.builder.main.address
    (problem,) = location.problems
    assert problem.kind == "search-limit"
    assert "places that resemble an arena's bins were not examined" in problem.message


def test_sparse_self_links_end_soon():
    start, data = 0x7F0000000000, bytearray(4 << 20)
    for at in range(0x1000, len(data), 0x1000):
        data[at : at + 16] = (start + at - 16).to_bytes(8, "little") * 2
    assert find(hostile(data)) is None


@settings(max_examples=30, deadline=None)
@given(st.randoms(use_true_random=False), st.integers(1, 400))
def test_damage_anywhere_ends_in_an_answer(rnd, count):
    image = laid_out(arenas=2).build()
    targets = [start for start in image.segments if len(image.segments[start]) > 64]
    words = [0, 1, image.builder.main.address, 0x4141414141414141, (1 << 64) - 1, *targets]
    for _ in range(count):
        start = rnd.choice(targets)
        image.poke(start + rnd.randrange(0, len(image.segments[start]) - 8, 8), rnd.choice(words))
    location = find(image.target())
    assert location is None or len(set(location.arenas)) == len(location.arenas)


def test_random_bytes_end_in_none():
    assert find(hostile(random.Random(7).randbytes(1 << 20))) is None
    assert find(hostile(random.Random(7).randbytes(1 << 20), "")) is None


def test_mmapped_mem_that_mremap_let_drift():
    # 2.43: headers counted by mremap stay after the last block is gone
    builder = HeapBuilder(release="2.43")
    builder.main.chunk(0x40)
    image = builder.build()
    image.put(builder.malloc_par, builder.mp, max_n_mmaps=3, mmapped_mem=0x20, max_mmapped_mem=0x60020)
    location = find(image.target())
    assert location.malloc_par == builder.mp and not location.problems


def test_ring_that_leads_out_of_the_core_is_no_damage():
    builder = laid_out()
    image = builder.build()
    gone = builder.truth()["arenas"][2] & -builder.heap_max
    image.segments.pop(gone)
    image.regions = [replace(r, source="absent") if r.start == gone else r for r in image.regions]
    location = find(image.target())
    assert location.main_arena == builder.main.address
    assert not any(problem.corruption for problem in location.problems)
    assert "which is not in the core" in location.problems[0].message
