"""Where the parts of pictures go: rectangles for shares, stretches for a tree, rows for a map."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Iterator, List, Optional, Sequence, Tuple


@dataclass(frozen=True)
class Box:
    """A rectangle of a picture, in its own units."""

    x: float
    y: float
    w: float
    h: float


def squarified(values: Sequence[float], box: Box) -> Sequence[Box]:
    """Return a rectangle for each value, of its share of the box and as square as can be.

    M. Bruls, K. Huizing, J. van Wijk: Squarified Treemaps (2000).

    :param values: above 0, the greatest first.
    """
    placed: List[Box] = []
    whole = sum(values)
    scale = box.w * box.h / whole if whole else 0.0
    left = [value * scale for value in values]
    while left:
        side = min(box.w, box.h)
        count = _row_length(left, side)
        row, left = left[:count], left[count:]
        placed += _in_row(row, box)
        box = _rest(sum(row), box)
    return placed


def _row_length(areas: Sequence[float], side: float) -> int:
    best, total = float("inf"), 0.0
    for count, area in enumerate(areas, 1):
        total += area
        worst = _worst(areas[0], area, total, side)
        if worst > best:
            return count - 1
        best = worst
    return len(areas)


def _worst(largest: float, smallest: float, total: float, side: float) -> float:
    if not smallest or not side:
        return float("inf")
    return max(side * side * largest / (total * total), total * total / (side * side * smallest))


def _in_row(areas: Sequence[float], box: Box) -> Iterator[Box]:
    total, at = sum(areas), 0.0
    wide = box.w >= box.h
    depth = total / (box.h if wide else box.w) if box.w and box.h else 0.0
    for area in areas:
        length = area / depth if depth else 0.0
        yield Box(box.x, box.y + at, depth, length) if wide else Box(box.x + at, box.y, length, depth)
        at += length


def _rest(area: float, box: Box) -> Box:
    if box.w >= box.h:
        depth = min(area / box.h, box.w) if box.h else 0.0
        return Box(box.x + depth, box.y, box.w - depth, box.h)
    depth = min(area / box.w, box.h) if box.w else 0.0
    return Box(box.x, box.y + depth, box.w, box.h - depth)


def nested(above: Sequence[Optional[int]], values: Sequence[float], width: float) -> Sequence[Tuple[float, float, int]]:
    """Return of each node of a tree where it begins, how wide it is, and its depth.

    :param above: position of what each hangs below, which comes before it; None of roots.
    :param values: of a node, no less than those below it together.
    """
    whole = sum(value for value, up in zip(values, above) if up is None)
    scale = width / whole if whole else 0.0
    free = 0.0
    behind: List[float] = []
    placed: List[Tuple[float, float, int]] = []
    for value, up in zip(values, above):
        at, depth = (free, 0) if up is None else (behind[up], placed[up][2] + 1)
        placed.append((at, value * scale, depth))
        behind.append(at)
        if up is None:
            free += value * scale
        else:
            behind[up] += value * scale
    return placed
