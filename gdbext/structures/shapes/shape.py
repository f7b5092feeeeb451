"""Shape files as data: what a TOML file says, checked, still in names. The language is ``docs/shapes.md``."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any, Callable, Collection, Mapping, Optional, Sequence, Union

from gdbext.errors import ShapeError
from gdbext.structures.shapes.expressions import Expression, parse_expression, shown
from gdbext.structures.shapes.paths import Path, parse_path

Paths = tuple[Path, ...]  # alternatives, best first
Quantity = Union[int, Expression, Paths]

_NAME = re.compile(r"[a-z0-9][a-z0-9-]*")
_WORD = re.compile(r"[A-Za-z_]\w*")
KINDS = ("list", "bins", "group", "probe", "tree")
ENDS = ("null", "head", "count", "next-bin")
KEY_KINDS = ("pointer", "string", "value", "inline", "bytes")


@dataclass(frozen=True)
class LinkPart:
    """``[link]``: as ``model.Links`` has it. ``mangled`` holds what to try, in order; ``alignment`` None is by type."""

    mask: int = 0
    mangled: tuple[bool, ...] = (False,)
    xor: bool = False
    relative: int = 0
    end_bits: int = 0
    leaf_bits: int = 0
    sentinels: tuple[int, ...] = ()
    forbidden: tuple[int, ...] = ()
    alignment: Optional[int] = None


@dataclass(frozen=True)
class NodePart:
    """``[node]``.

    :param type: name of the node's type; None: what the head points to.
    :param find: member names to look for where ``next`` is not given; ``find_prev`` the same for ``prev``.
    :param content: where in the node the element stands, where that is the way round; ``element`` is 0 then.
    :param key_length: where in the node the bytes of its own key are counted.
    """

    type: Optional[str] = None
    next: Paths = ()
    prev: Paths = ()
    find: tuple[str, ...] = ()
    find_prev: tuple[str, ...] = ()
    prev_is: str = "node"
    hash: Paths = ()
    key: Paths = ()
    key_is: str = "pointer"
    key_size: Quantity = 0
    element: Quantity = 0
    element_type: Optional[str] = None
    content: Optional[Quantity] = None
    key_length: Paths = ()


@dataclass(frozen=True)
class ListPart:
    """``[list]`` and the head of ``[lru]``."""

    first: Paths = ()
    end: str = "null"
    stop: Paths = ()
    last: Paths = ()
    last_is: str = "node"
    entries: Optional[Quantity] = None

    @property
    def is_node(self) -> bool:
        """Whether the object is itself the first node."""
        return any(path.is_self for path in self.first[:1])


@dataclass(frozen=True)
class BinsPart:
    """One ``[[bins]]``. ``count`` None is the length of the array's type."""

    array: Paths
    count: Optional[Quantity] = None
    stride: Optional[Quantity] = None
    head: Paths = ()
    length: Paths = ()
    bin_of: Optional[Expression] = None
    segment: Quantity = 0
    when: Optional[Expression] = None
    stop: Paths = ()


@dataclass(frozen=True)
class TablePart:
    """``[table]``."""

    end: str = "null"
    list_first: Paths = ()
    entries: Optional[Quantity] = None
    rehashing: Optional[Expression] = None
    lock: Paths = ()
    bin_lock: Paths = ()


@dataclass(frozen=True)
class LruPart:
    """``[lru]``: a second list through all nodes."""

    head: ListPart
    next: Paths
    prev: Paths = ()
    prev_is: str = "node"


@dataclass(frozen=True)
class GroupPart:
    """``[group]``."""

    array: Paths
    count: Quantity
    of: str
    indirect: bool = False
    slab_of: Optional[Expression] = None
    stride: Optional[Quantity] = None


@dataclass(frozen=True)
class SlotFieldPart:
    """One ``[probe.fields.NAME]``. ``stride`` and ``size`` None are those of the array's type.

    :param array: an expression gives the first item's address.
    """

    array: Quantity
    stride: Optional[Quantity] = None
    at: Quantity = 0
    size: Optional[Quantity] = None
    signed: bool = False
    per: Quantity = 1


@dataclass(frozen=True)
class ProbePart:
    """``[probe]``."""

    slots: Quantity
    fields: Mapping[str, SlotFieldPart]
    occupied: Expression
    home: Optional[Expression] = None
    distance: Optional[Expression] = None
    step: str = "linear"
    hash: Optional[str] = None
    key: Optional[str] = None
    entries: Optional[Quantity] = None
    element_type: Optional[str] = None


