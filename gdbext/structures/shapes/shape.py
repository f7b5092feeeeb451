"""Shape files as data: what a TOML file says, checked. The language is ``docs/shapes.md``.

Each part declares its keys once: how a key is read from the file and how its names are bound. A part has paths in
names when it is read (``Paths``, alternatives) and in offsets once it is bound (``BoundPath``).
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field, fields
from typing import Any, Callable, Collection, Generic, Mapping, NamedTuple, Optional, Sequence, TypeVar, Union

from gdbext.errors import ShapeError
from gdbext.structures.shapes.notation.expressions import Expression, parse_expression, shown
from gdbext.structures.shapes.notation.paths import BoundPath, Path, parse_path

Paths = tuple[Path, ...]  # alternatives, best first
P = TypeVar("P", covariant=True)  # Paths, or once bound BoundPath
Quantity = Union[int, Expression, P]  # a number that is known, computed over [let], or read
Amount = Quantity[BoundPath]

_NAME = re.compile(r"[a-z0-9][a-z0-9-]*")
_WORD = re.compile(r"[A-Za-z_]\w*")
KINDS = ("list", "bins", "group", "probe", "tree")
ENDS = ("null", "head", "count", "next-bin")
KEY_KINDS = ("pointer", "string", "value", "inline", "bytes")
# How paths that start at the object are bound.
OF_OBJECT = ("object_path", "pointer", "place", "amount", "key_size")


class Key(NamedTuple):
    """How one key of a part is read, bound and saved; see :func:`_key`."""

    name: str
    read: str
    how: "tuple[Any, ...]"
    default: Any
    bind: Optional[str]
    needed: bool
    always: bool


def _key(
    read: str,
    *how: Any,
    default: Any = None,
    bind: Optional[str] = None,
    needed: bool = False,
    always: bool = False,
) -> Any:
    """Declare a key of a part.

    :param read: the method of ``_Section`` that reads it, given ``how`` too.
    :param bind: the method of ``bind._Binder`` that replaces its names by offsets; None: it stays as it is.
    :param needed: the file must have it.
    :param always: it is saved even where it is the default.
    """
    declared = {
        "read": read,
        "how": how,
        "default": default,
        "bind": bind,
        "needed": needed,
        "always": always,
    }
    return field(default=default, metadata=declared)


_declared: "dict[Any, Sequence[Key]]" = {}


def keys_of(part: type) -> "Sequence[Key]":
    """Return the keys that a part declares."""
    if part not in _declared:
        _declared[part] = [Key(each.name, **each.metadata) for each in fields(part) if each.metadata]
    return _declared[part]


@dataclass(frozen=True)
class LinkPart:
    """``[link]``: as ``model.Links`` has it. ``mangled`` holds what to try, in order; ``alignment`` None is by type."""

    mask: int = _key("bits", default=0)
    xor: bool = _key("flag", default=False)
    relative: int = _key("number", default=0)
    end_bits: int = _key("bits", default=0)
    leaf_bits: int = _key("bits", default=0)
    sentinels: tuple[int, ...] = _key("numbers", default=())
    forbidden: tuple[int, ...] = _key("numbers", default=())
    alignment: Optional[int] = _key("bits", always=True)
    mangled: tuple[bool, ...] = _key("flags", default=(False,))


@dataclass(frozen=True)
class NodePart(Generic[P]):
    """``[node]``.

    :param type: name of the node's type; None: what the head points to. None once bound, as are the next two.
    :param find: member names to look for where ``next`` is not given; ``find_prev`` the same for ``prev``.
    :param content: where in the node the element stands, where that is the way round; ``element`` is 0 then.
    :param key_length: where in the node the bytes of its own key are counted.
    """

    type: Optional[str] = _key("text")
    find: tuple[str, ...] = _key("texts", default=())
    find_prev: tuple[str, ...] = _key("texts", default=())
    next: Optional[P] = _key("paths", bind="link")
    prev: Optional[P] = _key("paths", bind="link")
    prev_is: str = _key("choice", ("node", "link"), default="node")
    hash: Optional[P] = _key("paths", bind="scalar")
    key: Optional[P] = _key("paths", bind="node_key")
    key_is: str = _key("choice", KEY_KINDS, default="pointer", always=True)
    key_size: Quantity[P] = _key("quantity", default=0, bind="key_size")
    key_length: Optional[P] = _key("paths", bind="scalar")
    element: Quantity[P] = _key("quantity", default=0, bind="amount")
    content: Quantity[P] = _key("quantity", default=0, bind="content")
    element_type: Optional[str] = _key("text")


@dataclass(frozen=True)
class ListPart(Generic[P]):
    """``[list]``; once bound ``first`` None says that the object is itself the first node."""

    first: Optional[P] = _key("paths", bind="pointer", needed=True)
    end: str = _key("choice", ("null", "head"), default="null", always=True)
    stop: Optional[P] = _key("paths", bind="place")
    last: Optional[P] = _key("paths", bind="object_path")
    last_is: str = _key("choice", ("node", "link"), default="node")
    entries: Optional[Quantity[P]] = _key("quantity", bind="amount")

    @property
    def is_node(self) -> bool:
        """Whether the object is itself the first node."""
        best = self.first[:1] if isinstance(self.first, tuple) else ()
        return self.first is None or any(path.is_self for path in best)


@dataclass(frozen=True)
class LruPart(ListPart[P]):
    """``[lru]``: a second list through all nodes."""

    next: Optional[P] = _key("paths", bind="link", needed=True)
    prev: Optional[P] = _key("paths", bind="link")
    prev_is: str = _key("choice", ("node", "link"), default="node")


@dataclass(frozen=True)
class BinsPart(Generic[P]):
    """One ``[[bins]]``. ``count`` None is the length of the array's type."""

    array: Optional[P] = _key("paths", bind="place", needed=True)
    count: Optional[Quantity[P]] = _key("quantity", bind="amount")
    stride: Optional[Quantity[P]] = _key("quantity", bind="amount")
    head: Optional[P] = _key("paths", bind="offset")
    length: Optional[P] = _key("paths", bind="scalar")
    bin_of: Optional[Expression] = _key("expression", "hash", "bins")
    segment: Quantity[P] = _key("quantity", default=0, bind="amount")
    when: Optional[Expression] = _key("expression")
    stop: Optional[P] = _key("paths", bind="offset")


