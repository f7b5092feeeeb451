"""A copy of a process's pages: room for them is made before it is stopped, so that copying meets no page fault of ours.

The room is a file without a name in memory (memfd), so that other programs may open it, too; a page's place in it
follows from its address. ``process_vm_readv`` copies from several threads of ours; what it refuses (pages without
access, whose contents a debugger may see) comes from ``/proc/PID/mem``.
"""

from __future__ import annotations

import ctypes
import errno
import mmap
import os
import threading
import time
import weakref
from dataclasses import dataclass
from typing import Any, Callable, Iterator, List, Optional, Sequence, Tuple

import numpy as np
import numpy.typing as npt

from gdbext.errors import GdbextError, TooLargeError
from gdbext.memory.intervals import Coverage, Intervals, joined, subtract
from gdbext.memory.live.mappings import PAGE, Mapping, gone, open_proc
from gdbext.wording import size_text

U64 = npt.NDArray[np.uint64]

FIRST = 4096  # bytes before the first place: the ELF header
_STEP = 8 << 20  # bytes of one call: so often a limit of time is heeded
_VECTORS = 1 << 10  # UIO_MAXIOV
_AT_ONCE = 64 << 20  # bytes that are populated between two looks at Ctrl-C
_POPULATE_WRITE = 23  # MADV_POPULATE_WRITE, Linux 5.14
_MOST_THREADS = 4
_GAPS = (16 << 20, 256 << 20, 4 << 30, 1 << 20, 1 << 16, 0)
_MOST_PLACES = 1 << 14
_MOST_SPAN = 1 << 42  # bytes of a file: ext4 takes 16 TB
_SLACK = 4 << 30  # bytes of the file, which cost nothing, for what is new at the stop


@dataclass(frozen=True, eq=False)
class Places:
    """Where in the file stretches of the address space are.

    :param covered: the stretches, by address.
    :param offsets: in the file, bytes.
    :param end: where the last one ends in the file.
    """

    covered: Coverage
    offsets: U64
    end: int

    def locate(self, addresses: U64) -> U64:
        """Return the places of addresses that have one."""
        at = self.covered.index(addresses)
        found: U64 = self.offsets[at] + (addresses - self.covered.starts[at])
        return found


def plan_places(wanted: Intervals, mappings: Sequence[Mapping]) -> Places:
    """Return a place for all that is wanted; what lies close together, and the rest of a small mapping, goes with it.

    :param wanted: disjoint and sorted.
    :param mappings: that it lies in.
    """
    choices = (_clusters(wanted, mappings, np.uint64(gap)) for gap in _GAPS)
    none = np.empty(0, np.uint64)
    starts, ends = next((found for found in choices if _is_fit(*found)), wanted)
    sizes = ends - starts
    offsets = np.uint64(FIRST) + np.cumsum(np.concatenate((np.zeros(1, np.uint64), sizes)), dtype=np.uint64)
    return Places(Coverage(starts, ends), offsets[:-1] if len(starts) else none, int(offsets[-1]))


def _clusters(wanted: Intervals, mappings: Sequence[Mapping], gap: "np.uint64") -> Intervals:
    starts, ends = wanted
    lows = np.array([one.start for one in mappings], np.uint64)
    highs = np.array([one.end for one in mappings], np.uint64)
    of = Coverage(lows, highs).index(starts)
    starts = np.where((of >= 0) & (starts - lows[of] <= gap), lows[of], starts)
    of = Coverage(lows, highs).index(ends - np.uint64(1))
    ends = np.where((of >= 0) & (highs[of] - ends <= gap), highs[of], ends)
    apart = np.ones(len(starts), np.bool_)
    reach = np.maximum.accumulate(ends) if len(ends) else ends
    apart[1:] = (starts[1:] > reach[:-1]) & (starts[1:] - np.minimum(reach[:-1], starts[1:]) > gap)
    last = np.append(np.flatnonzero(apart)[1:], len(starts)) - 1
    return starts[apart], reach[last] if len(starts) else reach


def _is_fit(starts: U64, ends: U64) -> bool:
    return len(starts) <= _MOST_PLACES and float((ends - starts).astype(np.float64).sum()) <= _MOST_SPAN


def make_file() -> int:
    """Return the descriptor of a file in memory that has no name."""
    return os.memfd_create("gdbext-snapshot", os.MFD_CLOEXEC)


