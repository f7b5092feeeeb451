"""The time as a process of this machine reads it."""

from __future__ import annotations

import time
from typing import Optional

_SECOND = 1_000_000_000


def find_monotonic(pid: int) -> Optional[int]:
    """Return what ``CLOCK_MONOTONIC`` tells a process of this machine now, in ns; None when that is not known."""
    theirs, ours = _namespace_offset(str(pid)), _namespace_offset("self")
    if theirs is None or ours is None:
        return None
    return time.clock_gettime_ns(time.CLOCK_MONOTONIC) - ours + theirs


def _namespace_offset(process: str) -> Optional[int]:
    """Return how far a process's time namespace moves the clock, in ns; None when that cannot be read."""
    try:
        with open(f"/proc/{process}/timens_offsets", encoding="ascii") as stream:
            rows = [line.split() for line in stream]
    except FileNotFoundError:
        return 0  # kernels without time namespaces
    except OSError:
        return None
    return sum(int(row[1]) * _SECOND + int(row[2]) for row in rows if row[0] == "monotonic")
