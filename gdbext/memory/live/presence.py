"""Which pages of a process exist, from the kernel's page tables: the one place that knows what may be read.

A page that is not there must not be touched: reading a hole of shared memory allocates it for good, reading untouched
private memory grows page tables, reading a swapped page brings it back. Presence comes from the ``PAGEMAP_SCAN`` ioctl
(Linux 6.7, Documentation/admin-guide/mm/pagemap.rst), which skips what has no page table; where the kernel lacks it,
from ``/proc/PID/pagemap``, read for the mappings that have pages by ``smaps`` and no further than to the last of them.
"""

from __future__ import annotations

import fcntl
import mmap
import os
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Iterable, Iterator, Optional, Sequence, Tuple

import numpy as np
import numpy.typing as npt

from gdbext.errors import FaultError
from gdbext.memory.intervals import Coverage, columns, joined, subtract, unite
from gdbext.memory.live.mappings import PAGE, Mapping, gone, open_proc
from gdbext.report import Problem
from gdbext.wording import size_text

U8 = npt.NDArray[np.uint8]
U64 = npt.NDArray[np.uint64]
Mask = npt.NDArray[np.bool_]

PRESENT, SWAPPED, FILE, ZERO, GUARD = (1 << bit for bit in range(5))

_PAGEMAP_SCAN = 0xC0606610  # _IOWR('f', 16, struct pm_scan_arg), include/uapi/linux/fs.h
_SCAN_BITS = {1 << 3: PRESENT, 1 << 4: SWAPPED, 1 << 2: FILE, 1 << 5: ZERO, 1 << 8: GUARD}  # PAGE_IS_*
_WANTED = 1 << 3 | 1 << 4
_SINCE_6_15 = 1 << 8
_REGIONS = 1 << 15  # of one call
_ENTRIES = 1 << 16  # of pagemap, read at a time
_TOP_HALF = 1 << 63  # [vsyscall] lies there, and its pages cannot be asked for
_PRESENT, _SWAPPED, _FILE, _GUARD, _EXCLUSIVE = (np.uint64(1 << bit) for bit in (63, 62, 61, 58, 56))
_FRAME = np.uint64((1 << 55) - 1)


@dataclass(frozen=True, eq=False)
class Runs:
    """Runs of pages of one kind, sorted and disjoint.

    :param kinds: PRESENT, SWAPPED, FILE (of a file or shared memory), ZERO (the kernel's zero page), GUARD.
    """

    starts: U64
    ends: U64
    kinds: U8

    def having(self, bits: int) -> Mask:
        """Return which runs have one of these bits."""
        having: Mask = (self.kinds & np.uint8(bits)) != 0
        return having


class Presence:
    """Which pages of a process exist, mapping by mapping.

    :param mappings: of the process, sorted.
    :param runs: its pages.
    :param swapped: whether swapped pages may be read, which brings them back.
    :param known: False where the kernel does not tell, and all that can be read counts as there.

    ``present`` are the pages that can be read without making any; ``written`` those of them that the process may have
    written to: a private mapping's pages that are still the file's are not among them. ``swapped`` and ``guards`` are
    not read; ``resident`` is what the kernel counts as RSS.
    """

    def __init__(self, mappings: Sequence[Mapping], runs: Runs, swapped: bool = False, known: bool = True) -> None:
        self.mappings = mappings
        self.runs = runs
        self.known = known
        self.reads_swapped = swapped
        parts, of = _split(mappings, runs)
        device = _each(of, [one.is_device for one in mappings])
        watched = _each(of, [one.is_watched for one in mappings])
        private = _each(of, [not one.shared for one in mappings])
        # An entry without a page that the kernel does not count as swap: a page that is being moved, or a guard.
        counted = _each(of, [one.swap > 0 for one in mappings])
        out = parts.having(SWAPPED) & ~device & ~parts.having(GUARD | PRESENT)
        there = parts.having(PRESENT) & ~device & (~parts.having(ZERO) | watched) | out & ~counted & ~watched
        if swapped:
            there |= out & counted
        self.present = _coverage(parts, there)
        self.written = _coverage(parts, there & ~(parts.having(FILE) & private))
        self.swapped = _coverage(parts, out & counted & ~there)
        self.guards = _coverage(parts, parts.having(GUARD))
        rss = _each(of, [one.rss > 0 for one in mappings])
        self.resident = _coverage(parts, parts.having(PRESENT) & ~parts.having(ZERO) & rss)

    @cached_property
    def untouched(self) -> Coverage:
        """Memory that is zeros since nothing ever was there."""
        there = (self.present, self.swapped, self.guards)
        others = unite([(one.starts, one.ends) for one in there]).covered
        zeros = columns((one.start, one.end) for one in self.mappings if one.starts_as_zeros)
        return Coverage(*joined(subtract(Coverage(*zeros), others)[:2]))

    def lacks(self, start: int, end: int) -> bool:
        """Whether an interval has pages that may not be read: swapped ones, or guards."""
        low, high = np.array([start], np.uint64), np.array([end], np.uint64)
        return any(lost.bytes and lost.within(low, high) for lost in (self.swapped, self.guards))


