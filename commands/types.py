"""``blocks types``: what each block in use is."""

from __future__ import annotations

from typing import Any

from gdbext.analysis.types import report
from gdbext.bridge.commands.reachability import read_reach
from gdbext.report import Report


def examine(context: Any, arguments: Any) -> Report:
    """Return the blocks by type, or those of one type."""
    reach = read_reach(context, arguments)
    found = context.block_types(reach)
    name = arguments.value("list")
    if name is not None:
        return report.list_type(reach, found, name)
    return report.summarise(reach, found, arguments.flag("by-size"))
