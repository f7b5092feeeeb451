"""Who may hold a lock that has no owner field: the threads that keep its address at hand.

A thread inside a critical section usually has the lock's address, or that of the structure that starts with
it, in a register that functions preserve or near the top of its stack, to unlock it later.
"""

from __future__ import annotations

import struct
from typing import AbstractSet, Collection, Iterator, Mapping, Sequence

from gdbext.errors import FaultError
from gdbext.process import Thread
from gdbext.report import Confidence
from gdbext.structures.locks.model import Mention
from gdbext.structures.locks.syscalls import find_machine
from gdbext.target import Target

_STACK = 4096
_PLACES = 4


def find_mentions(target: Target, waiting: Mapping[int, Collection[int]]) -> Mapping[int, Sequence[Mention]]:
    """Return the threads that mention each lock, those with it in a register first.

    Every stack is looked at once, however many locks there are.

    :param waiting: the numbers of the threads that wait for each lock themselves, which are left out.
    """
    found: "dict[int, list[Mention]]" = {lock: [] for lock in waiting}
    for thread in target.threads if waiting else ():
        places: "dict[int, list[str]]" = {}
        for lock, place in (*_registers(target, thread), *_stack_words(target, thread, waiting.keys())):
            if lock in waiting and thread.number not in waiting[lock]:
                places.setdefault(lock, []).append(place)
        for lock, told in places.items():
            found[lock].append(_mention(thread, told))
    return {
        lock: sorted(told, key=lambda each: each.confidence is not Confidence.MEDIUM) for lock, told in found.items()
    }


def _mention(thread: Thread, places: Sequence[str]) -> Mention:
    in_register = not places[0].startswith("stack")
    return Mention(thread.number, tuple(places[:_PLACES]), Confidence.MEDIUM if in_register else Confidence.LOW)


def _registers(target: Target, thread: Thread) -> "Iterator[tuple[int, str]]":
    machine = find_machine(target)
    for name in machine.saved if machine else ():
        yield thread.registers.get(name, 0), name


def _stack_words(target: Target, thread: Thread, locks: AbstractSet[int]) -> "Iterator[tuple[int, str]]":
    word = target.abi.pointer_size
    data = _top_of_stack(target, (thread.stack_pointer or 0) // word * word)
    words = struct.unpack(f"{target.abi.order_mark}{len(data) // word}{'Q' if word == 8 else 'I'}", data)
    if not locks.isdisjoint(words):
        yield from ((value, f"stack+{at * word:#x}") for at, value in enumerate(words) if value in locks)


def _top_of_stack(target: Target, start: int) -> bytes:
    region = target.index.find(start) if start else None
    if region is None:
        return b""
    size = min(_STACK, region.end - start) // target.abi.pointer_size * target.abi.pointer_size
    try:
        return bytes(target.memory.read(start, size))
    except FaultError:
        return b""
