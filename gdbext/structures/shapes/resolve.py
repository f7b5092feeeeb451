"""What an expression of the user leads to: a list, a table, a group of tables; opened, with the reasons.

The expression's type decides: a structure is looked up among the shapes, a pointer is followed, an array is
a row of bins. Options stand in where no shape fits, and refine one that does.
"""

from __future__ import annotations

from dataclasses import fields, is_dataclass
from typing import Iterable, Iterator, Mapping, NamedTuple, Optional, Sequence

from gdbext.debuginfo import Types
from gdbext.errors import FaultError, GdbextError, ShapeError, UsageError
from gdbext.grammar.arguments import nearest
from gdbext.layout.types import Code, Field, Located, Type, bare_name
from gdbext.progress import SILENT
from gdbext.report import Evidence, Problem
from gdbext.structures.shapes.anchored import find_anchored, is_anchored
from gdbext.structures.shapes.bind import BoundShape, bind
from gdbext.structures.shapes.library import Library
from gdbext.structures.shapes.notation.paths import Path
from gdbext.structures.shapes.opening import Structure, check_valid, open_shape
from gdbext.structures.shapes.overrides import (
    HERE,
    OPTIONS,
    SELF,
    Overrides,
    change_shape,
    find_pointed,
    make_bins,
    make_list,
    make_node,
    read_member,
)
from gdbext.structures.shapes.shape import BinsPart, GroupPart, LinkPart, NodePart, Paths, Shape
from gdbext.structures.walk.bins import walk_bins
from gdbext.structures.walk.lists import walk_list
from gdbext.structures.walk.model import End, Group, Links, ListHead, Node, ProbeTable, Table, TreeRoot
from gdbext.target import Target

_TABLES = ("bins", "group", "probe")
_NAMED = 4  # members that a hint names
_TRIED = 64  # nodes of each chain that are walked to find out how links are read
_DATA = (Code.INTEGER, Code.FLOAT, Code.FUNCTION, Code.OTHER)


class Opened(NamedTuple):
    """What an expression leads to.

    :param problems: tables of a group that could not be opened, and doubts about the shape.
    :param described: one line: what it is, and where.
    :param bound: the shape in offsets; None for a null pointer.
    """

    structure: Structure
    evidence: Sequence[Evidence]
    problems: Sequence[Problem]
    described: str
    bound: Optional[BoundShape] = None


def open_located(target: Target, types: Types, library: Library, located: Located, how: Overrides) -> Opened:
    """Open what an expression leads to.

    A null pointer is an empty structure. Where a shape leaves open how links are read, both ways are tried on
    the first nodes of each chain.

    :raises UsageError: when no shape fits and no option says how, or the expression is in no memory.
    :raises ShapeError: when several shapes fit, or the one that does cannot be: see ``opening``.
    :raises FaultError: when the object cannot be read.
    """
    return _Resolver(target, types, library, located, how).open()


def bind_fitting(target: Target, types: Types, library: Library, type: Type) -> BoundShape:
    """Return the shape that fits a type best, bound; errors as :func:`open_located`."""
    return _Resolver(target, types, library, Located(type.name, type, None, None), Overrides()).fitting(
        type, None
    )


def nearest_shape(library: Library, name: str) -> UsageError:
    """Return the error for a shape that is not known, with the one that is most like it."""
    near = nearest(name, list(library.shapes))
    return UsageError(f"no shape {name}", f"did you mean {near}?" if near else "gx shapes list")


def no_shape(type: Type) -> UsageError:
    """Return the error for a type that no shape fits: what in it may lead to the next node, or where to look."""
    from gdbext.structures.shapes.guessing import find_heads, find_links  # of no use where one fits

    links = [link.path for link in find_links(type)]
    heads = find_heads(type)
    if not links and heads:
        return UsageError(
            f"no shape fits {type.name}", f"--head {heads[0][0]} --next {heads[0][1]} may follow its list"
        )
    if not links:
        return UsageError(f"no shape fits {type.name}", f"gx shapes guess {type.name}")
    others = f" (or {', '.join(links[1:4])})" if links[1:] else ""
    return UsageError(f"no shape fits {type.name}", f"--next {links[0]}{others} follows a list of them")


