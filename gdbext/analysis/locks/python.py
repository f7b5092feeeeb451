"""Python's threads in the census: who holds the interpreter's lock (the GIL), who waits for it, and where each is."""

from __future__ import annotations

from typing import Iterator, List, Optional, Sequence

from gdbext.analysis.locks.pythonrows import HOLDS, LOCK, WAITS, PythonRow, PythonWaits
from gdbext.heap.cpython.find.runtimes import for_each_runtime
from gdbext.heap.cpython.model import Runtime
from gdbext.heap.cpython.threads.frames import PythonFrame
from gdbext.heap.cpython.threads.read import Gil, PythonThread, read_gils, read_threads
from gdbext.structures.locks.model import Census, Primitive, Wait
from gdbext.target import Target
from gdbext.wording import count_text


def find_python_waits(target: Target, census: Census) -> PythonWaits:
    """Return what the threads of each interpreter of a target do; nothing where there is none."""
    parts = [_of_runtime(target, runtime, census) for runtime in for_each_runtime(target)]
    return PythonWaits(
        [row for part in parts for row in part.rows],
        [one for part in parts for one in part.sentences],
        [one for part in parts for one in part.notes],
    )


def _of_runtime(target: Target, runtime: Runtime, census: Census) -> PythonWaits:
    numbers = {thread.tls: thread.number for thread in target.threads if thread.tls is not None}
    threads = list(_begun(read_threads(target, runtime)))
    if not threads:
        return PythonWaits(notes=[f"{runtime.label}: its threads are not known, nor who holds its lock"])
    gils = list(read_gils(target, runtime))
    waits = {wait.thread.number: wait for wait in census.waits}
    rows: List[PythonRow] = []
    for thread in sorted(threads, key=lambda one: numbers.get(one.pthread, 1 << 62)):
        number = numbers.get(thread.pthread)
        state = _state(thread, gils, None if number is None else waits.get(number))
        stack = [_text(frame) for frame in thread.frames]
        rows.append(PythonRow(number, state, " ← ".join(stack[:3]), stack))
    return PythonWaits(rows, list(_sentences(rows)))


def _begun(threads: Sequence[PythonThread]) -> Iterator[PythonThread]:
    """Iterate over threads without those that are still to begin: before, a state has the thread that made it."""
    running = {one.pthread for one in threads if one.frames}
    yield from (one for one in threads if one.frames or one.pthread not in running)


def _state(thread: PythonThread, gils: Sequence[Gil], wait: Optional[Wait]) -> Optional[str]:
    if any(gil.holder == thread.address for gil in gils):
        return HOLDS
    if wait is None or wait.lock is None:
        return None
    if any(start <= wait.lock < end for gil in gils for start, end in gil.waits):
        return WAITS
    return LOCK if wait.primitive is Primitive.SEMAPHORE else None


def _text(frame: PythonFrame) -> str:
    return f"{frame.function} ({frame.file}:{frame.line})" if frame.line else f"{frame.function} ({frame.file})"


def _sentences(rows: Sequence[PythonRow]) -> Iterator[str]:
    """Iterate over who holds the lock up whom, in words."""
    waiting = sum(row.state == WAITS for row in rows)
    holder = next((row for row in rows if row.state == HOLDS), None)
    if not waiting:
        return
    verb = "waits" if waiting == 1 else "wait"
    who = "which nobody holds at the moment"
    if holder is not None:
        place = f", which is in {holder.stack[0]}" if holder.stack else ""
        who = f"held by {f'thread {holder.number}' if holder.number is not None else 'a thread that is gone'}{place}"
    yield f"{count_text(waiting, 'thread')} {verb} for Python's GIL, {who}"
