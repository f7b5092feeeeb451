"""The frames of all threads, one after the other, within bounds."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass
from typing import Iterator, NamedTuple, Optional, Sequence

import gdb

from gdbext.bridge.expressions import language, selection
from gdbext.bridge.ports import threads

FRAMES_A_THREAD = 64


@dataclass
class Bound:
    """How much a search may examine: counted, not timed, so that each run over a core comes as far.

    :param left: variables and frames that are still to be had.
    :param spent: whether it was cut short.
    """

    left: int
    spent: bool = False

    def take(self, count: int = 1) -> bool:
        """Count one or more; return whether there were as many to be had."""
        self.spent = self.spent or self.left < count
        self.left -= count
        return not self.spent


class Place(NamedTuple):
    """A frame.

    :param thread: gdb's number.
    :param level: as gdb counts it, inlined frames too.
    """

    thread: int
    level: int
    frame: gdb.Frame

    def __str__(self) -> str:
        return f"frame {self.level} of thread {self.thread}"

    @contextmanager
    def selected(self) -> Iterator[None]:
        """Have gdb select the frame; the caller gives back the selection (``selection.kept``)."""
        self.frame.select()
        with language.like_c():  # gdb's language follows the frame
            yield


def for_each_frame(bound: Bound, most: int = FRAMES_A_THREAD) -> Iterator[Place]:
    """Iterate over frames, newest first, of the selected thread, then of the others; each is selected.

    The caller gives back the selection (``selection.kept``).

    :param most: frames of one thread.
    """
    for thread in selected_first():
        for place in frames_of(thread, bound, most):
            with place.selected():
                yield place


def frames_of(thread: gdb.InferiorThread, bound: Bound, most: int = FRAMES_A_THREAD) -> Iterator[Place]:
    """Iterate over the frames of one thread, newest first. The thread is selected, which the caller takes back."""
    if bound.spent:
        return
    for level, frame in enumerate(_frames(thread, bound)):
        if level >= most:
            break
        yield Place(thread.num, level, frame)


def blocks_of(place: Place) -> Iterator[gdb.Block]:
    """Return the blocks around a frame's place in its function, the innermost first."""
    block: Optional[gdb.Block]
    try:
        block = place.frame.block()
    except RuntimeError:  # no debug info there
        return
    while block is not None and not block.is_static and not block.is_global:
        yield block
        block = None if block.function is not None else block.superblock


def selected_first(listed: Optional[Sequence[gdb.InferiorThread]] = None) -> Iterator[gdb.InferiorThread]:
    """Iterate over the threads of the selected inferior: the selected one, then the others by number.

    :param listed: all of them, by number, where somebody has listed them.
    """
    selected = selection.find_thread()
    if selected is not None:
        yield selected
    every = threads.listed() if listed is None else listed
    yield from (thread for thread in every if thread != selected)


def _frames(thread: gdb.InferiorThread, bound: Bound) -> Iterator[gdb.Frame]:
    frame: Optional[gdb.Frame]
    try:
        thread.switch()
        frame = gdb.newest_frame()
        while frame is not None and bound.take():
            yield frame
            frame = frame.older()
    except gdb.error:  # it runs, its registers are not in the core, or its stack is damaged
        return
