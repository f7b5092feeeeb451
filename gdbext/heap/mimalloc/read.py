"""Reads mimalloc: its pages, and which of their blocks are free.

A page has three lists: ``free``, ``local_free`` (freed by its thread, not offered yet) and ``xthread_free`` (freed by
others; the low bits are flags). Up to 2.x the first block that another thread frees in a full page is on its heap's
``thread_delayed_free`` instead. ``used`` counts what is in use and on the last two.
"""

from __future__ import annotations

from typing import Iterator, List, Sequence, Set, Tuple, Union

import numpy as np

from gdbext.errors import FaultError
from gdbext.heap.freelists import COUNTED, FreeLists, Objects, follow
from gdbext.heap.mimalloc.arenas import note_reserves
from gdbext.heap.mimalloc.links import decoded, memory_of
from gdbext.heap.mimalloc.model import DELAYED, FREE, I64, LOCAL, REMOTE, U64, Location, MapLocation, Mimalloc, Pages
from gdbext.heap.mimalloc.padding import read_padding
from gdbext.heap.mimalloc.pagemap import read_mapped
from gdbext.heap.mimalloc.segments import read_segments
from gdbext.heap.reading import mapped_ranges
from gdbext.kernels import Span
from gdbext.memory.intervals import distinct
from gdbext.progress import Progress
from gdbext.report import Problem
from gdbext.target import Target

_MOST_BLOCK = 1 << 46
_AT_ONCE = 1 << 26  # bytes of blocks whose links are decoded at once


def read_mimalloc(target: Target, location: Union[Location, MapLocation], progress: Progress) -> Mimalloc:
    """Return one mimalloc as far as it can be read."""
    heap = Mimalloc(target, location, _pages([]), Objects(*_slabs(_pages([]))))
    try:
        rows: Union[List[Tuple[int, ...]], U64]
        if isinstance(location, Location):
            rows = read_segments(heap, location, progress)
        else:
            rows = read_mapped(heap, location)
        heap.pages = _sound(heap, _pages(rows))
        heap.objects = Objects(*_slabs(heap.pages))
        _follow(heap)
        if location.layout.keys:
            read_padding(heap)
        note_reserves(heap)
    except KeyboardInterrupt:
        heap.complete = False
        heap.problems.append(Problem("interrupted", None, "reading mimalloc was stopped"))
    return heap


def _pages(rows: Union[Sequence[Tuple[int, ...]], U64]) -> Pages:
    table = np.array(rows, np.uint64).reshape(-1, len(Pages.__dataclass_fields__))
    table = table[np.argsort(table[:, 1], kind="stable")]
    columns = [table[:, number].copy() for number in range(table.shape[1])]
    return Pages(columns[0], columns[1], columns[2], columns[3].astype(np.int64), *columns[4:])


def _slabs(pages: Pages) -> Tuple[U64, U64, I64]:
    return pages.start, pages.each, pages.capacity


def _sound(heap: Mimalloc, pages: Pages) -> Pages:
    """Leave out pages that reach into the one before, or beyond what is mapped: each byte has one owner."""
    small = (pages.each >= 8) & (pages.each < _MOST_BLOCK) & (pages.each % np.uint64(8) == 0)
    ends = pages.start + np.where(small, pages.each, 0).astype(np.uint64) * pages.capacity.astype(np.uint64)
    wrong = ~small | ~mapped_ranges(heap.target.index).holds_whole(pages.start, ends)
    wrong |= pages.start % np.uint64(8) != 0
    reach = np.maximum.accumulate(np.where(wrong, 0, ends).astype(np.uint64)) if len(ends) else ends
    wrong[1:] |= pages.start[1:] < reach[:-1]
    for at in np.flatnonzero(wrong).tolist():
        message = f"the page {int(pages.at[at]):#x} cannot be one: its blocks overlap others, or are not mapped"
        heap.problems.append(Problem("page", int(pages.at[at]), message, corruption=True))
    return pages.select(~wrong)


def _follow(heap: Mimalloc) -> None:
    if heap.location.layout.keys:
        for slabs in _for_each_part(heap.pages):
            _follow_lists(heap, slabs, list(memory_of(heap, slabs)))
    else:
        _follow_lists(heap, slice(0, len(heap.pages.at)), list(heap.objects.memory(heap.target)))
    if isinstance(heap.location, Location):
        _follow_delayed(heap, heap.location)
    _check_used(heap)


def _for_each_part(pages: Pages) -> Iterator[slice]:
    """Iterate over runs of pages whose blocks are not more than can be copied."""
    before = np.cumsum(pages.each * pages.capacity.astype(np.uint64)) // np.uint64(_AT_ONCE)
    edges = np.flatnonzero(np.diff(before, prepend=np.uint64(0))) if len(before) else before
    bounds = [0, *edges.tolist(), len(before)]
    yield from (slice(low, high) for low, high in zip(bounds, bounds[1:]) if low < high)


def _follow_lists(heap: Mimalloc, slabs: slice, memory: List[Span]) -> None:
    pages, slab = heap.pages, np.arange(len(heap.pages.at))[slabs]
    for holder, name, first in (
        (FREE, "free", pages.free),
        (LOCAL, "local_free", pages.local_free),
        (REMOTE, "xthread_free", pages.thread_free),
    ):
        lists = FreeLists(holder, f"{name} of the page", pages.at[slabs], first[slabs], pages.each[slabs], None, slab)
        _keep(heap, follow(heap.target, heap.objects, lists, memory))


def _follow_delayed(heap: Mimalloc, location: Location) -> None:
    """Follow the lists of heaps, whose blocks are of any page."""
    for owner in (at for at in distinct(heap.pages.heap).tolist() if at):
        try:
            key, turned = heap.target.reader.words(owner + location.layout.heap_keys, 2, "mimalloc's heap")
            node = heap.target.reader.word(owner + location.layout.delayed, "mimalloc's heap")
        except FaultError:
            continue
        # Each block of such a list has its own size; it is followed by the sizes of its pages.
        seen: Set[int] = set()
        while node and node not in seen:
            seen.add(node)
            _, row, begins = heap.objects.find(np.array([node], np.uint64))
            if not begins[0] or heap.objects.held[row[0]]:
                what = "is free already: freed twice" if begins[0] else "is no block"
                kind = "double-free" if begins[0] else "free-object"
                message = f"thread_delayed_free of the heap {owner:#x} holds {node:#x}, which {what}"
                heap.problems.append(Problem(kind, node, message, corruption=True))
                break
            heap.objects.held[row[0]] = DELAYED
            try:
                node = heap.target.reader.word(node)
            except FaultError:
                break
            if location.layout.keys:
                one = (np.array([word], np.uint64) for word in (node, owner, key, turned))
                node = int(decoded(*one)[0])


def _keep(heap: Mimalloc, problems: List[Problem]) -> None:
    heap.complete &= not any(one.kind == "absent-memory" for one in problems)
    heap.problems += problems


def _check_used(heap: Mimalloc) -> None:
    """Compare what each page counts with its lists."""
    objects = heap.objects
    slab = np.repeat(np.arange(len(objects.start)), objects.count)
    back = np.isin(objects.held, (FREE, LOCAL))
    found = np.bincount(slab[~back], minlength=len(objects.start))
    for at in np.flatnonzero(found != heap.pages.used.astype(np.int64)).tolist():
        message = (
            f"the page {int(heap.pages.at[at]):#x} counts {int(heap.pages.used[at])} blocks, {found[at]} are on no list"
        )
        heap.problems.append(Problem(COUNTED, int(heap.pages.at[at]), message, corruption=True))
