"""Open addressing: which slots hold an entry, where a lookup of each would start, and how far it has to go.

The result is that of chained tables: the chain of a slot are the entries whose lookup starts there. Beside it
stands the probe distance of each entry, which chains do not have.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import Iterator, Mapping, Optional, Tuple

import numpy as np
import numpy.typing as npt

from gdbext.errors import FaultError, ShapeError
from gdbext.memory import view
from gdbext.progress import Progress
from gdbext.report import Problem
from gdbext.structures.walk.checking import check_count, tell
from gdbext.structures.walk.model import NUMBER_SIZES, U8, U64, BinsWalk, End, Mask, ProbeTable, SlotField, SlotRule
from gdbext.target import Target
from gdbext.wording import count_text

I64 = npt.NDArray[np.int64]

MOST_SLOTS = 1 << 28
UNKNOWN = -1
BATCH = 1 << 18  # slots


def _none() -> U64:
    return np.empty(0, np.uint64)


@dataclass(frozen=True)
class ProbeWalk(BinsWalk):
    """What a walk through the slots of a table found.

    ``lengths`` has for each slot the entries whose lookup starts there, ``owners`` that slot for each entry. Where
    nothing tells where lookups start (``distances`` is None), each entry counts for the slot that it is in.

    :param slots: the slot that each entry is in, beside ``nodes``.
    :param distances: probes from each entry's first slot to its own, 0 for the first; ``UNKNOWN`` for an entry that
        no lookup finds there. None: nothing tells.
    """

    slots: U64 = field(default_factory=_none)
    distances: Optional[I64] = None


def walk_probes(target: Target, table: ProbeTable, progress: Progress) -> ProbeWalk:
    """Read every slot of an open-addressing table.

    Slots in memory that the core lacks have the reason ``ABSENT``, and the walk is not complete.

    :raises ShapeError: when the table cannot be as large as it says, or a field that is needed is no number.
    :raises FaultError: when a part of it cannot be read, though it should.
    """
    _check_count(table)
    walk = _Walk(target, table)
    try:
        for low in range(0, table.slots, BATCH):
            progress.at("slots", low, table.slots)
            walk.take(low, min(low + BATCH, table.slots))
    except KeyboardInterrupt:
        walk.interrupted = True
    return walk.result()


def read_field(target: Target, table: ProbeTable, walk: ProbeWalk, name: str) -> Tuple[U64, Mask]:
    """Return a field of every entry that a walk met, in its order, and which could be read.

    :param name: one of ``table.fields``.
    :raises FaultError: when memory cannot be read, though it should.
    :raises ShapeError: when the field is no number.
    """
    slots = walk.slots
    order = np.argsort(slots, kind="stable")
    values, known = np.zeros(len(slots), np.uint64), np.zeros(len(slots), np.bool_)
    windows = slots[order] // np.uint64(BATCH)
    bounds = np.flatnonzero(np.diff(windows, prepend=windows[:1] + np.uint64(1)))
    for start, stop in zip(bounds.tolist(), [*bounds[1:].tolist(), len(slots)]):
        rows = order[start:stop]
        low, high = int(slots[rows[0]]), int(slots[rows[-1]]) + 1
        column, there = _Columns(target, table, low, high).read(name)
        at = (slots[rows] - np.uint64(low)).astype(np.int64)
        values[rows], known[rows] = column[at], there[at]
    return values, known


def check_probes(target: Target, table: ProbeTable, walk: ProbeWalk) -> "list[Problem]":
    """Return what is wrong with a table that was walked.

    Kinds: ``table-count``, and ``misplaced-entry`` where no look-up finds an entry.
    """
    what = f"the entry in slot {{}} of {table.slots} is not where its hash says"
    return check_outcome(table, walk) + tell(
        "misplaced-entry",
        misplaced(walk).tolist(),
        lambda row: (int(walk.nodes[row]), what.format(int(walk.slots[row]))),
    )


def check_outcome(table: ProbeTable, walk: ProbeWalk) -> "list[Problem]":
    """Return what the walk of a table tells by itself: a count that does not agree (``table-count``), absent memory."""
    lacking = int(np.count_nonzero(walk.reasons == End.ABSENT))
    if lacking:
        return [Problem("absent-memory", table.address, f"the core does not hold {count_text(lacking, 'slot')}")]
    if not walk.complete:
        return []
    return check_count("table-count", "table", table.address, table.entries, len(walk.nodes))


def misplaced(walk: ProbeWalk) -> I64:
    """Return the rows of the entries that no lookup finds."""
    if walk.distances is None:
        return np.empty(0, np.int64)
    return np.flatnonzero(walk.distances == UNKNOWN)


class _Walk:
    """What has been found so far."""

    def __init__(self, target: Target, table: ProbeTable) -> None:
        self.target = target
        self.table = table
        self.interrupted = False
        self.reasons: U8 = np.full(table.slots, End.INTERRUPTED, np.uint8)
        self._probing = _Probing(table.step, table.slots)
        self._parts: "list[tuple[U64, U64, I64]]" = []

    def take(self, low: int, high: int) -> None:
        """Go through the slots from ``low`` to ``high``."""
        columns = _Columns(self.target, self.table, low, high)
        occupied = columns.evaluate(self.table.occupied) != 0
        rows = np.flatnonzero(occupied & columns.known)
        self.reasons[low:high] = np.where(columns.known, End.NULL, End.ABSENT)
        slots = columns["index"][rows]
        homes, distances = self._place(columns, rows, slots)
        self._parts.append((slots, homes, distances))

    def result(self) -> ProbeWalk:
        """Return everything, ordered by home and distance."""
        slots, homes, distances = (np.concatenate(column) for column in zip(*(self._parts or [_NOTHING])))
        order = np.lexsort((distances, homes))
        slots, homes, distances = slots[order], homes[order], distances[order]
        table = self.table
        told = table.home is not None or table.distance is not None
        start, stride = _items(table)
        return ProbeWalk(
            np.bincount(homes.astype(np.int64), minlength=table.slots).astype(np.uint64),
            self.reasons,
            np.uint64(start) + slots * np.uint64(stride),
            homes,
            complete=not self.interrupted and not bool((self.reasons == End.ABSENT).any()),
            slots=slots,
            distances=distances if told else None,
        )

    def _place(self, columns: "_Columns", rows: I64, slots: U64) -> "tuple[U64, I64]":
        """Return the home of each occupied slot and the distance from it."""
        table, distances = self.table, None
        if table.distance is not None:
            distances = _capped(columns.evaluate(table.distance)[rows], table.slots)
        if table.home is not None:
            homes = columns.evaluate(table.home)[rows]
            if distances is None:
                distances = self._probing.distances(slots, homes)
        elif distances is not None:
            homes = self._probing.homes(slots, distances)
        else:
            homes, distances = slots, np.zeros(len(slots), np.int64)
        lost = (homes >= np.uint64(table.slots)) | ~columns.known[rows]
        return np.where(lost, slots, homes), np.where(lost, UNKNOWN, distances)


_NOTHING: "tuple[U64, U64, I64]" = (_none(), _none(), np.empty(0, np.int64))


class _Columns(Mapping[str, U64]):
    """The fields of a stretch of slots, each read when an expression first asks for it.

    :ivar known: which slots could be read in every field so far.
    """

    def __init__(self, target: Target, table: ProbeTable, low: int, high: int) -> None:
        self._target = target
        self._table = table
        self._low, self._high = low, high
        self._read: "dict[str, U64]" = {"index": np.arange(low, high, dtype=np.uint64)}
        self.known: Mask = np.ones(high - low, np.bool_)

    def __getitem__(self, name: str) -> U64:
        if name not in self._read:
            self._read[name], known = self.read(name)
            self.known &= known
        return self._read[name]

    def __iter__(self) -> Iterator[str]:
        return iter([*self._table.fields, "index"])

    def __len__(self) -> int:
        return len(self._table.fields) + 1

    def evaluate(self, rule: SlotRule) -> U64:
        """Return a rule's number for each slot."""
        return np.broadcast_to(np.asarray(rule(self), dtype=np.uint64), self.known.shape)

    def read(self, name: str) -> "tuple[U64, Mask]":
        """Return a field of each slot, and which could be read.

        :raises FaultError: when memory cannot be read that the core does not lack.
        """
        slot_field = self._table.fields[name]
        _check_field(name, slot_field)
        first = self._low // slot_field.per
        values, known = _read_items(
            self._target, slot_field, name, first, (self._high - 1) // slot_field.per + 1
        )
        if slot_field.per == 1:
            return values, known
        rows = (np.arange(self._low, self._high) // slot_field.per) - first
        return values[rows], known[rows]


def _read_items(
    target: Target, slot_field: SlotField, name: str, first: int, end: int
) -> "tuple[U64, Mask]":
    try:
        return _decode(target, slot_field, name, first, end), np.ones(end - first, np.bool_)
    except FaultError:
        start, stop = (slot_field.address + at * slot_field.stride for at in (first, end))
        if not target.lacks(start, stop - start):
            raise
    return _read_parts(target, slot_field, name, first, end)


def _read_parts(
    target: Target, slot_field: SlotField, name: str, first: int, end: int
) -> "tuple[U64, Mask]":
    """Read the items that lie wholly in memory that is there."""
    values, known = np.zeros(end - first, np.uint64), np.zeros(end - first, np.bool_)
    base, stride = slot_field.address + slot_field.at.offset, slot_field.stride
    for region in target.index.within(base + first * stride, base + end * stride):
        low = max(-(-(region.start - base) // stride), first)
        high = min((region.end - slot_field.at.size - base) // stride + 1, end)
        if region.source != "absent" and low < high:
            values[low - first : high - first] = _decode(target, slot_field, name, low, high)
            known[low - first : high - first] = True
    return values, known


def _decode(target: Target, slot_field: SlotField, name: str, first: int, end: int) -> U64:
    """Return a number of each item, as expressions have it: sign-extended to 64 bits."""
    at, stride = slot_field.at, slot_field.stride
    start = slot_field.address + first * stride + at.offset
    size = (end - first - 1) * stride + at.size
    try:
        buffer = view(target.memory, start, size)
    except FaultError as fault:
        reading = f"a table's {name}, items {first} to {end - 1}"
        raise FaultError(fault.address, fault.size, reading) from None
    dtype = f"{target.abi.order_mark}{'i' if at.signed else 'u'}{at.size}"
    items: npt.NDArray[np.generic] = np.ndarray((end - first,), dtype, memoryview(buffer), 0, (stride,))
    values: U64 = items.astype(np.int64).view(np.uint64) if at.signed else items.astype(np.uint64)
    if at.bits is not None:
        shift, width = at.bits
        values = (values >> np.uint64(shift)) & np.uint64((1 << width) - 1)
    return values


class _Probing:
    """The order in which a lookup visits the slots."""

    def __init__(self, step: str, slots: int) -> None:
        self._triangular = step == "triangular"
        self._slots = slots

    def distances(self, slots: U64, homes: U64) -> I64:
        """Return how many steps lead from each home to its slot; ``UNKNOWN`` where none do."""
        count = np.uint64(self._slots)
        apart: I64 = ((slots + count - homes % count) % count).astype(np.int64)
        return self._inverse[apart] if self._triangular else apart

    def homes(self, slots: U64, distances: I64) -> U64:
        """Return the slot at which a lookup starts that meets each slot after so many steps."""
        count = np.uint64(self._slots)
        known = np.maximum(distances, 0).astype(np.uint64)
        apart = (_triangle(known) if self._triangular else known) % count
        homes: U64 = (slots + count - apart) % count
        return homes

    @cached_property
    def _inverse(self) -> I64:
        """The fewest steps that lead so many slots on.

        Triangular numbers repeat modulo n after 2n; modulo a power of two the first n of them are all different.
        """
        most = self._slots if self._slots & (self._slots - 1) == 0 else 2 * self._slots
        inverse = np.full(self._slots, UNKNOWN, np.int64)
        for high in range(most, 0, -BATCH):
            steps = np.arange(max(high - BATCH, 0), high, dtype=np.uint64)[::-1]
            inverse[(_triangle(steps) % np.uint64(self._slots)).astype(np.int64)] = steps.astype(np.int64)
        return inverse


def _triangle(steps: U64) -> U64:
    numbers: U64 = steps * (steps + np.uint64(1)) // np.uint64(2)
    return numbers


def _capped(distances: U64, slots: int) -> I64:
    """Distances as they are stored; ``UNKNOWN`` for one that no table of so many slots has."""
    capped: I64 = np.where(distances < np.uint64(slots), distances.view(np.int64), UNKNOWN)
    return capped


def _items(table: ProbeTable) -> "tuple[int, int]":
    """Return where the items are that stand for the entries, and their stride: the keys, or whatever has one a slot."""
    alone = [row for row in table.fields.values() if row.per == 1]
    chosen = [table.fields[table.key]] if table.key else alone
    return (chosen[0].address, chosen[0].stride) if chosen else (table.address, 0)


def _check_count(table: ProbeTable) -> None:
    if table.slots > MOST_SLOTS:
        raise ShapeError(
            f"a table of {table.slots} slots is more than can be: at most {MOST_SLOTS} are walked",
            "see whether the object is initialised, and of this type",
        )


def _check_field(name: str, slot_field: SlotField) -> None:
    size, stride = slot_field.at.size, slot_field.stride
    if size not in NUMBER_SIZES or stride <= 0:
        raise ShapeError(f"the table's {name} cannot be read as a number: {size} bytes, every {stride}")
