"""Bound shapes written as shape files in offsets, for programs that have no type information."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Callable, Optional, Sequence

from gdbext.structures.shapes.bind import BoundShape
from gdbext.structures.shapes.notation.expressions import Expression
from gdbext.structures.shapes.notation.paths import BoundPath, GlobalRoot, Root
from gdbext.structures.shapes.notation.tomltext import Document, Value
from gdbext.structures.shapes.shape import SECTIONS, keys_of

Rooted = Callable[[GlobalRoot], Root]  # a variable -> a place in a mapped file


def save_raw(bound: BoundShape, name: str, rooted: Optional[Rooted] = None) -> str:
    """Return the file of a shape in offsets; that of a group names its tables' shape ``NAME-table``.

    Bound without any type it gives the same numbers, on programs of the same ABI.

    :param name: of the new shape.
    :param rooted: where global variables are, for programs without symbols; None leaves their names.
    """
    return _Writer(bound, name, rooted).write()


def save_all(bound: BoundShape, name: str, rooted: Optional[Rooted] = None) -> "Sequence[tuple[str, str]]":
    """Return name and file of a shape and of what it consists of, as :func:`save_raw`."""
    files = [(name, save_raw(bound, name, rooted))]
    if bound.member is not None:
        member = f"{name}-table"
        files.append((member, save_raw(bound.member, member, rooted)))
    return files


class _Writer:
    """One file being written."""

    def __init__(self, bound: BoundShape, name: str, rooted: Optional[Rooted]) -> None:
        self.bound = bound
        self.name = name
        self.rooted = rooted
        self.out = Document()

    def write(self) -> str:
        raw, out, abi = self.bound.raw, self.out, self.bound.abi
        machine = f"{8 * abi.pointer_size}-bit {abi.byteorder}-endian"
        out.comment(f"{raw.name} in offsets, for {machine} programs without type information.")
        out.comment(f"It is used by --shape {self.name} only.")
        head = {"name": self.name, "summary": raw.summary, "source": raw.source, "kind": raw.kind}
        out.keys({**head, "valid": self._value(raw.valid)}.items())
        if raw.lets:
            out.section("let")
            out.keys((name, self._value(path)) for name, path in raw.lets.items())
        for part in SECTIONS[raw.kind]:
            self._write_parts(part, getattr(raw, part))
        return out.text

    def _write_parts(self, name: str, part: Any) -> None:
        if name == "bins":
            for array in part:
                self._section(name, array, many=True)
        elif name == "probe":
            self._section(name, part)
            for field, row in part.fields.items():
                self._section(f"probe.fields.{field}", row)
        elif name == "group":
            self._section(
                name, replace(part, of=f"{self.name}-table", stride=None if part.indirect else part.stride)
            )
        elif part is not None:
            self._section(name, part)

    def _section(self, name: str, part: Any, many: bool = False) -> None:
        self.out.section(name, many)
        for key in keys_of(type(part)):
            value = getattr(part, key.name)
            if key.name == "first" and value is None:
                value = "self"
            if key.name == "key_is" and part.key is None:
                continue
            if value != key.default or key.always:
                self.out.key(key.name, self._value(value))

    def _value(self, value: Any) -> Value:
        """Return a number, text, expression or path as the file has it."""
        if isinstance(value, BoundPath) and self.rooted is not None and isinstance(value.root, GlobalRoot):
            value = replace(value, root=self.rooted(value.root))
        return value.text if isinstance(value, (BoundPath, Expression)) else value
