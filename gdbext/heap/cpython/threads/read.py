"""An interpreter's threads and their frames, and who holds its lock."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Iterator, Optional, Sequence, Tuple

from gdbext.errors import FaultError
from gdbext.heap.cpython.find.places import MOST_THREADS, for_each_interpreter, for_each_linked, layout_of
from gdbext.heap.cpython.layouts import THREAD_NEXT
from gdbext.heap.cpython.model import Runtime
from gdbext.heap.cpython.objects.layouts import LAYOUTS
from gdbext.heap.cpython.objects.objects import PythonObjects
from gdbext.heap.cpython.threads.layouts import (
    COND_SIZE,
    GIL_COND,
    GIL_LAST_HOLDER,
    GIL_LOCKED,
    GIL_SWITCH_COND,
    SHIM,
    THREADS,
    ThreadLayout,
)
from gdbext.heap.cpython.threads.lines import find_line
from gdbext.target import Target

_MOST_FRAMES = 1 << 12  # of one thread
_MOST_LINES = 1 << 20  # bytes of a table of lines
_BYTES_SIZE, _BYTES_DATA = 16, 32
_TAGS = 3  # of a _PyStackRef


@dataclass(frozen=True)
class PythonFrame:
    """A Python function that runs.

    :param line: None where it is not known.
    """

    function: str
    file: str
    line: Optional[int]


@dataclass(frozen=True)
class PythonThread:
    """A thread state.

    :param pthread: what ``pthread_self`` returns in it, which is also its thread pointer.
    :param frames: innermost first; as far as they could be read.
    """

    address: int
    pthread: int
    frames: Sequence[PythonFrame]


@dataclass(frozen=True)
class Gil:
    """The lock that threads of an interpreter take turns with.

    :param holder: address of the thread state that has it; None: nobody has.
    :param waits: start and end of what threads sleep on that want it.
    """

    address: int
    holder: Optional[int]
    waits: Sequence[Tuple[int, int]]


def read_threads(target: Target, runtime: Runtime) -> Sequence[PythonThread]:
    """Return the threads of all interpreters of a runtime; none where its version is not known."""
    known, layout = layout_of(runtime), THREADS.get(runtime.version or (0, 0))
    if known is None or layout is None:
        return ()
    version = ".".join(map(str, runtime.version or ()))
    objects = PythonObjects(target.reader, [one for one in LAYOUTS if one.origin == version])
    return [
        PythonThread(state, objects.find_word(state + layout.thread_id) or 0, list(_frames(objects, layout, state)))
        for interpreter in for_each_interpreter(target, runtime)
        for state in for_each_linked(target, interpreter + known.threads, THREAD_NEXT, MOST_THREADS)
    ]


def read_gils(target: Target, runtime: Runtime) -> Iterator[Gil]:
    """Iterate over the locks of a runtime's interpreters, which may share one; unreadable ones are left out."""
    layout = THREADS.get(runtime.version or (0, 0))
    if layout is None or runtime.address is None or layout_of(runtime) is None:
        return
    reader, seen = target.reader, set()
    for interpreter in for_each_interpreter(target, runtime):
        try:
            at = reader.word(interpreter + layout.gil) if layout.gil_of_interpreter else runtime.address + layout.gil
            locked, last = reader.uint(at + GIL_LOCKED, 4), reader.word(at + GIL_LAST_HOLDER)
        except FaultError:
            continue
        if at not in seen:
            seen.add(at)
            waits = [(at + place, at + place + COND_SIZE) for place in (GIL_COND, GIL_SWITCH_COND)]
            yield Gil(at, last if locked == 1 else None, waits)


def _frames(objects: PythonObjects, layout: ThreadLayout, state: int) -> Iterator[PythonFrame]:
    at = objects.find_word(state + layout.frame)
    if layout.through is not None and at:
        at = objects.find_word(at + layout.through)
    seen: "set[int]" = set()
    while at and at not in seen and len(seen) < _MOST_FRAMES:
        seen.add(at)
        owner = 0 if layout.owner is None else objects.find_number(at + layout.owner, 1)
        frame = _find_frame(objects, layout, at) if owner is not None and owner < SHIM else None
        if frame is not None:
            yield frame
        at = objects.find_word(at + layout.back)


def _find_frame(objects: PythonObjects, layout: ThreadLayout, at: int) -> Optional[PythonFrame]:
    """Return what runs in a frame, or None where it is none of a Python function."""
    code = (objects.find_word(at + layout.executable) or 0) & ~_TAGS
    name, file = (objects.find_text(objects.find_word(code + place) or 0) for place in (layout.name, layout.file))
    if name is None or file is None:
        return None
    return PythonFrame(name, file, _line(objects, layout, at, code))


def _line(objects: PythonObjects, layout: ThreadLayout, frame: int, code: int) -> Optional[int]:
    first = objects.find_number(code + layout.first_line, 4)
    if layout.code is None:
        number = objects.find_number(frame + layout.instruction, 4)
        offset = -1 if number is None or number >> 31 else number * layout.unit
    else:
        offset = (objects.find_word(frame + layout.instruction) or 0) - code - layout.code
    table = objects.find_word(code + layout.lines) or 0
    size = objects.find_word(table + _BYTES_SIZE)
    if first is None or offset < 0 or size is None or size > _MOST_LINES:
        return first
    try:
        data = bytes(objects.reader.bytes(table + _BYTES_DATA, size, "a table of lines"))
    except FaultError:
        return None
    return find_line(layout.table, data, first, offset)
