"""Bound shapes opened on objects: counts, masks and pointers read, so that walkers see numbers only.

What an object says of itself is not believed: a count must fit into the memory that is mapped behind its
array. What does not is one :class:`ShapeError` or :class:`FaultError` for the object; in a group only that
table is lost, and stands among the group's problems with no bins in its place.
"""

from __future__ import annotations

import bisect
from dataclasses import dataclass
from functools import partial
from typing import Callable, Iterable, Iterator, Mapping, Optional, Union

import numpy as np

from gdbext.debuginfo import Types
from gdbext.errors import FaultError, ShapeError
from gdbext.report import Problem
from gdbext.structures.shapes.bind import BoundShape
from gdbext.structures.shapes.notation.expressions import Expression
from gdbext.structures.shapes.notation.paths import BoundPath, GlobalRoot, Root, RootAddress
from gdbext.structures.shapes.shape import (
    Amount,
    BinsPart,
    ListPart,
    LruPart,
    RawShape,
    SlotFieldPart,
)
from gdbext.structures.walk.chainwalk import decode_head
from gdbext.structures.walk.model import (
    NUMBER_SIZES,
    U64,
    BinArray,
    BinOf,
    Group,
    Key,
    Links,
    ListHead,
    Node,
    ProbeTable,
    Scalar,
    SlotColumns,
    SlotField,
    SlotRule,
    Table,
    TreeRoot,
    Walkable,
)
from gdbext.target import Target

Structure = Union[Group, Walkable]
_MOST_TABLES = 1 << 16
_MOST_PROBLEMS = 20  # tables of a group that are told one by one
_LARGEST_STEP = 1 << 32  # no stride, no place in an element is beyond
_UNKNOWN_LINKS = Links(0)


def open_shape(
    bound: BoundShape, target: Target, address: int, types: Types, mangled: Optional[bool] = None
) -> Structure:
    """Read what an object says of itself, and make what walkers take.

    :param address: of the object; 0 for a shape that needs none (``anchored.py``).
    :param types: where global variables are looked up.
    :param mangled: which of a shape's alternatives; None is its first.
    :raises ShapeError: when its numbers cannot be: a count that does not fit into memory, an unknown global.
    :raises FaultError: when it cannot be read.
    """
    return _Opening(bound, target, address, types, mangled).open()


def check_valid(bound: BoundShape, target: Target, address: int, types: Types) -> bool:
    """Return whether a shape's ``valid`` holds for an object; errors as :func:`open_shape`."""
    if bound.raw.valid is None:
        return True
    return _Opening(bound, target, address, types).number("valid", bound.raw.valid) != 0


def open_links(raw: RawShape, mangled: Optional[bool] = None) -> Links:
    """Return how the nodes of a list or table lead on.

    :param mangled: which of the shape's alternatives; None is its first.
    """
    node, link = raw.node, raw.link
    assert node.next is not None
    chosen = link.mangled[0] if mangled is None or len(link.mangled) < 2 else mangled
    back = _offset(node.prev), node.prev_is == "link"
    return Links(node.next.offset, *back, **{**vars(link), "mangled": chosen})


def root_addresses(target: Target, types: Types) -> RootAddress:
    """Return what tells where the roots of paths are.

    What it returns raises :class:`ShapeError` for a global or module that the target does not have.
    """
    return partial(_root_address, target, types)


def _root_address(target: Target, types: Types, root: Root) -> int:
    if isinstance(root, GlobalRoot):
        found = types.find_global(root.name)
        if found is not None and found.address is not None:
            return found.address
        symbols = target.symbols.find_symbols(root.name)
        if symbols:
            return symbols[0].address
        raise ShapeError(f"no variable {root.name} in this program", "a stripped one needs @MODULE+OFFSET")
    for module in target.modules:
        if module.path.rpartition("/")[2] == root.module:
            return module.base + root.offset
    raise ShapeError(
        f"no file {root.module} is mapped", "it is named as in `info proc mappings`, without folders"
    )


