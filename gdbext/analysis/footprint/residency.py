"""Which pages are in RAM, for any set of intervals; only a live local process can say.

A core holds pages that were swapped out and lacks pages that were not worth dumping, so it is never
taken as a measure of residency. Of a process it is what its memory knows of its pages; the kernel's shared zero page,
which RSS leaves out, does not count.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Optional, Protocol, Sequence

from gdbext.errors import GdbextError, NoTargetError
from gdbext.heap.model import U64
from gdbext.memory.intervals import Coverage
from gdbext.memory.live.mappings import Mapping, read_mappings
from gdbext.memory.live.presence import Presence, read_presence
from gdbext.memory.live.procmem import ProcessMemory
from gdbext.target import Target


class Residency(Protocol):
    """Which bytes of a process are in RAM."""

    def resident(self, starts: U64, ends: U64) -> int:
        """Return the resident bytes of the intervals, to the byte: their share of each page."""

    def mappings(self) -> Sequence[Mapping]:
        """Return the kernel's own count for each mapping."""


class PageResidency:
    """Residency from runs of resident pages.

    :param pages: disjoint and sorted.
    :param mappings: what the kernel counts.
    """

    def __init__(self, pages: Coverage, mappings: Sequence[Mapping]) -> None:
        self._pages = pages
        self._mappings = mappings

    def resident(self, starts: U64, ends: U64) -> int:
        """Return the resident bytes of the intervals."""
        return self._pages.within(starts, ends)

    def mappings(self) -> Sequence[Mapping]:
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


def residency_of(target: Target) -> Knowledge:
    """Return which pages of a target are in RAM, or why nobody knows.

    :raises NoTargetError: when the process is gone.
    """
    if target.presence is not None:
        return Knowledge(residency_by(target.presence), "")
    if not target.live:
        return OF_A_CORE
    if target.local_pid is None:
        return Knowledge(None, "residency unknown: the process is not one of this machine")
    try:
        presence = _presence(target, target.local_pid)
        if not presence.known:
            return Knowledge(None, "residency unknown: this kernel has no page maps")
        return Knowledge(residency_by(presence), "")
    except NoTargetError:
        raise
    except GdbextError as error:
        return Knowledge(None, f"residency unknown: {error}")


def _presence(target: Target, pid: int) -> Presence:
    if isinstance(target.memory, ProcessMemory):
        return target.memory.presence
    return read_presence(pid, read_mappings(pid))


def residency_by(presence: Presence) -> Residency:
    """Return which pages are in RAM by what is known of a process's pages."""
    return PageResidency(presence.resident, presence.mappings)
