"""What is told of stalled decay and of empty slabs, and what is not, from figures made by hand."""

from __future__ import annotations

import os
from dataclasses import replace

import numpy as np
import pytest

from gdbext.abi import X86_64
from gdbext.heap.jemalloc.decay.stall import count_due, count_extents, count_ticks
from gdbext.heap.jemalloc.decay.state import Decay
from gdbext.heap.jemalloc.model import BinInfo, BinStats, Jemalloc, LargeClass, TsdKind
from gdbext.heap.jemalloc.report.emptiness import measure_emptiness
from gdbext.heap.jemalloc.report.findings import find_findings
from gdbext.memory.fake import FakeMemory
from gdbext.report import Confidence, Finding
from gdbext.target import Target
from tests.support.jedecay import (
    ARENA,
    NEVER,
    NEVER_MUZZY,
    NONE,
    OFTEN,
    ONCE,
    TWICE,
    arena,
    bin_with,
    decay,
    heap,
    set_uptime,
    slabs,
    tsd,
    well,
)

SECOND = 1_000_000_000
FEW = (LargeClass(40, 20480, 300, 300),)
SOME = (LargeClass(40, 20480, 20_000, 20_000),)
MOVED = {"create_time": ONCE[1] - 2 * SECOND}


def stalled(found: Jemalloc) -> Finding:
    (finding,) = find_findings(found)
    assert finding.kind == "decay-stalled"
    return finding


def numbers(finding: Finding) -> list[int]:
    assert finding.threads is not None
    return [thread.number or 0 for thread in finding.threads]


# -- threads that can never purge ----------------------------------------------------------------------


def test_threads_that_freed_first_are_named():
    finding = stalled(heap([arena()], [well(1), tsd(2), tsd(3)]))
    assert numbers(finding) == [2, 3]
    assert (finding.confidence, finding.bytes) == (Confidence.HIGH, 10_000 * 4096)
    assert finding.summary == (
        "39.1 MiB of unused pages in 1 arena are never given back: 2 threads freed before ever allocating,"
        " and so can never purge"
    )
    assert list(finding.evidence) == [
        "arena 0: 10 000 dirty pages (dirty_decay_ms:1000), 0 sweeps, epoch never advanced: its deadline is the"
        " first that was drawn; it counts 1 000 000 operations, and threads look at the clock every 1000: in the"
        " time they took, at least 20 steps were due",
        "nominal, arenas_tdata_bypass set, no arenas_tdata: thread 2 (LWP 1002 worker-2), thread 3 (LWP 1003 worker-3)",
    ]
    for words in ("5.3", "malloc once in each thread before its first free", "dirty_decay_ms:0", "background_thread"):
        assert words in finding.remedy


def test_a_thread_that_only_freed_is_named_beside_them():
    finding = stalled(heap([arena()], [tsd(2), tsd(3, TsdKind.MINIMAL), tsd(4, TsdKind.UNINITIALIZED)]))
    assert numbers(finding) == [2, 3]
    assert "1 thread freed before" in finding.summary
    assert finding.evidence[-1] == "minimal, can never purge either: thread 3 (LWP 1003 worker-3)"


def test_threads_that_end_are_not_named():
    ending = [tsd(3, TsdKind.PURGATORY), tsd(4, TsdKind.REINCARNATED)]
    assert numbers(stalled(heap([arena()], [tsd(2), *ending]))) == [2]


def test_threads_of_other_arenas_are_not_named():
    other = tsd(5, arena=ARENA + 4096)
    finding = stalled(heap([arena()], [well(1), other]))
    assert (numbers(finding), finding.confidence) == ([], Confidence.MEDIUM)


def test_a_stuck_thread_that_nobody_knows_still_counts():
    finding = stalled(heap([arena()], [tsd(2, thread=None)]))
    assert (numbers(finding), finding.confidence) == ([], Confidence.HIGH)
    assert "the thread whose tsd is at 0x7f1000004000" in finding.evidence[-1]


def test_muzzy_pages_count_too():
    finding = stalled(heap([arena(muzzy_pages=100)], [tsd(2)]))
    assert finding.bytes == 10_100 * 4096
    assert "; 100 muzzy pages (muzzy_decay_ms:1000), 0 sweeps, epoch never advanced" in finding.evidence[0]


def test_without_statistics_a_stuck_thread_is_enough():
    bare = arena(decay(npurge=None), stats=False, large=())
    finding = stalled(heap([bare], [tsd(2)]))
    assert finding.confidence is Confidence.HIGH
    assert "dirty_decay_ms:1000), epoch never" in finding.evidence[0]
    assert finding.evidence[0].endswith("; this build counts nothing else")
    assert find_findings(heap([bare], [well(1)])) == []


