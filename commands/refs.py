"""``blocks refs`` and ``blocks path``: who points at a block, and what way leads there from a root."""

from __future__ import annotations

from typing import Any

from gdbext.commands.reachability import read_places, read_reach

from gdbext.analysis.pins import path, refs
from gdbext.errors import UsageError
from gdbext.report import Report


def find_pointers(session: Any, arguments: Any) -> Report:
    """Return who points at an address."""
    address = read_address(session, arguments, "blocks refs")
    reach = read_reach(session, arguments)
    places, problems = read_places(session, arguments, reach)
    return refs.refs(reach, places, address, arguments.flag("interior"), arguments.value("depth"), problems)


def find_path(session: Any, arguments: Any) -> Report:
    """Return what keeps the block at an address alive."""
    address = read_address(session, arguments, "blocks path")
    reach = read_reach(session, arguments)
    places, problems = read_places(session, arguments, reach)
    return path.paths(reach, places, address, arguments.value("roots") or path.ALL, problems)


def read_address(session: Any, arguments: Any, command: str) -> int:
    """Return the address that is asked about.

    :raises UsageError: when there is none.
    """
    if not arguments.expression:
        raise UsageError("an address is missing", f"{command} ADDRESS")
    return int(session.evaluate(arguments.expression))
