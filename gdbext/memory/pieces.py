"""Memory put together from pieces of buffers: the lookup that cores and tests share.

Reading one word at random addresses costs about a microsecond: the last piece is kept, and a piece
is a plain tuple.
"""

from __future__ import annotations

import bisect
from typing import Iterable, Optional, Protocol, Sequence, Union

from gdbext.errors import FaultError, NoTargetError
from gdbext.memory import Buffer, Region


class Sliceable(Protocol):
    """What a piece's bytes are taken from: a memoryview, or a file that is read when sliced."""

    def __getitem__(self, part: slice, /) -> Buffer: ...


Source = Union[memoryview, Sliceable]

# start, end, bytes, and what is added to an address to get the offset in these bytes
Piece = tuple[int, int, Source, int]


def closed() -> NoTargetError:
    """Return the error of reading what was closed."""
    return NoTargetError("the session is closed", "read what is wanted of an answer before that")


class _Closed:
    def __getitem__(self, part: slice) -> Buffer:
        raise closed()


_CLOSED: Piece = (0, 1 << 64, _Closed(), 0)
_NOWHERE: Piece = (0, -1 << 128, memoryview(b""), 0)  # holds no address, be it negative


class PieceMemory:
    """A memory whose bytes lie in disjoint pieces.

    :param pieces: in any order; disjoint.
    :param regions: the mappings to report, sorted.
    """

    def __init__(self, pieces: Iterable[Piece], regions: Sequence[Region]) -> None:
        self._pieces = sorted(pieces, key=lambda piece: piece[0])
        self._starts = [piece[0] for piece in self._pieces]
        self._regions = regions
        self._last = _NOWHERE

    def read(self, address: int, size: int) -> Buffer:
        """Return ``size`` bytes: a view where they lie in one piece, a copy across pieces.

        :raises FaultError: when any of them is in no piece.
        """
        start, end, data, delta = self._last
        if start <= address <= address + size <= end:
            at = address + delta
            return data[at : at + size]
        return self._read_elsewhere(address, size)

    def view(self, address: int, size: int) -> Buffer:
        """As :meth:`read`."""
        return self.read(address, size)

    def mapped(self) -> "list[tuple[int, memoryview]]":
        """Return by address what can be had without copying: start, and bytes."""
        mapped = (piece for piece in self._pieces if isinstance(piece[2], memoryview))
        return [(start, data[start + delta : end + delta]) for start, end, data, delta in mapped]  # type: ignore[misc]

    def regions(self) -> Sequence[Region]:
        """Return the mappings, sorted by address, disjoint; absent ones included."""
        return self._regions

    def close(self) -> None:
        """Let go of the bytes; whoever reads any from now on gets a NoTargetError."""
        self._pieces, self._starts, self._last = [_CLOSED], [0], _CLOSED

    def _read_elsewhere(self, address: int, size: int) -> Buffer:
        at = bisect.bisect_right(self._starts, address) - 1
        piece = self._pieces[at] if at >= 0 else _NOWHERE
        if size < 0 or address >= piece[1]:
            raise FaultError(address, size)
        self._last = piece
        _, end, data, delta = piece
        if address + size <= end:
            return data[address + delta : address + delta + size]
        return self._read_across(at, address, size)

    def _read_across(self, at: int, address: int, size: int) -> bytes:
        last = self._find_last(at, address + size)
        if last is None:
            raise FaultError(address, size)
        parts = []
        for start, end, data, delta in self._pieces[at : last + 1]:
            low, high = max(start, address), min(end, address + size)
            parts.append(data[low + delta : high + delta])
        return b"".join(parts)

    def _find_last(self, at: int, end: int) -> Optional[int]:
        # the piece that reaches ``end`` without a gap from piece ``at``
        while self._pieces[at][1] < end:
            at += 1
            if at == len(self._pieces) or self._pieces[at][0] != self._pieces[at - 1][1]:
                return None
        return at