class _Resolver:
    """One expression."""

    def __init__(self, target: Target, types: Types, library: Library, located: Located, how: Overrides) -> None:
        self.target = target
        self.types = types
        self.library = library
        self.located = located
        self.how = how
        self.evidence: "list[Evidence]" = []
        self.problems: "list[Problem]" = []

    def open(self) -> Opened:
        if self.located.found:
            self.evidence.append(Evidence("expression", f"{self.located.text} is {self.located.found}"))
        anchored = self._find_anchored()
        if anchored is not None:
            return self._by_name(anchored, None, 0)
        if self.how.bins is not None:
            return self._row(*self._first_bin(), self.how.bins)
        type = None if self.how.raw else self.located.type
        if type is not None and self._is_opaque(type.target):
            return self._object(type.target, self._value())
        if type is None or type.code is Code.INTEGER or _points_to_data(type):
            return self._object(None, self._value())
        if type.is_record:
            return self._object(type, self._address())
        if type.code is Code.POINTER and type.target is not None:
            return self._pointed(type.target, self._value())
        if type.code is Code.ARRAY and type.target is not None:
            return self._array(type, self._address())
        raise UsageError(f"{self.located.text} is a {type.name}", "name a structure, a pointer or an array")

    # -- what the expression is

    def _find_anchored(self) -> Optional[Shape]:
        """Return the shape that needs no object, which was named or whose variable the expression is; or None."""
        if self.how.shape is not None:
            shape = self._shape_named(self.how.shape)
            return shape if is_anchored(shape) else None
        type = self.located.type
        pointed = type.target if type is not None else None
        if pointed is None or pointed.code is not Code.POINTER or self.how != Overrides():
            return None
        return find_anchored(self.library, self.located.text.rpartition("::")[2])

    def _is_opaque(self, type: Optional[Type]) -> bool:
        """Whether it is only declared in the program, but some shape knows its name."""
        opaque = type is not None and type.code is Code.OTHER
        return opaque and next(self.library.for_each_fitting(type), None) is not None  # type: ignore[arg-type]

    def _value(self) -> int:
        value = self.located.address if self.located.value is None else self.located.value
        if value is None:
            raise UsageError(f"{self.located.text} has no value that is an address")
        return value

    def _address(self) -> int:
        if self.located.address is None:
            raise UsageError(f"{self.located.text} is in no memory", "it is computed, or in registers")
        return self.located.address

    def _first_bin(self) -> "tuple[Optional[Type], int]":
        """Return the type and the address of the first of ``--bins``."""
        type = self.located.type
        if type is None or type.code is Code.INTEGER:
            return None, self._value()
        place = self._value() if type.code is Code.POINTER else self._address()
        item = type if type.is_record else type.target
        if type.code is Code.POINTER and item is not None and item.code is Code.ARRAY:
            item = item.target
        unknown = self.how.raw or item is None or item.code in _DATA
        return None if unknown else item, place

    def _pointed(self, type: Type, value: int) -> Opened:
        if type.is_record or not value or self.how.shape is not None:
            return self._object(type, value)
        if type.code is Code.ARRAY:
            return self._array(type, value)
        text = self.located.text
        raise UsageError(
            f"{text} points to a pointer, {type.name}",
            f"--bins N takes it as an array of N bins; *({text}) is the first",
        )

    def _array(self, type: Type, address: int) -> Opened:
        if not type.length:
            raise UsageError(f"{self.located.text} is an array of unknown length", "--bins N says how many")
        return self._row(type.target, address, type.length)

    # -- one object

    def _object(self, type: Optional[Type], address: int) -> Opened:
        if not address:
            return self._empty(self._any_shape(type))
        if self.how.head is not None and self.how.next is None:
            raise UsageError("--head says where a chain begins, not how it goes on", "--next MEMBER does")
        if self.how.shape is not None:
            return self._by_name(self._shape_named(self.how.shape), type, address)
        if self.how.next is not None:
            return self._opened(self._by_next(type, address), address)
        if type is not None:
            return self._fitting_or_member(type, address)
        raise UsageError(
            f"{self.located.text} is a plain address", "--shape NAME or --next BYTES says what is there"
        )

    def _fitting_or_member(self, type: Type, address: int) -> Opened:
        """Open an object by its shape; one that has none, but a single table in it, by that table's."""
        try:
            bound = self.fitting(type, address)
        except UsageError as error:
            tables = list(self._tables_in(type))
            if not tables:
                raise
            if len(tables) > 1 or not tables[0].type.is_record:
                names = ", ".join(table.name for table in tables[:_NAMED])
                raise UsageError(error.message, f"of its members, {names} may be meant") from None
            told = f"{self.located.text} has one table in it, its member {tables[0].name}"
            self.evidence.append(Evidence("expression", told))
            return self._object(tables[0].type, address + tables[0].offset)
        return self._opened(bound, address)

    def _tables_in(self, type: Type) -> Iterator[Field]:
        """Iterate over the members that are tables by the names of their types, or point to such."""
        for field in type.fields:
            kind = field.type.target if field.type.code is Code.POINTER else field.type
            shapes = self.library.for_each_fitting(kind) if kind is not None else ()
            if field.name and any(shape.types and shape.kind in _TABLES for shape in shapes):
                yield field

    def _any_shape(self, type: Optional[Type]) -> Optional[Shape]:
        if self.how.shape is not None:
            return self._shape_named(self.how.shape)
        return next(self.library.for_each_fitting(type), None) if type is not None else None

    def _empty(self, shape: Optional[Shape]) -> Opened:
        name, kind = (shape.name, shape.kind) if shape else (OPTIONS, "list")
        structure: Structure = ListHead(0, 0, Node(Links(0)), shape=name)
        if kind == "group":
            structure = Group(0, (), shape=name)
        elif kind == "bins":
            structure = Table(0, Node(Links(0)), (), shape=name)
        self.evidence.append(Evidence("expression", f"{self.located.text} is null: there is nothing"))
        return Opened(structure, tuple(self.evidence), (), f"{self.located.text}: null")

    def _by_name(self, shape: Shape, type: Optional[Type], address: int) -> Opened:
        bound = self._bind_named(shape, type)
        if bound.raw.valid is not None and not check_valid(bound, self.target, address, self.types):
            doubt = f"{shape.name}: {bound.raw.valid.text!r} does not hold, so this may be none"
            self.problems.append(Problem("shape", address, doubt))
        return self._opened(bound, address)

    def _bind_named(self, shape: Shape, type: Optional[Type]) -> BoundShape:
        """Bind to the expression's type, or to the shape's own where the expression's has no members."""
        try:
            return self._bind(shape, type)
        except ShapeError as error:
            if type is None:
                raise
            if type.fields:
                text = self.located.text
                raise ShapeError(error.message, f"(void *) before {text} takes the shape's own types") from None
            return self._bind(shape, None)

    def _shape_named(self, name: str) -> Shape:
        shape = self.library.find_shape(name)
        if shape is None:
            raise nearest_shape(self.library, name)
        return shape

    def _by_next(self, type: Optional[Type], address: int) -> BoundShape:
        """Bind ``--next``: to a node or its head, or to a head whose shape lacks only the link."""
        if type is None or self.how.head is not None:
            return self._bind(make_list(type, self.how), type)
        try:
            read_member(self.how.next or "").bind(type)
        except ShapeError as error:
            if next(self.library.for_each_fitting(type), None) is None:
                raise UsageError(f"--next: {_told(error)}", no_shape(type).hint) from None
            return self.fitting(type, address)
        return self._bind(make_list(type, self.how), type)

    # -- which shape

    def fitting(self, type: Type, address: Optional[int]) -> BoundShape:
        """Return the shape that fits best, bound.

        :param address: of an object for which it must be valid, or None.
        :raises UsageError: when none fits.
        :raises ShapeError: when none binds, or several are equally good; FaultError as ``check_valid``.
        """
        fault: Optional[GdbextError] = None
        for shapes in self._ranked(type):
            sound = []
            for shape in shapes:
                try:
                    bound = self._bind(shape, type)
                    if address is None or check_valid(bound, self.target, address, self.types):
                        sound.append(bound)
                    else:
                        fault = fault or _not_valid(bound, type, address)
                except (ShapeError, FaultError) as error:
                    fault = fault or error
            if sound:
                return self._best(type, sound)
        raise fault or no_shape(type)

    def _ranked(self, type: Type) -> "Iterator[list[Shape]]":
        """Iterate over shapes that fit, alike ones together: by the type's name, by a pattern, by members."""
        shapes = list(self.library.for_each_fitting(type))
        own = {bare_name(type.name), bare_name(type.tag)}
        named = [shape for shape in shapes if own & {bare_name(name) for name in shape.types}]
        matched = [shape for shape in shapes if shape.types and shape not in named]
        yield from filter(None, (named, matched, [shape for shape in shapes if not shape.types]))

    def _best(self, type: Type, sound: "list[BoundShape]") -> BoundShape:
        """Return the one that asks most of an object; others are told that are no plainer variant of it."""
        sound.sort(key=_demands, reverse=True)
        best = [bound.name for bound in sound if _demands(bound) == _demands(sound[0])]
        if len(best) > 1:
            raise ShapeError(
                f"{type.name} fits several shapes: {', '.join(best)}", f"--shape {best[0]} takes one"
            )
        for other in (bound for bound in sound[1:] if not _is_plainer(bound.shape, sound[0].shape)):
            told = f"{other.name} fits too, but asks for less; --shape {other.name} takes it"
            self.evidence.append(Evidence("shape", told))
        return sound[0]

    # -- many side by side

    def _row(self, item: Optional[Type], address: int, count: int) -> Opened:
        """Open an array of bins, of list heads, or of tables."""
        if not address:
            return self._empty(None)
        if item is None or item.code is Code.POINTER or self.how.head is not None:
            return self._opened(self._row_of_bins(item, count), address)
        if not item.is_record:
            raise UsageError(
                f"{self.located.text} consists of {item.name}", "bins are pointers or structures"
            )
        return self._opened(self._row_of_records(item, count), address)

    def _row_of_bins(self, item: Optional[Type], count: int) -> BoundShape:
        """Bind an array of pointers to nodes, or of structures with ``--head`` in them."""
        head = read_member(self.how.head) if self.how.head else None
        type = find_pointed(item, head)
        row = BinsPart((HERE,), count, head=(head,) if head else None)
        if self.how.next is not None:
            return self._bind_bins(item, row, "null", *make_node(type, self.how))
        if type is None or not type.is_record:
            raise UsageError(
                f"nothing says how the nodes of {self.located.text} are linked", "--next MEMBER does"
            )
        member = self.fitting(type, None)
        shape = member.shape
        if shape.list is not None and shape.list.is_node:
            return self._bind_bins(item, row, "null", shape.node, shape.link)
        if head is not None:
            raise no_shape(type)
        return self._bind_group(item, count, member, indirect=True)

    def _row_of_records(self, item: Type, count: int) -> BoundShape:
        """Bind an array of list heads, or of tables."""
        try:
            member = self.fitting(item, None)
        except UsageError as error:
            if self.how.next is None:
                raise
            raise UsageError(error.message, "--head MEMBER says where in it a chain begins") from None
        shape = member.shape
        if shape.list is None or shape.list.is_node or self.how.shape is not None:
            return self._bind_group(item, count, member, indirect=False)
        stop = (shape.list.stop or (SELF,)) if shape.list.end == "head" else None
        row: "BinsPart[Paths]" = BinsPart((HERE,), count, head=shape.list.first, stop=stop)
        return self._bind_bins(item, row, shape.list.end, shape.node, shape.link)

    def _bind_bins(
        self, item: Optional[Type], bins: "BinsPart[Paths]", end: str, node: "NodePart[Paths]", link: LinkPart
    ) -> BoundShape:
        return self._bind(make_bins(bins, end, node, link, self.how), item)

    def _bind_group(self, item: Optional[Type], count: int, member: BoundShape, indirect: bool) -> BoundShape:
        part = GroupPart((HERE,), count, indirect, self.how.stride, of=member.name)
        return self._bind(Shape(OPTIONS, "group", OPTIONS, group=part), item)

    def _bind(self, shape: Shape, type: Optional[Type]) -> BoundShape:
        """Bind a shape with what the options change in it; the options' own faults are the user's."""
        changed = change_shape(shape, self.how, self.types)
        try:
            return bind(changed, type, self.types, self.library, self.target.abi)
        except ShapeError as error:
            if changed.name != OPTIONS:
                raise
            raise UsageError(_told(error), error.hint) from None

    # -- the end

    def _opened(self, bound: BoundShape, address: int) -> Opened:
        structure = self._open(bound, address)
        if isinstance(structure, Group):
            self.problems.extend(structure.problems)
        self.evidence.append(Evidence("shape", _origin(bound)))
        return Opened(
            structure, tuple(self.evidence), tuple(self.problems), _describe(structure, bound), bound
        )

    def _open(self, bound: BoundShape, address: int) -> Structure:
        ways = _ways(bound)
        if len(ways) < 2:
            return open_shape(bound, self.target, address, self.types)
        tried = [open_shape(bound, self.target, address, self.types, way) for way in ways]
        faults = [count_faults(self.target, structure) for structure in tried]
        chosen = faults.index(min(faults))
        told = ", ".join(f"{'mangled' if way else 'plain'}: {bad}" for way, bad in zip(ways, faults))
        self.evidence.append(Evidence("links", f"chains that end badly when links are read as {told}"))
        return tried[chosen]


