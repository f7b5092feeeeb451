"""Many words at once: gathers over scattered addresses, whole stretches as arrays."""

from __future__ import annotations

from typing import Iterable, Iterator, List, Tuple

import numpy as np
import numpy.typing as npt

from gdbext.abi import Abi
from gdbext.errors import FaultError
from gdbext.memory import Buffer, Memory, RegionIndex, for_each_written, view

U64 = npt.NDArray[np.uint64]
Mask = npt.NDArray[np.bool_]

HOLE = 1 << 16  # bytes: fewer cost less than a span of their own
_AT_ONCE = 1 << 24  # bytes: of a process they are copied
_FAR = 1 << 30  # bytes from the first to the last of them


def words_at(memory: Memory, abi: Abi, start: int, count: int) -> U64:
    """Return ``count`` words from ``start`` on, without copying where the memory allows.

    :raises FaultError: when they cannot all be read.
    """
    buffer = view(memory, start, count * abi.pointer_size)
    return np.frombuffer(buffer, dtype=abi.word_dtype).astype(np.uint64, copy=False)


def for_each_view(memory: Memory, start: int, end: int, page: int) -> Iterator[Tuple[int, Buffer]]:
    """Iterate over what can be read from ``start`` to ``end``, address and bytes: whole, else by halves to a page."""
    try:
        yield start, view(memory, start, end - start)
    except FaultError:
        middle = max((start + end) // 2 // page, start // page + 1) * page
        if middle < end:
            yield from for_each_view(memory, start, middle, page)
            yield from for_each_view(memory, middle, end, page)


def for_each_written_view(
    memory: Memory, start: int, end: int, page: int, most: int = 1 << 24, hole: int = HOLE
) -> Iterator[Tuple[int, Buffer]]:
    """Iterate over what the target may have written from ``start`` to ``end``, address and bytes, as it can be read.

    :param most: bytes at once.
    :param hole: bytes between two such stretches from which on they are not handed out; fewer are, as they are.
    """
    for low, high in closed(for_each_written(memory, start, end), hole):
        for at in range(low, high, most):
            yield from for_each_view(memory, at, min(at + most, high), page)


def for_each_written_page(memory: Memory, abi: Abi, start: int, end: int) -> Iterator[Tuple[U64, U64]]:
    """Iterate over the pages that the target may have written, many at a time: addresses, and their words as rows.

    However many stretches they lie in, memory is read in few large ones. Pages that cannot be read are left out.
    """
    page = abi.page_size
    for stretches in _windows(for_each_written(memory, start + -start % page, end - end % page)):
        if len(stretches) == 1:  # as for each of thousands of stacks
            for place, data in for_each_view(memory, *stretches[0], page):
                words = np.frombuffer(data, abi.word_dtype).reshape(-1, page // abi.pointer_size)
                pages = np.uint64(place) + np.arange(len(words), dtype=np.uint64) * np.uint64(page)
                yield pages, words.astype(np.uint64, copy=False)
            continue
        lows, highs = (np.array(column, np.uint64) for column in zip(*stretches))
        counts = ((highs - lows) // np.uint64(page)).astype(np.int64)
        before = np.repeat(np.cumsum(counts) - counts, counts)
        pages = np.repeat(lows, counts) + (np.arange(len(before)) - before).astype(np.uint64) * np.uint64(page)
        for place, data in for_each_view(memory, stretches[0][0], stretches[-1][1], page):
            words = np.frombuffer(data, abi.word_dtype).reshape(-1, page // abi.pointer_size)
            held = pages[(pages >= np.uint64(place)) & (pages < np.uint64(place + len(words) * page))]
            rows = ((held - np.uint64(place)) // np.uint64(page)).astype(np.int64)
            kept = words if len(rows) == len(words) else words[rows]
            if len(rows):
                yield held, kept.astype(np.uint64, copy=False)


def _windows(stretches: Iterable[Tuple[int, int]]) -> Iterator[List[Tuple[int, int]]]:
    """Group stretches, cut where they are large, so that neither their bytes nor their distances are many."""
    window: List[Tuple[int, int]] = []
    size = 0
    for low, high in stretches:
        for at in range(low, high, _AT_ONCE):
            behind = min(at + _AT_ONCE, high)
            if window and (size + behind - at > _AT_ONCE or behind - window[0][0] > _FAR):
                yield window
                window, size = [], 0
            window.append((at, behind))
            size += behind - at
    if window:
        yield window


def closed(stretches: Iterable[Tuple[int, int]], hole: int = HOLE) -> Iterator[Tuple[int, int]]:
    """Iterate over stretches in order, those less than ``hole`` bytes apart as one."""
    low = high = -1
    for start, end in stretches:
        if low >= 0 and start - high < hole:
            high = end
            continue
        if low >= 0:
            yield low, high
        low, high = start, end
    if low >= 0:
        yield low, high


def untouched(memory: Memory, addresses: U64) -> Mask:
    """Return which addresses lie in memory that is zeros since nobody ever wrote there, as far as that is known."""
    direct = getattr(memory, "untouched", None)
    known: Mask = np.zeros(len(addresses), np.bool_) if direct is None else direct(addresses)
    return known


def gather_words(memory: Memory, abi: Abi, addresses: U64) -> Tuple[U64, "npt.NDArray[np.bool_]"]:
    """Return the word at each address, and whether it could be read.

    :param addresses: sorted; each word-aligned.
    """
    values = np.zeros(len(addresses), np.uint64)
    known = np.zeros(len(addresses), np.bool_)
    index = RegionIndex(memory.regions())
    at, word = 0, abi.pointer_size
    while at < len(addresses):
        region = index.find(int(addresses[at]))
        if region is None:
            at += 1
            continue
        until = int(np.searchsorted(addresses, np.uint64(region.end), side="left"))
        _gather_run(memory, abi, addresses[at:until], values[at:until], known[at:until])
        at = until
    return values, known & (addresses % np.uint64(word) == 0)


def _gather_run(
    memory: Memory, abi: Abi, addresses: U64, values: U64, known: "npt.NDArray[np.bool_]"
) -> None:
    low = int(addresses[0])
    count = (int(addresses[-1]) - low) // abi.pointer_size + 1
    try:
        words = words_at(memory, abi, low, count)
    except FaultError:
        return
    values[:] = words[((addresses - np.uint64(low)) // np.uint64(abi.pointer_size)).astype(np.int64)]
    known[:] = True
