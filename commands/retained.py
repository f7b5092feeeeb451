"""``blocks retained``: what keeps how much alive."""

from __future__ import annotations

from typing import Any

from gdbext.commands.refs import find_types, read_reach

from gdbext.analysis import retained
from gdbext.analysis.reach.naming import Places
from gdbext.report import Report


def find(context: Any, arguments: Any) -> Report:
    """Return what only each root, block and type keeps alive."""
    reach = read_reach(context, arguments)
    types, problems = find_types(context, reach)
    return retained.retained(reach, Places(reach, context.root_names, lambda: types), arguments.value("top"), problems)
