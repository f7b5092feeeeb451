"""The spans of a tcmalloc, from the leaves of its page map.

Entries are never cleared: where a span was merged or freed, its old ends still name a ``Span`` that is reused or on a
free list. One counts whose own pages name it, at both ends.
"""

from __future__ import annotations

from typing import Iterator, List, Tuple

import numpy as np

from gdbext.errors import FaultError
from gdbext.heap.tcmalloc.find import leaf_bits
from gdbext.heap.tcmalloc.model import U64, Location, Mask, Spans
from gdbext.kernels import hold_spans
from gdbext.memory import for_each_written
from gdbext.memory.bulk import for_each_written_view, words_at
from gdbext.memory.intervals import distinct
from gdbext.progress import Progress
from gdbext.report import Problem
from gdbext.target import Target

_WORD = 8


def read_spans(target: Target, location: Location, progress: Progress) -> Tuple[Spans, U64, List[Problem]]:
    """Return the spans by address, the addresses of the page map's leaves, and what could not be read.

    :raises FaultError: when the page map's root cannot be read.
    """
    problems: List[Problem] = []
    bits = leaf_bits(location.shift)
    roots = words_at(target.memory, target.abi, location.root, 1 << (48 - location.shift - bits))
    used = np.flatnonzero(roots)
    pages: List[U64] = []
    named: List[U64] = []
    for done, at in enumerate(used.tolist()):
        progress.at("tcmalloc page map", done, len(used))
        for first, words in _leaf(target, int(roots[at]), bits, problems):
            held = np.flatnonzero(words)
            pages.append((np.uint64(at << bits) + np.uint64(first)) + held.astype(np.uint64))
            named.append(words[held])
    leaves: U64 = roots[used]
    if not pages:
        return _spans(np.empty(0, np.uint64), np.empty((0, 6), np.uint64), 0), leaves, problems
    page, span = np.concatenate(pages), np.concatenate(named)
    rows, known = _records(target, distinct(span))
    if not known.all():
        at = int(distinct(span)[~known][0])
        absent = target.lacks(at, 48)
        message = f"{int((~known).sum())} spans that the page map names cannot be read, the first at {at:#x}"
        problems.append(Problem("absent-memory" if absent else "page-map", at, message, corruption=not absent))
    return _kept(page, span, distinct(span)[known], rows[known], location.shift), leaves, problems


def _leaf(target: Target, leaf: int, bits: int, problems: List[Problem]) -> Iterator[Tuple[int, U64]]:
    """Iterate over the written parts of a leaf: number of the first entry, entries."""
    end = leaf + (_WORD << bits)
    if target.lacks(leaf, end - leaf) or target.index.find(leaf) is None:
        kind = "absent-memory" if target.lacks(leaf, end - leaf) else "page-map"
        problems.append(Problem(kind, leaf, f"the page map's leaf at {leaf:#x} cannot be read", kind == "page-map"))
    for low, high in for_each_written(target.memory, leaf, end):
        try:
            yield (low - leaf) // _WORD, words_at(target.memory, target.abi, low, (high - low) // _WORD)
        except FaultError:
            continue


def _records(target: Target, at: U64) -> Tuple["np.ndarray[tuple[int, int], np.dtype[np.uint64]]", Mask]:
    """Return the words of each ``Span``, a row each, and which could be read."""
    held = hold_spans(list(_memory_of(target, at)), target.abi.byteorder)
    columns = [held.gather(at + np.uint64(_WORD * number), _WORD) for number in range(6)]
    return np.stack([values for values, _ in columns], 1), np.logical_and.reduce([known for _, known in columns])


def _memory_of(target: Target, at: U64) -> Iterator[Tuple[int, object]]:
    """Iterate over the written memory of the regions in which structures lie."""
    for region in target.index.regions:
        first, last = np.searchsorted(at, np.array((region.start, region.end), np.uint64)).tolist()
        if first < last and region.readable:
            low, high = int(at[first]), min(int(at[last - 1]) + 48, region.end)
            yield from for_each_written_view(target.memory, low, high, target.abi.page_size)


def _kept(page: U64, span: U64, at: U64, rows: "np.ndarray[tuple[int, int], np.dtype[np.uint64]]", shift: int) -> Spans:
    """Return the spans that their first and last page name."""
    first, length = rows[:, 0], rows[:, 1]
    own = (length > 0) & (length < 1 << 36) & (first < 1 << 36)
    at, rows = at[own], rows[own]
    ends = rows[:, 0] + rows[:, 1] - np.uint64(1)
    sound = (_entry(page, span, rows[:, 0]) == at) & (_entry(page, span, ends) == at)
    order = np.argsort(rows[sound, 0], kind="stable")
    return _spans(at[sound][order], rows[sound][order], shift)


def _entry(page: U64, span: U64, wanted: U64) -> U64:
    """Return the page map's entry of each page, 0 where it has none."""
    at = np.minimum(np.searchsorted(page, wanted), len(page) - 1)
    return np.where(page[at] == wanted, span[at], np.uint64(0))


def _spans(at: U64, rows: "np.ndarray[tuple[int, int], np.dtype[np.uint64]]", shift: int) -> Spans:
    word = rows[:, 5]
    return Spans(
        at,
        rows[:, 0] << np.uint64(shift),
        rows[:, 1] << np.uint64(shift),
        rows[:, 4],
        word & np.uint64(0xFFFF),
        word >> np.uint64(16) & np.uint64(0xFF),
        word >> np.uint64(24) & np.uint64(0xFF),
    )
