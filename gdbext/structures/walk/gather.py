"""Numbers from many places of a target's memory, reading no more of it than these places need.

A core that is mapped lends whole regions without a copy. Of a process, or of anything that must be copied,
windows around the places are read and kept; once they fill :data:`MOST_KEPT` bytes, what lies outside them
is read number by number.
"""

from __future__ import annotations

from typing import Callable, Dict, List, Optional, Sequence, Set, Tuple

import numpy as np

from gdbext.errors import FaultError
from gdbext.kernels import Span, gather_scalars
from gdbext.memory import Buffer, Region, RegionIndex, view
from gdbext.structures.walk.model import U8, U64, Mask, Rows, Scalar, unsigned
from gdbext.target import Target

MOST_KEPT = 1 << 28  # bytes of copied windows
_UNIT = 1 << 16  # what is copied at a time at first; a cached remote memory reads such blocks too
_MOST_LENT = 4096  # regions at once
_MOST_UNITS = 16  # at a time, when many have been asked for
_MOST_REFUSED = 10_000  # reads; where mappings are not known, garbage must not cost dozens of them each
_PATIENCE = 16  # loads before twice as much is copied at a time

_UNSEEN, _LENT, _COPIED, _ABSENT, _UNMAPPED = range(5)


def gather(
    target: Target, addresses: U64, scalar: Scalar, windows: Optional["Windows"] = None
) -> Tuple[U64, Mask]:
    """Return a number of each structure, and whether it could be read.

    :param addresses: of the structures, in any order.
    :param windows: what earlier gathers of the same stop have read.
    :return: signed numbers in two's complement of 64 bits; 0 where it could not be read.
    """
    windows = windows or Windows(target)
    places = addresses + unsigned(scalar.offset)
    values, known = windows.read(places, scalar.size, scalar.signed and scalar.bits is None)
    return (_cut_bits(values, scalar) if scalar.bits else values), known


def _cut_bits(values: U64, scalar: Scalar) -> U64:
    shift, width = scalar.bits or (0, 64)
    cut: U64 = (values >> np.uint64(shift)) & np.uint64((1 << width) - 1)
    if scalar.signed:
        sign = np.uint64(1 << (width - 1))
        cut = (cut ^ sign) - sign
    return cut


