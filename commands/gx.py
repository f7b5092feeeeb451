"""``gx safe``: another command, whose errors are recorded."""

from __future__ import annotations

from typing import Any, Optional

import gdb

from gdbext.bridge.commands.command import note_error
from gdbext.errors import UsageError
from gdbext.report import Report


def run_safely(session: Any, arguments: Any) -> Optional[Report]:
    """Run a command; print its error and keep it in ``$gx_error`` instead of raising it."""
    if not arguments.expression:
        raise UsageError("a command is missing", "gx safe COMMAND")
    try:
        gdb.execute(arguments.expression)
    except gdb.error as error:
        _note(" ".join(str(error).split()))
    except KeyboardInterrupt:
        _note("interrupted")
    else:
        note_error(None)
    return None


def _note(message: str) -> None:
    gdb.write(message + "\n", gdb.STDERR)
    note_error(message)
