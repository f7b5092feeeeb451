"""``$gx_waiters``: how many threads wait for a lock. Made as those in ``functions.py`` are."""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING, Iterator, Optional, Sequence

import gdb

from gdbext.bridge.expressions import selection
from gdbext.bridge.functions import parameters
from gdbext.bridge.functions.functions import Function
from gdbext.bridge.ports import threads
from gdbext.bridge.stops import settings
from gdbext.errors import UsageError

if TYPE_CHECKING:  # numpy is loaded when the function is called, not at start-up
    from gdbext.process import Thread
    from gdbext.target import Target

_OBJECTS = (gdb.TYPE_CODE_STRUCT, gdb.TYPE_CODE_UNION, gdb.TYPE_CODE_ARRAY)


def register() -> None:
    """Make the function known to gdb."""
    Function("gx_waiters", "LOCK", (1,), _waiters)


def _waiters(arguments: "Sequence[gdb.Value]") -> "tuple[int, Optional[str]]":
    """Count the threads that wait for a lock: mutex, read-write lock, condition variable, semaphore, barrier, spinlock.

    LOCK is the object itself, a pointer to it, or its address; a text is evaluated here, so that an error in it is
    no error of the condition. The answer is 0 where that is no address. While a condition is evaluated the other
    threads run: those that spin are then counted by the spinlock's own word, which x86 has, and which is the least."""
    lock = _address_of(parameters.read_operand(arguments[0]))
    if not lock:
        return 0, "null pointer"
    from gdbext.bridge.functions.shaped import read_target
    from gdbext.structures.locks import waiters

    target = read_target()
    target.reader.uint(lock, 4, "lock")
    bound = _Bound()
    lines = _kernel_lines(target, bound)
    if lines is not None:
        number = waiters.count_told_waiters(target, lock, lines)
    else:
        with selection.kept():
            number = waiters.count_waiters(target, lock, _threads(target, bound))
    return number, "stopped by the time budget" if bound.spent else None


class _Bound:
    """The time that the function has: ``set gx function-seconds``."""

    def __init__(self) -> None:
        seconds = settings.current_value("function-seconds")
        self._until = time.monotonic() + seconds if seconds else None
        self.spent = False

    def over(self) -> bool:
        """Return whether the time is up."""
        self.spent = self.spent or (self._until is not None and time.monotonic() > self._until)
        return self.spent


def _address_of(value: gdb.Value) -> int:
    """Return the address of a lock: of an object, or of a number smaller than an address; else the number itself.

    :raises UsageError: when it is in no memory.
    """
    kind = value.type.strip_typedefs()
    is_word = kind.code == gdb.TYPE_CODE_INT and kind.sizeof < parameters.word_size() and value.address is not None
    if kind.code not in _OBJECTS and not is_word:
        return parameters.number_of(value)
    if value.address is None:
        raise UsageError(f"a value of type {value.type} has no address here")
    return int(value.address) & parameters.word_mask()


def _kernel_lines(target: Target, bound: _Bound) -> "Optional[Iterator[str]]":
    """Return what the kernel says of each thread where they run; else None: their registers are at hand."""
    from gdbext.memory.live.procmem import ProcessMemory

    pid = gdb.selected_inferior().pid
    if not isinstance(target.memory, ProcessMemory) or not any(one.is_running() for one in threads.listed()):
        return None
    try:
        with open(f"/proc/{pid}/syscall", encoding="ascii"):
            return _read_lines(f"/proc/{pid}/task", os.listdir(f"/proc/{pid}/task"), bound)
    except OSError:  # another user's process, or a kernel without this file
        return None


def _read_lines(folder: str, names: Sequence[str], bound: _Bound) -> Iterator[str]:
    for name in names:
        if bound.over():
            return
        try:
            with open(f"{folder}/{name}/syscall", encoding="ascii") as stream:
                yield stream.read()
        except OSError:  # the thread has just ended
            continue


def _threads(target: Target, bound: _Bound) -> "Iterator[Thread]":
    for thread in target.threads or threads.for_each_thread(target.abi):
        if bound.over():
            return
        yield thread
