"""The loop that records, in a world whose clock and processes a test has in its hand."""

from __future__ import annotations

import pytest

from gdbext.analysis.growth.sample import TOTAL, Row, Sample
from gdbext.errors import DebuggerError
from gdbext.recording.conditions import parse_condition
from gdbext.recording.processes import Running
from gdbext.recording.recorder import Plan, Recorder
from gdbext.recording.taken import Taken

FAULT = DebuggerError("it may not be traced")


class World:
    """Processes live from one second to another; a sample takes a while and holds for a part of it.

    :param lives: (start, end) of processes, in seconds.
    :param rss: by second.
    """

    def __init__(self, lives=((0, 1e9),), takes=0.1, holds=0.001, rss=lambda now: 100, failing=()):
        self.now = 1000.0
        self.lives, self.takes, self.holds, self.rss, self.failing = lives, takes, holds, rss, failing
        self.stop_at = self.asked_at = None
        self.sampled, self.snapshots, self.events, self.waited = [], [], [], []

    @property
    def time(self):
        return self.now - 1000.0

    def clock(self):
        return self.now

    def wait(self, seconds):
        assert 0 <= seconds <= 1.0  # a tenth of the interval
        self.waited.append(seconds)
        self.now += max(seconds, 0.001)

    def is_stopped(self):
        return self.stop_at is not None and self.time >= self.stop_at

    def is_snapshot_wanted(self):
        wanted = self.asked_at is not None and self.time >= self.asked_at
        self.asked_at = None if wanted else self.asked_at
        return wanted

    def find(self):
        for number, (start, end) in enumerate(self.lives):
            if start <= self.time < end:
                return Running(number + 1, number, "server")
        return None

    def is_running(self, process):
        return self.time < self.lives[process.started][1]

    def take_sample(self, process):
        at, self.now = self.time, self.now + self.takes
        if len(self.sampled) in self.failing:
            self.sampled.append(None)
            return Taken(self.holds, fault=FAULT)
        self.sampled.append((process.pid, round(at, 3)))
        rows = {TOTAL: [Row("memory", None, self.rss(at))]}
        return Taken(self.holds, Sample(measure="resident", rows=rows), "text")

    def take_snapshot(self, process, reason):
        self.snapshots.append((reason, round(self.time, 3)))
        return Taken(0.0)

    def add_sample(self, taken):
        assert taken.text == "text"

    def add_event(self, kind, **details):
        self.events.append((kind, details))


def run(world, **plan):
    recorder = Recorder(Plan(**{"interval": 10.0, "budget": 1.0, **plan}), world, world)
    recorder.run()
    return recorder


def kinds(world):
    return [kind for kind, _ in world.events]


def test_samples_are_taken_when_they_are_due():
    world = World()
    recorder = run(world, seconds=100.0)
    assert [at for _, at in world.sampled] == pytest.approx([10.0 * number for number in range(10)], abs=0.01)
    assert recorder.samples == 10 and recorder.held == pytest.approx(0.01)
    assert recorder.elapsed == pytest.approx(100.0, abs=0.01)
    assert kinds(world) == ["process", "stopped"]
    assert world.events[-1][1]["reason"] == "time"


def test_the_end_of_the_process_is_the_end():
    world = World(lives=[(0, 34.2)])
    recorder = run(world)
    assert recorder.samples == 4 and kinds(world) == ["process", "ended", "stopped"]
    assert recorder.elapsed == pytest.approx(34.2, abs=0.51)
    assert world.events[-1][1]["reason"] == "ended"


def test_the_next_process_of_the_name_is_waited_for():
    world = World(lives=[(5, 34.2), (50, 75), (100, 1e9)])
    run(world, follows=True, seconds=130.0)
    assert [pid for pid, _ in world.sampled] == [1, 1, 1, 2, 2, 3, 3]
    assert kinds(world) == ["process", "ended", "process", "ended", "process", "stopped"]
    first = {pid: min(at for one, at in world.sampled if one == pid) for pid in (1, 2, 3)}
    # One that is there already is sampled at once; one that has just begun is left to begin.
    assert first == {1: pytest.approx(5, abs=1.1), 2: pytest.approx(60, abs=1.1), 3: pytest.approx(110, abs=1.1)}


