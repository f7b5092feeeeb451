"""Long lists at once: all blocks that links of one type lead to, in a few passes instead of one a node."""

from __future__ import annotations

from typing import Iterable, Iterator, List, Sequence, Tuple

import numpy as np
import numpy.typing as npt

from gdbext.analysis.types.blockwords import Words
from gdbext.heap.model import U32, U64, Mask
from gdbext.memory.intervals import slices

I64 = npt.NDArray[np.int64]
Objects = Tuple[U64, I64]


def unrolled(rows: Iterable[Objects], size: int, step: int, most: int) -> Iterator[U64]:
    """Iterate over the addresses of objects that lie one behind the other, part by part.

    :param rows: addresses of the first of each row of objects, and how many there are in each; several such pairs.
    :param size: bytes of an object.
    :param step: addresses in a part, the last one apart; below twice as many.
    :param most: addresses in all; what is more is left out.
    """
    waiting: List[U64] = []
    held, left = 0, most
    for places in _each(rows, size, step, most):
        waiting.append(places[:left])
        held, left = held + len(waiting[-1]), left - len(waiting[-1])
        if held >= step or not left:
            yield np.concatenate(waiting)
            waiting, held = [], 0
        if not left:
            return
    if held:
        yield np.concatenate(waiting)


def _each(rows: Iterable[Objects], size: int, step: int, most: int) -> Iterator[U64]:
    """Iterate over the same in pieces of no more than ``step``."""
    for addresses, counts in rows:
        for some in slices(len(addresses), step):
            address, count = addresses[some], np.minimum(counts[some], most)
            if (count == 1).all():
                yield address
                continue
            ends = np.cumsum(count)
            for part in slices(int(ends[-1]), step):
                number = np.arange(part.start, part.stop)
                row = np.searchsorted(ends, number, side="right")
                before = np.where(row > 0, ends[row - 1], 0)
                yield address[row] + (number - before).astype(np.uint64) * np.uint64(size)


def follow(words: Words, among: U32, begun: Mask, leads: Mask, offsets: Sequence[int]) -> U32:
    """Return the rows that links lead to, those that are begun with included.

    Each link by itself is a function from rows to rows; followed twice as far each time, it takes as many passes as
    the length of the longest list has bits. Passes are repeated until links of different offsets add nothing.

    :param among: the rows that links are followed among, in order.
    :param begun: for each of them whether to begin there.
    :param leads: for each of them whether its own links count.
    :param offsets: of the links to the same type.
    """
    reached = begun.copy()
    position = np.zeros(len(words.index), np.uint32)
    for part in slices(len(among)):
        position[among[part]] = np.arange(part.start + 1, part.stop + 1)
    nexts = [_next_of(words, among, leads, position, offset) for offset in offsets]
    del position
    before = -1
    while before != int(reached.sum()):
        before = int(reached.sum())
        for jump in nexts:
            _close(reached, jump)
    found: U32 = among[reached]
    return found


def _next_of(words: Words, among: U32, leads: Mask, position: U32, offset: int) -> U32:
    """Return for each row the position of the one that it links to; its own where that is none of them.

    :param position: of each row among those, from 1; 0 is none of them.
    """
    found = np.arange(len(among), dtype=np.uint32)
    for part in slices(len(among)):
        values, known = words.pointers(words.index.address[among[part]] + np.uint64(offset))
        to = words.rows_at(values)
        at = position[to].astype(np.int64) - 1
        held = leads[part] & known & (to >= 0) & (at >= 0)
        found[part][held] = at[held]
    return found


def _close(reached: Mask, jump: U32) -> None:
    """Add all that is reached by following one link any number of times."""
    for _ in range(64):
        more = jump[reached]
        if all(reached[more[part]].all() for part in slices(len(more))):  # nothing new so far, so nothing beyond
            return
        for part in slices(len(more)):
            reached[more[part]] = True
        del more
        farther = np.empty_like(jump)
        for part in slices(len(jump)):
            farther[part] = jump[jump[part]]
        jump = farther
