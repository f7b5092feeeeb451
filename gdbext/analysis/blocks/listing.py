"""The blocks of all heaps one by one: filtered by options and by a query, sorted, in the columns that are asked for."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import Any, FrozenSet, Iterator, List, Optional, Sequence, Tuple

import numpy as np

from gdbext.analysis.blocks.listrows import COLUMNS, columns_of, type_of_rows
from gdbext.analysis.blocks.livefacts import Live, report_on_live
from gdbext.analysis.blocks.query import FIELDS, Node, parse
from gdbext.analysis.blocks.querycolumns import (
    HeapColumns,
    Needs,
    find_matching,
    needs_of_fields,
    needs_of_query,
)
from gdbext.analysis.blocks.summary import require_heaps
from gdbext.columns import ROWS_AT_ONCE, Batch, Column
from gdbext.errors import UsageError
from gdbext.grammar.arguments import nearest
from gdbext.heap.model import Heap, Mask, State
from gdbext.memory.intervals import I64, slices
from gdbext.report import Kind, Report, Rows, line, table

_BLOCKS_AT_ONCE = 1 << 16
_USUAL = ("address", "size", "state", "reach", "reached_by_offset", "refs", "type", "confidence", "arena", "allocator")
_BESIDE = ("reached_by_offset",)  # in JSON alone unless it is asked for
_LESS = ("arena", "allocator")  # the text has no room for these beside a type


@dataclass(frozen=True)
class Filters:
    """Which blocks are listed; None leaves a condition out.

    :param arena: an arena's address, or its index when there is only one heap.
    :param start: lowest user pointer.
    :param end: first user pointer that is too high.
    :param where: a query.
    """

    states: Optional[FrozenSet[State]] = None
    min_size: Optional[int] = None
    max_size: Optional[int] = None
    arena: Optional[int] = None
    start: Optional[int] = None
    end: Optional[int] = None
    where: Optional[Node] = None


@dataclass(frozen=True)
class Manner:
    """How they are listed.

    :param sort: fields with whether the order is descending, most important first; none: address order within each
        heap.
    :param columns: that are shown; None: the usual ones, and what the query or the order is about.
    :param count: totals alone.
    """

    sort: Sequence[Tuple[str, bool]] = ()
    columns: Optional[Sequence[str]] = None
    count: bool = False


@dataclass(frozen=True)
class Counted:
    """What ``blocks list --count`` answers.

    :param matching_blocks: blocks that pass the filter, whatever ``--limit`` says.
    :param matching_bytes: usable bytes of them.
    """

    matching_blocks: int = line("blocks", Kind.COUNT)
    matching_bytes: int = line("bytes", Kind.BYTES)


@dataclass(frozen=True)
class Listing(Counted):
    """What ``blocks list`` answers, in address order within each heap where no other is asked for."""

    blocks: Rows[Any] = table("Blocks")


def read_query(text: str) -> Node:
    """Return the tree of a query.

    :raises UsageError: as :func:`gdbext.analysis.blocks.query.parse`, naming the option.
    """
    try:
        return parse(text)
    except UsageError as error:
        raise UsageError(f"--where: {error.message}", error.hint) from None


def read_sort(text: str) -> Sequence[Tuple[str, bool]]:
    """Return the order that "-size,address" names.

    :raises UsageError: for a word that is no field.
    """
    words = [word.strip() for word in text.split(",")]
    fields = _fields_named("--sort", [word.removeprefix("-").strip() for word in words], list(FIELDS))
    return [(field, word.startswith("-")) for field, word in zip(fields, words)]


def read_columns(text: str) -> Sequence[str]:
    """Return the columns that "address,size" names, each once.

    :raises UsageError: for a word that is no column.
    """
    words = [word.strip() for word in text.split(",")]
    return list(dict.fromkeys(_fields_named("--columns", words, list(COLUMNS))))


def _fields_named(option: str, words: Sequence[str], known: Sequence[str]) -> Sequence[str]:
    for word in words:
        if word not in known:
            near = nearest(word, known)
            hint = f"did you mean {near}? " if near else ""
            raise UsageError(f"{option}: no field {word!r}", f"{hint}the fields are {', '.join(known)}")
    return words


def needs_of(filters: Filters, manner: Manner) -> Needs:
    """Return what must be worked out before these blocks can be listed so."""
    fields = [field for field, _ in manner.sort]
    if not manner.count:
        fields += manner.columns or ()
    return needs_of_query(filters.where) | needs_of_fields(fields)


def listing(
    heaps: Sequence[Heap], filters: Filters = Filters(), manner: Manner = Manner(), live: Optional[Live] = None
) -> Report:
    """List the blocks that pass all filters.

    :param live: what :func:`needs_of` says to be needed; of these very heaps.
    :raises UsageError: when no arena is the one asked for.
    :raises NoHeapError: when there is no heap.
    """
    require_heaps(heaps)
    owners = [_owners(heap, filters.arena, len(heaps) == 1) for heap in heaps]
    if filters.arena is not None and not any(owners):
        raise _no_arena(heaps, filters.arena)
    parts = [HeapColumns(heap, number, live) for number, heap in enumerate(heaps)]
    masks = [_mask(part, filters, owner) for part, owner in zip(parts, owners)]
    number = sum(int(np.count_nonzero(mask)) for mask in masks)
    size = sum(int(heap.blocks.size[mask].sum()) for heap, mask in zip(heaps, masks))
    data = Counted(number, size)
    if not manner.count:
        columns = partial(_sorted, parts, masks, manner.sort) if manner.sort else partial(_in_order, parts, masks)
        data = Listing(number, size, Rows.of_columns(columns, _row_type(manner, live), number, reads=0))
    report = report_on_live(heaps, data, live)
    # Blocks whose types were not examined may be missing, so that an empty list is no answer.
    untyped = live is not None and live.types is not None and bool(live.types.problems)
    return replace(report, complete=report.complete and not (untyped and needs_of_query(filters.where).types))


def _row_type(manner: Manner, live: Optional[Live]) -> type:
    if manner.columns is not None:
        return type_of_rows(tuple(manner.columns))
    typed = live is not None and live.types is not None
    known = dict.fromkeys(("reach", "reached_by_offset"), live is not None)
    known["refs"] = live is not None and live.refs is not None
    known["type"] = known["confidence"] = typed
    shown = tuple(name for name in _USUAL if known.get(name, True))
    return type_of_rows(shown, (*_BESIDE, *(_LESS if typed else ())))


def _owners(heap: Heap, arena: Optional[int], by_index: bool) -> Sequence[int]:
    """Return the positions of the arenas meant, all of them for None."""
    return [
        position
        for position, each in enumerate(heap.arenas)
        if arena is None or each.address == arena or (by_index and each.index == arena)
    ]


def _no_arena(heaps: Sequence[Heap], arena: int) -> UsageError:
    known = [f"{each.address:#x}" for heap in heaps for each in heap.arenas]
    shown = ", ".join(known[:4]) + (f", … ({len(known)} in all)" if len(known) > 4 else "")
    wanted = str(arena) if arena < 4096 else f"{arena:#x}"
    return UsageError(f"no arena {wanted}", f"the arenas are {shown}")


def _mask(part: HeapColumns, filters: Filters, owners: Sequence[int]) -> Mask:
    blocks = part.heap.blocks
    mask: Mask = np.ones(len(blocks), np.bool_)
    if filters.states is not None:
        mask &= blocks.having(filters.states)
    if filters.min_size is not None:
        mask &= blocks.size >= _bound(filters.min_size)
    if filters.max_size is not None:
        mask &= blocks.size <= _bound(filters.max_size)
    if filters.start is not None:
        mask &= blocks.address >= _bound(filters.start)
    if filters.end is not None:
        mask &= blocks.address < _bound(filters.end)
    if filters.arena is not None:
        mask &= np.isin(blocks.owner, owners)
    if filters.where is not None:
        mask &= find_matching(filters.where, part)
    return mask


def _bound(value: int) -> np.uint64:
    bound: np.uint64 = np.uint64(min(value, (1 << 64) - 1))
    return bound


def _in_order(parts: Sequence[HeapColumns], masks: Sequence[Mask], names: Sequence[str]) -> Iterator[Batch]:
    for part, mask in zip(parts, masks):
        for piece in slices(len(mask), _BLOCKS_AT_ONCE):
            chosen = np.flatnonzero(mask[piece]) + piece.start
            for rows in slices(len(chosen), ROWS_AT_ONCE):
                yield columns_of(part, chosen[rows], names)


def _sorted(
    parts: Sequence[HeapColumns], masks: Sequence[Mask], sort: Sequence[Tuple[str, bool]], names: Sequence[str]
) -> Iterator[Batch]:
    chosen = [np.flatnonzero(mask) for mask in masks]
    number = np.repeat(np.arange(len(parts)), [len(each) for each in chosen])
    position = np.concatenate(chosen)
    order = _order(parts, chosen, sort)
    for piece in slices(len(order), ROWS_AT_ONCE):
        rows = order[piece]
        yield _mixed(parts, number[rows], position[rows], names)


def _order(parts: Sequence[HeapColumns], chosen: Sequence[I64], sort: Sequence[Tuple[str, bool]]) -> I64:
    """Return the order of chosen blocks; what is not known comes last, and equal ones stay in address order."""
    keys: List[object] = []
    for field, descending in reversed(sort):
        values, unknown = _sort_key(parts, chosen, field)
        # All bits turned round descend without a sign to go wrong.
        keys.append(~values if descending else values)
        if unknown.any():
            keys.append(unknown)
    return np.lexsort(keys)  # type: ignore[arg-type]


def _sort_key(parts: Sequence[HeapColumns], chosen: Sequence[I64], field: str) -> "Tuple[I64, Mask]":
    if field == "allocator":
        names = sorted({part.heap.allocator for part in parts})
        ranks = [names.index(part.heap.allocator) for part in parts]
        column = np.repeat(np.array(ranks, np.int64), [len(each) for each in chosen])
        return column, np.zeros(len(column), np.bool_)
    values, unknown = [], []
    for part, at in zip(parts, chosen):
        found, known = part.numbers(field, at)
        values.append(found.astype(np.uint64))
        unknown.append(np.zeros(len(at), np.bool_) if known is None else ~known)
    whole, missing = np.concatenate(values), np.concatenate(unknown)
    whole[missing] = 0
    return whole, missing  # type: ignore[return-value]


def _mixed(parts: Sequence[HeapColumns], number: I64, position: I64, names: Sequence[str]) -> Batch:
    """Return columns of blocks of several heaps in a given order."""
    if len(parts) == 1:
        return columns_of(parts[0], position, names)
    grouped = np.argsort(number, kind="stable")
    batches = [columns_of(part, position[number == at], names) for at, part in enumerate(parts)]
    back = np.argsort(grouped).tolist()
    joined = {name: [cell for batch in batches for cell in batch[name].cells()] for name in names}
    return {name: Column([cells[at] for at in back]) for name, cells in joined.items()}
