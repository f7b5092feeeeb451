"""Bound shapes written as shape files in offsets, for programs that have no type information."""

from __future__ import annotations

from dataclasses import replace
from typing import Callable, Optional, Sequence

from gdbext.abi import Abi
from gdbext.structures.shapes.bind import (
    Amount,
    BoundArray,
    BoundBins,
    BoundGroup,
    BoundHead,
    BoundList,
    BoundNode,
    BoundProbe,
    BoundShape,
    BoundSlotField,
    BoundTree,
    Place,
)
from gdbext.structures.shapes.expressions import Expression
from gdbext.structures.shapes.paths import BoundPath, Form, GlobalRoot, Root
from gdbext.structures.shapes.tomltext import Document, Value
from gdbext.structures.walk.model import Scalar

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
    if isinstance(bound.part, BoundGroup):
        member = f"{name}-table"
        files.append((member, save_raw(bound.part.member, member, rooted)))
    return files


class _Writer:
    """One file being written."""

    def __init__(self, bound: BoundShape, name: str, rooted: Optional[Rooted]) -> None:
        self.bound = bound
        self.name = name
        self.rooted = rooted
        self.out = Document()

    def write(self) -> str:
        shape, out = self.bound.shape, self.out
        out.comment(f"{shape.name} in offsets, for {_abi(self.bound.abi)} programs without type information.")
        out.comment(f"It is used by --shape {self.name} only.")
        out.keys(
            (
                ("name", self.name),
                ("summary", shape.summary),
                ("source", shape.source),
                ("kind", shape.kind),
                ("valid", shape.valid.text if shape.valid else None),
            )
        )
        if self.bound.lets:
            out.section("let")
            out.keys((name, self._path(path)) for name, path in self.bound.lets.items())
        getattr(self, f"_write_{shape.kind}")(self.bound.part)
        return out.text

    # -- the kinds

    def _write_list(self, part: BoundList) -> None:
        self.out.section("list")
        self._head(part.head)
        self._node(part.node)

    def _write_bins(self, part: BoundBins) -> None:
        for array in part.arrays:
            self._array(array)
        self._node(part.node)
        self.out.section("table")
        self.out.keys(
            (
                ("end", part.end),
                ("list_first", self._path(part.list_first)),
                ("entries", self._amount(part.entries)),
                ("rehashing", _expression(part.rehashing)),
                ("lock", self._path(part.lock)),
                ("bin_lock", _offset(part.bin_lock)),
            )
        )
        if part.lru is not None and part.lru_node is not None:
            self.out.section("lru")
            self._head(part.lru)
            links = part.lru_node.links
            self.out.keys((("next", _offset(links.next)), ("prev", _offset(links.prev))))
            self.out.key("prev_is", "link" if links.prev_is_link else None)

    def _write_group(self, part: BoundGroup) -> None:
        self.out.section("group")
        self.out.keys(
            (
                ("array", self._place(part.array)),
                ("count", self._amount(part.count)),
                ("indirect", part.indirect or None),
                ("stride", None if part.indirect else self._amount(part.stride)),
                ("of", f"{self.name}-table"),
                ("slab_of", _expression(part.slab_of)),
            )
        )

    def _write_probe(self, part: BoundProbe) -> None:
        self.out.section("probe")
        self.out.keys(
            (
                ("slots", self._amount(part.slots)),
                ("occupied", part.occupied.text),
                ("home", _expression(part.home)),
                ("distance", _expression(part.distance)),
                ("step", part.step),
                ("hash", part.hash),
                ("key", part.key),
                ("entries", self._amount(part.entries)),
                ("element_type", part.element_type),
            )
        )
        for name, field in part.fields.items():
            self.out.section(f"probe.fields.{name}")
            self._slot_field(field)

    def _write_tree(self, part: BoundTree) -> None:
        self.out.section("tree")
        self.out.keys(
            (
                ("root", self._path(part.root)),
                ("left", _offset(part.left)),
                ("right", _offset(part.right)),
                ("parent", _offset(part.parent)),
                ("header", self._place(part.header) if part.header else None),
                ("leftmost", self._path(part.leftmost)),
                ("rightmost", self._path(part.rightmost)),
                ("sentinel", self._amount(part.sentinel)),
                ("mask", part.mask or None),
                ("entries", self._amount(part.entries)),
                ("element", self._amount(part.element) or None),
                ("content", self._amount(part.content) or None),
                ("element_type", part.element_type),
            )
        )

    # -- their parts

    def _head(self, head: BoundHead) -> None:
        self.out.keys(
            (
                ("first", self._path(head.first) if head.first else "self"),
                ("end", head.end),
                ("stop", self._place(head.stop) if head.stop else None),
                ("last", self._path(head.last)),
                ("last_is", "link" if head.last_is_link else None),
                ("entries", self._amount(head.entries)),
            )
        )

    def _array(self, array: BoundArray) -> None:
        self.out.section("bins", many=True)
        self.out.keys(
            (
                ("array", self._place(array.array)),
                ("count", self._amount(array.count)),
                ("stride", self._amount(array.stride)),
                ("head", _offset(array.head)),
                ("length", _scalar(array.length)),
                ("bin_of", _expression(array.bin_of)),
                ("segment", self._amount(array.segment) or None),
                ("when", _expression(array.when)),
                ("stop", _offset(array.stop)),
            )
        )

    def _node(self, node: BoundNode) -> None:
        links = node.links
        self.out.section("node")
        self.out.keys(
            (
                ("next", _offset(links.next)),
                ("prev", _offset(links.prev)),
                ("prev_is", "link" if links.prev_is_link else None),
                ("hash", _scalar(node.hash)),
                ("key", _scalar(node.key)),
                ("key_is", node.key_is if node.key else None),
                ("key_size", self._amount(node.key_size) or None),
                ("key_length", _scalar(node.key_length)),
                ("element", self._amount(node.element) or None),
                ("content", self._amount(node.content) or None),
                ("element_type", node.type),
            )
        )
        self._link(node)

    def _link(self, node: BoundNode) -> None:
        links = node.links
        self.out.section("link")
        for name in ("mask", "xor", "relative", "end_bits", "leaf_bits", "sentinels", "forbidden"):
            self.out.key(name, getattr(links, name) or None)
        self.out.key("alignment", links.alignment)
        if node.mangled != (False,):
            self.out.key("mangled", node.mangled)

    def _slot_field(self, field: BoundSlotField) -> None:
        at, size = self._amount(field.at), self._amount(field.size)
        if field.bits and isinstance(field.at, int) and isinstance(field.size, int):
            at, size = _scalar(Scalar(field.at, field.size, field.signed, field.bits)), None
        self.out.keys(
            (
                ("array", self._place(field.array)),
                ("stride", self._amount(field.stride)),
                ("at", at or None),
                ("size", size),
                ("signed", field.signed or None),
                ("per", self._amount(field.per)),
            )
        )

    # -- values

    def _place(self, place: Place) -> Value:
        if place.path is None:
            return _expression(place.amount)
        if place.embedded:
            return self._path(replace(place.path, address=True, form=None))
        return self._path(place.path)

    def _path(self, path: Optional[BoundPath]) -> Optional[str]:
        if path is None:
            return None
        if self.rooted is not None and isinstance(path.root, GlobalRoot):
            path = replace(path, root=self.rooted(path.root))
        return path.text

    def _amount(self, amount: Optional[Amount]) -> Value:
        if amount is None or isinstance(amount, int):
            return amount
        return amount.text if isinstance(amount, Expression) else self._path(amount)


def _expression(expression: Optional[Expression]) -> Optional[str]:
    return expression.text if expression else None


def _offset(offset: Optional[int]) -> Optional[str]:
    return None if offset is None else f"+{offset:#x}"


def _scalar(scalar: Optional[Scalar]) -> Optional[str]:
    if scalar is None:
        return None
    return f"+{scalar.offset:#x}{Form(scalar.size, scalar.signed, scalar.bits).text}"


def _abi(abi: Abi) -> str:
    return f"{8 * abi.pointer_size}-bit {abi.byteorder}-endian"
