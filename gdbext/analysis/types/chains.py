"""Long lists at once: all blocks that links of one type lead to, in a few passes instead of one a node."""

from __future__ import annotations

from typing import Iterator, List, Sequence

import numpy as np
import numpy.typing as npt

from gdbext.analysis.types.blockwords import Words
from gdbext.heap.model import U64, Mask
from gdbext.memory.intervals import slices

I64 = npt.NDArray[np.int64]


def unrolled(address: U64, count: I64, size: int, step: int, most: int) -> Iterator[U64]:
    """Iterate over the addresses of objects that lie one behind the other, part by part.

    :param address: of the first of each row of objects.
    :param count: objects in each row.
    :param size: bytes of an object.
    :param step: addresses in a part.
    :param most: addresses in all; what is more is left out.
    """
    ends = np.cumsum(np.minimum(count, most))
    total = min(int(ends[-1]) if len(ends) else 0, most)
    for part in slices(total, step):
        number = np.arange(part.start, part.stop)
        row = np.searchsorted(ends, number, side="right")
        before = np.where(row > 0, ends[row - 1], 0)
        yield address[row] + (number - before).astype(np.uint64) * np.uint64(size)


def follow(words: Words, begun: Mask, among: I64, leads: Mask, offsets: Sequence[int]) -> I64:
    """Return the rows that links lead to from those that are begun with, which are left out.

    Each link by itself is a function from rows to rows; followed twice as far each time, it takes as many passes as
    the length of the longest list has bits. Passes are repeated until links of different offsets add nothing.

    :param begun: for each row whether to begin there.
    :param among: the rows that links are followed among, in order, those to begin with included.
    :param leads: for each of ``among`` whether its own links count.
    :param offsets: of the links to the same type.
    """
    reached = begun[among]
    nexts = [np.where(leads, _next_of(words, among, offset), np.arange(len(among))) for offset in offsets]
    before = -1
    while before != int(reached.sum()):
        before = int(reached.sum())
        for jump in nexts:
            _close(reached, jump)
    found: I64 = among[reached & ~begun[among]]
    return found


def _next_of(words: Words, rows: I64, offset: int) -> I64:
    """Return for each row the position of the one that it links to; its own where that is none of them."""
    parts: List[I64] = [np.empty(0, np.int64)]
    for part in slices(len(rows)):
        values, known = words.in_blocks(words.index.address[rows[part]] + np.uint64(offset))
        to = words.rows_at(values)
        at = np.minimum(np.searchsorted(rows, to), max(len(rows) - 1, 0))
        held = known & (to >= 0) & (rows[at] == to)
        parts.append(np.where(held, at, np.arange(part.start, part.stop)))
    return np.concatenate(parts)


def _close(reached: Mask, jump: I64) -> None:
    """Add all that is reached by following one link any number of times."""
    jump = jump.copy()
    for _ in range(64):
        more = jump[reached]
        if reached[more].all():  # nothing new at this distance, so nothing beyond
            return
        reached[more] = True
        jump = jump[jump]
