"""The blocks of all heaps without regard to the allocator: by size, one by one, and at an address.

Used, cached and free blocks partition all blocks: used includes blocks in mappings of their own and
excludes cached (tcached) ones, free includes fast bins and top. Markers (fenceposts) are neither.
Sizes are usable bytes. In damaged memory sizes may be anything; sums are exact below 2**63.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import islice
from typing import FrozenSet, Iterator, List, Optional, Sequence, Tuple

import numpy as np

from gdbext.analysis.contents import contents_hint, pointer_namer
from gdbext.analysis.intervals import I64, slices
from gdbext.analysis.tally import CACHED, CATEGORY, FREE, MMAPPED, TOP, USED, Tally, tally
from gdbext.errors import GdbextError, NoHeapError, UsageError
from gdbext.heap.model import (
    CACHED_STATES,
    FREE_STATES,
    U64,
    USED_STATES,
    Arena,
    Heap,
    Mask,
    State,
)
from gdbext.memory import Region
from gdbext.report import Kind, Problem, Report, Rows, ThreadRef, column, line, table
from gdbext.target import Target

# ------------------------------------------------------------------------------------- summary


@dataclass(frozen=True)
class Totals:
    """All blocks; the names are relied on by pipelines."""

    used_blocks: int = line("used blocks", Kind.COUNT)
    used_bytes: int = line("used", Kind.BYTES)
    free_blocks: int = line("free blocks", Kind.COUNT)
    free_bytes: int = line("free", Kind.BYTES)
    tcache_blocks: int = line("tcached blocks", Kind.COUNT)
    tcache_bytes: int = line("tcached", Kind.BYTES)


@dataclass(frozen=True)
class ClassRow:
    """One of used, tcached, free."""

    blocks_are: str = column("blocks")
    blocks: int = column("number", Kind.COUNT)
    bytes: int = column("bytes", Kind.BYTES)
    share: Optional[float] = column("share", Kind.SHARE)


@dataclass(frozen=True)
class ArenaRow:
    """One arena's blocks."""

    address: int = column("arena", Kind.ADDRESS)
    allocator: str = column("allocator")
    kind: str = column("kind")
    used_blocks: int = column("used blocks", Kind.COUNT)
    used_bytes: int = column("used", Kind.BYTES)
    tcache_blocks: int = column("tcached blocks", Kind.COUNT)
    tcache_bytes: int = column("tcached", Kind.BYTES)
    free_blocks: int = column("free blocks", Kind.COUNT)
    free_bytes: int = column("free", Kind.BYTES)
    threads: Optional[Tuple[ThreadRef, ...]] = column("threads", Kind.THREADS)


@dataclass(frozen=True)
class SizeRow:
    """All blocks of one usable size.

    :param share: of all blocks' bytes.
    :param cumulative: share of this row and all above it.
    """

    size: int = column("size", Kind.COUNT)
    used_blocks: int = column("used blocks", Kind.COUNT)
    used_bytes: int = column("used", Kind.BYTES, json=False)
    tcache_blocks: int = column("tcached blocks", Kind.COUNT)
    free_blocks: int = column("free blocks", Kind.COUNT)
    free_bytes: int = column("free", Kind.BYTES, json=False)
    share: Optional[float] = column("share", Kind.SHARE, json=False)
    cumulative: Optional[float] = column("cumulative", Kind.SHARE, json=False)


@dataclass(frozen=True)
class Summary:
    """What ``blocks summary`` answers; sizes are ordered by the bytes in blocks of that size."""

    totals: Totals = line(None, Kind.OBJECT)
    classes: Sequence[ClassRow] = table("All blocks", json=False)
    arenas: Sequence[ArenaRow] = table("By arena")
    by_size: Rows = table("By size, most bytes first")


