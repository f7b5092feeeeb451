"""The columns that ``blocks list`` can show, and rows of any choice of them."""

from __future__ import annotations

from dataclasses import dataclass, fields, make_dataclass
from functools import lru_cache
from typing import Any, Callable, List, Mapping, Optional, Sequence, Tuple

from gdbext.analysis.blocks.querycolumns import HeapColumns
from gdbext.analysis.reach.model import STATE_NAMES
from gdbext.analysis.types.model import CONFIDENCE_NAMES
from gdbext.columns import Batch, Column, constant
from gdbext.heap.model import State
from gdbext.memory.intervals import I64
from gdbext.report import Kind, Show, ThreadRef, column


@dataclass(frozen=True)
class BlockRow:
    """One block, with all columns that can be asked for; rows have some of them.

    :param address: user pointer.
    :param size: usable bytes.
    :type size: bytes
    :param state: ``in use``, ``mmapped``, ``tcache``, ``fastbin``, ``unsorted``, ``small``, ``large``, ``top``,
        ``free``, ``fencepost``, ``dirty``, ``muzzy``.
    :type state: word
    :param reach: ``reached``, ``possibly leaked``, ``leaked``; None: the block is not in use.
    :type reach: word
    :param reached_by_offset: bytes of the header behind which pointers lead to it, without which it would be possibly
        leaked; None: no.
    :param refs: other blocks in use, and words in roots, that point at or into it; None as ``reach``.
    :param type: what the block is, as in ``blocks types``; None as ``reach``.
    :param confidence: of the type: ``high``, ``medium``, ``low``; None as ``reach``, and of an unknown type.
    :type confidence: word
    :param arena: None: it belongs to none.
    :param thread: attached to its arena; None when that could not be found out.
    :param allocator: as in ``blocks summary``.
    """

    address: int = column("address", Kind.ADDRESS)
    size: int = column("size", Kind.COUNT)
    state: str = column("state")
    reach: Optional[str] = column("reach")
    reached_by_offset: Optional[int] = column("reached_by_offset", Kind.COUNT)
    refs: Optional[int] = column("refs", Kind.COUNT)
    type: Optional[str] = column("type")
    confidence: Optional[str] = column("confidence")
    arena: Optional[int] = column("arena", Kind.ADDRESS)
    thread: Optional[Tuple[ThreadRef, ...]] = column("thread", Kind.THREADS)
    allocator: str = column("allocator")


Maker = Callable[[HeapColumns, I64], Column]  # of some blocks, at positions in one heap

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


COLUMNS: Mapping[str, Maker] = {
    "address": lambda part, at: Column(part.heap.blocks.address[at]),
    "size": lambda part, at: Column(part.heap.blocks.size[at]),
    "state": lambda part, at: Column(part.heap.blocks.state[at], words=_STATES),
    "reach": lambda part, at: _by_row(part, at, part.live and part.live.reach.states, _REACH),
    "reached_by_offset": _offsets,
    "refs": lambda part, at: _by_row(part, at, part.live and part.live.refs),
    "type": _types,
    "confidence": _confidence,
    "arena": _arenas,
    "thread": lambda part, at: Column(part.owner[at], words=part.threads),
    "allocator": lambda part, at: constant(part.heap.allocator, len(at)),
}


@lru_cache(maxsize=64)
def type_of_rows(shown: Tuple[str, ...], beside: Tuple[str, ...] = ()) -> type:
    """Return the dataclass of rows with these columns, each of the name of its field.

    :param beside: columns that the text leaves out.
    """
    known = {each.name: each for each in fields(BlockRow)}
    declared: List[Any] = []
    for name in shown:
        show: Show = known[name].metadata["show"]
        declared.append((name, known[name].type, column(None if name in beside else name, show.kind)))
    return make_dataclass("BlockRow", declared, frozen=True)


def columns_of(part: HeapColumns, at: I64, names: Sequence[str]) -> Batch:
    """Return columns of some blocks of one heap.

    :param at: their positions.
    """
    return {name: COLUMNS[name](part, at) for name in names}
