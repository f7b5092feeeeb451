"""The census: every thread, what it does and what it waits for."""

from __future__ import annotations

from typing import Hashable, Mapping, Optional, Sequence

from gdbext.debuginfo import NO_DEBUG_INFO, Frame, Stacks
from gdbext.process import Thread
from gdbext.progress import SILENT, Progress
from gdbext.structures.locks.futexes import Classified, classify
from gdbext.structures.locks.mention import find_mentions
from gdbext.structures.locks.model import Census, FutexWait, State, Syscall, Wait
from gdbext.structures.locks.objects import Objects, objects_of
from gdbext.structures.locks.parked import find_parked
from gdbext.structures.locks.spins import decodes_spins, find_spin
from gdbext.structures.locks.syscalls import find_futex_wait, find_machine, find_syscall
from gdbext.structures.locks.tids import Tids, read_tids
from gdbext.target import Target

_FRAMES = 8
_LIBC = ("libc.so", "libc-2")


def take_census(target: Target, stacks: Stacks = NO_DEBUG_INFO, progress: Progress = SILENT) -> Census:
    """Look at every thread.

    :param stacks: unwinds; without it the names of functions take no part.
    :raises KeyboardInterrupt: as ``progress`` says.
    """
    tids = read_tids(target)
    look = _Look(target, stacks, tids)
    waits = []
    for done, thread in enumerate(target.threads):
        progress.at("threads", done, len(target.threads))
        waits.append(look.wait_of(thread))
    mentions = find_mentions(target, _unowned(waits))
    return Census(tuple(waits), tids.numbers, mentions, tuple(_notes(target, tids, waits)), tids.certain)


class _Look:
    """What all threads' look-ups share."""

    def __init__(self, target: Target, stacks: Stacks, tids: Tids) -> None:
        self._target = target
        self._stacks = stacks
        self._tids = tids
        self._objects: Objects = objects_of(target, tids)
        named = (module for module in target.modules if module.path.rpartition("/")[2].startswith(_LIBC))
        self._libc = next(named, None)
        self._classified: "dict[Hashable, Classified]" = {}

    def wait_of(self, thread: Thread) -> Wait:
        tid = self._tids.inner.get(thread.number)
        if not thread.registers or find_machine(self._target) is None:
            return Wait(thread, State.UNKNOWN, tid)
        frames = self._stacks.frames(thread, _FRAMES)
        syscall = find_syscall(self._target, thread)
        if syscall is None:
            return self._running(thread, tid, frames)
        return self._in_syscall(thread, tid, frames, syscall)

    def _running(self, thread: Thread, tid: Optional[int], frames: Sequence[Frame]) -> Wait:
        found = find_spin(self._target, thread, frames)
        if found is None:
            return Wait(thread, State.RUNNING, tid)
        return _waiting(thread, State.SPINNING, tid, None, found, None)

    def _in_syscall(
        self, thread: Thread, tid: Optional[int], frames: Sequence[Frame], syscall: Syscall
    ) -> Wait:
        name = syscall.name or f"system call {syscall.number}"
        futex = find_futex_wait(syscall)
        if futex is None:
            return Wait(thread, State.SYSCALL, tid, name)
        found = find_parked(futex, thread, self._objects) or self._classify(futex, frames)
        return _waiting(thread, State.FUTEX, tid, name, found, futex.timed)


    def _classify(self, futex: FutexWait, frames: Sequence[Frame]) -> Classified:
        """Say what a wait is for; of thousands of threads that wait for the same in the same functions, once."""
        key = futex, tuple((frame.function, frame.module) for frame in frames)
        if key not in self._classified:
            self._classified[key] = classify(futex, self._objects, frames, self._libc)
        return self._classified[key]


def _waiting(
    thread: Thread,
    state: State,
    tid: Optional[int],
    syscall: Optional[str],
    found: Classified,
    timed: Optional[bool],
) -> Wait:
    return Wait(
        thread,
        state,
        tid,
        syscall,
        found.primitive,
        found.lock or None,
        found.state,
        timed,
        found.confidence,
        found.because,
        found.alternatives,
    )


def _unowned(waits: Sequence[Wait]) -> Mapping[int, "set[int]"]:
    """Return the locks that do not say who holds them, each with those who wait for it."""
    waiting: "dict[int, set[int]]" = {}
    for wait in waits:
        owned = wait.state_of_lock is not None and wait.state_of_lock.owner_tid is not None
        if wait.primitive is not None and wait.lock and not owned:
            waiting.setdefault(wait.lock, set()).add(wait.thread.number)
    return waiting


def _notes(target: Target, tids: Tids, waits: Sequence[Wait]) -> Sequence[str]:
    notes = []
    if not decodes_spins(target) and any(wait.state is State.RUNNING for wait in waits):
        notes.append(f"spinlocks are not decoded on {target.abi.machine}: a thread that runs may be spinning")
    if find_machine(target) is None:
        notes.append(f"the registers of {target.abi.machine} are not known here: no thread's wait can be decoded")
    if tids.offset is None and any(thread.registers for thread in target.threads):
        notes.append("struct pthread was not found: whether an owner that is not listed still lives is not known")
    if tids.foreign:
        notes.append("the process has a PID namespace of its own: owners are matched by the ids in struct pthread")
    return notes
