"""Headers of a program's own before what it hands out, recognised by the pointers that lead behind them.

An allocator on top of malloc (SQLite's memory status, PHP, Python's garbage collector) keeps a size or a link in the
first bytes of each block, and the program keeps pointers to what follows. To malloc these are interior pointers; that
they all lead equally far into their blocks shows what they are.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import exp, log
from typing import List, Optional, Sequence, Tuple

import numpy as np
import numpy.typing as npt

from gdbext.heap.model import U8, U64, Mask
from gdbext.kernels import (
    MAYBE_REACHED,
    MOST_HEADERS,
    REACHED,
    BlockIndex,
    Hits,
    PointerRules,
    Span,
    find_blocks,
    follow_words,
    gather_scalars,
    scan_pointers,
)
from gdbext.kernels.pointers import are_behind_part
from gdbext.memory.intervals import I64

F64 = npt.NDArray[np.float64]

LEAST_BLOCKS = 16
LEAST_SHARE = 0.1  # of the blocks that no other header explains
CHANCE = 1e-9  # that chance explains as much, at any of the offsets that occur
_END = 16  # bytes that malloc may give beyond what was asked for: a pointer there, in the second half, may be to an end
_CANDIDATES = 16  # offsets that are tried, those of most blocks first
_MOST_PARTS = 64
_SIZES, _ONE_SIZE = 4, 0.9  # that a header which grows is seen in; none of them has more of its blocks
_MOST_SAMPLED = 1 << 18  # blocks


@dataclass(frozen=True)
class Header:
    """One distance into blocks at which pointers count as start pointers.

    :param offset: bytes; 0 where it grows with the blocks.
    :param part: which part of what was asked for, as :attr:`gdbext.kernels.PointerRules.part`; 0: it does not grow.
    :param blocks: that a pointer leads to at this offset, among ``of``.
    :param of: blocks that interior pointers lead to, and that no header before this one explains.
    :param expected: how many of them would be hit at this offset if interior pointers led anywhere in their blocks.
    """

    offset: int
    part: int
    blocks: int
    of: int
    expected: float

    def explains(self, into: U64, size: U64) -> Mask:
        """Return which pointers lead there, given how far each leads into its block, and the blocks' bytes."""
        return are_behind_part(into, size, self.part) if self.part else into == self.offset

    @property
    def share(self) -> float:
        """Of the blocks, those that are hit at this offset."""
        return self.blocks / self.of

    @property
    def chance(self) -> float:
        """Of the blocks, those that chance would hit there."""
        return self.expected / self.of


@dataclass(frozen=True)
class Leads:
    """Pointers to some blocks: the row that each leads to, and how far into it."""

    row: I64
    into: U64

    def __add__(self, other: Leads) -> Leads:
        return Leads(np.concatenate((self.row, other.row)), np.concatenate((self.into, other.into)))

    def to(self, wanted: Mask) -> Leads:
        """Return those that lead to wanted rows."""
        kept = wanted[self.row]
        return Leads(self.row[kept], self.into[kept])


@dataclass(frozen=True)
class Headers:
    """What was recognised.

    :param found: at least one.
    :param roots: the pointers of roots.
    :param raised: the rows that are reached, and would not be without headers.
    """

    found: Sequence[Header]
    roots: Leads
    raised: Mask


def leads_of(spans: Sequence[Span], hits: Hits, index: BlockIndex, rules: PointerRules) -> Leads:
    """Return how far each of some pointers leads into its block.

    :param spans: which the pointers were found in.
    """
    row, into = hits.row.astype(np.int64), np.zeros(len(hits), np.uint64)
    at = np.flatnonzero(hits.interior)
    words, _ = gather_scalars(spans, hits.place[at], rules.word, rules.byteorder)
    into[at] = follow_words(words, hits.place[at], index, rules).address - index.address[row[at]]
    return Leads(row, into)


