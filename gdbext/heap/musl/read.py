"""Reads mallocng: areas, metas, groups, and what each slot holds.

A slot that is in use has a header before the address that the program holds (``enframe`` and ``get_nominal_size`` in
``src/malloc/mallocng/meta.h``): the slot's number, the distance from the group's first slot, and how many bytes at its
end were not asked for. malloc aborts where these or the zero bytes behind them do not hold; so it is checked here.
"""

from __future__ import annotations

from typing import Iterator, List, NamedTuple, Set, Tuple

import numpy as np

from gdbext.errors import FaultError
from gdbext.heap.musl.layouts import AREA, CLASSES, IB, META_WORDS, METAS_AT, SINGLE, UNIT, area
from gdbext.heap.musl.model import FREE, I64, IN_USE, NESTED, ODD, U8, U64, Groups, Location, Mallocng
from gdbext.heap.reading import mapped_ranges
from gdbext.kernels import Spans, hold_spans
from gdbext.memory.bulk import for_each_written_view
from gdbext.memory.intervals import joined, merged, slices
from gdbext.progress import Progress
from gdbext.report import Problem
from gdbext.target import Target

_MOST_AREAS = 1 << 20
_METAS = (AREA - METAS_AT) // (8 * META_WORDS)


def read_mallocng(target: Target, location: Location, progress: Progress) -> Mallocng:
    """Return one mallocng as far as it can be read."""
    none = np.empty(0, np.uint64)
    heap = Mallocng(target, location, Groups(none, none, none, none, none), [])
    try:
        rows = np.concatenate([np.empty((0, META_WORDS + 1), np.uint64), *_metas(heap, progress)])
        heap.groups = _groups(heap, rows)
        _read_slots(heap)
    except KeyboardInterrupt:
        heap.complete = False
        heap.problems.append(Problem("interrupted", None, "reading mallocng was stopped"))
    return heap


def _metas(heap: Mallocng, progress: Progress) -> "Iterator[np.ndarray[tuple[int, int], np.dtype[np.uint64]]]":
    """Iterate over the areas' metas: their addresses and words."""
    target, layout, secret = heap.target, area(heap.target.abi), heap.location.secret
    at = heap.location.layout.read(target.reader, heap.location.context, "meta_area_head")
    seen: Set[int] = set()
    while at and at not in seen and len(seen) < _MOST_AREAS:
        seen.add(at)
        progress.at("areas of metas", len(seen), len(seen))
        try:
            check, following, slots = (layout.read(target.reader, at, name) for name in ("check", "next", "nslots"))
            if check != secret or at % AREA:
                heap.problems.append(Problem("meta-area", at, f"{at:#x} is no area of metas", corruption=True))
                return
            count = min(slots, _METAS)
            words = np.array(target.reader.words(at + METAS_AT, META_WORDS * count), np.uint64).reshape(-1, META_WORDS)
        except FaultError as fault:
            _lose(heap, fault, f"the area of metas at {at:#x}")
            return
        heap.areas.append(at)
        own = np.uint64(at + METAS_AT) + np.arange(count, dtype=np.uint64) * np.uint64(8 * META_WORDS)
        yield np.column_stack((own, words))
        at = following
    if at:
        heap.problems.append(
            Problem("meta-area", at, f"the areas of metas run into a cycle at {at:#x}", corruption=True)
        )


def _lose(heap: Mallocng, fault: FaultError, what: str) -> None:
    lacks = heap.target.lacks(fault.address, fault.size)
    heap.complete &= not lacks
    kind = "absent-memory" if lacks else "meta-area"
    heap.problems.append(Problem(kind, fault.address, f"{what} cannot be read", corruption=not lacks))


