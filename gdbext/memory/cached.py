"""A memory that keeps what it has read: for targets where each read is a round trip.

Only for as long as the target stands still; the session drops it when the target moves.
"""

from __future__ import annotations

from typing import Dict, Sequence

from gdbext.errors import FaultError
from gdbext.memory import Buffer, Memory, Region, RegionIndex

BLOCK = 1 << 16
LIMIT = 1 << 29  # bytes kept; beyond them reads go through


class CachedMemory:
    """Reads another memory in blocks of 64 KiB and keeps them; reads in a block that cannot be read whole go through.

    :param memory: what is slow.
    """

    def __init__(self, memory: Memory) -> None:
        self._memory = memory
        self._index = RegionIndex(memory.regions())
        self._blocks: Dict[int, bytes] = {}
        self._kept = 0

    def regions(self) -> Sequence[Region]:
        """Return the regions of the memory behind it."""
        return self._index.regions

    def read(self, address: int, size: int) -> Buffer:
        """Return exactly ``size`` bytes.

        :raises FaultError: when any of them cannot be read.
        """
        if size < 0 or address < 0:
            raise FaultError(address, size)
        pieces = []
        at, end = address, address + size
        while at < end:
            piece = self._piece(at, end)
            pieces.append(piece)
            at += len(piece)
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    def _piece(self, at: int, end: int) -> Buffer:
        """Return some bytes from ``at`` on, not beyond ``end``: the rest of a block, or what is in none."""
        region = self._index.find(at)
        if region is None:
            return self._memory.read(at, end - at)
        start = max(region.start, at - at % BLOCK)
        stop = min(region.end, at - at % BLOCK + BLOCK)
        block = memoryview(self._block(start, stop - start))
        if not block:
            return self._memory.read(at, min(end, stop) - at)
        return block[at - start : end - start]

    def _block(self, start: int, size: int) -> bytes:
        """Return a block; nothing where a part of it cannot be read (a guard page in the midst of a mapping)."""
        block = self._blocks.get(start)
        if block is None:
            try:
                block = bytes(self._memory.read(start, size))
            except FaultError:
                self._blocks[start] = block = b""
            if self._kept < LIMIT:
                self._blocks[start] = block
                self._kept += size
        return block
