"""Finding thread caches and their threads: laid-out heaps are the truth."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gdbext.abi import AARCH64, I386, X86_64, Abi
from gdbext.debuginfo import NoDebugInfo
from gdbext.heap.glibc import layouts
from gdbext.heap.glibc.find import tcaches
from gdbext.heap.glibc.find.globals import find_arenas
from gdbext.heap.glibc.find.tcaches import find_safe_linking, find_tcaches, find_thread_arenas
from gdbext.memory import Region
from gdbext.progress import SILENT
from tests.support.ptmalloc import ARENA_AT, RELEASES, TCACHE_AT, HeapBuilder

S390X = Abi(8, "big", "s390x")
ARM = Abi(4, "little", "40")
CACHING = [release for release in RELEASES if release != "2.23"]


def laid_out(abi=X86_64, release="2.36", threads=3, **options):
    """Each thread with a few entries in several lists, one thread with an empty cache."""
    builder = HeapBuilder(abi, release, **options)
    for number in range(threads + 1):
        thread = builder.add_thread(builder.add_arena() if number else builder.main)
        sizes = builder.sizes
        thread.arena.chunk(sizes.minimum + 4 * sizes.alignment)
        for turn in range(4 if number < threads else 0):
            for step in range(turn + 1):
                thread.cache(sizes.minimum + step * sizes.alignment)
        thread.arena.chunk(sizes.minimum)
    return builder


class Walked:
    """A target with its location and the columns of its in-use chunks."""

    def __init__(self, image, **changes):
        builder = image.builder
        self.target = image.target(**changes)
        self.location = find_arenas(self.target, SILENT)
        kept = sorted(c[:2] for c in builder.truth()["chunks"] if c[2] in ("used", "tcache", "fastbin"))
        self.addresses = np.array([address for address, _ in kept], np.uint64)
        self.sizes = np.array([size for _, size in kept], np.uint64)

    def caches(self):
        return find_tcaches(self.target, self.location, self.addresses, self.sizes)


def by_thread(caches):
    return {cache.thread.number: cache.address for cache in caches if cache.thread is not None}


@pytest.mark.parametrize("release", CACHING)
@pytest.mark.parametrize("abi", [X86_64, I386, AARCH64, S390X, ARM], ids=lambda abi: abi.machine)
def test_every_cache_with_its_thread(abi, release):
    builder = laid_out(abi, release)
    walked = Walked(builder.build())
    caches, problems = walked.caches()
    truth = builder.truth()
    assert by_thread(caches) == truth["tcaches"]
    assert len(caches) == 4 and not problems
    assert all(cache.layout.struct == builder.tcache.struct for cache in caches)
    assert {cache.layout.counts_down for cache in caches} == {builder.tcache.counts_down}
    assert {cache.found_by for cache in caches} == {"thread pointer"}
    assert find_safe_linking(walked.target, walked.location, caches) is builder.safe_linking
    assert find_thread_arenas(walked.target, walked.location) == truth["thread_arenas"]


def test_no_tcache_before_2_26():
    builder = laid_out(release="2.26")
    assert Walked(builder.build()).caches()[0]
    old = HeapBuilder(release="2.23")
    old.add_thread()
    old.main.chunk(0x290)
    assert Walked(old.build()).caches() == ((), ())


def test_chunk_that_absorbed_a_remainder():
    builder = HeapBuilder()
    thread = builder.add_thread(cached=False)
    thread.cached = True
    thread.tcache = builder.main.chunk(0x2A0) + 16
    thread.cache(0x40)
    caches, _ = Walked(builder.build()).caches()
    assert by_thread(caches) == {1: thread.tcache}


def test_large_lists_of_2_42():
    builder = HeapBuilder(release="2.42")
    thread = builder.add_thread()
    for size in (0x420, 0x500, 0x800, 0x20000):
        thread.cache(size)
    assert sorted(thread.lists) == [64, 65, 71]
    caches, problems = Walked(builder.build()).caches()
    assert by_thread(caches) == {1: thread.tcache} and not problems


def test_blocks_of_that_size_that_are_none():
    # zeroed, as an empty cache is; full of ones; counts without entries; entries that are no chunks
    builder = laid_out()
    zero, ones, counts, entries = (builder.main.chunk(0x290) for _ in range(4))
    image = builder.build()
    for offset in range(16, 0x290, 8):
        image.poke(ones + offset, 0x0101010101010101)
    image.poke(counts + 16, 3, 2)
    image.poke(entries + 16, 1, 2)
    image.poke(entries + 16 + 128, builder.main.top + 0x100)
    caches, problems = Walked(image).caches()
    assert by_thread(caches) == builder.truth()["tcaches"] and len(caches) == 4 and not problems


def test_cache_that_no_thread_points_to():
    builder = laid_out()
    image = builder.build()
    image.poke(builder.tps[3] - TCACHE_AT, 0)
    caches, problems = Walked(image).caches()
    lost = builder.truth()["tcaches"][3]
    (alone,) = [cache for cache in caches if cache.thread is None]
    assert alone.address == lost and alone.found_by == "lists" and not problems
    assert 3 not in by_thread(caches)


def test_inactive_cache_of_2_43_is_no_fault():
    builder = laid_out(release="2.43")
    idle = builder.add_thread(builder.main, cached=False)
    image = builder.build()
    image.poke(builder.tps[idle.number] - TCACHE_AT, builder.data + 0x1500)  # __tcache_dummy
    image.poke(builder.tps[idle.number] - ARENA_AT, 0)
    walked = Walked(image)
    caches, problems = walked.caches()
    assert idle.number not in by_thread(caches) and len(caches) == 4 and not problems
    assert idle.number not in find_thread_arenas(walked.target, walked.location)


def test_stale_pointers_on_the_stack_do_not_mislead():
    builder = laid_out(threads=5)
    image = builder.build()
    caches = builder.truth()["tcaches"]
    for number in range(2, 6):
        stack = builder.tps[number] - 0x700
        image.poke(stack, caches[number])
        image.poke(stack - 8 * number, caches[2])
    found, problems = Walked(image).caches()
    assert by_thread(found) == caches and not problems


def test_pointer_to_something_else_is_a_problem():
    builder = laid_out()
    image = builder.build()
    image.poke(builder.tps[3] - TCACHE_AT, 0x4141414141414141)
    caches, problems = Walked(image).caches()
    assert 3 not in by_thread(caches)
    (problem,) = problems
    assert problem.kind == "tcache" and problem.address == 0x4141414141414141
    assert "no thread cache is there, ignored" in problem.message


@pytest.mark.parametrize("damage", ["count", "head"])
def test_damaged_cache_is_still_its_threads(damage):
    builder = laid_out()
    image = builder.build()
    at = builder.truth()["tcaches"][2]
    if damage == "count":
        image.poke(at, 0, 2)
    else:
        image.poke(at + 128, 0x4141414141414141)
    caches, problems = Walked(image).caches()
    assert by_thread(caches) == builder.truth()["tcaches"] and not problems


@pytest.mark.parametrize("offset, value, size", [(0, 0, 2), (0, 0xFFFF, 2), (128, 0, 8), (128, 0x4141414141414141, 8)])
def test_the_only_cache_there_is_with_one_of_its_lists_damaged(offset, value, size):
    builder = laid_out(threads=1)
    builder.threads = builder.threads[:1]
    image = builder.build()
    image.poke(builder.truth()["tcaches"][1] + offset, value, size)
    caches, problems = Walked(image).caches()
    assert by_thread(caches) == builder.truth()["tcaches"] and not problems


def alone(entries, release="2.36"):
    """One thread, with this many entries in one list, and a block that looks like a cache with a damaged head."""
    builder = HeapBuilder(release=release)
    thread = builder.add_thread()
    for _ in range(entries):
        thread.cache(builder.sizes.minimum + builder.sizes.alignment)
    alike = builder.main.chunk(layouts.chunk_size(builder.sizes, builder.tcache.struct.size)) + builder.sizes.header
    builder.main.chunk(builder.sizes.minimum)
    return builder, thread.tcache, alike


def spoil(image, at):
    """Have what is there be a cache of one list, with a head that malloc refuses."""
    layout = image.builder.tcache
    counts, entries = (layout.struct.member(name) for name in ("counts", "entries"))
    for index in range(layout.bins):
        count = image.builder.tcache_count if layout.counts_down else 0
        image.poke(at + counts.offset + index * counts.size, count, counts.size)
    image.poke(at + counts.offset + counts.size, 1, counts.size)
    image.poke(at + entries.offset + entries.size, image.builder.main.top + 8)


@pytest.mark.parametrize("release", ["2.31", "2.36", "2.43"])
def test_the_only_cache_there_is_with_its_only_head_damaged(release):
    builder, cache, _ = alone(3, release)
    image = builder.build()
    spoil(image, cache)
    caches, problems = Walked(image).caches()
    assert by_thread(caches) == {1: cache} and not problems


@pytest.mark.parametrize("entries", [0, 3])
@pytest.mark.parametrize("release", ["2.31", "2.36", "2.43"])
def test_what_looks_like_a_cache_with_its_only_head_damaged(release, entries):
    """A variable of the program's, nearer to the thread pointer than that of libc, leads to it."""
    builder, cache, alike = alone(entries, release)
    image = builder.build()
    spoil(image, alike)
    image.poke(builder.tps[1] - 8, alike)
    caches, problems = Walked(image).caches()
    assert by_thread(caches) == {1: cache} and not problems
    assert alike not in [one.address for one in caches]