class _Opening:
    """One object being opened."""

    def __init__(
        self, bound: BoundShape, target: Target, address: int, types: Types, mangled: Optional[bool] = None
    ) -> None:
        self.bound = bound
        self.raw = bound.raw
        self.target = target
        self.address = address
        self.types = types
        self.mangled = mangled
        self.roots = root_addresses(target, types)
        self._lets: "dict[str, int]" = {"word": target.abi.pointer_size}

    @property
    def what(self) -> str:
        """The object, for errors."""
        return self.bound.type.name if self.bound.type else self.bound.name

    def open(self) -> Structure:
        opened: Structure = getattr(self, f"_open_{self.raw.kind}")()
        return opened

    # -- the kinds

    def _open_list(self) -> ListHead:
        assert self.raw.list is not None
        return self._list_head("list", self.raw.list, self._node())

    def _list_head(self, key: str, head: "ListPart[BoundPath]", node: Node) -> ListHead:
        stop = None
        if head.end == "head":
            place = self.place(f"{key}.stop", head.stop) if head.stop else self.address
            stop = (place + node.links.relative) & self.target.abi.word_mask
        first = self.read(f"{key}.first", head.first) if head.first else None
        link = self.locate(f"{key}.first", head.first) if head.first and not self.address else self.address
        return ListHead(
            link,
            self.address if first is None else decode_head(first, node.links, self.target.abi),
            node,
            stop,
            self.read(f"{key}.last", head.last) if head.last else None,
            head.last_is == "link",
            self.find_number(f"{key}.entries", head.entries),
            self.bound.name,
        )

    def _open_bins(self) -> Table:
        table = self.raw.table
        arrays = [
            self._array(array)
            for array in self.raw.bins
            if array.when is None or self.number("when", array.when)
        ]
        node = self._node()
        return Table(
            self.address or (arrays[0].address if arrays else 0),
            node,
            arrays,
            table.end,
            self.read("table.list_first", table.list_first) if table.list_first else 0,
            self.find_number("table.entries", table.entries),
            bool(self.find_number("table.rehashing", table.rehashing)),
            self._list_head("lru", self.raw.lru, self._lru_node(node, self.raw.lru))
            if self.raw.lru
            else None,
            self.locate("table.lock", table.lock) if table.lock else None,
            _offset(table.bin_lock),
            self.bound.name,
        )

    def _array(self, part: "BinsPart[BoundPath]") -> BinArray:
        start = self.place("bins.array", part.array)
        count = self.number("bins.count", part.count)
        stride = self.number("bins.stride", part.stride)
        segment = self.number("bins.segment", part.segment)
        word = self.target.abi.pointer_size
        if count > 1 and not word <= stride < _LARGEST_STEP:
            raise self._wrong(f"{stride} bytes from one of its bins to the next cannot be")
        if segment:
            self._check_room("segments", start, -(-count // segment) if segment > 0 else -1, word)
            self._check_total("bins", count, stride)
        self._check_room("bins", start, count, 0 if segment else stride)
        rule = self._rule_of_hash(part.bin_of, count)
        head, stop = _offset(part.head) or 0, _offset(part.stop)
        return BinArray(start, count, stride, head, segment, self._scalar(part.length), rule, stop)

    def _open_group(self) -> Group:
        part = self.raw.group
        assert part is not None
        start = self.place("group.array", part.array)
        count = self.number("group.count", part.count)
        stride = self.number("group.stride", part.stride)
        self._check_room("tables", start, count, stride)
        if count > _MOST_TABLES:
            raise self._wrong(f"{count} tables are more than any group has")
        taken = _Taken()
        opened = [self._member(part.indirect, index, start + index * stride, taken) for index in range(count)]
        tables = [table for table, _ in opened]
        problems = [problem for _, problem in opened if problem is not None]
        if len(problems) > _MOST_PROBLEMS:
            rest = f"{len(problems) - _MOST_PROBLEMS} more tables of the group are left out"
            problems[_MOST_PROBLEMS:] = [Problem("table", self.address, rest)]
        return Group(
            self.address or start,
            tables,
            self._rule_of_hash(part.slab_of, count),
            self.bound.name,
            tuple(problems),
        )

    def _member(
        self, indirect: bool, index: int, at: int, taken: "_Taken"
    ) -> "tuple[Walkable, Optional[Problem]]":
        """Return a table of the group, or one without bins and the problem that it has."""
        address, member = at, self.bound.member
        assert member is not None
        try:
            if indirect:
                address = self.target.reader.word(at, "table's address")
                if not address:
                    raise ShapeError(f"its address at {at:#x} is null")
            table = open_shape(member, self.target, address, self.types, self.mangled)
            assert not isinstance(table, Group)
            other = taken.take(index, table)
            if other is not None:
                raise ShapeError(f"it has bins of table {other}")
        except (ShapeError, FaultError) as error:
            lost = Table(address, Node(_UNKNOWN_LINKS), (), shape=member.name)
            return lost, Problem("table", address, f"table {index} is left out: {error.message}")
        return table, None

    def _open_probe(self) -> ProbeTable:
        part = self.raw.probe
        assert part is not None
        slots = self.number("probe.slots", part.slots)
        self._check_count("slots", slots)
        fields = {
            name: self._slot_field(f"probe.fields.{name}", row, slots) for name, row in part.fields.items()
        }
        rules = [
            self._rule_of_slots(rule, slots, fields) for rule in (part.occupied, part.home, part.distance)
        ]
        assert rules[0] is not None
        return ProbeTable(
            self.address,
            slots,
            fields,
            rules[0],
            rules[1],
            part.step,
            rules[2],
            part.hash,
            part.key,
            self.find_number("probe.entries", part.entries),
            part.element_type,
            self.bound.name,
        )

    def _slot_field(self, key: str, part: "SlotFieldPart[BoundPath]", slots: int) -> SlotField:
        start = self.place(f"{key}.array", part.array)
        form = part.at.form if isinstance(part.at, BoundPath) else None
        stride, per = self.number(f"{key}.stride", part.stride), self.number(f"{key}.per", part.per)
        size = form.size if form and part.size is None else self.number(f"{key}.size", part.size)
        at = part.at.offset if isinstance(part.at, BoundPath) else self.number(f"{key}.at", part.at)
        if size not in NUMBER_SIZES or not 0 < per < _LARGEST_STEP or not 0 <= at < _LARGEST_STEP:
            raise self._wrong(f"{key} cannot be: {size} bytes at {at}, {per} slots an item")
        if not 0 < stride < _LARGEST_STEP:
            raise self._wrong(f"{stride} bytes from one of its slots to the next cannot be")
        self._check_room("slots" if per == 1 else "items", start, -(-slots // per), stride)
        return SlotField(start, stride, Scalar(at, size, part.signed, form.bits if form else None), per)

    def _open_tree(self) -> TreeRoot:
        part = self.raw.tree
        assert part is not None and part.root and part.left and part.right
        sentinel = (self.find_number("tree.sentinel", part.sentinel) or 0) & self.target.abi.word_mask
        root = self.read("tree.root", part.root) & ~part.mask & self.target.abi.word_mask
        return TreeRoot(
            self.address,
            0 if root == sentinel else root,
            part.left.offset,
            part.right.offset,
            _offset(part.parent),
            self.place("tree.header", part.header) if part.header else None,
            sentinel,
            part.mask,
            self.find_number("tree.entries", part.entries),
            self._step("tree.element", part.element) - self._step("tree.content", part.content),
            part.element_type,
            self.bound.name,
            self.read("tree.leftmost", part.leftmost) if part.leftmost else None,
            self.read("tree.rightmost", part.rightmost) if part.rightmost else None,
            self.bound.abi.pointer_size,
        )

    # -- their parts

    def _node(self) -> Node:
        part, key = self.raw.node, self._scalar(self.raw.node.key)
        found = None
        if key is not None:
            size = self._step("node.key_size", part.key_size)
            found = Key(key, part.key_is, size, self._scalar(part.key_length))
        element = self._step("node.element", part.element) - self._step("node.content", part.content)
        links = open_links(self.raw, self.mangled)
        return Node(links, self._scalar(part.hash), found, element, part.element_type)

    def _lru_node(self, node: Node, part: "LruPart[BoundPath]") -> Node:
        """Return a node of the second list: the same, with links of its own, which are never mangled."""
        assert part.next is not None
        back, is_link = _offset(part.prev), part.prev_is == "link"
        links = node.links._replace(next=part.next.offset, prev=back, prev_is_link=is_link, mangled=False)
        return node._replace(links=links)

    def _scalar(self, path: Optional[BoundPath]) -> Optional[Scalar]:
        return None if path is None else path.find_scalar(self.bound.abi.pointer_size)

    def _step(self, key: str, amount: Amount) -> int:
        """Return a size or a place within an element."""
        value = self.number(key, amount)
        if not 0 <= value < _LARGEST_STEP:
            raise self._wrong(f"{key} is {value}, which no element has")
        return value

    def _rule_of_hash(self, expression: Optional[Expression], bins: int) -> Optional[BinOf]:
        if expression is None or not bins:
            return None
        rule = _HashRule(expression, {**self._known(expression.names), "bins": bins})
        rule(np.zeros(1, np.uint64))  # a division by zero is found now
        return rule

    def _rule_of_slots(
        self, expression: Optional[Expression], slots: int, fields: Iterable[str]
    ) -> Optional[SlotRule]:
        if expression is None:
            return None
        rule = _SlotRule(expression, {**self._known(expression.names - set(fields)), "slots": slots})
        if slots:
            rule({name: np.zeros(1, np.uint64) for name in ("index", *fields)})
        return rule

    def _known(self, names: Iterable[str]) -> Mapping[str, int]:
        return {name: self._let(name) for name in names if name == "word" or name in self.raw.lets}

    # -- reading

    def read(self, key: str, path: BoundPath) -> int:
        """Return the number at the end of a path."""
        return self._reading(key, lambda: path.read(self.target.reader, self.address, self.roots))

    def locate(self, key: str, path: BoundPath) -> int:
        """Return the address of the end of a path."""
        return self._reading(key, lambda: path.locate(self.target.reader, self.address, self.roots))

    def place(self, key: str, place: Optional[Amount]) -> int:
        """Return where something stands."""
        return self.number(key, place) & self.target.abi.word_mask

    def number(self, key: str, amount: Optional[Amount]) -> int:
        """Return a number that the shape has."""
        assert amount is not None
        if isinstance(amount, int):
            return amount
        if isinstance(amount, Expression):
            return amount.number(self._known(amount.names))
        return self.read(key, amount)

    def find_number(self, key: str, amount: Optional[Amount]) -> Optional[int]:
        """Return a number, or None where there is none."""
        return None if amount is None else self.number(key, amount)

    def _let(self, name: str) -> int:
        if name not in self._lets:
            self._lets[name] = self.read(name, self.raw.lets[name])
        return self._lets[name]

    def _reading(self, key: str, read: Callable[[], int]) -> int:
        try:
            return read()
        except FaultError as fault:
            raise FaultError(fault.address, fault.size, f"{self.what} ({key})") from None

    # -- what cannot be

    def _check_count(self, things: str, count: int) -> None:
        if not 0 <= count < 1 << 63:
            raise self._wrong(f"it cannot have {count} {things}")

    def _check_room(self, things: str, start: int, count: int, stride: int) -> None:
        """Check that so many things are mapped.

        :param stride: 0 for a single thing, or where another check rules.
        """
        self._check_count(things, count)
        if not count:
            return
        if not 0 <= stride < _LARGEST_STEP:
            raise self._wrong(f"{stride} bytes from one of its {things} to the next cannot be")
        if not start:
            raise self._wrong(f"its array is null, yet it has {count} {things}")
        room = self._room(start, max(count * stride, 1))
        if room < max(count * stride, 1):
            fits = f"only {room} bytes are mapped there" if room else "nothing is mapped there"
            raise self._wrong(f"{count} {things} of {stride} bytes from {start:#x} on cannot be: {fits}")

    def _check_total(self, things: str, count: int, stride: int) -> None:
        """Check that so many things can be mapped anywhere."""
        mapped = sum(region.size for region in self.target.index.regions)
        if mapped and count * stride > mapped:
            raise self._wrong(
                f"{count} {things} of {stride} bytes cannot be: {mapped} bytes are mapped in all"
            )

    def _room(self, start: int, wanted: int) -> int:
        """Return how many bytes are mapped from ``start`` on, counted up to ``wanted``."""
        if not self.target.index.regions:  # its debugger does not tell
            return wanted
        at = start
        for region in self.target.index.within(start, start + wanted):
            if region.start > at:
                break
            at = region.end
        return min(at, start + wanted) - start

    def _wrong(self, message: str) -> ShapeError:
        return ShapeError(
            f"{self.what} at {self.address:#x}: {message}", "it is no such object, uninitialised, or damaged"
        )


def _offset(path: Optional[BoundPath]) -> Optional[int]:
    return None if path is None else path.offset


class _Taken:
    """The memory that the bins of a group's tables take: no two tables have the same, and so the sum is bounded."""

    def __init__(self) -> None:
        self._starts: "list[int]" = []
        self._ends: "list[tuple[int, int]]" = []  # the end, and the table

    def take(self, index: int, table: Walkable) -> Optional[int]:
        """Note a table's arrays; return another table that has some of their memory, or None."""
        stretches = list(_stretches(table))
        for start, end in stretches:
            at = bisect.bisect_left(self._starts, end) - 1
            if at >= 0 and self._ends[at][0] > start:
                return self._ends[at][1]
        for start, end in stretches:
            at = bisect.bisect_left(self._starts, start)
            self._starts.insert(at, start)
            self._ends.insert(at, (end, index))
        return None


def _stretches(table: Walkable) -> "Iterator[tuple[int, int]]":
    """Iterate over where a table's bins or slots are: start and end; those of a directory of segments alone."""
    if isinstance(table, Table):
        for bins in table.arrays:
            if bins.count and not bins.segment:
                yield bins.address, bins.address + max((bins.count - 1) * bins.stride, 0) + 1
    elif isinstance(table, ProbeTable) and table.slots:
        for column in list(table.fields.values())[:1]:
            yield column.address, column.address + (table.slots - 1) // column.per * column.stride + 1


@dataclass(frozen=True)
class _HashRule:
    """Stored hashes -> indices."""

    expression: Expression
    values: Mapping[str, int]

    def __call__(self, hashes: U64) -> U64:
        return _spread(self.expression({**self.values, "hash": hashes}), len(hashes))


@dataclass(frozen=True)
class _SlotRule:
    """Columns of slots -> one number a slot."""

    expression: Expression
    values: Mapping[str, int]

    def __call__(self, columns: SlotColumns) -> U64:
        used = {name: columns[name] for name in self.expression.names if name in columns}
        return _spread(self.expression({**self.values, **used}), len(columns["index"]))


def _spread(value: "Union[int, U64]", length: int) -> U64:
    spread: U64 = np.full(length, value, np.uint64) if isinstance(value, int) else value
    return spread


__all__ = ["Structure", "check_valid", "open_links", "open_shape", "root_addresses"]
