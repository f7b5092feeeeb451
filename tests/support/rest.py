"""Waiting for what another process comes to, rather than for a while."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Callable, Optional

PATIENCE = 60.0  # seconds; what takes longer does not come

_Threads = dict[str, tuple[str, tuple[int, ...]]]


def wait_until(reached: Callable[[], object], what: str, seconds: float = PATIENCE) -> None:
    """Ask again and again until the answer is true.

    :param what: that is waited for, for the message.
    :raises AssertionError: it did not come.
    """
    end = time.monotonic() + seconds
    while not reached():
        assert time.monotonic() < end, f"not in {seconds:.0f} s: {what}"
        time.sleep(0.01)


def wait_for_rest(pid: int) -> None:
    """Wait until every thread of a process sleeps in the kernel, and none ran between two samples."""
    before: Optional[_Threads] = None

    def rests() -> bool:
        nonlocal before
        now = _threads(pid)
        same, before = now == before, now
        return same and all(state in "SZ" for state, _ in now.values())

    wait_until(rests, f"process {pid} at rest")


def wait_for_sleep(pid: int) -> None:
    """Wait until the main thread of a process sleeps, or has ended."""
    stat = Path(f"/proc/{pid}/stat")
    wait_until(lambda: stat.read_text().rsplit(")", 1)[1].split()[0] in "SZ", f"process {pid} asleep")


def wait_for_switches(pid: int, count: int) -> None:
    """Wait until the main thread of a process has gone to sleep so many times more."""
    first = _switches(Path(f"/proc/{pid}/status"))[0]
    wait_until(lambda: _switches(Path(f"/proc/{pid}/status"))[0] >= first + count, f"process {pid} wakes {count} times")


def _threads(pid: int) -> _Threads:
    """Return the state and the context switches of every thread."""
    found = {}
    for task in Path(f"/proc/{pid}/task").iterdir():
        state = (task / "stat").read_text().rsplit(")", 1)[1].split()[0]
        found[task.name] = state, _switches(task / "status")
    return found


def _switches(status: Path) -> tuple[int, ...]:
    """Return how often a thread gave the CPU away, and how often it was taken from it."""
    return tuple(int(line.split()[1]) for line in status.read_text().splitlines() if "ctxt_switches" in line)
