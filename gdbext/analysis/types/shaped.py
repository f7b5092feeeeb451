"""Elements and bins of tables that a shape describes: known also where a program has no type information."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Iterable, Iterator, Optional, Sequence

import numpy as np

from gdbext.analysis.tables.search import Looked
from gdbext.analysis.types.blockwords import Words
from gdbext.analysis.types.claims import Sheet
from gdbext.analysis.types.model import MEDIUM, NO_CONFIDENCE, SHAPE
from gdbext.heap.model import U64
from gdbext.kernels import find_blocks
from gdbext.structures.walk.model import Table


@dataclass(frozen=True)
class ShapedTable:
    """What a walk along one table has found.

    :param shape: its name.
    :param element_type: of its elements, or None where the program does not say.
    :param elements: their addresses.
    :param bins: the addresses of its arrays of bins.
    """

    shape: str
    element_type: Optional[str]
    elements: U64
    bins: Sequence[int] = ()


def shaped_tables(looked: Looked) -> Iterator[ShapedTable]:
    """Iterate over the tables that a variable leads to, those without a shape's name left out."""
    for walked in looked.walked:
        table = walked.table
        shape = getattr(table, "shape", "")
        if shape and walked.problem is None:
            arrays = [one.address for one in table.arrays if not one.segment] if isinstance(table, Table) else []
            yield ShapedTable(shape, walked.element_type, walked.elements, arrays)


def put_shaped(words: Words, sheet: Sheet, tables: Iterable[ShapedTable]) -> None:
    """Type the blocks that begin with elements or bins, and of which nothing surer is known.

    One with more elements further on is named as an array is.
    """
    for one in tables:
        element = one.element_type or f"element of {one.shape}"
        _put(words, sheet, one.elements, element)
        _put(words, sheet, np.array(one.bins, np.uint64), f"bins of {one.shape}")


def _put(words: Words, sheet: Sheet, addresses: U64, name: str) -> None:
    within = find_blocks(words.index, addresses)
    held, number = np.unique(within[within >= 0], return_counts=True)
    starts = words.rows_at(addresses)
    for several in (False, True):
        rows = held[(number > 1) == several]
        rows = rows[np.isin(rows, starts) & (sheet.confidence[rows] == NO_CONFIDENCE)]
        if len(rows):
            sheet.put(rows, sheet.code_of(f"{name}[]" if several else name, SHAPE), MEDIUM)
