"""Which member of a structure lies at an offset, as an expression goes on: ``.slots[3].next``."""

from __future__ import annotations

from typing import Iterable, Iterator, Optional, Tuple

from gdbext.layout.types import Code, Field, Type

_DEEP = 24

Way = Tuple[str, int, bool]  # the text, bytes beyond what it names, whether that is a pointer


def member_path(kind: Type, offset: int) -> Tuple[str, int]:
    """Return the way to what lies at an offset, and how many bytes it begins before.

    :param offset: bytes from the start of an object of that type, within it.
    :return: the text is "" for the object itself; of a union's members the first that has a pointer exactly there.
    """
    text, rest, _ = _way(kind, offset, _DEEP)
    return text, rest


def member_text(kind: Type, size: int, offset: int) -> str:
    """Return what lies at an offset of a block that holds one object of a type, or an array of them.

    :param size: bytes of the block.
    :return: "" where that is an object itself, or behind it.
    """
    several = size >= 2 * kind.size and offset >= kind.size  # the first may have nothing but room behind it
    index, inside = divmod(offset, kind.size) if several else (0, offset)
    path, rest = member_path(kind, inside)
    shown = f"[{index}]{path}" if several else path.lstrip(".")
    return f"{shown}+{rest:#x}" if shown and rest else shown


def _way(kind: Type, offset: int, deep: int) -> Way:
    if deep and kind.is_record:
        return _best(_through(field, offset, deep) for field in _fields_at(kind, offset)) or ("", offset, False)
    if deep and kind.code is Code.ARRAY and kind.target is not None and kind.target.size:
        index, inside = divmod(offset, kind.target.size)
        text, rest, pointer = _way(kind.target, inside, deep - 1)
        return f"[{index}]{text}", rest, pointer
    return "", offset, kind.code is Code.POINTER


def _fields_at(kind: Type, offset: int) -> Iterator[Field]:
    for field in kind.fields:
        # An array without a bound goes on to the end of the block.
        open_ended = field.type.code is Code.ARRAY and not field.type.size
        if field.bits is None and field.offset <= offset and (open_ended or offset < field.offset + field.type.size):
            yield field


def _through(field: Field, offset: int, deep: int) -> Way:
    text, rest, pointer = _way(field.type, offset - field.offset, deep - 1)
    named = field.name and not field.is_base
    return (f".{field.name}{text}" if named else text), rest, pointer


def _best(ways: Iterable[Way]) -> Optional[Way]:
    first: Optional[Way] = None
    for way in ways:
        if way[2] and not way[1]:
            return way
        first = first or way
    return first
