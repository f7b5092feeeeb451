"""``walklist``, ``listcount`` and ``listprint``: lists, tables of bins, groups of tables."""

from __future__ import annotations

from typing import Any, List, Optional

from gdbext.analysis.tables import counts
from gdbext.errors import ShapeError, UsageError
from gdbext.layout.types import Located
from gdbext.report import Report
from gdbext.structures.shapes.anchored import is_anchored
from gdbext.structures.shapes.library import Library
from gdbext.structures.shapes.overrides import Overrides
from gdbext.structures.shapes.resolve import Opened, nearest_shape, open_located
from gdbext.structures.walk.model import ListHead, TreeRoot

_NEED_NODES = ("addresses", "check", "each", "where")  # options


def walk(session: Any, arguments: Any) -> Report:
    """Return the sums over a structure, or its elements as the options ask for them."""
    _check_together(arguments)
    opened = open_expression(session, arguments, arguments.expression)
    if not any(arguments.flag(name) for name in _NEED_NODES) and arguments.value("max") is None:
        return counts.walk_report(opened, counts.sum_structure(session.target, opened.structure, session.progress))
    from gdbext.analysis.tables import elements  # a sum over bins needs none of it

    walked = walk_opened(session, opened, arguments)
    condition, command = arguments.value("where"), arguments.value("each")
    if condition is None and command is None:
        return _summed(session, arguments, opened, walked)
    chosen = elements.every(walked)
    if condition is not None:
        chosen = elements.choose(walked, condition, session.elements, session.progress)
    if arguments.flag("addresses"):
        return elements.address_report(opened, chosen)
    if command is not None:
        limit = arguments.value("limit")
        limit = elements.DEFAULT_LIMIT if limit is None else limit
        return elements.output_report(opened, chosen, command, limit, session.elements)
    return elements.element_report(opened, chosen, (), session.elements)


def _summed(session: Any, arguments: Any, opened: Opened, walked: List[counts.Walked]) -> Report:
    if arguments.flag("addresses"):
        from gdbext.analysis.tables import elements

        return elements.address_report(opened, elements.every(walked))
    checked = None
    if arguments.flag("check"):
        checked = counts.check_structure(session.target, walked)
    return counts.walk_report(opened, walked, checked)


def _check_together(arguments: Any) -> None:
    if arguments.flag("check"):
        for name in ("addresses", "each", "where"):
            if arguments.flag(name):
                raise UsageError(f"--check and --{name} exclude each other", "check first, then look at elements")
    if arguments.flag("addresses") and arguments.flag("each"):
        raise UsageError("--addresses and --each exclude each other", "leave one away")


def count(session: Any, arguments: Any) -> Report:
    """Return how many entries a list has, and why it ended."""
    opened, walked = _walk_list(session, arguments, "listcount")
    return counts.count_report(opened, walked)


def show(session: Any, arguments: Any) -> Report:
    """Return the elements of a list with their members."""
    from gdbext.analysis.tables import elements

    names = [part.strip() for given in arguments.value("field") or () for part in _parts(given)]
    opened, walked = _walk_list(session, arguments, "listprint")
    return elements.element_report(opened, elements.every([walked]), names, session.elements)


def _walk_list(session: Any, arguments: Any, command: str) -> "tuple[Opened, counts.Walked]":
    words = arguments.words
    if len(words) != 2:
        given = f"got {len(words)}" if words else "got none"
        raise UsageError(f"two words are needed, {given}", f"{command} HEAD NEXT; quote a word that has spaces")
    opened = open_expression(session, arguments, words[0], words[1])
    if not isinstance(opened.structure, (ListHead, TreeRoot)):
        raise UsageError(f"{words[0]} is no list: {opened.described}", "walklist walks tables")
    opened = _find_head(session, arguments, words[0], opened) or opened
    return opened, walk_opened(session, opened, arguments)[0]


def _find_head(session: Any, arguments: Any, expression: str, by_link: Opened) -> Optional[Opened]:
    """Return the same list as a shape knows it by its head (a ``list_head`` is no element), or None."""
    if session.locate(expression).value is not None or arguments.value("end") is not None:
        return None  # a pointer leads to the first node
    try:
        opened = open_expression(session, arguments, expression)
    except (UsageError, ShapeError):
        return None
    ours, theirs = opened.structure, by_link.structure
    if not isinstance(ours, ListHead) or not isinstance(theirs, ListHead):
        return None
    return opened if ours.node.links.next == theirs.node.links.next else None


def open_expression(session: Any, arguments: Any, expression: str, link: Optional[str] = None) -> Opened:
    """Return what an expression leads to, as the options say.

    :param link: the member that leads on, where it is no option.
    :raises UsageError: when the expression is missing, has no value, or nothing says what it is.
    """
    overrides, shapes = read_overrides(session, arguments, link), session.shapes
    located = session.locate(expression) if expression else _locate_by_shape(shapes, overrides.shape)
    opened = open_located(session.target, session.types, shapes, located, overrides)
    return opened._replace(problems=(*shapes.problems, *opened.problems))


def _locate_by_shape(shapes: Library, name: Optional[str]) -> Located:
    """Return the place that a shape names by itself: no expression is needed for it."""
    shape = None if name is None else shapes.find_shape(name)
    if name is not None and shape is None:
        raise nearest_shape(shapes, name)
    if shape is None or not is_anchored(shape):
        wanted = "name a list, a table of bins, or a group of tables"
        raise UsageError("an expression is missing", wanted)
    return Located(shape.name, None, None, 0)


def walk_opened(session: Any, opened: Opened, arguments: Any) -> List[counts.Walked]:
    """Walk all of it, each chain up to ``--max``."""
    return counts.walk_structure(session.target, opened.structure, arguments.value("max"), session.progress)


def read_overrides(session: Any, arguments: Any, link: Optional[str] = None) -> Overrides:
    """Return what the options say about a structure."""

    def number(name: str) -> Optional[int]:
        text = arguments.value(name)
        return None if text is None else int(session.evaluate(text))

    return Overrides(
        shape=arguments.value("shape"),
        next=link or arguments.value("next"),
        container=arguments.value("container"),
        bins=number("bins"),
        stride=number("stride"),
        head=arguments.value("head"),
        raw=arguments.flag("raw"),
        mask=number("mask") or 0,
        mangled=True if arguments.flag("mangled") else None,
        end=_read_end(session, arguments.value("end")),
        hash=arguments.value("hash"),
        key=arguments.value("key"),
        prev=arguments.value("prev"),
    )


def _read_end(session: Any, text: Optional[str]) -> Optional[str]:
    """Return a word as it is, and an expression as its value."""
    return text if text in (None, "null", "head") else str(session.evaluate(text))


def _parts(text: str) -> List[str]:
    """Return the members of "a, b.c", commas inside brackets kept."""
    parts, depth = [""], 0
    for char in text:
        depth += (char in "([{") - (char in ")]}")
        if char == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += char
    return [part for part in parts if part.strip()]
