"""Reads mimalloc: the pages of its segments, and which of their blocks are free.

A page has three lists: ``free``, ``local_free`` (freed by its thread, not offered yet) and ``xthread_free`` (freed by
others; the low bits are flags). The first block that another thread frees in a full page is on its heap's
``thread_delayed_free`` instead. ``used`` counts what is in use and on the last two.
"""

from __future__ import annotations

from typing import Iterator, List, Set, Tuple

import numpy as np

from gdbext.errors import FaultError
from gdbext.heap.freelists import COUNTED, FreeLists, Objects, follow
from gdbext.heap.mimalloc.layouts import HUGE_SIZE, IN_USE, SLICE, Layout
from gdbext.heap.mimalloc.model import DELAYED, FREE, LOCAL, REMOTE, U64, Location, Mimalloc, Pages
from gdbext.heap.reading import mapped_ranges
from gdbext.memory.intervals import distinct
from gdbext.progress import Progress
from gdbext.report import Problem
from gdbext.target import Target

Row = Tuple[int, ...]  # as Pages
_FLAGS = 3  # of xthread_free
_MOST_BLOCK = 1 << 46


def read_mimalloc(target: Target, location: Location, progress: Progress) -> Mimalloc:
    """Return one mimalloc as far as it can be read."""
    heap = Mimalloc(target, location, _pages([]), Objects(*_slabs(_pages([]))))
    rows: List[Row] = []
    try:
        for done, base in enumerate(location.segments):
            progress.at("segments of mimalloc", done, len(location.segments))
            rows += _read_segment(heap, base)
        heap.pages = _sound(heap, _pages(rows))
        heap.objects = Objects(*_slabs(heap.pages))
        _follow(heap)
    except KeyboardInterrupt:
        heap.complete = False
        heap.problems.append(Problem("interrupted", None, "reading mimalloc was stopped"))
    return heap


def _read_segment(heap: Mimalloc, base: int) -> Iterator[Row]:
    """Read a segment, and iterate over its pages in use."""
    target, layout = heap.target, heap.location.layout
    try:
        entries = target.reader.word(base + layout.entries)
        size, info = (
            target.reader.word(base + at) * (1 if layout.shift else SLICE) for at in (layout.size, layout.info)
        )
        at, step = layout.pages
        data = bytes(target.reader.bytes(base + at, entries * step, "mimalloc's segment"))
        shift = target.reader.word(base + layout.shift) if layout.shift else 16
    except FaultError as fault:
        lacks = target.lacks(fault.address, fault.size)
        heap.complete &= not lacks
        message = f"the segment {base:#x} cannot be read"
        heap.problems.append(Problem("absent-memory" if lacks else "segment", base, message, corruption=not lacks))
        return
    heap.segments.append((base, base + size, base + min(info, size)))
    number = 0 if layout.shift else info // SLICE
    while number < entries:
        page = {
            name: _number(data, step * number + offset, bytes, heap) for name, (offset, bytes) in layout.page.items()
        }
        used = page["bits"] & IN_USE if layout.shift else page["block_size"]
        if used and page["capacity"]:
            yield _page(layout, base, (base + at + step * number, base + (number << shift), base + size), page)
        number += 1 if layout.shift else max(page["slice_count"], 1)


def _number(data: bytes, at: int, size: int, heap: Mimalloc) -> int:
    return int.from_bytes(data[at : at + size], heap.target.abi.byteorder)


def _page(layout: Layout, base: int, place: Tuple[int, int, int], page: "dict[str, int]") -> Row:
    """Return a page's row.

    :param place: of its ``mi_page_t``, of its memory, and the end of its segment.
    """
    at, memory, end = place
    each = page["block_size"]
    if each >= HUGE_SIZE:
        each = min(page.get("slice_count", 0) * SLICE, end - memory) or end - memory
    start = page.get("page_start")
    if start is None:
        start = memory + next((fixed + times * each for most, fixed, times in layout.start if 8 <= each <= most), 0)
    return (at, start, each, page["capacity"], page["used"], page["free"], page["local_free"],
            page["thread_free"] & ~_FLAGS, page["heap"])  # fmt: skip


def _pages(rows: List[Row]) -> Pages:
    table = np.array(sorted(rows, key=lambda row: row[1]), np.uint64).reshape(-1, 9)
    columns = [table[:, number].copy() for number in range(9)]
    return Pages(columns[0], columns[1], columns[2], columns[3].astype(np.int64), *columns[4:])


def _slabs(pages: Pages) -> "Tuple[U64, U64, np.ndarray[tuple[int], np.dtype[np.int64]]]":
    return pages.start, pages.each, pages.capacity


def _sound(heap: Mimalloc, pages: Pages) -> Pages:
    """Leave out pages that reach into the one before, or beyond what is mapped: each byte has one owner."""
    small = (pages.each >= 8) & (pages.each < _MOST_BLOCK)
    ends = pages.start + np.where(small, pages.each, 0).astype(np.uint64) * pages.capacity.astype(np.uint64)
    wrong = ~small | ~mapped_ranges(heap.target.index).holds_whole(pages.start, ends)
    reach = np.maximum.accumulate(np.where(wrong, 0, ends).astype(np.uint64)) if len(ends) else ends
    wrong[1:] |= pages.start[1:] < reach[:-1]
    for at in np.flatnonzero(wrong).tolist():
        message = f"the page {int(pages.at[at]):#x} cannot be one: its blocks overlap others, or are not mapped"
        heap.problems.append(Problem("page", int(pages.at[at]), message, corruption=True))
    return Pages(*(getattr(pages, name)[~wrong] for name in pages.__dataclass_fields__))


def _follow(heap: Mimalloc) -> None:
    pages, objects = heap.pages, heap.objects
    memory = list(objects.memory(heap.target))
    slab = np.arange(len(pages.at))
    lists = [
        FreeLists(holder, f"{name} of the page", pages.at, first, pages.each, None, slab)
        for holder, name, first in (
            (FREE, "free", pages.free),
            (LOCAL, "local_free", pages.local_free),
            (REMOTE, "xthread_free", pages.thread_free),
        )
    ]
    for one in lists:
        _keep(heap, follow(heap.target, objects, one, memory))
    _follow_delayed(heap, memory)
    _check_used(heap)


def _follow_delayed(heap: Mimalloc, memory: "List[Tuple[int, object]]") -> None:
    """Follow the lists of heaps, whose blocks are of any page."""
    owners = [at for at in distinct(heap.pages.heap).tolist() if at]
    for owner in owners:
        try:
            node = heap.target.reader.word(owner + heap.location.layout.delayed, "mimalloc's heap")
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
