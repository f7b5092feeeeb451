"""All pairs: few rows that hold every pair of values of every two dimensions at least once."""

from __future__ import annotations

from functools import lru_cache
from itertools import combinations, product
from typing import Mapping, Sequence

Row = dict[str, str]
Pair = tuple[tuple[str, str], tuple[str, str]]
Dimensions = Mapping[str, Sequence[str]]


def full(dimensions: Dimensions) -> list[Row]:
    """Return every row, in the order of the dimensions' values."""
    return [dict(zip(dimensions, values)) for values in product(*dimensions.values())]


def pairwise(dimensions: Dimensions) -> list[Row]:
    """Return rows that cover every pair; the same rows each time.

    Greedy: the next row is the first of those that cover the most pairs not yet covered. The whole
    product is searched each time, so it must stay within some thousands.
    """
    key = tuple((name, tuple(values)) for name, values in dimensions.items())
    return [dict(row) for row in _covering(key)]


@lru_cache(maxsize=None)
def _covering(dimensions: tuple[tuple[str, tuple[str, ...]], ...]) -> list[Row]:
    rows = [(row, _pairs(row)) for row in full(dict(dimensions))]
    missing: set[Pair] = set().union(*(pairs for _, pairs in rows))
    chosen = []
    while missing:
        best, covered = max(rows, key=lambda row: len(row[1] & missing))
        chosen.append(best)
        missing -= covered
    return chosen


def _pairs(row: Row) -> set[Pair]:
    """Every two values of a row; with one dimension, the value with itself."""
    items = list(row.items())
    return set(combinations(items, 2)) or {(item, item) for item in items}
