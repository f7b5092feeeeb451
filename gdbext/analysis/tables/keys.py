"""The stored hashes and the keys of a table's entries, gathered from memory.

Hashes are gathered for all entries at once; keys only for those that are asked for, since a string may cost a
read each.
"""

from __future__ import annotations

from typing import Dict, List, Optional, Tuple, Union

import numpy as np

from gdbext.analysis.tables.figures import Values
from gdbext.structures.walk.gather import gather
from gdbext.structures.walk.model import U64, BinsWalk, Key, ProbeTable, Rows, Scalar, Table
from gdbext.structures.walk.probes import ProbeWalk, read_field
from gdbext.target import Target

MOST_STRINGS = 100_000  # a read each; more would keep the user waiting
LONGEST_KEY = 1 << 12  # bytes; what claims more is damaged, or no key


class Entries:
    """The entries that a walk met, in its order."""

    def __init__(self, target: Target, table: Union[Table, ProbeTable], walk: BinsWalk) -> None:
        self._target = target
        self._table = table
        self._walk = walk
        self._columns: Dict[str, Values] = {}

    @property
    def key(self) -> Optional[Key]:
        """How keys are told apart, or None where the shape does not say."""
        if isinstance(self._table, ProbeTable):
            return None if self._table.key is None else self._slot_key(self._table.fields[self._table.key].at)
        return self._table.node.key

    def _slot_key(self, at: Scalar) -> Key:
        # No shape says whether the word in a slot is a pointer; a number of another size is none.
        return Key(at, "pointer" if at.size == self._target.abi.pointer_size and not at.bits else "value")

    def find_hashes(self) -> Optional[Values]:
        """Return the stored hash of every entry, or None where entries store none."""
        if isinstance(self._table, ProbeTable):
            return self._find_column(self._table, self._table.hash)
        scalar = self._table.node.hash
        return None if scalar is None else Values(*gather(self._target, self._walk.nodes, scalar))

    def find_keys(self, rows: Rows) -> Optional[Values]:
        """Return a number for the key of each of these entries: equal numbers are equal keys.

        :param rows: places in the walk's ``nodes``. Of strings only the first :data:`MOST_STRINGS` are read.
        :return: None where the shape does not say what the key is.
        """
        if isinstance(self._table, ProbeTable):
            column = self._find_column(self._table, self._table.key)
            return column and Values(column.values[rows], column.known[rows])
        key = self._table.node.key
        return None if key is None else self._keys(key, self._walk.nodes[rows])

    def _find_column(self, table: ProbeTable, name: Optional[str]) -> Optional[Values]:
        if name is None or not isinstance(self._walk, ProbeWalk):
            return None
        if name not in self._columns:
            self._columns[name] = Values(*read_field(self._target, table, self._walk, name))
        return self._columns[name]

    def _keys(self, key: Key, nodes: U64) -> Optional[Values]:
        if key.length is not None:
            return self._of_own_length(key, key.length, nodes)
        if key.size > LONGEST_KEY:
            return None
        if key.compare == "inline":
            return self._contents(nodes, key.at.offset, key.size) if key.size else None
        plain = Values(*gather(self._target, nodes, key.at))
        if key.compare == "string":
            return self._strings(plain)
        if key.compare == "bytes":
            found = self._contents(plain.values, 0, key.size) if key.size else None
            return found and Values(found.values, found.known & plain.known)
        return plain

    def _of_own_length(self, key: Key, length: Scalar, nodes: U64) -> Values:
        """Return a number for each key, where every entry counts the bytes of its own."""
        lengths, known = gather(self._target, nodes, length)
        places = nodes + np.uint64(key.at.offset)
        if key.compare == "bytes":
            places, read = gather(self._target, nodes, key.at)
            known = known & read
        known, numbers = known & (lengths <= LONGEST_KEY), np.zeros(len(nodes), np.uint64)
        for size in np.unique(lengths[known]).tolist():
            rows = np.flatnonzero(known & (lengths == size))
            numbers[rows] = rows[0]  # keys without bytes are equal
            if size:
                found = self._contents(places[rows], 0, size)
                numbers[rows] = rows[found.values.astype(np.intp)]  # a number that no other length gives
                known[rows] = found.known
        return Values(numbers, known)

    def _contents(self, addresses: U64, offset: int, size: int) -> Values:
        """Return a number for the bytes at each address: equal numbers are equal bytes."""
        known = np.ones(len(addresses), np.bool_)
        columns: List[U64] = []
        for at in range(0, size, 8):
            for scalar in _pieces(offset + at, min(8, size - at)):
                values, read = gather(self._target, addresses, scalar)
                known &= read
                columns.append(np.where(read, values, 0))
        _, numbers = np.unique(np.stack(columns, axis=1), axis=0, return_inverse=True)
        return Values(numbers.reshape(-1).astype(np.uint64), known)

    def _strings(self, pointers: Values) -> Values:
        numbers: Dict[str, int] = {}
        seen: Dict[int, Optional[int]] = {}
        values = np.zeros(len(pointers.values), np.uint64)
        known = np.zeros(len(values), np.bool_)
        for row in np.flatnonzero(pointers.known)[:MOST_STRINGS].tolist():
            address = int(pointers.values[row])
            if address not in seen:
                text = self._target.reader.find_string(address)
                seen[address] = None if text is None else numbers.setdefault(text, len(numbers))
            number = seen[address]
            if number is not None:
                values[row], known[row] = number, True
        return Values(values, known)


def _pieces(offset: int, size: int) -> Tuple[Scalar, ...]:
    """Return scalars of 8, 4, 2 and 1 bytes that cover ``size`` (8 at most)."""
    pieces = []
    for unit in (8, 4, 2, 1):
        while size >= unit:
            pieces.append(Scalar(offset, unit))
            offset, size = offset + unit, size - unit
    return tuple(pieces)
