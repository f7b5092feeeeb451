"""The values of a query's fields as columns of a heap's blocks, and which blocks a query is true of.

Truth has three values, as in SQL: a comparison with what is not known is neither true nor false, and so is its
negation. Only what is true is listed.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Callable, Iterable, List, Mapping, Optional, Sequence, Tuple

import numpy as np
import numpy.typing as npt

from gdbext.analysis.blocks.livefacts import Live
from gdbext.analysis.blocks.query import (
    FIELDS,
    LEVELS,
    NO_ARENA_WORD,
    REACH_NAMES,
    And,
    Compare,
    FieldKind,
    Node,
    Not,
    Value,
    each_compare,
    state_names,
)
from gdbext.analysis.types.model import BlockTypes
from gdbext.heap.model import U32, U64, Heap, Mask, State
from gdbext.report import ThreadRef

I32 = npt.NDArray[np.int32]
I64 = npt.NDArray[np.int64]
Numbers = npt.NDArray[Any]

_INDEX_BELOW = 4096  # as --arena: a number below is an arena's index, no address


@dataclass(frozen=True)
class Needs:
    """What must be worked out before fields have values."""

    reach: bool = False
    types: bool = False
    refs: bool = False

    def __or__(self, other: "Needs") -> "Needs":
        return Needs(self.reach or other.reach, self.types or other.types, self.refs or other.refs)


_NEEDS: Mapping[str, Needs] = {
    "reach": Needs(reach=True),
    "reached_by_offset": Needs(reach=True),
    "type": Needs(reach=True, types=True),
    "confidence": Needs(reach=True, types=True),
    "refs": Needs(reach=True, refs=True),
}


def needs_of_fields(fields: Iterable[str]) -> Needs:
    """Return what fields need that are sorted by or shown."""
    needs = Needs()
    for field in fields:
        needs |= _NEEDS.get(field, Needs())
    return needs


def needs_of_query(node: Optional[Node]) -> Needs:
    """Return what a query needs: states that the allocator knows need nothing."""
    compares = list(each_compare(node)) if node is not None else []
    needs = needs_of_fields(compare.field for compare in compares)
    asked = any(compare.field == "state" and any(_reach_chosen(compare)) for compare in compares)
    return needs | Needs(reach=asked)


@dataclass(frozen=True)
class Truth:
    """Of which blocks something is true, and of which false; of none both."""

    yes: Mask
    no: Mask


class HeapColumns:
    """The fields of one heap's blocks.

    :param number: which of the heaps it is.
    """

    def __init__(self, heap: Heap, number: int, live: Optional[Live] = None) -> None:
        self.heap = heap
        self.number = number
        self.live = live

    def __len__(self) -> int:
        return len(self.heap.blocks)

    @cached_property
    def rows(self) -> I32:
        """The row of each block in reachability, or -1."""
        rows = np.full(len(self), -1, np.int32)
        if self.live is not None:
            for mine, positions in self.live.reach.marked.blocks.for_each_of(self.heap, self.number):
                rows[positions] = mine
        return rows

    @cached_property
    def owner(self) -> U32:
        """Each block's arena, a position; that behind the last one is none."""
        owner: U32 = np.minimum(self.heap.blocks.owner, np.uint32(len(self.heap.arenas)))
        return owner

    def numbers(self, field: str, at: Optional[I64] = None) -> Tuple[Numbers, Optional[Mask]]:
        """Return a field's values as numbers that order as the field does, and which are known; None: all are.

        :param at: positions of blocks; None takes all.
        """
        values, known = _NUMBERS[field](self, slice(None) if at is None else at)
        return values, known

    def by_row(self, column: Optional[Numbers], at: "slice | I64") -> Tuple[Numbers, Mask]:
        """Return what a column by row says of blocks; not known where they have no row."""
        rows = self.rows[at]
        known: Mask = rows >= 0
        if column is None or not len(column):
            return np.zeros(len(rows), np.uint32), np.zeros(len(rows), np.bool_)
        return column[np.maximum(rows, 0)], known

    @cached_property
    def arena_addresses(self) -> U64:
        """Addresses by owner; 0 of none."""
        return np.array([*(arena.address for arena in self.heap.arenas), 0], np.uint64)

    @cached_property
    def threads(self) -> "Sequence[Optional[Tuple[ThreadRef, ...]]]":
        """Attached threads by owner."""
        return [*(arena.threads for arena in self.heap.arenas), ()]

    @cached_property
    def type_names(self) -> Sequence[str]:
        """The names of types by code; none where types are not known."""
        types = self.live.types if self.live else None
        return [each.name for each in types.types] if types else []


