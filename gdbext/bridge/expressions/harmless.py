"""What keeps an expression of the user from changing or running the target."""

from __future__ import annotations

import re
from contextlib import contextmanager
from typing import Iterator

import gdb

from gdbext.errors import UsageError

_LITERAL = re.compile(r"\"(?:\\.|[^\"\\])*\"|'(?:\\.|[^'\\])*'")
_ASSIGNMENT = re.compile(r"(?:<<|>>)=(?!=)|(?<![=!<>])=(?!=)|\+\+|--")


def check_harmless(text: str) -> None:
    """Refuse an expression that would write to the target.

    :raises UsageError: when it looks so.
    """
    # may-write-memory cannot be switched off under a live process, so writing is refused by its look.
    if _ASSIGNMENT.search(_LITERAL.sub("''", text)):
        raise UsageError(
            f"{text!r} would assign", "gdbext never writes: compare with ==, write a - -b for a--b"
        )


@contextmanager
def without_calls() -> Iterator[None]:
    """Have gdb refuse to call functions of the target."""
    before = gdb.parameter("may-call-functions")
    allow_calls(False)
    try:
        yield
    finally:
        if before:
            allow_calls(True)


def allow_calls(allowed: bool) -> None:
    """Set gdb's ``may-call-functions``."""
    gdb.execute(f"set may-call-functions {'on' if allowed else 'off'}", to_string=True)


def one_line(error: BaseException) -> str:
    """Return an error's message on one line, without a full stop."""
    return " ".join(str(error).split()).rstrip(".")
