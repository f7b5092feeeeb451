"""``gdbext watch``: what grows in a process, on the terminal."""

from __future__ import annotations

import os
import shutil
import sys
from collections import deque
from typing import Any, Deque

from gdbext.cli.ending import noting
from gdbext.cli.options import Options
from gdbext.cli.record import Machine, plan_of, sampling_of
from gdbext.cli.run import wants_color
from gdbext.cli.streams import put
from gdbext.recording.events import event_line
from gdbext.recording.history import History
from gdbext.recording.recorder import Recorder
from gdbext.recording.taken import Taken
from gdbext.recording.view import sample_line, screen
from gdbext.report import Status
from gdbext.wording import printable

_EVERY = 5.0
_NOTES = 3  # events that are shown
_HOME, _CLEAR, _REST = "\x1b[H", "\x1b[K", "\x1b[J"


def watch(options: Options) -> int:
    """Show samples until the end; return the exit status.

    :raises GdbextError: there is no such process, or it may not be examined.
    """
    plan, sampling = plan_of(options, _EVERY), sampling_of(options)
    shown = _Screen(wants_color(options.color))
    shown.draw()
    with noting() as noted:
        recorder = Recorder(plan, Machine(options, sampling, noted, shown), shown)
        recorder.run()
    return int(Status.PARTIAL if recorder.failed else Status.CLEAN)


class _Screen:
    """Shows the last samples: a page that is drawn anew, or one line for each."""

    def __init__(self, color: bool) -> None:
        self._color = color
        self._history = History()
        self._notes: Deque[str] = deque(maxlen=_NOTES)
        self._redrawn = sys.stdout.isatty() and os.environ.get("TERM", "dumb") != "dumb"

    def add_sample(self, taken: Taken) -> None:
        """Show a sample."""
        assert taken.sample is not None
        self._history.add(taken.sample)
        self.draw()
        if not self._redrawn:
            put(f"{sample_line(self._history)}\n")

    def add_event(self, kind: str, **details: Any) -> None:
        """Show an event."""
        line = event_line(kind, details)
        if line is None:
            return
        self._notes.append(line)
        self.draw()
        if not self._redrawn:
            put(f"{printable(line)}\n")

    def draw(self) -> None:
        """Show what there is, where the page is drawn anew."""
        if not self._redrawn:
            return
        size = shutil.get_terminal_size()
        lines = screen(self._history, self._notes, size.columns, max(size.lines - 1, 1), self._color)
        put(_HOME + "".join(f"{line}{_CLEAR}\n" for line in lines) + _REST)
