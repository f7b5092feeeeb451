"""Who may hold a lock that has no owner field: the threads that keep its address at hand.

A thread inside a critical section usually has the lock's address, or that of the structure that starts with
it, in a register that functions preserve or near the top of its stack, to unlock it later.
"""

from __future__ import annotations

from typing import Iterator, Sequence

from gdbext.errors import FaultError
from gdbext.report import Confidence
from gdbext.structures.locks.model import Mention
from gdbext.structures.locks.syscalls import find_machine
from gdbext.target import Target, Thread

_STACK = 4096
_PLACES = 4


def find_mentions(target: Target, lock: int, waiting: Sequence[int]) -> Sequence[Mention]:
    """Return the threads that mention a lock, those with it in a register first.

    :param waiting: numbers of the threads that wait for it themselves.
    """
    found = []
    for thread in target.threads:
        if thread.number in waiting:
            continue
        registers = tuple(_registers(target, thread, lock))
        places = (*registers, *_stack_words(target, thread, lock))[:_PLACES]
        if places:
            found.append(Mention(thread.number, places, Confidence.MEDIUM if registers else Confidence.LOW))
    return sorted(found, key=lambda mention: mention.confidence is not Confidence.MEDIUM)


def _registers(target: Target, thread: Thread, lock: int) -> Iterator[str]:
    machine = find_machine(target)
    for name in machine.saved if machine else ():
        if thread.registers.get(name) == lock:
            yield name


def _stack_words(target: Target, thread: Thread, lock: int) -> Iterator[str]:
    word = target.abi.pointer_size
    start = (thread.stack_pointer or 0) // word * word
    needle = lock.to_bytes(word, target.abi.byteorder)
    data = _top_of_stack(target, start)
    at = data.find(needle)
    while at >= 0:
        if at % word == 0:
            yield f"stack+{at:#x}"
        at = data.find(needle, at + 1)


def _top_of_stack(target: Target, start: int) -> bytes:
    region = target.index.find(start) if start else None
    if region is None:
        return b""
    try:
        return bytes(target.memory.read(start, min(_STACK, region.end - start)))
    except FaultError:
        return b""
