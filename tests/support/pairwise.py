"""Few rows that hold every pair of values of every two dimensions at least once, or more than pairs of some."""

from __future__ import annotations

from functools import lru_cache
from itertools import combinations, product
from typing import Mapping, Sequence

Row = dict[str, str]
Covered = tuple[tuple[str, str], ...]  # values that are to meet: a pair, or a combination
Dimensions = Mapping[str, Sequence[str]]


def full(dimensions: Dimensions) -> list[Row]:
    """Return every row, in the order of the dimensions' values."""
    return [dict(zip(dimensions, values)) for values in product(*dimensions.values())]


def pairwise(dimensions: Dimensions, once: Sequence[str] = ()) -> list[Row]:
    """Return rows that cover every pair; the same rows each time.

    Greedy: the next row is the first of those that cover the most pairs not yet covered. The whole
    product is searched each time, so it must stay within some thousands.

    :param once: dimensions, and values, that are to be covered without their pairs; of these come as many as there
        is room for in the rows.
    """
    key = tuple((name, tuple(values)) for name, values in dimensions.items())
    return [dict(row) for row in _covering(key, tuple(once))]


def thorough(dimensions: Dimensions, whole: Sequence[str]) -> list[Row]:
    """Return rows that cover each combination of ``whole`` dimensions, and every pair of all; the same each time."""
    key = tuple((name, tuple(values)) for name, values in dimensions.items())
    return [dict(row) for row in _covering(key, whole=tuple(whole))]


@lru_cache(maxsize=None)
def _covering(
    dimensions: tuple[tuple[str, tuple[str, ...]], ...], once: tuple[str, ...] = (), whole: tuple[str, ...] = ()
) -> list[Row]:
    rows = [(row, _wanted(row, once) | _combination(row, whole), _pairs(row)) for row in full(dict(dimensions))]
    missing: set[Covered] = set().union(*(wanted for _, wanted, _ in rows))
    welcome: set[Covered] = set().union(*(pairs for _, _, pairs in rows))
    chosen = []
    while missing:
        best, wanted, pairs = max(rows, key=lambda row: (len(row[1] & missing), len(row[2] & welcome)))
        chosen.append(best)
        missing -= wanted
        welcome -= pairs
    return chosen


def _wanted(row: Row, once: tuple[str, ...]) -> set[Covered]:
    """The pairs of a row that must be covered; a value that needs no pair stands with itself."""
    alone = {item for item in row.items() if once and set(item) & set(once)}
    paired = {name: value for name, value in row.items() if (name, value) not in alone}
    return (_pairs(paired) if paired else set()) | {(item, item) for item in alone}


def _combination(row: Row, whole: tuple[str, ...]) -> set[Covered]:
    return {tuple((name, row[name]) for name in whole)} if whole else set()


def _pairs(row: Row) -> set[Covered]:
    """Every two values of a row; with one dimension, the value with itself."""
    items = list(row.items())
    return set(combinations(items, 2)) or {(item, item) for item in items}
