"""The heads of a table's bins, read in stretches."""

from __future__ import annotations

from functools import cached_property
from typing import Iterator, NamedTuple, Optional, Tuple

import numpy as np

from gdbext.errors import FaultError, ShapeError
from gdbext.memory import view
from gdbext.structures.walk.gather import Windows, gather
from gdbext.structures.walk.model import NUMBER_SIZES, U8, U64, BinArray, End, Mask, Scalar, Table
from gdbext.target import Target

MOST_BINS = 1 << 30
MOST_ENDS = 1000  # told of one walk
_BATCH = 1 << 20  # bins
_MOST_AT_ONCE = 1 << 26  # bytes


class Places:
    """Where some bins are, worked out when it is asked for: those that lie in a row are read without.

    :param part: which bins of the array, counted from its first.
    """

    def __init__(self, windows: Windows, bins: BinArray, part: range) -> None:
        self._windows, self._bins, self._part = windows, bins, part

    @cached_property
    def _found(self) -> Tuple[U64, Mask]:
        return _places(self._windows, self._bins, self._part)

    @property
    def addresses(self) -> U64:
        """Of each bin."""
        return self._found[0]

    @property
    def missing(self) -> Mask:
        """Which are unknown because the core lacks the pointers to them."""
        return self._found[1]


class Heads(NamedTuple):
    """What stands in some bins.

    :param links: as stored; 0 where it could not be read.
    :param counts: the bins' own counts, or None.
    :param reasons: NULL, or why a bin could not be read.
    """

    places: Places
    links: U64
    counts: Optional[U64]
    reasons: U8

    @property
    def bins(self) -> U64:
        """Where each bin is."""
        return self.places.addresses


def check_arrays(target: Target, table: Table) -> None:
    """Check that a table's bins can be there.

    :raises FaultError: when an array of bins is not mapped.
    :raises ShapeError: when there are more bins than can be, or they cannot be walked.
    """
    if table.node.links.xor:
        raise ShapeError("bins cannot be walked along xor links")
    if table.bins > MOST_BINS:
        raise ShapeError(f"the table at {table.address:#x} claims {table.bins} bins, more than {MOST_BINS}")
    for bins in table.arrays:
        items, stride = bins.count, bins.stride
        if bins.segment:
            items, stride = -(-bins.count // bins.segment), target.abi.pointer_size
        _check_mapped(target, bins.address, items * stride, f"its {bins.count} bins")


def _check_mapped(target: Target, address: int, size: int, what: str) -> None:
    at, end = address, address + size
    if not target.index.regions:  # its debugger does not tell
        return
    for region in target.index.within(at, end):
        if region.start > at:
            break
        at = region.end
    if at < end:
        raise FaultError(address, size, what)


def batches(table: Table) -> Iterator[Tuple[int, BinArray, range]]:
    """Cut a table's bins into parts: the number of the first bin, its array, which bins of it."""
    base = 0
    for bins in table.arrays:
        for start in range(0, bins.count, _BATCH):
            yield base + start, bins, range(start, min(start + _BATCH, bins.count))
        base += bins.count


def read_heads(windows: Windows, bins: BinArray, part: range) -> Heads:
    """Read some bins.

    :param part: which, counted from the array's first.
    :raises FaultError: when they cannot be read although the target has them.
    """
    places = Places(windows, bins, part)
    word = Scalar(bins.head, windows.target.abi.pointer_size)
    links, known = _column(windows, bins, part, places, word)
    counts = None
    if bins.length is not None:
        counts, counted = _column(windows, bins, part, places, bins.length)
        known = counted if known is None else known if counted is None else known & counted
    reasons = np.full(len(part), End.NULL, np.uint8)
    if known is None and not bins.segment:
        return Heads(places, links, counts, reasons)
    missing = places.missing
    unknown = np.flatnonzero(missing if known is None else ~known | missing)
    if len(unknown):
        absent = windows.absent(places.addresses[unknown], bins.head + word.size) | missing[unknown]
        if not bins.segment and not absent.all():
            raise FaultError(int(places.addresses[unknown][~absent][0]), bins.stride, "a bin")
        reasons[unknown] = np.where(absent, End.ABSENT, End.BAD_POINTER)
        links = links.copy()
        links[unknown] = 0
    return Heads(places, links, counts, reasons)


def _places(windows: Windows, bins: BinArray, part: range) -> Tuple[U64, Mask]:
    """Return the address of each bin, and which are unknown because the core lacks the pointers to them."""
    numbers = np.arange(part.start, part.stop, dtype=np.uint64)
    if not bins.segment:
        return np.uint64(bins.address) + numbers * np.uint64(bins.stride), np.zeros(len(numbers), np.bool_)
    word, each = windows.target.abi.pointer_size, np.uint64(bins.segment)
    slots = np.uint64(bins.address) + numbers // each * np.uint64(word)
    starts, known = windows.read(slots, word)
    if not known.all():
        absent = windows.absent(slots, word)
        if not (known | absent).all():
            raise FaultError(int(slots[~(known | absent)][0]), word, "a pointer to a segment of bins")
    return starts + numbers % each * np.uint64(bins.stride), ~known


def _column(
    windows: Windows, bins: BinArray, part: range, places: Places, scalar: Scalar
) -> Tuple[U64, Optional[Mask]]:
    """Return a number of each bin, and which could be read; None: all."""
    column = None if bins.segment else _find_column(windows.target, bins, part, scalar)
    if column is None:
        return gather(windows.target, places.addresses, scalar, windows)
    return column, None


def _find_column(target: Target, bins: BinArray, part: range, scalar: Scalar) -> Optional[U64]:
    """Return the numbers out of one stretch of memory, or None where that does not serve."""
    size = (len(part) - 1) * bins.stride + scalar.size
    if scalar.size not in NUMBER_SIZES or scalar.bits or bins.stride <= 0 or size > _MOST_AT_ONCE:
        return None
    try:
        stretch = view(target.memory, bins.address + part.start * bins.stride + scalar.offset, size)
    except FaultError:
        return None
    kind = "i" if scalar.signed else "u"
    dtype = f"{target.abi.order_mark}{kind}{scalar.size}"
    column = np.ndarray((len(part),), dtype, buffer=stretch, strides=(bins.stride,))
    wide: U64 = column.astype(np.int64 if scalar.signed else np.uint64).view(np.uint64)
    return wide
