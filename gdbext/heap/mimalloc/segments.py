"""Reads the segments of 1.x and 2.x: each has its pages in an array of its own."""

from __future__ import annotations

from typing import Iterator, List, Tuple

from gdbext.errors import FaultError
from gdbext.heap.mimalloc.layouts import HUGE_SIZE, IN_USE, SLICE, Layout
from gdbext.heap.mimalloc.model import Location, Mimalloc
from gdbext.progress import Progress
from gdbext.report import Problem

Row = Tuple[int, ...]  # as Pages
_FLAGS = 3  # of xthread_free


def read_segments(heap: Mimalloc, location: Location, progress: Progress) -> List[Row]:
    """Return the pages in use, a row each, and note what their segments are."""
    rows: List[Row] = []
    for done, base in enumerate(location.segments):
        progress.at("segments of mimalloc", done, len(location.segments))
        rows += _read_segment(heap, location.layout, base)
    return rows


def _read_segment(heap: Mimalloc, layout: Layout, base: int) -> Iterator[Row]:
    """Read a segment, and iterate over its pages in use."""
    target = heap.target
    try:
        entries, thread = (target.reader.word(base + at) for at in (layout.entries, layout.thread))
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
    heap.areas.append((base, base + size))
    heap.own.append((base, base + min(info, size)))
    heap.owners.append((base, base + size, thread))
    number = 0 if layout.shift else info // SLICE
    while number < entries:
        page = {
            name: _number(data, step * number + offset, bytes, heap) for name, (offset, bytes) in layout.page.items()
        }
        used = page["bits"] & IN_USE if layout.shift else page["block_size"]
        if used and page["capacity"]:
            keys = tuple(_number(data, step * number + layout.keys + at, 8, heap) for at in (0, 8) if layout.keys)
            place = (base + at + step * number, base + (number << shift), base + size)
            yield (*_page(layout, place, page), thread, *(keys or (0, 0)))
        number += 1 if layout.shift else max(page["slice_count"], 1)


def _number(data: bytes, at: int, size: int, heap: Mimalloc) -> int:
    return int.from_bytes(data[at : at + size], heap.target.abi.byteorder)


def _page(layout: Layout, place: Tuple[int, int, int], page: "dict[str, int]") -> Row:
    """Return a page's row up to its heap.

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