@dataclass(frozen=True)
class TreePart:
    """``[tree]``."""

    root: Paths
    left: Paths
    right: Paths
    parent: Paths = ()
    node_type: Optional[str] = None
    header: Paths = ()
    sentinel: Optional[Quantity] = None
    mask: int = 0
    entries: Optional[Quantity] = None
    element: Quantity = 0
    element_type: Optional[str] = None
    leftmost: Paths = ()
    rightmost: Paths = ()
    content: Optional[Quantity] = None


@dataclass(frozen=True)
class StructPart:
    """One ``[[struct]]``."""

    name: str
    members: tuple[str, ...]
    since: str = ""


@dataclass(frozen=True)
class Shape:
    """One shape file. Of the parts those of its kind are there; ``origin`` is the file.

    :param valid: over ``lets`` and ``word``; None: every object is one.
    """

    name: str
    kind: str
    origin: str
    summary: str = ""
    source: str = ""
    types: tuple[str, ...] = ()
    needs: Paths = ()
    lets: Mapping[str, Paths] = field(default_factory=dict)
    structs: tuple[StructPart, ...] = ()
    link: LinkPart = LinkPart()
    node: NodePart = NodePart()
    list: Optional[ListPart] = None
    bins: tuple[BinsPart, ...] = ()
    table: TablePart = TablePart()
    lru: Optional[LruPart] = None
    group: Optional[GroupPart] = None
    probe: Optional[ProbePart] = None
    tree: Optional[TreePart] = None
    text: str = field(default="", compare=False)
    valid: Optional[Expression] = None


def parse_shape(text: str, origin: str) -> Shape:
    """Read a shape file.

    :param origin: the file's name, for errors and evidence.
    :raises ShapeError: naming file, key and what was expected.
    """
    import tomli  # in gdb it is at hand only from the first shape on

    try:
        top = _Section(tomli.loads(text), "")
        shape = _read_shape(top, origin, text)
        top.finish()
    except (ValueError, RecursionError) as error:  # of tomli; also for numbers of thousands of digits
        raise ShapeError(f"{origin}: not TOML: {error}") from None
    except ShapeError as error:
        raise ShapeError(f"{origin}: {error.message}", error.hint) from None
    return shape


def _read_shape(top: "_Section", origin: str, text: str) -> Shape:
    name, kind = top.text("name", needed=True), top.choice("kind", KINDS, None)
    if not _NAME.fullmatch(name):
        raise ShapeError(f"name: {shown(name)} is not lower case, digits and dashes")
    lets = top.section("let").all_paths()
    names = {*lets, "word"}
    parts = _PARTS[kind](top, names)
    return Shape(
        name,
        kind,
        origin,
        summary=top.text("summary"),
        source=top.text("source"),
        types=top.texts("types"),
        needs=tuple(parse_path(path) for path in top.texts("needs")),
        lets=lets,
        structs=tuple(_read_struct(row) for row in top.sections("struct")),
        text=text,
        valid=top.expression("valid", names),
        **parts,
    )


def _read_list(top: "_Section", names: Collection[str]) -> "dict[str, Any]":
    head = _read_head(top.section("list", needed=True), names, needed=True)
    return {"list": head, **_read_chain(top, names)}


def _read_bins(top: "_Section", names: Collection[str]) -> "dict[str, Any]":
    rows = top.sections("bins")
    if not rows:
        raise ShapeError("[[bins]] is missing")
    return {
        "bins": tuple(_read_array(row, names) for row in rows),
        "table": _read_table(top.section("table"), names),
        "lru": _read_lru(top, names),
        **_read_chain(top, names),
    }


def _read_group(top: "_Section", names: Collection[str]) -> "dict[str, Any]":
    part = top.section("group", needed=True)
    group = GroupPart(
        part.paths("array", needed=True),
        part.quantity("count", names, needed=True),
        part.text("of", needed=True),
        part.flag("indirect"),
        part.expression("slab_of", {*names, "hash"}),
        part.quantity("stride", names),
    )
    part.finish()
    return {"group": group}


