"""``blocks types``: what each block in use is."""

from __future__ import annotations

from typing import Any

from gdbext.commands.reachability import read_reach

from gdbext.analysis.types import report
from gdbext.report import Report


def examine(session: Any, arguments: Any) -> Report:
    """Return the blocks by type, or those of one type."""
    reach = read_reach(session, arguments)
    found = session.block_types(reach)
    name = arguments.value("list")
    if name is not None:
        return report.list_type(reach, found, name)
    return report.summarise(reach, found, arguments.flag("by-size"))
