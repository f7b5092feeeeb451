"""How far a run is, on standard error: a line for each worker on a terminal, else a line now and then."""

from __future__ import annotations

import os
import sys
import time
from typing import List, Sequence

from gdbext.cli.streams import tell
from gdbext.fleet.pool import Running
from gdbext.wording import count_text, printable

_EVERY = 10.0  # seconds between two lines where there is no terminal
_UP_AND_CLEAR = "\x1b[1A\x1b[2K"


class Progress:
    """What is at work, how fast it goes, and how long it will take.

    :param total: cores that are to be examined.
    """

    def __init__(self, total: int) -> None:
        self._total = total
        self._began = self._said = time.monotonic()
        self._lines = 0
        self._terminal = sys.stderr.isatty()

    def at(self, running: Sequence[Running], waiting: int) -> None:
        """Show it."""
        done = self._total - waiting - len(running)
        if self._terminal:
            self._draw([*map(_line, running), self._rate(done)])
        elif time.monotonic() - self._said > _EVERY:
            self._said = time.monotonic()
            tell(self._rate(done))

    def clear(self) -> None:
        """Take away what stands on the terminal."""
        self._draw([])

    def _draw(self, lines: List[str]) -> None:
        width = os.get_terminal_size(sys.stderr.fileno()).columns if lines else 0
        text = "".join(f"{line[: width - 1]}\n" for line in lines)
        if text or self._lines:
            sys.stderr.write(_UP_AND_CLEAR * self._lines + text)
            sys.stderr.flush()
        self._lines = len(lines)

    def _rate(self, done: int) -> str:
        seconds = time.monotonic() - self._began
        left = f", {_span((self._total - done) * seconds / done)} left" if done else ""
        return f"gdbext: {done} of {count_text(self._total, 'core')}, {done / seconds:.1f} a second{left}"


def _line(running: Running) -> str:
    seconds = time.monotonic() - running.child.began
    return f"{running.child.pid:>8} {seconds:6.1f} s  {printable(running.task.source.path)}"


def _span(seconds: float) -> str:
    """Return "3 min 20 s" and the like."""
    whole = int(seconds)
    if whole < 60:
        return f"{whole} s"
    return f"{whole // 60} min {whole % 60} s" if whole < 3600 else f"{whole // 3600} h {whole // 60 % 60} min"
