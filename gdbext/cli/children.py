"""Other programs that the program runs: none outlasts it."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import time
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any, Callable, Iterator, Optional, Sequence

from gdbext.cli.ending import owned
from gdbext.starting.parent import begin_child

_ENDED = os.WEXITED | os.WNOWAIT
_LONGEST = 3600.0  # seconds that are waited at once
_STEP = 0.01  # seconds between two questions whether a process has ended, where the kernel has no descriptor for it


@contextmanager
def started(
    line: Sequence[str],
    end: "Callable[[subprocess.Popen[bytes]], object]",
    death_signal: int = signal.SIGKILL,
    **how: Any,
) -> "Iterator[subprocess.Popen[bytes]]":
    """Run another program, which ends when we do.

    :param end: ends it.
    :param death_signal: that it gets when we are killed.
    :raises OSError: it cannot be run.
    """
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, ())
    begin = partial(begin_child, os.getpid(), death_signal, mask)

    def start() -> "subprocess.Popen[bytes]":
        return subprocess.Popen(list(line), preexec_fn=begin, **how)

    with owned(start, end) as process:
        yield process


def end_group(process: "subprocess.Popen[bytes]") -> None:
    """End a process with all of its group, and wait for its end, not for its status: whoever waits for that has it.

    Nothing is done once it was waited for: its number may be that of another's group by then.
    """
    if not _is_known(process):
        return
    with suppress(ProcessLookupError, PermissionError):  # all of it has ended
        os.killpg(process.pid, signal.SIGKILL)
    await_end(process)


def await_end(process: "subprocess.Popen[bytes]", seconds: Optional[float] = None) -> bool:
    """Wait for the end of a process, whose number and status stay; may be called while somebody else waits for it.

    :param seconds: to wait at most, or None.
    :return: whether it has ended.
    """
    until = None if seconds is None else time.monotonic() + seconds
    try:
        while os.waitid(os.P_PID, process.pid, _ENDED | (0 if until is None else os.WNOHANG)) is None:
            left = until - time.monotonic() if until is not None else 0
            if left <= 0:
                return False
            _pause(process.pid, left)
    except ChildProcessError:  # it was waited for
        pass
    return True


def _pause(pid: int, seconds: float) -> None:
    """Wait until a process has ended, so long at most, or a moment."""
    try:
        descriptor = os.pidfd_open(pid)
    except (AttributeError, OSError):
        time.sleep(_STEP)
        return
    try:
        poll = select.poll()
        poll.register(descriptor, select.POLLIN)
        poll.poll(min(seconds, _LONGEST) * 1000)
    finally:
        os.close(descriptor)


def _is_known(process: "subprocess.Popen[bytes]") -> bool:
    """Whether nobody has waited for the process, so that its number is still its own."""
    try:
        os.waitid(os.P_PID, process.pid, _ENDED | os.WNOHANG)
    except ChildProcessError:
        return False
    return True
