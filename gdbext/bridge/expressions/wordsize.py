"""The target's words, as gdb's own types tell them."""

from __future__ import annotations

from typing import Literal

import gdb


def word_mask() -> int:
    """Return a pointer with all bits set."""
    return (1 << (8 * int(gdb.lookup_type("char").pointer().sizeof))) - 1


def is_little() -> bool:
    """Return whether the target is little-endian."""
    number = gdb.lookup_type("int")
    return int(gdb.Value(b"\1" + bytes(number.sizeof - 1), number)) == 1


def byteorder() -> Literal["little", "big"]:
    """Return the target's byte order, as Python names it."""
    return "little" if is_little() else "big"
