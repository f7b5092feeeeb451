"""Structure layouts as data: C-like member lists in, offsets out.

A variant is written once, as its source declares it, and the offsets follow from the target's ABI;
a layout from debug info has the same shape. Nothing here compares version numbers.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Mapping, Optional, Sequence

from gdbext.abi import Abi
from gdbext.errors import LayoutError
from gdbext.memory import Reader

_MEMBER = re.compile(r"(?P<type>[a-z0-9_]+\*?)\s+(?P<name>\w+)(?:\[(?P<count>\w+)\])?$")

_FIXED = {"u8": 1, "i8": 1, "u16": 2, "i16": 2, "u32": 4, "i32": 4, "u64": 8, "i64": 8}
_WORDS = {"ptr", "size_t", "ulong", "word"}


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
    placed: dict[str, Member] = {}
    offset, alignment = 0, 1
    for text in members:
        kind, member_name, count = _parse(text, counts)
        size = abi.pointer_size if kind in _WORDS else _FIXED[kind]
        align = min(size, abi.pointer_size)
        offset = abi.align_up(offset, align)
        placed[member_name] = Member(member_name, offset, size, count, kind.startswith("i"))
        offset += placed[member_name].extent
        alignment = max(alignment, align)
    return StructLayout(name, abi.align_up(offset, alignment), placed, origin)


def _parse(text: str, counts: Mapping[str, int]) -> tuple[str, str, Optional[int]]:
    match = _MEMBER.match(text)
    if match is None or (match["type"] not in _FIXED and match["type"] not in _WORDS):
        raise ValueError(f"not a member declaration: {text!r}")
    length = match["count"]
    if length is None:
        return match["type"], match["name"], None
    return match["type"], match["name"], counts[length] if length in counts else int(length)
