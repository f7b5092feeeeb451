"""Which pages are in RAM, for any set of intervals; only a live local process can say.

A core holds pages that were swapped out and lacks pages that were not worth dumping, so it is never
taken as a measure of residency. Reading a live process's memory, as gdbext does, maps the kernel's zero
page where nothing was ever written, and brings swapped pages back: take the residency before the heaps
are walked. Zero pages are left out where the kernel's own count shows that there are some.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Iterable, List, Optional, Protocol, Sequence, Tuple

import numpy as np

from gdbext.errors import GdbextError, NoTargetError
from gdbext.heap.model import U64, Mask
from gdbext.memory.intervals import Coverage
from gdbext.memory.process import MappingUse, read_smaps, resident_pages, unshared_pages, zero_pages
from gdbext.progress import SILENT, Progress
from gdbext.target import Target

_TOP_HALF = 1 << 63  # [vsyscall] lies there, and its pages cannot be asked for


class Residency(Protocol):
    """Which bytes of a process are in RAM."""

    def resident(self, starts: U64, ends: U64) -> int:
        """Return the resident bytes of the intervals, to the byte: their share of each page."""

    def mappings(self) -> Sequence[MappingUse]:
        """Return the kernel's own count for each mapping."""


class PageResidency:
    """Residency from runs of resident pages.

    :param pages: disjoint and sorted.
    :param mappings: what the kernel counts.
    """

    def __init__(self, pages: Coverage, mappings: Sequence[MappingUse]) -> None:
        self._pages = pages
        self._mappings = mappings

    def resident(self, starts: U64, ends: U64) -> int:
        """Return the resident bytes of the intervals."""
        return self._pages.within(starts, ends)

    def mappings(self) -> Sequence[MappingUse]:
        """Return the kernel's own count for each mapping."""
        return self._mappings


@dataclass(frozen=True)
class Knowledge:
    """What is known of a target's residency.

    :param residency: None when nothing is.
    :param unknown: then the line that says why; else "".
    """

    residency: Optional[Residency] = None
    unknown: str = "residency unknown: a core does not say which pages were in RAM"


OF_A_CORE = Knowledge()


def residency_of(target: Target, progress: Progress = SILENT) -> Knowledge:
    """Return which pages of a target are in RAM, or why nobody knows.

    :raises NoTargetError: when the process is gone.
    """
    if not target.live:
        return OF_A_CORE
    if target.local_pid is None:
        return Knowledge(None, "residency unknown: the process is not one of this machine")
    try:
        return Knowledge(read_residency(target.local_pid, target.abi.page_size, progress), "")
    except NoTargetError:
        raise
    except GdbextError as error:
        return Knowledge(None, f"residency unknown: {error}")


def read_residency(pid: int, page_size: int, progress: Progress = SILENT) -> Residency:
    """Read which pages of a local process are in RAM.

    :param page_size: bytes.
    :raises GdbextError: when the process is gone or its page map may not be read.
    """
    uses = read_smaps(pid)
    runs = [(np.empty(0, np.uint64), np.empty(0, np.uint64))]
    for at, use in enumerate(uses):
        progress.at("page maps", at, len(uses))
        runs.append(_resident_runs(pid, use, page_size))
    return PageResidency(_coverage(runs), uses)


def _coverage(runs: Iterable[Tuple[U64, U64]]) -> Coverage:
    starts: List[U64] = []
    ends: List[U64] = []
    for first, last in runs:
        starts.append(first)
        ends.append(last)
    return Coverage(np.concatenate(starts), np.concatenate(ends))


def _resident_runs(pid: int, use: MappingUse, page_size: int) -> Tuple[U64, U64]:
    """Return the runs of resident pages; the page map is read only where smaps leaves a doubt."""
    if use.rss == 0 or use.start >= _TOP_HALF:
        return np.empty(0, np.uint64), np.empty(0, np.uint64)
    if use.rss == use.end - use.start:
        return np.array([use.start], np.uint64), np.array([use.end], np.uint64)
    present = resident_pages(pid, use.start, use.end)
    if int(np.count_nonzero(present)) * page_size > use.rss:
        present = present & ~zero_pages(pid, use.start, use.end)
    if int(np.count_nonzero(present)) * page_size > use.rss:
        present = without_zero_page(present, unshared_pages(pid, use.start, use.end), use.rss // page_size)
    return page_runs(present, use.start, page_size)


def without_zero_page(present: Mask, unshared: Mask, counted: int) -> Mask:
    """Return the pages present, without those that are surely the zero page.

    :param unshared: pages that cannot be the zero page; others may be, or are shared after a fork.
    :param counted: pages that the kernel counts, which leaves the zero page out.
    """
    sure = present & unshared
    return sure if int(np.count_nonzero(sure)) >= counted else present


def page_runs(present: Mask, start: int, page_size: int) -> Tuple[U64, U64]:
    """Return the address runs of the pages that are present.

    :param present: one flag a page, from ``start`` on.
    """
    edges = np.flatnonzero(np.diff(np.concatenate(([False], present, [False])).astype(np.int8)))
    addresses = edges.astype(np.uint64) * np.uint64(page_size) + np.uint64(start)
    return addresses[::2], addresses[1::2]
