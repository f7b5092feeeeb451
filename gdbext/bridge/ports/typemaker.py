"""gdb's types as plain data, made as far as they are looked at."""

from __future__ import annotations

from typing import Any, Hashable, Mapping, Optional, Sequence, Tuple

import gdb

from gdbext.bridge.expressions import lookup, wordsize
from gdbext.bridge.ports.bitfields import place_bits
from gdbext.bridge.stops.changes import call_when_objfiles_change
from gdbext.layout.types import Code, Field, Type

_RECORDS = (gdb.TYPE_CODE_STRUCT, gdb.TYPE_CODE_UNION)
REFERENCES = (gdb.TYPE_CODE_REF, getattr(gdb, "TYPE_CODE_RVALUE_REF", gdb.TYPE_CODE_REF))
_TAGS: Mapping[int, str] = {gdb.TYPE_CODE_STRUCT: "struct ", gdb.TYPE_CODE_UNION: "union "}
_NAMED = ("INT", "CHAR", "BOOL", "ENUM", "RANGE", "FLAGS")
_CODES: Mapping[int, Code] = {
    gdb.TYPE_CODE_STRUCT: Code.STRUCT,
    gdb.TYPE_CODE_UNION: Code.UNION,
    gdb.TYPE_CODE_PTR: Code.POINTER,
    **dict.fromkeys(REFERENCES, Code.POINTER),
    gdb.TYPE_CODE_ARRAY: Code.ARRAY,
    **{getattr(gdb, f"TYPE_CODE_{name}"): Code.INTEGER for name in _NAMED},
    gdb.TYPE_CODE_FLT: Code.FLOAT,
    gdb.TYPE_CODE_DECFLOAT: Code.FLOAT,
    gdb.TYPE_CODE_COMPLEX: Code.FLOAT,
    gdb.TYPE_CODE_FUNC: Code.FUNCTION,
}
_SIGNED = (gdb.TYPE_CODE_INT, gdb.TYPE_CODE_CHAR, gdb.TYPE_CODE_ENUM)


def type_of(kind: gdb.Type) -> Type:
    """Return a type as plain data.

    Its target and members are made when asked for, so types may refer to themselves. A structure that is only
    declared is the complete one of the same name where gdb has it; else its size is 0 and its code ``OTHER``.
    """
    return _maker().make(kind)


def known_records() -> "dict[Hashable, Type]":
    """Return the structures made so far, by what tells them apart: each is made once."""
    return _maker().records


