"""Rows that begin with a class's virtual table: one object, or an array of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Iterator, List, Optional

import numpy as np
import numpy.typing as npt

from gdbext.analysis.types.blockwords import Words
from gdbext.analysis.types.claims import Sheet
from gdbext.analysis.types.fits import Fits
from gdbext.analysis.types.flattened import Layout, Layouts
from gdbext.analysis.types.languages.vtables import Table, TableReader, candidates, find_tables
from gdbext.analysis.types.model import HIGH, MEDIUM, VTABLE
from gdbext.heap.model import U64, Mask
from gdbext.progress import Progress
from gdbext.target import Target

I64 = npt.NDArray[np.int64]

_LOOKED_THROUGH = 64  # words of a block, for a second object


@dataclass(frozen=True)
class Objects:
    """Blocks of one class whose layout is known.

    :param count: objects in each.
    """

    layout: Layout
    rows: I64
    count: I64
    confidence: int


def put_classes(
    target: Target, words: Words, sheet: Sheet, reader: TableReader, progress: Progress
) -> "tuple[I64, U64, list[Table]]":
    """Find the rows that begin with a virtual table.

    :return: the rows, their first words, and the tables.
    """
    rows, values = candidates(target, words, sheet.rows(), progress)
    tables = list(find_tables(reader, values))
    order = np.argsort(values, kind="stable")
    return rows[order], values[order], tables


def type_classes(
    sheet: Sheet, words: Words, fits: Fits, layouts: Layouts, found: "tuple[I64, U64, list[Table]]"
) -> Iterator[Objects]:
    """Type the rows of each table; return the objects whose members are known."""
    rows, values, tables = found
    for table in tables:
        first, last = (int(np.searchsorted(values, np.uint64(table.address), side)) for side in ("left", "right"))
        own = np.sort(rows[first:last])
        yield from _type_rows(sheet, words, fits, table, layouts.find(table.name), own)


def _type_rows(
    sheet: Sheet, words: Words, fits: Fits, table: Table, layout: Optional[Layout], rows: I64
) -> Iterator[Objects]:
    starts = layout.starts if layout is not None else frozenset()
    code = sheet.code_of(table.shown, VTABLE, starts)
    sure = HIGH if table.certain else MEDIUM
    size = layout.size if layout is not None else int(words.index.size[rows].min(initial=1 << 62))
    tight = fits.tight(rows, size)
    loose = rows[~tight]
    many = _repeats(words, loose, table.address)
    several = code if not many.any() else sheet.code_of(f"{table.shown}[]", VTABLE, starts)
    # The smallest block may be larger than the object only by what the allocator rounds up.
    sheet.put(rows[tight], code, sure)
    sheet.put(loose[~many], code, MEDIUM)
    sheet.put(loose[many], several, MEDIUM)
    if layout is None or not layout.size:
        return
    whole = words.index.size[rows] >= np.uint64(layout.size)
    one = rows[tight & whole]
    yield Objects(layout, one, np.ones(len(one), np.int64), sure)
    others = loose[words.index.size[loose] >= np.uint64(layout.size)]
    yield Objects(layout, others, np.ones(len(others), np.int64), MEDIUM)


def _repeats(words: Words, rows: I64, value: int) -> Mask:
    """Return which blocks hold a word again behind their first: objects side by side."""
    found = np.zeros(len(rows), np.bool_)
    for at in range(1, _LOOKED_THROUGH):
        offset = np.uint64(at * words.size)
        rest = np.flatnonzero(~found & (words.index.size[rows] >= offset + np.uint64(words.size)))
        if not len(rest):
            break
        values, known = words.in_blocks(words.index.address[rows[rest]] + offset)
        found[rest] = known & (values == np.uint64(value))
    return found


def arrays_of(words: Words, rows: I64, values: U64, tables: List[Table]) -> "tuple[I64, U64]":
    """Return the rows that begin with a number of objects and then a virtual table: what ``new X[n]`` makes."""
    known = np.array(sorted(table.address for table in tables), np.uint64)
    count_rows = rows[(values > 0) & (values < np.uint64(1 << 32))]
    seconds, there = words.in_blocks(words.index.address[count_rows] + np.uint64(words.size))
    held: Mask = there & np.isin(seconds, known)
    return count_rows[held], seconds[held]
