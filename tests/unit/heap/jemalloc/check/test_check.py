"""A heap laid out by hand whose every counter and link is right, and the same with one thing spoilt."""

import random
from dataclasses import replace

import numpy as np
import pytest

from gdbext.analysis.page import make_page
from gdbext.heap.jemalloc.check.check import check_heap
from gdbext.heap.jemalloc.check.flux import in_brief
from gdbext.heap.jemalloc.check.links import Members, check_heaps, check_rings
from gdbext.heap.jemalloc.find.globals import find_jemallocs
from gdbext.heap.jemalloc.heap import neutral
from gdbext.heap.jemalloc.model import CacheBin, ThreadCache
from gdbext.heap.jemalloc.read.build import read_jemalloc
from gdbext.heap.jemalloc.report.check import check as report_check
from gdbext.process import Thread
from gdbext.progress import SILENT
from gdbext.report import Problem
from tests.support.jeworld import (
    BASE,
    BASE_SIZE,
    BIG_PAGES,
    CONSTANTS,
    HEAP,
    LAYOUTS,
    MODULE,
    NARROW,
    WIDE,
    laid,
    with_big_pages,
)

VERSIONS = list(LAYOUTS)
PAGES = {"dirty": 2, "muzzy": 1, "retained": 4}  # up to five pages each size has a heap
NOWHERE = 0x1234_5678_9000


