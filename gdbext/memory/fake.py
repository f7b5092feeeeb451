"""Memory made of bytes, for tests and for reports that are replayed."""

from __future__ import annotations

from typing import Iterable, Sequence

from gdbext.memory import Buffer, Region
from gdbext.memory.pieces import Piece, PieceMemory


class FakeMemory(PieceMemory):
    """A memory whose segments are given; a read may span adjacent ones.

    :param segments: pairs of start address and contents.
    :param regions: mappings to report; by default one anonymous ``rw-`` region a segment.
    """

    def __init__(self, segments: Iterable[tuple[int, Buffer]], regions: Sequence[Region] = ()) -> None:
        pieces: list[Piece] = []
        for start, data in segments:
            contents = memoryview(data).cast("B")
            if contents:
                pieces.append((start, start + len(contents), contents, -start))
        own = [Region(start, end) for start, end, _, _ in pieces]
        super().__init__(pieces, sorted(regions or own, key=lambda region: region.start))
