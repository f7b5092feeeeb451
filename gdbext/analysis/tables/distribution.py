"""How evenly entries lie in bins: what chance alone gives, percentiles, histograms."""

from __future__ import annotations

import math
from typing import List, Sequence, Tuple

import numpy as np

from gdbext.structures.walk.model import U64

RARE = 0.01  # expected bins longer than what is called the fair maximum
_COUNTABLE = 1 << 24  # lengths up to here are counted in an array


def fair_max(bins: int, load: float) -> int:
    """Return the greatest length that a fair hash would give a bin.

    Each bin's length is then Poisson distributed. It is the smallest m with ``bins * P(X > m) < 0.01``, where
    ``P(X = k) = exp(-load) * load**k / k!``.

    :param load: entries a bin.
    """
    if bins <= 0 or load <= 0:
        return 0
    first = math.floor(load)  # below the mean the probability is far too great
    last = first + int(20 * math.sqrt(load)) + 80
    steps = np.arange(first + 1, last + 1, dtype=np.float64)
    start = -load + first * math.log(load) - math.lgamma(first + 1)
    exact = np.exp(start + np.cumsum(math.log(load) - np.log(steps)))  # P(X = first + 1), …
    beyond = np.cumsum(exact[::-1])[::-1]  # P(X > first), P(X > first + 1), …
    return first + int(np.argmax(bins * beyond < RARE))


def expected_nonempty(bins: int, entries: int) -> float:
    """Return how many bins a fair hash would use: ``bins * (1 - exp(-load))``."""
    return bins * -math.expm1(-entries / bins) if bins else 0.0


def histogram(lengths: U64) -> List[Tuple[int, int]]:
    """Return pairs of a length and the number of bins that have it, the shortest first."""
    if not len(lengths):
        return []
    if int(lengths.max()) < _COUNTABLE:
        counts = np.bincount(lengths.astype(np.int64))
        present = np.flatnonzero(counts)
        return list(zip(present.tolist(), counts[present].tolist()))
    values, counts = np.unique(lengths, return_counts=True)
    return list(zip(values.tolist(), counts.tolist()))


def merged(histograms: Sequence[Sequence[Tuple[int, int]]]) -> List[Tuple[int, int]]:
    """Return the sum of several histograms."""
    sums: dict[int, int] = {}
    for each in histograms:
        for length, bins in each:
            sums[length] = sums.get(length, 0) + bins
    return sorted(sums.items())


def percentile(counts: Sequence[Tuple[int, int]], share: float, least: int = 1) -> int:
    """Return the length that this share of the bins does not exceed; 0 when there are none.

    :param counts: as :func:`histogram` returns it.
    :param share: 0.99 for the 99th percentile.
    :param least: bins that are shorter do not count; by default those that are empty.
    """
    wanted = share * sum(bins for length, bins in counts if length >= least)
    seen = 0
    for length, bins in counts:
        seen += bins if length >= least else 0
        if length >= least and seen >= wanted:
            return length
    return 0


def buckets(counts: Sequence[Tuple[int, int]]) -> List[Tuple[int, int, int, int]]:
    """Return rows (first length, last length, bins, entries): 0, 1, 2, then 3-4, 5-8, 9-16, …; none that is empty."""
    rows: List[Tuple[int, int, int, int]] = []
    for length, bins in counts:
        first, last = _bucket(length)
        if rows and rows[-1][0] == first:
            _, _, before, entries = rows.pop()
            rows.append((first, last, before + bins, entries + length * bins))
        else:
            rows.append((first, last, bins, length * bins))
    return rows


def _bucket(length: int) -> Tuple[int, int]:
    if length < 3:
        return length, length
    last = 1 << (length - 1).bit_length()
    return last // 2 + 1, last


def improbable(counts: Sequence[int]) -> bool:
    """Return whether tables that share entries evenly would hardly hold these numbers of them.

    Pearson's chi-square against equal shares, made normal by Wilson and Hilferty's cube root; beyond five
    standard deviations (three in ten million).
    """
    freedom = len(counts) - 1
    total = sum(counts)
    if freedom < 1 or not total:
        return False
    fair = total / len(counts)
    square = sum((count - fair) ** 2 for count in counts) / fair
    spread = 2 / (9 * freedom)
    deviation: float = ((square / freedom) ** (1 / 3) - (1 - spread)) / math.sqrt(spread)
    return deviation > 5