def test_one_that_has_ended_before_it_begins_is_not_waited_for():
    world = World(lives=[])
    assert run(world).processes == 0 and kinds(world) == ["stopped"]


def test_a_signal_ends_it_with_a_last_row():
    world = World()
    world.stop_at = 25.0
    assert run(world).samples == 3
    assert world.events[-1] == ("stopped", {"reason": "stopped", "samples": 3, "held_seconds": pytest.approx(0.003),
                                            "elapsed": pytest.approx(25.0, abs=0.5)})  # fmt: skip


def test_what_takes_longer_than_the_interval_misses_samples():
    world = World(takes=25.0)
    recorder = run(world, seconds=100.0)
    assert [at for _, at in world.sampled] == pytest.approx([0, 30, 60, 90], abs=0.01)
    assert [details["samples"] for kind, details in world.events if kind == "missed"] == [2, 2, 2, 2]
    assert recorder.samples == 4


def test_the_budget_is_held():
    world = World(takes=1.0, holds=1.0)
    recorder = run(world, seconds=1000.0, budget=0.02)
    assert recorder.held <= 0.02 * recorder.elapsed
    assert recorder.samples == 19  # at 0, 100, and then every 50 s
    assert "stretched" in kinds(world)


def test_a_sample_that_fails_is_said_and_the_rest_goes_on():
    world = World(failing={2, 3})
    recorder = run(world, seconds=60.0)
    assert (recorder.samples, recorder.failed) == (4, 2)
    assert [details for kind, details in world.events if kind == "failed"] == [{"message": FAULT.message}] * 2


def test_where_not_even_the_first_succeeds_that_is_the_error():
    world = World(failing={0})
    with pytest.raises(DebuggerError):
        run(world)
    assert kinds(world) == ["process", "stopped"] and world.events[-1][1]["reason"] == f"no sample: {FAULT.message}"


def test_who_waits_for_a_name_waits_for_one_that_may_be_examined():
    world = World(failing={0})
    assert run(world, follows=True, seconds=30.0).samples == 2


def test_a_sample_that_fails_for_the_process_has_ended_is_no_failure():
    world = World(lives=[(0, 10.05)], takes=0.1, failing={1})
    recorder = run(world)
    assert (recorder.samples, recorder.failed) == (1, 0)
    assert kinds(world) == ["process", "ended", "stopped"]


def test_each_condition_has_a_snapshot_taken_once_in_a_process():
    world = World(lives=[(0, 55), (55, 1e9)], rss=lambda at: 100 + at)
    texts = ["rss > 115", "rss > 135"]
    recorder = run(world, conditions=[parse_condition(text) for text in texts], follows=True, seconds=100.0)
    raised = [details["condition"] for kind, details in world.events if kind == "raised"]
    assert raised == ["rss > 115", "rss > 135", "rss > 115", "rss > 135"]
    assert [reason for reason, _ in world.snapshots] == raised
    assert recorder.raised == 4 and recorder.unexamined == []


def test_a_condition_that_no_sample_speaks_of_is_said():
    conditions = [parse_condition("heap > 1"), parse_condition("rss > 1G"), parse_condition("grown > 1% after 1h")]
    assert run(World(), conditions=conditions, seconds=50.0).unexamined == ["heap > 1", "grown > 1% after 1h"]


def test_snapshots_are_taken_when_they_are_asked_for_and_at_the_end():
    world = World()
    world.asked_at = 13.0
    run(world, seconds=30.0, at_end=True)
    assert [reason for reason, _ in world.snapshots] == ["asked", "end"]
    assert world.snapshots[0][1] == pytest.approx(13.0, abs=0.5)


def test_nothing_is_left_to_snapshot_at_the_end_of_the_process():
    world = World(lives=[(0, 15)])
    run(world, at_end=True)
    assert world.snapshots == []


def test_it_waits_in_steps_and_not_at_all_when_a_sample_is_due():
    world = World()
    run(world, seconds=30.0)
    assert max(world.waited) == 0.5 and len(world.waited) < 30 / 0.5 + 10
