"""A process of this machine that is stopped by us, from open to close.

ptrace takes calls for a thread only from the thread that seized it; so one thread of our own makes all of them, and
whoever reads may be any. The kernel lets go of all tracees when that thread ends, also by SIGKILL.
"""

from __future__ import annotations

import os
import threading
import time
import weakref
from dataclasses import dataclass
from typing import Dict, Mapping, Optional, Sequence

from gdbext.errors import DebuggerError, GdbextError, NoTargetError
from gdbext.memory.elf.corenotes import NT_386_TLS, NT_ARM_TLS, NT_PRSTATUS
from gdbext.memory.live.mappings import gone, read_status
from gdbext.tracing import permission, ptrace
from gdbext.tracing.stalled import PATIENCE, not_stopped
from gdbext.tracing.tasks import living

_PAUSE = 0.0005
SETS = (NT_PRSTATUS, NT_386_TLS, NT_ARM_TLS)


@dataclass(frozen=True)
class StoppedThread:
    """A thread at the stop.

    :param sets: its register sets as the kernel has them, by number of their note; empty where there is none.
    """

    tid: int
    sets: Mapping[int, bytes]


class Tracer:
    """All threads of a process, stopped until :meth:`let_go` is called, this object is collected, or we end.

    A signal that is sent meanwhile is delivered afterwards, and a process that a signal had stopped stays stopped.

    :param pid: of the process, or of one of its threads.
    :param sets: which register sets are read, by number of their note.
    :raises NoTargetError: there is no such process.
    :raises DebuggerError: it may not be traced, is traced by another, or does not stop.
    :ivar threads: in the kernel's order, the process's first one first.
    """

    def __init__(self, pid: int, sets: Sequence[int] = SETS) -> None:
        self.pid = find_process(pid)
        self._work = work = _Work(self.pid, sets)
        worker = threading.Thread(target=work.run, name=f"gdbext holds {self.pid}", daemon=True)
        self._finalizer = weakref.finalize(self, _let_go, work, worker)  # before it starts: an interrupt may come
        worker.start()
        try:
            work.ready.wait()
        except KeyboardInterrupt:
            self.let_go()
            raise
        if work.fault is not None:
            self.let_go()
            raise work.fault
        self.threads = work.threads

    def let_go(self) -> None:
        """Let the process go on, if it does not already."""
        self._finalizer()

    @property
    def since(self) -> float:
        """When the first of its threads was asked to stop, as ``time.monotonic`` counts."""
        return self._work.since

    @property
    def held_seconds(self) -> float:
        """For how long it stood still; 0 before :meth:`let_go`."""
        return max(self._work.until - self._work.since, 0.0)


def _let_go(work: "_Work", worker: threading.Thread) -> None:
    work.release.set()
    if worker.is_alive():
        worker.join()


class _Work:
    """What the tracing thread does.

    :ivar ready: once all threads are stopped, or there is a fault.
    :ivar release: set by others when it is to end.
    """

    def __init__(self, pid: int, sets: Sequence[int]) -> None:
        self.pid = pid
        self._sets = sets
        self.since = self.until = 0.0
        self.ready, self.release = threading.Event(), threading.Event()
        self.fault: Optional[Exception] = None
        self.threads: Sequence[StoppedThread] = ()
        self._signals: Dict[int, int] = {}  # by thread, those at which it stopped
        self._deadline = time.monotonic() + PATIENCE

    def run(self) -> None:
        """Hold the process."""
        try:
            self.since = time.monotonic()
            self._stop()
            self.threads = [_read_thread(tid, self._sets) for tid in living(self.pid)]
            self.ready.set()
            self.release.wait()
        except (GdbextError, MemoryError) as fault:
            self.fault = fault
        except OSError as error:  # half-way, by a filter of system calls
            self.fault = _refused(self.pid, self.pid, error)
        finally:
            for tid, signal in self._signals.items():
                ptrace.detach(tid, signal)
            self.until = time.monotonic()
            self.ready.set()

    def _stop(self) -> None:
        """Stop every thread: only one that runs makes others, so the last list has none that is new."""
        while True:
            found = list(living(self.pid))
            if not found:
                raise gone(self.pid)
            running = [tid for tid in found if tid not in self._signals or ptrace.find_stop(tid) is None]
            if not running:
                return
            for tid in [tid for tid in running if _seize(self.pid, tid)]:
                self._await(tid)

    def _await(self, tid: int) -> None:
        """Wait until a thread is stopped, or has ended, or is ours no more: another one made exec and got its id."""
        while (signal := ptrace.find_stop(tid)) is None:
            if not _is_ours(tid):
                return
            if self.release.is_set() or time.monotonic() > self._deadline:
                raise not_stopped(self.pid, tid)
            time.sleep(_PAUSE)
        self._signals[tid] = signal


def _read_thread(tid: int, sets: Sequence[int]) -> StoppedThread:
    return StoppedThread(tid, {kind: ptrace.read_registers(tid, kind) for kind in sets})


def find_process(pid: int) -> int:
    """Return the id of the process that a thread is of.

    :raises NoTargetError: there is none, or it has ended.
    :raises DebuggerError: somebody traces it already, it is our own, or it is hidden from us.
    """
    status = read_status(pid)
    if "Tgid" not in status:
        raise permission.hidden(pid) or NoTargetError(f"there is no process {pid}", "ps -e lists them")
    if next(living(int(status["Tgid"])), None) is None:
        raise gone(pid)
    _check_untraced(pid, status)
    if int(status["Tgid"]) == os.getpid():
        raise DebuggerError("a process cannot stop itself and go on", "open it from another process")
    return int(status["Tgid"])


def _check_untraced(pid: int, status: Mapping[str, str]) -> None:
    tracer = int(status.get("TracerPid", 0))
    if tracer:
        group, name = read_status(tracer).get("Tgid", tracer), read_status(tracer).get("Name", "?")
        message = f"process {pid} is traced already, by process {group} ({name})"
        raise DebuggerError(message, "a process has one tracer: end that one")


def _seize(pid: int, tid: int) -> bool:
    """Return whether a thread is to stop for us; False where it has ended."""
    try:
        ptrace.seize(tid)
    except OSError as error:
        if _is_ours(tid):
            ptrace.interrupt(tid)
            return True
        if tid not in living(pid):
            return False
        raise _refused(pid, tid, error) from None
    return True


def _refused(pid: int, tid: int, error: OSError) -> DebuggerError:
    """Return the error for a thread that the kernel does not let us trace."""
    if not _is_ours(tid):
        _check_untraced(pid, read_status(tid))
    message = f"process {pid} may not be traced: {error.strerror}"
    return DebuggerError(message, permission.find_way(pid))


def _is_ours(tid: int) -> bool:
    """Whether this thread traces another that lives."""
    status = read_status(tid)
    return status.get("TracerPid") == str(threading.get_native_id()) and status.get("State", "Z")[0] not in "ZX"
