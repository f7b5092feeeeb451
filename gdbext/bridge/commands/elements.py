"""Elements of a list or table, one by one: shown by gdb's printers, tested, and handed to gdb's commands.

An element is named ``$elem`` in expressions and commands: a pointer of its type, or the bare address.
"""

from __future__ import annotations

import re
from typing import Optional, Sequence

import gdb

from gdbext.bridge.expressions import language, lookup, selection, wordsize
from gdbext.bridge.expressions.harmless import allow_calls, check_harmless, one_line
from gdbext.errors import UsageError

ELEMENT = "elem"
WIDTH, WHOLE = 2000, 200  # characters of one field, of an element of which no field was named

_ADDRESS = re.compile(r"0x[0-9a-fA-F]+")
_MARK = re.compile(r"/[a-z]+\s+")
_POINTER_TYPE = re.compile(r"^\([^{}\"']*\*[^{}\"']*\) (?=0x)")  # "(struct item *) 0x0": a column has one type


class Elements:
    """For one command. While it lasts gdb calls no functions of the target, but for what :meth:`run` runs."""

    def __init__(self) -> None:
        self._pointers: "dict[str, Optional[gdb.Type]]" = {}
        self._checked: "set[str]" = set()
        self._refused = False  # calls of functions, by us
        self._allowed = False  # before that
        self._word = gdb.lookup_type("unsigned long")
        self._mask = wordsize.word_mask()
        self._order = wordsize.byteorder()

    def show(self, address: int, type_name: Optional[str], fields: Sequence[str]) -> Sequence[str]:
        """Return each field of an element as gdb formats it, one line of at most :data:`WIDTH` characters.

        :param type_name: of the element; None or unknown to gdb: only fields that say their type have a value.
        :param fields: paths from the element ("key.name", "next->hash"), or expressions over ``$elem``, each perhaps
            behind a format of gdb ("/x hash"); none for the whole element, of which :data:`WHOLE`
            characters are enough.
        :return: as many texts; what cannot be read is ``<cannot read 0x…>``, what has no value ``? (why)``.
        """
        self._set(address, type_name)
        known = self._pointer(type_name) is not None
        if not fields:
            return [_cut(self._format("*$elem"), WHOLE) if known else f"{address:#x}"]
        return [self._format(*_expression(field)) for field in fields]

    def run(self, command: str, address: int, type_name: Optional[str]) -> str:
        """Run a command of gdb with ``$elem`` set, and return what it writes.

        Its error is returned behind what it wrote, as a line ``error: …``. The command has the user's language; thread
        and frame are the same afterwards.
        """
        self.close()
        self._set(address, type_name)
        with language.as_user(), selection.kept():
            try:
                return str(gdb.execute(command, to_string=True))
            except gdb.error as error:
                return f"error: {one_line(error)}\n"

    def test(self, expression: str, address: int, type_name: Optional[str]) -> Optional[bool]:
        """Return whether an expression over ``$elem`` is nonzero; None when it has no value for this element.

        :raises UsageError: when it would write to the target.
        """
        self._set(address, type_name)
        try:
            return self._is_true(expression)
        except gdb.error:
            return None

    def check(self, expression: str, address: int, type_name: Optional[str]) -> None:
        """Evaluate an expression for one element.

        :raises UsageError: with the reason why it has no value there.
        """
        self._set(address, type_name)
        try:
            self._is_true(expression)
        except gdb.error as error:
            raise UsageError(
                f"cannot evaluate {expression!r}: {one_line(error)}", "$elem is the element"
            ) from None

    def close(self) -> None:
        """Let gdb call functions again, if it might before."""
        if self._refused and self._allowed:
            allow_calls(True)
        self._refused = False

    def _is_true(self, expression: str) -> bool:
        self._check(expression)  # as the user wrote it
        return self._output("/d", f"!!({expression})") != "0"

    def _output(self, mark: str, expression: str) -> str:
        """Return what gdb prints for an expression.

        By a command: gdb.parse_and_eval leaves its intermediate values (1.3 KB each time, gdb 13) until the command
        that runs us ends, and other values get slower the more there are.
        """
        self._check(expression)
        if not self._refused:  # not once for each element: a command of gdb costs as much as the expression
            self._allowed = bool(gdb.parameter("may-call-functions"))
            self._refused = True
            allow_calls(False)
        line = expression.replace("\n", " ")
        return str(gdb.execute(f"output{mark} {line}", to_string=True))

    def _check(self, expression: str) -> None:
        if expression not in self._checked:
            check_harmless(expression)
            self._checked.add(expression)

    def _format(self, expression: str, mark: str = "") -> str:
        try:
            text = _POINTER_TYPE.sub("", " ".join(self._output(mark, expression).split()))
        except gdb.MemoryError as error:
            place = _ADDRESS.search(str(error))
            return f"<cannot read {place[0]}>" if place else "<cannot read>"
        except gdb.error as error:
            return f"? ({one_line(error)})"
        return _cut(text, WIDTH)

    def _set(self, address: int, type_name: Optional[str]) -> None:
        pointer = self._pointer(type_name)
        kind = self._word if pointer is None else pointer
        word = (address & self._mask).to_bytes(kind.sizeof, self._order)
        gdb.set_convenience_variable(ELEMENT, gdb.Value(word, kind))

    def _pointer(self, type_name: Optional[str]) -> Optional[gdb.Type]:
        if type_name is None:
            return None
        if type_name not in self._pointers:
            kind = lookup.find_type(type_name)
            self._pointers[type_name] = None if kind is None else kind.pointer()
        return self._pointers[type_name]


def _cut(text: str, width: int) -> str:
    return text if len(text) <= width else text[: width - 1] + "…"


def _expression(field: str) -> "tuple[str, str]":
    """Return the expression of a field, itself when it speaks of ``$elem``; and gdb's format before it."""
    found = _MARK.match(field)
    mark = found[0].strip() if found else ""
    field = field[found.end() :] if found else field
    if "$" + ELEMENT in field:
        return field, mark
    lead = re.match(r"[*&!~-]*", field)
    marks = lead[0] if lead else ""
    return f"{marks}$elem->{field[len(marks) :]}", mark
