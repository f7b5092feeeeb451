"""Runs of free bytes as rows, largest first."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Iterator, Optional, Tuple

import numpy as np

from gdbext.analysis.footprint.runs import NONE, Runs, find_runs
from gdbext.heap.model import Heap
from gdbext.report import Kind, Rows, column


@dataclass(frozen=True)
class RunRow:
    """A run of free bytes between live blocks."""

    address: int = column("free run", Kind.ADDRESS)
    size: int = column("bytes", Kind.BYTES)
    pages: int = column("in whole pages", Kind.BYTES)
    before: Optional[int] = column("block before", Kind.ADDRESS)
    before_size: Optional[int] = column("its size", Kind.BYTES)
    after: Optional[int] = column("pinned by", Kind.ADDRESS)
    after_size: Optional[int] = column("its size", Kind.BYTES)


def largest_runs(heap: Heap, page_size: int) -> Rows:
    """Return the pinned runs of a heap that hold at least one whole page, largest first."""
    runs, _ = find_runs(heap, page_size)
    chosen = runs.select(runs.pinned & (runs.pages > 0))
    ordered = chosen.select(np.argsort(chosen.bytes, kind="stable")[::-1])
    return Rows(lambda: _rows(heap, ordered), RunRow, len(ordered), reads=0)


def _rows(heap: Heap, runs: Runs) -> Iterator[RunRow]:
    for at in range(len(runs)):
        before = _block(heap, int(runs.before[at]))
        after = _block(heap, int(runs.after[at]))
        yield RunRow(int(runs.start[at]), int(runs.bytes[at]), int(runs.pages[at]), *before, *after)


def _block(heap: Heap, row: int) -> Tuple[Optional[int], Optional[int]]:
    if row == NONE:
        return None, None
    return int(heap.blocks.address[row]), int(heap.blocks.size[row])
