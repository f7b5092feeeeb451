"""Frames of Python functions: what runs in them, and at which line."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Iterator, Optional

from gdbext.errors import FaultError
from gdbext.heap.cpython.objects.objects import PythonObjects
from gdbext.heap.cpython.threads.layouts import SHIM, ThreadLayout
from gdbext.heap.cpython.threads.lines import find_line

_MOST_FRAMES = 1 << 12  # of one thread
_MOST_LINES = 1 << 20  # bytes of a table of lines
_BYTES_SIZE, _BYTES_DATA = 16, 32
_TAGS = 3  # of a _PyStackRef


@dataclass(frozen=True)
class PythonFrame:
    """A Python function that runs, or that was stopped: a generator, or one that an exception has left.

    :param address: of its frame.
    :param line: None where it is not known.
    """

    address: int
    function: str
    file: str
    line: Optional[int]


def code_of(objects: PythonObjects, layout: ThreadLayout, at: int) -> int:
    """Return where the code object of a frame begins behind its head; 0 where it cannot be read."""
    code = (objects.find_word(at + layout.executable) or 0) & ~_TAGS
    return code and code + objects.head * objects.word


def for_each_frame(objects: PythonObjects, layout: ThreadLayout, state: int) -> Iterator[PythonFrame]:
    """Iterate over the frames of a thread state, innermost first, as far as they can be read."""
    at = objects.find_word(state + layout.frame)
    if layout.through is not None and at:
        at = objects.find_word(at + layout.through)
    seen: "set[int]" = set()
    while at and at not in seen and len(seen) < _MOST_FRAMES:
        seen.add(at)
        owner = 0 if layout.owner is None else objects.find_number(at + layout.owner, 1)
        frame = find_frame(objects, layout, at) if owner is not None and owner < SHIM else None
        if frame is not None:
            yield frame
        at = objects.find_word(at + layout.back)


def find_frame(objects: PythonObjects, layout: ThreadLayout, at: int) -> Optional[PythonFrame]:
    """Return what runs in a frame, or None where it is none of a Python function."""
    code = code_of(objects, layout, at)
    name, file = (objects.find_text(objects.find_word(code + place) or 0) for place in (layout.name, layout.file))
    if name is None or file is None:
        return None
    return PythonFrame(at, name, file, _line(objects, layout, at, code))


def _line(objects: PythonObjects, layout: ThreadLayout, frame: int, code: int) -> Optional[int]:
    first = objects.find_number(code + layout.first_line, 4)
    if layout.code is None:
        number = objects.find_number(frame + layout.instruction, 4)
        offset = -1 if number is None or number >> 31 else number * layout.unit
    else:
        offset = (objects.find_word(frame + layout.instruction) or 0) - code - layout.code
    table = (objects.find_word(code + layout.lines) or 0) + objects.head * objects.word
    size = objects.find_word(table + _BYTES_SIZE)
    if first is None or offset < 0 or size is None or size > _MOST_LINES:
        return first
    try:
        data = bytes(objects.reader.bytes(table + _BYTES_DATA, size, "a table of lines"))
    except FaultError:
        return None
    return find_line(layout.table, data, first, offset)
