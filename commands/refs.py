"""``blocks refs`` and ``blocks path``: who points at a block, and what way leads there from a root."""

from __future__ import annotations

from typing import Any

from gdbext.commands.drawing import draw, find_output
from gdbext.commands.reachability import read_places, read_reach

from gdbext.analysis.pins import path, refs
from gdbext.analysis.pins.naming import Places
from gdbext.analysis.pins.pathdot import dot_lines
from gdbext.analysis.reach.graph import Reach
from gdbext.errors import TooLargeError
from gdbext.kernels import NOT_REACHED
from gdbext.report import Report


def find_pointers(session: Any, arguments: Any) -> Report:
    """Return who points at an address."""
    address = int(session.evaluate(arguments.expression))
    reach = read_reach(session, arguments)
    places, problems = read_places(session, arguments, reach)
    return refs.refs(reach, places, address, arguments.flag("interior"), arguments.value("depth"), problems)


def find_path(session: Any, arguments: Any) -> Report:
    """Return what keeps the block at an address alive."""
    dot = find_output(session, arguments, "dot")
    address = int(session.evaluate(arguments.expression))
    reach = read_reach(session, arguments)
    places, problems = read_places(session, arguments, reach)
    reach = _by_references(reach, places, address)
    report = path.paths(reach, places, address, arguments.value("roots") or path.ALL, problems)
    if dot is not None:
        draw(dot, dot_lines(report.data))
    return report


def _by_references(reach: Reach, places: Places, address: int) -> Reach:
    """Return what is reachable by references alone, where a language has links beside these and the block is so."""
    runtime, row = None if places.types is None else places.types.runtime, reach.find_row(address)
    if runtime is None or row is None:
        return reach
    try:
        strong = runtime.strong(reach)
    except TooLargeError:
        return reach
    return strong if strong.states[row] != NOT_REACHED else reach
