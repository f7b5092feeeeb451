"""The loop that records a process: samples when they are due, snapshots when they are asked for, until it is over."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Optional, Protocol, Sequence

from gdbext.analysis.growth.sample import Sample
from gdbext.recording import events
from gdbext.recording.conditions import Alarm, Condition
from gdbext.recording.processes import Running
from gdbext.recording.schedule import Schedule
from gdbext.recording.taken import Taken

_STEP = 0.5  # seconds between two questions whether a process still runs
_SEARCHING, _MOST_SEARCHING = 0.1, 5.0  # between two searches for one: share of the interval, and seconds at most


@dataclass(frozen=True)
class Plan:
    """What is recorded.

    :param interval: seconds between samples.
    :param budget: share of the time that a process may stand still.
    :param seconds: for how long, None for ever.
    :param conditions: each of which, when it becomes true, has a snapshot taken.
    :param at_end: whether one is taken at the end, too.
    :param follows: whether the next process of the name is waited for when one has ended.
    """

    interval: float
    budget: float
    seconds: Optional[float] = None
    conditions: Sequence[Condition] = ()
    at_end: bool = False
    follows: bool = False


class Sink(Protocol):
    """Where samples go: the journal of a recording, or a screen."""

    def add_sample(self, taken: Taken) -> None:
        """Take a sample."""

    def add_event(self, kind: str, **details: Any) -> None:
        """Take note of an event of :mod:`gdbext.recording.events`."""


class World(Protocol):
    """What the loop has to do with beside its samples."""

    def clock(self) -> float:
        """Return seconds of a clock that never jumps."""

    def wait(self, seconds: float) -> None:
        """Wait, or until a signal comes."""

    def is_stopped(self) -> bool:
        """Whether the user has asked for the end."""

    def is_snapshot_wanted(self) -> bool:
        """Whether the user has asked for a snapshot since the last time."""

    def find(self) -> Optional[Running]:
        """Return the process to record, None where there is none yet."""

    def is_running(self, process: Running) -> bool:
        """Whether it has not ended."""

    def take_sample(self, process: Running) -> Taken:
        """Take a sample of it."""

    def take_snapshot(self, process: Running, reason: str) -> Taken:
        """Take a snapshot of it, and note what came of that."""


class Recorder:
    """One run of the loop.

    :ivar samples: that were taken.
    :ivar failed: that were not.
    :ivar processes: of which some were to be taken.
    :ivar raised: how often a condition became true.
    :ivar held: seconds that processes stood still.
    :ivar elapsed: seconds that it took, once it is over.
    :ivar unexamined: conditions of whose figure no sample has had a value.
    """

    def __init__(self, plan: Plan, world: World, sink: Sink) -> None:
        self.samples = self.failed = self.raised = self.processes = 0
        self.held = self.elapsed = 0.0
        self.unexamined = [condition.text for condition in plan.conditions]
        self._plan, self._world, self._sink = plan, world, sink
        self._start = world.clock()
        self._epoch: Optional[_Epoch] = None
        self._reason: Optional[str] = None

    def run(self) -> None:
        """Record until the end.

        :raises GdbextError: the first sample of a process that was named by its number could not be taken.
        """
        while self._find_reason() is None:
            self._step()
        if self._plan.at_end and self._epoch is not None and self._world.is_running(self._epoch.process):
            self._snapshot(self._epoch, "end")
        self._stop(self._reason or "")

    def _stop(self, reason: str) -> None:
        self.elapsed = self._world.clock() - self._start
        figures = {"samples": self.samples, "held_seconds": self.held, "elapsed": self.elapsed}
        self._sink.add_event(events.STOPPED, reason=reason, **figures)

    def _find_reason(self) -> Optional[str]:
        """Return why it is over, None while it is not."""
        if self._world.is_stopped():
            self._reason = "stopped"
        elif self._plan.seconds is not None and self._world.clock() - self._start >= self._plan.seconds:
            self._reason = "time"
        return self._reason

    def _step(self) -> None:
        """Do what is to be done now, or wait for a while."""
        epoch, now = self._epoch, self._world.clock()
        if epoch is None:
            self._begin(now)
        elif not self._world.is_running(epoch.process):
            self._end(epoch)
        elif self._world.is_snapshot_wanted():
            self._snapshot(epoch, "asked")
        elif now >= epoch.schedule.due:
            self._sample(epoch)
        else:
            self._wait(min(epoch.schedule.due - now, _STEP))

    def _wait(self, seconds: float) -> None:
        left = self._world.clock() - self._start
        until = seconds if self._plan.seconds is None else min(seconds, self._plan.seconds - left)
        self._world.wait(max(until, 0.0))

    def _begin(self, now: float) -> None:
        process = self._world.find()
        if process is None and self._plan.follows:
            self._wait(max(_STEP, min(_SEARCHING * self._plan.interval, _MOST_SEARCHING)))
            return
        if process is None:
            self._reason = "ended"
            return
        first = now if not self.processes else now + self._plan.interval  # one that has just begun is not yet itself
        self.processes += 1
        self._epoch = _Epoch(process, self._plan, now, first)
        self._sink.add_event(events.PROCESS, pid=process.pid, name=process.name, started=process.started)

    def _end(self, epoch: _Epoch) -> None:
        self._sink.add_event(events.ENDED, pid=epoch.process.pid, started=epoch.process.started)
        self._epoch = None

    def _sample(self, epoch: _Epoch) -> None:
        taken = self._world.take_sample(epoch.process)
        self._count(epoch, taken)
        if taken.sample is not None:
            self.samples += 1
            self._sink.add_sample(taken)
            self._heed_conditions(epoch, taken.sample)
        elif self._world.is_running(epoch.process) and not self._world.is_stopped():
            self._fail(taken)
        self._advance(epoch)

    def _fail(self, taken: Taken) -> None:
        self.failed += 1
        assert taken.fault is not None
        if not self.samples and not self._plan.follows:
            self._stop(f"no sample: {taken.fault.message}")
            raise taken.fault
        self._sink.add_event(events.FAILED, message=taken.fault.message)

    def _advance(self, epoch: _Epoch) -> None:
        schedule = epoch.schedule
        missed, stretched = schedule.missed, schedule.stretched
        schedule.advance(self._world.clock())
        if schedule.missed > missed:
            self._sink.add_event(events.MISSED, samples=schedule.missed - missed)
        if schedule.stretched > stretched:
            self._sink.add_event(events.STRETCHED, samples=schedule.stretched - stretched)

    def _heed_conditions(self, epoch: _Epoch, sample: Sample) -> None:
        elapsed = self._world.clock() - epoch.began
        for alarm in epoch.alarms:
            if alarm.is_raised(sample, elapsed):
                self.raised += 1
                self._sink.add_event(events.RAISED, condition=alarm.condition.text, value=alarm.value)
                self._snapshot(epoch, alarm.condition.text)
            if alarm.value is not None and alarm.condition.text in self.unexamined:
                self.unexamined.remove(alarm.condition.text)

    def _snapshot(self, epoch: _Epoch, reason: str) -> None:
        self._count(epoch, self._world.take_snapshot(epoch.process, reason))

    def _count(self, epoch: _Epoch, taken: Taken) -> None:
        self.held += taken.held
        epoch.schedule.add_pause(taken.held)


class _Epoch:
    """One run of the program that is recorded."""

    def __init__(self, process: Running, plan: Plan, now: float, first: float) -> None:
        self.process = process
        self.began = now
        self.schedule = Schedule(plan.interval, plan.budget, now, first)
        self.alarms = [Alarm(condition) for condition in plan.conditions]
