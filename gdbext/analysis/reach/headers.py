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

LEAST_BLOCKS = 16
LEAST_SHARE = 0.1  # of the blocks that no other header explains
CHANCE = 1e-9  # that chance explains as much, at any of the offsets that occur
_END = 16  # bytes that malloc may give beyond what was asked for: a pointer there may be one to an end
_CANDIDATES = 16  # offsets that are tried, those of most blocks first
_MOST_SAMPLED = 1 << 18  # blocks


@dataclass(frozen=True)
class Header:
    """One distance into blocks at which pointers count as start pointers.

    :param offset: bytes.
    :param blocks: that a pointer leads to at this offset, among ``of``.
    :param of: blocks that interior pointers lead to, and that no header before this one explains.
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
    row, into = _distinct(leads.row, leads.into)
    return _judge(row[into > 0], into[into > 0], index.size, rules.word)


def offsets_of(
    spans: Sequence[Span], index: BlockIndex, rules: PointerRules, states: U8, headers: Headers
) -> I64:
    """Return for each row the bytes of the header behind which pointers from reached memory lead, or 0.

    Only rows that headers raised have any: start pointers to them come from other such rows.

    :param states: what is reached with headers.
    """
    plain, raised = replace(rules, headers=()), headers.raised
    leads = headers.roots.to(raised) + _leads_from(spans, index, plain, states == REACHED, raised)
    offsets = np.zeros(len(index), np.int64)
    for header in reversed(headers.found):
        offsets[leads.row[leads.into == header.offset]] = header.offset
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
    """Return the header of most blocks that passes all tests, or None."""
    blocks, pointers = np.unique(row, return_counts=True)
    # Where pointers could lead to: every word but the first. Other offsets are rarer: chance gives no more than this.
    slots = np.maximum(size[blocks].astype(np.int64) // word - 1, pointers)
    offsets, counts = np.unique(into, return_counts=True)
    for at in np.argsort(-counts, kind="stable")[:_CANDIDATES]:
        hit = size[row[into == offsets[at]]]
        expected = float((pointers / slots)[size[blocks] > offsets[at]].sum())
        ends = int(np.count_nonzero(hit - offsets[at] < _END))
        enough = len(hit) - ends >= max(LEAST_BLOCKS, LEAST_SHARE * len(blocks))
        if enough and _chance(len(hit), len(blocks), expected) * len(offsets) <= CHANCE:
            return Header(int(offsets[at]), len(hit), len(blocks), expected)
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
