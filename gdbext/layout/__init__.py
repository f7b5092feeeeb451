"""Structure layouts as data: C-like member lists in, offsets out.

A variant is written once, as its source declares it, and the offsets follow from the target's ABI;
a layout from debug info has the same shape. Nothing here compares version numbers.

A ``StructLayout`` is a flat table for code that knows its structure: members by dotted names, which a version may
lack or call otherwise, with the origin for the evidence. A ``types.Type`` is the program's own graph of types, unknown
until it is walked. Text is laid out by one reader for both (``declared``).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Mapping, NamedTuple, Optional, Sequence

from gdbext.abi import Abi
from gdbext.errors import LayoutError
from gdbext.layout.declared import declare_types
from gdbext.layout.types import Code, Field
from gdbext.memory import Reader


@dataclass(frozen=True)
class Member:
    """One member of a structure.

    :param offset: bytes from the structure's start.
    :param size: bytes of one element.
    :param count: elements; None when it is no array.
    """

    name: str
    offset: int
    size: int
    count: Optional[int] = None
    signed: bool = False

    @property
    def extent(self) -> int:
        """Bytes of the whole member."""
        return self.size * (1 if self.count is None else self.count)


@dataclass(frozen=True)
class StructLayout:
    """Where the members of a structure are, for one ABI.

    :param size: bytes, trailing padding included.
    :param origin: "debug info", or the variant's name with its upstream commit.
    """

    name: str
    size: int
    members: Mapping[str, Member]
    origin: str

    def __contains__(self, member: str) -> bool:
        return member in self.members

    def member(self, name: str) -> Member:
        """Return a member.

        :raises LayoutError: when the structure has none of that name.
        """
        try:
            return self.members[name]
        except KeyError:
            raise LayoutError(f"struct {self.name} ({self.origin}) has no member {name}") from None

    def offset(self, name: str) -> int:
        """Return a member's offset in bytes; errors as :meth:`member`."""
        return self.member(name).offset

    def read(self, reader: Reader, address: int, name: str) -> int:
        """Read a scalar member of the structure at ``address``.

        :raises FaultError: when it cannot be read.
        """
        member = self.member(name)
        reading = f"{self.name}.{name}"
        if member.signed:
            return reader.sint(address + member.offset, member.size, reading)
        return reader.uint(address + member.offset, member.size, reading)

    def renamed(self, names: Mapping[str, str]) -> "StructLayout":
        """Return a copy with members renamed, for structures whose members changed name only."""
        members = {names.get(key, key): value for key, value in self.members.items()}
        return StructLayout(self.name, self.size, members, self.origin)


def declare(
    name: str, members: Sequence[str], abi: Abi, origin: str, counts: Mapping[str, int] = {}
) -> StructLayout:
    """Lay out a structure as a C compiler does.

    :param members: declarations such as ``"i32 mutex"``, ``"ptr bins[254]"`` or
        ``"ptr fastbinsY[NFASTBINS]"``; types are u8…u64, i8…i64, ``ptr``, ``size_t``, ``ulong``.
    :param origin: the variant, for the evidence.
    :param counts: values of the names used as array lengths.
    """
    row = _Row(name, members)
    found = declare_types((row,), abi, counts).find_type(name)
    assert found is not None
    return StructLayout(name, found.size, {each.name: _member(each) for each in found.fields}, origin)


class _Row(NamedTuple):
    name: str
    members: Sequence[str]


def _member(field: Field) -> Member:
    item = (field.type.target if field.type.code is Code.ARRAY else None) or field.type
    return Member(field.name, field.offset, item.size, field.type.length, item.signed)