class _Maker:
    """Makes types; a structure that is named twice is made once."""

    def __init__(self) -> None:
        self.records: "dict[Hashable, Type]" = {}
        self._little = wordsize.is_little()

    def make(self, kind: gdb.Type) -> Type:
        kind = kind.unqualified()
        behind = _complete(kind.strip_typedefs().unqualified())
        if behind.code not in _RECORDS or not behind.fields():
            return self._plain(kind, behind)
        key = (name_of(kind), _signature(behind))
        if key not in self.records:
            self.records[key] = self._record(kind, behind)
        return self.records[key]

    def _plain(self, kind: gdb.Type, behind: gdb.Type) -> Type:
        code = _CODES.get(behind.code, Code.OTHER)
        unknown = behind.code == gdb.TYPE_CODE_VOID or (behind.code in _RECORDS and not behind.sizeof)
        # Once: where the target is only declared, gdb looks for its definition each time.
        target = behind.target() if code in (Code.POINTER, Code.ARRAY) else None
        tag = name_of(behind, target)
        return Type(
            name_of(kind, target) if kind.name else tag,
            Code.OTHER if unknown else code,
            0 if unknown else int(behind.sizeof),
            tag=name_of(kind) if behind.code in _RECORDS and not behind.name else tag,
            signed=_is_signed(behind),
            length=_length(behind) if code is Code.ARRAY else None,
            target=None if target is None else lambda: self._target(target),
        )

    def _record(self, kind: gdb.Type, behind: gdb.Type) -> Type:
        return Type(
            name_of(kind),
            _CODES[behind.code],
            int(behind.sizeof),
            tag=_tag(kind, behind),
            fields=lambda: self._fields(behind),
        )

    def _target(self, target: gdb.Type) -> Optional[Type]:
        return None if target.strip_typedefs().code == gdb.TYPE_CODE_VOID else self.make(target)

    def _fields(self, behind: gdb.Type) -> Sequence[Field]:
        made = (self._field(behind, member) for member in behind.fields())
        return [field for field in made if field is not None]

    def _field(self, owner: gdb.Type, member: Any) -> Optional[Field]:
        # A static member, and a virtual base, are at no fixed place in the object.
        position: Optional[int] = getattr(member, "bitpos", None)
        if position is None or member.type is None:
            return None
        name = member.name or ""
        if member.bitsize:
            return self._bits(owner, member, name, position)
        return Field(name, position // 8, self.make(member.type), is_base=bool(member.is_base_class))

    def _bits(self, owner: gdb.Type, member: Any, name: str, position: int) -> Optional[Field]:
        kind = self.make(member.type)
        placed = place_bits(position, int(member.bitsize), kind.size, int(owner.sizeof), self._little)
        if placed is None:  # packed, across nine bytes: no number can be read there
            return None
        offset, size, bits = placed
        if size != kind.size:
            kind = Type(kind.name, kind.code, size, tag=kind.tag, signed=kind.signed)
        return Field(name, offset, kind, bits)


_makers: "dict[int, _Maker]" = {}  # by inferior: the same program may be another build there


def _maker() -> _Maker:
    number = gdb.selected_inferior().num
    if number not in _makers:
        call_when_objfiles_change(_makers.clear)
        _makers[number] = _Maker()
    return _makers[number]


def name_of(kind: gdb.Type, target: Optional[gdb.Type] = None) -> str:
    """Return a type's name whatever gdb's current language is: in C, structures are ``struct NAME``.

    :param target: of a pointer, where it is known already.
    """
    kind = kind.unqualified()
    if kind.code in _TAGS and kind.name:
        return kind.name if _is_cplus(kind.name) else _TAGS[kind.code] + kind.name
    if kind.code == gdb.TYPE_CODE_PTR:
        target = (kind.target() if target is None else target).unqualified()
        if target.code not in (gdb.TYPE_CODE_FUNC, gdb.TYPE_CODE_ARRAY):
            inner = name_of(target)
            return inner + ("*" if inner.endswith("*") else " *")
    return str(kind.name or kind)


def _is_cplus(name: str) -> bool:
    return "::" in name or "<" in name


def _tag(kind: gdb.Type, behind: gdb.Type) -> str:
    # A structure without a name is known by its typedef's only.
    return name_of(kind) if behind.code in _RECORDS and not behind.name else name_of(behind)


def _signature(record: gdb.Type) -> Hashable:
    """Return what tells structures apart: files may have different ones under one name."""
    members: Tuple[Hashable, ...] = tuple(
        (member.name, getattr(member, "bitpos", None), member.type and name_of(member.type))
        for member in record.fields()
    )
    return record.code, record.name, int(record.sizeof), members


def _complete(behind: gdb.Type) -> gdb.Type:
    """Return the complete structure where this is only a declaration that gdb has not resolved by itself."""
    if behind.code not in _RECORDS or behind.sizeof or behind.fields() or not behind.name:
        return behind
    found = lookup.find_type(_TAGS[behind.code] + behind.name)
    return behind if found is None else found.strip_typedefs().unqualified()


def _length(array: gdb.Type) -> Optional[int]:
    """Return an array's elements, or None for one without a bound, which gdb gives as 0..0 or 0..-1."""
    try:
        low, high = array.range()
    except (gdb.error, RuntimeError):  # bounds that a running program computes
        return None
    bounded = high >= low and (array.sizeof or not array.target().sizeof)
    return int(high - low + 1) if bounded else None


def _is_signed(kind: gdb.Type) -> bool:
    # Type.is_signed came with gdb 12; the value of all-ones tells it everywhere.
    if kind.code not in _SIGNED or not kind.sizeof:
        return False
    if kind.sizeof > 8:  # gdb does not calculate with these before 14
        return "unsigned" not in str(kind)
    return int(gdb.Value(b"\xff" * kind.sizeof, kind)) < 0
