"""The window ``gxheap`` of gdb's text interface: the map of the heap, and what lies in the cell that was chosen.

It shows heaps that a command has walked at this stop: a window walks none by itself, which takes seconds of each step.
"""

from __future__ import annotations

from itertools import groupby
from typing import Any, Iterator, List, NamedTuple, Optional, Sequence

import gdb

from gdbext.analysis.map.cells import AddressMap, draw, map_heaps
from gdbext.bridge.commands.charset import writable
from gdbext.bridge.stops import session
from gdbext.errors import GdbextError
from gdbext.render.mosaic import glyph
from gdbext.render.style import Style
from gdbext.report import Memory
from gdbext.wording import printable, size_text

_NO_HEAP = "no heap was walked at this stop: heapmap, or triage, does that"
_LABEL = 32
_CELLS = 6000  # a window can be scrolled


class _Row(NamedTuple):
    """One line of cells.

    :param first: position of its first cell in the map.
    """

    label: str
    first: int
    cells: Sequence[Memory]


class HeapWindow:
    """What gdb asks of a window: see "TUI Windows In Python" in its manual.

    :param window: gdb's ``gdb.TuiWindow``.
    """

    def __init__(self, window: Any) -> None:
        self._window = window
        self._session: Optional[session.GdbSession] = None
        self._map: Optional[AddressMap] = None
        self._top = self._chosen = 0
        gdb.events.before_prompt.connect(self._at_prompt)

    def close(self) -> None:
        """Be shown no more."""
        gdb.events.before_prompt.disconnect(self._at_prompt)

    def _at_prompt(self, event: object = None) -> None:
        self.render()

    def render(self) -> None:
        """Show the map as it stands now."""
        if not self._window.is_valid():
            return
        self._window.title = "heap"
        self._refresh()
        self._window.erase()
        height, rows = self._window.height, self._rows()
        self._top = max(min(self._top, len(rows) - height + 1), 0)
        shown = [self._line(row) for row in rows[self._top : self._top + height - 1]]
        self._window.write(writable("".join(f"{line}\n" for line in [*shown, self._described()][:height])))

    def vscroll(self, count: int) -> None:
        """Go down so many lines, up where negative."""
        self._top += count
        self.render()

    def hscroll(self, count: int) -> None:
        """Choose the cell so many further."""
        self._choose(self._chosen + count)

    def click(self, x: int, y: int, button: int) -> None:
        """Choose the cell there."""
        rows = self._rows()
        if self._top + y < len(rows):
            row = rows[self._top + y]
            within = x - self._indent
            if 0 <= within < len(row.cells):
                self._choose(row.first + within)

    def _choose(self, cell: int) -> None:
        count = 0 if self._map is None else len(self._map.cells)
        self._chosen = max(min(cell, count - 1), 0)
        self.render()

    def _refresh(self) -> None:
        """Take the map of this stop's heaps, where they are known."""
        now = session.current()
        if now is self._session and self._map is not None:
            return
        self._session, self._map = now, None
        heaps = now.known_heaps
        if heaps:
            try:
                self._map = draw(now.target, heaps, map_heaps(heaps), _CELLS)
            except GdbextError as error:
                gdb.write(writable(f"gdbext: {printable(str(error))}\n"), gdb.STDERR)

    @property
    def _indent(self) -> int:
        return min(_LABEL, int(self._window.width) // 3)

    def _rows(self) -> List[_Row]:
        columns = max(self._window.width - self._indent, 1)
        return [] if self._map is None else list(_wrapped(self._map, columns))

    def _line(self, row: _Row) -> str:
        style = Style(bool(gdb.parameter("style enabled")))
        label = f"{row.label[: self._indent - 1]:{self._indent}}"
        runs = ((use, len(list(same))) for use, same in groupby(row.cells))
        return label + "".join(style.paint(glyph(use, style) * count, use) for use, count in runs)

    def _described(self) -> str:
        if self._map is None or not len(self._map.cells):
            return _NO_HEAP
        return describe(self._map, self._chosen)[: self._window.width]


def _wrapped(drawn: AddressMap, columns: int) -> Iterator[_Row]:
    for part, (name, cells) in zip(drawn.parts, drawn.picture.stretches):
        for at in range(0, len(cells), columns):
            yield _Row("" if at else printable(name), part.first + at, cells[at : at + columns])


def describe(drawn: AddressMap, cell: int) -> str:
    """Return in words what lies in a cell."""
    part = next(one for one in drawn.parts if one.first <= cell < one.first + one.cells)
    start = part.start + (cell - part.first) * drawn.cell_bytes
    end = min(start + drawn.cell_bytes, part.end)
    pages = [(use, counts[cell]) for use, counts in drawn.cells.uses.items() if counts[cell]]
    held = ", ".join(f"{use} {size_text(count * drawn.page_bytes)}" for use, count in pages)
    size, address = drawn.cells.largest[cell], drawn.cells.block[cell]
    block = "" if size is None else f"; largest block {size_text(size)} at {address}"
    return f"{start:#x}-{end:#x} {printable(part.name)}: {held}{block}"
