"""The user's expressions: evaluated by gdb, without effect on the target."""

from __future__ import annotations

import re
from contextlib import contextmanager
from typing import Iterator

import gdb

from gdbext.errors import UsageError

_LITERAL = re.compile(r"\"(?:\\.|[^\"\\])*\"|'(?:\\.|[^'\\])*'")
_ASSIGNMENT = re.compile(r"(?:<<|>>)=(?!=)|(?<![=!<>])=(?!=)|\+\+|--")
_NUMBER = re.compile(r"0[xX][0-9a-fA-F]+|[1-9][0-9]*|0")


def evaluate(expression: str, word_mask: int) -> int:
    """Return an expression's value: a number, a pointer, or the address of an array or structure.

    :param word_mask: results are taken modulo the target's word.
    :raises UsageError: when it is empty, has no value, or would change or run the target.
    """
    text = expression.strip()
    if not text:
        raise UsageError("an expression is missing", "-h shows how it is written")
    if _NUMBER.fullmatch(text):
        return _literal(text, word_mask)
    _check_harmless(text)
    try:
        with _without_calls():
            return _number(gdb.parse_and_eval(text)) & word_mask
    except gdb.error as error:
        raise UsageError(f"cannot evaluate {text!r}: {_one_line(error)}") from None


def _literal(text: str, word_mask: int) -> int:
    number = int(text, 0)
    if number > word_mask:
        raise UsageError(f"{text} is beyond any address", f"the target's end at {word_mask:#x}")
    return number


def _check_harmless(text: str) -> None:
    # may-write-memory cannot be switched off under a live process, so writing is refused by its look.
    if _ASSIGNMENT.search(_LITERAL.sub("''", text)):
        raise UsageError(
            f"{text!r} would assign", "gdbext never writes: compare with ==, write a - -b for a--b"
        )


@contextmanager
def _without_calls() -> Iterator[None]:
    before = gdb.parameter("may-call-functions")
    gdb.execute("set may-call-functions off", to_string=True)
    try:
        yield
    finally:
        if before:
            gdb.execute("set may-call-functions on", to_string=True)


def _number(value: gdb.Value) -> int:
    kind = value.type.strip_typedefs()
    if kind.code == gdb.TYPE_CODE_VOID:
        raise gdb.error("it has no value")
    if kind.code == gdb.TYPE_CODE_FLT:
        raise gdb.error("it is no whole number")
    if kind.code in (gdb.TYPE_CODE_REF, getattr(gdb, "TYPE_CODE_RVALUE_REF", gdb.TYPE_CODE_REF)):
        return _number(value.referenced_value())
    if kind.code in (gdb.TYPE_CODE_ARRAY, gdb.TYPE_CODE_STRUCT, gdb.TYPE_CODE_UNION, gdb.TYPE_CODE_FUNC):
        if value.address is None:
            raise UsageError(f"a value of type {value.type} has no address here")
        return int(value.address)
    return int(value)


def _one_line(error: BaseException) -> str:
    return " ".join(str(error).split()).rstrip(".")
