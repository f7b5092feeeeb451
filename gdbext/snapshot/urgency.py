"""What is copied first where there may not be time for all: what an analysis cannot do without."""

from __future__ import annotations

from typing import Sequence

import numpy as np

from gdbext.memory.elf.corenotes import NT_PRSTATUS
from gdbext.memory.intervals import Coverage, Intervals, columns, shared
from gdbext.memory.live.mappings import Mapping
from gdbext.tracing.tracer import StoppedThread

_SMALL = 4 << 20  # bytes in RAM: an arena's head, tables of an allocator


def in_order(pages: Intervals, mappings: Sequence[Mapping], threads: Sequence[StoppedThread]) -> Intervals:
    """Return runs of pages in the order in which they are to be copied.

    Writable memory of files (variables) and what registers of a thread point into (stacks, thread-local memory) come
    first, then small mappings, in which allocators keep their tables, then the others, those with less in RAM before.
    Memory that cannot be written to is last: files have it.
    """
    home = Coverage(*columns((one.start, one.end) for one in mappings))
    starts, ends, _ = shared(Coverage(*pages), home)
    words = [
        np.frombuffer(data[: len(data) // 8 * 8], np.uint64) for one in threads for data in [one.sets[NT_PRSTATUS]]
    ]
    pointed = home.index(np.concatenate([np.empty(0, np.uint64), *words]))
    rank = np.array([_rank(one) for one in mappings], np.float64)
    small = np.array([one.rss <= _SMALL and "w" in one.permissions for one in mappings], np.bool_)
    pointed = pointed[pointed >= 0]
    rank[pointed[small[pointed]]] = 0
    order = np.argsort(rank[home.index(starts)], kind="stable")
    return starts[order], ends[order]


def _rank(mapping: Mapping) -> float:
    if "w" not in mapping.permissions:
        return float(1 << 62)
    if mapping.name == "[stack]" or (mapping.inode and not mapping.shared):
        return 0.0
    return float(1 + mapping.rss)
