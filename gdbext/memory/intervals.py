"""Sets of address intervals as columns: measured, united and subtracted without a loop over bytes.

An interval holds its start and not its end. Millions of them (one for each chunk of a heap) are the
common case, so work is done in slices and nothing is sorted twice.
"""

from __future__ import annotations

from typing import Iterable, Iterator, List, NamedTuple, Sequence, Tuple

import numpy as np
import numpy.typing as npt

U64 = npt.NDArray[np.uint64]
I64 = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]
Intervals = Tuple[U64, U64]  # starts and ends

_SLICE = 1 << 18


def columns(pairs: Iterable[Tuple[int, int]]) -> Intervals:
    """Return pairs of start and end as two columns; ends are bounded by the address space."""
    flat = np.array([(start, min(end, 2**64 - 1)) for start, end in pairs], np.uint64).reshape(-1, 2)
    return flat[:, 0].copy(), flat[:, 1].copy()


def slices(count: int, step: int = _SLICE) -> Iterator[slice]:
    """Iterate over slices that cover ``count`` elements, so that temporaries stay small."""
    for at in range(0, count, step):
        yield slice(at, min(at + step, count))


def for_each_chosen(mask: Mask, count: int = _SLICE) -> Iterator[Tuple[int, I64]]:
    """Iterate over the positions where a mask holds, ``count`` at a time, each with how many came before."""
    before, rest = 0, np.empty(0, np.int64)
    for part in slices(len(mask)):
        rest = np.concatenate((rest, part.start + np.flatnonzero(mask[part])))
        while len(rest) >= count:
            yield before, rest[:count]
            before, rest = before + count, rest[count:]
    if len(rest):
        yield before, rest


def bytes_of(starts: U64, ends: U64) -> int:
    """Return the bytes of all intervals together, modulo 2**64."""
    return (int(ends.sum()) - int(starts.sum())) % 2**64


def distinct(values: U64) -> U64:
    """Return the values in order, each once; ``numpy.unique`` imports masked arrays, a good part of a short command."""
    ordered = np.sort(values)
    first = np.ones(len(ordered), np.bool_)
    first[1:] = ordered[1:] != ordered[:-1]
    return ordered[first]


class Coverage:
    """Disjoint intervals that any others can be measured against.

    :param starts: sorted first addresses.
    :param ends: first addresses after them; an interval may touch the next and not overlap it.
    """

    def __init__(self, starts: U64, ends: U64) -> None:
        self.starts = starts
        self.ends = ends
        self._before = np.concatenate((np.zeros(1, np.uint64), np.cumsum(ends - starts, dtype=np.uint64)))
        self._previous_end = np.concatenate((np.zeros(1, np.uint64), ends))

    @property
    def bytes(self) -> int:
        """All bytes covered."""
        return int(self._before[-1])

    def below(self, addresses: U64) -> U64:
        """Return for each address how many covered bytes lie below it."""
        at = np.searchsorted(self.starts, addresses, side="right")
        beyond = np.maximum(self._previous_end[at], addresses) - addresses
        count: U64 = self._before[at] - beyond
        return count

    def within(self, starts: U64, ends: U64) -> int:
        """Return how many covered bytes lie in the given intervals; twice where those overlap."""
        return sum(
            int((self.below(ends[part]) - self.below(starts[part])).sum()) for part in slices(len(starts))
        )

    def index(self, addresses: U64) -> I64:
        """Return for each address the index of the interval that holds it, or -1."""
        at = np.searchsorted(self.starts, addresses, side="right").astype(np.int64) - 1
        outside = addresses >= self._previous_end[at + 1]
        at[outside] = -1
        return at

    def holds(self, addresses: U64) -> Mask:
        """Return which addresses lie in an interval."""
        held: Mask = self.index(addresses) >= 0
        return held

    def holds_whole(self, starts: U64, ends: U64) -> Mask:
        """Return which stretches lie in one interval from end to end."""
        at = self.index(starts)
        held: Mask = (at >= 0) & (starts <= ends) & (ends <= self._previous_end[at + 1])
        return held


class Union(NamedTuple):
    """What intervals cover together, and where they overlap.

    :param overlap: bytes that are covered more than once, each time beyond the first.
    :param clashes: addresses at which an overlap begins or continues; empty when there is none.
    """

    covered: Coverage
    overlap: int
    clashes: U64


def unite(parts: Sequence[Intervals]) -> Union:
    """Return the union of intervals.

    :param parts: pairs of starts and ends, in any order; empty intervals do not count.
    """
    kept = [_in_order(part) for part in parts]
    claimed = sum(bytes_of(*part) for part in kept)
    merging = _Merging()
    for window in _windows(kept):
        merging.take(*window)
    covered, clashes = merging.result()
    return Union(covered, claimed - covered.bytes, clashes)


def _in_order(part: Intervals) -> Intervals:
    """Return intervals without the empty ones, starts and ends sorted apart from each other."""
    starts, ends = part
    kept = ends > starts
    if not kept.all():
        starts, ends = starts[kept], ends[kept]
    return _in_order_of(starts), _in_order_of(ends)


def _in_order_of(values: U64) -> U64:
    return values if (values[1:] >= values[:-1]).all() else np.sort(values)


