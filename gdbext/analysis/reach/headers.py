"""Headers of a program's own before what it hands out, recognised by the pointers that lead behind them.

An allocator on top of malloc (SQLite's memory status, PHP, Python's garbage collector) keeps a size or a link in the
first bytes of each block, and the program keeps pointers to what follows. To malloc these are interior pointers; that
they all lead equally far into their blocks shows what they are.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import exp, log
from typing import List, Optional, Sequence, Tuple

import numpy as np

from gdbext.heap.model import U8, U64, Mask
from gdbext.kernels import (
    MAYBE_REACHED,
    MOST_HEADERS,
    REACHED,
    BlockIndex,
    Hits,
    PointerRules,
    Span,
    follow_words,
    gather_scalars,
    scan_pointers,
)
from gdbext.memory.intervals import I64

LONGEST = 256  # bytes; what is farther into a block is no header's end
LEAST_BLOCKS = 32
LEAST_SHARE = 0.5  # of the blocks that no other header explains
CHANCE = 1e-9  # that chance explains as much, with all offsets that might have been found
_ONE_SIZE = 0.9  # of the blocks: an end of equal arrays, too, is at one offset in blocks of one size
_MOST_SAMPLED = 1 << 18  # blocks


@dataclass(frozen=True)
class Header:
    """One distance into blocks at which pointers count as start pointers.

    :param offset: bytes.
    :param blocks: that a pointer leads to at this offset, among ``of``.
    :param of: blocks that interior pointers lead to and no start pointer, and that no header before this one explains.
    :param expected: how many of them would be hit at this offset if interior pointers led anywhere in their blocks.
    """

    offset: int
    blocks: int
    of: int
    expected: float

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
    wanted[leads.row[leads.into == 0]] = False  # its start is pointed at: whoever holds it decides
    leads = leads.to(wanted)
    return _judge(*_distinct(leads.row, leads.into), index.size, rules.word)


def offsets_of(
    spans: Sequence[Span], index: BlockIndex, rules: PointerRules, states: U8, headers: Headers
) -> I64:
    """Return for each row the bytes of the header behind which alone start pointers lead, or 0.

    :param states: what is reached with headers.
    """
    plain, raised = replace(rules, headers=()), headers.raised
    leads = headers.roots.to(raised) + _leads_from(spans, index, plain, states == REACHED, raised)
    offsets = np.zeros(len(index), np.int64)
    for header in reversed(headers.found):
        offsets[leads.row[leads.into == header.offset]] = header.offset
    offsets[leads.row[leads.into == 0]] = 0
    return offsets


def _leads_from(spans: Sequence[Span], index: BlockIndex, rules: PointerRules, source: Mask, wanted: Mask) -> Leads:
    """Return the pointers to wanted blocks that lie in others of some blocks."""
    hits = scan_pointers(spans, index, rules, wanted)
    row = index.find(hits.place)
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
        header = _best(row, into, size, word)
        if header is None:
            break
        found.append(header)
        kept = ~np.isin(row, row[into == header.offset])
        row, into = row[kept], into[kept]
    return found


def _best(row: I64, into: U64, size: U64, word: int) -> Optional[Header]:
    near = into <= LONGEST
    blocks, pointers = np.unique(row, return_counts=True)
    if not near.any():
        return None
    offset = int(np.bincount(into[near].astype(np.int64)).argmax())
    hit = size[row[into == offset]]
    # Where pointers could lead to: every word but the first. Other offsets are rarer: chance gives no more than this.
    slots = np.maximum(size[blocks].astype(np.int64) // word - 1, pointers)
    expected = float((pointers / slots)[size[blocks] > offset].sum())
    if len(hit) < max(LEAST_BLOCKS, LEAST_SHARE * len(blocks)) or _is_one_end(hit, offset):
        return None
    if _chance(len(hit), len(blocks), expected) * LONGEST > CHANCE:
        return None
    return Header(offset, len(hit), len(blocks), expected)


def _is_one_end(size: U64, offset: int) -> bool:
    """Whether it may be the end of equal arrays: nearly all blocks have one size, and it lies in their second half."""
    sizes, counts = np.unique(size, return_counts=True)
    often = counts.argmax()
    return bool(counts[often] >= _ONE_SIZE * len(size) and offset > int(sizes[often]) // 2)


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
