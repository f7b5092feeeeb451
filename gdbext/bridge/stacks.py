"""Stacks as gdb unwinds them. A stack that gdb cannot unwind is short; it never spoils the others."""

from __future__ import annotations

import os
from typing import Iterator, Optional, Sequence

import gdb

from gdbext.bridge import selection
from gdbext.structures.locks.model import Frame
from gdbext.target import Thread

_STACK_POINTERS = ("rsp", "esp", "sp", "r1")


class GdbStacks:
    """Unwinds the selected inferior's threads; what it has unwound is kept while it lives."""

    def __init__(self) -> None:
        self._threads = {thread.num: thread for thread in gdb.selected_inferior().threads()}
        self._kept: "dict[tuple[int, int], Sequence[Frame]]" = {}

    def frames(self, thread: Thread, limit: int) -> Sequence[Frame]:
        """Return the newest frames of a thread, innermost first; as many as gdb can unwind."""
        key = (thread.number, limit)
        if key not in self._kept:
            self._kept[key] = self._unwind(thread.number, limit)
        return self._kept[key]

    def _unwind(self, number: int, limit: int) -> Sequence[Frame]:
        known = self._threads.get(number)
        if known is None or not known.is_valid():
            return ()
        found: "list[Frame]" = []
        with selection.kept():
            try:
                known.switch()
                for frame in _frames():
                    found.append(_read_frame(len(found), frame))
                    if len(found) == limit:
                        break
            except gdb.error:  # a stack that is damaged, or not all in the core: what there is must do
                pass
        return tuple(found)


def _frames() -> Iterator[gdb.Frame]:
    frame: Optional[gdb.Frame] = gdb.newest_frame()
    while frame is not None:
        yield frame
        frame = frame.older()


def _read_frame(level: int, frame: gdb.Frame) -> Frame:
    return Frame(level, frame.pc(), _stack_pointer(frame), frame.name(), _module(frame.pc()), _line(frame))


def _stack_pointer(frame: gdb.Frame) -> Optional[int]:
    for name in _STACK_POINTERS:
        try:
            return int(frame.read_register(name)) & ((1 << 64) - 1)
        except (gdb.error, ValueError):  # not on this machine
            continue
    return None


def _module(pc: int) -> Optional[str]:
    space = gdb.current_progspace()
    path = None if space is None else space.solib_name(pc) or space.filename
    return None if path is None else os.path.basename(path)


def _line(frame: gdb.Frame) -> Optional[str]:
    place = frame.find_sal()
    if place.symtab is None or not place.line:
        return None
    return f"{os.path.basename(place.symtab.filename)}:{place.line}"
