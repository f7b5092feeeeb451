"""Why there is no answer: what gdb said of it, in one line."""

from __future__ import annotations

import re
import signal
from typing import Any, Callable, Mapping, Optional, Sequence

from gdbext.cli.gdbrun import GdbOutcome
from gdbext.cli.options import Options
from gdbext.errors import BadCoreError, GdbextError, NoTargetError, is_memory_short, out_of_memory
from gdbext.memory.corefile import COPY, shrunk
from gdbext.starting.failures import GdbFailedError, InternalError, NoPermissionError, TimeOutError
from gdbext.starting.process import not_attached


def explain(options: Options, outcome: GdbOutcome) -> GdbextError:
    """Return why gdb left no whole answer, as far as it is known."""
    if outcome.stopped == "timeout":
        return TimeOutError(f"no answer within {options.timeout:g} s", "--timeout gives more")
    if outcome.stopped == "interrupted":
        return TimeOutError("stopped before there was an answer")
    if outcome.shrank:
        return shrunk()
    known = _find_explained((*_REFUSALS, *_EXPLAINED), options, outcome.diagnostics)
    if known is not None:
        return known
    if any(map(is_memory_short, outcome.diagnostics)):
        return out_of_memory()
    if outcome.status == -signal.SIGALRM and options.pid is not None:
        return not_attached(options.pid)
    if outcome.status < 0:
        # A mapped core whose disk fails, or that is cut meanwhile, is no error of a read, but a signal.
        unread = f"the disk may not give {options.core}, or it was cut meanwhile: {COPY}"
        hint = unread if outcome.status == -signal.SIGBUS and options.core is not None else None
        return GdbFailedError(f"gdb was ended by {signal_name(-outcome.status)} before it answered", hint)
    last = outcome.diagnostics[-1] if outcome.diagnostics else f"it ended with status {outcome.status}"
    return GdbFailedError(f"gdb gave no answer: {last}")


def find_refusal(options: Options, outcome: GdbOutcome, error: Mapping[str, Any]) -> Optional[GdbextError]:
    """Return why a command had nothing to examine, where that is known better than it knows itself, else None."""
    if outcome.stopped:
        return explain(options, outcome)
    return _find_explained(_REFUSALS, options, [*outcome.diagnostics, error["message"]])


def error_of(error: Mapping[str, Any]) -> GdbextError:
    """Return the error that a trailer holds."""
    made = GdbextError(error["message"], error["hint"])
    made.kind = error["kind"]
    return made


def _find_explained(
    table: Sequence[tuple[str, Callable[[Options], GdbextError]]], options: Options, lines: Sequence[str]
) -> Optional[GdbextError]:
    text = "\n".join(lines)
    return next((explained(options) for pattern, explained in table if re.search(pattern, text)), None)


def signal_name(number: int) -> str:
    """Return a signal's name, or "signal 99" for one without."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


_REFUSALS = (
    (
        r"ptrace: Operation not permitted",
        lambda options: NoPermissionError(
            f"process {options.pid} may not be examined",
            "run as its owner or as root; kernel.yama.ptrace_scope may forbid it, "
            "and a process has one debugger at a time",
        ),
    ),
    (
        r"is not a core dump",
        lambda options: BadCoreError(
            f"gdb does not open {options.core} as a core", "a gdb for the core's machine is named with --gdb"
        ),
    ),
    (
        r"ptrace: No such process",
        lambda options: NoTargetError(f"there is no process {options.pid}", "it may have ended meanwhile"),
    ),
)
_EXPLAINED = (
    (r"Too many open files", lambda options: GdbFailedError("too many open files", "raise ulimit -n")),
    (
        r"Python scripting is not supported",
        lambda options: GdbFailedError(f"{options.gdb} has no Python", "name another gdb with --gdb"),
    ),
    (
        r"gdb's Python is older than",
        lambda options: GdbFailedError(
            f"the Python of {options.gdb} is older than 3.9", "name another gdb with --gdb"
        ),
    ),
    (
        r"Traceback \(most recent call last\)",
        lambda options: InternalError("gdbext failed inside gdb", "please report the traceback"),
    ),
)