_Column = Callable[[HeapColumns, "slice | I64"], Tuple[Numbers, Optional[Mask]]]


def _types_of(columns: HeapColumns) -> Optional[BlockTypes]:
    return columns.live.types if columns.live else None


def _type_ranks(columns: HeapColumns, at: "slice | I64") -> Tuple[Numbers, Optional[Mask]]:
    types = _types_of(columns)
    if types is None:
        return columns.by_row(None, at)
    names = [each.name for each in types.types]
    ranks = np.searchsorted(np.array(sorted(set(names))), np.array(names))
    return columns.by_row(ranks[types.code], at)


def _state_labels() -> "npt.NDArray[np.int64]":
    labels = [state.label for state in State]
    ranks = np.zeros(256, np.int64)
    for state in State:
        ranks[int(state)] = sorted(labels).index(state.label)
    return ranks


_STATE_RANKS = _state_labels()


def _thread_ranks(columns: HeapColumns, at: "slice | I64") -> Tuple[Numbers, Optional[Mask]]:
    """Order by the lowest number of an attached thread."""
    lists = columns.threads
    lowest = [min((ref.number for ref in refs or () if ref.number is not None), default=None) for refs in lists]
    owner = columns.owner[at]
    known = np.array([number is not None for number in lowest])
    return np.array([number or 0 for number in lowest], np.int64)[owner], known[owner]


_NUMBERS: Mapping[str, _Column] = {
    "size": lambda columns, at: (columns.heap.blocks.size[at], None),
    "address": lambda columns, at: (columns.heap.blocks.address[at], None),
    "state": lambda columns, at: (_STATE_RANKS[columns.heap.blocks.state[at]], None),
    "reach": lambda columns, at: columns.by_row(columns.live.reach.states if columns.live else None, at),
    "arena": lambda columns, at: (
        columns.arena_addresses[columns.owner[at]],
        columns.owner[at] < np.uint32(len(columns.heap.arenas)),
    ),
    "thread": _thread_ranks,
    "type": _type_ranks,
    "confidence": lambda columns, at: columns.by_row(columns.live.types.confidence, at)
    if columns.live and columns.live.types
    else columns.by_row(None, at),
    "refs": lambda columns, at: columns.by_row(columns.live.refs if columns.live else None, at),
}


def find_matching(node: Node, columns: HeapColumns) -> Mask:
    """Return of which of a heap's blocks a query is true."""
    return _truth(node, columns).yes


def _truth(node: Node, columns: HeapColumns) -> Truth:
    if isinstance(node, Compare):
        return _TRUTHS[FIELDS[node.field]](node, columns)
    if isinstance(node, Not):
        term = _truth(node.term, columns)
        return Truth(term.no, term.yes)
    whole = _truth(node.terms[0], columns)
    for each in node.terms[1:]:
        term = _truth(each, columns)
        if isinstance(node, And):
            whole = Truth(whole.yes & term.yes, whole.no | term.no)
        else:
            whole = Truth(whole.yes | term.yes, whole.no & term.no)
    return whole


def _known(yes: Mask, known: Optional[Mask] = None) -> Truth:
    return Truth(yes, ~yes) if known is None else Truth(yes & known, ~yes & known)


def _of_numbers(node: Compare, columns: HeapColumns) -> Truth:
    values, known = columns.numbers(node.field)
    return _known(_compared(values, node.sign, [_as_number(value) for value in node.values]), known)


def _as_number(value: Value) -> int:
    return value if isinstance(value, int) else LEVELS[value]


def _compared(values: Numbers, sign: str, wanted: Sequence[int]) -> Mask:
    highest = int(np.iinfo(values.dtype).max)
    fitting = [value for value in wanted if value <= highest]
    if sign == "==":
        one = np.array(fitting, values.dtype)
        equal: Mask = values == one[0] if len(one) == 1 else np.isin(values, one)
        return equal
    if not fitting:  # all are below it
        return np.full(len(values), sign in ("<", "<="))
    bound = values.dtype.type(fitting[0])
    ordered: "dict[str, Callable[[], Mask]]" = {
        "<": lambda: values < bound,
        "<=": lambda: values <= bound,
        ">": lambda: values > bound,
        ">=": lambda: values >= bound,
    }
    return ordered[sign]()


