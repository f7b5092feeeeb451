"""Sets of address intervals as two columns, starts and ends; an interval holds its start and not its end."""

from __future__ import annotations

from typing import Iterable

import numpy as np

from gdbext.heap.jemalloc.model import U64, Mask

Intervals = tuple[U64, U64]


def columns(pairs: Iterable[tuple[int, int]]) -> Intervals:
    """Return pairs of start and end as two columns; ends are bounded by the address space."""
    flat = np.array([(start, min(end, 2**64 - 1)) for start, end in pairs], np.uint64).reshape(-1, 2)
    return flat[:, 0].copy(), flat[:, 1].copy()


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


def united(intervals: Intervals) -> Intervals:
    """Return intervals that may overlap as disjoint ones, each kept apart from those that it only touches."""
    order = np.argsort(intervals[0], kind="stable")
    starts, ends = intervals[0][order], intervals[1][order]
    reach = np.maximum.accumulate(ends) if len(ends) else ends
    begins = np.ones(len(starts), np.bool_)
    begins[1:] = starts[1:] >= reach[:-1]
    return starts[begins], reach[np.append(begins[1:], True)[: len(ends)]]


def without(intervals: Intervals, taken: Intervals) -> Intervals:
    """Return what disjoint intervals hold beside others; both are in order."""
    if not len(intervals[0]):
        return intervals
    edges = np.unique(np.concatenate((*intervals, *taken)))
    starts, ends = edges[:-1], edges[1:]
    left = inside(intervals, starts) & ~inside(taken, starts)
    return starts[left], ends[left]


def inside(intervals: Intervals, addresses: U64) -> Mask:
    """Return which addresses lie in disjoint intervals that are in order."""
    starts, ends = intervals
    if not len(starts):
        return np.zeros(len(addresses), np.bool_)
    at = np.searchsorted(starts, addresses, side="right") - 1
    held: Mask = (at >= 0) & (addresses < ends[np.maximum(at, 0)])
    return held


def within(intervals: Intervals, starts: U64, ends: U64) -> Mask:
    """Return which stretches lie wholly in one of some disjoint intervals that are in order."""
    if not len(intervals[0]):
        return np.zeros(len(starts), np.bool_)
    at = np.searchsorted(intervals[0], starts, side="right") - 1
    held: Mask = (at >= 0) & (starts <= ends) & (ends <= intervals[1][np.maximum(at, 0)])
    return held
