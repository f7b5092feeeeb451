"""Frames of Python functions that run: what their words are called, and which of them hold nothing any more."""

from __future__ import annotations

from bisect import bisect_right
from typing import Iterator, List, Optional, Tuple

from gdbext.heap.cpython.find.runtimes import for_each_runtime
from gdbext.heap.cpython.objects.objects import PythonObjects
from gdbext.heap.cpython.threads.frames import PythonFrame
from gdbext.heap.cpython.threads.names import FrameNames, find_names
from gdbext.heap.cpython.threads.read import read_threads
from gdbext.target import Target

_MOST_APART = 1 << 16  # bytes from the beginning of a frame to its last word


class Running:
    """The frames of all threads of a target.

    :param objects: reads those of its interpreter.
    """

    def __init__(self, target: Target, objects: PythonObjects) -> None:
        self.names: Optional[FrameNames] = find_names(objects)
        found = sorted(_frames(target), key=lambda pair: pair[0].address)
        self._frames: List[Tuple[PythonFrame, Optional[int]]] = found
        self._starts = [frame.address for frame, _ in found]

    def find_text(self, address: int) -> str:
        """Return "function() local, file.py:12, thread 3" of a word in a frame; "" where there is none."""
        at = bisect_right(self._starts, address) - 1
        if self.names is None or at < 0 or address - self._starts[at] > _MOST_APART:
            return ""
        frame, thread = self._frames[at]
        text = self.names.find_text(frame, address)
        return text if thread is None or not text else f"{text}, thread {thread}"

    def for_each_piece(self) -> Iterator[Tuple[int, int]]:
        """Iterate over start and end of frames."""
        if self.names is not None:
            yield from ((frame.address, self.names.end_of(frame)) for frame, _ in self._frames)

    def for_each_unused(self) -> Iterator[Tuple[int, int]]:
        """Iterate over start and end of the words behind the top of frames' evaluation stacks, where that is known."""
        if self.names is not None:
            yield from map(self.names.unused_of, (frame for frame, _ in self._frames))


def _frames(target: Target) -> Iterator[Tuple[PythonFrame, Optional[int]]]:
    """Iterate over frames, each with the debugger's number of its thread."""
    numbers = {thread.tls: thread.number for thread in target.threads if thread.tls is not None}
    for runtime in for_each_runtime(target):
        for thread in read_threads(target, runtime):
            for frame in thread.frames:
                yield frame, numbers.get(thread.pthread)
