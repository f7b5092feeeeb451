"""Which core is examined when: as many at once as there are processors, and memory for."""

from __future__ import annotations

import math
import time
from collections import deque
from dataclasses import dataclass, field
from typing import Callable, Deque, Dict, Iterator, List, Optional, Protocol, Sequence

from gdbext.fleet import child
from gdbext.fleet.sources import Source
from gdbext.fleet.stores.objects import is_url

_BASE = 512 << 20  # bytes that a child may take whatever its core
_TIMES = 3  # the size of its core, besides
_TRIES = 3  # of a core whose child somebody killed
_AHEAD = 64  # cores that may be passed over for want of memory
_TICK = 0.5  # seconds between two lines of progress


@dataclass(frozen=True)
class Limits:
    """What a pool may take.

    :param jobs: children at once.
    :param memory: bytes that all of them may take together.
    :param seconds: for each core, or None.
    :param disk: bytes of temporary files with cores of object stores, or None.
    """

    jobs: int
    memory: int
    seconds: Optional[float]
    disk: Optional[int] = None


@dataclass
class Task:
    """One core to be examined.

    :param memory: bytes that its child may take.
    :param disk: bytes that a file with it may take.
    :ivar tries: so many children it has had.
    """

    source: Source
    memory: int
    disk: int
    tries: int = 0


@dataclass(frozen=True)
class Outcome:
    """What came of a core.

    :param late: whether its time was over.
    """

    source: Source
    ended: child.Ended
    late: bool
    memory: int


class Watcher(Protocol):
    """Is shown how far it is."""

    def at(self, running: Sequence["Running"], waiting: int) -> None:
        """Show it; called twice a second."""


@dataclass
class Running:
    """A child at work on a core."""

    task: Task
    child: child.Child
    late: bool = False


def need_of(size: int, memory: int) -> int:
    """Return the bytes that a child may take for a core of that size, where all may take ``memory``."""
    return min(_BASE + _TIMES * size, memory)


@dataclass
class Pool:
    """Children at work.

    :param work: returns what a child does for a core.
    """

    work: Callable[[Source], Callable[[], object]]
    limits: Limits
    watcher: Watcher
    _waiting: Deque[Task] = field(default_factory=deque)
    _running: Dict[int, Running] = field(default_factory=dict)

    def run(self, sources: Sequence[Source]) -> Iterator[Outcome]:
        """Examine cores; iterate over what comes of each, as they end. Whoever stops early has to call :meth:`stop`."""
        self._waiting = deque(map(self._task, sources))
        while self._waiting or self._running:
            self._start()
            yield from self._await()

    def _task(self, source: Source) -> Task:
        size = source.size if is_url(source.path) else 0
        disk = (
            size if self.limits.disk is None else min(size, self.limits.disk)
        )  # a larger one has its error from there
        return Task(source, need_of(source.size, self.limits.memory), disk)

    def stop(self) -> None:
        """End all children."""
        for running in self._running.values():
            running.child.kill()
            running.child.finish()
        self._running.clear()

    def _start(self) -> None:
        while len(self._running) < self.limits.jobs:
            task = self._next()
            if task is None:
                return
            task.tries += 1
            started = child.start(self.work(task.source), task.memory)
            self._running[started.stream] = Running(task, started)

    def _next(self) -> Optional[Task]:
        """Take the first core that there is memory and disk for, or None."""
        tasks = [running.task for running in self._running.values()]
        left = self.limits.memory - sum(task.memory for task in tasks)
        disk = math.inf if self.limits.disk is None else self.limits.disk - sum(task.disk for task in tasks)
        for at, task in enumerate(self._waiting):
            if task.memory <= left and task.disk <= disk:
                del self._waiting[at]
                return task
            if at == _AHEAD:
                break
        return None

    def _await(self) -> Iterator[Outcome]:
        self.watcher.at(list(self._running.values()), len(self._waiting))
        ended: List[Running] = []
        for stream in child.await_any(list(self._running), min(_TICK, self._until_late())):
            if self._running[stream].child.read():
                ended.append(self._running.pop(stream))
        for running in self._running.values():
            if not running.late and self._is_late(running):
                running.late = True
                running.child.kill()
        for running in ended:
            outcome = Outcome(running.task.source, running.child.finish(), running.late, running.task.memory)
            if _was_killed(outcome) and running.task.tries < _TRIES:
                self._waiting.append(running.task)
            else:
                yield outcome

    def _until_late(self) -> float:
        """Return the seconds until the next child is late."""
        if self.limits.seconds is None:
            return _TICK
        ends = [running.child.began + self.limits.seconds for running in self._running.values() if not running.late]
        return max(min(ends, default=0.0) - time.monotonic(), 0.0) if ends else _TICK

    def _is_late(self, running: Running) -> bool:
        seconds = self.limits.seconds
        return seconds is not None and time.monotonic() - running.child.began >= seconds


def _was_killed(outcome: Outcome) -> bool:
    """Whether somebody else than we has ended a child: then nothing is known of its core."""
    return outcome.ended.code < 0 and not outcome.late
