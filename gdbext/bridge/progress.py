"""Progress on the user's terminal, and the time budget."""

from __future__ import annotations

import sys
import time
from typing import Optional

QUIET_SECONDS = 2.0
INTERVAL = 0.25


class TimeUp(KeyboardInterrupt):
    """``set gx time-budget`` is spent: walkers stop as for Ctrl-C, with what they have."""


class TerminalProgress:
    """Says on standard error how far a command is, once it has lasted :data:`QUIET_SECONDS`.

    :param budget: seconds after which :meth:`at` raises; 0 for none.
    :param visible: whether to print; by default, whether standard error is a terminal.
    """

    def __init__(self, budget: int = 0, visible: Optional[bool] = None) -> None:
        now = time.monotonic()
        # Not sys.stderr, which gdb replaces.
        self._visible = _is_terminal() if visible is None else visible
        self._deadline = now + budget if budget else None
        self._next = now + QUIET_SECONDS
        self._shown = 0

    def at(self, doing: str, done: int, total: Optional[int]) -> None:
        """Print a line now and then.

        :raises TimeUp: once, when the budget is spent; what follows may finish.
        """
        now = time.monotonic()
        if self._deadline is not None and now >= self._deadline:
            self._deadline = None
            raise TimeUp
        if self._visible and now >= self._next:
            self._next = now + INTERVAL
            self._show(_line(doing, done, total))

    def clear(self) -> None:
        """Wipe the line, before the answer is printed."""
        if self._shown:
            self._show("")
            self._write("\r")

    def _show(self, line: str) -> None:
        self._write("\r" + line.ljust(self._shown))
        self._shown = len(line)

    def _write(self, text: str) -> None:
        if sys.__stderr__ is not None:
            sys.__stderr__.write(text)
            sys.__stderr__.flush()


def _is_terminal() -> bool:
    return sys.__stderr__ is not None and sys.__stderr__.isatty()


def _line(doing: str, done: int, total: Optional[int]) -> str:
    if total:
        return f"gdbext: {doing}: {100 * done // total} % of {total:,}"
    return f"gdbext: {doing}: {done:,}"
