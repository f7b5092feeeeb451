"""The variables that may be hash tables, for commands that look for tables by themselves."""

from __future__ import annotations

from typing import Callable, Optional, Sequence

from gdbext.analysis.beyond import Beyond
from gdbext.analysis.missing import Unexamined
from gdbext.analysis.sources import Sources
from gdbext.analysis.tables import search
from gdbext.analysis.tables.search import Looked
from gdbext.debuginfo import NO_DEBUG_INFO
from gdbext.layout.types import Located
from gdbext.structures.shapes.anchored import anchors
from gdbext.wording import grouped

_NO_DEBUGGER = Unexamined("tables and types by name", "no debugger")


class TableVariables:
    """The variables of the program that may be tables, of as many as ``set gx table-search-variables`` says.

    :ivar found: none where the program knows no type of a table, or the setting is 0.
    :ivar unexamined: why there may be more.
    :raises KeyboardInterrupt: the user stopped it.
    """

    def __init__(self, sources: Sources) -> None:
        most = search.allowed(sources.settings.get(search.VARIABLES, 0), sources.target)
        self.found: Sequence[Located] = ()
        self.unexamined: Sequence[Unexamined] = ()
        shapes = search.table_shapes(sources.shapes)
        if search.may_have_tables(sources.debug.types, shapes):
            found = sources.debug.find_variables(search.matcher(shapes), search.MOST, most, search.wanted(shapes))
            self.found = list(found)
            if not found.complete:
                self.unexamined = [_cut_short(most)]
        if most:
            named = map(sources.debug.types.find_global, anchors(sources.shapes))
            self.found = [*(found for found in named if found is not None), *self.found]


def _cut_short(most: int) -> Unexamined:
    why = f"stopped after {grouped(most)} variables"
    return Unexamined(search.WHAT, why, f"set gx {search.VARIABLES} N")


def judge_tables(sources: Sources, each: Callable[[Looked], None] = lambda looked: None) -> Beyond:
    """Return what is wrong with the hash tables that the program's variables lead to.

    :param each: is told of each table.
    """
    if sources.debug is NO_DEBUG_INFO:
        return Beyond(unexamined=[_NO_DEBUGGER])
    variables = _find_variables(sources)
    if variables is None:
        return Beyond(unexamined=[search.INTERRUPTED])
    if not variables.found:
        return Beyond(unexamined=variables.unexamined)
    found = search.search(
        sources.target,
        sources.debug.types,
        sources.shapes,
        variables.found,
        sources.settings,
        sources.progress,
        each,
    )
    return Beyond(found.findings, found.evidence, [*found.unexamined, *variables.unexamined])


def find_tables(sources: Sources, each: Callable[[Looked], None] = lambda looked: None) -> Beyond:
    """Look at the same tables without a judgement; what there is to say of the search itself.

    :param each: is told of each table.
    """
    variables = _find_variables(sources)
    if variables is None:
        return Beyond(unexamined=[search.INTERRUPTED])
    tables = search.for_each_table(
        sources.target, sources.debug.types, sources.shapes, variables.found, sources.progress, sources.settings
    )
    interrupted: Sequence[Unexamined] = ()
    try:
        for looked in tables:
            each(looked)
    except KeyboardInterrupt:
        interrupted = [search.INTERRUPTED]
    return Beyond((), tables.evidence, [*tables.unexamined, *variables.unexamined, *interrupted])


def _find_variables(sources: Sources) -> Optional[TableVariables]:
    try:
        return TableVariables(sources)
    except KeyboardInterrupt:
        return None
