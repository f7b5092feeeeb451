"""Stacks as gdb unwinds them. A stack that gdb cannot unwind is short; it never spoils the others."""

from __future__ import annotations

import itertools
import os
from bisect import bisect_right
from dataclasses import dataclass
from functools import cached_property
from typing import Iterator, Mapping, Optional, Sequence, Tuple

import gdb

from gdbext.bridge.decoded import decoded, name_of
from gdbext.bridge.expressions import selection
from gdbext.bridge.ports import threads
from gdbext.bridge.ports.symbols import GdbSymbols
from gdbext.debuginfo import HANDLER, Frame
from gdbext.process import Thread
from gdbext.target import Target

_DEEP = 24
_MOST_AHEAD = 64  # threads: some hundredths of a second
_Names = Tuple[Optional[str], Optional[str], Optional[str]]  # function, module, line
Counters = Tuple[Tuple[int, bool], ...]
_STACK_POINTERS = ("rsp", "esp", "sp", "r1")


class GdbStacks:
    """Unwinds the selected inferior's threads; what it has unwound is kept while it lives.

    :param target: knows the module of an address where gdb has not found the file; None asks gdb alone.
    """

    def __init__(self, target: Optional[Target] = None) -> None:
        self._target = target
        self._kept: "dict[int, _Unwound]" = {}
        self._modules: "dict[int, Optional[str]]" = {}
        self._names: "dict[Tuple[int, int], Tuple[int, _Names]]" = {}
        self._ahead = 1
        self._counters: "dict[int, Counters]" = {}

    @cached_property
    def listed(self) -> Sequence[gdb.InferiorThread]:
        """The threads of the selected inferior, by number."""
        symbols = self._target.symbols if self._target is not None else None
        return symbols.threads if isinstance(symbols, GdbSymbols) else threads.listed()

    @cached_property
    def _threads(self) -> "Mapping[int, gdb.InferiorThread]":
        return {thread.num: thread for thread in self.listed}

    @cached_property
    def _numbers(self) -> Sequence[int]:
        return list(self._threads)

    def frames(self, thread: Thread, limit: int) -> Sequence[Frame]:
        """Return the newest frames of a thread, innermost first; as many as gdb can unwind."""
        known = self._kept.get(thread.number)
        if known is None or (len(known.frames) < limit and not known.whole):
            # Going back to a thread costs as much as all its frames: one time is deep enough for all who ask.
            known = self._unwind_from(thread.number, max(limit, _DEEP))
        return known.frames[:limit]

    def note(self, number: int, counters: Counters) -> None:
        """Keep what :func:`find_counters` says of a thread of which somebody else has unwound all frames."""
        self._counters[number] = counters

    def find_counters(self, number: int) -> Optional[Counters]:
        """Return the same of a thread of which all frames have been unwound, or None. None is unwound for it."""
        known = self._kept.get(number)
        if number not in self._counters and known is not None and known.whole:
            self.note(number, tuple((frame.pc, frame.function == HANDLER) for frame in known.frames))
        return self._counters.get(number)

    def _unwind_from(self, number: int, limit: int) -> "_Unwound":
        """Unwind a thread, and twice as many of those after it as the time before: who asks goes from one to the next.

        Each return to the selected thread costs as much as the frames of another.
        """
        at = bisect_right(self._numbers, number)
        following = (other for other in self._numbers[at : at + self._ahead - 1] if other not in self._kept)
        with selection.kept():
            for one in (*following, number):
                self._kept[one] = self._unwind(one, limit)
        self._ahead = min(2 * self._ahead, _MOST_AHEAD)
        return self._kept[number]

    def _unwind(self, number: int, limit: int) -> "_Unwound":
        known = self._threads.get(number)
        if known is None or not known.is_valid():
            return _Unwound((), True)
        found: "list[Frame]" = []
        path = 0
        try:
            known.switch()
            for frame in itertools.islice(_frames(), limit):
                pc = frame.pc()
                path, names = self._names_of(path, pc, frame)
                found.append(Frame(len(found), pc, find_stack_pointer(frame), *names))
        except gdb.error:  # a stack that is damaged, or not all in the core: what there is must do
            return _Unwound(tuple(found), True)
        return _Unwound(tuple(found), len(found) < limit)

    def _names_of(self, path: int, pc: int, frame: gdb.Frame) -> "Tuple[int, _Names]":
        """Return a frame's names, which follow from its program counter and those of the frames before it: asked once.

        :param path: a number for these; returned with the frame's own among them.
        """
        key = path, pc
        if key not in self._names:
            if pc not in self._modules:
                self._modules[pc] = self._find_module(pc)
            name = HANDLER if frame.type() == gdb.SIGTRAMP_FRAME else frame.name()
            self._names[key] = len(self._names) + 1, (name, self._modules[pc], _line(frame))
        return self._names[key]

    def _find_module(self, pc: int) -> Optional[str]:
        module = None if self._target is None else self._target.find_module(pc)
        space = gdb.current_progspace()
        path = module.path if module is not None else None
        if module is None and space is not None:
            path = decoded(lambda: space.solib_name(pc))
        return None if path is None else os.path.basename(path)


@dataclass(frozen=True)
class _Unwound:
    frames: "tuple[Frame, ...]"
    whole: bool  # no more can be had


def _frames() -> Iterator[gdb.Frame]:
    frame: Optional[gdb.Frame] = gdb.newest_frame()
    while frame is not None:
        yield frame
        frame = frame.older()


def find_counters(frames: Sequence[gdb.Frame]) -> Optional[Counters]:
    """Return what functions and blocks of frames follow from: program counters, and which frames are signals'.

    None where a frame has no program counter.
    """
    try:
        return tuple((frame.pc(), frame.type() == gdb.SIGTRAMP_FRAME) for frame in frames)
    except gdb.error:
        return None


def find_stack_pointer(frame: gdb.Frame) -> Optional[int]:
    """Return the stack pointer in a frame, or None where it is not known."""
    for name in _STACK_POINTERS:
        try:
            return int(frame.read_register(name)) & ((1 << 64) - 1)
        except (gdb.error, ValueError):  # not on this machine
            continue
    return None


def _line(frame: gdb.Frame) -> Optional[str]:
    place = frame.find_sal()
    if place.symtab is None or not place.line:
        return None
    return f"{os.path.basename(name_of(place.symtab))}:{place.line}"