def summary(heaps: Sequence[Heap]) -> Report:
    """Sum up the blocks of all heaps: totals, by arena, by size.

    :raises NoHeapError: when there is no heap.
    """
    _require(heaps)
    tallies = [tally(heap) for heap in heaps]
    totals = _totals(tallies)
    sizes = _by_size(heaps)
    arenas = [row for heap, counts in zip(heaps, tallies) for row in _arena_rows(heap, counts)]
    data = Summary(totals, _classes(totals), arenas, sizes)
    return _report(heaps, data)


def _require(heaps: Sequence[Heap]) -> None:
    if not heaps:
        raise NoHeapError("no heap of a known allocator was found")


def _report(heaps: Sequence[Heap], data: object) -> Report:
    return Report(
        data,
        evidence=[evidence for heap in heaps for evidence in heap.evidence],
        problems=[problem for heap in heaps for problem in heap.problems],
        complete=all(heap.complete for heap in heaps),
    )


def _totals(tallies: Sequence[Tally]) -> Totals:
    figures: List[int] = []
    for group in ((USED, MMAPPED), (FREE, TOP), (CACHED,)):
        figures.append(sum(counts.count(*group) for counts in tallies))
        figures.append(sum(counts.size(*group) for counts in tallies))
    return Totals(*figures)


def _classes(totals: Totals) -> Sequence[ClassRow]:
    rows = (
        ("used", totals.used_blocks, totals.used_bytes),
        ("tcached", totals.tcache_blocks, totals.tcache_bytes),
        ("free", totals.free_blocks, totals.free_bytes),
    )
    whole = sum(row[2] for row in rows)
    return [ClassRow(*row, row[2] / whole if whole else None) for row in rows]


def _arena_rows(heap: Heap, counts: Tally) -> Iterator[ArenaRow]:
    for arena, blocks, size in zip(heap.arenas, counts.blocks.tolist(), counts.bytes.tolist()):
        yield ArenaRow(
            arena.address,
            heap.allocator,
            arena.kind,
            blocks[USED] + blocks[MMAPPED],
            size[USED] + size[MMAPPED],
            blocks[CACHED],
            size[CACHED],
            blocks[FREE] + blocks[TOP],
            size[FREE] + size[TOP],
            arena.threads,
        )


_GROUPS = ((USED, MMAPPED), (CACHED,), (FREE, TOP))


def _by_size(heaps: Sequence[Heap]) -> Rows:
    groups = [_size_counts(heaps, group) for group in _GROUPS]
    sizes = np.unique(np.concatenate([group[0] for group in groups]))
    counts = np.zeros((len(sizes), len(groups)), np.int64)
    for at, (values, number) in enumerate(groups):
        counts[np.searchsorted(sizes, values), at] = number
    weight = sizes.astype(np.float64) * counts.sum(axis=1)
    order = np.argsort(-weight, kind="stable")
    sizes, counts, weight = sizes[order], counts[order], weight[order]
    return Rows(lambda: _size_rows(sizes, counts, weight), SizeRow, len(sizes))


def _size_counts(heaps: Sequence[Heap], group: Tuple[int, ...]) -> Tuple[U64, I64]:
    """Return the distinct sizes of the blocks of some categories, and how many there are of each."""
    wanted = np.isin(CATEGORY, group)
    values: List[U64] = [np.empty(0, np.uint64)]
    counts: List[I64] = [np.empty(0, np.int64)]
    for heap in heaps:
        for part in slices(len(heap.blocks)):
            sizes = heap.blocks.size[part][wanted[heap.blocks.state[part]]]
            found = np.unique(sizes, return_counts=True)
            values.append(found[0])
            counts.append(found[1])
    return _merge(np.concatenate(values), np.concatenate(counts))


def _merge(values: U64, counts: I64) -> Tuple[U64, I64]:
    distinct, place = np.unique(values, return_inverse=True)
    merged = np.zeros(len(distinct), np.int64)
    np.add.at(merged, place, counts)
    return distinct, merged


