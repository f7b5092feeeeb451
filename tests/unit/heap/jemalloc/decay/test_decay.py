"""The decay curve, the deadlines that were drawn, the clock and the tickers, from figures made or kept by hand."""

from __future__ import annotations

import os
import time
from dataclasses import replace

import pytest

from gdbext.abi import X86_64
from gdbext.heap.jemalloc.decay.clock import SECOND, find_monotonic, newest_moment, read_clock
from gdbext.heap.jemalloc.decay.curve import HEIGHTS, allowed_pages, count_advances, is_drawn, limit_of, new_pages
from gdbext.heap.jemalloc.decay.state import MOST_ADVANCES, find_background, read_decay
from gdbext.heap.jemalloc.decay.tickers import ticker_of
from gdbext.heap.jemalloc.model import ArenaState, TsdKind
from gdbext.memory.fake import FakeMemory
from gdbext.memory.live import monotonic
from gdbext.target import Target
from tests.support.jedecay import (
    NEVER,
    NEVER_MUZZY,
    OFTEN,
    ONCE,
    STEP,
    TWICE,
    arena,
    decay,
    heap,
    set_uptime,
    tsd,
    well,
)

# of smoothstep.h: step, fixed-point height
TABLE = {
    1: 0x14,
    2: 0xA5,
    3: 0x229,
    10: 0x4BE6,
    30: 0x6D009,
    70: 0x3C340F,
    100: 0x800000,
    160: 0xF12C27,
    199: 0xFFFFEB,
    200: 0x1000000,
}
# a dirty decay of 5.3.0 in a core: pages by step, and what it noted as its limit
BACKLOG = {
    6: 1606, 11: 72, 12: 247, 14: 1303, 47: 485, 70: 66, 105: 135, 119: 23, 120: 547, 127: 734, 129: 456,
    147: 982, 155: 279, 186: 367, 193: 88, 196: 46,
}  # fmt: skip
LIMIT = 3063


def backlog(pages: dict[int, int]) -> tuple[int, ...]:
    return tuple(pages.get(step, 0) for step in range(200))


# -- the curve -----------------------------------------------------------------------------------------


def test_heights_are_those_of_jemallocs_table():
    assert {step: HEIGHTS[step - 1] for step in TABLE} == TABLE
    assert len(HEIGHTS) == 200


def test_the_limit_is_the_one_that_jemalloc_noted():
    assert limit_of(backlog(BACKLOG)) == LIMIT


def test_before_the_deadline_the_last_step_counts_and_what_came_since():
    state = decay(backlog=backlog({199: 1000, 99: 1000}), nunpurged=2500)
    for now in (state.epoch, state.deadline - 1, state.epoch - SECOND):
        assert allowed_pages(state, 900, now) == 1500
        assert allowed_pages(state, 1700, now) == 1700  # the step saw 2500, purged to 1500, and 200 came
        assert allowed_pages(state, 2600, now) == 2600
    assert allowed_pages(state, 1700, state.deadline) < 1500
    assert [new_pages(state, pages) for pages in (900, 2500, 2600)] == [0, 0, 100]


def test_after_the_deadline_pages_age_and_those_that_came_are_new():
    state = decay(backlog=backlog({199: 1000}), nunpurged=1000)
    after = state.epoch + 100 * STEP
    assert allowed_pages(state, 1000, after) == 1000 * TABLE[100] >> 24
    assert allowed_pages(state, 1300, after) == (1000 * TABLE[100] >> 24) + 300
    assert allowed_pages(state, 900, after) == 500  # taken into use meanwhile
    assert allowed_pages(state, 1300, state.epoch + 199 * STEP) == (1000 * TABLE[1] + (300 << 24)) >> 24


def test_after_the_decay_time_nothing_of_the_backlog_is_left():
    state = decay(backlog=backlog({199: 1000, 3: 77}), nunpurged=1077)
    for late in (200 * STEP, 201 * STEP, 10**15):
        assert allowed_pages(state, 1077, state.epoch + late) == 0
        assert allowed_pages(state, 1500, state.epoch + late) == 423


def test_without_a_clock_only_what_needs_none_is_known():
    state = decay(backlog=backlog({199: 1000}))
    assert allowed_pages(state, 100, None) is None
    assert allowed_pages(replace(state, time_ms=0), 100, None) == 0
    assert allowed_pages(replace(state, time_ms=-1), 100, None) == 100


