"""A snapshot as a target, without a file that anybody else sees."""

from __future__ import annotations

from contextlib import ExitStack
from typing import Callable, Tuple

from gdbext.coretarget import as_process, target_of
from gdbext.memory.elf.elfcore import ElfCore
from gdbext.snapshot.taking import Wishes, take_snapshot
from gdbext.target import Target


def open_copy(pid: int, wishes: Wishes) -> Tuple[Target, Callable[[], None]]:
    """Copy a process; return the copy as a target, and what lets go of it. Errors as :func:`take_snapshot`."""
    with ExitStack() as stack:
        snapshot = take_snapshot(pid, wishes)
        stack.callback(snapshot.close)
        core = ElfCore(f"/proc/self/fd/{snapshot.descriptor}")
        stack.callback(core.close)
        return as_process(target_of(core), pid), stack.pop_all().close
    raise AssertionError  # the stack swallows nothing
