"""The reports on a jemalloc that was laid out by hand: what is unknown, several heaps, filters."""

from dataclasses import asdict, replace

import numpy as np
import pytest

from gdbext.errors import UsageError
from gdbext.heap.jemalloc.decay.state import ArenaDecay, Clock, Decay, DecayView, Ticker
from gdbext.heap.jemalloc.decay.tickers import ticker_of
from gdbext.heap.jemalloc.find.globals import find_jemallocs
from gdbext.heap.jemalloc.model import CacheBin, ThreadCache, TsdKind, TsdState
from gdbext.heap.jemalloc.read.build import read_jemalloc
from gdbext.heap.jemalloc.report import decay
from gdbext.heap.jemalloc.report.arenas import arenas
from gdbext.heap.jemalloc.report.bins import bins
from gdbext.heap.jemalloc.report.check import check
from gdbext.heap.jemalloc.report.extents import STATES, extents, states_named
from gdbext.heap.jemalloc.report.large import large
from gdbext.heap.jemalloc.report.tcache import tcache
from gdbext.heap.model import Blocks, Heap
from gdbext.progress import SILENT
from gdbext.render.textual import text
from gdbext.report import Confidence, Finding, Problem, Severity, ThreadRef
from tests.support.jeworld import laid

PAGE = 4096


def heap_of(world, name="jemalloc", **changed):
    target = world.target()
    (location,) = find_jemallocs(target, SILENT).locations
    detail = read_jemalloc(target, location, SILENT)
    detail.tcaches = ()
    for key, value in changed.items():
        setattr(detail, key, value)
    return Heap(name, Blocks.empty(), (), detail=detail)


@pytest.fixture
def heap():
    return heap_of(laid())


def shown(report, **how):
    return "".join(text(report, exact=False, limit=None, **how))


def rows(report, table):
    return list(getattr(report.data, table))


def cache(tsd, szind, size, *objects, arena=0):
    held = CacheBin(szind, size, np.array(objects, np.uint64), most=7, low_water=0)
    return ThreadCache(tsd, 0x1000, arena, (held,) if objects else ())


def tsd_of(number, arena=0, **fields):
    thread = None if number is None else ThreadRef(number, 100 + number, f"worker-{number}")
    state = fields.pop("state", TsdKind.NOMINAL)
    return TsdState(0x900 + (number or 0), thread, 0, state, arena, 0, True, 0, 0, **fields)


# ---- arenas ----


def test_the_pages_of_arenas(heap):
    first, second = rows(arenas([heap]), "arenas")
    assert (first.dirty, first.muzzy, first.retained) == (0, 0, 0)  # its counters say so
    assert (first.small, first.large, first.allocated) == (24, 0, 24)
    assert first.fragmentation == first.active - 24
    assert (first.heap, first.index, second.index) == ("jemalloc", 0, 1)


def test_totals_are_sums_of_the_rows(heap):
    report = arenas([heap, heap_of(laid("5.1.0"), "other")])
    totals = asdict(report.data.totals)
    assert totals.pop("arenas") == len(report.data.arenas) == 4
    for name, value in totals.items():
        assert value == sum(getattr(row, name) for row in report.data.arenas), name


def test_what_a_build_without_statistics_does_not_count(heap):
    detail = heap.detail
    silent = {"stats": False, "internal": None, "mapped": None, "resident": None}
    detail.arenas = [replace(one, **silent, base=replace(one.base, allocated=None)) for one in detail.arenas]
    report = arenas([heap])
    row, totals = report.data.arenas[0], report.data.totals
    assert (row.metadata, row.mapped, row.resident, totals.metadata, totals.mapped) == (None,) * 5
    assert (row.small, row.allocated) == (24, 24)
    assert "built without statistics" in shown(report)
    assert rows(bins([heap]), "bins")[0].curregs is None
    assert [one.nmalloc for one in large([heap]).data.classes] == [None]