def test_figures_that_cannot_be_end_without_an_answer_or_soon():
    assert allowed_pages(decay(interval=0), 100, 1) is None
    huge = decay(epoch=0, deadline=0, interval=1, backlog=(2**64 - 1,) * 200)
    assert allowed_pages(huge, 2**64 - 1, 2**64 - 1) is not None
    for changes in ({"interval": 0}, {"deadline": 0}, {"deadline": 2**64 - 1}, {"time_ms": -1}, {"time_ms": 0}):
        assert count_advances(decay(**changes), 64) is None
    assert count_advances(decay(interval=1, deadline=NEVER[1] + 1), 64) in (0, None)
    assert not is_drawn(decay(deadline=0)) and is_drawn(decay())


@pytest.mark.parametrize(("drawn", "count"), [(NEVER, 0), (NEVER_MUZZY, 0), (ONCE, 1), (TWICE, 2), (OFTEN, 167)])
def test_the_deadline_tells_how_often_the_epoch_advanced(drawn, count):
    assert count_advances(decay(drawn), 200) == count
    assert count_advances(decay(drawn), count) == count
    if count:
        assert count_advances(decay(drawn), count - 1) is None


# -- the clock -----------------------------------------------------------------------------------------


def test_the_first_arenas_making_is_no_clock():
    assert newest_moment([]).now is None
    clock = newest_moment([arena()])
    assert clock.now is None and clock.source == "no timestamp in memory is newer than the first arena"


def test_the_newest_timestamp_is_a_clock():
    moved = arena(decay(ONCE), create_time=ONCE[1] - SECOND)
    assert newest_moment([moved]).now == ONCE[1]
    later = arena(decay(ONCE), index=3, create_time=ONCE[1] + 7)
    clock = newest_moment([moved, later])
    assert (clock.now, clock.exact) == (ONCE[1] + 7, False)
    assert clock.source == "the newest timestamp in memory: arena 3 was made; it may be later by any time"


def test_timestamps_that_cannot_be_are_no_clock():
    broken = decay(epoch=2**63, deadline=5)
    assert newest_moment([arena(decay(), create_time=2**64 - 1)]).now is None
    sound = arena(decay(ONCE), create_time=ONCE[1] - SECOND)
    assert newest_moment([sound, arena(broken, index=1, create_time=ONCE[1] - 5)]).now == ONCE[1]


def live(pid: int) -> Target:
    return Target(FakeMemory([], []), X86_64, live=True, local_pid=pid)


@pytest.fixture(params=[2 * SECOND, 3600 * SECOND, 400 * 86400 * SECOND], ids=["booted", "hour", "year"])
def uptime(request, monkeypatch):
    """How long the machine has been up, in ns."""
    set_uptime(monkeypatch, request.param)
    return request.param


def moved_at(moment: int) -> ArenaState:
    """An arena whose newest timestamp is that one: both kinds of page moved then."""
    state = decay((NEVER[0], moment, moment + STEP))
    return arena(state, decay_muzzy=state, create_time=moment - 1)


def test_a_process_of_this_machine_has_its_clock(uptime):
    clock = read_clock(live(os.getpid()), [moved_at(10)])
    assert (clock.now, clock.exact) == (uptime, True)
    assert clock.source == "this machine's monotonic clock"


def test_that_clock_is_the_kernels():
    before = time.clock_gettime_ns(time.CLOCK_MONOTONIC)
    clock = read_clock(live(os.getpid()), [moved_at(10)])
    assert clock.exact and clock.now is not None
    assert before <= clock.now <= time.clock_gettime_ns(time.CLOCK_MONOTONIC)


def test_memory_that_is_ahead_of_the_machines_clock_rules(uptime):
    ahead = uptime + 3600 * SECOND
    clock = read_clock(live(os.getpid()), [moved_at(ahead - 1), moved_at(ahead)])
    assert (clock.now, clock.exact) == (ahead, False)


def test_cores_and_remote_processes_have_no_clock():
    assert read_clock(Target(FakeMemory([], []), X86_64), [arena()]).now is None
    assert read_clock(Target(FakeMemory([], []), X86_64, live=True), [arena()]).now is None


def test_time_namespaces_are_heeded(monkeypatch):
    offsets = {"self": 5 * SECOND, "42": 100 * SECOND}
    monkeypatch.setattr(monotonic, "_namespace_offset", offsets.__getitem__)
    now = find_monotonic(live(42))
    assert now is not None
    assert abs(now - time.clock_gettime_ns(time.CLOCK_MONOTONIC) - 95 * SECOND) < SECOND
    monkeypatch.setattr(monotonic, "_namespace_offset", {"self": 0, "42": None}.__getitem__)
    assert find_monotonic(live(42)) is None


