"""Which part of each stack lives: from the stack pointer up; and the stacks of threads that have ended.

glibc keeps a thread's stack after its end, for the next one, and what lies in it points to what that thread had.
``struct pthread`` (nptl/descr.h, glibc 2.31 to 2.44) begins with the thread control block, which points at itself twice
(``tcb`` and ``self``, sysdeps/x86_64/nptl/tls.h), and holds ``stackblock`` and ``stackblock_size`` in two words that
follow each other; no other pair in it encloses the structure itself.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Iterator, List, Optional, Sequence, Tuple

import numpy as np

from gdbext.errors import FaultError
from gdbext.memory import Region, view
from gdbext.memory.bulk import words_at
from gdbext.target import Target, Thread

RED_ZONE = {"x86-64": 128}  # bytes below the stack pointer that a leaf function may use (System V ABI)
_SELF = {"x86-64": (0, 2), "i386": (0, 2)}  # words of the thread control block that hold its own address
_DESCRIPTOR = 0x1000  # bytes of struct pthread that are looked at, at most
_LEAST = 1 << 12
_MOST = 1 << 33
_AT_ONCE = 1 << 24


@dataclass(frozen=True)
class Stack:
    """One stack.

    :param low: first address of the mapping's part that is this stack; None where that is not known.
    :param live: first address that counts; ``high`` where the thread has ended, up to its descriptor.
    """

    thread: Optional[Thread]
    low: Optional[int]
    live: int
    high: int


def find_stacks(target: Target) -> Sequence[Stack]:
    """Return the stacks of all threads whose stack pointer is known, by address."""
    found = [_stack(target, thread) for thread in target.threads if thread.stack_pointer is not None]
    return sorted((stack for stack in found if stack is not None), key=lambda stack: stack.live)


def _stack(target: Target, thread: Thread) -> Optional[Stack]:
    pointer = thread.stack_pointer
    region = target.index.find(pointer) if pointer is not None else None
    if region is None or pointer is None:
        return None
    live = max(pointer - RED_ZONE.get(target.abi.machine, 0), region.start)
    live -= live % target.abi.pointer_size
    bounds = find_stack_bounds(target, thread.tls) if thread.tls is not None else None
    if bounds is not None and bounds[0] <= pointer < bounds[1]:
        return Stack(thread, max(bounds[0], region.start), live, min(bounds[1], region.end))
    return Stack(thread, _low(target, region), live, region.end)


def _low(target: Target, region: Region) -> Optional[int]:
    """Return the start of a mapping that is a stack and nothing else, or None where it may be more."""
    if region.name == "[stack]":
        return region.start
    below = target.index.find(region.start - 1)
    return region.start if below is not None and below.permissions == "---" else None


def find_stack_bounds(target: Target, descriptor: int) -> Optional[Tuple[int, int]]:
    """Return the first address of a thread's stack and the first after it, as libpthread allocated it; None if unknown.

    :param descriptor: address of ``struct pthread``.
    """
    region = target.index.find(descriptor)
    if region is None or not region.readable or descriptor % target.abi.pointer_size:
        return None
    word = target.abi.pointer_size
    count = min(_DESCRIPTOR, region.end - descriptor) // word
    try:
        words = words_at(target.memory, target.abi, descriptor, count).tolist()
    except FaultError:
        return None
    page = target.abi.page_size
    for start, size in zip(words, words[1:]):
        sound = not start % page and not size % word and _LEAST <= size < _MOST
        if sound and start < descriptor < start + size and start + size <= region.end:
            return start, start + size
    return None


def find_dead_stacks(target: Target, regions: Sequence[Region]) -> Sequence[Stack]:
    """Return the stacks of threads that have ended, as far as memory still shows them.

    :param regions: where to look: anonymous, readable, writable.
    """
    living = {thread.tls for thread in target.threads}
    found: List[Stack] = []
    if target.abi.machine not in _SELF or None in living:
        return found
    for region in regions:
        for descriptor in _descriptors(target, region):
            bounds = find_stack_bounds(target, descriptor) if descriptor not in living else None
            if bounds is not None and not _holds_stack_pointer(target, bounds):
                found.append(Stack(None, bounds[0], descriptor, bounds[1]))
    return found


def _holds_stack_pointer(target: Target, bounds: Tuple[int, int]) -> bool:
    pointers = (thread.stack_pointer for thread in target.threads)
    return any(pointer is not None and bounds[0] <= pointer < bounds[1] for pointer in pointers)


def _descriptors(target: Target, region: Region) -> Iterator[int]:
    """Iterate over the addresses in a region that hold what a thread control block holds of itself."""
    first, second = _SELF[target.abi.machine]
    for start in range(region.start, region.end, _AT_ONCE):
        size = min(_AT_ONCE, region.end - start)
        try:
            buffer = view(target.memory, start, size - size % target.abi.pointer_size)
        except FaultError:
            continue
        words = np.frombuffer(buffer, target.abi.word_dtype)
        own = np.arange(len(words), dtype=np.uint64) * np.uint64(target.abi.pointer_size) + np.uint64(start)
        selves = np.flatnonzero(words == own)
        both = selves[np.isin(selves + (second - first), np.flatnonzero(words[second:] == own[:-second]) + second)]
        yield from own[both].tolist()
