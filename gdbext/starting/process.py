"""The process that gdb attaches to, before and afterwards."""

from __future__ import annotations

import os
import signal
import time
from contextlib import suppress

from gdbext.errors import NoTargetError

_SETTLING = 0.1  # seconds in which a process stops for a signal that is on its way


def check_process(pid: int) -> None:
    """Check that there is such a process.

    :raises NoTargetError: when there is none.
    """
    try:
        os.kill(pid, 0)
    except (ProcessLookupError, OverflowError):
        raise NoTargetError(f"there is no process {pid}", "ps -e lists them") from None
    except PermissionError:
        pass  # gdb says what it may not do


def wake(pid: int) -> None:
    """Have a process go on that ran before gdb attached to it and died.

    Where gdb dies between its SIGSTOP to the process and taking note that it has stopped, the kernel lets go of the
    process, and leaves it stopped (ptrace(2), under "Attaching and detaching").
    """
    until = time.monotonic() + _SETTLING
    while not is_stopped(pid):
        if time.monotonic() > until:
            return
        time.sleep(_SETTLING / 10)
    with suppress(ProcessLookupError, PermissionError):  # it has ended, or is nothing that we could have stopped
        os.kill(pid, signal.SIGCONT)


def is_stopped(pid: int) -> bool:
    """Whether a process is stopped by a signal, and not by a debugger."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            return file.read().rpartition(b")")[2].split()[0] == b"T"
    except (FileNotFoundError, ProcessLookupError):
        return False
