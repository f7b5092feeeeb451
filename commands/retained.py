"""``blocks retained``: what keeps how much alive."""

from __future__ import annotations

from typing import Any

from gdbext.commands.drawing import find_output, write
from gdbext.commands.reachability import find_types, read_reach

from gdbext.analysis.pins import retained
from gdbext.analysis.pins.naming import Places
from gdbext.analysis.pins.retainedtree import folded, retained_tree
from gdbext.report import Report


def find(session: Any, arguments: Any) -> Report:
    """Return what only each root, block and type keeps alive."""
    reach = read_reach(session, arguments)
    names = session.root_names
    flame = find_output(session, arguments, "flame")
    keepers = retained.find_keepers(reach, names)
    types, problems = find_types(session, reach)
    kept = retained.sum_up(reach, keepers)
    if any(problem.kind == "interrupted" for problem in problems):
        types = None  # sums over a part of a type's blocks say nothing
    if flame is not None:
        write(flame, folded(retained_tree(reach, kept, types)))
    return retained.retained(reach, kept, Places(reach, names, lambda: types), arguments.value("top"), problems)
