"""How gdb comes to a process, and why it may not."""

from __future__ import annotations

import signal
from contextlib import contextmanager
from typing import Iterator

import gdb

from gdbext.errors import DebuggerError, GdbextError
from gdbext.starting.failures import NoPermissionError
from gdbext.starting.parent import outliving_parent
from gdbext.starting.process import ATTACHING, find_tracer
from gdbext.tracing import permission
from gdbext.tracing.tracer import find_process


def attach(pid: int) -> None:
    """Stop a process.

    :raises gdb.error: as gdb says it; see :func:`refusal`.
    """
    with outliving_parent(), _ended_after(ATTACHING):  # a gdb that ends in the midst of it leaves it stopped
        gdb.execute(f"attach {pid}", to_string=True)


@contextmanager
def _ended_after(seconds: int) -> Iterator[None]:
    """Have the kernel end gdb where it waits for ever, for a thread that is gone since another one made exec."""
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)


def refusal(pid: int, said: str) -> GdbextError:
    """Return the error for a process that gdb could not attach to."""
    if (tracer := find_tracer(pid)) is not None:
        error = DebuggerError(f"process {pid} is traced already, by {tracer}", "a process has one debugger at a time")
        error.kind = NoPermissionError.kind
        return error
    try:
        find_process(pid)
    except GdbextError as known:  # it has ended
        return known
    if "Operation not permitted" in said and not permission.is_given(pid):
        return NoPermissionError(f"process {pid} may not be examined", permission.find_way(pid))
    if "Operation not permitted" in said or "No such process" in said:
        return DebuggerError(f"threads of process {pid} ended while gdb attached to them", "try again")
    return DebuggerError(" ".join(said.split()).rstrip("."))
