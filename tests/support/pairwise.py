"""All pairs: few rows that hold every pair of values of every two dimensions at least once."""

from __future__ import annotations

from itertools import combinations, product
from typing import Callable, Mapping, Sequence

Row = dict[str, str]
Pair = tuple[tuple[str, str], tuple[str, str]]


def _anything(row: Row) -> bool:
    return True


def full(dimensions: Mapping[str, Sequence[str]], allowed: Callable[[Row], bool] = _anything) -> list[Row]:
    """Return every row that ``allowed`` accepts, in the order of the dimensions' values."""
    rows = (dict(zip(dimensions, values)) for values in product(*dimensions.values()))
    return [row for row in rows if allowed(row)]


def pairwise(dimensions: Mapping[str, Sequence[str]], allowed: Callable[[Row], bool] = _anything) -> list[Row]:
    """Return rows that cover every pair that some allowed row has; the same rows each time.

    Greedy: the next row is the first of those that cover the most pairs not yet covered. The product
    of the dimensions is searched each time, so it must stay within some thousands.
    """
    candidates = full(dimensions, allowed)
    pairs = [_pairs(row) for row in candidates]
    missing = set().union(*pairs) if pairs else set()
    chosen = []
    while missing:
        best = max(range(len(pairs)), key=lambda index: (len(pairs[index] & missing), -index))
        chosen.append(candidates[best])
        missing -= pairs[best]
    if not chosen:
        return candidates[:1]
    return chosen


def _pairs(row: Row) -> set[Pair]:
    """Every two values of a row; with one dimension, the value with itself."""
    items = list(row.items())
    return set(combinations(items, 2)) or {(item, item) for item in items}