class Sound:
    """The world of ``laid`` with all that jemalloc counts and links."""

    def __init__(self, version="5.3.0", shape=NARROW):
        layout = with_big_pages(version) if shape is BIG_PAGES else None
        self.world = laid(version, shape, layout)
        self.layout, self.page = self.world.layout, 1 << shape.lg_page
        self.heaps = {"dirty": self.world.dirty}
        self.owners = {"dirty": 0, "muzzy": 0, "retained": 1}
        self.more = []
        self._unused()
        first, second = self.world.arenas
        self.world.put("arena", first, nactive=1)
        self.world.put("arena", second, nactive=8)
        at = self.layout["arena"].offset("lstats") + 0 * self.layout["large_stats"].size
        self.large = second + at + self.layout["large_stats"].offset("nmalloc")
        self.world.word(self.large, 1)
        if "active_bytes" in self.layout["large_stats"]:
            self.world.word(second + at + self.layout["large_stats"].offset("active_bytes"), 4 * self.page)

    def _unused(self):
        edata = self.world.dirty
        for kind in ("muzzy", "retained"):  # laid out in this order behind it
            edata += -(-self.layout["extent"].size // 128) * 128
            self.heaps[kind] = edata
        for kind, edata in self.heaps.items():
            cache = self.cache(kind)
            self.world.put("cache", cache, npages=PAGES[kind], lru=edata)
            self.hang(cache, PAGES[kind] - 1, edata)
            self.ring(edata)
            self.sums(cache, 1, PAGES[kind] * self.page)

    def cache(self, kind):
        return self.world.arenas[self.owners[kind]] + self.layout["arena"].offset(kind)

    def root(self, cache, index, prefix=""):
        """Return the address of a heap's root."""
        heaps = self.layout["cache"].member(f"{prefix}heaps")
        return cache + heaps.offset + index * heaps.size

    def hang(self, cache, index, edata, prefix=""):
        """Put an extent into the heap of an index, and that into the bitmap."""
        self.world.word(self.root(cache, index, prefix), edata)
        self.mark(cache, index, bool(edata), prefix)

    def mark(self, cache, index, used, prefix=""):
        at = cache + self.layout["cache"].offset(f"{prefix}bitmap") + index // 64 * 8
        old = int.from_bytes(self.world.base[at - BASE :][:8], "little") & ~(1 << index % 64)
        self.world.word(at, old | used << index % 64)
        return at

    def retain(self, pages, heap):
        """Add a retained extent, the only one in its heap."""
        place = HEAP + self.page * 200 * (len(self.more) + 1)
        edata = self.world.extent(place, pages * self.page, state=3, szind=232, arena=1)
        self.more.append((edata, pages))
        cache, whole = self.cache("retained"), PAGES["retained"] + sum(pages for _, pages in self.more)
        self.world.put("cache", cache, npages=whole)
        self.sums(cache, 1 + len(self.more), whole * self.page)
        self.ring(self.heaps["retained"], *(one for one, _ in self.more))
        self.hang(cache, heap, edata)
        return edata

    def base(self, arena):
        at = self.world.arenas[arena] + self.layout["arena"].offset("base") - BASE
        return int.from_bytes(self.world.base[at : at + 8], "little")

    def sums(self, cache, nextents, nbytes):
        known = self.layout["cache"]
        if "nextents" in known:
            self.world.word(cache + known.offset("nextents"), nextents)
            self.world.word(cache + known.offset("nbytes"), nbytes)
        elif "bin_stats" in known:
            self.world.word(cache + known.offset("bin_stats"), nextents)
            self.world.word(cache + known.offset("bin_stats") + 8, nbytes)

    def ring(self, *edatas, link="lru"):
        offset = self.layout["extent"].offset(link)
        for at, edata in enumerate(edatas):
            self.world.word(edata + offset, edatas[(at + 1) % len(edatas)])
            self.world.word(edata + offset + 8, edatas[at - 1])

    def link(self, edata, name, value):
        self.world.word(edata + self.layout["extent"].offset(name), value)

    def bin(self, arena, index):
        return self.world.bin_of(arena, index)

    def read(self, **how):
        target = self.world.target(**how)
        (location,) = find_jemallocs(target, SILENT).locations
        return read_jemalloc(target, location, SILENT)

    def problems(self, caches=None):
        heap = self.read()
        if caches is not None:
            heap.tcaches = caches
        return list(check_heap(heap))


def told(problems):
    return [(problem.kind, problem.message) for problem in problems]


@pytest.mark.parametrize("shape", [NARROW, WIDE, BIG_PAGES], ids=["48", "57", "64k"])
@pytest.mark.parametrize("version", VERSIONS)
def test_a_sound_heap_has_no_problems(version, shape):
    if shape is BIG_PAGES:
        sound = Sound(version, shape)
        heap = read_jemalloc_typed(sound)
    else:
        heap = Sound(version, shape).read()
    assert told(check_heap(heap)) == []


def read_jemalloc_typed(sound):
    target = sound.world.target(typed=True)
    (location,) = find_jemallocs(target, SILENT).locations
    return read_jemalloc(target, location, SILENT)


# -- counters ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", VERSIONS)
def test_page_counters(version):
    sound = Sound(version)
    sound.world.put("arena", sound.world.arenas[1], nactive=11)
    for kind in PAGES:
        sound.world.put("cache", sound.cache(kind), npages=9)
    assert told(sound.problems()) == [
        ("extent-count", "arena 0 counts 9 dirty pages, the radix tree has 2"),
        ("extent-count", "arena 0 counts 9 muzzy pages, the radix tree has 1"),
        ("extent-count", "arena 1 counts 11 active pages, the radix tree has 8"),
        ("extent-count", "arena 1 counts 9 retained pages, the radix tree has 4"),
    ]


@pytest.mark.parametrize("version", [one for one in VERSIONS if one != "5.1.0"])
def test_counters_of_unused_extents(version):
    sound = Sound(version)
    sound.sums(sound.cache("muzzy"), 5, 77)
    problems = sound.problems()
    assert told(problems) == [
        ("extent-count", "arena 0 counts 5 muzzy extents, the radix tree has 1"),
        ("extent-count", "arena 0 counts 77 bytes of muzzy extents, the radix tree has 4096"),
    ]
    assert {problem.address for problem in problems} == {sound.cache("muzzy")}


@pytest.mark.parametrize("version", VERSIONS)
def test_counters_of_bins(version):
    sound = Sound(version)
    place = sound.bin(1, 3)
    sound.world.put("bin", place, curregs=250, curslabs=4)
    expected = [
        ("bin-count", "bin 3 (48 bytes) of arena 1 counts 250 regions in use, its slabs say 256"),
        ("bin-count", "bin 3 (48 bytes) of arena 1 counts 4 slabs, its slabs say 1"),
    ]
    if "nonfull_slabs" in sound.layout["bin"]:
        sound.world.put("bin", place, nonfull_slabs=2)
        expected += [("bin-count", "bin 3 (48 bytes) of arena 1 counts 2 slabs not full, its slabs say 0")]
    problems = sound.problems()
    assert told(problems) == expected
    assert all(problem.corruption and problem.address == place for problem in problems)


@pytest.mark.parametrize("version", VERSIONS)
def test_counters_of_large_blocks(version):
    sound = Sound(version)
    sound.world.word(sound.large, 3)
    (problem,) = sound.problems()
    assert problem.message == "arena 1 counts 3 large blocks of class 36, the radix tree has 1"
    assert problem.kind == "large-count"
    sound.world.word(sound.large, 0)
    (problem,) = sound.problems()
    assert problem.message == "arena 1 counts 0 large blocks of class 36, the radix tree has 1"


def test_a_small_block_that_the_profiler_samples_is_a_large_one():
    sound = Sound("5.3.0")
    sound.world.set_bits(sound.world.large, szind=5, arena=1)
    assert told(sound.problems()) == []


def test_without_statistics_only_what_is_always_kept_counts():
    sound = Sound("5.3.0")
    for arena, index in ((0, 0), (1, 3)):
        sound.world.put("bin", sound.bin(arena, index), nslabs=0, curregs=0, curslabs=0)
    for arena in (0, 1):
        sound.world.put("base", sound.base(arena), allocated=0, resident=BASE_SIZE + 1, n_thp=99)
    for kind in PAGES:
        sound.sums(sound.cache(kind), 0, 0)
    sound.world.word(sound.large, 0)
    assert told(sound.problems()) == []
    sound.world.put("arena", sound.world.arenas[0], nactive=2)
    assert told(sound.problems()) == [("extent-count", "arena 0 counts 2 active pages, the radix tree has 1")]


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize(
    ("members", "counted"),
    [
        ({"allocated": 8193}, "8193 bytes allocated, and only 8192 resident"),
        ({"resident": BASE_SIZE + 1}, f"{BASE_SIZE + 1} bytes resident, and only {BASE_SIZE} mapped"),
        ({"n_thp": 7}, f"{7 << 21} bytes in huge pages, and only {BASE_SIZE} mapped"),
    ],
    ids=["allocated", "resident", "n_thp"],
)
def test_bytes_of_a_base(version, members, counted):
    sound = Sound(version)
    base = sound.base(1)
    sound.world.put("base", base, allocated=8192, n_thp=6)
    assert told(sound.problems()) == []
    sound.world.put("base", base, **members)
    message = f"the base of arena 1 counts {counted}"
    assert sound.problems() == [Problem("base", base, message, corruption=True)]
    sound.world.put("base", base, mutex=1)
    assert sound.problems() == [Problem("base", base, f"{message}; in flux: the mutex of its base is held")]


def test_a_block_that_is_no_whole_huge_page_says_that_they_are_smaller():
    sound = Sound("5.3.0")
    sound.world.put("base_block", BASE, size=BASE_SIZE - (1 << 20))
    sound.world.put("base", sound.base(0), n_thp=12)
    assert told(sound.problems()) == []


@pytest.mark.parametrize("version", VERSIONS)
def test_a_slabs_count_and_its_bitmap(version):
    sound = Sound(version)
    slab, bitmap = sound.world.slab, sound.layout["extent"].offset("bitmap")
    sound.world.word(slab + bitmap, 2**64 - 2)
    (problem,) = sound.problems()
    where = f"slab {slab:#x} (for {sound.world.places[0]:#x}) of 8-byte regions, arena 0,"
    assert problem.message == f"{where} counts 509 free regions, its bitmap has 508"
    assert (problem.kind, problem.address, problem.corruption) == ("slab-count", slab, True)


def test_a_slab_of_another_size_than_its_class():
    sound = Sound("5.3.0")
    sound.world.set_bits(sound.world.full, slab=1, szind=4, nfree=0, arena=1)
    messages = [message for kind, message in told(sound.problems()) if kind == "extent"]
    where = f"slab {sound.world.full:#x} (for {sound.world.places[1]:#x}) of 64-byte regions, arena 1,"
    assert messages == [f"{where} has 12288 bytes, its class has slabs of 4096"]


@pytest.mark.parametrize("version", ["5.3.0", "5.3.1"])
def test_a_state_that_there_is_not(version):
    sound = Sound(version)
    sound.world.set_bits(sound.world.dirty, state=7, szind=232, arena=0)
    place = sound.world.places[3]
    messages = [message for kind, message in told(sound.problems()) if kind == "extent"]
    assert messages == [f"extent {sound.world.dirty:#x} (for {place:#x}) is in state 7, which there is not"]


def test_a_bins_current_slab():
    for version in VERSIONS:
        sound = Sound(version)
        place = sound.bin(1, 3)
        for slab, what in (
            (NOWHERE, "which is no extent"),
            (sound.world.large, "which is no slab in use"),
            (sound.world.slab, "a slab of arena 0, class 0"),
        ):
            sound.world.put("bin", place, slabcur=slab)
            messages = [message for kind, message in told(sound.problems()) if kind == "bin-slab"]
            assert messages == [f"the current slab of bin 3 (48 bytes) of arena 1 is {slab:#x}, {what}"]


# -- links ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", VERSIONS)
def test_a_heap_whose_root_leads_elsewhere(version):
    sound = Sound(version)
    root = sound.root(sound.cache("dirty"), PAGES["dirty"] - 1)
    sound.world.word(root, NOWHERE)
    name = "the heap of arena 0's dirty extents"
    assert told(sound.problems()) == [
        ("extent-heap", f"{name}: its head leads to {NOWHERE:#x}, which is no extent"),
        ("extent-heap", f"{name}: {sound.world.dirty:#x} is not in it"),
    ]
    sound.world.word(root, sound.world.large)
    stray = f"{sound.world.large:#x}, an active extent of arena 1, which does not belong there"
    assert told(sound.problems())[0] == ("extent-heap", f"{name}: its head leads to {stray}")
    sound.world.word(root, sound.world.dirty)
    sound.hang(sound.cache("dirty"), 2, sound.world.dirty)
    assert told(sound.problems()) == [("extent-heap", f"{name}: {sound.world.dirty:#x} is held by two links")]


@pytest.mark.parametrize("version", VERSIONS)
def test_links_within_a_heap(version):
    sound = Sound(version)
    sound.link(sound.world.dirty, "heap_child", sound.world.slab)
    (problem,) = sound.problems()
    what = f"the link of {sound.world.dirty:#x} leads to {sound.world.slab:#x}, an active slab of arena 0"
    assert problem.message == f"the heap of arena 0's dirty extents: {what}, which does not belong there"
    assert (problem.address, problem.corruption) == (sound.world.dirty, True)


@pytest.mark.parametrize("version", VERSIONS)
def test_an_extent_in_the_heap_of_another_size(version):
    sound = Sound(version)
    cache, dirty = sound.cache("dirty"), sound.world.dirty
    sound.hang(cache, 1, 0)
    sound.hang(cache, 3, dirty)
    what = f"{dirty:#x} of 8192 bytes hangs in heap 3, its size belongs in heap 1"
    message = f"the heap of arena 0's dirty extents: {what}"
    assert sound.problems() == [Problem("extent-heap", dirty, message, corruption=True)]
    sound.world.put("cache", sound.cache("muzzy"), mutex=1)
    (problem,) = sound.problems()
    assert problem.message == f"{message}; in flux: the mutex of its muzzy extents is held" and not problem.corruption


def test_an_extent_below_one_in_the_heap_of_another_size():
    sound = Sound("5.3.0")
    below = sound.retain(3, 2)
    sound.hang(sound.cache("retained"), 2, 0)
    sound.link(sound.heaps["retained"], "heap_child", below)
    sound.link(below, "heap_prev", sound.heaps["retained"])
    message = f"{below:#x} of 12288 bytes hangs in heap 3, its size belongs in heap 2"
    assert told(sound.problems()) == [("extent-heap", f"the heap of arena 1's retained extents: {message}")]


def test_an_extent_whose_size_is_not_the_trees_hangs_where_its_own_belongs():
    sound = Sound("5.3.0")
    sound.world.enter(sound.world.places[3] + 5 * 4096, sound.world.dirty, 232, 0)
    kinds = {one.kind for one in check_heap(sound.read())}
    assert "extent-size" in kinds and "extent-heap" not in kinds


@pytest.mark.parametrize("version", ["5.3.0", "5.3.1"])
def test_guarded_extents_have_heaps_of_their_own(version):
    sound = Sound(version)
    cache = sound.cache("dirty")
    guarded = sound.world.extent(HEAP + 4096 * 100, 3 * 4096, state=1, szind=232, arena=0, guarded=1)
    sound.ring(guarded)
    sound.world.put("cache", cache, guarded_npages=3, guarded_lru=guarded)
    sound.sums(cache, 2, 5 * 4096)
    sound.hang(cache, 2, guarded, "guarded_")
    assert told(sound.problems()) == []
    sound.world.word(sound.root(cache, 2, "guarded_"), 0)
    sound.world.word(sound.root(cache, 198, "guarded_"), guarded)
    name = "arena 0's guarded dirty extents"
    assert told(sound.problems()) == [
        (
            "extent-heap",
            f"the heap of {name}: {guarded:#x} of 12288 bytes hangs in heap 198, its size belongs in heap 2",
        ),
        ("extent-heap", f"the bitmap of {name} has heap 2 for in use, its root is null"),
        ("extent-heap", f"the bitmap of {name} has heap 198 for empty, its root is {guarded:#x}"),
    ]


# 9, 11 and 13 pages lie between classes: without a pad they go to the one below, with a pad to the one above
@pytest.mark.parametrize(("pad", "other", "heaps"), [(0, 4096, (7, 8, 9)), (4096, 0, (8, 9, 10))], ids=["none", "page"])
@pytest.mark.parametrize("version", VERSIONS)
def test_the_pad_of_large_blocks_moves_extents_by_a_heap(version, pad, other, heaps):
    sound = Sound(version)
    extents = [sound.retain(pages, heap) for pages, heap in zip((9, 11, 13), heaps)]
    heap = sound.read()
    assert heap.location.large_pad is None and told(check_heap(heap)) == []
    location = heap.location
    heap.location = replace(location, large_pad=pad)
    assert told(check_heap(heap)) == []
    heap.location = replace(location, large_pad=other)
    assert [one.address for one in check_heap(heap)] == extents
    sound.hang(sound.cache("retained"), heaps[2], 0)
    sound.hang(sound.cache("retained"), 50, extents[2])
    what = f"{extents[2]:#x} of {13 * 4096} bytes hangs in heap 50, its size belongs in heap {heaps[2]}"
    assert told(sound.problems()) == [("extent-heap", f"the heap of arena 1's retained extents: {what}")]


def test_many_extents_in_heaps_of_other_sizes_are_counted():
    sound = Sound("5.3.0")
    for heap in range(4, 29):
        sound.retain(1, heap)
    messages = [message for _, message in told(sound.problems())]
    more = "the heap of arena 1's retained extents: 5 more extents hang in heaps of other sizes than theirs"
    assert len(messages) == 21 and messages[-1] == more


@pytest.mark.parametrize("version", VERSIONS)
def test_the_bitmap_of_heaps_that_are_not_empty(version):
    sound = Sound(version)
    cache = sound.cache("dirty")
    place = sound.mark(cache, 70, True)
    message = "the bitmap of arena 0's dirty extents has heap 70 for in use, its root is null"
    assert sound.problems() == [Problem("extent-heap", place, message, corruption=True)]
    sound.mark(cache, 70, False)
    place = sound.mark(cache, 1, False)
    message = f"the bitmap of arena 0's dirty extents has heap 1 for empty, its root is {sound.world.dirty:#x}"
    assert sound.problems() == [Problem("extent-heap", place, message, corruption=True)]
    sound.world.put("cache", cache, mutex=1)
    (problem,) = sound.problems()
    assert problem.message == f"{message}; in flux: the mutex of its dirty extents is held" and not problem.corruption


def test_a_bitmap_that_is_wrong_about_many_heaps_is_counted():
    sound = Sound("5.3.0")
    for heap in range(200):
        sound.mark(sound.cache("muzzy"), heap, True)
    messages = [message for _, message in told(sound.problems())]
    assert len(messages) == 21
    assert messages[-1] == "the bitmap of arena 0's muzzy extents is wrong about 179 more heaps"


@pytest.mark.parametrize("version", VERSIONS)
def test_a_layout_without_bitmaps_leaves_them_out(version):
    sound = Sound(version)
    sound.mark(sound.cache("dirty"), 70, True)
    heap = sound.read()
    known = heap.location.layout
    members = {name: one for name, one in known["cache"].members.items() if "bitmap" not in name}
    structs = {**known.structs, "cache": replace(known["cache"], members=members)}
    heap.location = replace(heap.location, layout=replace(known, structs=structs))
    assert told(check_heap(heap)) == []


@pytest.mark.parametrize("version", VERSIONS)
def test_a_list_of_unused_extents(version):
    sound = Sound(version)
    name = "the list of arena 1's retained extents"
    edata = sound.heaps["retained"]
    offset = sound.layout["extent"].offset("lru")
    sound.world.word(edata + offset, NOWHERE)
    what = f"the link of {edata:#x} leads to {NOWHERE:#x}, which is no extent"
    assert told(sound.problems()) == [("extent-list", f"{name}: {what}")]
    sound.world.word(edata + offset, 0)
    assert told(sound.problems()) == [("extent-list", f"{name}: the link of {edata:#x} leads to null")]
    sound.world.word(edata + offset, edata)
    sound.world.word(edata + offset + 8, NOWHERE)
    back = f"{edata:#x} has a link back to another than holds it"
    assert told(sound.problems()) == [("extent-list", f"{name}: {back}")]
    sound.ring(edata)
    sound.world.put("cache", sound.cache("retained"), lru=0)
    assert told(sound.problems()) == [("extent-list", f"{name}: {edata:#x} is not in it")]


@pytest.mark.parametrize("version", VERSIONS)
def test_a_slab_with_free_regions_is_current_or_in_its_bins_heap(version):
    sound = Sound(version)
    sound.world.put("bin", sound.bin(0, 0), slabcur=0)
    if "nonfull_slabs" in sound.layout["bin"]:
        sound.world.put("bin", sound.bin(0, 0), nonfull_slabs=1)
    missing = f"the heap of arena 0's slabs of 8 bytes: {sound.world.slab:#x} is not in it"
    assert told(sound.problems()) == [("extent-heap", missing)]
    sound.world.put("bin", sound.bin(0, 0), nonfull=sound.world.slab)
    assert told(sound.problems()) == []
    sound.world.put("bin", sound.bin(1, 3), nonfull=sound.world.full)
    stray = f"{sound.world.full:#x}, an active slab of arena 1, which does not belong there"
    expected = f"the heap of arena 1's slabs of 48 bytes: its head leads to {stray}"
    assert told(sound.problems()) == [("extent-heap", expected)]


@pytest.mark.parametrize("version", VERSIONS)
def test_lists_of_arenas_that_the_program_made(version):
    sound = Sound(version)
    sound.world.put("bin", sound.bin(1, 3), slabcur=0)
    heap = sound.read()
    heap.arenas = [replace(arena, auto=arena.index == 0) for arena in heap.arenas]
    full, large = sound.world.full, sound.world.large
    assert told(check_heap(heap)) == [
        ("extent-list", f"the list of arena 1's full slabs of 48 bytes: {full:#x} is not in it"),
        ("extent-list", f"the list of arena 1's large blocks: {large:#x} is not in it"),
    ]
    sound.ring(full, link="list")
    sound.ring(large, link="list")
    sound.world.put("bin", sound.bin(1, 3), full=full)
    sound.world.put("arena", sound.world.arenas[1], large=large)
    heap = sound.read()
    heap.arenas = [replace(arena, auto=arena.index == 0) for arena in heap.arenas]
    assert told(check_heap(heap)) == []


# -- thread caches -------------------------------------------------------------------------------------


def cache(*bins, tsd=None, address=BASE):
    return ThreadCache(tsd, address, 0, tuple(bins))


def bin_of(szind, size, *objects):
    return CacheBin(szind, size, np.array(objects, np.uint64))


def test_cached_objects_in_their_places_are_sound():
    sound = Sound()
    slab, full, large = sound.world.places[:3]
    used = [slab + 8 * at for at in (509, 510, 511)]  # the last three regions are not free
    caches = [cache(bin_of(0, 8, *used), bin_of(36, 16384, large + 0x340)), cache(bin_of(3, 48, full, full + 48))]
    assert told(sound.problems(caches)) == []
    assert told(sound.problems([])) == []


def test_an_object_twice_in_one_cache_and_in_two():
    sound = Sound()
    full = sound.world.places[1]
    one = cache(bin_of(3, 48, full, full + 48, full), address=0x111000)
    (problem,) = sound.problems([one])
    where = f"{full:#x} (48 bytes) is 2 times in the thread cache at 0x111000"
    assert problem == Problem("double-free", full, f"{where}: it was freed more than once", True)
    two = [cache(bin_of(3, 48, full), address=at) for at in (0x111000, 0x222000)]
    (problem,) = sound.problems(two)
    where = f"{full:#x} (48 bytes) is 2 times in the thread cache at 0x111000 and the thread cache at 0x222000"
    assert problem.message == f"{where}: it was freed more than once"


def test_many_double_entries_are_counted():
    sound = Sound()
    full = sound.world.places[1]
    objects = [full + 48 * at for at in range(100)]
    problems = sound.problems([cache(bin_of(3, 48, *objects, *objects))])
    assert len(problems) == 21
    assert problems[-1].message == "80 more objects are in caches more than once"


def test_cached_objects_that_cannot_be():
    sound = Sound()
    slab, full, large, dirty = sound.world.places[:4]
    name = "the thread cache at 0x111000"
    for szind, size, address, kind, what in (
        (3, 48, NOWHERE, "tcache-object", "is in no extent that is in use"),
        (3, 48, 0, "tcache-object", "is in no extent that is in use"),
        (3, 48, dirty, "tcache-object", "is in no extent that is in use"),
        (3, 48, full + 47, "tcache-object", "is where no object begins"),
        (36, 16384, large, "tcache-object", "is where no object begins"),
        (4, 64, full + 48, "tcache-size", "is of another class: of 48 bytes"),
        (37, 20480, large + 0x340, "tcache-size", "is of another class: of 16384 bytes"),
        (0, 8, slab, "tcache-free", "is free as its slab has it"),
    ):
        (problem,) = sound.problems([cache(bin_of(szind, size, address), address=0x111000)])
        message = f"{address:#x} in the class of {size} bytes of {name} {what}"
        assert (problem.kind, problem.message, problem.corruption) == (kind, message, True)


def test_many_cached_objects_that_cannot_be_are_counted():
    problems = Sound().problems([cache(bin_of(3, 48, *(NOWHERE + 48 * at for at in range(30))))])
    assert len(problems) == 21
    more = f"10 more cached objects, the first {NOWHERE + 48 * 20:#x}: each is in no extent that is in use"
    assert problems[-1].message == more


# -- in flux and incomplete ----------------------------------------------------------------------------


@pytest.mark.parametrize("version", VERSIONS)
def test_a_held_mutex_excuses_its_bin_alone(version):
    sound = Sound(version)
    sound.world.put("bin", sound.bin(1, 3), curregs=250, mutex=1)
    sound.world.put("bin", sound.bin(0, 0), curregs=250)
    other, excused = sound.problems()
    assert other.corruption and "bin 0 (8 bytes)" in other.message
    expected = "bin 3 (48 bytes) of arena 1 counts 250 regions in use, its slabs say 256"
    assert excused == Problem("bin-count", excused.address, f"{expected}; in flux: the mutex of bin 3 is held")


@pytest.mark.parametrize("version", VERSIONS)
def test_pages_being_moved_excuse_the_arenas_pages(version):
    sound = Sound(version)
    sound.world.put("arena", sound.world.arenas[0], nactive=5)
    assert [problem.corruption for problem in sound.problems()] == [True]
    sound.world.put("cache", sound.cache("muzzy"), mutex=1)
    (problem,) = sound.problems()
    assert problem.message.endswith("in flux: the mutex of its muzzy extents is held") and not problem.corruption
    sound.world.put("cache", sound.cache("muzzy"), mutex=0)
    decay = sound.world.arenas[0] + sound.layout["arena"].offset("decay_dirty")
    sound.world.put("decay", decay, purging=1)
    (problem,) = sound.problems()
    assert problem.message.endswith("in flux: pages are being purged") and not problem.corruption


@pytest.mark.parametrize("version", VERSIONS)
def test_an_extent_being_purged_is_no_active_one(version):
    sound = Sound(version)
    page = HEAP + 100 * 4096
    sound.world.extent(page, 4096, state=0, szind=232, arena=0)
    assert told(sound.problems()) == []
    sound.world.put("cache", sound.cache("dirty"), npages=3)
    (problem,) = sound.problems()
    moving = version in ("5.1.0", "5.2.1")  # later ones have such an extent for guarded blocks, too
    assert problem.message.endswith("in flux: extents are in transition") == moving


def test_large_blocks_being_listed_are_in_flux():
    sound = Sound("5.2.1")
    sound.world.word(sound.large, 3)
    sound.world.put("arena", sound.world.arenas[1], large_mutex=1)
    (problem,) = sound.problems()
    assert problem.message.endswith("in flux: the mutex of its large blocks is held") and not problem.corruption


def test_what_is_in_flux_is_one_problem_in_triage_and_all_in_check():
    sound = Sound("5.3.0")
    for at in (1, 0):
        sound.world.put("bin", sound.bin(at, 3 if at else 0), curregs=250, mutex=at)
    sound.world.put("arena", sound.world.arenas[0], nactive=5)
    sound.world.put("cache", sound.cache("muzzy"), mutex=1)
    target = sound.world.target()
    (location,) = find_jemallocs(target, SILENT).locations
    heap = neutral(read_jemalloc(target, location, SILENT))
    assert len(heap.problems) == 3 and report_check([heap]).problems == heap.problems
    damage, brief = [one for one in make_page(target, [heap], {}).problems if not one.kind.startswith("ledger")]
    assert damage.corruption and damage in heap.problems
    assert brief == Problem(
        "in-flux",
        None,
        "jemalloc was stopped in the middle of its work (the mutex of its muzzy extents is held; the mutex of bin 3 is"
        " held): 2 figures that do not agree for that reason are no damage; `gx jemalloc check` lists them",
    )


def test_one_problem_in_flux_is_counted_it_is_and_many_reasons_are_counted():
    moving = [Problem("bin-count", at, f"counts; in flux: the mutex of bin {at} is held") for at in range(5)]
    assert in_brief(moving[:1]) == moving[:1] and in_brief([]) == []
    (brief,) = in_brief(moving)
    assert "the mutex of bin 2 is held; 2 more): 5 figures" in brief.message and not brief.corruption


class Executable:
    """A memory whose library's first region may be executed."""

    def __init__(self, memory):
        self.memory = memory

    def read(self, address, size):
        return self.memory.read(address, size)

    def regions(self):
        regions = self.memory.regions()
        return [replace(one, permissions="r-x") if one.start == CONSTANTS else one for one in regions]


@pytest.mark.parametrize(
    ("threads", "words"),
    [
        ([Thread(1, 71, "one", BASE, None, {"rip": CONSTANTS + 16})], "thread one is inside jemalloc"),
        ([Thread(1, 71, None, MODULE, None, {"rip": 0})], None),
        ([Thread(1, 71, "one", BASE, None, {"rip": MODULE + 16})], None),
        ([Thread(at, 70 + at, None, BASE, None, {"rip": CONSTANTS}) for at in (1, 2)], "2 threads, 71 among them, are"),
        ([Thread(1, 71, "one", BASE + 0x1000 - 8, None, {"rip": 0})], "thread one is inside jemalloc"),
    ],
    ids=["counter", "nowhere", "data", "two", "stack"],
)
def test_a_thread_inside_jemalloc_excuses(threads, words):
    sound = Sound("5.3.0")
    sound.world.put("arena", sound.world.arenas[0], nactive=5)
    target = sound.world.target()
    (location,) = find_jemallocs(target, SILENT).locations
    if threads[0].stack_pointer == BASE + 0x1000 - 8:
        sound.world.poke(BASE + 0x1000 - 8, (CONSTANTS + 32).to_bytes(8, "little"))
        target = sound.world.target()
    known = replace(target, memory=Executable(target.memory), threads=tuple(threads))
    heap = read_jemalloc(target, location, SILENT)
    heap.target = known
    (problem,) = check_heap(heap)
    assert problem.corruption == (words is None)
    assert words is None or f"in flux: {words}" in problem.message
    heap.target = replace(known, auxv={9: CONSTANTS + 8})
    (problem,) = check_heap(heap)
    part = "in flux: jemalloc is part of the program, a thread may be inside it"
    assert (part in problem.message) == (words is not None)


def test_an_incomplete_heap_is_only_held_to_itself():
    sound = Sound("5.3.0")
    sound.world.put("arena", sound.world.arenas[0], nactive=5)
    sound.world.word(sound.world.slab + sound.layout["extent"].offset("bitmap"), 2**64 - 2)
    heap = sound.read()
    heap.complete = False
    full = sound.world.places[1]
    heap.tcaches = [cache(bin_of(3, 48, full, full, NOWHERE, NOWHERE, 0, 0))]
    assert [kind for kind, _ in told(check_heap(heap))] == ["slab-count", "double-free", "double-free"]


def test_problems_of_one_kind_are_bounded():
    sound = Sound("5.3.0")
    for index in range(36):
        for arena in (0, 1):
            sound.world.put("bin", sound.bin(arena, index), slabcur=NOWHERE)
    problems = [problem for problem in sound.problems() if problem.kind == "bin-slab"]
    assert len(problems) == 51
    assert problems[-1] == Problem("bin-slab", None, "22 more problems of this kind", True)


# -- heaps and rings against a walk one by one ---------------------------------------------------------


def walked_heap(root, links):
    """Return how often each is come to, from the root."""
    met, waiting = [], [root] if root else []
    while waiting:
        at = waiting.pop()
        if at in met or at not in links:
            continue
        met.append(at)
        waiting += [one for one in links[at] if one]
    return met


def random_heap(rng, places):
    links = {place: [0, 0] for place in places}
    back = dict.fromkeys(places, 0)
    if not places:
        return 0, links, back
    linked = [places[0]]
    for place in places[1:]:
        while True:
            source, which = rng.choice(linked), rng.randrange(2)
            if not links[source][which]:
                break
        links[source][which], back[place] = place, source
        linked.append(place)
    return places[0], links, back


def test_heaps_of_any_form_hold_and_every_cut_is_found():
    rng = random.Random(3)
    for _ in range(200):
        places = [4096 + 128 * at for at in rng.sample(range(1000), rng.randrange(40))]
        root, links, back = random_heap(rng, places)
        columns = lambda: [np.array([links[one][at] for one in places], np.uint64) for at in (0, 1)]  # noqa: B023, E731
        members = Members(np.array(places, np.uint64), np.zeros(len(places), np.int64))
        backs = np.array([back[one] for one in places], np.uint64)
        heads, groups = np.array([root], np.uint64), np.zeros(1, np.int64)
        sound = check_heaps(members, columns(), backs, heads, groups)
        assert not (sound.strays or sound.shared or sound.missing or sound.backwards)
        inner = [(one, at) for one in places for at in (0, 1) if links[one][at]]
        if not inner:
            continue
        source, which = rng.choice(inner)
        links[source][which] = rng.choice([0, *places])
        verdict = check_heaps(members, columns(), backs, heads, groups)
        lost = {*places} - {*walked_heap(root, links)}
        assert {place for _, place in verdict.missing} <= lost  # those below one that is missing are not told
        assert bool(lost) <= bool(verdict.missing or verdict.shared)


def test_rings_of_any_form_hold_and_every_cut_is_found():
    rng = random.Random(4)
    for _ in range(200):
        places = [4096 + 128 * at for at in rng.sample(range(1000), rng.randrange(2, 40))]
        following = {one: places[(at + 1) % len(places)] for at, one in enumerate(places)}
        back = np.array([places[at - 1] for at in range(len(places))], np.uint64)
        members = Members(np.array(places, np.uint64), np.zeros(len(places), np.int64))
        heads, groups = np.array([rng.choice(places)], np.uint64), np.zeros(1, np.int64)

        def column():
            return np.array([following[one] for one in places], np.uint64)  # noqa: B023

        sound = check_rings(members, column(), back, heads, groups)
        assert not (sound.strays or sound.shared or sound.missing or sound.backwards)
        cut = rng.choice(places)
        following[cut] = rng.choice([one for one in places if one != following[cut]])
        verdict = check_rings(members, column(), back, heads, groups)
        assert verdict.shared
        following[cut] = 64
        (stray,) = check_rings(members, column(), back, heads, groups).strays
        assert (stray.source, stray.value) == (cut, 64)


def test_a_cycle_that_hangs_on_nothing_is_missing():
    places = np.array([128, 256, 384], np.uint64)
    members = Members(places, np.zeros(3, np.int64))
    following = np.array([0, 384, 256], np.uint64)
    none = np.zeros(3, np.uint64)
    verdict = check_heaps(members, [following, none], none, places[:1], np.zeros(1, np.int64))
    assert verdict.missing == [(0, 256), (0, 384)]
    ring = np.array([128, 384, 256], np.uint64)
    verdict = check_rings(members, ring, ring, places[:1], np.zeros(1, np.int64))
    assert verdict.missing == [(0, 256), (0, 384)] and not verdict.strays