def _groups(heap: Mallocng, rows: "np.ndarray[tuple[int, int], np.dtype[np.uint64]]") -> Groups:
    """Return the groups of metas: those that have memory which names them."""
    rows = rows[rows[:, 3] != 0]
    masks, low = rows[:, 4], np.uint64(0xFFFFFFFF)
    groups = Groups(rows[:, 0], rows[:, 3], masks & low, masks >> np.uint64(32), rows[:, 5])
    groups = groups.select(np.argsort(groups.start, kind="stable"))
    known = (groups.sizeclass < len(CLASSES)) | (groups.sizeclass == SINGLE)
    fits = (groups.start % np.uint64(UNIT) == 0) & known & (groups.stride > 0)
    fits &= (groups.mapped == 0) | (groups.stride * groups.slots.astype(np.uint64) + np.uint64(UNIT) <= groups.mapped)
    fits &= mapped_ranges(heap.target.index).holds_whole(groups.start, groups.end)
    names, held = _memory(heap.target, groups.select(fits)).gather(groups.start, 8)
    own = held & (names == groups.meta)
    for at in np.flatnonzero(~(fits & own)).tolist():
        start = int(groups.start[at])
        lacks = bool(fits[at]) and heap.target.lacks(start, UNIT)
        heap.complete &= not lacks
        message = f"the group {start:#x} of the meta {int(groups.meta[at]):#x} "
        message += "is not in the core" if lacks else "does not name its meta" if fits[at] else "cannot be one"
        heap.problems.append(Problem("absent-memory" if lacks else "meta", start, message, corruption=not lacks))
    return _apart(heap, groups.select(fits & own))


def _apart(heap: Mallocng, groups: Groups) -> Groups:
    """Leave out groups that reach beyond the one that they begin in: each byte has one owner."""
    reach = np.maximum.accumulate(groups.end) if len(groups) else groups.end
    over = np.append(False, (groups.start[1:] < reach[:-1]) & (groups.end[1:] > reach[:-1]))[: len(groups)]
    twice = np.append(False, groups.start[1:] == groups.start[:-1])[: len(groups)]
    for at in np.flatnonzero(over | twice).tolist():
        message = f"the group {int(groups.start[at]):#x} overlaps another"
        heap.problems.append(Problem("meta", int(groups.start[at]), message, corruption=True))
    return groups.select(~(over | twice))


def _memory(target: Target, groups: Groups) -> Spans:
    """Return the groups' memory, as far as it was written."""
    pieces = joined(merged((groups.start, groups.end)))
    views: List[Tuple[int, object]] = []
    for low, high in zip(*(column.tolist() for column in pieces)):
        for region in target.index.within(low, high):
            if region.readable:
                start, end = max(low, region.start), min(high, region.end)
                views += for_each_written_view(target.memory, start, end, target.abi.page_size)
    return hold_spans(views, target.abi.byteorder)


def _read_slots(heap: Mallocng) -> None:
    """Read what each slot holds, many at a time, so that what is needed on the way stays small."""
    groups, memory = heap.groups, _memory(heap.target, heap.groups)
    total = int(groups.slots.sum())
    heap.slot, heap.address, heap.size = (np.empty(total, np.uint64) for _ in range(3))
    heap.what, heap.group = np.empty(total, np.uint8), np.repeat(np.arange(len(groups)), groups.slots)
    odd = [_Odd(np.empty(0, np.int64), np.empty(0, np.uint8), np.empty(0, np.uint64))]
    over = [np.empty(0, np.int64)]
    for rows in slices(total):
        headers, ends = _read_part(heap, memory, rows)
        odd.append(headers)
        over.append(ends)
    _check_headers(heap, *(np.concatenate(column) for column in zip(*odd)))
    _check_ends(heap, np.concatenate(over))
    for rows in slices(total):
        _check_nested(heap, rows)


class _Odd(NamedTuple):
    """Headers that cannot be any: the slot's row, the byte with its number, its offset."""

    row: I64
    header: U8
    offset: U64


def _read_part(heap: Mallocng, memory: Spans, rows: slice) -> Tuple[_Odd, I64]:
    """Read some slots; return headers that cannot be any, and the rows of blocks that were written beyond their end."""
    groups, group = heap.groups, heap.group[rows]
    first = np.cumsum(groups.slots) - groups.slots
    number = (np.arange(rows.start, rows.stop) - first[group]).astype(np.uint64)
    storage = (groups.start + np.uint64(UNIT))[group]
    slot = storage + number * groups.stride[group]
    end = slot + groups.stride[group] - np.uint64(IB)
    masks = (groups.avail | groups.freed)[group]
    heap.what[rows] = np.where(masks >> number & np.uint64(1), FREE, IN_USE)
    heap.slot[rows], heap.address[rows], heap.size[rows] = slot, slot, end - slot
    used = np.flatnonzero(heap.what[rows] == IN_USE)
    return _read_headers(heap, memory, used + rows.start, number[used], storage[used], end[used])