def _size_rows(sizes: U64, counts: I64, weight: "np.typing.NDArray[np.float64]") -> Iterator[SizeRow]:
    whole = float(weight.sum())
    running = np.cumsum(weight)
    for part in slices(len(sizes), 4096):
        columns = zip(sizes[part].tolist(), counts[part].tolist(), weight[part], running[part])
        for size, (used, cached, free), bytes_, until in columns:
            share = float(bytes_) / whole if whole else None
            cumulative = float(until) / whole if whole else None
            yield SizeRow(size, used, size * used, cached, free, size * free, share, cumulative)


# ------------------------------------------------------------------------------------- listing


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


STATE_GROUPS = {
    "used": frozenset(USED_STATES),
    "cached": frozenset(CACHED_STATES),
    "free": frozenset(FREE_STATES),
}


def states_named(text: str) -> FrozenSet[State]:
    """Return the states that a comma-separated list names; "used" and "free" are whole groups.

    :raises UsageError: for a word that is no state.
    """
    names = {state.label.replace(" ", "-"): frozenset((state,)) for state in State}
    names.update(STATE_GROUPS)
    chosen: FrozenSet[State] = frozenset()
    for word in text.lower().replace("_", "-").split(","):
        if word.strip() not in names:
            raise UsageError(f'no state "{word.strip()}"', f"the states are {', '.join(sorted(names))}")
        chosen |= names[word.strip()]
    return chosen


@dataclass(frozen=True)
class BlockRow:
    """One block."""

    address: int = column("address", Kind.ADDRESS)
    size: int = column("size", Kind.COUNT)
    state: str = column("state")
    arena: int = column("arena", Kind.ADDRESS)
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
    _require(heaps)
    owners = [_owners(heap, filters.arena, len(heaps) == 1) for heap in heaps]
    if filters.arena is not None and not any(owners):
        raise _no_arena(heaps, filters.arena)
    masks = [_mask(heap, filters, owner) for heap, owner in zip(heaps, owners)]
    number = sum(int(np.count_nonzero(mask)) for mask in masks)
    size = sum(int(heap.blocks.size[mask].sum()) for heap, mask in zip(heaps, masks))
    rows = Rows(lambda: _block_rows(heaps, masks), BlockRow, number)
    return _report(heaps, Listing(number, size, rows))


