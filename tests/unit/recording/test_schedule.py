"""When samples are due, by a clock that a test turns."""

from __future__ import annotations

import random

import pytest

from gdbext.recording.schedule import Schedule


def test_samples_do_not_drift():
    schedule = Schedule(10.0, 1.0, 100.0, 100.0)
    for number in range(1000):
        assert schedule.due == pytest.approx(100.0 + 10.0 * number)
        schedule.advance(schedule.due + 0.4)
    assert (schedule.missed, schedule.stretched) == (0, 0)


def test_what_was_due_meanwhile_is_missed_and_counted():
    schedule = Schedule(1.0, 1.0, 0.0, 0.0)
    schedule.advance(3.5)
    assert (schedule.due, schedule.missed) == (4.0, 3)
    schedule.advance(4.0)
    assert (schedule.due, schedule.missed) == (5.0, 3)


def test_the_interval_is_stretched_to_what_the_budget_allows():
    schedule = Schedule(1.0, 0.01, 0.0, 0.0)
    schedule.add_pause(0.5)
    schedule.advance(0.5)
    assert schedule.due == 100.0  # then it may stand still for 1 s in all, half of which it has
    assert (schedule.missed, schedule.stretched) == (0, 99)


@pytest.mark.parametrize("seed", range(20))
def test_before_each_sample_one_as_long_as_any_is_within_the_budget(seed):
    chance = random.Random(seed)
    budget, interval = chance.choice((0.01, 0.05, 0.3, 1.0)), chance.choice((0.1, 1.0, 60.0))
    schedule = Schedule(interval, budget, 5.0, 5.0)
    held, longest, tried = 0.0, 0.0, 0
    for _ in range(200):
        pause = chance.expovariate(10)
        held, longest = held + pause, max(longest, pause)
        schedule.add_pause(pause)
        before = schedule.due
        schedule.advance(before + pause + chance.random() * 2)
        tried += 1
        assert schedule.due > before
        assert held + longest <= budget * (schedule.due - 5.0) * (1 + 1e-9)
    assert schedule.held == pytest.approx(held)
    assert round((schedule.due - 5.0) / interval) == tried + schedule.missed + schedule.stretched
