"""What each arena adds up to."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Dict, List

import numpy as np

from gdbext.heap.glibc.view import GlibcHeap
from gdbext.heap.model import CACHED_STATES, State

BINNED = (State.FASTBIN, State.UNSORTED, State.SMALL, State.LARGE, State.FREE)


@dataclass(frozen=True)
class Tally:
    """Blocks and usable bytes of one arena."""

    in_use_blocks: int
    in_use_bytes: int
    tcache_blocks: int
    tcache_bytes: int
    bins_blocks: int
    bins_bytes: int
    top_bytes: int

    @property
    def free_bytes(self) -> int:
        """What no caller of malloc holds: cached, in bins, in top."""
        return self.tcache_bytes + self.bins_bytes + self.top_bytes


def tally_arenas(heap: GlibcHeap) -> List[Tally]:
    """Return one tally an arena, in the order of ``heap.arenas``."""
    count = len(heap.arenas)
    columns: Dict[str, "np.typing.NDArray[np.uint64]"] = {}
    groups = {"in_use": (State.IN_USE,), "tcache": CACHED_STATES, "bins": BINNED, "top": (State.TOP,)}
    for name, states in groups.items():
        chosen = heap.blocks.having(states)
        owner = heap.blocks.owner[chosen]
        columns[name] = np.bincount(owner, minlength=count).astype(np.uint64)
        columns[name + "_bytes"] = sum_by(owner, heap.blocks.size[chosen], count)
    return [_tally(columns, position) for position in range(count)]


def _tally(columns: Dict[str, "np.typing.NDArray[np.uint64]"], position: int) -> Tally:
    names = ("in_use", "in_use_bytes", "tcache", "tcache_bytes", "bins", "bins_bytes", "top_bytes")
    return Tally(*(int(columns[name][position]) for name in names))


def sum_by(
    owner: "np.typing.NDArray[np.uint32]", size: "np.typing.NDArray[np.uint64]", count: int
) -> "np.typing.NDArray[np.uint64]":
    """Return exact 64-bit sums of ``size`` by ``owner``; float weights would lose bytes."""
    sums = np.zeros(count, np.uint64)
    np.add.at(sums, owner, size)
    return sums