class CopyFile:
    """A file in memory with places for pages.

    :param places: for what is known before the stop.
    :param descriptor: of an empty file in memory, which this owns from now on; None makes one.
    :ivar descriptor: of the file, for reading and writing.
    :ivar bytes: of the file.
    :ivar address: where it is mapped.
    :raises TooLargeError: the kernel gives none of that size.
    """

    def __init__(self, places: Places, descriptor: Optional[int] = None) -> None:
        self.places = places
        self.descriptor = make_file() if descriptor is None else descriptor
        self._closing = weakref.finalize(self, os.close, self.descriptor)
        self._size = places.end + _SLACK
        try:
            os.ftruncate(self.descriptor, self._size)
            self._map = mmap.mmap(self.descriptor, self._size)
        except OSError as error:
            what = f"a copy of {size_text(self._size)} of address space cannot be made: {error.strerror}"
            raise TooLargeError(what, "ulimit -v and ulimit -f bound it") from None
        self.bytes = memoryview(self._map)
        self.address = int(np.frombuffer(self._map, np.uint8).ctypes.data)

    def at(self, start: int, end: int) -> memoryview:
        """Return the bytes for addresses that lie in one place, to be read and written."""
        offset = int(self.places.locate(np.array([start], np.uint64))[0])
        return self.bytes[offset : offset + end - start]

    def close(self) -> None:
        """Let go of it; it is no more, unless somebody else has it open."""
        self.bytes = memoryview(b"")
        self._closing()

    def populate(self, wanted: Intervals) -> None:
        """Make the pages for what has a place.

        :raises TooLargeError: there is not enough memory.
        """
        starts = self.places.locate(wanted[0])
        starts, ends = joined((starts, starts + (wanted[1] - wanted[0])))
        pieces = [
            (at, min(_AT_ONCE, high - at))
            for low, high in zip(starts.tolist(), ends.tolist())
            for at in range(low, high, _AT_ONCE)
        ]
        run_parallel(_workers(), pieces, self._populate)

    def _populate(self, piece: Tuple[int, int]) -> None:
        start, size = piece
        if _madvise(self.address + start, size, _POPULATE_WRITE) == 0:
            return
        if ctypes.get_errno() != errno.EINVAL:
            raise TooLargeError(f"there is no memory for a copy: {os.strerror(ctypes.get_errno())}")
        os.posix_fallocate(self.descriptor, start, size)  # a kernel before 5.14
        pages = np.frombuffer(self._map, np.uint8, size, start)[::PAGE]
        pages |= np.uint8(0)

    def add_places(self, wanted: Intervals) -> Intervals:
        """Give a place to what has none, as far as there are some; return what is new and has one."""
        starts, ends, _ = subtract(Coverage(*wanted), self.places.covered)
        old, sizes = self.places, ends - starts
        offsets = np.uint64(old.end) + np.cumsum(sizes, dtype=np.uint64) - sizes
        fit = offsets + sizes <= np.uint64(self._size)
        starts, ends, offsets = starts[fit], ends[fit], offsets[fit]
        order = np.argsort(np.concatenate((old.covered.starts, starts)), kind="stable")
        covered = [np.concatenate(pair)[order] for pair in ((old.covered.starts, starts), (old.covered.ends, ends))]
        end = int(offsets[-1] + (ends - starts)[-1]) if len(starts) else old.end
        self.places = Places(Coverage(*covered), np.concatenate((old.offsets, offsets))[order], end)
        return starts, ends


@dataclass(frozen=True)
class Copied:
    """What came of copying.

    :param late: runs that the time did not suffice for.
    :param refused: runs that the kernel does not let anybody read.
    """

    late: Sequence[Tuple[int, int]]
    refused: Sequence[Tuple[int, int]]


def copy_pages(pid: int, file: CopyFile, wanted: Sequence[Intervals], until: Optional[float] = None) -> Copied:
    """Copy pages of a process that stands still to their places.

    :param wanted: pages that are there and have a place; the first group goes first.
    :param until: when no more is begun, as ``time.monotonic`` counts, or None.
    :raises NoTargetError: the process is gone.
    """
    memory = open_proc(pid, "mem")
    try:
        work = _Copying(pid, memory, file, until)
        for group in wanted:
            run_parallel(_workers(), list(_batches(*group)), work.copy)
    finally:
        os.close(memory)
    return Copied(work.late, work.refused)


