"""Progress on the user's terminal, and the time budget."""

from __future__ import annotations

import os
import sys
import time
from typing import Optional, TextIO, Tuple

from gdbext.wording import grouped

# Set by the shell program, which keeps gdb's standard error: the number of a descriptor of the user's terminal.
DESCRIPTOR = "GDBEXT_PROGRESS_FD"
QUIET_SECONDS = 2.0
INTERVAL = 0.25


class TimeUp(KeyboardInterrupt):
    """``set gx time-budget`` is spent: walkers stop as for Ctrl-C, with what they have."""


class TerminalProgress:
    """Says on standard error how far a command is, once it has lasted :data:`QUIET_SECONDS`.

    :param budget: seconds after which :meth:`at` raises; 0 for none.
    :param visible: whether to print; by default, whether standard error is a terminal.
    :ivar spent: the budget, once it is; else 0.
    """

    def __init__(self, budget: int = 0, visible: Optional[bool] = None) -> None:
        now = time.monotonic()
        self._stream = _find_terminal()
        self._visible = self._stream is not None if visible is None else visible
        self._deadline = now + budget if budget else None
        self._budget, self.spent = budget, 0
        self._next = now + QUIET_SECONDS
        self._shown = 0
        self._last: Tuple[str, int, Optional[int]] = ("at work", 0, None)

    def at(self, doing: str, done: int, total: Optional[int]) -> None:
        """Print a line now and then.

        :raises TimeUp: once, when the budget is spent; what follows may finish.
        """
        self._last = doing, done, total
        now = time.monotonic()
        if self._deadline is not None and now >= self._deadline:
            self._deadline, self.spent = None, self._budget
            raise TimeUp
        if self._visible and now >= self._next:
            self._next = now + INTERVAL
            self._show(_line(doing, done, total))

    def check(self) -> None:
        """As :meth:`at`, where nothing new is known.

        :raises TimeUp: once, when the budget is spent.
        """
        self.at(*self._last)

    def clear(self) -> None:
        """Wipe the line, before the answer is printed."""
        if self._shown:
            self._show("")
            self._write("\r")

    def _show(self, line: str) -> None:
        self._write("\r" + line.ljust(self._shown))
        self._shown = len(line)

    def _write(self, text: str) -> None:
        stream = self._stream or sys.__stderr__
        if stream is not None:
            try:
                stream.write(text)
                stream.flush()
            except OSError:  # the terminal is gone
                self._visible, self._shown = False, 0


def _find_terminal() -> Optional[TextIO]:
    """Return the terminal to write to, or None. Not sys.stderr, which gdb replaces."""
    given = os.environ.get(DESCRIPTOR, "")
    if given.isdigit():
        try:
            return open(int(given), "w", errors="backslashreplace", closefd=False)  # noqa: SIM115  the shell program's, for as long as gdb runs
        except OSError:
            return None
    stream = sys.__stderr__
    return stream if stream is not None and stream.isatty() else None


def _line(doing: str, done: int, total: Optional[int]) -> str:
    if total:
        return f"gdbext: {doing}: {100 * done // total} % of {grouped(total)}"
    return f"gdbext: {doing}: {grouped(done)}"
