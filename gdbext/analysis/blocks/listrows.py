"""The columns that ``blocks list`` can show, and rows of any choice of them."""

from __future__ import annotations

from dataclasses import dataclass, fields, make_dataclass
from functools import lru_cache
from typing import Any, Callable, Iterator, List, Mapping, Optional, Tuple

import numpy as np

from gdbext.analysis.blocks.querycolumns import HeapColumns
from gdbext.analysis.reach.model import STATE_NAMES
from gdbext.analysis.types.model import CONFIDENCE_NAMES
from gdbext.heap.model import State
from gdbext.memory.intervals import I64
from gdbext.report import Kind, column


@dataclass(frozen=True)
class Cells:
    """How one column is made.

    :param make: returns the cells of some blocks; None is not known.
    """

    kind: Kind
    make: Callable[[HeapColumns, I64], List[Any]]


def _states(part: HeapColumns, at: I64) -> List[Any]:
    labels = {int(state): state.label for state in State}
    return [labels[state] for state in part.heap.blocks.state[at].tolist()]


def _arenas(part: HeapColumns, at: I64) -> List[Any]:
    addresses = part.arena_addresses.tolist()
    addresses[-1] = None
    return [addresses[owner] for owner in part.owner[at].tolist()]


def _threads(part: HeapColumns, at: I64) -> List[Any]:
    return [part.threads[owner] for owner in part.owner[at].tolist()]


def _by_row(part: HeapColumns, at: I64, values: Any, name: Callable[[int], Any]) -> List[Any]:
    """Return what a column by row says of blocks, None where they have no row."""
    told, known = part.by_row(values, at)
    return [name(value) if sure else None for value, sure in zip(told.tolist(), known.tolist())]


def _reach(part: HeapColumns, at: I64) -> List[Any]:
    states = part.live.reach.states if part.live else None
    return _by_row(part, at, states, lambda state: STATE_NAMES[state])


def _offsets(part: HeapColumns, at: I64) -> List[Any]:
    offsets = part.live.reach.header_offsets if part.live else None
    return _by_row(part, at, offsets, lambda offset: offset or None)


def _types(part: HeapColumns, at: I64) -> List[Any]:
    types = part.live.types if part.live else None
    if types is None:
        return [None] * len(at)
    return _by_row(part, at, types.code, lambda code: types.types[code].name)


def _confidence(part: HeapColumns, at: I64) -> List[Any]:
    types = part.live.types if part.live else None
    return _by_row(part, at, types.confidence if types else None, lambda level: CONFIDENCE_NAMES[level] or None)


def _references(part: HeapColumns, at: I64) -> List[Any]:
    return _by_row(part, at, part.live.refs if part.live else None, int)


COLUMNS: Mapping[str, Cells] = {
    "address": Cells(Kind.ADDRESS, lambda part, at: part.heap.blocks.address[at].tolist()),
    "size": Cells(Kind.COUNT, lambda part, at: part.heap.blocks.size[at].tolist()),
    "state": Cells(Kind.TEXT, _states),
    "reach": Cells(Kind.TEXT, _reach),
    "reached_by_offset": Cells(Kind.COUNT, _offsets),
    "refs": Cells(Kind.COUNT, _references),
    "type": Cells(Kind.TEXT, _types),
    "confidence": Cells(Kind.TEXT, _confidence),
    "arena": Cells(Kind.ADDRESS, _arenas),
    "thread": Cells(Kind.THREADS, _threads),
    "allocator": Cells(Kind.TEXT, lambda part, at: [part.heap.allocator] * len(at)),
}


@lru_cache(maxsize=64)
def type_of_rows(shown: Tuple[str, ...], beside: Tuple[str, ...] = ()) -> type:
    """Return the dataclass of rows with these columns, each of the name of its field.

    :param beside: columns that the text leaves out.
    """
    declared: List[Any] = [
        (name, Optional[Any], column(None if name in beside else name, COLUMNS[name].kind)) for name in shown
    ]
    return make_dataclass("BlockRow", declared, frozen=True)


def rows_of(part: HeapColumns, at: I64, row_type: Any) -> Iterator[Any]:
    """Iterate over the rows of some blocks of one heap.

    :param at: their positions.
    :param row_type: from :func:`type_of_rows`.
    """
    names = [each.name for each in fields(row_type)]
    for start in range(0, len(at), 1 << 12):
        piece = np.asarray(at[start : start + (1 << 12)])
        yield from map(row_type, *(COLUMNS[name].make(part, piece) for name in names))