def count_faults(target: Target, structure: Structure) -> int:
    """Return how many chains do not end soundly within their first nodes."""
    if isinstance(structure, Group):
        return sum(count_faults(target, table) for table in structure.tables)
    if isinstance(structure, Table):
        reasons = walk_bins(target, structure, _TRIED, SILENT).reasons
        return int(sum(_is_fault(End(reason)) for reason in reasons.tolist()))
    return int(isinstance(structure, ListHead) and _is_fault(walk_list(target, structure, _TRIED).end.reason))


def _is_fault(end: End) -> bool:
    return not end.sound and end not in (End.LIMIT, End.ABSENT)


def _ways(bound: BoundShape) -> Sequence[bool]:
    return bound.raw.link.mangled if bound.member is None else _ways(bound.member)


def _points_to_data(type: Type) -> bool:
    return type.code is Code.POINTER and (type.target is None or type.target.code in _DATA)


def _not_valid(bound: BoundShape, type: Type, address: int) -> ShapeError:
    condition = bound.raw.valid.text if bound.raw.valid else ""
    return ShapeError(
        f"{type.name} at {address:#x} is not as {bound.name} says: {condition!r} does not hold",
        f"it is uninitialised, damaged or of another version; --shape {bound.name} takes it nevertheless",
    )


