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
    """Where a stretch begins, and what is left of it.

    :param column: of its first cell: not the first column where short stretches of one kind share a row.
    :param text: shown where it begins a row.
    """

    y: float
    column: int
    text: str


@dataclass(frozen=True)
class MapPicture:
    """A map, ready to be written.

    :param paths: use and path of its cells.
    :param frame: path of all cells' outline.
    :param labels: one for each stretch.
    """

    width: int
    height: float
    columns: int
    paths: Sequence[Tuple[str, str]]
    labels: Sequence[Label]
    uses: Sequence[Mapping[str, Any]]
    legend: Sequence[str]


def picture(address_map: Mapping[str, Any], columns: int = COLUMNS) -> MapPicture:
    """Return the picture of an ``AddressMap`` of the document."""
    parts, uses = address_map["parts"], address_map["cells"]["uses"]
    known = [use for use in USES if use in uses]
    paths: Dict[str, List[str]] = {use: [] for use in known}
    labels = list(_labels(parts, columns))
    for part, label in zip(parts, labels):
        for row, cells in enumerate(_rows(part, columns)):
            for use, piece in _drawn(cells, uses, known, LEFT + label.column * CELL, label.y + row * ROW):
                paths[use].append(piece)
    height = labels[-1].y + _height(parts[-1], columns) if parts else 1
    made = [(use, "".join(pieces)) for use, pieces in paths.items() if pieces]
    return MapPicture(LEFT + columns * CELL, height, columns, made, labels, address_map["uses"], known)


def _height(part: Mapping[str, Any], columns: int) -> int:
    return int(-(-part["cells"] // columns) * ROW + GAP)


def _labels(parts: Sequence[Mapping[str, Any]], columns: int) -> Iterator[Label]:
    """Iterate over the places of stretches: one below the other, short ones of no arena beside their like."""
    top, height, free, last = 0, 0, columns, None
    for part in parts:
        if part["arena"] is None and part["name"] == last and free + part["cells"] < columns:
            yield Label(top, free + 1, "")
            free += 1 + part["cells"]
            continue
        top += height
        yield Label(top, 0, f"{text(_short(part['name']), 22)} {text(part['start'], 18)}")
        free, last, height = part["cells"], part["name"], _height(part, columns)


def _short(name: str) -> str:
    return name.rpartition("/")[2] or name


def _rows(part: Mapping[str, Any], columns: int) -> Iterator[range]:
    end = part["first"] + part["cells"]
    for first in range(part["first"], end, columns):
        yield range(first, min(first + columns, end))


def _drawn(
    cells: range, uses: Mapping[str, Sequence[int]], known: Sequence[str], left: float, top: float
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
        yield from _stacked(held, left + at * CELL, top, count * CELL)
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
