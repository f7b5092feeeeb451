"""The user's expressions as numbers and as gdb's values, without effect on the target."""

from __future__ import annotations

import gdb

from gdbext.bridge.expressions.harmless import check_harmless, one_line, without_calls
from gdbext.errors import UsageError


def evaluate(expression: str, word_mask: int) -> int:
    """Return an expression's value: a number, a pointer, or the address of an array or structure.

    It is looked for as ``gdbext.bridge.expressions.locate`` does.

    :param word_mask: results are taken modulo the target's word.
    :raises UsageError: when it is empty, has no value, or would change or run the target.
    """
    from gdbext.bridge.expressions.locate import locate

    found = locate(expression)
    number = found.address if found.value is None else found.value
    if number is None or (found.type is None and found.value is None):
        raise UsageError(
            f"cannot evaluate {found.text!r}: its type is unknown", "cast it to its declared type"
        )
    return number & word_mask


def read_value(expression: str) -> gdb.Value:
    """Return an expression's value in the selected frame, lazily read; nothing of the target is changed or run.

    :raises UsageError: as :func:`evaluate`.
    :raises gdb.MemoryError: when it leads to memory that cannot be read.
    """
    check_harmless(expression)
    try:
        with without_calls():
            return gdb.parse_and_eval(expression)
    except gdb.MemoryError:
        raise
    except gdb.error as error:
        raise UsageError(f"cannot evaluate {expression!r}: {one_line(error)}") from None
