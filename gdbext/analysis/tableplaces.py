"""Where in known hash tables an address or a thread is: the join of shapes with the lock census."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Iterator, Optional, Sequence

import numpy as np

from gdbext.analysis.lockwait import Position
from gdbext.errors import FaultError
from gdbext.memory.bulk import words_at
from gdbext.structures.model import U64, BinsWalk, Table
from gdbext.target import Target, Thread

_STACK_WORDS = 512


@dataclass(frozen=True)
class WalkedTable:
    """A table with what a walk through it found.

    :param name: as a user would write or say it ("slab 3 of rrset_cache").
    """

    name: str
    table: Table
    walk: BinsWalk


class TablePlaces:
    """Finds addresses in some tables."""

    def __init__(self, tables: Sequence[WalkedTable]) -> None:
        self._tables = tables
        self._orders = [np.argsort(known.walk.nodes, kind="stable") for known in tables]

    def find_lock_name(self, address: int) -> Optional[str]:
        """Return whose lock is at an address ("lock of bin 7 of cache"), or None."""
        for known in self._tables:
            if known.table.lock == address:
                return f"lock of {known.name}"
            number = _find_bin(known.table, address)
            if number is not None:
                return f"lock of bin {number} of {known.name}"
        return None

    def find_position(self, target: Target, thread: Thread) -> Optional[Position]:
        """Return where in a chain a thread is, by its registers, else by the top of its stack; or None.

        Of several places that in the longest chain: a thread that lingers does so there.
        """
        for words in (_registers(thread), _stack(target, thread)):
            found = [position for place, word in words for position in self._positions(thread, word, place)]
            if found:
                return max(found, key=lambda position: position.length)
        return None

    def _positions(self, thread: Thread, word: int, place: str) -> Iterator[Position]:
        for known, order in zip(self._tables, self._orders):
            at = _find_node(known.walk.nodes, order, word)
            if at is not None:
                yield _position(known, at, thread, place)


def _position(known: WalkedTable, at: int, thread: Thread, place: str) -> Position:
    owner = int(known.walk.owners[at])
    first = int(np.searchsorted(known.walk.owners, owner, side="left"))  # nodes stand bin by bin
    length = int(known.walk.lengths[owner])
    return Position(thread.number, known.table.address, known.name, owner, at - first + 1, length, place)


def _find_node(nodes: U64, order: "np.ndarray[tuple[int], np.dtype[np.int64]]", word: int) -> Optional[int]:
    at = int(np.searchsorted(nodes, np.uint64(word), sorter=order))
    if at == len(nodes) or int(nodes[order[at]]) != word:
        return None
    return int(order[at])


def _registers(thread: Thread) -> "Sequence[tuple[str, int]]":
    return [(name, value) for name, value in thread.registers.items() if value]


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


def _find_bin(table: Table, address: int) -> Optional[int]:
    if table.bin_lock is None:
        return None
    first = 0
    for array in table.arrays:
        offset = address - array.address - table.bin_lock
        if not array.segment and 0 <= offset < array.count * array.stride and offset % array.stride == 0:
            return first + offset // array.stride
        first += array.count
    return None