@dataclass(frozen=True)
class TablePart(Generic[P]):
    """``[table]``."""

    end: str = _key("choice", ENDS, default="null", always=True)
    list_first: Optional[P] = _key("paths", bind="object_path")
    entries: Optional[Quantity[P]] = _key("quantity", bind="amount")
    rehashing: Optional[Expression] = _key("expression")
    lock: Optional[P] = _key("paths", bind="object_path")
    bin_lock: Optional[P] = _key("paths", bind="offset")


@dataclass(frozen=True)
class GroupPart(Generic[P]):
    """``[group]``."""

    array: Optional[P] = _key("paths", bind="place", needed=True)
    count: Quantity[P] = _key("quantity", default=0, bind="amount", needed=True)
    indirect: bool = _key("flag", default=False)
    stride: Optional[Quantity[P]] = _key("quantity", bind="amount")
    of: str = _key("text", default="", needed=True)
    slab_of: Optional[Expression] = _key("expression", "hash")


@dataclass(frozen=True)
class SlotFieldPart(Generic[P]):
    """One ``[probe.fields.NAME]``. ``stride`` and ``size`` None are those of the array's type.

    :param array: an expression gives the first item's address.
    :param at: a path is within an item, not within the object.
    """

    array: Optional[Quantity[P]] = _key("quantity", needed=True)
    stride: Optional[Quantity[P]] = _key("quantity")
    at: Quantity[P] = _key("quantity", default=0)
    size: Optional[Quantity[P]] = _key("quantity")
    signed: bool = _key("flag", default=False)
    per: Quantity[P] = _key("quantity", default=1, always=True)


@dataclass(frozen=True)
class ProbePart(Generic[P]):
    """``[probe]``."""

    slots: Quantity[P] = _key("quantity", default=0, bind="amount", needed=True)
    occupied: Optional[Expression] = _key("expression", needed=True)
    home: Optional[Expression] = _key("expression")
    distance: Optional[Expression] = _key("expression")
    step: str = _key("choice", ("linear", "triangular"), default="linear", always=True)
    hash: Optional[str] = _key("choice")
    key: Optional[str] = _key("choice")
    entries: Optional[Quantity[P]] = _key("quantity", bind="amount")
    element_type: Optional[str] = _key("text")
    fields: Mapping[str, SlotFieldPart[P]] = field(default_factory=dict)


