"""A stopped process of this machine as memory.

Bulk reads go through ``process_vm_readv(2)`` into one fresh buffer; small reads, and what it refuses (pages
without read permission), through ``/proc/PID/mem``. Neither writes to the process, and no page is read that is not
there (``gdbext.memory.live.presence``): untouched private memory is zeros, a page of a file comes from the file, and
what is swapped out, or shared and nowhere to be had, is a fault.

The process must stay stopped: its mappings are read once.
"""

from __future__ import annotations

import bisect
import ctypes
import errno
import mmap
import os
import weakref
from functools import cached_property
from typing import Any, Iterator, List, Optional, Sequence, Set, Tuple

import numpy as np
import numpy.typing as npt

from gdbext.errors import FaultError, NoTargetError
from gdbext.memory import Buffer, Region, RegionIndex
from gdbext.memory.intervals import Coverage, clip, gaps, slices
from gdbext.memory.live.mappedfiles import MappedFiles
from gdbext.memory.live.mappings import PAGE, Mapping, gone, open_proc, read_mappings, read_proc
from gdbext.memory.live.presence import U64, Mask, Presence, all_present, read_presence
from gdbext.report import Problem
from gdbext.wording import count_text

_SMALL = 1 << 14  # below this, one pread is cheaper than a call through ctypes
_LARGE = 1 << 20  # from here on a buffer is a mapping of its own, of which only what is filled costs memory
_AT_ONCE = 1 << 28  # for one call: Ctrl-C is heard between calls
_VECTORS = 1 << 10  # UIO_MAXIOV
_MOST_PARTS = 1 << 17  # that one mapping is cut into where parts of it are swapped out
_NORESERVE = 0x4000  # MAP_NORESERVE


