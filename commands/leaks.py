"""``blocks leaks``: the blocks that no way from any root leads to."""

from __future__ import annotations

from typing import Any

from gdbext.analysis.leaks import report
from gdbext.bridge.commands.reachability import find_types, read_reach
from gdbext.report import Report


def find(context: Any, arguments: Any) -> Report:
    """Return what leaked."""
    reach = read_reach(context, arguments)
    types, problems = find_types(context, reach, leaked=True)
    return report.leaks(reach, types, arguments.flag("list"), arguments.flag("possible"), problems)
