"""A map of memory in a terminal: a character for each cell; with colour two rows of cells share a line."""

from __future__ import annotations

from itertools import groupby, zip_longest
from typing import Iterator, Sequence

from gdbext.render.style import Style
from gdbext.render.values import shorten
from gdbext.report import Memory, Mosaic
from gdbext.wording import printable

_GLYPHS = {
    Memory.USED: "█",
    Memory.MIXED: "▚",
    Memory.CACHED: "▓",
    Memory.FREE: "░",
    Memory.RETURNED: "·",
    Memory.UNTOUCHED: " ",
    Memory.OVERHEAD: "▒",
    Memory.FILE: "f",
    Memory.STACK: "s",
    Memory.ANONYMOUS: "a",
    Memory.RESERVED: "-",
    Memory.MISSING: "?",
}
_ASCII = {
    Memory.USED: "#",
    Memory.MIXED: "/",
    Memory.CACHED: "+",
    Memory.FREE: "o",
    Memory.RETURNED: ".",
    Memory.OVERHEAD: "%",
}
_LABEL = 30  # characters at most
_FEWEST = 16  # cells of a line, however narrow it is


def mosaic_lines(mosaic: Mosaic, width: int, style: Style) -> Iterator[str]:
    """Iterate over the lines of a map, with a legend at its end.

    :param width: characters of a line.
    """
    labels = [shorten(printable(name), min(_LABEL, width // 3)) for name, _ in mosaic.stretches]
    indent = max(map(len, labels), default=0) + 2
    columns = max(width - indent, _FEWEST)
    for label, (_, cells) in zip(labels, mosaic.stretches):
        rows = [cells[at : at + columns] for at in range(0, len(cells), columns)]
        for line in _in_colour(rows, style) if _halved(style) else _in_characters(rows, style):
            yield (style.paint(label, "dim") + " " * (indent - len(label)) + line).rstrip()
            label = ""
    yield from _legend(mosaic, width, style)


def _halved(style: Style) -> bool:
    return style.color and not style.plain


def _in_characters(rows: Sequence[Sequence[Memory]], style: Style) -> Iterator[str]:
    for row in rows:
        yield "".join(style.paint(glyph(use, style) * len(list(same)), use) for use, same in groupby(row))


def _in_colour(rows: Sequence[Sequence[Memory]], style: Style) -> Iterator[str]:
    for upper, lower in zip_longest(rows[::2], rows[1::2], fillvalue=()):
        pairs = groupby(zip_longest(upper, lower))
        yield "".join(style.halves(above, below, len(list(same))) for (above, below), same in pairs)


def glyph(use: Memory, style: Style) -> str:
    """Return the character of a cell."""
    return _ASCII.get(use, _GLYPHS[use]) if style.plain else _GLYPHS[use]


def _legend(mosaic: Mosaic, width: int, style: Style) -> Iterator[str]:
    known = {use for _, cells in mosaic.stretches for use in cells}
    line, length = "", 0
    for use in [use for use in _GLYPHS if use in known]:
        mark = style.halves(use, use, 1) if _halved(style) else style.paint(glyph(use, style), use)
        word = f"{use.value}  "
        if length + len(word) + 2 > width:
            yield line.rstrip()
            line, length = "", 0
        line, length = f"{line}{mark or ' '} {word}", length + len(word) + 2
    yield line.rstrip()
