"""The arguments of ``$gx_…`` functions: gdb's values as texts, numbers and chains."""

from __future__ import annotations

from typing import Callable, Literal, Optional

import gdb

from gdbext.bridge.expressions.evaluate import read_value
from gdbext.bridge.expressions.harmless import one_line
from gdbext.bridge.functions.remembered import Sized
from gdbext.errors import FaultError, UsageError
from gdbext.memory import Buffer
from gdbext.structures.walk.counting import Chain

_RECORDS = (gdb.TYPE_CODE_STRUCT, gdb.TYPE_CODE_UNION)
_REFERENCES = (gdb.TYPE_CODE_REF, getattr(gdb, "TYPE_CODE_RVALUE_REF", gdb.TYPE_CODE_REF))
_NUMBERS = (
    gdb.TYPE_CODE_INT,
    gdb.TYPE_CODE_CHAR,
    gdb.TYPE_CODE_BOOL,
    gdb.TYPE_CODE_ENUM,
    gdb.TYPE_CODE_PTR,
    *_REFERENCES,
)


def find_text(value: gdb.Value) -> Optional[str]:
    """Return the text of a string literal, or None for a value of another type."""
    kind = value.type.strip_typedefs()
    if kind.code == getattr(gdb, "TYPE_CODE_STRING", None):
        return value.string()
    if kind.code != gdb.TYPE_CODE_ARRAY or kind.target().strip_typedefs().sizeof != 1:
        return None
    return value.string()


def text_of(value: gdb.Value, name: str) -> str:
    """Return the text of a string literal.

    :param name: the argument's, for the error.
    :raises UsageError: when it is none.
    """
    text = find_text(value)
    if text is None:
        raise UsageError(f"{name} is no text", "write it in double quotes")
    return text


def read_operand(value: gdb.Value) -> gdb.Value:
    """Return a value; that of the expression when it is a text, what it refers to when it is a reference.

    :raises UsageError: when the expression cannot be evaluated.
    """
    text = find_text(value)
    return _referenced(value, "the value") if text is None else read_expression(text)


def read_expression(text: str) -> gdb.Value:
    """Return an expression's value, or what it refers to; errors as :func:`read_operand`."""
    return _referenced(read_value(text), text)


def _referenced(value: gdb.Value, text: str) -> gdb.Value:
    if value.type.strip_typedefs().code in _REFERENCES:
        value = value.referenced_value()
    if value.type.strip_typedefs().code == gdb.TYPE_CODE_VOID:
        raise UsageError(f"{text} is void")
    return value


def read_sized(value: gdb.Value) -> Sized:
    """Return a number, unsigned, with the size of its type; a text is an expression.

    :raises UsageError: when it is none.
    """
    operand = read_operand(value)
    kind = operand.type.strip_typedefs()
    if kind.code not in _NUMBERS:
        raise UsageError(f"a value of type {operand.type} is no number")
    return Sized(int(operand) & _mask(kind.sizeof), int(kind.sizeof))


def number_of(value: gdb.Value) -> int:
    """Return a number as unsigned; errors as :func:`read_sized`."""
    return read_sized(value).number


def signed_of(value: gdb.Value) -> int:
    """Return a number with its sign; errors as :func:`read_sized`."""
    read_sized(value)
    return int(value)


def member_of(value: gdb.Value) -> str:
    """Return a member as text: its name, its path, or its offset.

    :raises UsageError: when it is neither a text nor a number.
    """
    text = find_text(value)
    return f"{number_of(value):#x}" if text is None else text.strip()


def read_chain(head: gdb.Value, member: str) -> Chain:
    """Return the list that starts at a head.

    :param head: a pointer to the first node or its address, or a structure that holds the first link and ends it.
    :param member: the link's name, a path with dots, or its offset.
    :raises UsageError: when the head is none, or has no such member.
    """
    kind = head.type.strip_typedefs()
    path = member.lstrip("+")
    if kind.code in _RECORDS:
        return _round(head, kind, path)
    if kind.code not in _NUMBERS:
        raise UsageError(f"a value of type {head.type} is no head of a list")
    if path[:1].isdigit():
        return Chain(number_of(head), _offset_in(path), _word_format())
    if kind.code != gdb.TYPE_CODE_PTR or kind.target().strip_typedefs().code not in _RECORDS:
        raise UsageError(f"a value of type {head.type} has no member {path}")
    offset, before = _find_link(kind.target().strip_typedefs(), path)
    first = number_of(head)
    # Where links lead to links (a list_head inside), so does the first step.
    return Chain(first + before if first else 0, offset - before, _word_format())


