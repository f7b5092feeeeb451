"""What each arena adds up to."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Dict, List

import numpy as np

from gdbext.heap.glibc.view import GlibcHeap
from gdbext.heap.model import CACHED_STATES, U64, Blocks, State
from gdbext.memory.intervals import slices

BINNED = (State.FASTBIN, State.UNSORTED, State.SMALL, State.LARGE, State.FREE)


@dataclass(frozen=True)
class Tally:
    """Blocks and usable bytes of one arena."""

    in_use_blocks: int
    in_use_bytes: int
    tcache_blocks: int
    tcache_bytes: int
    bins_bytes: int
    top_bytes: int

    @property
    def free_bytes(self) -> int:
        """What no caller of malloc holds: cached, in bins, in top."""
        return self.tcache_bytes + self.bins_bytes + self.top_bytes


_GROUPS = {"in_use": (State.IN_USE,), "tcache": CACHED_STATES, "bins": BINNED, "top": (State.TOP,)}


def tally_arenas(heap: GlibcHeap) -> List[Tally]:
    """Return one tally an arena, in the order of ``heap.arenas``."""
    count = len(heap.arenas)
    columns = {name + what: np.zeros(count, np.uint64) for name in _GROUPS for what in ("", "_bytes")}
    for part in slices(len(heap.blocks)):
        _add(heap.blocks.select(part), columns)
    return [_tally(columns, position) for position in range(count)]


def _add(blocks: Blocks, columns: Dict[str, U64]) -> None:
    for name, states in _GROUPS.items():
        chosen = blocks.having(states)
        owner = blocks.owner[chosen]
        columns[name] += np.bincount(owner, minlength=len(columns[name])).astype(np.uint64)
        np.add.at(columns[name + "_bytes"], owner, blocks.size[chosen])  # exact: float weights would lose bytes


def _tally(columns: Dict[str, U64], position: int) -> Tally:
    names = ("in_use", "in_use_bytes", "tcache", "tcache_bytes", "bins_bytes", "top_bytes")
    return Tally(*(int(columns[name][position]) for name in names))
