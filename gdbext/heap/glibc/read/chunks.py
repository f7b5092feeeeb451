"""Chunk columns: what the walk of all segments fills, and what becomes the blocks.

A heap may have a hundred million chunks, so columns are not copied: they grow in place (``realloc`` moves pages, not
bytes, where a column is large), and segments are walked in order of address. Only where these overlap, or one was found
late, are the columns sorted.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, List, Optional, Tuple

import numpy as np

from gdbext.heap.model import NO_ARENA, U8, U32, U64, State
from gdbext.kernels import ChunkRun
from gdbext.memory.intervals import slices

_SPARE = 64  # columns grow by one in so many: what they need, and little beside it


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
    :param count: chunks so far.
    :param first: row of the first chunk of the segment that is being walked.
    """

    def __init__(self, arenas: int = NO_ARENA) -> None:
        self.count = self.first = 0
        self._owner = 0
        kinds = ("u8", "u8", "u1", "u1", np.min_scalar_type(arenas))
        self._columns: List[Any] = [np.empty(0, kind) for kind in kinds]

    def begin(self, owner: int) -> None:
        """Let what is added from here on belong to another segment, of the arena at position ``owner``."""
        self.first, self._owner = self.count, owner

    def add(self, run: ChunkRun) -> None:
        """Add chunks that follow those of their segment."""
        count = self.count + len(run)
        for column in self._columns:
            if len(column) < count:
                _resize(column, count + count // _SPARE)
        state = run.free.view(np.uint8) * np.uint8(State.FREE)
        for column, values in zip(self._columns, (run.address, run.size, run.flags, state, self._owner)):
            column[self.count : count] = values
        self.count = count  # last: an interrupt leaves whole rows

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
        """Return all chunks in order of address, the same each time; none may be added any more."""
        for column in self._columns:
            _resize(column, self.count)
        if not _ascending(self._columns[0]):  # overlapping segments, or one that was found late
            order = np.argsort(self._columns[0], kind="stable")
            self._columns = [column[order] for column in self._columns]
        return Chunks(*self._columns)


def insert_few(column: Any, few: Any, places: List[int]) -> None:
    """Insert a few values into a column, in place.

    :param column: grows by as many; views of it must not be used any more.
    :param places: for each of the few, sorted: how many of the column come before it.
    """
    end = len(column)
    _resize(column, end + len(few))
    for number in reversed(range(len(few))):
        place = places[number]
        column[place + number + 1 : end + number + 1] = column[place:end]
        column[place + number] = few[number]
        end = place


def _resize(column: "np.typing.NDArray[Any]", count: int) -> None:
    """Make a column longer or shorter where it is."""
    column.resize(count, refcheck=False)


def _ascending(address: U64) -> bool:
    parts = ((part, slice(part.start + 1, part.stop + 1)) for part in slices(len(address) - 1))
    return all(bool(np.all(address[before] < address[after])) for before, after in parts)