def find_headers(
    spans: Sequence[Span], index: BlockIndex, rules: PointerRules, states: U8, roots: Leads
) -> Sequence[Header]:
    """Return the headers that blocks of a heap have, those of most blocks first.

    :param spans: the memory of the blocks.
    :param states: what was reached without headers.
    :param roots: the pointers of roots.
    """
    rows = np.flatnonzero(states == MAYBE_REACHED)
    rows = rows[:: len(rows) // _MOST_SAMPLED + 1]
    if len(rows) < LEAST_BLOCKS:
        return ()
    wanted = np.zeros(len(index), np.bool_)
    wanted[rows] = True
    leads = roots.to(wanted) + _leads_from(spans, index, rules, states >= MAYBE_REACHED, wanted)
    row, into = _distinct(leads.row, leads.into)
    return _judge(row[into > 0], into[into > 0], index.size, rules.word)


def offsets_of(
    spans: Sequence[Span], index: BlockIndex, rules: PointerRules, states: U8, headers: Headers
) -> I64:
    """Return for each row the bytes of the header behind which pointers from reached memory lead, or 0.

    Only rows that headers raised have any: start pointers to them come from other such rows.

    :param states: what is reached with headers.
    """
    plain, raised = rules._replace(headers=(), part=0), headers.raised
    leads = headers.roots.to(raised) + _leads_from(spans, index, plain, states == REACHED, raised)
    offsets = np.zeros(len(index), np.int64)
    behind = np.zeros(len(leads.row), np.bool_)
    for header in headers.found:
        behind |= header.explains(leads.into, index.size[leads.row])
    offsets[leads.row[behind]] = leads.into[behind]
    return offsets


def with_headers(rules: PointerRules, found: Sequence[Header]) -> PointerRules:
    """Return the rules by which pointers behind headers are start pointers."""
    offsets = tuple(header.offset for header in found if not header.part)
    return rules._replace(headers=offsets, part=next((header.part for header in found if header.part), 0))


def _leads_from(spans: Sequence[Span], index: BlockIndex, rules: PointerRules, source: Mask, wanted: Mask) -> Leads:
    """Return the pointers to wanted blocks that lie in others of some blocks."""
    hits = scan_pointers(spans, index, rules, wanted)
    row = find_blocks(index, hits.place)
    kept = (row >= 0) & source[row] & (row != hits.row)
    return leads_of(spans, Hits(hits.place[kept], hits.row[kept], hits.interior[kept]), index, rules)


def _distinct(row: I64, into: U64) -> Tuple[I64, U64]:
    order = np.lexsort((into, row))
    row, into = row[order], into[order]
    fresh = np.ones(len(row), np.bool_)
    fresh[1:] = (row[1:] != row[:-1]) | (into[1:] != into[:-1])
    return row[fresh], into[fresh]


def _judge(row: I64, into: U64, size: U64, word: int) -> Sequence[Header]:
    """Take one offset after the other while it explains enough of the blocks that are left, and chance does not.

    :param row: of each distinct pair of a block and an offset at which interior pointers lead into it.
    """
    found: List[Header] = []
    while len(found) < MOST_HEADERS:
        known = any(header.part for header in found)
        tried = [_best(row, into, size, word), None if known else _best_part(row, into, size, word)]
        best = max((one for one in tried if one is not None), key=lambda one: one.blocks, default=None)
        if best is None:
            break
        found.append(best)
        kept = ~np.isin(row, row[best.explains(into, size[row])])
        row, into = row[kept], into[kept]
    return found


def _best(row: I64, into: U64, size: U64, word: int) -> Optional[Header]:
    """Return the header of most blocks that passes all tests, or None."""
    of_words, of_bytes = _chances(row, size, word), _chances(row, size, 1)
    blocks = np.unique(row)
    offsets, counts = np.unique(into, return_counts=True)
    for at in np.argsort(-counts, kind="stable")[:_CANDIDATES]:
        hit = size[row[into == offsets[at]]]
        chances = of_bytes if offsets[at] % np.uint64(word) else of_words
        expected = float(chances[size[blocks] > offsets[at]].sum())
        ends = int(np.count_nonzero((hit - offsets[at] < _END) & (offsets[at] > hit // 2)))
        enough = len(hit) - ends >= max(LEAST_BLOCKS, LEAST_SHARE * len(blocks))
        if enough and _chance(len(hit), len(blocks), expected) * len(offsets) <= CHANCE:
            return Header(int(offsets[at]), 0, len(hit), len(blocks), expected)
    return None


def _chances(row: I64, size: U64, step: int) -> F64:
    """Return of each block how likely one of its words (``step`` bytes) but the first is pointed at by chance."""
    blocks, pointers = np.unique(row, return_counts=True)
    chances: F64 = pointers / np.maximum(size[blocks].astype(np.int64) // step - 1, pointers)
    return chances


def _best_part(row: I64, into: U64, size: U64, word: int) -> Optional[Header]:
    """Return the header that grows with its blocks, seen in blocks of several sizes, or None."""
    parts = size[row] // into
    grows = (parts > 1) & (parts <= _MOST_PARTS)
    if not grows.any():
        return None
    blocks, chances = np.unique(row), _chances(row, size, word)
    for part in np.argsort(-np.bincount(parts[grows].astype(np.int64)), kind="stable")[:_CANDIDATES].tolist():
        if part < 2:
            continue
        hit = np.unique(row[are_behind_part(into, size[row], part)])
        sizes, counts = np.unique(size[hit], return_counts=True)
        several = len(sizes) >= _SIZES and counts.max() <= _ONE_SIZE * len(hit)
        room = (size[blocks] // np.uint64(32) + np.uint64(15)) // np.uint64(part * word) + np.uint64(1)
        expected = float(np.minimum(chances * room, 1).sum())
        enough = several and len(hit) >= max(LEAST_BLOCKS, LEAST_SHARE * len(blocks))
        if enough and _chance(len(hit), len(blocks), expected) * _MOST_PARTS <= CHANCE:
            return Header(0, part, len(hit), len(blocks), expected)
    return None


def _chance(hits: int, blocks: int, expected: float) -> float:
    """Return a bound of the probability that as many blocks, or more, are hit by chance.

    Chernoff's bound of a sum of independent trials, which Hoeffding (1963, theorem 1) gives for unequal ones:
    exp(-n D(k/n || p)) with p the mean of their probabilities.
    """
    share, mean = hits / blocks, expected / blocks
    if share <= mean:
        return 1.0
    distance = share * log(share / mean) if mean else float("inf")
    if share < 1:
        distance += (1 - share) * log((1 - share) / (1 - mean))
    return exp(-blocks * distance)
