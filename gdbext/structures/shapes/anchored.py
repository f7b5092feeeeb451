"""Shapes that need no object: whatever they read starts at global variables, or at places in mapped files."""

from __future__ import annotations

from typing import Iterator, Optional

from gdbext.structures.shapes.library import Library
from gdbext.structures.shapes.notation.paths import GlobalRoot
from gdbext.structures.shapes.shape import OF_OBJECT, Paths, Quantity, Shape, keys_of


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
    for part in (*shape.bins, shape.group):
        yield _paths(part.array if part else None)
    yield _paths(shape.list.first if shape.list else None)


def _read_from_object(shape: Shape) -> Iterator[Paths]:
    """Iterate over the paths that start at the object, unless they have a root."""
    yield from shape.lets.values()
    for part in (*shape.bins, shape.table, shape.node, shape.list, shape.lru, shape.group):
        for key in keys_of(type(part)) if part else ():
            # With a type of its own the element's place is a member of that.
            typed = key.name == "element" and shape.node.element_type is not None
            if key.bind in OF_OBJECT and not typed:
                yield _paths(getattr(part, key.name))


def _paths(quantity: "Optional[Quantity[Paths]]") -> Paths:
    return quantity if isinstance(quantity, tuple) else ()


__all__ = ["anchors", "find_anchored", "is_anchored"]
