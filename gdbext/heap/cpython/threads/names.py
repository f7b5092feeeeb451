"""What a word of a Python frame is called: a local variable with its function, file and line."""

from __future__ import annotations

from functools import lru_cache
from typing import Iterator, Optional, Sequence, Tuple

from gdbext.heap.cpython.objects.objects import PythonObjects
from gdbext.heap.cpython.threads.frames import PythonFrame, code_of, find_frame
from gdbext.heap.cpython.threads.layouts import (
    FRAME_OF_OBJECT,
    FRAMES,
    THREADS,
    FrameLayout,
    ThreadLayout,
)

_MOST_NAMES = 1 << 12  # of one function
_MOST_APART = 1 << 8  # bytes of a frame object before its frame
_MOST_ROOM = 1 << 13  # words of one frame
_GENERATOR, _OBJECT = 1, 2  # FRAME_OWNED_BY_GENERATOR, FRAME_OWNED_BY_FRAME_OBJECT


def find_names(objects: PythonObjects) -> "Optional[FrameNames]":
    """Return what names words of frames, or None where the version is not known."""
    origin = "" if objects.layout is None else objects.layout.origin
    known = next((one for one in FRAMES if ".".join(map(str, one)) == origin), None)
    return None if known is None else FrameNames(objects, THREADS[known], FRAMES[known])


def text_of(frame: PythonFrame, word: str) -> str:
    """Return "function() word, file.py:12"."""
    name = frame.function if frame.function.endswith(">") else f"{frame.function}()"
    return f"{name} {word}, {frame.file}:{'?' if frame.line is None else frame.line}"


class FrameNames:
    """Names words of frames, wherever those are: in a thread's data stack, in a generator, in a frame object."""

    def __init__(self, objects: PythonObjects, threads: ThreadLayout, layout: FrameLayout) -> None:
        self._objects, self._threads, self._layout = objects, threads, layout
        self._names_of = lru_cache(maxsize=None)(self._read_names)

    def find_text(self, frame: PythonFrame, place: int) -> str:
        """Return what the word at an address is to a frame: "function() local, file.py:12"; "" where it is nothing."""
        word = self._find_word(frame, place)
        return text_of(frame, word) if word else ""

    def unused_of(self, frame: PythonFrame) -> Tuple[int, int]:
        """Return start and end of the words behind the top of an evaluation stack; (0, 0) where it is not known."""
        layout, objects, first = self._layout, self._objects, frame.address + self._layout.locals
        if layout.top is None:
            return 0, 0
        top = objects.find_number(frame.address + layout.top, layout.top_size) or 0
        if layout.top_size < objects.word:
            top = 0 if top >> 31 else first + top * objects.word
        end = self.end_of(frame)
        return (top, end) if first <= top < end else (0, 0)

    def end_of(self, frame: PythonFrame) -> int:
        """Return the first address behind a frame."""
        code = code_of(self._objects, self._threads, frame.address)
        room = sum(self._objects.find_number(code + place, 4) or 0 for place in self._layout.room)
        return frame.address + self._layout.locals + min(room, _MOST_ROOM) * self._objects.word

    def _find_word(self, frame: PythonFrame, place: int) -> Optional[str]:
        offset = place - frame.address
        if offset < self._layout.locals:
            return self._layout.words.get(offset)
        at = (offset - self._layout.locals) // self._objects.word
        names = self._names_of(code_of(self._objects, self._threads, frame.address))
        if at < len(names):
            return names[at]
        start, end = self.unused_of(frame)
        return "evaluation stack, unused" if start <= place < end else "evaluation stack"

    def find_in_object(self, start: int, place: int) -> str:
        """Return the same of the frame in an object, or "".

        :param start: where the object begins behind its head, as below.
        """
        frame = self.find_frame_in(start)
        return "" if frame is None or place < frame.address else self.find_text(frame, place)

    def find_frame_in(self, start: int) -> Optional[PythonFrame]:
        """Return the frame that a frame object or a generator has in itself, or None where it has none."""
        frames = (find_frame(self._objects, self._threads, at) for at in self._places(start))
        return next((frame for frame in frames if frame is not None), None)

    def is_frame_object(self, start: int) -> bool:
        """Whether what may be a frame object is one: its frame is in it, or knows it."""
        inside = start + self._objects.head * self._objects.word
        at = self._objects.find_word(inside + FRAME_OF_OBJECT)
        back = next((offset for offset, name in self._layout.words.items() if name == "frame_obj"), None)
        knows = bool(at and back is not None and self._objects.find_word(at + back) == start)
        return knows or self.find_frame_in(inside) is not None

    def _places(self, start: int) -> Iterator[int]:
        """Iterate over where the frame in what may be a frame object or a generator is; the frame says who has it."""
        owner, inside = self._threads.owner, self._layout.generator
        if owner is None or inside is None:
            yield start
            return
        for at, wanted in ((start + inside, _GENERATOR), (self._objects.find_word(start + FRAME_OF_OBJECT), _OBJECT)):
            if at and start < at < start + _MOST_APART and self._objects.find_number(at + owner, 1) == wanted:
                yield at

    def _read_names(self, code: int) -> Sequence[str]:
        return [name for place in self._layout.names for name in self._texts(self._objects.find_word(code + place))]

    def _texts(self, names: Optional[int]) -> Iterator[str]:
        """Iterate over the text of a tuple's items."""
        objects = self._objects
        layout, count = objects.layout, objects.find_of(names, 2) if names else None
        if names is None or layout is None or count is None or count > _MOST_NAMES:
            return
        for at in range(count):
            item = objects.find_of(names + layout.tuple_items, at)
            yield (objects.find_text(item) if item else None) or f"local {at}"