def test_only_empty_caches():
    builder = HeapBuilder()
    for number in range(3):
        builder.add_thread(builder.add_arena() if number else builder.main)
    walked = Walked(builder.build())
    caches, problems = walked.caches()
    assert by_thread(caches) == builder.truth()["tcaches"] and not problems
    assert find_safe_linking(walked.target, walked.location, caches) is None


def test_no_thread_pointers_and_no_struct_pthread():
    builder = laid_out(AARCH64)
    target = builder.build().target()
    bare = tuple(replace(thread, tls=None) for thread in target.threads)
    walked = Walked(builder.build(), threads=bare)
    caches, problems = walked.caches()
    full = {builder.truth()["tcaches"][number] for number in (1, 2, 3)}
    assert {cache.address for cache in caches} == full and not problems
    assert {cache.found_by for cache in caches} == {"lists"}
    assert find_thread_arenas(walked.target, walked.location) is None


@pytest.mark.parametrize("lwps", [True, False])
@pytest.mark.parametrize("abi", [X86_64, I386], ids=lambda abi: abi.machine)
def test_thread_pointers_from_struct_pthread(abi, lwps):
    builder = laid_out(abi)
    image = builder.build()
    # without tids that match: a PID namespace; then stacks decide, and the main thread is who is left
    threads = []
    for thread in image.target().threads:
        lwp = thread.lwp if lwps else 70000 + thread.number
        main_stack = next(r.start for r in image.regions if r.name == "[stack]") + 0x1000
        stack = main_stack if thread.number == 1 else builder.tps[thread.number] - 0x800
        threads.append(replace(thread, tls=None, lwp=lwp, stack_pointer=stack))
    walked = Walked(image, threads=tuple(threads))
    caches, _ = walked.caches()
    assert by_thread(caches) == builder.truth()["tcaches"]
    assert find_thread_arenas(walked.target, walked.location) == builder.truth()["thread_arenas"]