@dataclass(frozen=True)
class TreePart(Generic[P]):
    """``[tree]``."""

    root: Optional[P] = _key("paths", bind="pointer", needed=True)
    left: Optional[P] = _key("paths", bind="offset", needed=True)
    right: Optional[P] = _key("paths", bind="offset", needed=True)
    parent: Optional[P] = _key("paths", bind="offset")
    node_type: Optional[str] = _key("text")
    header: Optional[P] = _key("paths", bind="place")
    leftmost: Optional[P] = _key("paths", bind="object_path")
    rightmost: Optional[P] = _key("paths", bind="object_path")
    sentinel: Optional[Quantity[P]] = _key("quantity", bind="amount")
    mask: int = _key("bits", default=0)
    entries: Optional[Quantity[P]] = _key("quantity", bind="amount")
    element: Quantity[P] = _key("quantity", default=0, bind="amount")
    content: Quantity[P] = _key("quantity", default=0, bind="content")
    element_type: Optional[str] = _key("text")


@dataclass(frozen=True)
class StructPart:
    """One ``[[struct]]``."""

    name: str = _key("text", default="", needed=True)
    members: tuple[str, ...] = _key("texts", default=())
    since: str = _key("text", default="")


@dataclass(frozen=True)
class AnyShape(Generic[P]):
    """A shape, in names or in offsets. Of the parts those of its kind are there; ``origin`` is the file.

    :param valid: over ``lets`` and ``word``; None: every object is one.
    """

    name: str
    kind: str
    origin: str
    summary: str = ""
    source: str = ""
    types: tuple[str, ...] = ()
    needs: Paths = ()
    lets: Mapping[str, P] = field(default_factory=dict)
    structs: tuple[StructPart, ...] = ()
    link: LinkPart = LinkPart()
    node: NodePart[P] = NodePart()
    list: Optional[ListPart[P]] = None
    bins: tuple[BinsPart[P], ...] = ()
    table: TablePart[P] = TablePart()
    lru: Optional[LruPart[P]] = None
    group: Optional[GroupPart[P]] = None
    probe: Optional[ProbePart[P]] = None
    tree: Optional[TreePart[P]] = None
    text: str = field(default="", compare=False)
    valid: Optional[Expression] = None


Shape = AnyShape[Paths]
RawShape = AnyShape[BoundPath]


def parse_shape(text: str, origin: str) -> Shape:
    """Read a shape file.

    :param origin: the file's name, for errors and evidence.
    :raises ShapeError: naming file, key and what was expected.
    """
    import tomli  # in gdb it is at hand only from the first shape on

    try:
        top = _Section(tomli.loads(text), "", {"word"})
        shape = _read_shape(top, origin, text)
        top.finish()
    except (ValueError, RecursionError) as error:  # of tomli; also for numbers of thousands of digits
        raise ShapeError(f"{origin}: not TOML: {error}") from None
    except ShapeError as error:
        raise ShapeError(f"{origin}: {error.message}", error.hint) from None
    return shape


def _read_shape(top: "_Section", origin: str, text: str) -> Shape:
    name, kind = top.needed("name", "text"), top.needed("kind", "choice", KINDS, None)
    if not _NAME.fullmatch(name):
        raise ShapeError(f"name: {shown(name)} is not lower case, digits and dashes")
    lets = top.section("let").all_paths()
    top.names.update(lets)
    return Shape(
        name,
        kind,
        origin,
        lets=lets,
        **{part: _READERS[part](top) for part in SECTIONS[kind]},
        summary=top.text("summary"),
        source=top.text("source"),
        types=top.texts("types"),
        needs=tuple(parse_path(path) for path in top.texts("needs")),
        structs=tuple(_read(row, StructPart) for row in top.sections("struct")),
        text=text,
        valid=top.expression("valid"),
    )


def _read(part: "_Section", declared: type, **known: Any) -> Any:
    """Read the keys that a part declares, besides those that are known."""
    for each in keys_of(declared):
        if each.name not in known:
            known[each.name] = part.value(each)
    part.finish()
    return declared(**known)


def _read_bins(top: "_Section") -> "tuple[BinsPart[Paths], ...]":
    rows = top.sections("bins")
    if not rows:
        raise ShapeError("[[bins]] is missing")
    return tuple(_read(row, BinsPart) for row in rows)


def _read_table(top: "_Section") -> TablePart[Paths]:
    table: TablePart[Paths] = _read(top.section("table"), TablePart)
    if table.end == "next-bin" and not table.list_first:
        raise ShapeError("table.list_first is missing", 'end = "next-bin" needs the list\'s first node')
    return table


