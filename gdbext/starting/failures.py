"""What can go wrong around gdb, each with its kind in the JSON's ``error``."""

from __future__ import annotations

import errno
from typing import Callable, Optional

from gdbext.errors import GdbextError, out_of_memory

_FILES = "too many open files"
_LIMITS = {
    errno.EMFILE: (_FILES, "raise ulimit -n"),
    errno.ENFILE: (_FILES, "fs.file-max bounds those of the machine"),
    errno.EAGAIN: ("no more processes", "ulimit -u or the cgroup's pids.max bounds it"),
    errno.EFBIG: ("a file would be too large", "ulimit -f bounds the size of files; raise it"),
}


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


def find_limit(error: OSError) -> Optional[GdbextError]:
    """Return which limit of the machine or the user's an error is of, in the user's words, or None."""
    if error.errno == errno.ENOMEM:
        return out_of_memory()
    return GdbFailedError(*_LIMITS[error.errno]) if error.errno in _LIMITS else None


def put(write: Callable[..., object], *words: str) -> None:
    """Write a piece of an answer, or close it.

    :raises GdbextError: the place for it does not take it.
    """
    try:
        write(*words)
    except OSError as error:
        full = GdbextError(f"cannot write the answer: {error.strerror}", "TMPDIR names the place for it")
        raise find_limit(error) or full from None


def not_run(program: str, error: OSError) -> GdbextError:
    """Return why gdb could not be started."""
    absent = error.errno == errno.ENOENT
    hint = "install gdb, or name one with --gdb" if absent else "another is named with --gdb"
    return find_limit(error) or GdbFailedError(f"cannot run {program}: {error.strerror}", hint)
