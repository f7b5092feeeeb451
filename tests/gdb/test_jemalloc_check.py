"""Thread caches against what the program left in them; ``check``, on sound heaps and on spoilt ones."""

from __future__ import annotations

import pytest

from gdbext.heap.jemalloc.check.check import check_heap
from tests.support.jecompare import differences
from tests.support.jedamage import ARENA, BIN, CHECKED, DAMAGES, UNPURGED
from tests.support.jemallocs import VERSIONS
from tests.support.jeread import read
from tests.support.jestages import JeBoard

CONFS = (
    ("5.1.0", "tcache:false"),
    ("5.2.1", "narenas:1"),
    ("5.3.0", "background_thread:true"),
    ("5.3.1", "percpu_arena:percpu,dirty_decay_ms:0"),
    ("5.1.0", "muzzy_decay_ms:-1,dirty_decay_ms:0"),
    ("5.2.1", "bin_shards:1-160:16|129-512:4"),
    ("5.3.0", "hpa:true"),
    ("5.3.1", "hpa:true,tcache:false,hpa_sec_nshards:2"),
    ("5.3.0", "san_guard_large:1,san_guard_small:16"),
    ("5.3.0", "lg_tcache_max:20"),
    ("5.3.1", "disable_large_size_classes:true,retain:false"),
    ("5.3.1", "cache_oblivious:false,metadata_thp:always"),
    pytest.param("5.2.1-vaddr57", "", marks=pytest.mark.full),
    ("5.1.0-nostats", ""),
    ("debian", "prof:true,lg_prof_sample:12"),
)
# what each damage is told as, and part of what is said
EXPECTED = {
    "nfree": ("slab-count", "of 80-byte regions, arena 1, counts"),
    "state": ("bin-slab", "which is no slab in use"),
    "szind": ("extent", "is a slab of no small size class"),
    "owner": ("extent", "is of an arena that there is not"),
    "moved": ("extent", "does not begin at the page that leads to it"),
    "bitmap": ("slab-count", "free regions, its bitmap has"),
    "slabcur": ("bin-slab", "is 0x123456789000, which is no extent"),
    "nactive": ("extent-count", "arena 1 counts {after} active pages, the radix tree has {before}"),
    "npages": ("extent-count", "arena 1 counts {after} dirty pages, the radix tree has {before}"),
    "curregs": ("bin-count", "counts {after} regions in use, its slabs say {before}"),
    "curslabs": ("bin-count", "counts {after} slabs, its slabs say {before}"),
    "link": ("extent-list", "the list of arena 1's dirty extents: the link of"),
    "base": ("arena", "whose base->ind is not 1"),
    "arena": ("arena", "arenas[1] is 0x123456789000"),
    "sibling": ("extent-heap", "the heap of arena 1's dirty extents: the link of"),
    "root": ("extent-heap", "the heap of arena 1's slabs of 80 bytes: its head leads to 0x123456789000"),
    "large": ("large-count", "arena 1 counts"),
    "heaps": ("extent-heap", "the bitmap of arena 1's dirty extents has heap 60 for"),
    "object": ("tcache-object", "{after:#x} in the class of 80 bytes of thread 1's cache is where no object begins"),
    "cached": ("tcache-count", "class 5 (80 bytes) has"),
}


def caches_of(here, heap):
    """Return what each thread's cache holds, by tid: usable bytes by address."""
    assert heap.tcaches is not None
    threads = [one for one in heap.tcaches if one.thread is not None]
    assert len({one.address for one in heap.tcaches}) == len(heap.tcaches)
    return {one.thread.lwp: held_by(one) for one in threads}


def held_by(cache):
    return {int(place): one.size for one in cache.bins for place in one.objects.tolist()}


def messages(heap):
    return [problem.message for problem in check_heap(heap)]


@pytest.mark.parametrize("part", ["jemalloc", None], ids=["names", "structure"])
@pytest.mark.parametrize("version", VERSIONS)
def test_caches_hold_what_the_program_left_in_them(jestages, version, part):
    here = jestages(JeBoard("core", "debug", version), "jemalloc_zoo", "--arenas=2", "--tcaches=3")
    heap = read(here, part)
    assert messages(heap) == []
    held = caches_of(here, heap)
    workers = here.je.tids_with("worker")
    assert {tid: held[tid] for tid in workers} == {tid: here.je.cached_by(tid) for tid in workers}
    assert all(len(held[tid]) > 20 for tid in workers)
    made = {number for number in range(16) if here.je.cached_by(number)}
    own = [held_by(one) for one in heap.tcaches if one.tsd is None]
    assert len(made) == here.truth.details["caches_made"] == 3
    known = [one for one in own if one]
    assert sorted(map(sorted, known)) == sorted(sorted(here.je.cached_by(number)) for number in made)
    assert all(one in known for one in map(here.je.cached_by, made))


