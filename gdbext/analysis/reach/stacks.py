"""Which part of each stack lives: from the stack pointer up; and the stacks of threads that have ended.

glibc keeps a thread's stack after its end, for the next one, and what lies in it points to what that thread had.
``struct pthread`` (nptl/descr.h, glibc 2.31 to 2.44) begins with the thread control block, which points at itself twice
(``tcb`` and ``self``, sysdeps/x86_64/nptl/tls.h), and holds ``stackblock`` and ``stackblock_size`` in two words that
follow each other; no other pair in it encloses the structure itself.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import FrozenSet, List, Optional, Sequence, Set, Tuple

import numpy as np

from gdbext.memory import Region
from gdbext.memory.bulk import U64, for_each_view, for_each_written_page
from gdbext.process import Thread
from gdbext.target import Target

RED_ZONE = {"x86-64": 128}  # bytes below the stack pointer that a leaf function may use (System V ABI)
_SELF = {"x86-64": (0, 2), "i386": (0, 2)}  # words of the thread control block that hold its own address
_DESCRIPTOR = 0x1000  # bytes of struct pthread that are looked at, at most
_LEAST = 1 << 12
_MOST = 1 << 33


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
    return Stack(thread, _low(target, region, thread.tls), live, region.end)


def _low(target: Target, region: Region, descriptor: Optional[int]) -> Optional[int]:
    """Return the start of a mapping that is a stack and nothing else, or None where it may be more.

    A thread whose own stack is elsewhere runs on a coroutine's, and those of others may lie below it.
    """
    if region.name == "[stack]":
        return region.start
    if descriptor is not None:
        return None
    below = target.index.find(region.start - 1)
    return region.start if below is not None and below.permissions == "---" else None


def find_stack_bounds(target: Target, descriptor: int) -> Optional[Tuple[int, int]]:
    """Return the first address of a thread's stack and the first after it, as libpthread allocated it; None if unknown.

    :param descriptor: address of ``struct pthread``.
    """
    region = target.index.find(descriptor)
    word = target.abi.pointer_size
    if region is None or not region.readable or descriptor % word:
        return None
    words = _words_of(target, descriptor, region)
    likely = np.flatnonzero((words[:-1] < descriptor) & (words[1:] >= _LEAST) & (words[1:] < _MOST))
    page = target.abi.page_size
    for start, size in zip(words[likely].tolist(), words[likely + 1].tolist()):
        sound = not start % page and not size % word and start < descriptor < start + size <= region.end
        if sound and _is_alone(target, start, region):
            return start, start + size
    return None


def _is_alone(target: Target, start: int, region: Region) -> bool:
    """Whether nothing but a guard lies below the rest of a stack; in gdb's cores it is readable."""
    return not any(below.writable for below in target.index.within(start, region.start))


def _words_of(target: Target, descriptor: int, region: Region) -> U64:
    """Return what can be read of ``struct pthread`` in one piece: behind it, the guard of the next stack may begin."""
    end = min(descriptor + _DESCRIPTOR, region.end)
    for start, data in for_each_view(target.memory, descriptor, end, target.abi.page_size):
        if start == descriptor:
            count = len(memoryview(data)) // target.abi.pointer_size
            return np.frombuffer(data, target.abi.word_dtype, count).astype(np.uint64)
    return np.empty(0, np.uint64)


def find_dead_stacks(target: Target, descriptors: Sequence[int]) -> Sequence[Stack]:
    """Return the stacks of threads that have ended, as far as memory still shows them.

    None while it is not known of a living thread which descriptor is its own.

    :param descriptors: what :func:`find_descriptors` found.
    """
    numbers = {thread.lwp for thread in target.threads if thread.tls is None}
    holders = [_held_numbers(target, one, numbers) if numbers else frozenset() for one in descriptors]
    if numbers != frozenset().union(*holders):
        return []
    living = {thread.tls for thread in target.threads}
    found: List[Stack] = []
    for descriptor, held in zip(descriptors, holders):
        bounds = find_stack_bounds(target, descriptor) if descriptor not in living and not held else None
        if bounds is not None and not _holds_stack_pointer(target, bounds):
            found.append(Stack(None, bounds[0], descriptor, bounds[1]))
    return found


def _held_numbers(target: Target, descriptor: int, numbers: Set[Optional[int]]) -> FrozenSet[int]:
    """Return those of the kernel's ids of threads that a descriptor holds: one is its ``tid``."""
    region = target.index.find(descriptor)
    words = _words_of(target, descriptor, region) if region is not None else np.empty(0, np.uint64)
    halves = {*(words & np.uint64(0xFFFFFFFF)).tolist(), *(words >> np.uint64(32)).tolist()}
    return frozenset(number for number in numbers if number is not None and number in halves)


def _holds_stack_pointer(target: Target, bounds: Tuple[int, int]) -> bool:
    pointers = (thread.stack_pointer for thread in target.threads)
    return any(pointer is not None and bounds[0] <= pointer < bounds[1] for pointer in pointers)


def find_descriptors(target: Target, regions: Sequence[Region]) -> Sequence[int]:
    """Return the addresses of what looks like ``struct pthread``, of living threads and of those that have ended.

    :param regions: where to look: anonymous, readable, writable.
    """
    if target.abi.machine not in _SELF:
        return []
    return [
        found
        for region in regions
        for pages, words in for_each_written_page(target.memory, target.abi, region.start, region.end)
        for found in _selves(target, pages, words)
    ]


def _selves(target: Target, pages: U64, words: U64) -> Sequence[int]:
    """Return the addresses in pages that hold what a thread control block holds of itself; it crosses no page."""
    first, second = _SELF[target.abi.machine]
    word = target.abi.pointer_size
    page, at = np.nonzero(words == pages[:, None] + np.arange(words.shape[1], dtype=np.uint64) * np.uint64(word))
    inside = at < words.shape[1] - second
    page, at = page[inside], at[inside]
    own = pages[page] + at.astype(np.uint64) * np.uint64(word)
    found: List[int] = own[words[page, at + second - first] == own].tolist()
    return found
