"""The kernel's own list of the threads of a process of this machine.

A first thread that ends before the others stays listed, without memory. gdb cannot attach to such a process but by one
of its other threads, and then has that one only.
"""

from __future__ import annotations

import os
from typing import Iterator, Sequence

from gdbext.process import Thread
from gdbext.report import Problem

UNLISTED = "threads-not-listed"


def check_tasks(pid: int, threads: Sequence[Thread]) -> Sequence[Problem]:
    """Return a problem when the kernel knows living threads of a process of this machine that are not among these."""
    known = {thread.lwp for thread in threads}
    missing = [tid for tid in living(pid) if tid not in known]
    if not missing:
        return ()
    message = f"the debugger has {len(known)} of the {len(known) + len(missing)} threads of the process"
    return (Problem(UNLISTED, None, message),)


def find_living(pid: int) -> int:
    """Return the process's id while its first thread lives, else the id of a thread through which its memory is seen.

    :returns: ``pid`` too when nothing tells.
    """
    found = list(living(pid))
    return pid if pid in found or not found else found[0]


def living(pid: int) -> Iterator[int]:
    """Iterate over the kernel's ids of the threads, but for those that have ended (a first thread stays listed)."""
    try:
        tids = [int(name) for name in os.listdir(f"/proc/{pid}/task")]
    except OSError:  # it has ended, or is another user's
        return
    for tid in tids:
        try:
            with open(f"/proc/{pid}/task/{tid}/stat", "rb") as stat:
                state = stat.read().rpartition(b")")[2].split()[:1]
        except OSError:
            continue
        if state not in ([b"Z"], [b"X"]):
            yield tid