def _owners(heap: Heap, arena: Optional[int], by_index: bool) -> Sequence[int]:
    """Return the indices of the arenas meant, all of them for None."""
    return [
        each.index
        for each in heap.arenas
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
    return np.uint64(min(value, (1 << 64) - 1))


def _block_rows(heaps: Sequence[Heap], masks: Sequence[Mask]) -> Iterator[BlockRow]:
    for heap, mask in zip(heaps, masks):
        for part in slices(len(mask), 1 << 16):
            yield from _part_rows(heap, np.flatnonzero(mask[part]) + part.start)


def _part_rows(heap: Heap, chosen: I64) -> Iterator[BlockRow]:
    labels = {int(state): state.label for state in State}
    arenas = [arena.address for arena in heap.arenas]
    blocks = heap.blocks.select(chosen)
    columns = (blocks.address, blocks.size, blocks.state, blocks.owner)
    for address, size, state, owner in zip(*(each.tolist() for each in columns)):
        yield BlockRow(address, size, labels[state], arenas[owner], heap.allocator)


# -------------------------------------------------------------------------------- at an address


@dataclass(frozen=True)
class Neighbour:
    """A block around the one that was found."""

    place: str = column("place")
    address: int = column("address", Kind.ADDRESS)
    size: int = column("size", Kind.COUNT)
    state: str = column("state")
    contents: str = column("contents")


@dataclass(frozen=True)
class Place:
    """An address in no block: which mapping it is in.

    :param mapping: file or kind of memory, permissions, bounds.
    """

    address: int = column(None, Kind.ADDRESS)
    block: Optional[int] = column(None, Kind.ADDRESS)
    place: str = line("place")


@dataclass(frozen=True)
class Found(Place):
    """The block that holds an address.

    :param block: its user pointer.
    :param offset: bytes from the user pointer to the address.
    :param contents: hint at the first bytes.
    """

    size: int = line("size", Kind.COUNT)
    offset: int = line("offset", Kind.COUNT)
    state: str = line("state")
    arena: int = line("arena", Kind.ADDRESS)
    allocator: str = line("allocator")
    contents: str = line("contents")
    around: Sequence[Neighbour] = table("In memory order")


def at(heaps: Sequence[Heap], target: Target, address: int) -> Report:
    """Say what is at an address: the block that holds it, or the mapping.

    :raises GdbextError: when nothing is mapped there.
    """
    for heap in heaps:
        block = heap.blocks.find(address)
        if block is not None:
            return _report([heap], _found(heap, heaps, target, address, block))
    region = target.index.find(address)
    if region is None:
        raise GdbextError(f"{address:#x} is not mapped", "rss lists what is")
    text = f"{address:#x} is in no block: {_outside(heaps, target, region, address)}"
    problems: Sequence[Problem] = [problem for heap in heaps for problem in heap.problems]
    return Report(Place(address, None, text), problems=problems)


def _found(heap: Heap, heaps: Sequence[Heap], target: Target, address: int, block: int) -> Found:
    blocks = heap.blocks
    pointer = int(blocks.address[block])
    offset = address - pointer
    state, arena = State(int(blocks.state[block])), heap.arenas[int(blocks.owner[block])]
    around = list(_around(heap, heaps, target, block))
    where = "the start" if offset == 0 else f"{offset} bytes inside"
    return Found(
        address,
        pointer,
        f"{address:#x} is {where} of the block {pointer:#x}",
        int(blocks.size[block]),
        offset,
        state.label,
        arena.address,
        heap.allocator,
        next(row.contents for row in around if row.place == "this"),
        around,
    )


def _around(heap: Heap, heaps: Sequence[Heap], target: Target, block: int) -> Iterator[Neighbour]:
    blocks, reader, namer = heap.blocks, target.reader, pointer_namer(target, heaps)
    for place, index in (("before", block - 1), ("this", block), ("after", block + 1)):
        if 0 <= index < len(blocks) and blocks.owner[index] == blocks.owner[block]:
            address, size = int(blocks.address[index]), int(blocks.size[index])
            hint = contents_hint(reader, address, size, namer)
            yield Neighbour(place, address, size, State(int(blocks.state[index])).label, hint)


def _outside(heaps: Sequence[Heap], target: Target, region: Region, address: int) -> str:
    """Say in words what lies at an address that no block holds."""
    for heap in heaps:
        arena = _arena_of(heap, address)
        if arena is not None:
            return f"{heap.allocator}'s own bytes, in arena {arena.address:#x} ({_after(heap, address)})"
    return _mapping_text(target, region, address)


def _arena_of(heap: Heap, address: int) -> Optional[Arena]:
    for span in heap.spans:
        if span.start <= address < span.end:
            return heap.arenas[span.arena]
    return None


def _after(heap: Heap, address: int) -> str:
    following = int(np.searchsorted(heap.blocks.address, np.uint64(address)))
    if following == len(heap.blocks):
        return "behind the last block"
    gap = int(heap.blocks.address[following]) - address
    return f"{gap} bytes before the block {int(heap.blocks.address[following]):#x}"


def _mapping_text(target: Target, region: Region, address: int) -> str:
    bounds = f"{region.start:#x}-{region.end:#x} {region.permissions}"
    if not region.anonymous:
        symbol = target.symbols.find_name(address)
        name = f", {symbol}" if symbol else f", file offset {region.offset + address - region.start:#x}"
        return f"{region.name} ({bounds}{name})"
    users = (
        thread.number
        for thread in target.threads
        if thread.stack_pointer is not None and thread.stack_pointer in region
    )
    owners = list(islice(users, 1))
    what = f"stack of thread {owners[0]}" if owners else region.name or "anonymous memory"
    return f"{what} ({bounds})"
