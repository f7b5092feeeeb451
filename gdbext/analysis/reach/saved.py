"""Frames below a stack pointer that live: a signal handler or a coroutine runs on an array in the thread's own stack.

What was interrupted, or waits, lies below that array then, and its registers are in a ``ucontext``: the kernel's in a
signal's frame (arch/x86/include/uapi/asm/sigcontext.h), or what ``swapcontext`` wrote (sysdeps/unix/sysv/linux/x86/sys/
ucontext.h).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import List, Sequence, Tuple

import numpy as np

from gdbext.analysis.reach.stacks import RED_ZONE, Stack
from gdbext.heap.model import Mask
from gdbext.memory.bulk import U64, for_each_written_view
from gdbext.memory.intervals import I64, distinct
from gdbext.target import Target

_AT_ONCE = 1 << 24


@dataclass(frozen=True)
class _Layout:
    """Words of a ``ucontext`` behind the one with the stack pointer.

    :param selector: the code segment, which only the kernel writes; ``code``: what it is for a program.
    :param floats: ``fpregs``, of which ``getcontext`` lets it point to ``area``.
    """

    selector: int
    code: Tuple[int, ...]
    floats: int
    area: int


_LAYOUTS = {"x86-64": _Layout(3, (0x33,), 8, 33), "i386": _Layout(8, (0x23, 0x73), 12, 47)}


def with_saved_frames(target: Target, stacks: Sequence[Stack], ranges: Sequence[Tuple[int, int]]) -> Sequence[Stack]:
    """Return the stacks, live from the lowest stack pointer on that a signal's frame or a context has for them.

    :param ranges: where to look: live parts of stacks, and data. No context is found in a block.
    """
    if target.abi.machine not in _LAYOUTS:
        return stacks
    saved = distinct(np.concatenate([np.empty(0, np.uint64), *_all_saved(target, stacks, ranges)]))
    return [_lowered(target, stack, saved) for stack in stacks]


def _lowered(target: Target, stack: Stack, saved: U64) -> Stack:
    at = int(np.searchsorted(saved, np.uint64(stack.low or 0)))
    if stack.low is None or at == len(saved) or int(saved[at]) >= stack.live:
        return stack
    pointer = int(saved[at]) - RED_ZONE.get(target.abi.machine, 0)
    return replace(stack, live=max(stack.low, pointer - pointer % target.abi.pointer_size))


def _all_saved(target: Target, stacks: Sequence[Stack], ranges: Sequence[Tuple[int, int]]) -> List[U64]:
    unused = sorted((stack.low, stack.live) for stack in stacks if stack.low is not None and stack.low < stack.live)
    if not unused:
        return []
    lows, ends = (np.array(column, np.uint64) for column in zip(*unused))
    return [
        _saved(target, place, np.frombuffer(data, target.abi.word_dtype, len(memoryview(data)) // word), lows, ends)
        for word in (target.abi.pointer_size,)
        for start, end in ranges
        for place, data in for_each_written_view(target.memory, start, end, target.abi.page_size, _AT_ONCE)
    ]


def _saved(target: Target, start: int, words: U64, lows: U64, ends: U64) -> U64:
    """Return the stack pointers in a stretch of memory that belong to contexts, and point below what lives."""
    at = np.searchsorted(lows, words, side="right").astype(np.int64) - 1
    found: I64 = np.flatnonzero((at >= 0) & (words < ends[np.maximum(at, 0)]))
    if len(found):
        found = found[_are_contexts(target, start, words, found)]
    values: U64 = words[found].astype(np.uint64)
    return values


def _are_contexts(target: Target, start: int, words: U64, found: I64) -> Mask:
    layout, size = _LAYOUTS[target.abi.machine], target.abi.pointer_size
    whole: Mask = found + layout.floats < len(words)
    last = max(len(words) - 1, 0)
    code = words[np.minimum(found + layout.selector, last)].astype(np.uint64) & np.uint64(0xFFFF)
    area = words[np.minimum(found + layout.floats, last)].astype(np.int64) - (found + layout.area) * size
    context: Mask = area == start
    for selector in layout.code:
        context |= code == selector
    return whole & context
