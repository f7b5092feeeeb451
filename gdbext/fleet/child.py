"""One piece of work in a process of its own: forked from this one, which has one thread, bounded, and ended with it."""

from __future__ import annotations

import gc
import json
import os
import resource
import select
import signal
import sys
import time
import traceback
from dataclasses import dataclass, field
from typing import Any, Callable, NoReturn, Optional, Sequence

from gdbext.cli.ending import SIGNALS, forget
from gdbext.errors import GdbextError, out_of_memory
from gdbext.starting.failures import InternalError, find_limit
from gdbext.starting.parent import begin_child

_STEP = 1 << 16
_TRIES = 3


@dataclass
class Child:
    """A process at work.

    :ivar stream: becomes readable with what it returns, and at its end.
    :ivar began: in seconds of ``time.monotonic``.
    """

    pid: int
    stream: int
    began: float
    text: bytearray = field(default_factory=bytearray)

    def read(self) -> bool:
        """Take what it has written; return whether it has ended, or closed its end."""
        data = os.read(self.stream, _STEP)
        self.text += data
        return not data

    def kill(self) -> None:
        """End it with all that it has started, which is in its session or ends with it."""
        try:
            os.killpg(self.pid, signal.SIGKILL)
        except ProcessLookupError:  # it has no session of its own yet
            os.kill(self.pid, signal.SIGKILL)

    def finish(self) -> "Ended":
        """Wait for its end; called once."""
        os.close(self.stream)
        _, status, usage = os.wait4(self.pid, 0)
        code = os.waitstatus_to_exitcode(status)
        cpu, peak = usage.ru_utime + usage.ru_stime, usage.ru_maxrss << 10
        return Ended(code, bytes(self.text), time.monotonic() - self.began, cpu, peak)


@dataclass(frozen=True)
class Ended:
    """What came of a child.

    :param code: its exit status, negative for the signal that ended it.
    :param text: that it returned.
    :param cpu: seconds of processors, those of its own children that it has waited for too.
    :param peak: bytes of memory that it had at most, or one of those children.
    """

    code: int
    text: bytes
    seconds: float
    cpu: float
    peak: int

    def result(self) -> Any:
        """Return what the work returned.

        :raises GdbextError: as the work; or it was ended by somebody.
        """
        if self.code:
            raise GdbextError(f"a process of ours was ended by signal {-self.code}" if self.code < 0 else "it failed")
        found = json.loads(self.text)
        if "error" in found:
            error = GdbextError(*found["error"][1:])
            error.kind = found["error"][0]
            raise error
        return found["result"]


def start(work: Callable[[], Any], memory: Optional[int] = None) -> Child:
    """Start work in a process of its own.

    :param work: returns what JSON can hold.
    :param memory: bytes of address space that it may take beside what this process has.
    """
    ours, theirs = os.pipe()
    parent, mask = os.getpid(), signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
    sys.stdout.flush()
    sys.stderr.flush()
    try:
        pid = os.fork()
        if not pid:
            _run(work, theirs, parent, memory)
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        os.close(theirs)
    return Child(pid, ours, time.monotonic())


def run(work: Callable[[], Any], memory: Optional[int] = None) -> Any:
    """Do work in a process of its own, and return what it returns; errors as :meth:`Ended.result`.

    Where somebody kills that process it is done again, a few times.
    """
    for _ in range(_TRIES):
        ended = _run_once(work, memory)
        if ended.code >= 0:
            break
    return ended.result()


def _run_once(work: Callable[[], Any], memory: Optional[int]) -> Ended:
    child = start(work, memory)
    try:
        while not child.read():
            pass
    except BaseException:
        child.kill()
        child.finish()
        raise
    return child.finish()


def await_any(streams: Sequence[int], seconds: Optional[float]) -> Sequence[int]:
    """Return the streams that can be read, after so many seconds at most."""
    poll = select.poll()
    for stream in streams:
        poll.register(stream, select.POLLIN)
    return [stream for stream, _ in poll.poll(None if seconds is None else max(seconds, 0) * 1000)]


# ---- in the child ----


def _run(work: Callable[[], Any], stream: int, parent: int, memory: Optional[int]) -> NoReturn:
    code = 1
    try:
        _begin(parent, memory)
        found = answer(work)
        with os.fdopen(stream, "wb") as out:
            out.write(json.dumps(found).encode())
        code = 0
    finally:
        os._exit(code)


def _begin(parent: int, memory: Optional[int]) -> None:
    forget()
    os.setsid()
    begin_child(parent, signal.SIGKILL, ())
    resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))
    gc.freeze()
    if memory is not None:
        limit_memory(memory)


def limit_memory(memory: int) -> None:
    """Let this process, and what it starts, take so many bytes of address space beside what it has, and no more."""
    limit, hard = _taken() + memory, resource.getrlimit(resource.RLIMIT_AS)[1]
    limit = limit if hard == resource.RLIM_INFINITY else min(limit, hard)
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))


def _taken() -> int:
    """Return the bytes of our address space (proc(5), statm)."""
    with open("/proc/self/statm", encoding="ascii") as file:
        return int(file.read().split()[0]) * resource.getpagesize()


def answer(work: Callable[[], Any]) -> Any:
    """Return what work returns, or its error, as :meth:`Ended.result` takes it."""
    try:
        return {"result": work()}
    except GdbextError as error:
        fault = error
    except MemoryError:
        fault = out_of_memory()
    except Exception as error:  # noqa: BLE001  a defect of ours costs one core
        limit = find_limit(error) if isinstance(error, OSError) else None
        place = traceback.extract_tb(error.__traceback__)[-1]
        where = f"{os.path.basename(place.filename)}:{place.lineno}"
        fault = limit or InternalError(f"{type(error).__name__}: {error} ({where})")
    return {"error": [fault.kind, fault.message, fault.hint]}
