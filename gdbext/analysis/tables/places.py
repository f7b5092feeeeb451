"""Where in known hash tables and lists an address or a thread is: the join of shapes with the lock census."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Iterator, Optional, Sequence, Union

import numpy as np
import numpy.typing as npt

from gdbext.analysis.locks.report import Position
from gdbext.analysis.tables.search import Looked
from gdbext.errors import FaultError
from gdbext.memory.bulk import words_at
from gdbext.process import Thread
from gdbext.structures.walk.model import U64, BinsWalk, Group, ListHead, ListWalk, Table
from gdbext.target import Target

_STACK_WORDS = 512


@dataclass(frozen=True)
class WalkedTable:
    """A table, or a list, with what a walk through it found.

    :param name: as a user would write or say it ("slab 3 of rrset_cache").
    :param size: of an element, bytes; 0 where its type is not known.
    """

    name: str
    table: Union[Table, ListHead]
    walk: Union[BinsWalk, ListWalk]
    size: int = 0

    @cached_property
    def order(self) -> "npt.NDArray[np.int64]":
        """The indices that sort the nodes by address."""
        order: "npt.NDArray[np.int64]" = np.argsort(self.walk.nodes, kind="stable")
        return order

    def find_nodes(self, words: U64) -> "npt.NDArray[np.int64]":
        """Return for each word the index of the node at that address, or -1."""
        nodes = self.walk.nodes
        if not len(nodes):
            return np.full(len(words), -1, np.int64)
        at = np.minimum(np.searchsorted(nodes, words, sorter=self.order), len(nodes) - 1)
        found = self.order[at]
        result: "npt.NDArray[np.int64]" = np.where(nodes[found] == words, found, -1)
        return result

    def find_element(self, address: int) -> Optional[int]:
        """Return the index of the node whose element holds an address, or None."""
        start = min(max(address + self.table.node.element, 0), (1 << 64) - 1)
        at = int(np.searchsorted(self.walk.nodes, np.uint64(start), side="right", sorter=self.order)) - 1
        if at < 0 or start - int(self.walk.nodes[self.order[at]]) >= self.size:
            return None
        return int(self.order[at])


def walked_tables(looked: Looked, size: int) -> Iterator[WalkedTable]:
    """Iterate over the chained tables and lists of what was looked at; open addressing and trees have no chains.

    :param size: of an element, bytes, or 0.
    """
    grouped = isinstance(looked.opened.structure, Group)
    for each in looked.walked:
        name = f"slab {each.index} of {looked.name}" if grouped else looked.name
        if each.problem is None and isinstance(each.table, (Table, ListHead)):
            yield WalkedTable(name, each.table, each.walk, size)


class TablePlaces:
    """Finds addresses in some tables."""

    def __init__(self, tables: Sequence[WalkedTable]) -> None:
        self._tables = tables

    def find_lock_name(self, address: int) -> Optional[str]:
        """Return whose lock is at an address ("lock of bin 7 of cache"), or None."""
        names = (name for known in self._tables for name in (_own_lock(known, address), _element(known, address)))
        return next((name for name in names if name), None)

    def find_position(self, target: Target, thread: Thread) -> Optional[Position]:
        """Return where in a chain a thread is, or None when nothing says so.

        A node in a register tells most, then a bin, then a node on top of the stack. Of several that in the
        longest chain: a thread that lingers does so there.
        """
        registers = [(name, value) for name, value in thread.registers.items() if value]
        return (
            _longest(self._nodes(thread, registers))
            or _longest(self._bins(thread, registers))
            or _longest(self._nodes(thread, _stack(target, thread)))
        )

    def _nodes(self, thread: Thread, places: "Sequence[tuple[str, int]]") -> Iterator[Position]:
        words = np.array([word for _, word in places], np.uint64)
        for known in self._tables:
            found = known.find_nodes(words)
            for at in np.flatnonzero(found >= 0):
                yield _position(known, int(found[at]), thread, places[int(at)][0])

    def _bins(self, thread: Thread, places: "Sequence[tuple[str, int]]") -> Iterator[Position]:
        for known in self._tables:
            if isinstance(known.table, Table) and isinstance(known.walk, BinsWalk):
                for place, word in places:
                    number = _find_bin(known.table, word)
                    if number is not None and number < len(known.walk.lengths):
                        yield _at_bin(known, known.walk, number, thread, place)


def _longest(positions: Iterator[Position]) -> Optional[Position]:
    return max(positions, key=lambda position: position.length, default=None)


def _position(known: WalkedTable, at: int, thread: Thread, place: str) -> Position:
    address, walk = known.table.address, known.walk
    if isinstance(walk, ListWalk):
        return Position(thread.number, address, known.name, None, at + 1, len(walk.nodes), place)
    owner = int(walk.owners[at])
    first = int(np.searchsorted(walk.owners, owner, side="left"))  # nodes stand bin by bin
    length = int(walk.lengths[owner])
    return Position(thread.number, address, known.name, owner, at - first + 1, length, place)


def _at_bin(known: WalkedTable, walk: BinsWalk, number: int, thread: Thread, place: str) -> Position:
    length = int(walk.lengths[number])
    return Position(thread.number, known.table.address, known.name, number, None, length, place)


def _stack(target: Target, thread: Thread) -> "Sequence[tuple[str, int]]":
    word = target.abi.pointer_size
    start = (thread.stack_pointer or 0) // word * word
    region = target.index.find(start) if start else None
    if region is None:
        return []
    count = min(_STACK_WORDS, (region.end - start) // word)
    try:
        words = words_at(target.memory, target.abi, start, count)
    except FaultError:
        return []
    return [(f"stack+{at * word:#x}", int(value)) for at, value in enumerate(words) if value]


def _own_lock(known: WalkedTable, address: int) -> Optional[str]:
    if not isinstance(known.table, Table):
        return None
    if known.table.lock == address:
        return f"lock of {known.name}"
    offset = known.table.bin_lock
    number = None if offset is None else _find_bin(known.table, address - offset)
    return None if number is None else f"lock of bin {number} of {known.name}"


def _element(known: WalkedTable, address: int) -> Optional[str]:
    at = known.find_element(address)
    if at is None:
        return None
    if isinstance(known.walk, ListWalk):
        return f"in entry {at + 1} of {known.name}"
    return f"in an entry of bin {int(known.walk.owners[at])} of {known.name}"


def _find_bin(table: Table, address: int) -> Optional[int]:
    """Return the bin that starts at an address, or None."""
    first = 0
    for array in table.arrays:
        offset = address - array.address
        if not array.segment and 0 <= offset < array.count * array.stride and offset % array.stride == 0:
            return first + offset // array.stride
        first += array.count
    return None
