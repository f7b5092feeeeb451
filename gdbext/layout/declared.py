"""Types declared in text, as C declares them: for programs without type information, and for variants of libc."""

from __future__ import annotations

import re
from typing import Mapping, Optional, Protocol, Sequence

from gdbext.abi import Abi
from gdbext.errors import ShapeError
from gdbext.layout.types import Code, Field, Located, Type, bare_name

_MEMBER = re.compile(
    r"(?P<type>(?:struct\s+|union\s+)?[A-Za-z_]\w*)\s*(?P<stars>\**)\s*(?P<name>[A-Za-z_]\w*)\s*(?P<counts>(?:\[\w*\])*)$"
)
_FIXED = {"char": (1, False), "bool": (1, False)}
_FIXED.update({f"{mark}{bits}": (bits // 8, mark == "i") for mark in "ui" for bits in (8, 16, 32, 64)})


class Declaration(Protocol):
    """One structure: its members in order, ``u32 count``, ``struct node *next[4]``."""

    @property
    def name(self) -> str: ...  # noqa: D102
    @property
    def members(self) -> Sequence[str]: ...  # noqa: D102


class DeclaredTypes:
    """The structures that some rows declare. Made by :func:`declare_types`."""

    def __init__(self, rows: Sequence[Declaration], abi: Abi, counts: Mapping[str, int] = {}) -> None:
        self._abi = abi
        self._counts = counts
        self._rows: Mapping[str, Declaration] = {bare_name(row.name): row for row in rows}
        self._known: "dict[str, Type]" = {}

    def find_type(self, name: str) -> Optional[Type]:
        """Return a declared structure, with or without ``struct`` before its name, or None."""
        bare = bare_name(name)
        if bare not in self._rows:
            return None
        if bare not in self._known:
            self._known[bare] = self._struct(self._rows[bare])
        return self._known[bare]

    def find_global(self, name: str) -> Optional[Located]:
        """Return None: text declares no variables."""
        return None

    def _struct(self, row: Declaration) -> Type:
        # Laid out at once for its size; the pointers in it stay lazy, so it may point to itself.
        placed, offset, alignment = [], 0, 1
        for text in row.members:
            member = _parse(row.name, text)
            kind, align = self._type(row.name, member)
            offset = self._abi.align_up(offset, align)
            placed.append(Field(member["name"], offset, kind))
            offset, alignment = offset + kind.size, max(alignment, align)
        size = self._abi.align_up(offset, alignment)
        return Type(row.name, Code.STRUCT, size, fields=lambda: placed)

    def _type(self, owner: str, member: "re.Match[str]") -> "tuple[Type, int]":
        base, align = self._pointed(member) if member["stars"] else self._plain(owner, member["type"])
        for count in reversed(re.findall(r"\[(\w*)\]", member["counts"])):
            known = self._counts.get(count)
            base = _array(base, int(count, 0) if count and known is None else known)
        return base, align

    def _plain(self, owner: str, name: str) -> "tuple[Type, int]":
        word = self._abi.pointer_size
        if name in ("size_t", "ulong", "long"):
            return Type(name, Code.INTEGER, word, signed=name == "long"), word
        if name == "ptr":
            return Type("void *", Code.POINTER, word), word
        if name in _FIXED:
            size, signed = _FIXED[name]
            return Type(name, Code.INTEGER, size, signed=signed), min(size, word)
        inner = None if bare_name(name) == bare_name(owner) else self.find_type(name)
        if inner is None:
            raise ShapeError(
                f"struct {owner}: {name!r} is not declared", "u8 to u64, i8 to i64, size_t, ptr, struct NAME"
            )
        return inner, self._alignment(inner)

    def _pointed(self, member: "re.Match[str]") -> "tuple[Type, int]":
        word, name = self._abi.pointer_size, member["type"]
        made = Type(f"{name} *", Code.POINTER, word, target=lambda: self._target(name))
        for _ in member["stars"][1:]:
            made = _pointer_to(made, word)
        return made, word

    def _target(self, name: str) -> Optional[Type]:
        if name in _FIXED or name in ("size_t", "ulong", "long", "ptr"):
            return self._plain("", name)[0]
        return self.find_type(name)

    def _alignment(self, type: Type) -> int:
        if type.code is Code.ARRAY and type.target is not None:
            return self._alignment(type.target)
        if type.is_record:
            return max((self._alignment(member.type) for member in type.fields), default=1)
        return min(max(type.size, 1), self._abi.pointer_size)


def declare_types(rows: Sequence[Declaration], abi: Abi, counts: Mapping[str, int] = {}) -> DeclaredTypes:
    """Return structures, laid out as a C compiler does for ``abi``.

    Mistakes show, as :class:`ShapeError`, when a type is asked for.

    :param counts: values of the names used as array lengths.
    """
    return DeclaredTypes(rows, abi, counts)


def _parse(owner: str, text: str) -> "re.Match[str]":
    match = _MEMBER.match(" ".join(text.split()))
    if match is None:
        raise ShapeError(
            f"struct {owner}: {text!r} is not a member's declaration", "write it as in C, without ;"
        )
    return match


def _pointer_to(inner: Type, word: int) -> Type:
    return Type(f"{inner.name}*", Code.POINTER, word, target=lambda: inner)


def _array(base: Type, count: Optional[int]) -> Type:
    name = f"{base.name} [{'' if count is None else count}]"
    return Type(name, Code.ARRAY, base.size * (count or 0), length=count, target=lambda: base)
