"""Target memory: two methods, and the small readers built on them.

Implementations live beside this file: ``elfcore`` (a core by mmap or pread), ``process`` (a local
process), ``fake`` (bytes, for tests); ``gdbext.bridge`` adds gdb's own reads.
"""

from __future__ import annotations

import bisect
import struct
from dataclasses import dataclass
from typing import Iterator, Optional, Protocol, Sequence, Union

from gdbext.abi import Abi
from gdbext.errors import FaultError
from gdbext.report import Problem

Buffer = Union[bytes, bytearray, memoryview]


@dataclass(frozen=True)
class Region:
    """One mapping of the target, or the part of one that has a single source.

    :param start: first address.
    :param end: first address after it.
    :param permissions: ``rwx``, a ``-`` for each that is absent; ``?`` where the core does not say.
    :param name: file path, ``[heap]``, ``[stack]``, ``[vdso]``, or "" for anonymous memory.
    :param offset: offset of ``start`` in the file, in bytes.
    :param source: ``memory`` (live or in the core), ``file`` (read from the file that backs it,
        build-id checked) or ``absent`` (mapped in the target, its bytes unknown here).
    """

    start: int
    end: int
    permissions: str = "rw-"
    name: str = ""
    offset: int = 0
    source: str = "memory"

    @property
    def size(self) -> int:
        """Bytes."""
        return self.end - self.start

    @property
    def readable(self) -> bool:
        """Whether :meth:`Memory.read` can be expected to deliver it."""
        return self.source != "absent" and "r" in self.permissions

    @property
    def writable(self) -> bool:
        """Whether the target may write to it."""
        return "w" in self.permissions

    @property
    def anonymous(self) -> bool:
        """Whether no file backs it (``[heap]`` and ``[stack]`` count as anonymous)."""
        return not self.name or self.name.startswith("[")

    def __contains__(self, address: int) -> bool:
        return self.start <= address < self.end


class Memory(Protocol):
    """What every source of target memory offers. Nothing here writes."""

    def read(self, address: int, size: int) -> Buffer:
        """Return exactly ``size`` bytes.

        :raises FaultError: when any of them cannot be read.
        """

    def regions(self) -> Sequence[Region]:
        """Return the mappings, sorted by address, disjoint; absent ones included."""


class RegionIndex:
    """Finds the region of an address by bisection.

    :param regions: sorted and disjoint.
    """

    def __init__(self, regions: Sequence[Region]) -> None:
        self.regions = regions
        self._starts = [region.start for region in regions]

    def find(self, address: int) -> Optional[Region]:
        """Return the region that holds ``address``, or None."""
        at = bisect.bisect_right(self._starts, address) - 1
        if at < 0 or address >= self.regions[at].end:
            return None
        return self.regions[at]

    def within(self, start: int, end: int) -> Iterator[Region]:
        """Iterate over the regions that overlap ``start`` to ``end``."""
        at = max(bisect.bisect_right(self._starts, start) - 1, 0)
        while at < len(self.regions) and self.regions[at].start < end:
            if self.regions[at].end > start:
                yield self.regions[at]
            at += 1


def view(memory: Memory, start: int, size: int) -> Buffer:
    """Return ``size`` bytes for bulk work: without copying where the memory has a ``view`` method.

    :raises FaultError: as :meth:`Memory.read`.
    """
    direct = getattr(memory, "view", None)
    return direct(start, size) if direct else memory.read(start, size)


def for_each_written(memory: Memory, start: int, end: int) -> Iterator[tuple[int, int]]:
    """Iterate over the stretches between two addresses that may hold what the target wrote, by address.

    What lies between them costs nothing: it is zeros, or as the mapped file has it, or not to be had. Memories that
    know it have a method of that name (a process by its page tables, a core by the holes of its file); of others
    it is the whole.
    """
    direct = getattr(memory, "for_each_written", None)
    if direct is not None:
        yield from direct(start, end)
    elif start < end:
        yield start, end


def check_reads(memory: Memory) -> Sequence[Problem]:
    """Return what reads have met so far that says that memory is missing; what notes it has a method of that name."""
    direct = getattr(memory, "check_reads", None)
    return direct() if direct is not None else ()


def spare_memory(memory: Memory, most: int) -> None:
    """Have a memory leave little of itself in this process where there is little room; what can has such a method.

    :param most: bytes of our own that may be taken; 0 is what is free.
    """
    direct = getattr(memory, "spare_memory", None)
    if direct is not None:
        direct(most)


def knows_written(memory: Memory) -> bool:
    """Whether a memory knows what was never touched: see :func:`for_each_written`."""
    return hasattr(memory, "for_each_written")


class Reader:
    """Typed reads over a memory, in the target's byte order and word size."""

    def __init__(self, memory: Memory, abi: Abi) -> None:
        self.memory = memory
        self.abi = abi
        self._word = struct.Struct(abi.word_format)

    def uint(self, address: int, size: int, reading: str = "memory") -> int:
        """Read an unsigned integer of ``size`` bytes.

        :param reading: what it is, for the error.
        :raises FaultError: when it cannot be read.
        """
        return int.from_bytes(self.bytes(address, size, reading), self.abi.byteorder)

    def sint(self, address: int, size: int, reading: str = "memory") -> int:
        """Read a signed integer of ``size`` bytes; errors as :meth:`uint`."""
        return int.from_bytes(self.bytes(address, size, reading), self.abi.byteorder, signed=True)

    def word(self, address: int, reading: str = "memory") -> int:
        """Read one pointer-sized unsigned word; errors as :meth:`uint`."""
        return int(self._word.unpack(self.bytes(address, self._word.size, reading))[0])

    def words(self, address: int, count: int, reading: str = "memory") -> tuple[int, ...]:
        """Read ``count`` consecutive words; errors as :meth:`uint`."""
        data = self.bytes(address, count * self._word.size, reading)
        return struct.unpack(f"{self.abi.order_mark}{count}{self.abi.word_format[-1]}", data)

    def bytes(self, address: int, size: int, reading: str = "memory") -> Buffer:
        """Read ``size`` bytes; errors as :meth:`uint`."""
        try:
            return self.memory.read(address, size)
        except FaultError as fault:
            raise FaultError(fault.address, fault.size, reading) from None

    def find_string(self, address: int, limit: int = 4096) -> Optional[str]:
        """Return the NUL-terminated text at ``address``, or None when there is none within ``limit``.

        Undecodable bytes are shown as ``\\xNN``.
        """
        data = b""
        while len(data) < limit:
            step = min(256, self.abi.page_size - (address + len(data)) % self.abi.page_size)
            try:
                data += bytes(self.memory.read(address + len(data), step))
            except FaultError:
                return None
            if b"\0" in data:
                return data[: data.index(b"\0")].decode("utf-8", "backslashreplace")
        return None
