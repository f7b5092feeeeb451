"""``blocks leaks``: the blocks that no way from any root leads to."""

from __future__ import annotations

from typing import Any, Optional, Sequence, Tuple

from gdbext.commands.blocks import read_clear

from gdbext.analysis import leaks
from gdbext.analysis.blocktypes.model import BlockTypes
from gdbext.analysis.reach.graph import Reach
from gdbext.report import Problem, Report


def find(context: Any, arguments: Any) -> Report:
    """Return what leaked."""
    reach = context.reach(read_clear(context, arguments))
    types, problems = find_types(context, reach)
    return leaks.leaks(reach, types, arguments.flag("list"), arguments.flag("maybe"), problems)


def find_types(context: Any, reach: Reach) -> Tuple[Optional[BlockTypes], Sequence[Problem]]:
    """Return the types of leaked blocks; None, and a problem, where that was stopped: leaks are known without them."""
    try:
        return context.leaked_types(reach), ()
    except KeyboardInterrupt:
        return None, [Problem("interrupted", None, "stopped while types were looked for: they are left out")]
