"""The columns that ``blocks list`` can show, and rows of any choice of them."""

from __future__ import annotations

from dataclasses import make_dataclass
from functools import lru_cache
from typing import Any, Callable, List, Mapping, NamedTuple, Optional, Sequence, Tuple

from gdbext.analysis.blocktypes.model import CONFIDENCE_NAMES
from gdbext.analysis.querycolumns import HeapColumns
from gdbext.analysis.reach.model import STATE_NAMES
from gdbext.columns import Batch, Column, constant
from gdbext.heap.model import State
from gdbext.memory.intervals import I64
from gdbext.report import Kind, column


class Cells(NamedTuple):
    """How one column is made of some blocks, at positions in one heap."""

    kind: Kind
    make: Callable[[HeapColumns, I64], Column]


_STATES = [state.label for state in State]
_REACH = [STATE_NAMES[state] for state in sorted(STATE_NAMES)]
_CONFIDENCE = [name or None for name in CONFIDENCE_NAMES]


def _by_row(part: HeapColumns, at: I64, values: Any, words: Optional[Sequence[Any]] = None) -> Column:
    """Return what a column by row says of blocks, not known where they have no row."""
    return Column(*part.by_row(values, at), words)


def _offsets(part: HeapColumns, at: I64) -> Column:
    offsets, known = part.by_row(part.live.reach.header_offsets if part.live else None, at)
    return Column(offsets, known & (offsets != 0))


def _types(part: HeapColumns, at: I64) -> Column:
    types = part.live.types if part.live else None
    if types is None:
        return constant(None, len(at))
    return _by_row(part, at, types.code, part.type_names)


def _confidence(part: HeapColumns, at: I64) -> Column:
    types = part.live.types if part.live else None
    return _by_row(part, at, types.confidence if types else None, _CONFIDENCE)


def _arenas(part: HeapColumns, at: I64) -> Column:
    return Column(part.owner[at], words=[*(arena.address for arena in part.heap.arenas), None])


COLUMNS: Mapping[str, Cells] = {
    "address": Cells(Kind.ADDRESS, lambda part, at: Column(part.heap.blocks.address[at])),
    "size": Cells(Kind.COUNT, lambda part, at: Column(part.heap.blocks.size[at])),
    "state": Cells(Kind.TEXT, lambda part, at: Column(part.heap.blocks.state[at], words=_STATES)),
    "reach": Cells(Kind.TEXT, lambda part, at: _by_row(part, at, part.live and part.live.reach.states, _REACH)),
    "reached_by_offset": Cells(Kind.COUNT, _offsets),
    "refs": Cells(Kind.COUNT, lambda part, at: _by_row(part, at, part.live and part.live.refs)),
    "type": Cells(Kind.TEXT, _types),
    "confidence": Cells(Kind.TEXT, _confidence),
    "arena": Cells(Kind.ADDRESS, _arenas),
    "thread": Cells(Kind.THREADS, lambda part, at: Column(part.owner[at], words=part.threads)),
    "allocator": Cells(Kind.TEXT, lambda part, at: constant(part.heap.allocator, len(at))),
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


def columns_of(part: HeapColumns, at: I64, names: Sequence[str]) -> Batch:
    """Return columns of some blocks of one heap.

    :param at: their positions.
    """
    return {name: COLUMNS[name].make(part, at) for name in names}
