"""Which process is recorded: a number alone is another's once its process has ended."""

from __future__ import annotations

import os
from contextlib import suppress
from typing import Iterator, NamedTuple, Optional

_NAME = 15  # bytes of a name that the kernel keeps
_ENDED = (b"Z", b"X")
_PARENT, _STARTED = 1, 19  # fields of stat, counted from the state on: proc(5)


class Running(NamedTuple):
    """A process that runs.

    :param started: clock ticks from the machine's boot to its start.
    :param name: as the kernel has it: of 15 bytes at most.
    """

    pid: int
    started: int
    name: str


def find_running(pid: int) -> Optional[Running]:
    """Return a process, None where there is none, or it has ended and its parent has not yet taken note of that."""
    found = _read_stat(pid)
    return found[0] if found else None


def is_running(process: Running) -> bool:
    """Whether a process has not ended; it may have another name by now."""
    now = find_running(process.pid)
    return now is not None and now.started == process.started


def find_named(name: str) -> Optional[Running]:
    """Return the process of that name that started first, of those whose parent is of another name; None without one.

    :param name: of which the first 15 bytes count.
    """
    wanted = os.fsdecode(os.fsencode(name)[:_NAME])
    found = {process.pid: (process, parent) for process, parent in _for_each() if process.name == wanted}
    ours = [process for process, parent in found.values() if parent not in found and process.pid != os.getpid()]
    return min(ours, key=lambda process: (process.started, process.pid), default=None)


def _for_each() -> "Iterator[tuple[Running, int]]":
    """Iterate over all processes that can be seen, each with its parent's id."""
    for name in os.listdir("/proc"):
        if name.isdigit():
            found = _read_stat(int(name))
            if found is not None:
                yield found


def _read_stat(pid: int) -> "Optional[tuple[Running, int]]":
    with suppress(FileNotFoundError, ProcessLookupError, PermissionError):  # the last of a /proc that hides it
        with open(f"/proc/{pid}/stat", "rb") as file:
            front, _, back = file.read().rpartition(b")")
        fields = back.split()
        if fields[0] not in _ENDED:
            name = os.fsdecode(front.partition(b"(")[2])
            return Running(pid, int(fields[_STARTED]), name), int(fields[_PARENT])
    return None
