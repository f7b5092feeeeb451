"""What a user says on the command line about a structure, as changes of a shape or as a shape of its own."""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple, Optional

from gdbext.debuginfo import Types
from gdbext.errors import ShapeError, UsageError
from gdbext.grammar.arguments import parse_int
from gdbext.layout.types import Type
from gdbext.structures.shapes.guessing import Link, find_links
from gdbext.structures.shapes.notation.paths import BoundPath, Path, parse_path
from gdbext.structures.shapes.shape import BinsPart, LinkPart, ListPart, NodePart, Paths, Shape, TablePart

OPTIONS = "options"  # the name of a shape that is made of options alone
SELF = parse_path("self")
HERE = parse_path("&self")


class Overrides(NamedTuple):
    """What the user says about a structure besides the expression.

    Members are names, paths, or bytes: ``8``, ``+0x8``, with ``:SIZE`` where it is not a word.

    :param next: the member of a node that leads to the next.
    :param container: type of the elements, and the member of it that is the node.
    :param bins: the expression is the first of so many bins.
    :param stride: bytes from bin to bin.
    :param head: the member of a bin, or without ``bins`` of the object, that leads to the first node.
    :param raw: types are not used; the expression is an address.
    :param mask: bits cleared in each link.
    :param mangled: links are XORed with their own address >> 12; None: as the shape says.
    :param end: ``null``, ``head``, or a number that stands for the end.
    :param hash: the member of a node, or of its container, that is the stored hash; ``key`` likewise.
    """

    shape: Optional[str] = None
    next: Optional[str] = None
    container: "Optional[tuple[str, str]]" = None
    bins: Optional[int] = None
    stride: Optional[int] = None
    head: Optional[str] = None
    raw: bool = False
    mask: int = 0
    mangled: Optional[bool] = None
    end: Optional[str] = None
    hash: Optional[str] = None
    key: Optional[str] = None
    prev: Optional[str] = None


def read_member(text: str) -> Path:
    """Return the path that a member's name, path or number of bytes is.

    :raises UsageError: when it is none.
    """
    text = text.strip()
    try:
        return parse_path(f"+{text}" if text[:1].isdigit() else text)
    except ShapeError as error:
        raise UsageError(error.message, "write a member's name, or bytes as +0x8") from None


def change_shape(shape: Shape, how: Overrides, types: Types) -> Shape:
    """Return a shape with what the options say instead of what it says itself.

    :raises UsageError: for an end that is none, or an unknown container.
    """
    changed = replace(shape, link=_change_link(shape.link, how), node=_change_node(shape.node, how, types))
    if how.end not in ("null", "head"):
        return changed
    if shape.list is not None and not shape.list.is_node:
        return replace(changed, list=replace(shape.list, end=how.end))
    return replace(changed, table=replace(shape.table, end=how.end)) if shape.bins else changed


def make_list(type: Optional[Type], how: Overrides) -> Shape:
    """Return the shape of a list that ``--next``, and perhaps ``--head`` or ``--end head``, describe.

    :param type: of the expression: of the first node, of the object that ``--head`` is in, or of a head.
    """
    link = read_member(how.next or "")
    first: Path = SELF
    stop: Optional[Paths] = None
    node_type = type
    if how.head is not None:
        first = read_member(how.head)
        node_type = find_pointed(type, first)
    elif how.end == "head":
        first = link
        around = find_inner(type, how)
        stop = (parse_path(around),) if around else None
    head = ListPart((first,), "head" if how.end == "head" else "null", stop)
    inner = _inner_link(node_type, how)
    # A link to the inside of nodes does not tell their type.
    node = NodePart(type=node_type.tag if node_type and inner.relative else None, next=(link,))
    return Shape(OPTIONS, "list", OPTIONS, link=inner, node=node, list=head)


def make_bins(
    bins: "BinsPart[Paths]", end: str, node: "NodePart[Paths]", link: LinkPart, how: Overrides
) -> Shape:
    """Return the shape of an array of bins; its objects are its first bin."""
    row = replace(bins, stride=how.stride)
    table: "TablePart[Paths]" = TablePart(how.end if how.end in ("null", "head") else end)
    return Shape(OPTIONS, "bins", OPTIONS, bins=(row,), table=table, node=node, link=link)


def make_node(type: Optional[Type], how: Overrides) -> "tuple[NodePart[Paths], LinkPart]":
    """Return how ``--next`` leads on from nodes of a type."""
    return NodePart(next=(read_member(how.next or ""),)), _inner_link(type, how)


def find_pointed(type: Optional[Type], head: Optional[Path]) -> Optional[Type]:
    """Return what a bin, or a member of it, points to; None where that is not known."""
    try:
        kind = type if head is None else head.bind(type).type
    except ShapeError:
        return None  # told when the shape is bound
    return kind.target if kind is not None else None


def find_inner(type: Optional[Type], how: Overrides) -> str:
    """Return the member of a node that links lead to, where they do not lead to the node itself; else ""."""
    if type is None:
        return ""
    return next((each for each in find_links(type) if each.path == how.next), Link("")).inner


def _inner_link(type: Optional[Type], how: Overrides) -> LinkPart:
    inner = find_inner(type, how)
    return LinkPart(relative=-parse_path(inner).bind(type).offsets[0]) if inner else LinkPart()


def _change_link(link: LinkPart, how: Overrides) -> LinkPart:
    mangled = link.mangled if how.mangled is None else (how.mangled,)
    end = _read_end(how.end)
    sentinels = link.sentinels if end is None else tuple({*link.sentinels, end})
    return replace(link, mask=how.mask or link.mask, mangled=mangled, sentinels=sentinels)


def _read_end(text: Optional[str]) -> Optional[int]:
    if text is None or text in ("null", "head"):
        return None
    try:
        return int(text, 0) if text.startswith("-") else parse_int(text)
    except (UsageError, ValueError):
        raise UsageError(f"--end: {text!r} is no end", "null, head, or a number") from None


def _change_node(node: "NodePart[Paths]", how: Overrides, types: Types) -> "NodePart[Paths]":
    if how.next is not None:
        node = replace(node, next=(read_member(how.next),), find=())
    if how.prev is not None:
        node = replace(node, prev=(read_member(how.prev),), find_prev=())
    if how.container is not None:
        type, place = _container(how.container, types)
        node = replace(node, element_type=type.name, element=place)
    if how.hash is not None:
        node = replace(node, hash=_of_element(how.hash, how, types))
    return node if how.key is None else replace(node, key=_of_element(how.key, how, types))


def _of_element(member: str, how: Overrides, types: Types) -> Paths:
    """Return a member of a node; first, where there is a container, as one of that, seen from the node."""
    path = read_member(member)
    if how.container is None:
        return (path,)
    type, place = _container(how.container, types)
    try:
        seen = _moved(path.bind(type), place)
    except ShapeError:
        return (path,)
    return (seen, path)


def _container(given: "tuple[str, str]", types: Types) -> "tuple[Type, int]":
    """Return the type of the elements, and where in one the node stands."""
    name, member = given
    type = types.find_type(name)
    if type is None:
        raise UsageError(f"--container: no type {name}", "structures are written with struct before the name")
    try:
        return type, read_member(member).bind(type).offsets[0]
    except ShapeError as error:
        raise UsageError(f"--container: {error.message}") from None


def _moved(bound: BoundPath, by: int) -> Path:
    form = bound.form.text if bound.form else ""
    path = parse_path(f"+0{form}")
    return path._replace(steps=(path.steps[0]._replace(number=bound.offsets[0] - by),))
