"""``heapmap``: the heap page by page, in a terminal or as a picture."""

from __future__ import annotations

import re
from typing import Any, Sequence

from gdbext.commands.blocks import read_range
from gdbext.commands.drawing import find_output, write

from gdbext.analysis.blocks.summary import report_on, require_heaps
from gdbext.analysis.map.cells import Stretch, draw, map_all, map_heaps
from gdbext.errors import UsageError
from gdbext.report import Report
from gdbext.starting import dependencies

_RANGE = re.compile(r"\s*\w+\s*-\s*\w+\s*")
_CELLS = 2400
_DRAWN = 12_000  # in a file


def show(session: Any, arguments: Any) -> Report:
    """Return the map of the heaps, of one arena, or of a range of addresses."""
    path = find_output(session, arguments, "svg")
    wanted = _wanted(session, arguments.expression)
    heaps = session.heaps()
    drawn = draw(session.target, heaps, wanted, _CELLS if path is None else _DRAWN)
    report = report_on(heaps, drawn)
    if path is not None:
        dependencies.load(*dependencies.DRAWING)
        from gdbext.render.page.page import map_svg

        write(path, [map_svg(report)])
    return report


def _wanted(session: Any, text: str) -> Sequence[Stretch]:
    if _RANGE.fullmatch(text) and text.strip()[0].isdigit():
        return _within(session, text)
    require_heaps(session.heaps())
    every = map_heaps(session.heaps())
    if not text:
        return every
    arena = session.evaluate(text)
    found = [one for one in every if one.arena == arena]
    if not found:
        raise UsageError(f"{text} is no arena", "`blocks summary` lists them; START-END is a range of addresses")
    return found


def _within(session: Any, text: str) -> Sequence[Stretch]:
    start, end = read_range(text)
    assert start is not None and end is not None
    found = [
        one._replace(start=max(one.start, start), end=min(one.end, end))
        for one in map_all(session.target)
        if one.start < end and one.end > start
    ]
    if not found:
        raise UsageError(f"nothing is mapped in {text}", "`rss` and `info proc mappings` say what is")
    return found
