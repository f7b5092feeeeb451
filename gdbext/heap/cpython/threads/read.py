"""An interpreter's threads and their frames, and who holds its lock."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Iterator, Optional, Sequence, Tuple

from gdbext.errors import FaultError
from gdbext.heap.cpython.find.places import MOST_THREADS, for_each_interpreter, for_each_linked, layout_of
from gdbext.heap.cpython.layouts import THREAD_NEXT
from gdbext.heap.cpython.model import Runtime
from gdbext.heap.cpython.objects.layouts import FREE_HEAD, LAYOUTS
from gdbext.heap.cpython.objects.objects import PythonObjects
from gdbext.heap.cpython.threads.frames import PythonFrame, for_each_frame
from gdbext.heap.cpython.threads.layouts import (
    COND_SIZE,
    GIL_COND,
    GIL_LAST_HOLDER,
    GIL_LOCKED,
    GIL_SWITCH_COND,
    THREADS,
)
from gdbext.target import Target


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
    head = FREE_HEAD if runtime.free_threaded else 0
    objects = PythonObjects(target.reader, [one for one in LAYOUTS if one.origin == version], head)
    return [
        PythonThread(
            state, objects.find_word(state + layout.thread_id) or 0, list(for_each_frame(objects, layout, state))
        )
        for interpreter in for_each_interpreter(target, runtime)
        for state in for_each_linked(target, interpreter + known.threads, THREAD_NEXT, MOST_THREADS)
    ]


def read_gils(target: Target, runtime: Runtime) -> Iterator[Gil]:
    """Iterate over the locks of a runtime's interpreters, which may share one; unreadable ones are left out."""
    layout = THREADS.get(runtime.version or (0, 0))
    if layout is None or runtime.address is None or runtime.free_threaded or layout_of(runtime) is None:
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