def _round(head: gdb.Value, kind: gdb.Type, path: str) -> Chain:
    if head.address is None:
        raise UsageError(f"a value of type {head.type} has no address here")
    offset, before = _find_link(kind, path)
    start = int(head.address) + before
    link = offset - before
    first = int.from_bytes(memory_reader()(start + link, word_size()), _byteorder())
    return Chain(first, link, _word_format(), stop=start)


def find_offset(type_name: str, path: str) -> int:
    """Return the offset of a member, bytes.

    :raises UsageError: when there is no such type or member.
    """
    try:
        kind = gdb.lookup_type(type_name).strip_typedefs()
    except gdb.error as error:
        raise UsageError(one_line(error)) from None
    return _walk(kind, path)[0]


def _find_link(kind: gdb.Type, path: str) -> "tuple[int, int]":
    """Return a link's offset in a node, and the offset of the part of the node that links lead to."""
    offset, link, parts = _walk(kind, path)
    if link.code not in (gdb.TYPE_CODE_PTR, gdb.TYPE_CODE_INT) or link.sizeof != word_size():
        raise UsageError(f"{path} of {kind} is no pointer but {link}")
    if link.code == gdb.TYPE_CODE_PTR:
        target = link.target().strip_typedefs()
        for before, part in parts:
            if part == target:
                return offset, before
    return offset, 0


def _walk(kind: gdb.Type, path: str) -> "tuple[int, gdb.Type, list[tuple[int, gdb.Type]]]":
    """Return a member's offset and type, and each structure on the way there with its own offset."""
    offset = 0
    parts = []
    for name in path.split("."):
        parts.append((offset, kind))
        found = _find_member(kind, name.strip())
        if found is None:
            raise UsageError(f"{kind} has no member {name.strip()}")
        offset += found[0]
        kind = found[1].strip_typedefs()
    return offset, kind, parts


def _find_member(kind: gdb.Type, name: str) -> "Optional[tuple[int, gdb.Type]]":
    if kind.code not in _RECORDS:
        return None
    try:
        field = kind[name]
    except KeyError:
        return _find_inside(kind, name)
    position: Optional[int] = getattr(field, "bitpos", None)  # a static member has none
    if position is None or field.type is None or field.bitsize or field.is_base_class:
        return None
    return position // 8, field.type


def _find_inside(kind: gdb.Type, name: str) -> "Optional[tuple[int, gdb.Type]]":
    """Look into anonymous members and base classes."""
    for field in kind.fields():
        position: Optional[int] = getattr(field, "bitpos", None)
        if position is not None and field.type is not None and (field.is_base_class or not field.name):
            found = _find_member(field.type.strip_typedefs(), name)
            if found is not None:
                return position // 8 + found[0], found[1]
    return None


def memory_reader() -> "Callable[[int, int], Buffer]":
    """Return a function that reads the selected inferior's memory by gdb, or raises ``FaultError``."""
    inferior = gdb.selected_inferior()

    def read(address: int, size: int) -> Buffer:
        try:
            return inferior.read_memory(address, size)
        except (gdb.MemoryError, OverflowError):
            raise FaultError(address, size) from None

    return read


def word_size() -> int:
    """Return bytes in a pointer."""
    return int(gdb.lookup_type("char").pointer().sizeof)


def word_mask() -> int:
    """Return a word with all bits set."""
    return _mask(word_size())


def _word_format() -> str:
    return ("<" if _byteorder() == "little" else ">") + ("Q" if word_size() == 8 else "I")


def _byteorder() -> "Literal['little', 'big']":
    number = gdb.lookup_type("int")
    little = int(gdb.Value(b"\1" + bytes(number.sizeof - 1), number)) == 1
    return "little" if little else "big"


def _offset_in(path: str) -> int:
    try:
        return int(path, 0)
    except ValueError:
        raise UsageError(f"{path!r} is no offset", "write it as 0x38") from None


def _mask(size: int) -> int:
    return (1 << (8 * size)) - 1