class Windows:
    """The parts of a target's memory that were asked for, as buffers; for one stop of the target.

    :param target: where its debugger lists no mappings, any address is tried.
    """

    def __init__(self, target: Target) -> None:
        self.target = target
        regions: Sequence[Region] = target.memory.regions() or [Region(0, 1 << 64)]
        self._index = RegionIndex(regions)
        self._firsts = np.array([region.start for region in regions], np.uint64)
        self._lasts = np.array([region.end - 1 for region in regions], np.uint64)
        self._kinds = np.zeros(len(regions), np.uint8)
        self._kinds[[region.source == "absent" for region in regions]] = _ABSENT
        # No access: the program cannot follow a link there, whatever a debugger reads.
        self._kinds[[not set("r?") & set(region.permissions) for region in regions]] = _UNMAPPED
        self._buffers: Dict[int, Buffer] = {}
        self._spans: Optional[List[Span]] = None
        self._tried: Set[int] = set()
        self._loads = 0
        self._kept = 0
        self._refused = 0

    @property
    def spans(self) -> Sequence[Span]:
        """What has been loaded, sorted by address."""
        if self._spans is None:
            self._spans = sorted(self._buffers.items(), key=lambda span: span[0])
        return self._spans

    @property
    def full(self) -> bool:
        """Whether nothing more is copied: read the rest number by number."""
        return self._kept >= MOST_KEPT or self._refused >= _MOST_REFUSED

    def lend(self, place: int) -> Sequence[Span]:
        """Return all memory that can be had without a copy; nothing where that at ``place`` cannot."""
        at = int(self._regions_of(np.array([place], np.uint64))[0])
        if at >= 0 and self._kinds[at] == _UNSEEN:
            self._open(at)
        return self.spans if at >= 0 and self._kinds[at] == _LENT else ()

    def load(self, places: U64, size: int) -> None:
        """Make the memory around ``size`` bytes at each place part of the spans, as far as it can be had."""
        ends = np.concatenate((places, places + np.uint64(size - 1)))
        regions = self._regions_of(ends)
        met = np.bincount(regions[regions >= 0], minlength=len(self._kinds))
        for at in np.flatnonzero(met).tolist():
            if self._kinds[at] == _UNSEEN:
                self._open(at)
        copied = ends[(regions >= 0) & (self._kinds[regions] == _COPIED)]
        if len(copied) and not self.full:
            self._copy(np.unique(copied // np.uint64(_UNIT)).tolist())

    def read(self, places: U64, size: int, signed: bool = False) -> Tuple[U64, Mask]:
        """Return the number of ``size`` bytes at each place, and whether it could be read."""
        self.load(places, size)
        order = self.target.abi.byteorder
        values, known = gather_scalars(self.spans, places, size, order, signed)
        if self.full and not known.all():
            self._read_each(places, size, signed, values, known)
        return values, known

    def held(self, places: U64, size: int) -> Mask:
        """Return for each place whether the spans hold ``size`` bytes there."""
        return gather_scalars(self.spans, places, size, "little")[1]

    def absent(self, places: U64, size: int) -> Mask:
        """Return for each place whether the target has memory there that the core lacks."""
        first, last = self.kinds(places), self.kinds(places + np.uint64(size - 1))
        absent: Mask = (first == _ABSENT) | (last == _ABSENT)
        return absent

    def copied(self, places: U64) -> Mask:
        """Return for each place whether its memory must be copied."""
        copied: Mask = self.kinds(places) == _COPIED
        return copied

    def kinds(self, places: U64) -> U8:
        """Return for each place what kind of region it is in."""
        regions = self._regions_of(places)
        kinds: U8 = np.where(regions >= 0, self._kinds[regions], np.uint8(_UNMAPPED))
        return kinds

    def _regions_of(self, places: U64) -> Rows:
        # -1 where nothing is mapped
        at = np.searchsorted(self._firsts, places, side="right") - 1
        return np.where((at >= 0) & (places <= self._lasts[at]), at, -1)

    def _open(self, at: int) -> None:
        """Borrow a region, and with the first that is lent all others: it costs nothing, and saves ways back."""
        self._kinds[at] = _LENT if self._borrow(self._index.regions[at]) else _COPIED
        if self._kinds[at] == _LENT and len(self._buffers) == 1:
            for other in np.flatnonzero(self._kinds == _UNSEEN)[:_MOST_LENT].tolist():
                if self._borrow(self._index.regions[other]):
                    self._kinds[other] = _LENT

    def _borrow(self, region: Region) -> bool:
        """Add a whole region when its bytes can be had without a copy."""
        direct: Optional[Callable[[int, int], Buffer]] = getattr(self.target.memory, "view", None)
        if direct is None:
            return False
        try:
            if not isinstance(direct(region.start, 1), memoryview):  # a copy, even of one byte
                return False
            self._add(region.start, direct(region.start, region.size))
        except FaultError:
            return False
        return True

    def _add(self, start: int, buffer: Buffer) -> None:
        self._buffers[start] = buffer
        self._spans = None

    def _copy(self, units: List[int]) -> None:
        wide = 1 << min(self._loads // _PATIENCE, _MOST_UNITS.bit_length() - 1)
        blocks = sorted({unit // wide for unit in units if unit not in self._tried})
        self._loads += 1
        start = end = 0
        for unit in (block * wide + at for block in blocks for at in range(wide)):
            if unit in self._tried:
                continue
            self._tried.add(unit)
            if unit != end or (end - start) * _UNIT >= MOST_KEPT // 8:
                self._copy_run(start * _UNIT, end * _UNIT)
                start = unit
            end = unit + 1
            if self.full:
                break
        self._copy_run(start * _UNIT, end * _UNIT)

    def _copy_run(self, start: int, end: int) -> None:
        for region in self._index.within(start, end):
            low, high = max(region.start, start), min(region.end, end)
            at = int(self._regions_of(np.array([low], np.uint64))[0])
            if self._kinds[at] in (_UNSEEN, _COPIED):
                self._copy_part(low, high)

    def _copy_part(self, start: int, end: int) -> None:
        # by halves, down to a page, where not all of it can be read
        try:
            self._add(start, view(self.target.memory, start, end - start))
            self._kept += end - start
        except FaultError:
            self._refused += 1
            page = self.target.abi.page_size
            middle = (start + end) // 2 // page * page
            if start < middle < end:
                self._copy_part(start, middle)
                self._copy_part(middle, end)

    def _read_each(self, places: U64, size: int, signed: bool, values: U64, known: Mask) -> None:
        memory, order = self.target.memory, self.target.abi.byteorder
        rows = np.flatnonzero(~known & self.copied(places))
        for row, place in zip(rows.tolist(), places[rows].tolist()):
            try:
                number = int.from_bytes(memory.read(place, size), order, signed=signed)
            except FaultError:
                continue
            values[row], known[row] = unsigned(number), True
