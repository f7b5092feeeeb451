"""``blocks refs`` and ``blocks path``: who points at a block, and what way leads there from a root."""

from __future__ import annotations

from typing import Any

from gdbext.commands.reachability import read_places, read_reach

from gdbext.analysis.pins import path, refs
from gdbext.report import Report


def find_pointers(session: Any, arguments: Any) -> Report:
    """Return who points at an address."""
    address = int(session.evaluate(arguments.expression))
    reach = read_reach(session, arguments)
    places, problems = read_places(session, arguments, reach)
    return refs.refs(reach, places, address, arguments.flag("interior"), arguments.value("depth"), problems)


def find_path(session: Any, arguments: Any) -> Report:
    """Return what keeps the block at an address alive."""
    address = int(session.evaluate(arguments.expression))
    reach = read_reach(session, arguments)
    places, problems = read_places(session, arguments, reach)
    return path.paths(reach, places, address, arguments.value("roots") or path.ALL, problems)
