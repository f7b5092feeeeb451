"""Words anywhere that point at a few blocks, or at one address: in roots, in live blocks, in freed ones."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Iterator, List, Optional, Sequence, Tuple

import numpy as np

from gdbext.analysis.reach.code import scan_code
from gdbext.analysis.reach.graph import Reach
from gdbext.heap.model import USED_STATES, Mask
from gdbext.kernels import BlockIndex, Hits, Span, find_blocks, follow_words, gather_scalars, scan_pointers
from gdbext.memory.bulk import for_each_written_view
from gdbext.memory.intervals import I64, Coverage, Intervals, columns, subtract, unite

_AT_ONCE = 1 << 28  # bytes: what is not lent is copied


@dataclass(frozen=True)
class Pointers:
    """Words that point at wanted blocks.

    :param hits: those in memory, roots' first; ``row`` is the position of what is pointed at among what was wanted.
    :param source: row of the live block of the program's that each lies in, or -1.
    :param root: whether each lies in root memory.
    :param words: registers and the like: position in ``Roots.words``, position of what is pointed at, whether
        behind its beginning.
    """

    hits: Hits
    source: I64
    root: Mask
    words: Sequence[Tuple[int, int, bool]]


class PointerSearch:
    """Looks for pointers, through all blocks each time."""

    def __init__(self, reach: Reach) -> None:
        self._reach = reach

    def of_rows(self, rows: I64) -> Pointers:
        """Return all that keeps live blocks alive: words of roots, which are known, and of live blocks.

        :param rows: sorted.
        """
        index = self._reach.marked.blocks.index
        return self._found(BlockIndex(index.address[rows], index.size[rows]), self._known(rows))

    def _known(self, rows: I64) -> Hits:
        memory = self._reach.marked.hits.memory
        kept = np.flatnonzero(np.isin(memory.row, rows))
        at = np.searchsorted(rows, memory.row[kept]).astype(np.uint32)
        return Hits(memory.place[kept], at, memory.interior[kept])

    def of_block(self, address: int, size: int, row: Optional[int]) -> Pointers:
        """Return all that points at a block, into the middle of it too, in freed memory too.

        :param row: its row; None where it is not in use, or is no block.
        """
        wanted = BlockIndex(np.array([address], np.uint64), np.array([size], np.uint64))
        roots = self._of_roots(wanted) if row is None else self._known(np.array([row]))
        return self._found(wanted, roots, self._scan(self._unused, wanted))

    def _found(self, wanted: BlockIndex, *known: Hits) -> Pointers:
        """Return these hits, the first of which are of roots, and those in the memory of live blocks."""
        reach = self._reach
        every = _joined([*known, self._hits(reach.marked.spans, wanted)])
        # A stack in a block is both: once is enough, as a root. In the order of addresses, roots first.
        root = np.arange(len(every)) < len(known[0])
        order = np.lexsort((every.place, ~root))
        order = order[np.sort(np.unique(every.place[order], return_index=True)[1])]
        hits = Hits(every.place[order], every.row[order], every.interior[order])
        source = find_blocks(reach.marked.blocks.index, hits.place)
        source[self._allocators.holds(hits.place)] = -1
        return Pointers(hits, source, root[order], self._words(wanted))

    def _words(self, wanted: BlockIndex) -> Sequence[Tuple[int, int, bool]]:
        words = self._reach.marked.roots.words
        values = np.array([word.value & ~self._reach.rules.clear for word in words], np.uint64)
        rows = wanted.find(values)
        found = np.flatnonzero(rows >= 0)
        interior = self._reach.rules.are_interior(values[found] - wanted.address[rows[found]], wanted.size[rows[found]])
        return [(int(at), int(rows[at]), bool(inside)) for at, inside in zip(found, interior)]

    # -- memory that is not kept

    def _of_roots(self, wanted: BlockIndex) -> Hits:
        ranges, rules = self._reach.marked.roots.ranges, self._reach.rules
        code, plain = ([(one.start, one.end) for one in ranges if one.code is kind] for kind in (True, False))
        spans = [piece for interval in code for piece in self._pieces(columns([interval]))]
        immediates = scan_code(spans, wanted, rules, self._reach.target.abi.machine)
        return _joined([self._scan(columns(plain), wanted), immediates])

    def _scan(self, intervals: Intervals, wanted: BlockIndex) -> Hits:
        parts = [self._hits([piece], wanted) for piece in self._pieces(intervals)]
        return _joined([*parts, self._hits([], wanted)])

    def _hits(self, spans: Sequence[Span], wanted: BlockIndex) -> Hits:
        """Return the words that point at what is wanted; none that leads to another live block as it stands."""
        reach = self._reach
        hits = scan_pointers(spans, wanted, reach.rules)
        if not reach.rules.mangled:
            return hits
        words, _ = gather_scalars(spans, hits.place, reach.rules.word, reach.rules.byteorder)
        every, plain = reach.marked.blocks.index, reach.rules._replace(mangled=False)
        elsewhere = (follow_words(words, hits.place, every, plain).row >= 0) & (
            follow_words(words, hits.place, wanted, plain).row < 0
        )
        return Hits(hits.place[~elsewhere], hits.row[~elsewhere], hits.interior[~elsewhere])

    def _pieces(self, intervals: Intervals) -> Iterator[Tuple[int, object]]:
        """Iterate over what can be read of intervals; what cannot is among what the reach says to be missing."""
        target = self._reach.target
        for start, end in zip(intervals[0].tolist(), intervals[1].tolist()):
            for region in target.index.within(start, end):
                low, high = max(region.start, start), min(region.end, end)
                if region.readable:
                    yield from for_each_written_view(target.memory, low, high, target.abi.page_size, _AT_ONCE)

    @cached_property
    def _allocators(self) -> Coverage:
        return unite([self._metadata]).covered

    @property
    def _metadata(self) -> Intervals:
        """What allocators keep for themselves, thread caches in blocks of their own among it."""
        return columns([piece for heap in self._reach.heaps for piece in heap.metadata])

    @property
    def _unused(self) -> Intervals:
        """Free blocks, and what allocators keep for themselves, as far as it is not beside live blocks."""
        unused: List[Intervals] = [self._metadata]
        for heap in self._reach.heaps:
            free = ~heap.blocks.having(USED_STATES)
            unused.append((heap.blocks.address[free], heap.blocks.address[free] + heap.blocks.size[free]))
        known = [(start, start + len(data)) for start, data in self._reach.marked.spans]  # type: ignore[arg-type]
        known += [(one.start, one.end) for one in self._reach.marked.roots.ranges]
        starts, ends, _ = subtract(unite(unused).covered, unite([columns(known)]).covered)
        return starts, ends


def _joined(parts: Sequence[Hits]) -> Hits:
    place, row, interior = zip(*((part.place, part.row, part.interior) for part in parts))
    return Hits(np.concatenate(place), np.concatenate(row), np.concatenate(interior))
