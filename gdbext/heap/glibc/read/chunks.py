"""Chunk columns: what the walk of all segments fills, and what becomes the blocks.

A heap may have a hundred million chunks, so columns are hardly ever copied: what was walked says how much room the
rest will take (room that is not used takes no memory), and segments are walked in order of address. Only where these
overlap, or one was found late, are the columns sorted.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, List, Optional, Sequence, Tuple

import numpy as np

from gdbext.heap.model import NO_ARENA, U8, U32, U64, State
from gdbext.kernels import ChunkRun
from gdbext.memory.intervals import slices

_SPARE = 16  # one in so many that are expected is room for more
_MORE_AT_ONCE = 256  # times as many chunks as there are: the first may be unlike those to come


@dataclass(frozen=True)
class Chunks:
    """Chunk columns in address order: 19 bytes each, up to 255 arenas; ``top`` and fenceposts not among them.

    :param address: of the chunk header.
    :param size: chunk size in bytes, flag bits cleared.
    :param flags: the three flag bits.
    :param state: FREE where the chunk that follows says so, else IN_USE, until the free lists tell more.
    :param owner: position of the arena.
    """

    address: U64
    size: U64
    flags: U8
    state: U8
    owner: U32

    def __len__(self) -> int:
        return len(self.address)


class GrowingChunks:
    """The chunks of all segments, while these are walked one after the other.

    :param arenas: how many there are: their numbers take as few bytes as they need.
    :param extent: bytes of all segments.
    :param count: chunks so far.
    :param first: row of the first chunk of the segment that is being walked.
    """

    def __init__(self, arenas: int = NO_ARENA, extent: int = 0) -> None:
        self.count = self.first = 0
        self._owner = self._walked = self._ordered = 0
        self._extent = extent
        kinds = ("u8", "u8", "u1", "u1", np.min_scalar_type(arenas))
        self._columns: List[Any] = [np.empty(0, kind) for kind in kinds]

    def begin(self, owner: int) -> None:
        """Let what is added from here on belong to another segment, of the arena at position ``owner``."""
        self.first, self._owner = self.count, owner

    def add(self, run: ChunkRun) -> None:
        """Add chunks that follow those of their segment."""
        count = self.count + len(run)
        self._walked += int(run.address[-1] - run.address[0]) + int(run.size[-1])
        self._reserve(count)
        state = run.free.view(np.uint8) * np.uint8(State.FREE)
        for column, values in zip(self._columns, (run.address, run.size, run.flags, state, self._owner)):
            column[self.count : count] = values
        self.count = count  # last: an interrupt leaves whole rows

    def _reserve(self, count: int) -> None:
        """Make room for so many chunks, and for those to come, should they be as large as those so far."""
        if count <= min(len(column) for column in self._columns):
            return
        to_come = max(self._extent - self._walked, 0) * count // max(self._walked, 1)
        room = min(count + max(count, to_come) // _SPARE + to_come, count * _MORE_AT_ONCE)
        for number, column in enumerate(self._columns):
            self._columns[number] = np.empty(room, column.dtype)
            self._columns[number][: self.count] = column[: self.count]

    def find_last(self) -> Optional[Tuple[int, int]]:
        """Return address and size of the segment's last chunk so far, or None."""
        if self.count == self.first:
            return None
        address, size = self._columns[:2]
        return int(address[self.count - 1]), int(size[self.count - 1])

    def drop_last(self) -> None:
        """Take the last chunk back: it is something else."""
        self.count -= 1

    def segment_bytes(self) -> int:
        """Return the sizes of the segment's chunks, summed up."""
        return int(self._columns[1][self.first : self.count].sum())

    def finish(self) -> Chunks:
        """Return all chunks in order of address, the same each time."""
        columns = [column[: self.count] for column in self._columns]
        if self._ordered < self.count and not _ascending(columns[0]):  # overlapping segments, or one found late
            order = np.argsort(columns[0], kind="stable")
            self._columns = columns = [column[order] for column in columns]
        self._ordered = self.count
        return Chunks(*columns)

    def finish_with(self, few: Sequence[Any], places: Sequence[int]) -> Tuple[U64, U64, U8, U32]:
        """Return address, size, state and owner of all chunks, with a few rows inserted; nothing may follow.

        :param few: the same columns of these rows.
        :param places: for each of them, sorted: how many chunks come before it.
        """
        self.finish()
        del self._columns[2]  # the flags
        self._reserve(self.count + len(places))
        for column, values in zip(self._columns, few):
            insert_few(column[: self.count + len(places)], values, places)
        address, size, state, owner = (column[: self.count + len(places)] for column in self._columns)
        return address, size, state, owner


def insert_few(column: Any, few: Any, places: Sequence[int]) -> None:
    """Insert a few values into a column, in place.

    :param column: the last items, as many as are inserted, are room.
    :param places: for each of the few, sorted: how many of the column come before it.
    """
    end = len(column) - len(few)
    for number in reversed(range(len(few))):
        place = places[number]
        for part in reversed([*slices(end - place)]):  # what overlaps is copied
            moved = column[place + part.start : place + part.stop]
            column[place + number + 1 :][part] = moved
        column[place + number] = few[number]
        end = place


def _ascending(address: U64) -> bool:
    parts = ((part, slice(part.start + 1, part.stop + 1)) for part in slices(len(address) - 1))
    return all(bool(np.all(address[before] < address[after])) for before, after in parts)
