"""The blocks of all heaps one by one, filtered."""

from __future__ import annotations

from dataclasses import dataclass
from typing import FrozenSet, Iterator, Optional, Sequence

import numpy as np

from gdbext.analysis.blocks import report_on, require_heaps
from gdbext.analysis.intervals import I64, slices
from gdbext.analysis.tally import arena_address
from gdbext.errors import UsageError
from gdbext.heap.model import Heap, Mask, State
from gdbext.report import Kind, Report, Rows, column, line, table


@dataclass(frozen=True)
class Filters:
    """Which blocks are listed; None leaves a condition out.

    :param arena: an arena's address, or its index when there is only one heap.
    :param start: lowest user pointer.
    :param end: first user pointer that is too high.
    """

    states: Optional[FrozenSet[State]] = None
    min_size: Optional[int] = None
    max_size: Optional[int] = None
    arena: Optional[int] = None
    start: Optional[int] = None
    end: Optional[int] = None


@dataclass(frozen=True)
class BlockRow:
    """One block; ``arena`` is None when it belongs to none."""

    address: int = column("address", Kind.ADDRESS)
    size: int = column("size", Kind.COUNT)
    state: str = column("state")
    arena: Optional[int] = column("arena", Kind.ADDRESS)
    allocator: str = column("allocator")


@dataclass(frozen=True)
class Listing:
    """What ``blocks list`` answers, in address order within each heap."""

    matching_blocks: int = line("blocks", Kind.COUNT)
    matching_bytes: int = line("bytes", Kind.BYTES)
    blocks: Rows = table("Blocks")


def listing(heaps: Sequence[Heap], filters: Filters = Filters()) -> Report:
    """List the blocks that pass all filters.

    :raises UsageError: when no arena is the one asked for.
    :raises NoHeapError: when there is no heap.
    """
    require_heaps(heaps)
    owners = [_owners(heap, filters.arena, len(heaps) == 1) for heap in heaps]
    if filters.arena is not None and not any(owners):
        raise _no_arena(heaps, filters.arena)
    masks = [_mask(heap, filters, owner) for heap, owner in zip(heaps, owners)]
    number = sum(int(np.count_nonzero(mask)) for mask in masks)
    size = sum(int(heap.blocks.size[mask].sum()) for heap, mask in zip(heaps, masks))
    rows = Rows(lambda: _block_rows(heaps, masks), BlockRow, number)
    return report_on(heaps, Listing(number, size, rows))


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


def _mask(heap: Heap, filters: Filters, owners: Sequence[int]) -> Mask:
    blocks = heap.blocks
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
    return mask


def _bound(value: int) -> np.uint64:
    bound: np.uint64 = np.uint64(min(value, (1 << 64) - 1))
    return bound


def _block_rows(heaps: Sequence[Heap], masks: Sequence[Mask]) -> Iterator[BlockRow]:
    for heap, mask in zip(heaps, masks):
        for part in slices(len(mask), 1 << 16):
            yield from _part_rows(heap, np.flatnonzero(mask[part]) + part.start)


def _part_rows(heap: Heap, chosen: I64) -> Iterator[BlockRow]:
    labels = {int(state): state.label for state in State}
    blocks = heap.blocks.select(chosen)
    columns = (blocks.address, blocks.size, blocks.state, blocks.owner)
    for address, size, state, owner in zip(*(each.tolist() for each in columns)):
        yield BlockRow(address, size, labels[state], arena_address(heap, owner), heap.allocator)