def check_swapped(presence: Presence) -> Sequence[Problem]:
    """Return a problem where pages are swapped out and are not read."""
    shared = sum(one.swap for one in presence.mappings if one.shared) if not presence.reads_swapped else 0
    size = presence.swapped.bytes + shared
    if not size:
        return ()
    how = "--swapped (set gx swapped on) reads it, into RAM again"
    message = f"{size_text(size)} of the process is swapped out and was not read; {how}"
    return (Problem("swapped-memory", None, message),)


def read_presence(pid: int, mappings: Sequence[Mapping], swapped: bool = False) -> Presence:
    """Ask the kernel which pages of a process exist.

    :param mappings: what ``smaps`` says of it.
    :param swapped: whether swapped pages may be read.
    :raises NoTargetError: when the process is gone.
    :raises GdbextError: when its page map may not be read.
    :raises FaultError: when the kernel does not tell.
    """
    if not os.path.exists(f"/proc/{pid}/pagemap") and os.path.exists(f"/proc/{pid}/maps"):
        return Presence(mappings, _everything(mappings), swapped, known=False)
    descriptor = open_proc(pid, "pagemap")
    try:
        return Presence(mappings, _scan_all(descriptor, pid, mappings), swapped)
    finally:
        os.close(descriptor)


def _everything(mappings: Sequence[Mapping]) -> Runs:
    # a kernel without page maps (CONFIG_PROC_PAGE_MONITOR): all that can be read may be there
    pairs = columns([(one.start, one.end) for one in mappings if one.permissions != "---" and one.end <= _TOP_HALF])
    return Runs(*pairs, np.full(len(pairs[0]), PRESENT, np.uint8))


def _scan_all(descriptor: int, pid: int, mappings: Sequence[Mapping]) -> Runs:
    below = [one for one in mappings if one.end <= _TOP_HALF]
    if not below:
        return _joined_runs([])
    found = scan_pages(descriptor, below[0].start, below[-1].end)
    return found if found is not None else read_pagemap(descriptor, pid, below)


def scan_pages(descriptor: int, start: int, end: int) -> Optional[Runs]:
    """Return the pages from ``start`` to ``end`` by ``PAGEMAP_SCAN``, or None where the kernel lacks it.

    :param descriptor: of ``/proc/PID/pagemap``.
    """
    vector = np.empty((_REGIONS, 3), np.uint64)
    parts = []
    while start < end:
        walked = _scan_once(descriptor, start, end, vector)
        if walked is None:
            return None
        count, reached = walked
        parts.append(vector[:count].copy())
        # Where the kernel's own buffer of 512 regions was full meanwhile, it names that place, not its last.
        reached = max([reached, *vector[max(count - 1, 0) : count, 1].tolist()])
        if reached <= start:
            break
        start = reached
    return _joined_runs(parts)


