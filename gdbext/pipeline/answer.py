"""What gdb left behind, judged: a whole JSON document, an error, or nothing, and the exit status.

The document of a long list may be larger than memory, so it is not parsed: that it ends with the
envelope's last keys shows that it is whole, and those tell what the exit status needs.
"""

from __future__ import annotations

import json
import os
import re
import signal
from typing import Any, Callable, NamedTuple, Optional, Sequence

from gdbext import __version__
from gdbext.errors import BadCoreError, GdbextError, NoTargetError, UsageError
from gdbext.pipeline.failures import GdbFailedError, InternalError, NoPermissionError, TimeOutError
from gdbext.pipeline.gdbrun import GdbOutcome
from gdbext.pipeline.options import Options

NO_FINDING, FINDINGS, FAILED = 0, 1, 2
_TAIL = re.compile(rb'"complete": (true|false), "findings": (true|false)\}\s*\Z')
_TAIL_SIZE = 256
_ERROR_SIZE = 1 << 20  # an envelope with an error is short


class Verdict(NamedTuple):
    """What a whole document says of itself."""

    complete: bool
    findings: bool
    failed: bool

    @property
    def status(self) -> int:
        """The program's exit status."""
        return FAILED if self.failed else FINDINGS if self.findings else NO_FINDING


def read_verdict(path: str) -> Optional[Verdict]:
    """Return what the document in ``path`` says, or None when it is missing or cut short."""
    try:
        with open(path, "rb") as file:
            size = os.fstat(file.fileno()).st_size
            file.seek(max(size - _TAIL_SIZE, 0))
            tail = _TAIL.search(file.read())
    except FileNotFoundError:
        return None
    if tail is None:
        return None
    failed = size <= _ERROR_SIZE and _read_error(path) is not None
    return Verdict(tail[1] == b"true", tail[2] == b"true", failed)


def _read_error(path: str) -> Optional[Any]:
    with open(path, encoding="utf-8") as file:
        return json.load(file).get("error")


def error_document(options: Options, error: GdbextError) -> str:
    """Return the envelope of an error that gdb had no part in."""
    document: dict[str, Any] = {
        "schema": options.schema,
        "tool": {"version": __version__},
        "target": {
            "exe": options.exe,
            "build_id": None,
            "pid": options.pid,
            "core": options.core,
            "time": None,
        },
        "data": None,
        "error": {"kind": error.kind, "message": error.message, "hint": error.hint},
        "evidence": [],
        "problems": [],
        "complete": False,
        "findings": False,
    }
    return json.dumps(document) + "\n"


def explain(options: Options, outcome: GdbOutcome) -> GdbextError:
    """Return why gdb left no whole document, as far as it can be told."""
    if outcome.stopped == "timeout":
        return TimeOutError(f"no answer within {options.timeout:g} s", "--timeout gives more")
    if outcome.stopped == "interrupted":
        return TimeOutError("stopped before there was an answer")
    known = find_refusal(options, outcome) or _find_explained(_EXPLAINED, options, outcome)
    if known is not None:
        meant = re.search(r"; did you mean gx (.*)\?", "\n".join(outcome.diagnostics))
        if meant and isinstance(known, UsageError):
            known.hint = f"did you mean gdbext {meant[1]}?"
        return known
    if outcome.status < 0:
        return GdbFailedError(f"gdb was ended by {_signal_name(-outcome.status)} before it answered")
    told = next((line for line in reversed(outcome.diagnostics) if line.startswith("gdbext: ")), None)
    if told:
        return GdbextError(told[len("gdbext: ") :].removeprefix(f"{options.name}: "))
    last = outcome.diagnostics[-1] if outcome.diagnostics else f"it ended with status {outcome.status}"
    return GdbFailedError(f"gdb gave no answer: {last}")


def told_again(line: str) -> bool:
    """Whether :func:`explain` says what a line of gdb's does, so that it need not be shown too."""
    return re.search(_NO_COMMAND, line) is not None


def find_refusal(options: Options, outcome: GdbOutcome) -> Optional[GdbextError]:
    """Return why gdb may not look at the process or cannot open the core, or None when that is not the matter."""
    return _find_explained(_REFUSALS, options, outcome)


def _find_explained(
    table: Sequence[tuple[str, Callable[[Options], GdbextError]]], options: Options, outcome: GdbOutcome
) -> Optional[GdbextError]:
    text = "\n".join(outcome.diagnostics)
    return next((explained(options) for pattern, explained in table if re.search(pattern, text)), None)


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


_REFUSALS = (
    (
        r"ptrace: Operation not permitted",
        lambda options: NoPermissionError(
            f"process {options.pid} may not be looked at",
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
_NO_COMMAND = r"Undefined (gx )?command|no command '"
_EXPLAINED = (
    (
        _NO_COMMAND,
        lambda options: UsageError(f"there is no command {options.name}", "gdbext commands lists them"),
    ),
    (
        r"Python scripting is not supported",
        lambda options: GdbFailedError(f"{options.gdb} has no Python", "name another gdb with --gdb"),
    ),
    (
        r"Traceback \(most recent call last\)",
        lambda options: InternalError("gdbext failed inside gdb", "please report the traceback"),
    ),
)