def _check_nested(heap: Mallocng, rows: slice) -> None:
    """Take slots in which a group begins for that and nothing else, with a problem where they say otherwise."""
    starts, slot = heap.groups.start, heap.slot[rows]
    end = slot + heap.groups.stride[heap.group[rows]] - np.uint64(IB)
    inside = np.searchsorted(starts, slot) < np.searchsorted(starts, end)
    for at in np.flatnonzero(inside & (heap.what[rows] != NESTED)).tolist():
        message = f"the slot {int(slot[at]):#x} holds a group, and its header and meta do not say so"
        heap.problems.append(Problem("slot-header", int(slot[at]), message, corruption=True))
    heap.what[rows][inside] = NESTED


def _read_headers(heap: Mallocng, memory: Spans, used: I64, number: U64, storage: U64, end: U64) -> Tuple[_Odd, I64]:
    """Read the headers of slots in use: where the block begins, and its size."""
    address = heap.slot[used]
    index, offset = _header(memory, address)
    moved = index >> 5 == 7  # the block begins further back, with a header of its own there
    address = address + np.where(moved, offset, 0).astype(np.uint64) * np.uint64(UNIT)
    index, offset = _header(memory, address)
    far, _ = memory.gather(address - np.uint64(8), 4)
    wide, _ = memory.gather(address - np.uint64(4), 1)
    offset = np.where(wide != 0, far, offset)
    reserved = (index >> 5).astype(np.uint64)
    nested = reserved == 6
    last, _ = memory.gather(end - np.uint64(4), 4)
    reserved = np.where(reserved == 5, last, reserved)
    room = end - address
    sound = (index & 31 == number) & (offset * np.uint64(UNIT) == address - storage) & (address < end)
    sound &= (reserved <= room) & (nested | (index >> 5 <= 5))
    heap.address[used] = np.where(sound, address, heap.slot[used])
    heap.size[used] = np.where(sound & ~nested, room - np.minimum(reserved, room), end - heap.slot[used])
    heap.what[used] = np.where(sound, np.where(nested, NESTED, IN_USE), ODD)
    blocks = sound & ~nested
    return _Odd(used[~sound], index[~sound], offset[~sound]), _find_over(heap, memory, used[blocks], end[blocks])


def _find_over(heap: Mallocng, memory: Spans, used: I64, end: U64) -> I64:
    """Return the rows of blocks behind whose end stands what is not zero."""
    behind, known = memory.gather(heap.address[used] + heap.size[used], 1)
    over, seen = memory.gather(end, 1)
    wrong = (known & (behind != 0)) | (seen & (over != 0))
    rows: I64 = used[wrong]
    return rows


def _header(memory: Spans, address: U64) -> Tuple[U8, U64]:
    """Return the byte with a slot's number and the 16 bits with its offset, before an address."""
    index, _ = memory.gather(address - np.uint64(3), 1)
    offset, _ = memory.gather(address - np.uint64(2), 2)
    return index.astype(np.uint8), offset


def _check_headers(heap: Mallocng, odd: I64, index: U8, offset: U64) -> None:
    """Add a problem for each header that cannot be one, but for slots that are handed out or freed just now."""
    moving = ((index == 0xFF) | (index == 0)) & (offset == 0)
    excused = np.flatnonzero(moving)[: len(heap.target.threads)]
    for at in np.setdiff1d(np.arange(len(odd)), excused).tolist():
        slot = int(heap.slot[odd[at]])
        if heap.target.lacks(slot - IB, IB):
            heap.complete = False
            heap.problems.append(Problem("absent-memory", slot, f"the header of the slot {slot:#x} is not in the core"))
            continue
        message = (
            f"the header before {slot:#x} is damaged: free would abort; what lies before it was written beyond its end"
        )
        heap.problems.append(Problem("slot-header", slot, message, corruption=True))


def _check_ends(heap: Mallocng, over: I64) -> None:
    for at in over.tolist():
        address, size = int(heap.address[at]), int(heap.size[at])
        message = f"the block {address:#x} of {size} bytes was written beyond its end"
        heap.problems.append(Problem("overrun", address, message, corruption=True))
