"""Memory made of bytes, for tests and for reports that are replayed."""

from __future__ import annotations

from typing import Iterable, Sequence

from gdbext.errors import FaultError
from gdbext.memory import Buffer, Region, RegionIndex


class FakeMemory:
    """A memory whose segments are given.

    :param segments: pairs of start address and contents.
    :param regions: mappings to report; by default one anonymous ``rw-`` region a segment.
    """

    def __init__(
        self, segments: Iterable[tuple[int, Buffer]], regions: Sequence[Region] = ()
    ) -> None:
        self._segments = {start: memoryview(data).cast("B") for start, data in segments}
        own = [Region(start, start + len(data)) for start, data in self._segments.items()]
        self._index = RegionIndex(sorted(own, key=lambda region: region.start))
        self._regions = sorted(regions or own, key=lambda region: region.start)

    def read(self, address: int, size: int) -> Buffer:
        """Return ``size`` bytes of one segment.

        :raises FaultError: when they are not all in one segment.
        """
        region = self._index.find(address)
        if region is None or size < 0 or address + size > region.end:
            raise FaultError(address, size)
        at = address - region.start
        return self._segments[region.start][at : at + size]

    def view(self, address: int, size: int) -> Buffer:
        """As :meth:`read`: nothing is copied."""
        return self.read(address, size)

    def regions(self) -> Sequence[Region]:
        """Return the given regions, sorted."""
        return self._regions
