"""Other programs that the program runs: none outlasts it."""

from __future__ import annotations

import os
import signal
import subprocess
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any, Callable, Iterator, Sequence

from gdbext.cli.ending import owned
from gdbext.starting.parent import begin_child


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
    """End a process with all of its group, and wait for its end, not for its status: whoever waits for that has it."""
    with suppress(ProcessLookupError, PermissionError):  # all of it has ended
        os.killpg(process.pid, signal.SIGKILL)
    await_end(process)


def await_end(process: "subprocess.Popen[bytes]") -> None:
    """Wait for the end of a process; may be called while somebody else waits for it."""
    with suppress(ChildProcessError):
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
