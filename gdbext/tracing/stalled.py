"""Processes that do not stop when they are asked to: a debugger that attaches to one waits for ever."""

from __future__ import annotations

import os
import time
from typing import Iterator, Tuple

from gdbext.errors import DebuggerError, GdbextError
from gdbext.memory.live.mappings import read_proc, read_status
from gdbext.tracing.tasks import living

PATIENCE = 10.0  # seconds until a thread that does not stop is given up: one in the kernel's uninterruptible sleep
_PAUSE = 0.02
THAW = "its cgroup is frozen: thaw that (docker unpause, systemctl thaw)"


def check_stoppable(pid: int) -> None:
    """Wait until no thread of a process is stuck in the kernel.

    :raises DebuggerError: one was all the time, or the process is frozen.
    """
    if is_frozen(pid):
        raise DebuggerError(f"process {pid} does not run", THAW)
    until, stuck = time.monotonic() + PATIENCE, frozenset(_uninterruptible(pid))
    while stuck and time.monotonic() < until:
        time.sleep(_PAUSE)
        stuck &= frozenset(_uninterruptible(pid))
    if stuck:
        raise not_stopped(pid, min(stuck)[0])


def not_stopped(pid: int, tid: int) -> DebuggerError:
    """Return the error for a thread that does not stop."""
    message = f"thread {tid} of process {pid} did not stop in {PATIENCE:.0f} s"
    stuck = "the kernel does not let go of it (state D in ps); try again"
    return DebuggerError(message, THAW if is_frozen(pid) else stuck)


def _uninterruptible(pid: int) -> Iterator[Tuple[int, str]]:
    """Iterate over the threads in state D, each with how often it has slept: one that does input has, the next time."""
    for tid in living(pid):
        status = read_status(tid)
        if status.get("State", "").startswith("D"):
            yield tid, status.get("voluntary_ctxt_switches", "")


def is_frozen(pid: int) -> bool:
    """Whether the freezer of a process's cgroup has stopped it, as far as that can be seen here."""
    return any(map(_says_frozen, _freezers(pid)))


def _says_frozen(path: str) -> bool:
    try:
        with open(path, encoding="ascii") as file:
            return not {"FROZEN", "frozen 1"}.isdisjoint(file.read().splitlines())
    except OSError:  # a cgroup that is not mounted here, or the first one, which is never frozen
        return False


def _freezers(pid: int) -> Iterator[str]:
    """Iterate over the files that say whether a process is frozen: of cgroup v1's freezer, and of v2."""
    places = dict(_mounted())
    try:
        lines = read_proc(pid, "cgroup").split("\n")  # a path may hold what else ends lines
    except GdbextError:
        return
    for line in filter(None, lines):
        _, controllers, path = line.split(":", 2)
        kind = "freezer.state" if "freezer" in controllers.split(",") else "" if controllers else "cgroup.events"
        if kind in places:
            yield os.path.join(places[kind], path.lstrip("/"), kind)


def _mounted() -> Iterator[Tuple[str, str]]:
    """Iterate over where cgroups are mounted, by the name of the file that says what is frozen."""
    for line in read_proc(os.getpid(), "mountinfo").split("\n"):
        front, _, back = line.partition(" - ")
        kind, _, options = back.partition(" ")
        if kind == "cgroup2":
            yield "cgroup.events", front.split(" ")[4]
        elif kind == "cgroup" and "freezer" in options.split(" ")[-1].split(","):
            yield "freezer.state", front.split(" ")[4]