def _batches(starts: U64, ends: U64) -> Iterator[Intervals]:
    """Iterate over runs in groups that one call takes, long runs being cut."""
    counts = ((ends - starts + np.uint64(_STEP - 1)) // np.uint64(_STEP)).astype(np.int64)
    which = np.repeat(np.arange(len(starts)), counts)
    number = np.arange(len(which)) - np.repeat(np.cumsum(counts) - counts, counts)
    lows = starts[which] + number.astype(np.uint64) * np.uint64(_STEP)
    highs = np.minimum(lows + np.uint64(_STEP), ends[which])
    sums, at = np.cumsum(highs - lows), 0
    while at < len(lows):
        before = sums[at] - (highs[at] - lows[at])
        behind = int(np.searchsorted(sums, before + np.uint64(_STEP), side="right"))
        behind = min(max(behind, at + 1), at + _VECTORS)
        yield lows[at:behind], highs[at:behind]
        at = behind


class _Copying:
    def __init__(self, pid: int, memory: int, file: CopyFile, until: Optional[float]) -> None:
        self._pid, self._memory, self._file, self._until = pid, memory, file, until
        self.late: List[Tuple[int, int]] = []
        self.refused: List[Tuple[int, int]] = []

    def copy(self, batch: Intervals) -> None:
        starts, ends = batch
        if self._until is not None and time.monotonic() > self._until:
            self.late += zip(starts.tolist(), ends.tolist())
            return
        offsets = self._file.places.locate(starts)
        while len(starts):
            done = _read_vm(self._pid, starts, ends - starts, offsets + np.uint64(self._file.address))
            if not done:
                done = self._copy_first(int(starts[0]), int(ends[0]), int(offsets[0]))
            starts, ends, offsets = _behind(starts, ends, offsets, done)

    def _copy_first(self, start: int, end: int, offset: int) -> int:
        """Copy of the first run what ``/proc/PID/mem`` gives; return how much of it is settled."""
        view = self._file.bytes[offset : offset + end - start]
        try:
            done = os.preadv(self._memory, [view], start)
        except OSError:
            step = min(PAGE - start % PAGE, end - start)
            self.refused.append((start, start + step))
            return step
        if not done:
            raise gone(self._pid)
        return done


def _behind(starts: U64, ends: U64, offsets: U64, done: int) -> Tuple[U64, U64, U64]:
    """Return runs without their first bytes."""
    sums = np.cumsum(ends - starts)
    at = int(np.searchsorted(sums, np.uint64(done), side="right"))
    starts, ends, offsets = starts[at:].copy(), ends[at:], offsets[at:].copy()
    if len(starts):
        part = np.uint64(done) - (sums[at - 1] if at else np.uint64(0))
        starts[0] += part
        offsets[0] += part
    return starts, ends, offsets


def _workers() -> int:
    return min(len(os.sched_getaffinity(0)), _MOST_THREADS)


def run_parallel(count: int, pieces: Sequence[Any], work: Callable[[Any], None]) -> None:
    """Do work on each piece, in several threads, in about that order.

    :raises GdbextError: the first error of any piece; an interrupt ends it, too.
    """
    queue = iter(pieces)  # iterators of lists may be shared between threads
    faults: List[BaseException] = []

    def run() -> None:
        try:
            for piece in queue:
                if faults:
                    return
                work(piece)
        except (GdbextError, OSError, MemoryError) as fault:
            faults.append(fault)

    others = [
        threading.Thread(target=run, name="gdbext copies", daemon=True) for _ in range(1, min(count, len(pieces)))
    ]
    try:
        for one in others:
            one.start()
        run()
    except BaseException as fault:  # an interrupt
        faults.append(fault)
        raise
    finally:
        for one in others:
            one.join()
    if faults:
        raise faults[0]


# -- the C library --------------------------------------------------------------------------------------


def _find(name: str, result: Any, *arguments: Any) -> Any:
    function = getattr(ctypes.CDLL(None, use_errno=True), name, None)
    if function is not None:
        function.argtypes, function.restype = arguments, result
    return function


_place, _number = ctypes.c_void_p, ctypes.c_ulong
_madvise = _find("madvise", ctypes.c_int, _place, ctypes.c_size_t, ctypes.c_int)
_readv = _find("process_vm_readv", ctypes.c_ssize_t, ctypes.c_int, _place, _number, _place, _number, _number)


def _read_vm(pid: int, starts: U64, sizes: U64, targets: U64) -> int:
    """Copy runs of memory to addresses of ours.

    :returns: bytes copied from the first run on without a gap; 0 when the kernel refuses the first page.
    :raises NoTargetError: the process is gone.
    """
    if _readv is None:
        return 0
    remote, local = (np.stack((column, sizes), axis=1).astype(np.uintp) for column in (starts, targets))
    count = len(starts)
    copied = int(_readv(pid, local.ctypes.data, count, remote.ctypes.data, count, 0))
    if copied < 0 and ctypes.get_errno() == errno.ESRCH:
        raise gone(pid)
    return max(copied, 0)
