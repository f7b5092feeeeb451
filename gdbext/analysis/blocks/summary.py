"""The blocks of all heaps summed up, without regard to the allocator: in all, by arena, by size.

Used, cached and free blocks partition all blocks: used includes blocks in mappings of their own and
excludes cached (tcached) ones, free includes fast bins and top. Markers (fenceposts) are neither.
Sizes are usable bytes. In damaged memory sizes may be anything; sums are exact below 2**63.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import FrozenSet, Iterator, List, Optional, Sequence, Tuple, Type

import numpy as np

from gdbext.analysis.blocks.sums import CACHED, FREE, MMAPPED, TOP, USED, Tally, tally
from gdbext.errors import NoHeapError, UsageError
from gdbext.heap.model import CACHED_STATES, FREE_STATES, U64, USED_STATES, Heap, State
from gdbext.heap.reading import evidence_of, problems_of
from gdbext.memory.intervals import I64, distinct, slices
from gdbext.report import Bar, Kind, Memory, Report, Rows, ThreadRef, column, line, table


@dataclass(frozen=True)
class Totals:
    """All blocks; the names are relied on by pipelines.

    :param used_blocks: mmapped ones included, tcached ones not.
    :param used_bytes: usable, as everywhere here.
    :param free_blocks: fastbins and top included.
    :param free_bytes: of the free blocks.
    :param tcache_blocks: None when a heap's thread caches could not be found: what they hold then counts as used.
    :param tcache_bytes: of the cached blocks; None as ``tcache_blocks``.
    """

    used_blocks: int = line("used blocks", Kind.COUNT)
    used_bytes: int = line("used", Kind.BYTES)
    free_blocks: int = line("free blocks", Kind.COUNT)
    free_bytes: int = line("free", Kind.BYTES)
    tcache_blocks: Optional[int] = line("tcached blocks", Kind.COUNT)
    tcache_bytes: Optional[int] = line("tcached", Kind.BYTES)


@dataclass(frozen=True)
class ClassRow:
    """One of used, tcached, free."""

    blocks_are: str = column("blocks")
    blocks: Optional[int] = column("number", Kind.COUNT)
    bytes: Optional[int] = column("bytes", Kind.BYTES)
    bar: Bar = column("share", Kind.BAR)
    share: Optional[float] = column("", Kind.SHARE)


@dataclass(frozen=True)
class ArenaRow:
    """One arena's blocks; ``address`` is None for blocks of no arena, in mappings of their own.

    :param address: None: the blocks of no arena, in mappings of their own.
    :param allocator: as ``heaps[].allocator`` of ``triage``.
    :param kind: ``main``, ``thread``, ``no arena``; of jemalloc ``auto``, ``manual``.
    :type kind: word
    :param used_blocks: as in ``totals``.
    :param used_bytes: of them.
    :param tcache_blocks: None as there.
    :param tcache_bytes: of them.
    :param free_blocks: as in ``totals``.
    :param free_bytes: of them.
    :param threads: None when that could not be found out.
    """

    address: Optional[int] = column("arena", Kind.ADDRESS)
    allocator: str = column("allocator", whole=True)
    kind: str = column("kind")
    used_blocks: int = column("used blocks", Kind.COUNT)
    used_bytes: int = column("used", Kind.BYTES)
    tcache_blocks: Optional[int] = column("tcached blocks", Kind.COUNT)
    tcache_bytes: Optional[int] = column("tcached", Kind.BYTES)
    free_blocks: int = column("free blocks", Kind.COUNT)
    free_bytes: int = column("free", Kind.BYTES)
    bar: Bar = column("of it used", Kind.BAR, json=False)
    threads: Optional[Tuple[ThreadRef, ...]] = column("threads", Kind.THREADS)


@dataclass(frozen=True)
class NamedArenaRow(ArenaRow):
    """As :class:`ArenaRow`, where an allocator has several heaps: their names need room in the text."""

    tcache_blocks: Optional[int] = column(None, Kind.COUNT)


@dataclass(frozen=True)
class SizeRow:
    """All blocks of one usable size.

    :param size: usable bytes of each.
    :type size: bytes
    :param used_blocks: as in ``totals``.
    :param tcache_blocks: None as there.
    :param free_blocks: as in ``totals``.
    :param share: of all blocks' bytes.
    :param cumulative: share of this row and all above it.
    """

    size: int = column("size", Kind.COUNT)
    used_blocks: int = column("used blocks", Kind.COUNT)
    used_bytes: int = column("used", Kind.BYTES, json=False)
    tcache_blocks: Optional[int] = column("tcached blocks", Kind.COUNT)
    free_blocks: int = column("free blocks", Kind.COUNT)
    free_bytes: int = column("free", Kind.BYTES, json=False)
    share: Optional[float] = column("share", Kind.SHARE, json=False)
    cumulative: Optional[float] = column("cumulative", Kind.SHARE, json=False)


@dataclass(frozen=True)
class PowerRow:
    """All blocks whose usable size is in one power of two.

    :param from_size: all sizes from this power of two to below the next share the row; most bytes first.
    :type from_size: bytes
    :param bytes: usable bytes of all blocks of such sizes.
    :param share: of all blocks' bytes.
    :param used_blocks: as in ``totals``.
    :param used_bytes: of them.
    :param tcache_blocks: None as there.
    :param free_blocks: as in ``totals``.
    :param free_bytes: of them.
    """

    from_size: int = column("sizes from", Kind.COUNT)
    bytes: int = column("bytes", Kind.BYTES)
    bar: Bar = column("share", Kind.BAR, json=False)
    share: Optional[float] = column("", Kind.SHARE, json=False)
    used_blocks: int = column("used blocks", Kind.COUNT)
    used_bytes: int = column("used", Kind.BYTES)
    tcache_blocks: Optional[int] = column("tcached blocks", Kind.COUNT)
    free_blocks: int = column("free blocks", Kind.COUNT)
    free_bytes: int = column("free", Kind.BYTES)


@dataclass(frozen=True)
class Summary:
    """What ``blocks summary`` answers; sizes are ordered by the bytes in blocks of that size."""

    totals: Totals = line(None, Kind.OBJECT)
    classes: Sequence[ClassRow] = table("All blocks", json=False)
    arenas: Sequence[ArenaRow] = table("By arena", equal_but=("address", "threads"))
    by_power: Sequence[PowerRow] = table("By size, in powers of two, most bytes first (--exact: each size)")
    by_size: Rows[SizeRow] = table(None)


@dataclass(frozen=True)
class ExactSummary(Summary):
    """As :class:`Summary`, the text with exact sizes."""

    by_power: Sequence[PowerRow] = table(None)
    by_size: Rows[SizeRow] = table("By size, most bytes first")


def summary(heaps: Sequence[Heap], exact: bool = False) -> Report:
    """Sum up the blocks of all heaps: totals, by arena, by size.

    :param exact: text has each size instead of powers of two; JSON has both.
    :raises NoHeapError: when there is no heap.
    """
    require_heaps(heaps)
    tallies = [tally(heap) for heap in heaps]
    totals = _totals(heaps, tallies)
    powers, sizes = _by_size(heaps, tallies)
    row_type = ArenaRow if all(heap.allocator == heap.family for heap in heaps) else NamedArenaRow
    arenas = [row for heap, counts in zip(heaps, tallies) for row in _arena_rows(heap, counts, row_type)]
    data = (ExactSummary if exact else Summary)(totals, _classes(totals), arenas, powers, sizes)
    return report_on(heaps, data)


def _totals(heaps: Sequence[Heap], tallies: Sequence[Tally]) -> Totals:
    figures: List[Optional[int]] = []
    for group in ((USED, MMAPPED), (FREE, TOP), (CACHED,)):
        figures.append(sum(counts.count(*group) for counts in tallies))
        figures.append(sum(counts.size(*group) for counts in tallies))
    if not _caches_known(heaps):
        figures[-2:] = None, None
    return Totals(*figures)  # type: ignore[arg-type]


def _caches_known(heaps: Sequence[Heap]) -> bool:
    return all(heap.caches_known for heap in heaps)


def _classes(totals: Totals) -> Sequence[ClassRow]:
    rows = (
        ("used", totals.used_blocks, totals.used_bytes),
        ("tcached", totals.tcache_blocks, totals.tcache_bytes),
        ("free", totals.free_blocks, totals.free_bytes),
    )
    whole = sum(size or 0 for _, _, size in rows)  # what is cached and not known counts as used
    shares = [size / whole if whole and size is not None else None for _, _, size in rows]
    kinds = (Memory.USED, Memory.CACHED, Memory.FREE)
    return [ClassRow(*row, Bar(share, kind), share) for row, share, kind in zip(rows, shares, kinds)]


def _arena_rows(heap: Heap, counts: Tally, row_type: Type[ArenaRow]) -> Iterator[ArenaRow]:
    for at, (blocks, size) in enumerate(zip(counts.blocks.tolist(), counts.bytes.tolist())):
        arena = heap.arenas[at] if at < len(heap.arenas) else None
        if arena is None and not any(blocks):
            continue
        yield row_type(
            arena.address if arena else None,
            heap.allocator,
            arena.kind if arena else "no arena",
            blocks[USED] + blocks[MMAPPED],
            size[USED] + size[MMAPPED],
            blocks[CACHED] if heap.caches_known else None,
            size[CACHED] if heap.caches_known else None,
            blocks[FREE] + blocks[TOP],
            size[FREE] + size[TOP],
            Bar((size[USED] + size[MMAPPED]) / sum(size) if any(size) else None),
            arena.threads if arena else (),
        )


_GROUPS = ((USED, MMAPPED), (CACHED,), (FREE, TOP))


def _by_size(heaps: Sequence[Heap], tallies: Sequence[Tally]) -> Tuple[Sequence[PowerRow], Rows[SizeRow]]:
    sizes = distinct(np.concatenate([np.empty(0, np.uint64), *(counted.sizes for counted in tallies)]))
    counts = np.zeros((len(sizes), len(_GROUPS)), np.int64)
    for counted in tallies:
        grouped = np.stack([counted.by_size[:, group].sum(axis=1) for group in _GROUPS], axis=1)
        counts[np.searchsorted(sizes, counted.sizes)] += grouped
    sizes, counts = sizes[counts.any(axis=1)], counts[counts.any(axis=1)]
    weight = sizes.astype(np.float64) * counts.sum(axis=1)
    order = np.argsort(-weight, kind="stable")
    sizes, counts, weight = sizes[order], counts[order], weight[order]
    known = _caches_known(heaps)
    return _power_rows(sizes, counts, known), Rows(
        lambda: _size_rows(sizes, counts, weight, known), SizeRow, len(sizes), reads=0
    )


def _power_rows(sizes: U64, counts: I64, caches_known: bool) -> Sequence[PowerRow]:
    """Return what sizes of one power of two have in common, most bytes first."""
    power = np.array([max(size.bit_length() - 1, 0) for size in sizes.tolist()], np.int64)
    rows: List[PowerRow] = []
    whole = int((sizes.astype(np.float64) * counts.sum(axis=1)).sum())
    for each in np.unique(power).tolist():
        mine = power == each
        used, cached, free = counts[mine].sum(axis=0).tolist()
        used_bytes, cached_bytes, free_bytes = (
            sum(size * count for size, count in zip(sizes[mine].tolist(), counts[mine, group].tolist()))
            for group in range(len(_GROUPS))
        )
        every = used_bytes + cached_bytes + free_bytes
        share = every / whole if whole else None
        told = cached if caches_known else None
        rows.append(PowerRow(1 << each, every, Bar(share), share, used, used_bytes, told, free, free_bytes))
    return sorted(rows, key=lambda row: -row.bytes)


def _size_rows(
    sizes: U64, counts: I64, weight: "np.typing.NDArray[np.float64]", caches_known: bool
) -> Iterator[SizeRow]:
    whole = float(weight.sum())
    running = np.cumsum(weight)
    for part in slices(len(sizes), 4096):
        columns = zip(sizes[part].tolist(), counts[part].tolist(), weight[part], running[part])
        for size, (used, cached, free), bytes_, until in columns:
            share = float(bytes_) / whole if whole else None
            cumulative = float(until) / whole if whole else None
            told = cached if caches_known else None
            yield SizeRow(size, used, size * used, told, free, size * free, share, cumulative)


def require_heaps(heaps: Sequence[Heap]) -> None:
    """Check that there is anything to report on.

    :raises NoHeapError: when there is no heap, or none that could be read.
    """
    if not heaps:
        raise NoHeapError("no heap of a known allocator was found")
    if not any(heap.arenas or heap.complete for heap in heaps):
        reasons = [problem.message for heap in heaps for problem in heap.problems]
        raise NoHeapError(f"no heap of this target can be read: {'; '.join(reasons)}")


def report_on(heaps: Sequence[Heap], data: object) -> Report:
    """Return a report with all that the heaps have to say about how they were read."""
    return Report(
        data,
        evidence=evidence_of(heaps),
        problems=problems_of(heaps, brief=True),
        complete=all(heap.complete for heap in heaps),
    )


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