def all_present(descriptor: int, pid: int, start: int, end: int) -> bool:
    """Whether the kernel says at this moment that all pages from ``start`` to ``end`` are there.

    :raises FaultError: when it does not tell.
    """
    runs = scan_pages(descriptor, start, end)
    if runs is None:
        return bool((_read_entries(descriptor, pid, start // PAGE, (end - start) // PAGE) & _PRESENT).all())
    return bool(runs.having(PRESENT).all()) and int((runs.ends - runs.starts).sum()) == end - start


def _scan_once(descriptor: int, start: int, end: int, vector: U64) -> Optional[Tuple[int, int]]:
    # how many regions the kernel wrote, and where it stopped
    for bits in (_scan_mask(), _scan_mask() & ~_SINCE_6_15):
        words = (96, 0, start, end, 0, vector.ctypes.data, len(vector), 0, 0, 0, _WANTED, bits)
        argument = np.array(words, np.uint64)
        try:
            count = fcntl.ioctl(descriptor, _PAGEMAP_SCAN, memoryview(argument).cast("B"), True)  # type: ignore[arg-type]
        except OSError:
            continue
        return count, int(argument[4])
    return None


def _scan_mask() -> int:
    return sum(_SCAN_BITS)


def _joined_runs(parts: Sequence[U64]) -> Runs:
    rows = np.concatenate([np.empty((0, 3), np.uint64), *parts])
    kinds = np.zeros(len(rows), np.uint8)
    for theirs, ours in _SCAN_BITS.items():
        kinds |= np.where(rows[:, 2] & np.uint64(theirs), np.uint8(ours), np.uint8(0))
    return Runs(rows[:, 0].copy(), rows[:, 1].copy(), kinds)


# -- kernels before 6.7 ---------------------------------------------------------------------------------


def read_pagemap(descriptor: int, pid: int, mappings: Iterable[Mapping]) -> Runs:
    """Return the pages of mappings by reading ``/proc/PID/pagemap``, eight bytes a page.

    :param descriptor: of that file.
    :raises FaultError: when the kernel does not tell.
    """
    parts = [part for one in mappings if one.rss or one.swap or one.huge for part in _runs_of(descriptor, pid, one)]
    none = np.empty(0, np.uint64), np.empty(0, np.uint64), np.empty(0, np.uint8)
    starts, ends, kinds = (np.concatenate(column) for column in zip(none, *parts))
    return Runs(starts, ends, kinds)


def _runs_of(descriptor: int, pid: int, mapping: Mapping) -> Iterator[Tuple[U64, U64, U8]]:
    """Iterate over the runs of a mapping, until all pages that the kernel counts have been seen."""
    counted = (mapping.rss + mapping.swap + mapping.huge) // PAGE
    for at in range(mapping.start // PAGE, mapping.end // PAGE, _ENTRIES):
        if counted <= 0:
            return
        entries = _read_entries(descriptor, pid, at, min(_ENTRIES, mapping.end // PAGE - at))
        kinds = _kinds_of(entries)
        # The zero page is neither counted nor exclusive, and nor is memory that a fork still shares: it can be told
        # from that where all that is counted has been seen.
        unsure = (entries & (_PRESENT | _FILE | _EXCLUSIVE)) == _PRESENT
        counted -= int(np.count_nonzero((kinds != 0) & ~unsure))
        if counted <= 0:
            kinds[unsure] |= np.uint8(ZERO)
        yield _runs_in(kinds, at)


def _kinds_of(entries: U64) -> U8:
    kinds = np.zeros(len(entries), np.uint8)
    for bit, kind in ((_PRESENT, PRESENT), (_SWAPPED, SWAPPED), (_FILE, FILE), (_GUARD, GUARD)):
        kinds |= np.where(entries & bit, np.uint8(kind), np.uint8(0))
    frame = zero_frame()
    if frame:
        zero = (entries & (_PRESENT | _FRAME)) == (_PRESENT | frame)
        kinds |= np.where(zero, np.uint8(ZERO), np.uint8(0))
    kinds[(kinds & np.uint8(PRESENT | SWAPPED | GUARD)) == 0] = 0
    return kinds


def _runs_in(kinds: U8, page: int) -> Tuple[U64, U64, U8]:
    edges = np.flatnonzero(np.diff(kinds)) + 1
    firsts = np.concatenate((np.zeros(min(len(kinds), 1), np.int64), edges))
    behind = np.append(edges, len(kinds))[: len(firsts)]
    kept = kinds[firsts] != 0
    starts, ends = ((at[kept].astype(np.uint64) + np.uint64(page)) * np.uint64(PAGE) for at in (firsts, behind))
    return starts, ends, kinds[firsts][kept]


def _read_entries(descriptor: int, pid: int, page: int, count: int) -> U64:
    try:
        data = os.pread(descriptor, 8 * count, 8 * page)
    except (OSError, OverflowError):
        data = b""
    if len(data) < 8 * count:
        if not os.path.exists(f"/proc/{pid}/task"):
            raise gone(pid)
        raise FaultError(page * PAGE, count * PAGE, "the page map")
    return np.frombuffer(data, np.uint64)


@lru_cache(maxsize=None)
def zero_frame() -> np.uint64:
    """Return the frame number of the kernel's zero page; 0 where it is kept secret: root alone is told."""
    area = mmap.mmap(-1, PAGE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS, prot=mmap.PROT_READ)
    page = np.frombuffer(area, np.uint64)
    page.any()  # a page that was only read is the zero page
    descriptor = open_proc(os.getpid(), "pagemap")
    try:
        (entry,) = _read_entries(descriptor, os.getpid(), int(page.ctypes.data) // PAGE, 1).tolist()
    finally:
        os.close(descriptor)
    frame: np.uint64 = np.uint64(entry) & _FRAME
    return frame


# -- runs and mappings ----------------------------------------------------------------------------------


def _split(mappings: Sequence[Mapping], runs: Runs) -> Tuple[Runs, "npt.NDArray[np.int64]"]:
    """Cut runs where mappings begin and end; return also which mapping each part is in."""
    lows, highs = columns([(one.start, one.end) for one in mappings])
    edges = np.unique(np.concatenate((lows, highs, runs.starts, runs.ends)))
    if len(edges) < 2:
        return Runs(edges[:0], edges[:0], runs.kinds[:0]), np.empty(0, np.int64)
    starts, ends = edges[:-1], edges[1:]
    run, of = Coverage(runs.starts, runs.ends).index(starts), Coverage(lows, highs).index(starts)
    kept = (run >= 0) & (of >= 0)
    return Runs(starts[kept], ends[kept], runs.kinds[run[kept]]), of[kept]


def _each(of: "npt.NDArray[np.int64]", facts: Sequence[bool]) -> Mask:
    picked: Mask = np.array(facts, np.bool_)[of] if facts else np.zeros(len(of), np.bool_)
    return picked


def _coverage(parts: Runs, kept: Mask) -> Coverage:
    return Coverage(*joined((parts.starts[kept], parts.ends[kept])))