def _read_probe(top: "_Section", names: Collection[str]) -> "dict[str, Any]":
    part = top.section("probe", needed=True)
    rows = {name: part.section("fields").section(name) for name in part.section("fields").keys}
    columns = {*names, *rows, "index", "slots"}
    occupied = part.expression("occupied", columns)
    if occupied is None:
        raise ShapeError("probe.occupied is missing")
    probe = ProbePart(
        part.quantity("slots", names, needed=True),
        {name: _read_slot_field(row, names) for name, row in rows.items()},
        occupied,
        part.expression("home", columns),
        part.expression("distance", columns),
        part.choice("step", ("linear", "triangular"), "linear"),
        part.choice("hash", tuple(rows), ""),
        part.choice("key", tuple(rows), ""),
        part.quantity("entries", names),
        part.text("element_type") or None,
    )
    part.finish()
    return {"probe": _unnamed(probe)}


def _unnamed(probe: ProbePart) -> ProbePart:
    values = {name: getattr(probe, name) or None for name in ("hash", "key")}
    return ProbePart(**{**probe.__dict__, **values})


def _read_tree(top: "_Section", names: Collection[str]) -> "dict[str, Any]":
    part = top.section("tree", needed=True)
    tree = TreePart(
        part.paths("root", needed=True),
        part.paths("left", needed=True),
        part.paths("right", needed=True),
        part.paths("parent"),
        part.text("node_type") or None,
        part.paths("header"),
        part.quantity("sentinel", names),
        part.bits("mask"),
        part.quantity("entries", names),
        part.quantity("element", names) or 0,
        part.text("element_type") or None,
        part.paths("leftmost"),
        part.paths("rightmost"),
        part.quantity("content", names),
    )
    part.finish()
    return {"tree": tree}


_PARTS: Mapping[str, Callable[["_Section", Collection[str]], "dict[str, Any]"]] = {
    "list": _read_list,
    "bins": _read_bins,
    "group": _read_group,
    "probe": _read_probe,
    "tree": _read_tree,
}


def _read_chain(top: "_Section", names: Collection[str]) -> "dict[str, Any]":
    return {"link": _read_link(top.section("link")), "node": _read_node(top.section("node"), names)}


def _read_link(part: "_Section") -> LinkPart:
    link = LinkPart(
        part.bits("mask"),
        part.flags("mangled"),
        part.flag("xor"),
        part.number("relative", 0),
        part.bits("end_bits"),
        part.bits("leaf_bits"),
        part.numbers("sentinels"),
        part.numbers("forbidden"),
        part.bits("alignment") or None,
    )
    part.finish()
    if link.alignment is not None and link.alignment & (link.alignment - 1):
        raise ShapeError(f"link.alignment: {link.alignment} is no power of two")
    return link


def _read_node(part: "_Section", names: Collection[str]) -> NodePart:
    node = NodePart(
        part.text("type") or None,
        part.paths("next"),
        part.paths("prev"),
        part.texts("find"),
        part.texts("find_prev"),
        part.choice("prev_is", ("node", "link"), "node"),
        part.paths("hash"),
        part.paths("key"),
        part.choice("key_is", KEY_KINDS, "pointer"),
        part.quantity("key_size", names) or 0,
        part.quantity("element", names) or 0,
        part.text("element_type") or None,
        part.quantity("content", names),
        part.paths("key_length"),
    )
    part.finish()
    if node.key_length and node.key_is not in ("inline", "bytes"):
        raise ShapeError(f"node.key_length means nothing for key_is = {node.key_is!r}", "inline or bytes")
    if not node.next and not node.find:
        raise ShapeError("node.next is missing", "name the member that leads to the next node")
    return node


def _read_head(part: "_Section", names: Collection[str], needed: bool, finish: bool = True) -> ListPart:
    head = ListPart(
        part.paths("first", needed=needed),
        part.choice("end", ("null", "head"), "null"),
        part.paths("stop"),
        part.paths("last"),
        part.choice("last_is", ("node", "link"), "node"),
        part.quantity("entries", names),
    )
    if finish:
        part.finish()
    return head


def _read_array(part: "_Section", names: Collection[str]) -> BinsPart:
    bins = BinsPart(
        part.paths("array", needed=True),
        part.quantity("count", names),
        part.quantity("stride", names),
        part.paths("head"),
        part.paths("length"),
        part.expression("bin_of", {*names, "hash", "bins"}),
        part.quantity("segment", names) or 0,
        part.expression("when", names),
        part.paths("stop"),
    )
    part.finish()
    return bins


