"""Types as plain data, whether a debugger, a shape file or a test declares them.

``gdbext.bridge.ports.types`` makes them from gdb's; :func:`declare_types` from C-like text. Both are lazy,
because types refer to themselves.
"""

from __future__ import annotations

import re
from enum import Enum
from functools import cached_property
from typing import Callable, NamedTuple, Optional, Sequence


class Code(Enum):
    """What kind of type it is, typedefs and qualifiers stripped."""

    STRUCT = "struct"  # classes too
    UNION = "union"
    POINTER = "pointer"  # references too
    ARRAY = "array"
    INTEGER = "integer"  # characters, booleans, enumerations too
    FLOAT = "float"
    FUNCTION = "function"
    OTHER = "other"  # void, incomplete


class Field(NamedTuple):
    """A member of a structure or union, or a base class.

    :param name: "" for an anonymous member; for a base class its type's name.
    :param offset: bytes from the structure's start, of the storage unit for a bit-field.
    :param bits: (shift, width) of a bit-field within the unit, counted from its least significant bit.
    """

    name: str
    offset: int
    type: "Type"
    bits: Optional[tuple[int, int]] = None
    is_base: bool = False


class Type:
    """One type.

    :param name: as the program's language writes it, typedef's name where it has one ("struct lruhash", "GList").
    :param tag: the name behind typedefs ("struct _GList"), for matching; equals ``name`` without any.
    :param size: bytes; 0 when incomplete.
    :param length: elements of an array; None otherwise, and for one without a bound.
    :param target: makes the type pointed to, or an array's element.
    :param fields: makes the members.
    """

    def __init__(
        self,
        name: str,
        code: Code,
        size: int,
        *,
        tag: Optional[str] = None,
        signed: bool = False,
        length: Optional[int] = None,
        target: Optional[Callable[[], "Optional[Type]"]] = None,
        fields: Optional[Callable[[], "Sequence[Field]"]] = None,
    ) -> None:
        self.name = name
        self.code = code
        self.size = size
        self.tag = name if tag is None else tag
        self.signed = signed
        self.length = length
        self._target = target
        self._fields = fields

    def __repr__(self) -> str:
        return f"Type({self.name!r}, {self.code.value}, {self.size})"

    @cached_property
    def target(self) -> "Optional[Type]":
        """The type pointed to, or an array's element; None when unknown (``void *``)."""
        return self._target() if self._target else None

    @cached_property
    def fields(self) -> "Sequence[Field]":
        """The members of a structure or union; none for other types."""
        return tuple(self._fields()) if self._fields else ()

    @property
    def is_record(self) -> bool:
        """Whether it has members."""
        return self.code in (Code.STRUCT, Code.UNION)

    def find_field(self, name: str) -> "Optional[Field]":
        """Return the member of that name, looking into anonymous members and base classes, or None.

        The offset of what is found there is from the start of this type.
        """
        for field in self.fields:
            if field.name == name and not field.is_base:
                return field
        for field in self.fields:
            if (field.is_base or not field.name) and field.type.is_record:
                inner = field.type.find_field(name)
                if inner is not None:
                    return Field(name, field.offset + inner.offset, inner.type, inner.bits)
        return None


class Located(NamedTuple):
    """What an expression of the user means.

    :param type: its type; None for a plain number.
    :param address: where the object is; None when it is in no memory (a register, a computed pointer).
    :param value: of a number or pointer, unsigned; None for structures and arrays.
    :param text: the expression, as the user typed it.
    :param found: how, when it was not simply evaluated in the selected frame ("worker of frame 3 of thread 2").
    """

    text: str
    type: Optional[Type]
    address: Optional[int]
    value: Optional[int]
    found: Optional[str] = None


def bare_name(name: str) -> str:
    """Return a type's name without ``struct``, ``union`` or ``class`` before it."""
    return re.sub(r"^(struct|union|class)\s+", "", name.strip())
