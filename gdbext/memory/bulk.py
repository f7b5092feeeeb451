"""Many words at once: gathers over scattered addresses, whole stretches as arrays."""

from __future__ import annotations

from typing import Iterator, Tuple

import numpy as np
import numpy.typing as npt

from gdbext.abi import Abi
from gdbext.errors import FaultError
from gdbext.memory import Buffer, Memory, RegionIndex, view

U64 = npt.NDArray[np.uint64]


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