def _read_probe(top: "_Section") -> ProbePart[Paths]:
    part = top.section("probe", needed=True)
    rows = {name: part.section("fields").section(name) for name in part.section("fields").keys}
    columns = (*rows, "index", "slots")
    return _read(  # type: ignore[no-any-return]
        part,
        ProbePart,
        slots=part.needed("slots", "quantity"),
        occupied=part.needed("occupied", "expression", *columns),
        fields={name: _read(row, SlotFieldPart) for name, row in rows.items()},
        home=part.expression("home", *columns),
        distance=part.expression("distance", *columns),
        hash=part.choice("hash", tuple(rows)) or None,
        key=part.choice("key", tuple(rows)) or None,
    )


def _read_link(top: "_Section") -> LinkPart:
    link: LinkPart = _read(top.section("link"), LinkPart)
    if link.alignment and link.alignment & (link.alignment - 1):
        raise ShapeError(f"link.alignment: {link.alignment} is no power of two")
    return link


def _read_node(top: "_Section") -> NodePart[Paths]:
    node: NodePart[Paths] = _read(top.section("node"), NodePart)
    if node.key_length and node.key_is not in ("inline", "bytes"):
        raise ShapeError(f"node.key_length means nothing for key_is = {node.key_is!r}", "inline or bytes")
    if not node.next and not node.find:
        raise ShapeError("node.next is missing", "name the member that leads to the next node")
    return node


_READERS: Mapping[str, Callable[["_Section"], Any]] = {
    "list": lambda top: _read(top.section("list", needed=True), ListPart),
    "bins": _read_bins,
    "table": _read_table,
    "lru": lambda top: _read(top.section("lru"), LruPart) if top.section("lru").keys else None,
    "group": lambda top: _read(top.section("group", needed=True), GroupPart),
    "probe": _read_probe,
    "tree": lambda top: _read(top.section("tree", needed=True), TreePart),
    "node": _read_node,
    "link": _read_link,
}
SECTIONS: Mapping[str, Sequence[str]] = {
    "list": ("list", "node", "link"),
    "bins": ("bins", "node", "link", "table", "lru"),
    "group": ("group",),
    "probe": ("probe",),
    "tree": ("tree",),
}


_EMPTY = (None, "", ())


