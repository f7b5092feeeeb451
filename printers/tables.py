"""Hash tables whose type a shape names exactly, groups of them, their bins and their entries.

The line is what the table says of itself; nothing is walked for it. Members that the line hides are shown by
``print/r``.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, Iterator, Optional

import gdb
from gdbext.printers import chains
from gdbext.printers.guarded import Child, GuardedPrinter
from gdbext.printers.tags import bare_name

from gdbext.bridge.expressions.values import find_address
from gdbext.bridge.functions import shaped
from gdbext.bridge.stops.changes import call_when_objfiles_change
from gdbext.errors import GdbextError
from gdbext.wording import count_text

if TYPE_CHECKING:
    from gdbext.structures.shapes.bind import BoundShape
    from gdbext.structures.walk.model import BinArray, Group, Table

KINDS = ("bins", "group", "probe")
_STRETCH = 1 << 16  # bytes of bins that are read at a time
_SECONDS = 1.0  # looking for bins that are not empty

_by_tag: "Optional[dict[str, BoundShape]]" = None


def find_printer(value: gdb.Value, tag: str) -> Optional[GuardedPrinter]:
    """Return the printer of a table, a bin or an entry; None where the type only has such a name."""
    if chains.find_bound(value.type, KINDS) is not None:
        return TablePrinter(value)
    bound = find_tables().get(tag)
    address = find_address(value)
    if bound is None or address is None:
        return None
    is_bin = tag == _tag_of(_bin_type(bound))
    return BinPrinter(value, address, bound) if is_bin else EntryPrinter(value, address, bound)


def find_tables() -> "dict[str, BoundShape]":
    """Return the tables of this program that shapes name exactly, by the tags of their bins and entries."""
    global _by_tag
    if _by_tag is None:
        call_when_objfiles_change(forget_tables)
        _by_tag = {}
        for bound in chains.bound_shapes(("bins",)):
            for kind in (_bin_type(bound), bound.node_type):
                if kind is not None and kind.is_record:
                    _by_tag.setdefault(_tag_of(kind), bound)
    return _by_tag


def forget_tables() -> None:
    """Look again: object files have come or gone."""
    global _by_tag
    _by_tag = None


class TablePrinter(GuardedPrinter):
    """A table, or a group of tables."""

    def line(self) -> str:
        """Return its shape, entries and bins."""
        structure = self._opened().structure
        if hasattr(structure, "tables"):
            return _group_line(structure)
        return _table_line(structure)

    def parts(self) -> Iterator[Child]:
        """Iterate over the tables of a group, the bins that are not empty; the members of what is neither."""
        try:
            structure = self._opened().structure
        except (GdbextError, gdb.error):
            return chains.members(self.value)
        if hasattr(structure, "tables"):
            return _tables(structure)
        return _bins(structure) if hasattr(structure, "arrays") else chains.members(self.value)

    def _opened(self) -> Any:
        return shaped.open_value(self.value, "it")


class BinPrinter(GuardedPrinter):
    """A bin of a table."""

    def __init__(self, value: gdb.Value, address: int, bound: "BoundShape") -> None:
        super().__init__(value)
        self._address, self._bound = address, bound

    def line(self) -> str:
        """Return how many entries its chain has."""
        return chains.describe(self._walk(), "entry", "entries")

    def parts(self) -> Iterator[Child]:
        """Iterate over its entries."""
        return chains.nodes(self._walk(), self._bound.node_type)

    def _walk(self) -> Any:
        from gdbext.structures.shapes.opening import open_links

        raw: Any = self._bound.raw
        start = (self._address + raw.bins[0].head.offset) & shaped.read_target().abi.word_mask
        return chains.walk(start, open_links(raw), raw.table.end == "head")


class EntryPrinter(GuardedPrinter):
    """An entry of a table."""

    def __init__(self, value: gdb.Value, address: int, bound: "BoundShape") -> None:
        super().__init__(value)
        self._address, self._node = address, bound.raw.node

    def line(self) -> str:
        """Return its stored hash and key."""
        found = []
        for name, path in (("hash", self._node.hash), ("key", self._node.key)):
            if path is not None and path.form is not None:
                size = path.form.size
                number = shaped.read_target().reader.uint(self._address + path.offset, size, name)
                found.append(f"{name} {number:#x}")
        return ", ".join(found) or "entry"

    def parts(self) -> Iterator[Child]:
        """Iterate over its members."""
        return chains.members(self.value)


def _group_line(group: "Group") -> str:
    known = [table for table in group.tables if table.shape]
    counts = [getattr(table, "entries", None) for table in known]
    numbers = [count for count in counts if count is not None]
    lost = len(group.tables) - len(known)
    entries = count_text(sum(numbers), "entry", "entries") if len(numbers) == len(counts) else "? entries"
    return f"{group.shape}: {entries} in {count_text(len(group.tables), 'table')}" + (
        f", {lost} of which cannot be read" if lost else ""
    )


def _table_line(table: Any) -> str:
    """Return the line of a ``Table`` or a ``ProbeTable``."""
    entries = "? entries" if table.entries is None else count_text(table.entries, "entry", "entries")
    if hasattr(table, "slots"):
        return f"{table.shape}: {entries} in {count_text(table.slots, 'slot')}"
    rehashing = ", rehashing" if table.rehashing else ""
    return f"{table.shape}: {entries} in {count_text(table.bins, 'bin')}{rehashing}"


def _tables(group: "Group") -> Iterator[Child]:
    for index, table in enumerate(group.tables):
        text = _table_line(table) if table.shape else "<cannot be read>"
        yield f"[{index}]", f"{table.address:#x} {text}"


def _bins(table: "Table") -> Iterator[Child]:
    base, deadline = 0, time.monotonic() + _SECONDS
    for array in table.arrays:
        for index, head, link in _used_bins(table, array, deadline):
            yield f"[{base + index}]", f"{_length(table, head)}first {link:#x}"
        base += array.count


def _length(table: "Table", head: int) -> str:
    """Return how long the chain from a head is, where chains have an end of their own."""
    if table.end not in ("null", "head"):
        return ""
    walked = chains.walk(head, table.node.links, table.end == "head")
    return f"{chains.describe(walked, 'entry', 'entries')}, "


def _used_bins(table: "Table", array: "BinArray", deadline: float) -> "Iterator[tuple[int, int, int]]":
    """Iterate over bins whose head is not empty: the number, where the head is, and what it holds."""
    target = shaped.read_target()
    order, word = target.abi.byteorder, target.abi.pointer_size
    if array.segment or array.stride <= 0:
        return
    each = max(_STRETCH // array.stride, 1)
    for low in range(0, array.count, each):
        if time.monotonic() >= deadline:
            raise GdbextError(f"the rest: looking for entries in {array.count} bins takes too long")
        count = min(each, array.count - low)
        size = (count - 1) * array.stride + array.head + word
        stretch = target.reader.bytes(array.address + low * array.stride, size, "bins")
        for number in range(count):
            at = number * array.stride + array.head
            link = int.from_bytes(stretch[at : at + word], order)
            head = array.address + low * array.stride + at
            if link and not (table.end == "head" and link == head):
                yield low + number, head, link


def _bin_type(bound: "BoundShape") -> Any:
    array: Any = bound.raw.bins[0].array
    kind = array.type
    return kind.target if kind is not None and kind.code.value in ("pointer", "array") else None


def _tag_of(kind: Any) -> str:
    return bare_name(kind.tag) if kind is not None else ""
