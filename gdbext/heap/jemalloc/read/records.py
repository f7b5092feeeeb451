"""Structures read whole: bytes under a layout, and many scattered structures at once."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Iterator, Optional, Sequence

import numpy as np

from gdbext.abi import Abi
from gdbext.errors import FaultError
from gdbext.heap.jemalloc.model import I64, U64, Mask
from gdbext.layout import Member, StructLayout
from gdbext.memory import Buffer, view
from gdbext.report import Problem
from gdbext.target import Target

GAP = 16 << 10  # bytes between two structures from which on they are read apart


@dataclass(frozen=True)
class Record:
    """One structure's bytes.

    :param base: where the structure begins within ``data``.
    """

    data: Buffer
    layout: StructLayout
    abi: Abi
    base: int = 0

    def uint(self, name: str) -> int:
        """Return an unsigned member; the layout must have it."""
        return self._read(self.layout.member(name), False)

    def sint(self, name: str) -> int:
        """Return a member as a signed integer."""
        return self._read(self.layout.member(name), True)

    def find(self, name: str) -> int | None:
        """Return an unsigned member, or None where the layout has none of that name."""
        return self.uint(name) if name in self.layout else None

    def words(self, name: str) -> U64:
        """Return an array of words."""
        member = self.layout.member(name)
        start = self.base + member.offset
        return np.frombuffer(self.data, f"{self.abi.order_mark}u8", member.count or 1, start).astype(
            np.uint64
        )

    def inner(self, name: str, layout: StructLayout) -> Record:
        """Return the structure that a member is."""
        return Record(self.data, layout, self.abi, self.base + self.layout.offset(name))

    def element(self, name: str, index: int, layout: StructLayout) -> Record:
        """Return an element of an array of structures; the array's declared length is not heeded."""
        offset = self.layout.offset(name) + index * layout.size
        return Record(self.data, layout, self.abi, self.base + offset)

    def _read(self, member: Member, signed: bool) -> int:
        start = self.base + member.offset
        return int.from_bytes(self.data[start : start + member.size], self.abi.byteorder, signed=signed)


def fault_problem(target: Target, fault: FaultError, kind: str, message: str, address: Optional[int] = None) -> Problem:
    """Return the problem that something cannot be read: absent from the target, else damage of a kind.

    :param address: that it is about; None: where the fault was.
    """
    lacks = target.lacks(fault.address, fault.size)
    place = fault.address if address is None else address
    return Problem("absent-memory" if lacks else kind, place, message, corruption=not lacks)


def find_word(target: Target, address: int) -> Optional[int]:
    """Return the word at an address, or None where it cannot be read."""
    try:
        return target.reader.word(address)
    except FaultError:
        return None


def read_record(target: Target, address: int, layout: StructLayout, extra: int = 0) -> Record:
    """Read a structure, and ``extra`` bytes behind it.

    :raises FaultError: when it cannot be read; says which structure.
    """
    size = layout.size + extra
    return Record(target.reader.bytes(address, size, f"jemalloc's {layout.name}"), layout, target.abi)


def gather(target: Target, addresses: U64, offsets: Sequence[int]) -> tuple[U64, Mask]:
    """Return the words at ``offsets`` from each address, one row an address, and which rows could be read.

    :param addresses: sorted.
    :param offsets: bytes, multiples of 8.
    """
    rows = np.zeros((len(addresses), len(offsets)), np.uint64)
    known = np.zeros(len(addresses), np.bool_)
    if not len(addresses):
        return rows, known
    span = max(offsets) + 8
    usable = np.flatnonzero(mapped(target, addresses, span))
    for part in _groups(addresses, usable):
        _gather_group(target, addresses, part, offsets, span, rows, known)
    return rows, known


def mapped(target: Target, addresses: U64, span: int) -> Mask:
    """Return which addresses begin ``span`` bytes within readable regions, and are aligned to words."""
    regions = [region for region in target.index.regions if region.readable]
    starts = np.array([region.start for region in regions], np.uint64)
    ends = np.array(_joined_ends([(region.start, region.end) for region in regions]), np.uint64)
    if not regions:
        return np.zeros(len(addresses), np.bool_)
    at = np.searchsorted(starts, addresses, side="right").astype(np.int64) - 1
    end = ends[np.maximum(at, 0)]
    inside = (at >= 0) & (addresses < end) & (end - np.minimum(addresses, end) >= np.uint64(span))
    aligned: Mask = inside & (addresses % np.uint64(8) == 0)
    return aligned


def _joined_ends(regions: Sequence[tuple[int, int]]) -> list[int]:
    """Return for each region where the run of adjacent regions that it is in ends."""
    ends: list[int] = []
    for position in range(len(regions) - 1, -1, -1):
        adjacent = ends and regions[position][1] == regions[position + 1][0]
        ends.append(ends[-1] if adjacent else regions[position][1])
    return ends[::-1]


def _groups(addresses: U64, usable: I64) -> Iterator[I64]:
    """Iterate over runs of close addresses, as indices."""
    if len(usable):
        breaks = np.flatnonzero(np.diff(addresses[usable]) > np.uint64(GAP)) + 1
        yield from np.split(usable, breaks)


def _gather_group(
    target: Target, addresses: U64, part: I64, offsets: Sequence[int], span: int, rows: U64, known: Mask
) -> None:
    low, high = int(addresses[part[0]]), int(addresses[part[-1]])
    try:
        data = view(target.memory, low, high + span - low)
    except FaultError:
        _gather_halves(target, addresses, part, offsets, span, rows, known)
        return
    words = np.frombuffer(data, f"{target.abi.order_mark}u8")
    first = ((addresses[part] - np.uint64(low)) // np.uint64(8)).astype(np.int64)
    for column, offset in enumerate(offsets):
        rows[part, column] = words[first + offset // 8]
    known[part] = True


def _gather_halves(
    target: Target, addresses: U64, part: I64, offsets: Sequence[int], span: int, rows: U64, known: Mask
) -> None:
    if len(part) > 1:
        for half in np.array_split(part, 2):
            _gather_group(target, addresses, half, offsets, span, rows, known)