# -- tickers -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("state", "exists", "can_fire", "why"),
    [
        (tsd(1), False, False, "its first call was a free: it never gets a ticker"),
        (tsd(1, TsdKind.NOMINAL_SLOW), False, False, "its first call was a free: it never gets a ticker"),
        (tsd(1, TsdKind.MINIMAL), False, False, "it has only ever freed: it has no ticker"),
        (tsd(1, TsdKind.PURGATORY), False, False, "it is ending, or is jemalloc's own background thread"),
        (tsd(1, TsdKind.REINCARNATED), False, False, "it is ending, or is jemalloc's own background thread"),
        (tsd(1, TsdKind.UNINITIALIZED, bypass=False), False, True, "it has not used this jemalloc yet"),
        (tsd(1, TsdKind.UNINITIALIZED, bypass=None, ticks=1000), False, True, "it has not used this jemalloc yet"),
        (tsd(1, bypass=False), False, True, "it gets a ticker with its next work on an arena"),
        (well(1), True, True, "it has a ticker"),
        (tsd(1, None), None, None, "its state 99 is none that is known"),
        (tsd(1, bypass=None), None, None, "where its ticker is kept is not known"),
        (
            tsd(1, arenas_tdata=None, bypass=None, ticks=12),
            True,
            True,
            "its ticker is part of its data; 12 ticks are left",
        ),
        (
            tsd(1, TsdKind.REINCARNATED, bypass=None, ticks=1000),
            True,
            True,
            "it is ending, or is jemalloc's own background thread; its ticker is part of its data; 1000 ticks are left",
        ),
        (tsd(1, TsdKind.MINIMAL, bypass=None, ticks=-1), True, True, "its ticker is part of its data; it is due"),
    ],
)
def test_what_a_thread_can_do(state, exists, can_fire, why):
    ticker = ticker_of(state)
    assert (ticker.exists, ticker.can_fire, ticker.why) == (exists, can_fire, why)
    assert ticker.stuck == why.startswith(("its first call", "it has only"))
    assert ticker.unused == why.startswith("it has not used")


# -- all of it -----------------------------------------------------------------------------------------


def test_every_arena_and_thread_is_told():
    moved = arena(decay(ONCE, nunpurged=400), pages=500, create_time=ONCE[1] - SECOND, muzzy_pages=7)
    view = read_decay(heap([moved], [tsd(1), well(2)]))
    (one,) = view.arenas
    assert (one.dirty.npages, one.dirty.advanced, one.dirty.advances, one.dirty.epoch_age) == (500, True, 1, 0)
    assert one.dirty.new_npages == 100
    assert (one.muzzy.npages, one.muzzy.advanced, one.muzzy.advances) == (7, False, 0)
    assert one.muzzy.epoch_age == ONCE[1] - NEVER_MUZZY[1]
    assert view.tickers is not None and [ticker.can_fire for ticker in view.tickers] == [False, True]
    assert view.background is False


def test_many_advances_are_not_counted():
    (one,) = read_decay(heap([arena(decay(OFTEN))])).arenas
    assert MOST_ADVANCES < 167
    assert (one.dirty.advanced, one.dirty.advances) == (True, None)


def test_what_does_not_decay_by_time_never_advances():
    (one,) = read_decay(heap([arena(decay(time_ms=-1))], None)).arenas
    assert (one.dirty.advanced, one.dirty.advances, one.dirty.allowed_npages) == (False, None, 10_000)
    assert read_decay(heap([], None)).tickers is None


def test_an_epoch_that_is_yet_to_come_has_no_age():
    broken = decay(epoch=2**63, deadline=2**63 + STEP)
    moved = arena(decay(ONCE), index=1, create_time=ONCE[1] - SECOND)
    first, _ = read_decay(heap([arena(broken), moved])).arenas
    assert first.dirty.epoch_age is None


def test_background_threads_are_seen():
    name = "background_thread_enabled_state"
    assert find_background(heap(symbols={name: 0x2000})) is True
    assert find_background(heap(symbols={name: 0x1000})) is False
    assert find_background(heap(symbols={name: 0x9000})) is None
    assert find_background(heap(symbols={})) is None