def test_many_arenas_and_threads_are_summed_up():
    arenas = [arena(index=at, address=ARENA + at, pages=1000 + at) for at in range(8)]
    threads = [tsd(at, arena=ARENA + at % 8) for at in range(30)]
    finding = stalled(heap(arenas, threads))
    assert finding.bytes == sum(1000 + at for at in range(8)) * 4096
    assert len(numbers(finding)) == 30
    assert finding.evidence[0].startswith("arena 7: 1 007 dirty")
    assert finding.evidence[5] == "3 more arenas with 11.7 MiB"
    assert finding.evidence[6].endswith(" and 10 more")
    assert "in 8 arenas" in finding.summary and "30 threads" in finding.summary


def test_one_advance_at_a_threads_end_does_not_hide_it():
    for drawn, words in ((ONCE, "advanced once only"), (TWICE, "advanced 2 times only")):
        state = decay(drawn, npurge=1)
        finding = stalled(heap([arena(state, create_time=drawn[1] - 2 * SECOND)], [tsd(2)]))
        assert finding.confidence is Confidence.HIGH
        assert f"1 sweep, epoch {words}" in finding.evidence[0]


def test_few_steps_of_a_long_life_are_told_with_less_confidence():
    info = BinInfo(0, 160, 20480, 128)
    flushed = replace(bin_with(info, 0), stats=replace(NONE, ndalloc=600_000))
    slow, large = decay(ONCE), (LargeClass(40, 20480, 120_000, 120_000),)
    old = arena(slow, large=large, bins=(flushed,), create_time=ONCE[1] - 2 * SECOND)
    assert count_due(old, Decay("dirty", slow, 1, None, None, True, 1)) == 4
    assert stalled(heap([old], [tsd(2)])).confidence is Confidence.MEDIUM
    assert stalled(heap([old], [well(1)])).confidence is Confidence.LOW
    assert find_findings(heap([replace(old, create_time=ONCE[1] - SECOND // 10)], [tsd(2)])) == []
    assert find_findings(heap([replace(old, bins=())], [tsd(2)])) == []


# -- from counters alone -------------------------------------------------------------------------------


@pytest.mark.parametrize("drawn", [NEVER, ONCE])
def test_counters_tell_when_the_threads_are_gone(drawn):
    finding = stalled(heap([arena(decay(drawn), create_time=drawn[1] - SECOND)], [well(1)]))
    assert (numbers(finding), finding.confidence) == ([], Confidence.MEDIUM)
    assert finding.summary.endswith("(by counters alone: the threads that did the work are gone)")
    assert finding.evidence[1] == (
        "every thread that is left can purge: those that did the work have ended, and no trace names them"
    )


def test_counters_tell_when_threads_cannot_be_found():
    finding = stalled(heap([arena()], None))
    assert (finding.threads, finding.confidence) == (None, Confidence.MEDIUM)
    assert finding.summary.endswith("(by counters alone: threads' data could not be found)")
    assert len(finding.evidence) == 1


def test_a_clock_tells_where_the_work_alone_does_not():
    """The work may have been done within a step, but another arena was made two decay times later."""
    other = arena(index=1, address=ARENA + 4096, pages=0, create_time=NEVER[1] + 2 * SECOND)
    busy, quiet = arena(large=SOME), arena(large=FEW)
    assert find_findings(heap([busy], [])) == []
    assert stalled(heap([busy, other], [])).confidence is Confidence.LOW
    assert find_findings(heap([quiet, other], [])) == []


def test_work_is_counted_by_what_ticks():
    info = BinInfo(3, 48, 12288, 256)
    stats = BinStats(1000, 900, 1000, 100, 50, 40, 20, 3, 5, 2)
    one = arena(bins=(replace(bin_with(info, 0), stats=stats),), large=FEW)
    assert count_ticks(one) == 600 + 50 + 900
    assert count_extents(one) == 600 + 20 + 15


# -- silence -------------------------------------------------------------------------------------------


def test_arenas_that_others_make_decay_are_silent():
    mixed = arena(decay(OFTEN, npurge=30), create_time=OFTEN[1] - 2 * SECOND)
    assert find_findings(heap([mixed], [well(1), tsd(2), tsd(3)])) == []


def test_healthy_threads_are_silent():
    assert find_findings(heap([arena(large=FEW)], [well(1), well(2)])) == []
    assert find_findings(heap([arena(large=SOME)], [well(1)])) == []


@pytest.mark.parametrize("decay_ms", [0, -1])
def test_pages_that_do_not_decay_by_time_are_silent(decay_ms):
    assert find_findings(heap([arena(decay(time_ms=decay_ms))], [tsd(2)])) == []


def test_no_pages_no_finding():
    assert find_findings(heap([arena(pages=0)], [tsd(2)])) == []


def test_background_threads_purge_instead():
    name = "background_thread_enabled_state"
    assert find_findings(heap([arena()], [tsd(2)], symbols={name: 0x2000})) == []


def test_where_background_threads_may_run_an_advance_acquits():
    state, ending = decay(ONCE), tsd(9, TsdKind.REINCARNATED)
    assert find_findings(heap([arena(state, **MOVED)], [tsd(2), ending], symbols={})) == []
    assert stalled(heap([arena(state, **MOVED)], [tsd(2)], symbols={}))
    assert stalled(heap([arena()], [tsd(2), ending], symbols={}))


@pytest.mark.parametrize("version", ["5.3.0", "5.3.1"])
def test_versions_whose_threads_keep_their_ticker_are_silent(version):
    mine = tsd(2, arenas_tdata=None, bypass=None, ticks=5)
    assert find_findings(heap([arena()], [mine], version)) == []
    assert find_findings(heap([arena()], [], version)) == []


def test_sweeps_acquit_where_only_counters_speak():
    swept = arena(decay(ONCE, npurge=40), **MOVED)
    assert find_findings(heap([swept], [well(1)])) == []


def test_deadlines_that_cannot_be_are_silent():
    assert find_findings(heap([arena(decay(deadline=5))], [tsd(2)])) == []
    assert find_findings(heap([arena(decay(interval=0))], [tsd(2)])) == []


def test_pages_within_their_decay_time_are_silent(monkeypatch):
    """A process just begun: 100 ms of its decay time of 1 s are over."""
    target = Target(FakeMemory([(0x1000, b"\0" * 16)], []), X86_64, live=True, local_pid=os.getpid())
    now = 101 * SECOND
    set_uptime(monkeypatch, now)
    for age, found in ((SECOND // 10, 0), (100 * SECOND, 1)):
        shift = now - age - NEVER[1]
        state = decay((NEVER[0], NEVER[1] + shift, NEVER[2] + shift))
        muzzy = decay((NEVER_MUZZY[0], NEVER_MUZZY[1] + shift, NEVER_MUZZY[2] + shift))
        young = arena(state, decay_muzzy=muzzy)
        findings = find_findings(heap([young], [tsd(2)], target=target))
        assert len(findings) == found
    assert "first that was drawn, 100." in findings[0].evidence[0]
    assert findings[0].evidence[0].split("drawn, ")[1].split(";")[0].endswith(" s ago")


# -- empty slabs ---------------------------------------------------------------------------------------

INFO = BinInfo(0, 160, 20480, 128)


def empties(free: list[int], active: int = 0, current: int = 0) -> Jemalloc:
    pages = active or len(free) * 5
    one = arena(pages=0, nactive=pages, bins=(bin_with(INFO, current),))
    return heap([one], [], extents=slabs(INFO, free), infos=(INFO,))


def test_slabs_that_stay_for_little_are_told():
    (finding,) = find_findings(empties([120] * 2000))
    assert (finding.kind, finding.bytes) == ("fragmentation", 120 * 160 * 2000)
    assert finding.summary == (
        "36.6 MiB of 39.1 MiB in slabs are empty regions (94 %): 2 000 slabs stay for what is left in them"
    )
    assert finding.evidence == ("regions of 160: 2 000 slabs not full, 6.2 % of their regions in use, 36.6 MiB empty",)
    assert finding.confidence is Confidence.HIGH and finding.threads is None
    for words in ("narenas", "MALLOCX_ARENA", "lg_tcache_max", "activedefrag"):
        assert words in finding.remedy


def test_an_incomplete_walk_is_less_sure():
    broken = empties([120] * 2000)
    broken.complete = False
    (finding,) = find_findings(broken)
    assert finding.confidence is Confidence.MEDIUM


def test_a_third_that_was_freed_is_silent():
    assert find_findings(empties([43] * 2000)) == []


def test_empty_slabs_of_a_heap_of_large_blocks_are_silent():
    assert find_findings(empties([120] * 2000, active=2000 * 5 * 6)) == []


def test_current_and_full_slabs_do_not_count():
    assert find_findings(empties([127], current=0x100)) == []
    (row,) = measure_emptiness(empties([127, 0, 100], current=0x100))
    assert (row.slabs, row.empty, row.size) == (1, 100 * 160, 128 * 160)


def test_extents_that_are_no_slabs_of_a_known_class_do_not_count():
    odd = empties([100] * 10)
    odd.extents = replace(odd.extents, szind=np.full(10, 99, np.uint16))
    assert measure_emptiness(odd) == []
    assert find_findings(odd) == []


def test_an_empty_heap_is_silent():
    assert find_findings(heap()) == []
