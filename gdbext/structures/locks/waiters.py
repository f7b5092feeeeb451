"""How many threads wait for one lock, quickly: for conditions of breakpoints.

While a condition is evaluated the other threads of a process run on: a debugger has no registers of theirs. What
the kernel says of them is enough for every lock but a spinlock, and that counts its waiters itself on x86.
"""

from __future__ import annotations

from typing import Iterable, Optional

from gdbext.process import Thread
from gdbext.structures.locks.futexes import may_wait_for
from gdbext.structures.locks.model import Syscall
from gdbext.structures.locks.objects import Objects, objects_of
from gdbext.structures.locks.spins import decodes_spins, find_spin, find_spinlock
from gdbext.structures.locks.syscalls import find_futex_wait, find_syscall, parse_syscall
from gdbext.structures.locks.tids import Tids
from gdbext.target import Target

_NOBODY = Tids(None, {}, {})
_MOST_SPINNERS = 4096


def count_waiters(target: Target, lock: int, threads: Iterable[Thread]) -> int:
    """Count the threads that wait for a lock, by their registers.

    :param lock: address of the object.
    """
    objects = objects_of(target, _NOBODY)
    return sum(_waits(target, thread, lock, objects) for thread in threads)


def count_told_waiters(target: Target, lock: int, lines: Iterable[str]) -> int:
    """Count the same by what the kernel says of each thread.

    :param lines: of ``/proc/PID/task/TID/syscall``.
    """
    objects = objects_of(target, _NOBODY)
    calls = (parse_syscall(target, line) for line in lines)
    return sum(_is_for(call, lock, objects) for call in calls) or _spinning(target, lock)


def _waits(target: Target, thread: Thread, lock: int, objects: Objects) -> bool:
    call = find_syscall(target, thread)
    if call is not None:
        return _is_for(call, lock, objects)
    spin = find_spin(target, thread, ())
    return spin is not None and spin.lock == lock


def _is_for(call: Optional[Syscall], lock: int, objects: Objects) -> bool:
    wait = None if call is None else find_futex_wait(call)
    return wait is not None and may_wait_for(wait, lock, objects)


def _spinning(target: Target, lock: int) -> int:
    """Return what a spinlock counts, on x86; of other locks the first word is never a small negative number."""
    state = find_spinlock(target, lock) if decodes_spins(target) else None
    word = 0 if state is None or state.word is None else state.word
    return -word if -_MOST_SPINNERS <= word < 0 else 0