def test_cache_that_is_not_in_the_core():
    builder = laid_out()
    image = builder.build()
    start = builder.truth()["heaps"][builder.arenas[2].address][0]
    image.segments.pop(start)
    image.regions = [replace(r, source="absent") if r.start == start else r for r in image.regions]
    walked = Walked(image)
    caches, problems = walked.caches()
    assert {1, 2} <= set(by_thread(caches)) and not problems


class TlsSymbols(NoDebugInfo):
    def __init__(self, builder, shift=0, skip=()):
        self.builder, self.shift, self.skip = builder, shift, skip

    def find_tls(self, name, thread):
        if thread.number in self.skip:
            return None
        at = {"tcache": TCACHE_AT, "thread_arena": ARENA_AT}[name]
        return self.builder.tps[thread.number] - at + self.shift


def test_tls_symbol_of_trusted_debug_info():
    builder = laid_out()
    image = builder.build()
    walked = Walked(image, symbols=TlsSymbols(builder))
    walked.location = replace(walked.location, trusted_debug=True)
    caches, problems = walked.caches()
    assert by_thread(caches) == builder.truth()["tcaches"] and not problems
    assert {cache.found_by for cache in caches} == {"TLS symbol"}
    assert find_thread_arenas(walked.target, walked.location) == builder.truth()["thread_arenas"]


def test_tls_symbol_is_not_asked_without_trust():
    builder = laid_out()
    walked = Walked(builder.build(), symbols=TlsSymbols(builder, shift=8))
    caches, problems = walked.caches()
    assert by_thread(caches) == builder.truth()["tcaches"] and not problems


def test_tls_symbol_that_reads_beside_the_variable():
    builder = laid_out()
    walked = Walked(builder.build(), symbols=TlsSymbols(builder, shift=0x20))
    walked.location = replace(walked.location, trusted_debug=True)
    caches, problems = walked.caches()
    assert by_thread(caches) == builder.truth()["tcaches"] and not problems
    assert {cache.found_by for cache in caches} == {"thread pointer"}


