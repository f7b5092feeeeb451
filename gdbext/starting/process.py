"""The process that gdb attaches to, before and afterwards."""

from __future__ import annotations

import os
import signal
import time
from contextlib import suppress
from typing import Optional, Sequence, Set

from gdbext.errors import DebuggerError, NoTargetError
from gdbext.memory.live.mappings import read_status

ATTACHING = 600  # seconds that gdb has to attach and to read symbols; it is then ended by SIGALRM
UNSAID = 10.0  # of them, before it is said what gdb waits for
_SETTLING = 0.1  # seconds in which a process stops for a signal that is on its way
_FLAGS, _KERNEL_THREAD = 6, 0x200000  # PF_KTHREAD; fields counted from the state on, see proc(5)


def check_process(pid: int) -> None:
    """Check that there is such a process, with memory of its own.

    :raises NoTargetError: when there is none.
    """
    try:
        os.kill(pid, 0)
    except (ProcessLookupError, OverflowError):
        raise NoTargetError(f"there is no process {pid}", "ps -e lists them") from None
    except PermissionError:
        pass  # gdb says what it may not do
    fields = _read_stat(f"/proc/{pid}")
    if fields and int(fields[_FLAGS]) & _KERNEL_THREAD:
        raise NoTargetError(f"{pid} is a kernel thread, without memory of its own", "name a process")
    if fields and all(_has_ended(f"/proc/{pid}/task/{tid}") for tid in _list_threads(pid)):
        raise NoTargetError(f"process {pid} has ended", "it is a zombie until its parent takes note of that")


def _list_threads(pid: int) -> Sequence[str]:
    try:
        return os.listdir(f"/proc/{pid}/task")
    except (FileNotFoundError, ProcessLookupError):
        return ()


def _has_ended(folder: str) -> bool:
    return _read_stat(folder)[:1] in ([], [b"Z"], [b"X"])


def find_tracer(pid: int) -> Optional[str]:
    """Return who traces a process, "process 7 (gdb)", or None when nobody does."""
    tracer = read_status(pid).get("TracerPid", "0")
    if tracer == "0":
        return None
    status = read_status(int(tracer))
    return f"process {status.get('Tgid', tracer)} ({status.get('Name', '?')})"


def not_attached(pid: int, seconds: float = ATTACHING) -> DebuggerError:
    """Return the error for a gdb that was ended while it attached, by SIGALRM or by who waited for it."""
    why = "it may be large, or its threads come and go, or it makes exec again and again; try again"
    return DebuggerError(f"gdb did not come to hold process {pid} in {seconds:.0f} s", why)


def find_waiting(pid: int) -> Optional[str]:
    """Return, in a line for the user, what gdb waits for that is to hold a process; None where a debugger does."""
    stuck = _in_kernel(pid)
    if stuck:
        time.sleep(_SETTLING)  # one that waits for a disk for a moment is not meant
        stuck &= _in_kernel(pid)
    if stuck:
        return f"gdb waits for thread {min(stuck, key=int)} of process {pid}, which is stuck in the kernel (state D)"
    if find_tracer(pid) is None:
        return f"gdb does not hold process {pid} yet: it reads debug info, and the process runs meanwhile"
    return None


def _in_kernel(pid: int) -> Set[str]:
    """Return the threads of a process that sleep and take no signal."""
    return {tid for tid in _list_threads(pid) if _read_stat(f"/proc/{pid}/task/{tid}")[:1] == [b"D"]}


def wake(pid: int) -> None:
    """Have a process go on that ran before gdb attached to it and died.

    Where gdb dies between its SIGSTOP to the process and taking note that it has stopped, the kernel lets go of the
    process, and leaves it stopped (ptrace(2), under "Attaching and detaching"), at once or when it is thawed.
    """
    until = time.monotonic() + _SETTLING
    while not (is_stopped(pid) or _is_to_stop(pid)):
        if time.monotonic() > until:
            return
        time.sleep(_SETTLING / 10)
    with suppress(ProcessLookupError, PermissionError):  # it has ended, or is nothing that we could have stopped
        os.kill(pid, signal.SIGCONT)


def is_stopped(pid: int) -> bool:
    """Whether a process is stopped by a signal, and not by a debugger."""
    return _read_stat(f"/proc/{pid}")[:1] == [b"T"]


def _is_to_stop(pid: int) -> bool:
    """Whether a SIGSTOP is on its way to a process that does not run."""
    status = read_status(pid)
    return any(int(status.get(name, "0"), 16) >> (signal.SIGSTOP - 1) & 1 for name in ("SigPnd", "ShdPnd"))


def _read_stat(folder: str) -> Sequence[bytes]:
    """Return the fields of ``stat`` from the state on; none when the process is gone."""
    try:
        with open(f"{folder}/stat", "rb") as file:
            return file.read().rpartition(b")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return []
