"""The language that gdb reads expressions and writes types in: one like C while gdbext works, the user's otherwise.

Our expressions, casts and types' names are C's, and so are the examples of what to type. Under another language, set
by the user or taken from the frame, gdb refuses them, writes types otherwise, or (gdb 13, Pascal) crashes at one.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import Iterator, List

import gdb

_LIKE_C = frozenset(("c", "c++", "objective-c", "opencl", "asm", "minimal"))
_BY_FRAME = ("auto", "local", "unknown")
_STAND_IN = "c++"  # where the frame's is none of these: it knows C's names and those with ``::``

_replaced: "List[str]" = []  # settings of the user, innermost last


@contextmanager
def like_c() -> Iterator[None]:
    """Have gdb use a language like C, unless it does already; afterwards the setting is what it was."""
    setting = _setting()
    if _is_like_c(setting):
        yield
        return
    _replaced.append(setting)
    try:
        _set_like_c()
        yield
    finally:
        _replaced.pop()
        _set(setting)


@contextmanager
def as_user() -> Iterator[None]:
    """Have gdb use the user's own language again, for a command of theirs within :func:`like_c`."""
    if not _replaced:
        yield
        return
    ours = _setting()
    _set(_replaced[-1])
    try:
        yield
    finally:
        _set(ours)


def _set_like_c() -> None:
    _set("auto")
    if not _is_like_c("auto"):
        _set(_STAND_IN)


def _is_like_c(setting: str) -> bool:
    return (_current() if setting in _BY_FRAME else setting) in _LIKE_C


def _current() -> str:
    if hasattr(gdb, "current_language"):  # it came with gdb 14
        return str(gdb.current_language())
    shown = str(gdb.execute("show language", to_string=True))  # … is "auto; currently c".
    return shown.partition('"')[2].partition('"')[0].rpartition(" ")[2]


def _setting() -> str:
    return str(gdb.parameter("language"))


def _set(setting: str) -> None:
    gdb.execute(f"set language {setting}", to_string=True)
