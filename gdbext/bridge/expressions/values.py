"""What a value of gdb is, as plain data."""

from __future__ import annotations

from typing import Optional

import gdb

from gdbext.bridge.expressions import wordsize
from gdbext.bridge.ports.typemaker import REFERENCES, type_of
from gdbext.layout.types import Located

_PLACES = (gdb.TYPE_CODE_STRUCT, gdb.TYPE_CODE_UNION, gdb.TYPE_CODE_ARRAY, gdb.TYPE_CODE_FUNC)


def located(value: gdb.Value, text: str, found: Optional[str] = None) -> Located:
    """Return what a value is; of a reference, what it refers to.

    :raises gdb.MemoryError: a number or pointer that cannot be read.
    :raises gdb.error: it is no number and in no memory.
    """
    kind = value.type.strip_typedefs()
    if kind.code in REFERENCES:
        return located(value.referenced_value(), text, found)
    address = find_address(value)
    if kind.code == gdb.TYPE_CODE_ERROR:  # a variable without debug info
        return Located(text, None, address, None, found)
    if kind.code in _PLACES:
        if address is None:
            raise gdb.error(f"a value of type {value.type} has no address here")
        return Located(text, type_of(value.type), address, None, found)
    return Located(text, type_of(value.type), address, _number(value, kind), found)


def find_address(value: gdb.Value) -> Optional[int]:
    """Return where a value is in memory, or None."""
    address = value.address
    return None if address is None else int(address) & wordsize.word_mask()


def is_missing(value: gdb.Value) -> bool:
    """Return whether the compiler has optimised a value out, so that it is nowhere."""
    return value.address is None and bool(value.is_optimized_out)


def is_named_only(value: gdb.Value) -> bool:
    """Return whether it is a function, or a variable of which nothing but the address is known."""
    return value.type.strip_typedefs().code in (gdb.TYPE_CODE_FUNC, gdb.TYPE_CODE_ERROR)


def _number(value: gdb.Value, kind: gdb.Type) -> int:
    if kind.code == gdb.TYPE_CODE_VOID:
        raise gdb.error("it has no value")
    if kind.code in (gdb.TYPE_CODE_FLT, gdb.TYPE_CODE_DECFLOAT, gdb.TYPE_CODE_COMPLEX):
        raise gdb.error("it is no whole number")
    return int(value) & wordsize.word_mask()
