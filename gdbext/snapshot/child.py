"""A snapshot taken in a process of its own, for the program: any Python, which need not have numpy."""

from __future__ import annotations

import json
from typing import Any, Mapping, Optional

from gdbext.errors import GdbextError, NoTargetError, TooLargeError, out_of_memory
from gdbext.grammar.exchange import Copy, write_copy
from gdbext.starting import dependencies
from gdbext.starting.failures import NoPermissionError, find_limit
from gdbext.starting.process import find_tracer


def copy(package: str, folder: str, wishes: str, descriptor: str, pid: str) -> None:
    """Copy a process, and say in the folder what came of it.

    :param package: folder of ``gdbext/__init__.py``.
    :param wishes: those of :class:`gdbext.snapshot.taking.Wishes`, as JSON.
    :param descriptor: of a file in memory for the core.
    """
    dependencies.locate(package)
    try:
        copied = _copy(int(pid), json.loads(wishes), int(descriptor))
    except GdbextError as error:
        copied = _failed(error)
    except MemoryError:
        copied = _failed(out_of_memory())
    except OSError as error:
        limit = find_limit(error)
        if limit is None:
            raise
        copied = _failed(limit)
    write_copy(folder, copied)


def _copy(pid: int, wishes: Mapping[str, Any], descriptor: int) -> Copy:
    dependencies.load()
    from gdbext.snapshot.taking import Wishes, take_snapshot

    try:
        taken = take_snapshot(pid, Wishes(**wishes), descriptor)
    except (NoTargetError, TooLargeError):
        raise
    except GdbextError as error:
        raise _find_refusal(pid) or error from None
    problems = taken.facts.check(taken.facts.presence())
    name = taken.facts.names.get(pid, "")
    return Copy(taken.facts.held_seconds, name, taken.bytes, [one.message for one in problems])


def _find_refusal(pid: int) -> Optional[GdbextError]:
    """Return the error for a process that somebody else traces, or that we may not examine; None for any other."""
    from gdbext.tracing import permission

    if (tracer := find_tracer(pid)) is not None:
        what = f"process {pid} is traced already, by {tracer}"
        return NoPermissionError(what, "a process has one debugger at a time")
    if permission.is_given(pid):
        return None
    return NoPermissionError(f"process {pid} may not be examined", permission.find_way(pid))


def _failed(error: GdbextError) -> Copy:
    return Copy(error={"kind": error.kind, "message": error.message, "hint": error.hint})