def _read_table(part: "_Section", names: Collection[str]) -> TablePart:
    table = TablePart(
        part.choice("end", ENDS, "null"),
        part.paths("list_first"),
        part.quantity("entries", names),
        part.expression("rehashing", names),
        part.paths("lock"),
        part.paths("bin_lock"),
    )
    part.finish()
    if table.end == "next-bin" and not table.list_first:
        raise ShapeError("table.list_first is missing", 'end = "next-bin" needs the list\'s first node')
    return table


def _read_lru(top: "_Section", names: Collection[str]) -> Optional[LruPart]:
    part = top.section("lru")
    if not part.keys:
        return None
    head = _read_head(part, names, needed=True, finish=False)
    lru = LruPart(
        head,
        part.paths("next", needed=True),
        part.paths("prev"),
        part.choice("prev_is", ("node", "link"), "node"),
    )
    part.finish()
    return lru


def _read_slot_field(part: "_Section", names: Collection[str]) -> SlotFieldPart:
    row = SlotFieldPart(
        part.quantity("array", names, needed=True),
        part.quantity("stride", names),
        part.quantity("at", names) or 0,
        part.quantity("size", names),
        part.flag("signed"),
        part.quantity("per", names) or 1,
    )
    part.finish()
    return row


def _read_struct(part: "_Section") -> StructPart:
    struct = StructPart(part.text("name", needed=True), part.texts("members"), part.text("since"))
    part.finish()
    return struct


class _Section:
    """A table of the file, whose keys are taken one by one; what is left over is a mistake."""

    def __init__(self, values: Mapping[str, Any], where: str) -> None:
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

    def section(self, key: str, needed: bool = False) -> "_Section":
        """Return an inner table; an empty one when it is missing and not needed."""
        if key not in self._inner:
            value = self._take(key, dict, "a table", needed)
            self._inner[key] = _Section(value or {}, self._label(key))
        return self._inner[key]

    def sections(self, key: str) -> "Sequence[_Section]":
        """Return an array of tables."""
        rows = self._take(key, list, "an array of tables") or []
        if not all(isinstance(row, dict) for row in rows):
            raise ShapeError(f"{self._label(key)} must be written [[{key}]]")
        return [_Section(row, self._label(key)) for row in rows]

    def text(self, key: str, needed: bool = False) -> str:
        """Return a text, "" when it is missing."""
        return self._take(key, str, "a text", needed) or ""

    def texts(self, key: str) -> tuple[str, ...]:
        """Return a list of texts; one text alone is a list of one."""
        value = self._take(key, (str, list), "a text or a list of texts") or []
        rows = [value] if isinstance(value, str) else value
        if not all(isinstance(row, str) for row in rows):
            raise ShapeError(f"{self._label(key)} must hold texts only")
        return tuple(rows)

    def choice(self, key: str, choices: Sequence[str], default: Optional[str]) -> str:
        """Return one of some words; ``default`` None: it must be given."""
        word = self.text(key, needed=default is None) or default or ""
        if word not in (*choices, default):
            raise ShapeError(f"{self._label(key)}: {shown(word)} is not one of {', '.join(choices) or 'none'}")
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

    def number(self, key: str, default: int) -> int:
        """Return a plain number."""
        value = self._take(key, int, "a number")
        return default if value is None else self._in_range(key, value)

    def bits(self, key: str) -> int:
        """Return a number that is no negative one, 0 when it is missing."""
        value = self.number(key, 0)
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

    def paths(self, key: str, needed: bool = False) -> Paths:
        """Return alternative paths; none when it is missing."""
        if needed and key not in self._values:
            raise ShapeError(f"{self._label(key)} is missing")
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

    def expression(self, key: str, names: Collection[str]) -> Optional[Expression]:
        """Return an expression, None when it is missing."""
        text = self.text(key)
        return self._parsed(key, text, lambda text: parse_expression(text, names)) if text else None

    def quantity(self, key: str, names: Collection[str], needed: bool = False) -> Any:
        """Return a number, an expression over ``names``, or paths; None when it is missing."""
        value = self._values.get(key)
        if type(value) is int:
            return self.number(key, 0)
        texts = self.texts(key)
        if needed and not texts:
            raise ShapeError(f"{self._label(key)} is missing")
        if not texts:
            return None
        if len(texts) == 1 and (
            set(re.findall(r"[A-Za-z_]\w*", texts[0])) & set(names) or not _is_path(texts[0])
        ):
            return self._parsed(key, texts[0], lambda text: parse_expression(text, names))
        return tuple(self._parsed(key, text, parse_path) for text in texts)

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
