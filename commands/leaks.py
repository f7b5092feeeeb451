"""``blocks leaks``: the blocks that no way from any root leads to."""

from __future__ import annotations

from typing import Any

from gdbext.analysis import leaks
from gdbext.bridge.reaching import find_types, read_reach
from gdbext.report import Report


def find(context: Any, arguments: Any) -> Report:
    """Return what leaked."""
    reach = read_reach(context, arguments)
    types, problems = find_types(context, reach, leaked=True)
    return leaks.leaks(reach, types, arguments.flag("list"), arguments.flag("possible"), problems)
