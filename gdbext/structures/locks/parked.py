"""Threads that glibc has put to sleep for ever, because the kernel refused them a mutex.

A mutex of priority inheritance whose owner is the thread itself, or is gone, makes FUTEX_LOCK_PI fail; what POSIX
calls a deadlock is then a wait at a word on the thread's own stack that nobody will ever wake.
Upstream: ``nptl/pthread_mutex_lock.c``, "Delay the thread indefinitely".
"""

from __future__ import annotations

from typing import Iterator, Optional

from gdbext.errors import FaultError
from gdbext.process import Thread
from gdbext.report import Confidence
from gdbext.structures.locks.futexes import Classified
from gdbext.structures.locks.model import FutexWait, LockState, Primitive
from gdbext.structures.locks.objects import Objects
from gdbext.structures.locks.syscalls import find_machine
from gdbext.target import Target

_NEAR = 512  # bytes of the stack: the frames of the wait itself
_BECAUSE = "a wait without end on the thread's own stack, as glibc makes it where the kernel refuses a PI mutex"


def find_parked(wait: FutexWait, thread: Thread, objects: Objects) -> Optional[Classified]:
    """Return the mutex that a thread will wait for until the process ends, or None."""
    start = thread.stack_pointer or 0
    if wait.operation not in (0, 9) or wait.value != 0 or not start <= wait.address < start + _NEAR:
        return None
    for address in _near(objects.target, thread):
        state = objects.find_mutex(address) if address % 8 == 0 else None
        if state is not None and state.primitive is Primitive.PI and _is_refused(state, thread, objects):
            return Classified(Primitive.PI, address, state, Confidence.HIGH, (_BECAUSE,))
    return None


def _is_refused(state: LockState, thread: Thread, objects: Objects) -> bool:
    if state.owner_tid is None:
        return False
    return state.owner_tid == objects.tids.inner.get(thread.number) or bool(state.faults)


def _near(target: Target, thread: Thread) -> Iterator[int]:
    """Iterate over what a thread keeps at hand: registers that functions preserve, the top of its stack."""
    machine = find_machine(target)
    for name in machine.saved if machine else ():
        yield thread.registers.get(name, 0)
    try:
        yield from target.reader.words(thread.stack_pointer or 0, _NEAR // target.abi.pointer_size, "stack")
    except FaultError:
        return
