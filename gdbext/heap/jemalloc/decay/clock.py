"""What the time is for a jemalloc: the machine's clock, or the newest moment that its memory tells of.

Source: ``nstime.c``: CLOCK_MONOTONIC_COARSE or CLOCK_MONOTONIC, which count from the same start, in all versions.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Optional, Sequence

from gdbext.heap.jemalloc.decay.curve import is_drawn
from gdbext.heap.jemalloc.model import ArenaState
from gdbext.memory.live import monotonic
from gdbext.target import Target

SECOND = 1_000_000_000
_OLDEST = 1 << 62  # ns since boot that no machine reaches: 146 years


@dataclass(frozen=True)
class Clock:
    """The newest moment that is known of, in ns of the clock that jemalloc uses.

    :param now: None when nothing helps.
    :param source: how it is known, in words.
    :param exact: whether it is the moment of the stop, rather than one that it cannot be before.
    """

    now: Optional[int]
    source: str
    exact: bool = False


def read_clock(target: Target, arenas: Sequence[ArenaState]) -> Clock:
    """Return the time: the machine's for a process on it, else the newest timestamp in memory."""
    remembered = newest_moment(arenas)
    now = find_monotonic(target)
    if now is not None and (remembered.now is None or now >= remembered.now - SECOND):
        return Clock(max(now, remembered.now or 0), "this machine's monotonic clock", exact=True)
    return remembered


def find_monotonic(target: Target) -> Optional[int]:
    """Return what CLOCK_MONOTONIC tells a process of this machine, in ns; None when it is none."""
    if target.stopped_clock is not None or not target.live or target.local_pid is None:
        return target.stopped_clock
    return monotonic.find_monotonic(target.local_pid)


def newest_moment(arenas: Sequence[ArenaState]) -> Clock:
    """Return the newest timestamp of any arena; the first arena's creation alone says nothing of what came after."""
    moments = [(arena.create_time, f"arena {arena.index} was made") for arena in arenas]
    created = [moment for moment, _ in moments if 0 < moment < _OLDEST]
    for arena in arenas:
        for kind, state in (("dirty", arena.decay_dirty), ("muzzy", arena.decay_muzzy)):
            if is_drawn(state):
                moments.append((state.epoch, f"the epoch of arena {arena.index}'s {kind} pages"))
    newest, words = max((one for one in moments if 0 < one[0] < _OLDEST), default=(0, ""))
    if not newest or newest <= min(created, default=newest):
        return Clock(None, "no timestamp in memory is newer than the first arena")
    return Clock(newest, f"the newest timestamp in memory: {words}; it may be later by any time")
