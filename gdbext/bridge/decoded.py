"""What gdb says that is not of its host charset: a file's or a thread's name may be any bytes, and gdb only raises."""

from __future__ import annotations

import os
from typing import Any, Callable, Optional, TypeVar, Union

import gdb

from gdbext.wording import printable

_Value = TypeVar("_Value")


def decoded(read: Callable[[], _Value]) -> Union[_Value, str]:
    """Return the text that ``read`` gets of gdb; bytes that are no characters are kept as in a file's name.

    :raises gdb.error: as ``read`` does.
    """
    try:
        return read()
    except UnicodeDecodeError as error:
        return os.fsdecode(error.object)


def name_of(thing: Any, attribute: str = "filename") -> Any:
    """Return a name that an object of gdb has, or None: its file's, its user's, its own."""
    return decoded(lambda: getattr(thing, attribute, None))


def find_sysroot() -> Optional[str]:
    """Return the folder of this machine below which gdb finds the target's files, None where it has none."""
    sysroot = decoded(lambda: str(gdb.parameter("sysroot") or ""))
    return None if not sysroot or sysroot.startswith("target:") else sysroot


def ask(line: str) -> str:
    """Return what gdb prints for a command line, names of the target's in it.

    :raises gdb.error: as the command does, and for a name that would end the line: what follows would be a command.
    """
    if not line.isprintable():
        raise gdb.error(f"not a line: {printable(line)}")
    return decoded(lambda: str(gdb.execute(line, to_string=True)))
