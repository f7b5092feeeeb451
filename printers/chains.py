"""What printers of tables and lists share: the shape that fits a type exactly, a bounded walk, its nodes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Iterator, Optional, Sequence

import gdb
from gdbext.printers.guarded import Child
from gdbext.printers.tags import bare_name

from gdbext.bridge.expressions import lookup
from gdbext.bridge.functions import shaped
from gdbext.bridge.ports.typemaker import type_of
from gdbext.bridge.stops import session
from gdbext.bridge.stops.progress import TerminalProgress
from gdbext.bridge.stops.session import read_shapes
from gdbext.errors import ShapeError
from gdbext.wording import count_text

if TYPE_CHECKING:
    from gdbext.layout.types import Type
    from gdbext.structures.shapes.bind import BoundShape
    from gdbext.structures.shapes.shape import Shape
    from gdbext.structures.walk.model import Links, ListHead, ListWalk

MOST = 10_000  # nodes of one chain
_SECONDS = 1
_LARGE = (gdb.TYPE_CODE_STRUCT, gdb.TYPE_CODE_UNION, gdb.TYPE_CODE_ARRAY)


def find_bound(kind: gdb.Type, kinds: Sequence[str]) -> "Optional[BoundShape]":
    """Return the first shape that names a type exactly and fits its members, or None."""
    found = type_of(kind)
    names = {bare_name(found.name), bare_name(found.tag)}
    for shape in read_shapes().shapes.values():
        if shape.kind in kinds and names & {bare_name(name) for name in shape.types}:
            bound = _bind(shape, found)
            if bound is not None:
                return bound
    return None


def bound_shapes(kinds: Sequence[str]) -> "Iterator[BoundShape]":
    """Iterate over the shapes of which this program has a type that they name exactly."""
    for shape in read_shapes().shapes.values():
        for name in shape.types if shape.kind in kinds else ():
            kind = None if any(mark in name for mark in "*?[") else lookup.find_type(name)
            bound = None if kind is None else _bind(shape, type_of(kind))
            if bound is not None:
                yield bound


def _bind(shape: "Shape", type: "Type") -> "Optional[BoundShape]":
    from gdbext.structures.shapes.bind import bind

    try:
        return bind(shape, type, session.current().types, read_shapes(), shaped.read_target().abi)
    except ShapeError:
        return None


def walk(start: int, links: "Links", circular: bool) -> "ListWalk":
    """Follow the chain whose first link is at an address.

    :param circular: it ends there.
    :raises FaultError: when the first link cannot be read.
    """
    from gdbext.structures.walk.chainwalk import decode_head
    from gdbext.structures.walk.model import ListHead, Node

    target = shaped.read_target()
    first = decode_head(target.reader.word(start, "head"), links, target.abi)
    return walk_head(ListHead(start, first, Node(links), start + links.relative if circular else None))


def walk_head(head: "ListHead") -> "ListWalk":
    """Follow a list, as far as printing goes."""
    from gdbext.structures.walk.lists import walk_list

    return walk_list(shaped.read_target(), head, MOST, TerminalProgress(_SECONDS, visible=False))


def describe(walked: "ListWalk", noun: str, plural: str) -> str:
    """Return how many nodes there are, and why there may be more."""
    from gdbext.structures.walk.model import End

    text, end = count_text(len(walked.nodes), noun, plural), walked.end
    if end.reason.sound:
        return text
    if end.reason in (End.LIMIT, End.INTERRUPTED):
        return f"more than {text}"
    if end.reason is End.CYCLE:
        return f"a cycle after {text}"
    return f"{text}, then <{end.reason.word} {end.address or 0:#x}>"


def nodes(walked: "ListWalk", type: "Optional[Type]") -> Iterator[Child]:
    """Iterate over pointers to the nodes of a chain, whose type is known or None."""
    kind = lookup.find_type(type.name) if type is not None else None
    pointer = (kind or gdb.lookup_type("void")).pointer()
    for index, address in enumerate(walked.nodes.tolist()):
        yield f"[{index}]", gdb.Value(address).cast(pointer)


def members(value: gdb.Value) -> Iterator[Child]:
    """Iterate over the members of a structure, numbers and pointers before what is larger (locks)."""
    fields = [field for field in value.type.strip_typedefs().fields() if hasattr(field, "bitpos")]
    for field in sorted(fields, key=_is_large):
        yield field.name or "", value[field]


def _is_large(field: Any) -> bool:
    return field.type.strip_typedefs().code in _LARGE
