"""``gdbext record``: samples of a process into a folder."""

from __future__ import annotations

import os
import time
from contextlib import closing
from typing import Any, Optional, Set

from gdbext.cli.ending import Noted, noting
from gdbext.cli.options import Options
from gdbext.cli.sampling import Sampling
from gdbext.cli.snapshot import write_snapshot, write_sparse
from gdbext.cli.streams import put, tell
from gdbext.errors import GdbextError, UsageError
from gdbext.recording import events
from gdbext.recording.conditions import parse_condition
from gdbext.recording.events import event_line
from gdbext.recording.journal import Journal
from gdbext.recording.processes import Running, find_named, find_running, is_running
from gdbext.recording.recorder import Plan, Recorder, Sink
from gdbext.recording.snapshots import Snapshots
from gdbext.recording.taken import Taken
from gdbext.report import Status
from gdbext.starting.process import check_process
from gdbext.wording import count_text, per_cent, printable

_EVERY, _BUDGET = 60.0, 0.01
_ONCE = (events.MISSED, events.STRETCHED)  # events that are said once, and kept each time


def record(options: Options) -> int:
    """Record until the end; return the exit status.

    :raises GdbextError: the process or the folder cannot be used.
    """
    arguments, sampling = options.arguments, sampling_of(options)
    folder = arguments.value("output")
    if not folder:
        raise UsageError("no folder to record in", "-o DIR names one")
    plan = plan_of(options, _EVERY)
    with noting() as noted, closing(Journal(folder, sampling.now)) as journal:
        sink = _Keeper(journal)
        snapshots = Snapshots(folder, arguments.value("most-snapshots"))
        snapshots.remove_left()
        recorder = Recorder(plan, Machine(options, sampling, noted, sink, snapshots), sink)
        conditions = [condition.text for condition in plan.conditions]
        journal.add_event(events.STARTED, interval=plan.interval, budget=plan.budget, conditions=conditions)
        recorder.run()
        put(f"{_summary(recorder, journal, folder)}\n")
        return _status(recorder, journal)


def plan_of(options: Options, every: float) -> Plan:
    """Return what is to be recorded.

    :param every: seconds between two samples where the line does not say.
    :raises GdbextError: it is wrong, or there is no such process.
    """
    value, given = options.arguments.value, options.arguments.given
    if options.pid is None and not given.get("comm"):
        raise UsageError(f"nothing to {options.name}", "name a process with --pid or --comm")
    if options.pid is not None:
        check_process(options.pid)
    conditions = [parse_condition(text) for text in given.get("when", ())]
    return Plan(
        interval=options.every or every,
        budget=min(value("budget") or _BUDGET, 1.0),
        seconds=value("for"),
        conditions=conditions,
        at_end="at-end" in given,
        follows="comm" in given,
    )


def sampling_of(options: Options) -> Sampling:
    """Return how samples are to be taken."""
    arguments = options.arguments
    debugger = options.gdb if arguments.flag("names") else None
    return Sampling(arguments.value("depth"), debugger, options.timeout or float("inf"), options.settings)


class Machine:
    """This machine and its processes, for the loop that records.

    :param snapshots: where they go, None where none are taken.
    """

    def __init__(
        self, options: Options, sampling: Sampling, noted: Noted, sink: Sink, snapshots: Optional[Snapshots] = None
    ) -> None:
        self._named: Optional[int] = options.pid
        self._swapped, self._timeout = options.swapped, options.timeout
        self._comm: Optional[str] = options.arguments.given.get("comm")
        self._sampling, self._noted = sampling, noted
        self._sink, self._snapshots = sink, snapshots

    def clock(self) -> float:
        """Return seconds since the machine's boot."""
        return time.clock_gettime(time.CLOCK_BOOTTIME)

    def wait(self, seconds: float) -> None:
        """Wait, or until a signal comes."""
        self._noted.wait(seconds)

    def is_stopped(self) -> bool:
        """Whether a signal has asked for the end."""
        return self._noted.stopped

    def is_snapshot_wanted(self) -> bool:
        """Whether a signal has asked for a snapshot since the last time."""
        asked, self._noted.asked = self._noted.asked, False
        return asked and self._snapshots is not None

    def find(self) -> Optional[Running]:
        """Return the process that the line names: by its number once, then by its name."""
        pid, self._named = self._named, None
        if pid is not None:
            return find_running(pid)
        return find_named(self._comm) if self._comm else None

    def is_running(self, process: Running) -> bool:
        """Whether a process has not ended."""
        return is_running(process)

    def take_sample(self, process: Running) -> Taken:
        """Take a sample, in a process of its own."""
        return self._sampling.take(process.pid, self._noted)

    def take_snapshot(self, process: Running, reason: str) -> Taken:
        """Take a snapshot; what came of it is an event."""
        if self._snapshots is None:
            return Taken(0.0)
        try:
            path = self._snapshots.find_path(process.pid)
            copy = write_snapshot(process.pid, path, {"swapped": self._swapped}, self._deadline(), write_sparse)
        except (GdbextError, OSError) as error:
            self._sink.add_event(events.NO_SNAPSHOT, message=str(error), reason=reason)
            return Taken(0.0)
        name, held = os.path.basename(path), copy.held_seconds
        self._sink.add_event(events.SNAPSHOT, file=name, bytes=copy.bytes, held_seconds=held, reason=reason)
        return Taken(held)

    def _deadline(self) -> Optional[float]:
        return time.monotonic() + self._timeout if self._timeout else None


class _Keeper:
    """Has a journal take samples and events, and says what the user should know at once."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self._full = False
        self._said: Set[str] = set()  # events that come again and again

    def add_sample(self, taken: Taken) -> None:
        """Keep a sample."""
        self._journal.add_sample(taken.text)
        self._say_room()

    def add_event(self, kind: str, **details: Any) -> None:
        """Keep an event."""
        self._journal.add_event(kind, **details)
        line = event_line(kind, details)
        if line is not None and kind not in self._said:
            tell(f"gdbext: record: {line}")
        if kind in _ONCE:
            self._said.add(kind)
        self._say_room()

    def _say_room(self) -> None:
        fault = self._journal.fault
        if fault is not None and not self._full:
            tell(f"gdbext: record: {fault}: what is recorded now is lost until there is room")
        elif fault is None and self._full:
            lost = count_text(self._journal.lost, "sample")
            tell(f"gdbext: record: there is room again; {lost} lost so far")
        self._full = fault is not None


def _summary(recorder: Recorder, journal: Journal, folder: str) -> str:
    if not recorder.processes:
        return "there was no process of that name"
    kept = recorder.samples - journal.lost
    share = per_cent(recorder.held / recorder.elapsed) if recorder.elapsed else "0 %"
    parts = [f"{count_text(kept, 'sample')} in {printable(folder)}", f"the process stood still {share} of the time"]
    parts += [f"{count_text(journal.lost, 'sample')} lost: {journal.fault or 'no room'}"] if journal.lost else []
    parts += [f"{count_text(recorder.failed, 'sample')} could not be taken"] if recorder.failed else []
    parts += [f"never examined, as no sample had the figure: {text}" for text in recorder.unexamined]
    return "; ".join(parts)


def _status(recorder: Recorder, journal: Journal) -> int:
    if recorder.samples == journal.lost:
        return int(Status.FAILED)
    if recorder.raised:
        return int(Status.FINDINGS)
    partial = journal.lost or journal.fault or recorder.failed or recorder.unexamined
    return int(Status.PARTIAL if partial else Status.CLEAN)
