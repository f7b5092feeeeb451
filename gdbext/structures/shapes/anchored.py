"""Shapes that need no object: whatever they read starts at global variables, or at places in mapped files."""

from __future__ import annotations

from typing import Iterator, Optional

from gdbext.structures.shapes.library import Library
from gdbext.structures.shapes.paths import GlobalRoot
from gdbext.structures.shapes.shape import ListPart, Paths, Quantity, Shape


def is_anchored(shape: Shape) -> bool:
    """Return whether a shape says by itself where its list, table or group is."""
    if not (shape.bins or shape.list or shape.group) or _ends_at_object(shape):
        return False
    return all(path.root is not None for paths in _read_from_object(shape) for path in paths)


def find_anchored(library: Library, name: str) -> Optional[Shape]:
    """Return the shape of the table, group or list that a global variable leads to, or None."""
    return next((shape for anchor, shape in _anchors(library) if anchor == name), None)


def anchors(library: Library) -> "list[str]":
    """Return the global variables that shapes name as the way to their table or group: the first of each."""
    names = {shape.name: name for name, shape in reversed(list(_anchors(library))) if shape.kind != "list"}
    return sorted(names.values())


def _anchors(library: Library) -> "Iterator[tuple[str, Shape]]":
    for shape in filter(is_anchored, library.shapes.values()):
        for path in (path for paths in _starts(shape) for path in paths):
            if isinstance(path.root, GlobalRoot) and not path.steps:
                yield path.root.name, shape


def _ends_at_object(shape: Shape) -> bool:
    return shape.list is not None and shape.list.end == "head" and not shape.list.stop


def _starts(shape: Shape) -> Iterator[Paths]:
    yield from (part.array for part in shape.bins)
    if shape.list is not None:
        yield shape.list.first
    if shape.group is not None:
        yield shape.group.array


def _read_from_object(shape: Shape) -> Iterator[Paths]:
    """Iterate over the paths that start at the object, unless they have a root."""
    yield from _starts(shape)
    yield from shape.lets.values()
    for bins in shape.bins:
        yield from (_paths(bins.count), _paths(bins.stride), _paths(bins.segment))
    yield from (shape.table.list_first, _paths(shape.table.entries), shape.table.lock)
    yield _paths(shape.node.key_size)
    if shape.node.element_type is None:  # else it is a member of that
        yield _paths(shape.node.element)
    for head in (shape.list, shape.lru.head if shape.lru else None):
        yield from _read_by_head(head) if head is not None else ()
    if shape.group is not None:
        yield from (_paths(shape.group.count), _paths(shape.group.stride))


def _read_by_head(head: ListPart) -> Iterator[Paths]:
    yield from (head.first, head.stop, head.last, _paths(head.entries))


def _paths(quantity: Optional[Quantity]) -> Paths:
    return quantity if isinstance(quantity, tuple) else ()


__all__ = ["anchors", "find_anchored", "is_anchored"]