def test_caches_that_could_not_be_found_are_not_nothing(heap):
    heap.detail.tcaches = None
    assert arenas([heap]).data.totals.tcache_bytes is None
    assert bins([heap]).data.tcache_regions is None
    report = large([heap])
    assert report.data.tcache_blocks is None and [one.cached for one in report.data.largest] == [None]
    assert check([heap]).data.tcache_objects is None
    told = tcache([heap])
    assert (told.data.objects, told.data.threads, told.data.classes) == (None, None, None)
    assert "could not be found" in shown(told) and "Caches: ?" in shown(told)


def test_of_two_heaps_one_without_caches_leaves_no_sum(heap):
    other = heap_of(laid(), "other", tcaches=None)
    heap.detail.tcaches = [cache(None, 0, 8, heap.detail.extents.address[0])]
    report = tcache([heap, other])
    assert (report.data.objects, report.data.bytes, len(report.data.threads)) == (None, None, 1)
    assert arenas([heap, other]).data.totals.tcache_bytes is None


# ---- bins ----


def test_bins_by_arena_add_up(heap):
    slab, full = (int(heap.detail.extents.address[at]) for at in (0, 1))
    heap.detail.tcaches = [cache(None, 0, 8, slab, slab + 8), cache(None, 3, 48, full)]
    whole = bins([heap]).data
    parts = [bins([heap], index).data for index in (0, 1)]
    for name in ("slabs", "used_regions", "total_regions", "empty_bytes", "tcache_regions", "tcache_bytes"):
        assert getattr(whole, name) == sum(getattr(part, name) for part in parts), name
    assert (parts[0].arena, parts[1].arena, whole.arena) == (0, 1, None)
    assert [(row.index, row.used_regions, row.tcache_regions) for row in whole.bins] == [(0, 3, 2), (3, 256, 1)]
    assert whole.bins[0].empty_bytes == (PAGE // 8 - 3) * 8
    assert whole.bins[1].utilisation == 1


def test_an_arena_may_be_named_by_its_address(heap):
    address = heap.detail.arenas[1].address
    assert bins([heap], address).data == bins([heap], 1).data


@pytest.mark.parametrize("of", [bins, lambda heaps, arena: extents(heaps, None, arena)])
def test_an_arena_that_there_is_not(heap, of):
    for arena, words in ((2, "no arena 2"), (0x7F0000001234, "no arena at 0x7f0000001234")):
        with pytest.raises(UsageError, match=words) as caught:
            of([heap], arena)
        assert caught.value.hint == "there are 2: 0, 1"


# ---- extents ----


def test_states_part_all_extents(heap):
    whole = extents([heap])
    each = [extents([heap], (state,)) for state in STATES]
    assert sum(report.data.matching for report in each) == whole.data.matching == 6
    assert sum(report.data.bytes for report in each) == whole.data.bytes == 16 * PAGE
    found = sorted((row.address for report in each for row in report.data.extents))
    assert found == [row.address for row in whole.data.extents]
    assert [(row.state, row.extents, row.bytes) for row in whole.data.states] == [
        ("active", 3, 9 * PAGE),
        ("dirty", 1, 2 * PAGE),
        ("muzzy", 1, PAGE),
        ("retained", 1, 4 * PAGE),
    ]


def test_extents_say_what_they_are_used_for(heap):
    slab, full, block, *unused = rows(extents([heap]), "extents")
    assert (slab.use, slab.nfree, slab.nregs, slab.class_bytes) == ("slab of 8 bytes, 509 of 512 free", 509, 512, 8)
    assert full.use == "slab of 48 bytes, 0 of 256 free"
    assert block.use == "large, 16384 bytes" and (block.slab, block.nfree) == (False, None)
    assert [(row.use, row.szind, row.class_bytes, row.nregs) for row in unused] == [("", None, None, None)] * 3


def test_a_state_that_there_is_not_is_unknown(heap):
    heap.detail.extents.state[3] = 7
    report = extents([heap], ("unknown",))
    (row,) = report.data.extents
    assert (row.state, row.use, report.data.matching) == ("unknown", "", 1)


def test_words_that_are_no_state():
    assert states_named("dirty, muzzy") == ("dirty", "muzzy")
    for words in ("usde", "", "dirty,"):
        with pytest.raises(UsageError, match="no state") as caught:
            states_named(words)
        assert caught.value.hint.startswith("the states are active, dirty, muzzy, retained")


def test_no_extent_at_all(heap):
    heap.detail.extents = heap.detail.extents.select(np.zeros(6, bool))
    heap.detail.tcaches = [cache(None, 0, 8, 0x1234)]
    for report in (extents([heap]), large([heap]), bins([heap]), check([heap])):
        assert "extents" in shown(report) or "Bins" in shown(report)


# ---- large ----


def test_large_blocks_the_largest_first(heap):
    other = heap_of(laid("5.2.1"), "other")
    other.detail.extents.usable[2] += 1
    heap.detail.tcaches = [cache(None, 36, 16384, heap.detail.extents.pointer[2])]
    report = large([heap, other])
    found = rows(report, "largest")
    assert [(row.heap, row.cached) for row in found] == [("other", False), ("jemalloc", True)]
    assert found[1].address == found[1].extent + 0x340
    assert [(row.heap, row.szind, row.blocks, row.tcache_blocks) for row in report.data.classes] == [
        ("jemalloc", 36, 1, 1),
        ("other", 36, 1, 0),
    ]


# ---- thread caches ----


def test_caches_of_threads_and_of_nobody(heap):
    arena = heap.detail.arenas[1].address
    heap.detail.tcaches = [
        cache(tsd_of(3), 0, 8, 1, 2, 3, arena=arena),
        cache(None, 3, 48, 4),
        cache(tsd_of(None), 1, 16),
    ]
    report = tcache([heap])
    assert [(row.number, row.arena, row.classes, row.objects, row.bytes) for row in report.data.threads] == [
        (3, 1, 1, 3, 24),
        (None, None, 1, 1, 48),
        (None, None, 0, 0, 0),
    ]
    assert (report.data.objects, report.data.bytes) == (4, 72)
    only = tcache([heap], 3).data
    assert (only.objects, [row.szind for row in only.classes]) == (3, [0])
    assert tcache([heap], 4).data.objects == 0
    first = arenas([heap]).data
    assert [row.tcache_bytes for row in first.arenas] == [0, 24]


# ---- decay ----


def view_of(detail, now=5_000_000_000, tickers=()):
    def decay(kind, state):
        age = None if now is None else 3_000_000
        return Decay(kind, state, 7, None if now is None else 2, age, False)

    both = [
        ArenaDecay(one, decay("dirty", one.decay_dirty), decay("muzzy", one.decay_muzzy)) for one in detail.arenas
    ]
    return DecayView(Clock(now, "newest epoch" if now else "no time was found"), both, tickers)


def test_decay_of_every_arena_and_thread(heap, monkeypatch):
    arena = heap.detail.arenas[0].address
    tickers = [
        Ticker(tsd_of(2, arena), False, False, "its first call was free()"),
        Ticker(tsd_of(None), None, None, "unreadable"),
    ]
    monkeypatch.setattr(decay, "read_decay", lambda detail: view_of(detail, tickers=tickers))
    report = decay.decay([heap])
    assert not report.findings
    first = report.data.arenas[0]
    assert (first.dirty.npages, first.dirty.allowed_npages, first.dirty.epoch_age_ns) == (7, 2, 3_000_000)
    assert (first.dirty.sweeps, first.dirty.advanced) == (0, False)
    assert [(row.number, row.arena, row.ticker, row.can_fire) for row in report.data.threads] == [
        (2, 0, False, False),
        (None, None, None, None),
    ]
    assert [(row.index, row.kind, row.bytes, row.epoch_age) for row in report.data.shown][:2] == [
        (0, "dirty", 7 * PAGE, 3),
        (0, "muzzy", 7 * PAGE, 3),
    ]
    assert "its first call was free()" in shown(report) and "Findings" not in shown(report)


def test_threads_that_never_used_jemalloc_are_one_line_of_text(heap, monkeypatch):
    unused = [ticker_of(tsd_of(at, state=TsdKind.UNINITIALIZED, ticks=1000)) for at in range(3, 200)]
    tickers = [ticker_of(tsd_of(2, ticks=7)), *unused]
    monkeypatch.setattr(decay, "read_decay", lambda detail: view_of(detail, tickers=tickers))
    report = decay.decay([heap])
    told = {(row.ticker, row.can_fire, row.ticks, row.why) for row in report.data.threads[1:]}
    assert told == {(False, True, None, "it has not used this jemalloc yet")}
    assert (report.data.threads[0].ticker, report.data.threads[0].ticks) == (True, 7)
    assert len(report.data.threads) == 198
    page = shown(report)
    assert "never used jemalloc: 197 threads" in page and "uninitialized" not in page and "worker-2" in page


@pytest.mark.parametrize(("background", "told"), [(True, True), (False, False), (None, False)])
def test_a_background_thread_is_told(heap, monkeypatch, background, told):
    monkeypatch.setattr(decay, "read_decay", lambda detail: replace(view_of(detail), background=background))
    assert ("jemalloc has background threads switched on" in shown(decay.decay([heap]))) == told


def test_pages_that_came_since_the_last_step_are_told(heap, monkeypatch):
    monkeypatch.setattr(decay, "read_decay", view_of)
    report = decay.decay([heap])
    noted = heap.detail.arenas[0].decay_dirty.nunpurged
    assert report.data.shown[0].new == report.data.arenas[0].dirty.new_npages == max(7 - noted, 0)
    header = next(line for line in shown(report).splitlines() if "allowed" in line)
    assert "  new  allowed  " in header


def test_without_a_clock_nothing_is_allowed_or_forbidden(heap, monkeypatch):
    monkeypatch.setattr(decay, "read_decay", lambda detail: view_of(detail, None, None))
    finding = Finding("decay-stalled", Severity.WARNING, Confidence.LOW, "pages stay")
    report = decay.decay([heap], [finding])
    assert report.findings and "decay-stalled" in shown(report)
    dirty = report.data.arenas[0].dirty
    assert (dirty.allowed_npages, dirty.epoch_age_ns, report.data.threads) == (None, None, None)
    assert report.data.heaps[0].now is None and "Threads: ?" in shown(report)


# ---- check, several ----


def test_damage_by_kind():
    problems = [
        Problem("slab-count", 0x10, "slab 0x10: 3, 4", corruption=True),
        Problem("absent-memory", None, "not in the core"),
        Problem("slab-count", 0x20, "slab 0x20: 5, 6", corruption=True),
        Problem("extent-state", None, "a state", corruption=True),
    ]
    heap = replace(heap_of(laid()), problems=problems)
    report = check([heap])
    assert report.findings and report.data.corrupt == 3
    assert [(row.kind, row.count) for row in report.data.kinds] == [("slab-count", 2), ("extent-state", 1)]
    assert [row.address for row in report.data.damage] == [0x10, 0x20, None]
    assert (report.data.arenas, report.data.extents, report.data.slabs) == (2, 6, 2)
    assert report.problems == problems
    healthy = check([heap_of(laid())])
    assert not healthy.findings and "Damage: none" in shown(healthy)


def test_rows_of_several_heaps_are_told_apart(heap, monkeypatch):
    monkeypatch.setattr(decay, "read_decay", view_of)
    other = heap_of(laid("5.1.0"), "jemalloc libtwo.so.2")
    heap.detail.tcaches = other.detail.tcaches = [cache(tsd_of(3), 0, 8, 1, 2, 3)]
    for report in (arenas, bins, extents, large, tcache, decay.decay):
        alone, both = shown(report([heap])), shown(report([heap, other]))
        assert "libtwo" in both, report
        assert " heap " not in f" {alone} ".replace("\n", " "), report
        assert max(map(len, both.splitlines())) <= 100