def _of_arena(node: Compare, columns: HeapColumns) -> Truth:
    """Blocks of no arena are not ordered by it, but they differ from every arena."""
    arenas = columns.heap.arenas
    yes = np.zeros(len(arenas) + 1, np.bool_)
    for value in node.values:
        if value == NO_ARENA_WORD:
            yes[-1] = True
            continue
        number = _as_number(value)
        told = [arena.index if number < _INDEX_BELOW else arena.address for arena in arenas]
        yes[:-1] |= _compared(np.array(told, np.uint64), node.sign, [number])
    known = np.ones(len(yes), np.bool_)
    known[-1] = node.sign == "=="
    return _by_owner(yes, known, columns)


def _of_thread(node: Compare, columns: HeapColumns) -> Truth:
    lists = columns.threads
    yes = [any(_is_thread(ref, node) for ref in refs or ()) for refs in lists]
    return _by_owner(np.array(yes), np.array([refs is not None for refs in lists]), columns)


def _is_thread(ref: ThreadRef, node: Compare) -> bool:
    if node.sign == "~":
        return ref.name is not None and re.search(str(node.value), ref.name) is not None
    return any(value == (ref.number if isinstance(value, int) else ref.name) for value in node.values)


def _by_owner(yes: Mask, known: Mask, columns: HeapColumns) -> Truth:
    return Truth((yes & known)[columns.owner], (~yes & known)[columns.owner])


def _texts_chosen(node: Compare, texts: Sequence[str]) -> List[bool]:
    """Return which texts a comparison is true of."""
    if node.sign == "~":
        pattern = re.compile(str(node.value))
        return [pattern.search(text) is not None for text in texts]
    return [text in node.values for text in texts]


def _of_text(node: Compare, columns: HeapColumns) -> Truth:
    if node.field == "allocator":
        return _known(np.full(len(columns), _texts_chosen(node, [columns.heap.allocator])[0]))
    types = _types_of(columns)
    if types is None:
        return _known(*columns.by_row(None, slice(None)))
    chosen = np.array(_texts_chosen(node, [each.name for each in types.types]), np.bool_)
    values, known = columns.by_row(chosen[types.code], slice(None))
    return _known(values.astype(np.bool_), known)


def _reach_chosen(node: Compare) -> List[bool]:
    """Return which states of reachability, by number, a comparison is true of."""
    names = sorted(REACH_NAMES, key=lambda name: REACH_NAMES[name])
    return _texts_chosen(node, names)


def _of_reach(node: Compare, columns: HeapColumns) -> Truth:
    states = columns.live.reach.states if columns.live else None
    values, known = columns.by_row(states, slice(None))
    return _known(np.array(_reach_chosen(node))[values], known)


def _of_state(node: Compare, columns: HeapColumns) -> Truth:
    """A block has the allocator's state, and that of reachability where it is live: any of them may be meant."""
    yes = columns.heap.blocks.having(_states_chosen(node))
    if not any(_reach_chosen(node)):
        return _known(yes)
    reached = _of_reach(node, columns)
    yes = yes | reached.yes
    not_live = ~columns.heap.blocks.having(state_names()["used"])
    return Truth(yes, ~yes & (reached.no | not_live))


def _states_chosen(node: Compare) -> List[State]:
    names = state_names()
    if node.sign == "~":
        return [state for state, chosen in zip(State, _texts_chosen(node, [each.label for each in State])) if chosen]
    return [state for value in node.values for state in names.get(str(value), ())]


_TRUTHS: Mapping[FieldKind, Callable[[Compare, HeapColumns], Truth]] = {
    FieldKind.NUMBER: _of_numbers,
    FieldKind.LEVEL: _of_numbers,
    FieldKind.ARENA: _of_arena,
    FieldKind.THREAD: _of_thread,
    FieldKind.TEXT: _of_text,
    FieldKind.STATE: _of_state,
    FieldKind.REACH: _of_reach,
}