class _Section:
    """A table of the file, whose keys are taken one by one; what is left over is a mistake.

    :param names: what expressions may use, in all tables of the file.
    """

    def __init__(self, values: Mapping[str, Any], where: str, names: "set[str]") -> None:
        self.names = names
        self._values = dict(values)
        self._left = set(values)
        self._where = where
        self._inner: "dict[str, _Section]" = {}

    @property
    def keys(self) -> Sequence[str]:
        """The keys of the table."""
        return list(self._values)

    def finish(self) -> None:
        """Check that every key has been taken.

        :raises ShapeError: naming one that has not.
        """
        for key in sorted(self._left):
            raise ShapeError(f"{self._label(key)} means nothing here", "docs/shapes.md lists the keys")

    def value(self, key: Key) -> Any:
        """Return what a part's key has; its default when it is missing or empty."""
        if key.needed:
            return self.needed(key.name, key.read, *key.how)
        if key.name not in self._values:
            return key.default
        found = getattr(self, key.read)(key.name, *key.how)
        return key.default if found in _EMPTY else found

    def needed(self, key: str, read: str, *how: Any) -> Any:
        """Return what one of the methods below returns for a key.

        :raises ShapeError: when it is missing.
        """
        found = getattr(self, read)(key, *how) if key in self._values else None
        if found is None:
            raise ShapeError(f"{self._label(key)} is missing")
        return found

    def section(self, key: str, needed: bool = False) -> "_Section":
        """Return an inner table; an empty one when it is missing and not needed."""
        if key not in self._inner:
            value = self._take(key, dict, "a table", needed)
            self._inner[key] = _Section(value or {}, self._label(key), self.names)
        return self._inner[key]

    def sections(self, key: str) -> "Sequence[_Section]":
        """Return an array of tables."""
        rows = self._take(key, list, "an array of tables") or []
        if not all(isinstance(row, dict) for row in rows):
            raise ShapeError(f"{self._label(key)} must be written [[{key}]]")
        return [_Section(row, self._label(key), self.names) for row in rows]

    def text(self, key: str) -> str:
        """Return a text, "" when it is missing."""
        return self._take(key, str, "a text") or ""

    def texts(self, key: str) -> tuple[str, ...]:
        """Return a list of texts; one text alone is a list of one."""
        value = self._take(key, (str, list), "a text or a list of texts") or []
        rows = [value] if isinstance(value, str) else value
        if not all(isinstance(row, str) for row in rows):
            raise ShapeError(f"{self._label(key)} must hold texts only")
        return tuple(rows)

    def choice(self, key: str, choices: Sequence[str], other: Optional[str] = "") -> str:
        """Return one of some words, or ``other``; "" when it is missing."""
        word = self.text(key)
        if word not in (*choices, other):
            raise ShapeError(
                f"{self._label(key)}: {shown(word)} is not one of {', '.join(choices) or 'none'}"
            )
        return word

    def flag(self, key: str) -> bool:
        """Return true or false, false when it is missing."""
        return bool(self._take(key, bool, "true or false"))

    def flags(self, key: str) -> tuple[bool, ...]:
        """Return what to try in order; false alone when it is missing."""
        value = self._take(key, (bool, list), "true, false or a list of both")
        if value is None:
            return (False,)
        rows = value if isinstance(value, list) else [value]
        if not rows or not all(isinstance(row, bool) for row in rows):
            raise ShapeError(f"{self._label(key)} must hold true or false")
        return tuple(rows)

    def number(self, key: str) -> int:
        """Return a plain number, 0 when it is missing."""
        return self._in_range(key, self._take(key, int, "a number") or 0)

    def bits(self, key: str) -> int:
        """Return a number that is no negative one, 0 when it is missing."""
        value = self.number(key)
        if value < 0:
            raise ShapeError(f"{self._label(key)} cannot be negative")
        return value

    def numbers(self, key: str) -> tuple[int, ...]:
        """Return plain numbers."""
        rows = self._take(key, list, "a list of numbers") or []
        if not all(type(row) is int for row in rows):
            raise ShapeError(f"{self._label(key)} must hold numbers only")
        return tuple(self._in_range(key, row) for row in rows)

    def _in_range(self, key: str, value: int) -> int:
        if not -(1 << 63) <= value < 1 << 64:
            raise ShapeError(f"{self._label(key)}: {shown(value)} has more than 64 bits")
        return int(value)

    def paths(self, key: str) -> Paths:
        """Return alternative paths; none when it is missing."""
        return tuple(self._parsed(key, text, parse_path) for text in self.texts(key))

    def all_paths(self) -> Mapping[str, Paths]:
        """Return every key of this table as alternative paths."""
        for key in self.keys:
            if not _WORD.fullmatch(key) or key in ("hash", "bins", "index", "slots", "word"):
                raise ShapeError(
                    f"{self._label(key)} cannot be a name",
                    "letters and digits; hash, bins, index, slots and word are taken",
                )
        return {key: self.paths(key) for key in self.keys}

    def expression(self, key: str, *more: str) -> Optional[Expression]:
        """Return an expression, which may use ``more`` names too; None when it is missing."""
        text = self.text(key)
        return self._parsed(key, text, lambda text: self._expression(text, more)) if text else None

    def quantity(self, key: str) -> "Optional[Quantity[Paths]]":
        """Return a number, an expression, or paths; None when it is missing."""
        if type(self._values.get(key)) is int:
            return self.number(key)
        texts = self.texts(key)
        if len(texts) == 1 and (
            not self.names.isdisjoint(re.findall(r"[A-Za-z_]\w*", texts[0])) or not _is_path(texts[0])
        ):
            return self._parsed(key, texts[0], self._expression)  # type: ignore[no-any-return]
        return tuple(self._parsed(key, text, parse_path) for text in texts) or None

    def _expression(self, text: str, more: Collection[str] = ()) -> Expression:
        return parse_expression(text, {*self.names, *more})

    def _parsed(self, key: str, text: str, parse: Callable[[str], Any]) -> Any:
        try:
            return parse(text)
        except ShapeError as error:
            raise ShapeError(f"{self._label(key)}: {error.message}", error.hint) from None

    def _take(self, key: str, kinds: Any, what: str, needed: bool = False) -> Any:
        self._left.discard(key)
        value = self._values.get(key)
        if value is None and needed:
            raise ShapeError(f"{self._label(key)} is missing")
        wrong = value is not None and not isinstance(value, kinds)
        if wrong or (isinstance(value, bool) and kinds is int):
            raise ShapeError(f"{self._label(key)} must be {what}, not {shown(value)}")
        return value

    def _label(self, key: str) -> str:
        return f"{self._where}.{key}" if self._where else key


def _is_path(text: str) -> bool:
    try:
        parse_path(text)
    except ShapeError:
        return False
    return True
