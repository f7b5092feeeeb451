"""A map of memory as a picture: a row of cells for each stretch, wrapped, one path for all cells of one use."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Dict, Iterator, List, Mapping, Sequence, Tuple

from gdbext.render.page.texts import fixed, text

COLUMNS = 128
CELL = 6  # width of a cell
ROW = 9  # from row to row; a cell is one less high
GAP = 5  # more, from stretch to stretch
LEFT = 190  # room for what a stretch is called

# From the bottom of a cell up.
USES = (
    "used", "cached", "free", "overhead", "anonymous", "stack", "file", "returned", "untouched", "reserved", "missing",
)  # fmt: skip


@dataclass(frozen=True)
class Label:
    """What stands left of a stretch.

    :param part: position of the stretch.
    """

    y: float
    text: str
    part: int


@dataclass(frozen=True)
class MapPicture:
    """A map, ready to be written.

    :param paths: use and path of its cells.
    :param frame: path of all cells' outline.
    :param labels: one for each stretch that has room for it.
    :param tops: where the first row of each stretch is.
    """

    width: int
    height: float
    columns: int
    paths: Sequence[Tuple[str, str]]
    labels: Sequence[Label]
    tops: Sequence[float]
    uses: Sequence[Mapping[str, Any]]
    legend: Sequence[str]


def picture(address_map: Mapping[str, Any], columns: int = COLUMNS) -> MapPicture:
    """Return the picture of an ``AddressMap`` of the document."""
    parts, uses = address_map["parts"], address_map["cells"]["uses"]
    known = [use for use in USES if use in uses]
    paths: Dict[str, List[str]] = {use: [] for use in known}
    tops, top = [], 0.0
    for part in parts:
        tops.append(top)
        for row, cells in enumerate(_rows(part, columns)):
            for use, piece in _drawn(cells, uses, known, top + row * ROW):
                paths[use].append(piece)
        top += -(-part["cells"] // columns) * ROW + GAP
    labels = list(_labels(parts, tops))
    made = [(use, "".join(pieces)) for use, pieces in paths.items() if pieces]
    return MapPicture(LEFT + columns * CELL, max(top, 1), columns, made, labels, tops, address_map["uses"], known)


def _rows(part: Mapping[str, Any], columns: int) -> Iterator[range]:
    end = part["first"] + part["cells"]
    for first in range(part["first"], end, columns):
        yield range(first, min(first + columns, end))


def _labels(parts: Sequence[Mapping[str, Any]], tops: Sequence[float]) -> Iterator[Label]:
    for at, (part, top) in enumerate(zip(parts, tops)):
        yield Label(top, f"{text(part['name'], 24)} {text(part['start'], 18)}", at)


def _drawn(
    cells: range, uses: Mapping[str, Sequence[int]], known: Sequence[str], top: float
) -> Iterator[Tuple[str, str]]:
    """Iterate over the pieces of paths that a row of cells needs: equal neighbours of one use are one piece."""
    at = 0
    while at < len(cells):
        held = [(use, uses[use][cells[at]]) for use in known if uses[use][cells[at]]]
        count = 1
        if len(held) == 1:
            use = held[0][0]
            while at + count < len(cells) and _is_only(uses, known, cells[at + count], use):
                count += 1
        yield from _stacked(held, LEFT + at * CELL, top, count * CELL)
        at += count


def _is_only(uses: Mapping[str, Sequence[int]], known: Sequence[str], cell: int, use: str) -> bool:
    return all(bool(uses[other][cell]) == (other == use) for other in known)


def _stacked(held: Sequence[Tuple[str, int]], x: float, top: float, width: float) -> Iterator[Tuple[str, str]]:
    whole, height = sum(pages for _, pages in held), ROW - 1
    bottom = top + height
    for use, pages in held:
        part = height * pages / whole
        bottom -= part
        yield use, f"M{x} {fixed(bottom)}h{width}v{fixed(part)}h-{width}z"
