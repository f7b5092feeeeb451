"""Where long work says how far it is, and asks whether it may go on, and in how many threads."""

from __future__ import annotations

import threading
import time
import weakref
from contextlib import contextmanager
from typing import Callable, Dict, Iterator, List, Optional, Protocol


class Progress(Protocol):
    """Told by every loop that may last. The bridge prints; elsewhere :data:`SILENT` serves."""

    def at(self, doing: str, done: int, total: Optional[int]) -> None:
        """Note that ``done`` of ``total`` (None: unknown) units of ``doing`` are behind us.

        :raises KeyboardInterrupt: when the user has asked to stop or the time is up; walkers
            catch it in one place, at the heap builder, and return what they have.
        """


class Silent:
    """Progress that nobody watches."""

    def at(self, doing: str, done: int, total: Optional[int]) -> None:
        """Do nothing."""


SILENT: Progress = Silent()


class Deadline:
    """Progress that also stops when the time is up: for a process, which is held meanwhile, never for a core.

    :param seconds: CPU time of this thread, which other work of the machine does not shorten; None for no limit.
    """

    def __init__(self, progress: Progress, seconds: Optional[float]) -> None:
        self.seconds = seconds
        self._progress = progress
        self._until = None if seconds is None else time.thread_time() + seconds

    @property
    def over(self) -> bool:
        """Whether it is up."""
        return self._until is not None and time.thread_time() >= self._until

    def lift(self) -> None:
        """Let what has kept this go on without a limit."""
        self._until = None

    def check(self) -> None:
        """Ask whether there is time.

        :raises KeyboardInterrupt: when it is up.
        """
        if self.over:
            raise KeyboardInterrupt

    def at(self, doing: str, done: int, total: Optional[int]) -> None:
        """As the progress that it stands for.

        :raises KeyboardInterrupt: when the time is up.
        """
        self.check()
        self._progress.at(doing, done, total)


class WorkLimit:
    """Progress that also stops after so much work: each run over a core comes as far, whatever the machine's load.

    :param units: as :meth:`at` is told them (bins, nodes, slots).
    :ivar done: how many are behind us.
    """

    def __init__(self, progress: Progress, units: int) -> None:
        self.units = units
        self.done = 0
        self._progress = progress
        self._last: Dict[str, int] = {}

    @property
    def over(self) -> bool:
        """Whether that much is done."""
        return self.done >= self.units

    def at(self, doing: str, done: int, total: Optional[int]) -> None:
        """As the progress that it represents.

        :raises KeyboardInterrupt: when that much is done.
        """
        before = self._last.get(doing, 0)
        self.done += done - before if done >= before else done
        self._last[doing] = done
        if self.over:
            raise KeyboardInterrupt
        self._progress.at(doing, done, total)


class _Checks(threading.local):
    """Of each thread its own: what one runs is not ended for another's sake."""

    def __init__(self) -> None:
        self.calls: List[Callable[[], None]] = []
        self.threads = 0


_checks = _Checks()
_MOST_THREADS = (1 << 32) - 1


def limit_threads(most: int) -> None:
    """Let the kernels that this thread calls work in so many native threads, this one among them; 0: as many as cores.

    No answer depends on it.
    """
    _checks.threads = min(most, _MOST_THREADS)


def threads() -> int:
    """Return what :func:`limit_threads` was given in this thread."""
    return _checks.threads


@contextmanager
def checked(check: Callable[[], None]) -> Iterator[None]:
    """Have ``check`` called between the steps of kernels, which know of no progress; what it raises ends them."""
    _checks.calls.append(check)
    try:
        yield
    finally:
        _checks.calls.remove(check)


def own_checks() -> List[Callable[[], None]]:
    """Return what is called in this thread between the steps of kernels, for whoever cannot use :func:`checked`."""
    return _checks.calls


def check() -> None:
    """Ask whether long work may go on.

    :raises KeyboardInterrupt: when it may not.
    """
    for one in _checks.calls:
        one()
    relieve()


class Relief(Protocol):
    """What holds more than it needs, where there is little memory."""

    def relieve(self) -> None:
        """Let go of it, where that is much."""


_reliefs: "weakref.WeakSet[Relief]" = weakref.WeakSet()


def relieve_with(one: Relief) -> None:
    """Have something asked from now on, as long as it lives, to let go of what it holds; by whatever thread works."""
    _reliefs.add(one)


def is_tight() -> bool:
    """Whether steps are to be small, so that what they make resident is little."""
    return bool(_reliefs)


def relieve() -> None:
    """Let go of what need not be held: between steps, where work must not be ended."""
    for one in tuple(_reliefs):
        one.relieve()