def test_tls_symbol_for_some_threads_only():
    builder = laid_out()
    walked = Walked(builder.build(), symbols=TlsSymbols(builder, skip=(2, 3)))
    walked.location = replace(walked.location, trusted_debug=True)
    caches, problems = walked.caches()
    assert by_thread(caches) == builder.truth()["tcaches"] and not problems
    assert find_thread_arenas(walked.target, walked.location) == builder.truth()["thread_arenas"]


# -- safe-linking ------------------------------------------------------------------------------------


@pytest.mark.parametrize("release", ["2.23", "2.31", "2.36", "2.28-rhel8"])
@pytest.mark.parametrize("linking", [False, True])
def test_safe_linking_by_fastbins_alone(release, linking):
    builder = HeapBuilder(release=release, safe_linking=linking)
    for _ in range(3):
        builder.main.chunk(0x40, "fastbin")
    walked = Walked(builder.build())
    assert find_safe_linking(walked.target, walked.location, ()) is linking


def test_safe_linking_with_a_broken_list():
    builder = laid_out()
    image = builder.build()
    first = builder.threads[0].lists[0][0]
    image.poke(first, 0x4141414141414141)
    walked = Walked(image)
    assert find_safe_linking(walked.target, walked.location, walked.caches()[0]) is True


def test_safe_linking_with_a_cycle_ends():
    builder = laid_out(release="2.31")
    image = builder.build()
    nodes = builder.threads[0].lists[0]
    image.poke(nodes[-1], nodes[0])
    walked = Walked(image)
    assert find_safe_linking(walked.target, walked.location, walked.caches()[0]) is False


# -- hostile ------------------------------------------------------------------------------------------


def test_a_great_many_zeroed_blocks_of_that_size():
    builder = laid_out()
    image = builder.build()
    size, count = 0x290, 50_000
    start = 0x600000000000
    image.map(start, -(-size * count // 4096) * 4096)
    walked = Walked(image)
    more = np.arange(count, dtype=np.uint64) * np.uint64(size) + np.uint64(start)
    walked.addresses = np.concatenate([walked.addresses, more])
    walked.sizes = np.concatenate([walked.sizes, np.full(count, size, np.uint64)])
    order = np.argsort(walked.addresses)
    walked.addresses, walked.sizes = walked.addresses[order], walked.sizes[order]
    caches, problems = walked.caches()
    assert by_thread(caches) == builder.truth()["tcaches"] and len(caches) == 4 and not problems


def test_more_blocks_of_that_size_than_are_examined(monkeypatch):
    monkeypatch.setattr(tcaches, "_EXAMINED_LIMIT", 2)
    caches, problems = Walked(laid_out().build()).caches()
    assert len(caches) == 4  # two were among those examined; the threads name the others
    (problem,) = problems
    assert problem.message == "4 chunks have the size of a thread cache: only 2 examined"


@settings(max_examples=30, deadline=None)
@given(st.randoms(use_true_random=False), st.integers(1, 300), st.sampled_from(["2.31", "2.36", "2.44"]))
def test_damage_anywhere_ends_in_an_answer(rnd, count, release):
    builder = laid_out(release=release)
    image = builder.build()
    starts = [start for start in image.segments if len(image.segments[start]) > 64]
    words = [0, 1, *builder.truth()["tcaches"].values(), 0x4141414141414141, (1 << 64) - 1, *starts]
    clean = Walked(image).location
    for _ in range(count):
        start = rnd.choice(starts)
        image.poke(start + rnd.randrange(0, len(image.segments[start]) - 8, 8), rnd.choice(words))
    walked = Walked(image)
    walked.location = clean
    caches, _ = walked.caches()
    assert len({cache.address for cache in caches}) <= len(caches)
    assert find_safe_linking(walked.target, clean, caches) in (True, False, None)
    find_thread_arenas(walked.target, clean)


def test_thread_pointer_outside_memory():
    builder = laid_out()
    image = builder.build()
    threads = tuple(replace(t, tls=0x4141414141414141) for t in image.target().threads)
    walked = Walked(image, threads=threads)
    caches, problems = walked.caches()
    assert {cache.thread for cache in caches} == {None} and not problems
    assert find_thread_arenas(walked.target, walked.location) is None


def test_windows_end_with_the_mapping():
    builder = laid_out()
    image = builder.build()
    tp = builder.tps[1]
    page = tp & -4096
    image.regions.append(Region(page - 0x100000, page - 0x80000, "rw-", "", 0, "absent"))
    assert by_thread(Walked(image).caches()[0]) == builder.truth()["tcaches"]