@pytest.mark.parametrize("version", VERSIONS)
def test_bytes_in_caches_are_jemallocs(jestages, version):
    here = jestages(JeBoard("core", "debug", version), "jemalloc_zoo", "--arenas=2")
    heap = read(here)
    small_only = version in ("5.1.0", "5.2.1")  # their tcache_bytes takes large classes from the wrong bins
    total = 0
    for arena in heap.arenas:
        own = [one for cache in heap.tcaches if cache.arena == arena.address for one in cache.bins]
        ours = sum(one.bytes for one in own if not small_only or one.szind < heap.location.nbins)
        assert ours == here.je.arena_stats[arena.index]["tcache_bytes"], arena.index
        total += ours
    assert total > 0


@pytest.mark.parametrize(("build", "conf"), CONFS, ids=str)
def test_sound_heaps_have_no_problems(jestages, build, conf):
    here = jestages(JeBoard("core", "debug", build), "jemalloc_zoo", "--arenas=2", "--hooks", "--tcaches=1", conf=conf)
    heap = read(here)
    assert messages(heap) == []
    if "tcache:false" in conf:
        assert caches_of(here, heap) == {}
    elif "prof" not in conf:  # sampled blocks are freed as large ones
        held = caches_of(here, heap)
        assert all(held[tid] == here.je.cached_by(tid) for tid in here.je.tids_with("worker"))


def test_what_is_left_of_regions_of_guarded_slabs_is_no_damage(jestages):
    """Many slabs in one arena use up regions, whose rests stay in the radix tree; their own figures are jemalloc's."""
    conf = "san_guard_small:1,narenas:1"
    here = jestages(JeBoard("core", "debug", "5.3.0"), "jemalloc_zoo", "--threads=24", conf=conf)
    heap = read(here)
    assert messages(heap) == []
    (region,) = differences(heap, here.je)  # the region in use, which jemalloc counts nowhere
    assert region.startswith("arena 0 other pages: ") and region.endswith(", jemalloc says 0")


@pytest.mark.parametrize("version", VERSIONS)
def test_a_block_freed_twice_is_named_with_its_cache(jestages, version):
    here = jestages(JeBoard("core", "debug", version), "jemalloc_zoo", "--double")
    heap = read(here)
    (problem,) = check_heap(heap)
    doubled = int(here.truth.details["doubled"], 16)
    assert (problem.kind, problem.address, problem.corruption) == ("double-free", doubled, True)
    owner = next(cache.thread for cache in heap.tcaches if doubled in held_by(cache))
    workers = [one["tid"] for one in here.je.threads if one["role"] == "worker"]
    assert owner.lwp in workers
    where = f"{doubled:#x} (48 bytes) is 2 times in thread {owner.number}'s cache"
    assert problem.message == f"{where}: it was freed more than once"


@pytest.mark.parametrize(
    ("turn", "damage"), list(enumerate([*DAMAGES, *(name for name in CHECKED if name != "held")])), ids=str
)
def test_damage_is_found_and_its_place_named(jestages, turn, damage):
    version = VERSIONS[turn % len(VERSIONS)]
    here = jestages(JeBoard("gcore", "debug", version), "jemalloc_zoo", "--threads=2", conf=UNPURGED, damage=(damage,))
    (told,) = here.damage
    kind, part = EXPECTED[damage]
    heap = read(here)
    found = [problem for problem in check_heap(heap) if problem.kind == kind and problem.corruption]
    wanted = part.format(**told)
    (problem,) = [problem for problem in found if wanted in problem.message]
    if damage in ("nfree", "bitmap", "link", "sibling"):
        assert problem.address is not None and 0 <= told["address"] - problem.address < 128
        assert f"{problem.address:#x}" in problem.message
    if kind.startswith(("bin", "slab")):
        assert f"arena {ARENA}" in problem.message


@pytest.mark.parametrize("version", VERSIONS)
def test_a_bin_whose_mutex_is_held_is_in_flux(jestages, version):
    board = JeBoard("gcore", "debug", version)
    here = jestages(board, "jemalloc_zoo", "--threads=2", damage=("curregs", "held"))
    (problem,) = check_heap(read(here))
    assert problem.kind == "bin-count" and not problem.corruption
    assert problem.message.endswith(f"in flux: the mutex of bin {BIN} is held")
