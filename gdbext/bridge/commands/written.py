"""Whether standard output has taken what gdb wrote: gdb itself does not ask."""

from __future__ import annotations

import ctypes
import os
import select

import gdb

from gdbext.errors import GdbextError


def check_written() -> None:
    """Check what was written until now. A terminal, and a pipe whose reader has left, are no errors.

    :raises GdbextError: when some of it is lost.
    """
    gdb.flush()
    libc = ctypes.CDLL(None)
    try:
        stdout = ctypes.c_void_p.in_dll(libc, "stdout")
    except ValueError:  # a gdb with a C library of its own
        return
    if not libc.ferror(stdout):
        return
    libc.clearerr(stdout)
    if not os.isatty(1) and not _is_left():
        raise GdbextError("standard output does not take the answer", "is the disk full, or is it closed?")


def _is_left() -> bool:
    """Whether standard output is a pipe that nobody reads."""
    poll = select.poll()
    poll.register(1, select.POLLOUT)
    return any(events & select.POLLERR for _, events in poll.poll(0))