def _demands(bound: BoundShape) -> "tuple[bool, int]":
    """Return how much a shape asks of an object: a condition most, then each member that it names."""
    return bound.raw.valid is not None, len(list(_named_paths(bound.shape)))


def _is_plainer(shape: Shape, other: Shape) -> bool:
    """Whether a shape is for the same types as another, and names nothing that this does not name too."""
    return shape.types == other.types and set(_named_paths(shape)) <= set(_named_paths(other))


def _named_paths(part: object) -> Iterator[str]:
    """Iterate over the paths of a shape that name members."""
    inner: Iterable[object] = ()
    if isinstance(part, Path):
        yield from [part.text] if any(step.kind == "name" for step in part.steps) else []
    elif isinstance(part, Mapping):
        inner = part.values()
    elif isinstance(part, tuple):
        inner = part
    elif is_dataclass(part):
        inner = (getattr(part, field.name) for field in fields(part))
    for each in inner:
        yield from _named_paths(each)


def _told(error: ShapeError) -> str:
    return error.message.replace(f"shape {OPTIONS}: ", "")


def _origin(bound: BoundShape) -> str:
    if bound.name == OPTIONS and bound.member is None:
        return f"as the options say; members from {bound.types_from}"
    inner = f"; its tables are {_origin(bound.member)}" if bound.member else ""
    if bound.name == OPTIONS:
        return f"an array{inner}"
    source = {"offsets": "offsets in the file", "declarations": "the shape's own declarations"}
    since = next((struct.since for struct in bound.shape.structs if struct.since), "")
    version = f" ({since})" if since and bound.types_from == "declarations" else ""
    members = source.get(bound.types_from, bound.types_from)
    return f"{bound.name} ({bound.shape.origin}), members from {members}{version}{inner}"


def _describe(structure: Structure, bound: BoundShape) -> str:
    what = {
        Group: "a group of tables",
        Table: "a table of bins",
        ListHead: "a list",
        ProbeTable: "a table with open addressing",
        TreeRoot: "a tree",
    }[type(structure)]
    named = f"{bound.type.name} at " if bound.type else ""
    return f"{named}{structure.address:#x}: {what} ({bound.name})"


__all__ = ["Overrides", "Opened", "bind_fitting", "count_faults", "nearest_shape", "no_shape", "open_located"]
