"""``blocks leaks``: the blocks that are unreachable from any root."""

from __future__ import annotations

from typing import Any

from gdbext.commands.drawing import find_output, write
from gdbext.commands.reachability import find_types, read_reach

from gdbext.analysis.leaks import report
from gdbext.analysis.leaks.folding import fold_leaks
from gdbext.report import Report


def find(session: Any, arguments: Any) -> Report:
    """Return what leaked."""
    flame = find_output(session, arguments, "flame")
    reach = read_reach(session, arguments)
    types, problems = find_types(session, reach, leaked=True)
    if flame is not None:
        write(flame, fold_leaks(reach, types))
    listed, maybe, limit = arguments.flag("list"), arguments.flag("possible"), arguments.value("limit")
    return report.leaks(reach, types, listed, maybe, problems, limit)
