"""Many words at once: gathers over scattered addresses, whole stretches as arrays."""

from __future__ import annotations

from typing import Iterable, Iterator, Tuple

import numpy as np
import numpy.typing as npt

from gdbext.abi import Abi
from gdbext.errors import FaultError
from gdbext.memory import Buffer, Memory, RegionIndex, for_each_written, view

U64 = npt.NDArray[np.uint64]
Mask = npt.NDArray[np.bool_]

HOLE = 1 << 16  # bytes: fewer cost less than a span of their own


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