def _windows(parts: Sequence[Intervals]) -> Iterator[Intervals]:
    """Iterate over starts and ends of all parts, window by window of starts: what is at hand at a time is little."""
    none = np.empty(0, np.uint64)
    bounds = distinct(np.concatenate([none, *(starts[_SLICE::_SLICE] for starts, _ in parts)]))
    cuts = [[0, *np.searchsorted(starts, bounds).tolist(), len(starts)] for starts, _ in parts]
    for at in range(len(bounds) + 1):
        here = [slice(cut[at], cut[at + 1]) for cut in cuts]
        columns = ([part[side][rows] for part, rows in zip(parts, here)] for side in (0, 1))
        starts, ends = (np.sort(np.concatenate([none, *column]), kind="stable") for column in columns)
        yield starts, ends


class _Merging:
    """Intervals that come window by window of starts become disjoint ones.

    Nothing is open before the i-th start exactly when all i earlier intervals have ended by then, that is when the
    (i - 1)-th end is not behind it: starts and ends are sorted apart from each other.
    """

    def __init__(self) -> None:
        self._starts: List[U64] = []
        self._ends: List[U64] = []
        self._clashes: List[U64] = []
        self._open = np.empty(0, np.uint64)  # ends of what came before that count yet, the last of all among them

    def take(self, starts: U64, ends: U64) -> None:
        """Add the intervals that begin in the next window; starts and ends are sorted."""
        if not len(starts):
            return
        last = starts[-1]
        if not len(self._open):
            self._starts.append(starts[:1])
            self._open, starts, ends = ends[:1], starts[1:], ends[1:]
        closed = len(self._open) - 1
        behind = np.sort(np.concatenate((self._open, ends)), kind="stable")
        before = behind[closed : closed + len(starts)]
        apart = starts > before
        self._starts.append(starts[apart])
        self._ends.append(before[apart])
        self._clashes.append(starts[starts < before])
        over = int(np.searchsorted(behind, last, side="right"))  # whatever comes ends later than these
        self._open = behind[min(over, len(behind) - 1) :]

    def result(self) -> Tuple[Coverage, U64]:
        """Return what is covered, and where it is covered twice."""
        none = np.empty(0, np.uint64)
        starts, ends, clashes = (np.concatenate([none, *each]) for each in (self._starts, self._ends, self._clashes))
        return Coverage(starts, np.concatenate((ends, self._open[-1:]))), clashes


def subtract(outer: Coverage, inner: Coverage) -> Tuple[U64, U64, I64]:
    """Return what ``outer`` covers and ``inner`` does not.

    :returns: starts, ends, and for each piece the index of its interval in ``outer``.
    """
    edges = distinct(np.concatenate((outer.starts, outer.ends, inner.starts, inner.ends)))
    if len(edges) < 2:
        return np.empty(0, np.uint64), np.empty(0, np.uint64), np.empty(0, np.int64)
    starts, ends = edges[:-1], edges[1:]
    source = outer.index(starts)
    left = (source >= 0) & (inner.index(starts) < 0)
    return starts[left], ends[left], source[left]


def clip(coverage: Coverage, start: int, end: int) -> Intervals:
    """Return the parts of sorted intervals that lie in one more."""
    first = int(coverage.ends.searchsorted(np.uint64(start), side="right"))
    behind = int(coverage.starts.searchsorted(np.uint64(end), side="left"))
    starts, ends = coverage.starts[first:behind].copy(), coverage.ends[first:behind].copy()
    if len(starts):
        starts[0], ends[-1] = max(int(starts[0]), start), min(int(ends[-1]), end)
    return starts, ends


def gaps(coverage: Coverage, start: int, end: int) -> Iterator[Tuple[int, int]]:
    """Iterate over what sorted intervals leave of one more."""
    at = start
    for low, high in zip(*(column.tolist() for column in clip(coverage, start, end))):
        if at < low:
            yield at, low
        at = high
    if at < end:
        yield at, end


def without(intervals: Intervals, taken: Intervals) -> Intervals:
    """Return what disjoint intervals hold beside others; both are in order."""
    starts, ends, _ = subtract(Coverage(*intervals), Coverage(*taken))
    return starts, ends


def joined(intervals: Intervals) -> Intervals:
    """Return disjoint intervals in order, those that touch as one, empty ones left out."""
    starts, ends = intervals
    kept = np.flatnonzero(ends > starts)
    if not np.all(starts[kept[1:]] >= starts[kept[:-1]]):
        kept = kept[np.argsort(starts[kept], kind="stable")]
    starts, ends = starts[kept], ends[kept]
    begins = np.ones(len(starts), np.bool_)
    begins[1:] = starts[1:] != ends[:-1]
    return starts[begins], ends[np.append(begins[1:], True)[: len(ends)]]


def merged(intervals: Intervals) -> Intervals:
    """Return intervals that may overlap as disjoint ones, each kept apart from those that it only touches."""
    order = np.argsort(intervals[0], kind="stable")
    starts, ends = intervals[0][order], intervals[1][order]
    reach = np.maximum.accumulate(ends) if len(ends) else ends
    begins = np.ones(len(starts), np.bool_)
    begins[1:] = starts[1:] >= reach[:-1]
    return starts[begins], reach[np.append(begins[1:], True)[: len(ends)]]


def shared(outer: Coverage, inner: Coverage) -> Tuple[U64, U64, I64]:
    """Return what both cover, cut where an interval of either begins or ends.

    :returns: starts, ends, and for each piece the index of its interval in ``outer``.
    """
    edges = distinct(np.concatenate((outer.starts, outer.ends, inner.starts, inner.ends)))
    if len(edges) < 2:
        return np.empty(0, np.uint64), np.empty(0, np.uint64), np.empty(0, np.int64)
    starts, ends = edges[:-1], edges[1:]
    source = outer.index(starts)
    kept = (source >= 0) & (inner.index(starts) >= 0)
    return starts[kept], ends[kept], source[kept]
