"""Runs of free bytes as rows, largest first."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Iterator, Optional, Tuple

import numpy as np

from gdbext.analysis.footprint.runs import NONE, Runs, find_runs
from gdbext.columns import ROWS_AT_ONCE, Batch, Column
from gdbext.heap.model import Heap
from gdbext.memory.intervals import I64, slices
from gdbext.report import Kind, Rows, column


@dataclass(frozen=True)
class RunRow:
    """A run of free bytes between live blocks.

    :param address: user pointer of the first block of a run of free bytes below something live; largest run first.
    :param size: usable bytes of its blocks.
    :param pages: of the whole pages inside.
    :param before: the live block that directly precedes; None when it is something else.
    :param before_size: usable bytes of it.
    :param after: the live block that directly follows and pins it; None when it is something else.
    :param after_size: usable bytes of it.
    """

    address: int = column("free run", Kind.ADDRESS)
    size: int = column("bytes", Kind.BYTES)
    pages: int = column("in whole pages", Kind.BYTES)
    before: Optional[int] = column("block before", Kind.ADDRESS)
    before_size: Optional[int] = column("its size", Kind.BYTES)
    after: Optional[int] = column("pinned by", Kind.ADDRESS)
    after_size: Optional[int] = column("its size", Kind.BYTES)


def largest_runs(heap: Heap, page_size: int) -> Rows[RunRow]:
    """Return the pinned runs of a heap that hold at least one whole page, largest first."""
    runs, _ = find_runs(heap, page_size)
    chosen = runs.select(runs.pinned & (runs.pages > 0))
    ordered = chosen.select(np.argsort(chosen.bytes, kind="stable")[::-1])
    return Rows.of_columns(lambda _: _columns(heap, ordered), RunRow, len(ordered), reads=0)


def _columns(heap: Heap, runs: Runs) -> Iterator[Batch]:
    for part in slices(len(runs), ROWS_AT_ONCE):
        before, before_size = _blocks(heap, runs.before[part])
        after, after_size = _blocks(heap, runs.after[part])
        yield {
            "address": Column(runs.start[part]),
            "size": Column(runs.bytes[part]),
            "pages": Column(runs.pages[part]),
            "before": before,
            "before_size": before_size,
            "after": after,
            "after_size": after_size,
        }


def _blocks(heap: Heap, rows: I64) -> Tuple[Column, Column]:
    """Return addresses and sizes of blocks, not known where there is none."""
    known = rows != NONE
    at = np.where(known, rows, 0)
    return Column(heap.blocks.address[at], known), Column(heap.blocks.size[at], known)
