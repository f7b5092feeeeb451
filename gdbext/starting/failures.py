"""What can go wrong around gdb, each with its kind in the JSON's ``error``."""

from __future__ import annotations

from gdbext.errors import GdbextError


class GdbFailedError(GdbextError):
    """gdb could not be run, died, or went without an answer."""

    kind = "gdb-failed"


class TimeOutError(GdbextError):
    """The time of ``--timeout`` is over, or the user has stopped the program."""

    kind = "timeout"


class WrongExeError(GdbextError):
    """The executable is not the one that the core is of."""

    kind = "wrong-exe"


class NoPermissionError(GdbextError):
    """The file or the process may not be read by this user."""

    kind = "no-permission"


class InternalError(GdbextError):
    """gdbext itself failed inside gdb; the traceback is on standard error."""

    kind = "internal"
