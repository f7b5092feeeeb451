from dataclasses import replace

import numpy as np
import pytest

from gdbext.analysis.footprint.fragmentation import find_fragmentation, find_pattern, pin_classes
from gdbext.analysis.footprint.residency import PageResidency
from gdbext.analysis.footprint.runs import find_runs
from gdbext.analysis.thresholds import thresholds
from gdbext.heap.model import State
from gdbext.memory.intervals import Coverage
from gdbext.report import Confidence, Problem

KB, MB = 1 << 10, 1 << 20
LIVE, LARGE, TOP, TCACHE = State.IN_USE, State.LARGE, State.TOP, State.TCACHE
START = 0x10000000


def findings(maker, residency=None, skip=(), settings=None, **extra):
    target = maker.target()
    heap = maker.heap(**extra)
    return list(find_fragmentation(heap, target, thresholds(settings or {}, target), residency, skip))


def shrunk(buffers, asked, kept):
    """Chunks of buffers of ``asked`` bytes that were reallocated down to ``kept``."""
    whole = (asked + 8 + 15) // 16 * 16
    for number in range(buffers):
        left = kept(number) if callable(kept) else kept
        head = max((left + 8 + 15) // 16 * 16, 32)
        yield left, LIVE
        yield whole - head - 8, LARGE


def test_shrink_realloc_as_journald_did(maker):
    maker.span(START, [*shrunk(50, 4 * MB, 4 * KB), (100, LIVE), (64 * KB, TOP)])
    (finding,) = findings(maker, remedies={"shrink-realloc": "copy it"})
    assert finding.kind == "shrink-realloc"
    assert finding.confidence is Confidence.HIGH
    assert finding.bytes == pytest.approx(50 * (4 * MB - 4 * KB), rel=0.001)
    assert "50 live blocks of about 4 KiB each stand before a free run of about 4 MiB" in finding.summary
    assert "buffers of 4 MiB" in finding.summary
    assert finding.remedy == "copy it"


def test_shrink_realloc_to_various_sizes_from_an_odd_one(maker):
    odd = 3_000_017
    maker.span(START, [*shrunk(20, odd, lambda n: 500 + 160 * n), (100, LIVE), (64 * KB, TOP)])
    (finding,) = findings(maker)
    assert (finding.kind, finding.confidence) == ("shrink-realloc", Confidence.HIGH)


def test_shrink_realloc_survives_holes_that_were_taken_since(maker):
    chunks = list(shrunk(40, 4 * MB, 4 * KB))
    chunks[1:2] = [(64, LIVE), (4 * MB - 9 * KB, LARGE)]
    maker.span(START, [*chunks, (100, LIVE), (64 * KB, TOP)])
    assert [finding.kind for finding in findings(maker)] == ["shrink-realloc"]


def test_buffers_freed_after_copying_are_silent(maker):
    maker.span(START, [*[(4 * KB, LIVE)] * 50, (200 * MB, TOP)])
    assert findings(maker) == []


def test_first_of_two_waves_freed(maker):
    maker.span(START, [(100 * MB, LARGE), *[(1000, LIVE)] * 100_000, (64 * KB, TOP)])
    (finding,) = findings(maker, largest_block=128 * KB)
    assert (finding.kind, finding.confidence) == ("fragmentation", Confidence.HIGH)
    assert finding.bytes == pytest.approx(100 * MB, rel=0.001)
    assert "1 run under live blocks" in finding.summary
    assert any("pinned by the live block" in line and "1000 bytes" in line for line in finding.evidence)
    assert any("64 MiB to 128 MiB: 1 run" in line for line in finding.evidence)
    assert any(line.startswith("highest live block") for line in finding.evidence)


def test_second_of_two_waves_freed_is_silent(maker):
    maker.span(START, [*[(1000, LIVE)] * 100_000, (100 * MB, TOP)])
    assert findings(maker, largest_block=128 * KB) == []


def test_wave_freed_around_survivors_of_one_size_is_no_realloc(maker):
    chunks = [(1000, LIVE), (99 * 1008 - 8, LARGE)] * 1000
    maker.span(START, [*chunks, (100, LIVE), (64 * KB, TOP)])
    (finding,) = findings(maker, largest_block=128 * KB)
    assert finding.kind == "fragmentation"
    assert "in 1 000 runs" in finding.summary


def test_two_sizes_taken_in_turn_are_no_realloc(maker):
    maker.span(START, [*[(4 * KB, LIVE), (64 * KB, LARGE)] * 1000, (100, LIVE), (64 * KB, TOP)])
    assert [finding.kind for finding in findings(maker)] == ["fragmentation"]


def test_one_cached_buffer_is_silent(maker):
    maker.span(START, [*[(1000, LIVE)] * 60_000, (30 * MB, LARGE), *[(500, LIVE)] * 5, (64 * KB, TOP)])
    assert findings(maker) == []
    assert findings(maker, largest_block=32 * MB) == []


def test_holes_of_a_long_lived_heap_are_silent(maker):
    random = np.random.default_rng(5)
    sizes = random.integers(16, 2000, 200_000)
    free = random.random(200_000) < 0.13
    maker.span(START, [*zip(sizes.tolist(), np.where(free, LARGE, LIVE).tolist()), (20 * MB, TOP)])
    assert findings(maker, largest_block=128 * KB) == []


def test_small_heaps_are_silent_below_the_floor(maker):
    maker.span(START, [*[(1000, LIVE), (20_000, LARGE)] * 150, (100, LIVE), (1000, TOP)])
    assert findings(maker, largest_block=128 * KB) == []
    assert findings(maker, largest_block=128 * KB, settings={"min-finding-floor": MB})


def test_arenas_accounted_for_elsewhere_are_left_out(maker):
    maker.span(START, [(1000, LIVE), (64 * KB, TOP)])
    maker.span(0x7F0000000000, [(50 * MB, LARGE), (100, LIVE), (KB, TOP)], "heap", 1)
    assert findings(maker, largest_block=KB)
    assert findings(maker, largest_block=KB, skip={1}) == []


def test_pages_given_back_already_cost_nothing(maker):
    end = maker.span(START, [(100 * MB, LARGE), *[(1000, LIVE)] * 10_000, (64 * KB, TOP)])
    low = START + 100 * MB
    some = PageResidency(Coverage(np.array([low], np.uint64), np.array([end], np.uint64)), ())
    assert findings(maker, some, largest_block=128 * KB) == []
    everything = PageResidency(Coverage(np.array([START], np.uint64), np.array([end], np.uint64)), ())
    (finding,) = findings(maker, everything, largest_block=128 * KB)
    assert any(line.startswith("in RAM: 100 MiB") for line in finding.evidence)


def test_damaged_heaps_are_told_with_less_confidence(maker):
    maker.span(START, [(100 * MB, LARGE), *[(1000, LIVE)] * 1000, (64 * KB, TOP)])
    damage = [Problem("chunk-size", START, "bad", True)]
    (finding,) = findings(maker, largest_block=128 * KB, problems=damage)
    assert finding.confidence is Confidence.MEDIUM


def test_empty_heap(maker):
    assert findings(maker) == []


@pytest.mark.parametrize("size", [2**64 - 1, 2**63, 0])
def test_hostile_sizes_end_in_an_answer(maker, size):
    maker.span(START, [(1000, LIVE), (1000, LARGE)] * 50)
    heap, target = maker.heap(), maker.target()
    sizes = np.where(heap.blocks.state == LARGE, np.uint64(size), heap.blocks.size)
    bad = replace(heap, blocks=replace(heap.blocks, size=sizes))
    for finding in find_fragmentation(bad, target, thresholds({}, target)):
        assert finding.kind in ("fragmentation", "shrink-realloc")


def runs_of(maker):
    heap = maker.heap()
    return heap, find_runs(heap, 4096)[0]


def test_neighbouring_free_blocks_are_one_run_and_cached_ones_split(maker):
    kinds = [LIVE, State.FASTBIN, State.FREE, TCACHE, State.SMALL, LIVE, State.UNSORTED, TOP]
    maker.span(START, [(1000, kind) for kind in kinds])
    _, runs = runs_of(maker)
    assert runs.bytes.tolist() == [2000, 1000, 1000]
    assert runs.before.tolist() == [0, 3, 5]
    assert runs.after.tolist() == [3, 5, -1]
    assert runs.pinned.tolist() == [True, True, False]


def test_runs_end_at_foreign_memory_and_stay_pinned_below_it(maker):
    maker.span(START, [(1000, LIVE), (9000, LARGE)])
    maker.span(START + 8 * MB, [(9000, LARGE), (1000, LIVE), (1000, TOP)])
    _, runs = runs_of(maker)
    assert runs.before.tolist() == [0, -1]
    assert runs.after.tolist() == [-1, 3]
    assert runs.pinned.tolist() == [True, True]


def test_whole_pages_leave_the_links_of_the_free_block(maker):
    maker.span(START, [(4096 - 16 - 32 - 8, LIVE), (3 * 4096, LARGE), (100, LIVE), (100, TOP)])
    _, runs = runs_of(maker)
    # the block begins 32 bytes below a page boundary, and has 3 pages and 8 bytes
    assert int(runs.start[0]) % 4096 == 4096 - 32
    assert runs.pages.tolist() == [2 * 4096]


def test_heap_without_spans_is_one_stretch(maker):
    maker.span(START, [(1000, LIVE), (9000, LARGE), (1000, LIVE)])
    maker.spans = []
    heap, runs = runs_of(maker)
    assert runs.pinned.tolist() == [True]


def test_classes_of_runs(maker):
    maker.span(START, [*[(1000, LIVE), (9000, LARGE)] * 3, (2000, LIVE), (90_000, LARGE), (50, LIVE)])
    heap, runs = runs_of(maker)
    classes = pin_classes(heap, runs, 0)
    assert sum(each.runs for each in classes) == 4
    assert (classes[0].before, classes[0].run, classes[0].after) == (2008, 90_008, 56)
    assert [each.runs for each in pin_classes(heap, runs, 1)] == [1]


def test_pattern_needs_several_runs(maker):
    maker.span(START, [*shrunk(3, 4 * MB, 4 * KB), (100, LIVE), (100, TOP)])
    heap, runs = runs_of(maker)
    assert find_pattern(heap, runs) is None


# ---- the remedy ----

TRIM = {"fragmentation": "Think.", "trim": "malloc_trim(0)"}


def small_holes(count=9000):
    """Chunks of which every other one is free, and none of those has a whole page."""
    for _ in range(count):
        yield 200, LIVE
        yield 3000, LARGE


def test_trimming_is_advised_where_pages_go_back(maker):
    maker.span(START, [(100 * MB, LARGE), (100, LIVE), (64 * KB, TOP)])
    (finding,) = findings(maker, remedies=TRIM, largest_block=KB)
    assert finding.remedy == "malloc_trim(0) returns 100 MiB of whole pages now. Think."
    assert 99 * MB < finding.details["page_bytes"] <= finding.details["free_bytes"]
    (largest,) = finding.details["largest"]
    assert (largest["bytes"], largest["pin_bytes"]) == (finding.details["free_bytes"], 104)
    assert all(largest[name].startswith("0x") for name in ("address", "arena", "pinned_by"))


def test_trimming_is_not_advised_where_no_page_goes_back(maker):
    maker.span(START, [*small_holes(), (100, LIVE), (64 * KB, TOP)])
    (finding,) = findings(maker, remedies=TRIM)
    assert finding.remedy == (
        "Think. malloc_trim(0) would return nothing: hardly a run holds whole pages that the process still has."
    )
    (plain,) = findings(maker)
    assert "malloc_trim" not in plain.remedy


def test_pages_that_went_back_before_are_no_reason_to_trim(maker):
    maker.span(START, [*small_holes(), (80 * MB, LARGE), (100, LIVE), (64 * KB, TOP)])
    holes = Coverage(np.array([START], np.uint64), np.array([START + 9000 * 3240], np.uint64))
    (finding,) = findings(maker, PageResidency(holes, []), remedies=TRIM, largest_block=KB)
    assert finding.remedy.startswith("Think. malloc_trim(0) would return ")