class ProcessMemory:
    """The memory of a process of this machine.

    :param pid: as this machine numbers it.
    :param swapped: whether pages that are swapped out may be read, which brings them back.
    :param brief: for a few small reads: which pages there are is asked for each, until one is not there.
    :param holder: what keeps the process stopped, to live as long as this.
    :raises NoTargetError: when there is no such process, or it has no memory any more.
    :raises GdbextError: when it may not be read.
    """

    def __init__(self, pid: int, swapped: bool = False, brief: bool = False, holder: object = None) -> None:
        self.pid = pid
        self._holder = holder
        self._swapped = swapped
        self._descriptor: Optional[int] = None
        self._mappings = read_mappings(pid, brief)
        self._index = RegionIndex([region_of(one) for one in self._mappings])
        self._lows = [one.start for one in self._mappings]
        self._brief = brief
        self._last = (0, 0)
        self._refused: Set[int] = set()
        self._descriptor = open_proc(pid, "mem")
        self._pagemap = open_proc(pid, "pagemap") if brief else None
        self._closing = weakref.finalize(self, _close, self._descriptor, self._pagemap)

    @cached_property
    def presence(self) -> Presence:
        """Which pages there are, as they were when first asked for.

        :raises GdbextError: when the kernel does not tell.
        """
        mappings = read_mappings(self.pid) if self._brief else self._mappings
        return read_presence(self.pid, mappings, self._swapped)

    @cached_property
    def _files(self) -> MappedFiles:
        return MappedFiles(self.pid, self.presence.mappings, self._read_present)

    @cached_property
    def _runs(self) -> Tuple[List[int], List[int]]:
        return self.presence.present.starts.tolist(), self.presence.present.ends.tolist()

    @cached_property
    def _regions(self) -> Sequence[Region]:
        if not any(one.swap for one in self._mappings) or self._swapped:
            return self._index.regions
        return [part for one in self._index.regions for part in without(one, self.presence.swapped)]

    def regions(self) -> Sequence[Region]:
        """Return the mappings, sorted by address; devices, and parts that are swapped out, are absent."""
        return self._regions

    def for_each_written(self, start: int, end: int) -> Iterator[Tuple[int, int]]:
        """Iterate over the pages between two addresses that may hold what the process wrote."""
        starts, ends = self._written
        at = bisect.bisect_right(ends, start) if start < end else len(ends)
        while at < len(starts) and starts[at] < end:
            yield max(starts[at], start), min(ends[at], end)
            at += 1

    @cached_property
    def _written(self) -> Tuple[List[int], List[int]]:
        return self.presence.written.starts.tolist(), self.presence.written.ends.tolist()

    def untouched(self, addresses: U64) -> Mask:
        """Return which addresses lie in memory that is zeros since nothing ever was there."""
        return self.presence.untouched.holds(addresses)

    def read(self, address: int, size: int) -> Buffer:
        """Return ``size`` bytes.

        :raises FaultError: when any of them cannot be read, or is not there and cannot be had otherwise.
        :raises NoTargetError: when the process is gone, or the memory closed: then it runs, and pages come and go.
        """
        if self._descriptor is None:
            raise NoTargetError("the process is not held any more", "open it again")
        if size >= 0 and self._is_present(address, size):
            return self._read_file(address, size) if size <= _SMALL else self._read_run(address, size)
        found = self._read_bulk(address, size)
        return found if size > _SMALL else bytes(found)

    def read_pages(self, pages: U64) -> "Tuple[npt.NDArray[np.uint8], Mask]":
        """Return the bytes of pages, a row each, and which of them were there to be read at once.

        :param pages: their first addresses.
        :raises NoTargetError: as :meth:`read`.
        """
        if self._descriptor is None:
            raise NoTargetError("the process is not held any more", "open it again")
        data = np.empty((len(pages), PAGE), np.uint8)
        known = self.presence.present.holds_whole(pages, pages + np.uint64(PAGE))
        rows = np.flatnonzero(known)
        for part in slices(len(rows), _VECTORS):
            some = rows[part]
            places = np.uint64(data.ctypes.data) + some.astype(np.uint64) * np.uint64(PAGE)
            copied = _read_vm(self.pid, places, pages[some], np.full(len(some), PAGE, np.uint64))
            known[some[copied // PAGE :]] = False
        return data, known

    def view(self, address: int, size: int) -> Buffer:
        """As :meth:`read`: a live process is always copied."""
        return self.read(address, size)

    def check_reads(self) -> Sequence[Problem]:
        """Return a problem where the kernel refused pages that are in memory: what needed them is not known."""
        if not self._refused:
            return ()
        what = f"{count_text(len(self._refused), 'page')} of the process could not be read, though in memory"
        where = min(self._refused) * PAGE
        return (Problem("unreadable-memory", where, f"{what}: the first at {where:#x}"),)

    def close(self) -> None:
        """Close what is open of the process; reads fail from then on."""
        self._descriptor = None  # first: the number may soon be another file's
        self._closing()
        self.__dict__.pop("_files", None)

    def _is_present(self, address: int, size: int) -> bool:
        low, high = self._last
        if low <= address and address + size <= high:
            return True
        if not 0 <= address < 1 << 63:
            return False
        if self._brief and "presence" not in self.__dict__:
            return self._is_seen(address, size)
        starts, ends = self._runs
        at = bisect.bisect_right(starts, address) - 1
        if at < 0 or address + size > ends[at]:
            return False
        self._last = starts[at], ends[at]
        return True

    def _is_seen(self, address: int, size: int) -> bool:
        # whether the kernel says just now that all these pages are there, in a mapping that can be no device
        region = self._index.find(address)
        if region is None or region.source == "absent" or region.name.startswith("/dev/") or self._pagemap is None:
            return False
        low, high = address - address % PAGE, address + max(size, 1)
        return high <= region.end and all_present(self._pagemap, self.pid, low, high + -high % PAGE)

    def _read_file(self, address: int, size: int) -> bytes:
        # The kernel stops at the first page that it cannot read; EOF means that the process is gone.
        if self._descriptor is None or not 0 <= address < 1 << 63:
            raise FaultError(address, size)
        try:
            data = os.pread(self._descriptor, size, address)
        except OSError:
            self._note_refused(address)
            raise FaultError(address, size) from None
        if not data and size:
            raise gone(self.pid)
        if len(data) < size:
            self._note_refused(address + len(data))
            raise FaultError(address, size)
        return data

    def _note_refused(self, address: int) -> None:
        at = bisect.bisect_right(self._lows, address) - 1
        ours = at >= 0 and not (self._mappings[at].is_device or self._mappings[at].is_kernels)
        if ours and not self._brief and self.presence.known and self._is_present(address, 1):
            self._refused.add(address // PAGE)

    def _read_present(self, address: int, size: int) -> Buffer:
        if not self._is_present(address, size):
            raise FaultError(address, size)
        return self._read_file(address, size)

    def _read_bulk(self, address: int, size: int) -> memoryview:
        # the cover is checked before a buffer is made: a size read from damaged memory may be anything
        if not self._covers(address, size):
            raise FaultError(address, size)
        first = bisect.bisect_right(self._lows, address) - 1
        inside = [one for one in self._mappings[first : bisect.bisect_left(self._lows, address + size)] if size]
        if self.presence.lacks(address, address + size) or any(one.is_device for one in inside):
            raise FaultError(address, size)
        if not all(one.starts_as_zeros for one in inside):
            self._check_held(address, size, inside)
        starts, ends = clip(self.presence.present, address, address + size)
        buffer = _zeros(size, sparse=2 * int((ends - starts).sum()) < size)
        self._copy(buffer, address, starts, ends)
        for one in inside:
            self._fill(buffer, address, one, (max(one.start, address), min(one.end, address + size)))
        return buffer

    def _read_run(self, address: int, size: int) -> memoryview:
        buffer = memoryview(np.empty(size, np.uint8))  # type: ignore[arg-type]
        self._copy(buffer, address, np.array([address], np.uint64), np.array([address + size], np.uint64))
        return buffer

    def _check_held(self, address: int, size: int, inside: Sequence[Mapping]) -> None:
        for one in inside:
            if not (one.starts_as_zeros or one.has_file or one.is_kernels):
                missing = gaps(self.presence.present, max(one.start, address), min(one.end, address + size))
                if next(missing, None) is not None:
                    raise FaultError(address, size)

    def _fill(self, buffer: memoryview, address: int, mapping: Mapping, part: Tuple[int, int]) -> None:
        """Put what is not in memory into the buffer: from the file, or as the kernel has it for everybody."""
        if mapping.starts_as_zeros:
            return
        for low, high in gaps(self.presence.present, *part):
            view = buffer[low - address : high - address]
            if mapping.is_kernels:
                view[:] = self._read_file(low, high - low)
                continue
            away = mapping.shared and mapping.swap and not self._swapped
            if away or not self._files.read_into(mapping, low, view):
                raise FaultError(address, len(buffer))

    def _covers(self, address: int, size: int) -> bool:
        at = address
        for region in self._index.within(address, address + max(size, 0)):
            if region.start > at:
                return False
            at = region.end
        return size >= 0 and at >= address + size

    def _copy(self, buffer: memoryview, address: int, starts: U64, ends: U64) -> None:
        """Copy runs of pages that are there; many at a time, each to its place."""
        shift = np.uint64((np.frombuffer(buffer, np.uint8).ctypes.data - address) % 2**64)
        for first in range(0, len(starts), _VECTORS):
            low, high = starts[first : first + _VECTORS], ends[first : first + _VECTORS]
            while len(low):
                copied = _read_vm(self.pid, low + shift, low, np.minimum(high - low, np.uint64(_AT_ONCE)))
                low, high = _behind(low, high, copied or self._copy_page(buffer, address, int(low[0]), int(high[0])))

    def _copy_page(self, buffer: memoryview, address: int, start: int, end: int) -> int:
        # what process_vm_readv refused, up to the next page
        step = min(PAGE - start % PAGE, end - start)
        try:
            buffer[start - address : start - address + step] = self._read_file(start, step)
        except FaultError:
            raise FaultError(address, len(buffer)) from None
        return step


def region_of(mapping: Mapping) -> Region:
    """Return a mapping as regions are; devices are absent."""
    source = "absent" if mapping.is_device and mapping.start < 1 << 63 else "memory"
    return Region(mapping.start, mapping.end, mapping.permissions, mapping.name, mapping.offset, source)


def without(region: Region, gone: Coverage) -> Iterator[Region]:
    """Cut a region where parts of it cannot be had; where these are too many, those that lie close count as one."""
    starts, ends = clip(gone, region.start, region.end)
    while len(starts) > _MOST_PARTS:
        starts, ends = starts[::2], ends[np.minimum(np.arange(1, len(ends) + 1, 2), len(ends) - 1)]
    at = region.start
    for low, high in [*zip(starts.tolist(), ends.tolist()), (region.end, region.end)]:
        if at < low:
            yield _part(region, at, low, region.source)
        if low < high:
            yield _part(region, low, high, "absent")
        at = high


def _part(region: Region, start: int, end: int, source: str) -> Region:
    offset = region.offset + start - region.start if region.name.startswith("/") else region.offset
    return Region(start, end, region.permissions, region.name, offset, source)


def _zeros(size: int, sparse: bool) -> memoryview:
    if size < _LARGE:
        return memoryview(bytearray(size))
    area = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | _NORESERVE)
    if sparse and hasattr(mmap, "MADV_NOHUGEPAGE"):
        area.madvise(mmap.MADV_NOHUGEPAGE)  # a single page that is there must not cost 2 MiB
    return memoryview(area)


def _behind(low: U64, high: U64, copied: int) -> Tuple[U64, U64]:
    """Return runs without their first bytes."""
    sizes = np.cumsum(high - low)
    done = int(np.searchsorted(sizes, np.uint64(copied), side="right"))
    low, high = low[done:].copy(), high[done:]
    if len(low):
        low[0] += np.uint64(copied) - (sizes[done - 1] if done else np.uint64(0))
    return low, high


def _close(*descriptors: Optional[int]) -> None:
    for one in descriptors:
        if one is not None:
            os.close(one)


def _find_readv() -> Any:
    # None where the C library lacks it
    function = getattr(ctypes.CDLL(None, use_errno=True), "process_vm_readv", None)
    if function is not None:
        number, place = ctypes.c_ulong, ctypes.c_void_p
        function.argtypes = (ctypes.c_int, place, number, place, number, number)
        function.restype = ctypes.c_ssize_t
    return function


_readv = _find_readv()


def _read_vm(pid: int, places: U64, starts: U64, sizes: U64) -> int:
    """Copy runs of memory to places in our own.

    :returns: bytes copied from the first run on without a gap; 0 when the kernel refuses.
    """
    if _readv is None:
        return 0
    whole = int(np.searchsorted(np.cumsum(sizes), np.uint64(_AT_ONCE), side="right"))
    count = max(whole, 1)
    iovecs = ((at[:count], sizes[:count]) for at in (places, starts))
    local, remote = (np.stack(columns, axis=1).astype(np.uintp) for columns in iovecs)
    copied = int(_readv(pid, local.ctypes.data, count, remote.ctypes.data, count, 0))
    if copied < 0 and ctypes.get_errno() == errno.ESRCH:
        raise gone(pid)
    return max(copied, 0)


def read_comm(pid: int, tid: int) -> str:
    """Return a thread's name.

    :raises NoTargetError: when the thread is gone.
    """
    return read_proc(pid, f"task/{tid}/comm").rstrip("\n")
